//! What is decided about an operation before anything starts: allow, ask or deny.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authority::Authority;
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::policy::{EffectivePolicy, Permission};
use crate::spec::Digest;

/// What an operation would do, as far as a decision needs it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// A command runs (E1, E2).
    RunCommand {
        /// Its words.
        argv: Vec<BytePath>,
    },
    /// A file is read (E5).
    ReadFile {
        /// Its path.
        path: BytePath,
    },
    /// A file is made, changed or removed (E3, E4, E6).
    ChangeFile {
        /// Its path.
        path: BytePath,
    },
    /// The environment is described (E9) or a path judged (E8): nothing happens.
    Describe,
}

impl Operation {
    /// Digests the exact request: an answer to a question is bound to it.
    pub fn digest(&self) -> Digest {
        let text = serde_json::to_string(self).expect("an operation holds no map with odd keys");
        Digest::of(text.as_bytes())
    }

    /// Tells whether it could change something.
    pub const fn changes(&self) -> bool {
        matches!(self, Self::RunCommand { .. } | Self::ChangeFile { .. })
    }
}

/// Whether an operation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It goes on.
    Allow,
    /// Somebody who is entitled answers first.
    Ask,
    /// It does not go on.
    Deny,
}

impl Verdict {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A verdict, the rule that fired and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Which rule it is, with its layer.
    pub rule: String,
    /// Why, in one plain sentence.
    pub why: String,
    /// The digest of the exact request.
    pub request: Digest,
}

impl Decision {
    /// Gives the failure of an operation that does not go on; `None` when it does.
    pub fn problem(&self) -> Option<Problem> {
        let hint = "say permission = \"unrestricted\": the walls hold all the same";
        let code = match self.verdict {
            Verdict::Allow => return None,
            Verdict::Ask => ErrorCode::ApprovalUnavailable,
            Verdict::Deny => ErrorCode::Denied,
        };
        Some(
            Problem::new(code, self.why.clone())
                .with_field(self.rule.clone())
                .with_hint(hint),
        )
    }
}

/// Decides about an operation. Inside the walls nothing asks; what lies outside of the root, and what
/// the permission holds back, is all that is left.
pub fn decide(policy: &EffectivePolicy, authority: &Authority, operation: &Operation) -> Decision {
    let request = operation.digest();
    let say = |verdict, rule: String, why: &str| Decision {
        verdict,
        rule,
        why: why.to_owned(),
        request: request.clone(),
    };
    let is_granted = authority
        .grants()
        .iter()
        .any(|grant| match (grant, operation) {
            (crate::authority::Grant::Request { digest }, _) => digest == request.as_str(),
            (crate::authority::Grant::Write { path: top }, Operation::ChangeFile { path })
            | (
                crate::authority::Grant::Read { path: top }
                | crate::authority::Grant::Write { path: top },
                Operation::ReadFile { path },
            ) => path.is_within(top),
            _ => false,
        });
    if is_granted {
        return say(Verdict::Allow, "grant".to_owned(), "it was allowed before");
    }
    if let Operation::ReadFile { path } | Operation::ChangeFile { path } = operation
        && !path.is_within(authority.root())
    {
        let why = "the path lies outside of the workspace";
        return say(Verdict::Deny, "root".to_owned(), why);
    }
    let layer = policy.permission.layer;
    let rule = format!("permission ({layer})");
    match policy.permission.value {
        _ if !operation.changes() => say(Verdict::Allow, rule, "it changes nothing"),
        Permission::Unrestricted | Permission::AutoApproval => {
            say(Verdict::Allow, rule, "inside the walls nothing asks")
        }
        Permission::Approval => say(Verdict::Ask, rule, "the policy asks before each change"),
        Permission::Readonly => say(Verdict::Deny, rule, "the policy lets nothing be changed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{Actor, Grant};
    use crate::policy::{Layer, Sourced};

    fn with(permission: Permission) -> EffectivePolicy {
        EffectivePolicy {
            permission: Sourced::new(permission, Layer::User),
            ..EffectivePolicy::built_in()
        }
    }

    #[test]
    fn each_permission_decides_for_each_operation() {
        let authority = Authority::new(Actor::Protocol, BytePath::from("/w"));
        let run = Operation::RunCommand {
            argv: vec![BytePath::from("true")],
        };
        let read = Operation::ReadFile {
            path: BytePath::from("/w/a"),
        };
        let outside = Operation::ChangeFile {
            path: BytePath::from("/w-evil/a"),
        };
        let table: Vec<String> = [
            Permission::Readonly,
            Permission::Approval,
            Permission::AutoApproval,
            Permission::Unrestricted,
        ]
        .into_iter()
        .map(|permission| {
            let verdict = |operation| decide(&with(permission), &authority, operation).verdict;
            format!(
                "{permission:?}: run {}, read {}, outside {}",
                verdict(&run).as_str(),
                verdict(&read).as_str(),
                verdict(&outside).as_str()
            )
        })
        .collect();
        insta::assert_snapshot!(table.join("\n"), @r"
        Readonly: run deny, read allow, outside deny
        Approval: run ask, read allow, outside deny
        AutoApproval: run allow, read allow, outside deny
        Unrestricted: run allow, read allow, outside deny
        ");
    }

    #[test]
    fn a_grant_covers_exactly_what_was_shown() {
        let run = |word: &str| Operation::RunCommand {
            argv: vec![BytePath::from(word)],
        };
        let authority =
            Authority::new(Actor::Owner, BytePath::from("/w")).with_grant(Grant::Request {
                digest: run("a").digest().0,
            });
        let policy = with(Permission::Approval);
        assert_eq!(
            decide(&policy, &authority, &run("a")).verdict,
            Verdict::Allow
        );
        assert_eq!(decide(&policy, &authority, &run("b")).verdict, Verdict::Ask);
    }
}
