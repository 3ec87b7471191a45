//! The policy that is in force, its versions, and what a reload does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::effective::EffectivePolicy;
use crate::error::Problem;
use crate::spec::Digest;

/// One published policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyVersion {
    /// Counts from 1 within one process.
    pub version: u64,
    /// What it covers: every value and its layer.
    pub digest: Digest,
    /// The policy.
    pub policy: EffectivePolicy,
}

/// What a reload did; each becomes one event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyChange {
    /// A new version is in force.
    Published {
        /// Its number.
        version: u64,
        /// Its digest.
        digest: Digest,
        /// Fields whose value or layer differs from the version before.
        fields: Vec<String>,
    },
    /// The files cannot be used; the version before stays in force.
    KeptLastGood {
        /// The version that stays.
        version: u64,
        /// Why the new one is not used.
        problem: Problem,
    },
}

/// Holds the policy in force and the rule for replacing it.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyStore {
    current: PolicyVersion,
    last_problem: Option<Problem>,
}

impl PolicyStore {
    /// Begins with a good policy as version 1.
    pub fn new(policy: EffectivePolicy) -> Self {
        Self {
            current: PolicyVersion {
                version: 1,
                digest: policy.digest(),
                policy,
            },
            last_problem: None,
        }
    }

    /// Lends the version in force.
    pub const fn current(&self) -> &PolicyVersion {
        &self.current
    }

    /// Takes the result of reading and merging the layers anew; `None` when nothing changed.
    ///
    /// The same problem again is not told again.
    pub fn reload(&mut self, read: Result<EffectivePolicy, Problem>) -> Option<PolicyChange> {
        match read {
            Ok(policy) => {
                self.last_problem = None;
                let digest = policy.digest();
                if digest == self.current.digest {
                    return None;
                }
                let fields = changed_fields(&self.current.policy, &policy);
                let version = self.current.version + 1;
                self.current = PolicyVersion {
                    version,
                    digest: digest.clone(),
                    policy,
                };
                Some(PolicyChange::Published {
                    version,
                    digest,
                    fields,
                })
            }
            Err(problem) => {
                if self.last_problem.as_ref() == Some(&problem) {
                    return None;
                }
                self.last_problem = Some(problem.clone());
                Some(PolicyChange::KeptLastGood {
                    version: self.current.version,
                    problem,
                })
            }
        }
    }
}

fn changed_fields(old: &EffectivePolicy, new: &EffectivePolicy) -> Vec<String> {
    let value = |policy: &EffectivePolicy| serde_json::to_value(policy).unwrap_or_default();
    let (old, new) = (value(old), value(new));
    let Some(fields) = new.as_object() else {
        return Vec::new();
    };
    fields
        .iter()
        .filter(|(name, value)| old.get(name.as_str()) != Some(*value))
        .map(|(name, _)| name.clone())
        .collect()
}
