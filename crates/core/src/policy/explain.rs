//! What `policy explain` tells, as data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::effective::{EffectivePolicy, Layer, Proposal};
use super::requests::NetworkRule;
use crate::bytes::BytePath;
use crate::commands::CommandJudgement;
use crate::facts::FoundHost;
use crate::spec::{EnclosureSpec, Enforce, Gap, LaunchSpec, Mechanism};

/// A policy in effect, where each value comes from, and the launch that results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// Each value with its layer.
    pub fields: Vec<FieldExplanation>,
    /// Each rule with what enforces it here.
    pub rules: Vec<RuleExplanation>,
    /// What the project file wants and does not get.
    pub proposals: Vec<Proposal>,
    /// What is not enforced here.
    pub gaps: Vec<Gap>,
    /// What `--allow @dev` would add, and where each was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev: Vec<FoundHost>,
    /// The plan.
    pub launch: LaunchSpec,
    /// Which simple commands the command line has, and which rule fires for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<CommandJudgement>,
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldExplanation {
    /// The field, with dots for nested ones.
    pub field: String,
    /// The value as JSON text.
    pub value: String,
    /// Who gave it.
    pub layer: Layer,
}

/// A rule and what enforces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleExplanation {
    /// The rule in words.
    pub rule: String,
    /// On which path, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<BytePath>,
    /// How a protected name is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce: Option<Enforce>,
    /// By what means; empty where nothing does.
    pub enforced_by: Vec<Mechanism>,
}

impl Explanation {
    /// Puts together what a policy and its plan say.
    pub fn new(policy: &EffectivePolicy, launch: LaunchSpec) -> Self {
        Self {
            fields: fields(policy),
            rules: rules(policy, &launch.enclosure),
            proposals: policy.proposals.clone(),
            gaps: launch.enclosure.gaps.clone(),
            dev: Vec::new(),
            launch,
            commands: None,
        }
    }
}

impl Explanation {
    /// Adds what the rules about commands say about the command line.
    #[must_use]
    pub fn with_commands(mut self, judgement: CommandJudgement) -> Self {
        self.commands = Some(judgement);
        self
    }

    /// Adds what the set `@dev` holds and the plan does not allow.
    #[must_use]
    pub fn with_dev(mut self, hosts: &[FoundHost]) -> Self {
        let listed = self.launch.enclosure.egress.iter();
        let listed: Vec<&str> = listed
            .flat_map(|egress| &egress.allow)
            .map(|host| host.rule.as_str())
            .collect();
        let more = hosts.iter();
        self.dev = more
            .filter(|one| !listed.contains(&one.rule.as_str()))
            .cloned()
            .collect();
        self
    }

    /// Adds hosts that files of the workspace name and that are allowed to nobody by that.
    #[must_use]
    pub fn with_proposed(mut self, hosts: &[FoundHost]) -> Self {
        let listed = self.launch.enclosure.egress.iter();
        let listed: Vec<String> = listed
            .flat_map(|egress| &egress.allow)
            .map(|host| host.rule.clone())
            .collect();
        for host in hosts.iter().filter(|one| !listed.contains(&one.rule)) {
            self.proposals.push(Proposal {
                field: "network_allow".to_owned(),
                value: format!("{:?}", host.rule),
                reason: format!(
                    "{} names it, and a file of the workspace only proposes; --allow {} lets it through",
                    host.origin, host.rule
                ),
            });
        }
        self
    }
}

/// Lists every value of a policy by walking its serialised form: none can be forgotten.
fn fields(policy: &EffectivePolicy) -> Vec<FieldExplanation> {
    let mut found = Vec::new();
    if let Ok(value) = serde_json::to_value(policy) {
        walk(&value, "", &mut found);
    }
    found
}

/// Says a rule over requests in the words of a rule.
fn said(rule: &NetworkRule) -> String {
    let hosts = rule.hosts.iter();
    let hosts = hosts.filter_map(|text| text.parse().ok()).collect();
    match rule.rule(hosts, "") {
        Ok(rule) => rule.to_string(),
        // Checked when it was read.
        Err(error) => error.to_string(),
    }
}

fn walk(value: &serde_json::Value, at: &str, found: &mut Vec<FieldExplanation>) {
    match value {
        serde_json::Value::Object(object) => {
            if let (Some(inner), Some(layer)) = (object.get("value"), object.get("layer"))
                && object.len() == 2
                && let Ok(layer) = serde_json::from_value(layer.clone())
            {
                found.push(FieldExplanation {
                    field: at.to_owned(),
                    value: inner.to_string(),
                    layer,
                });
                return;
            }
            for (name, inner) in object {
                if at.is_empty() && name == "proposals" {
                    continue;
                }
                let full = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                walk(inner, &full, found);
            }
        }
        serde_json::Value::Array(entries) => {
            for entry in entries {
                walk(entry, at, found);
            }
        }
        _ => {}
    }
}

fn rules(policy: &EffectivePolicy, enclosure: &EnclosureSpec) -> Vec<RuleExplanation> {
    let held = |wanted: &[Mechanism]| -> Vec<Mechanism> {
        let has = |one: &&Mechanism| enclosure.enforced_by.contains(one);
        wanted.iter().filter(has).copied().collect()
    };
    let rule = |text: String, path: Option<BytePath>, wanted: &[Mechanism]| RuleExplanation {
        rule: text,
        path,
        enforce: None,
        enforced_by: held(wanted),
    };
    // Landlock stands on bwrap as well, where it holds signals and sockets only.
    let has_mounts = enclosure.enforced_by.contains(&Mechanism::MountNamespace);
    let files: &[Mechanism] = if has_mounts {
        &[Mechanism::MountNamespace]
    } else {
        &[Mechanism::Landlock]
    };
    let network: &[Mechanism] = if has_mounts {
        &[Mechanism::NetworkNamespace, Mechanism::EgressProxy]
    } else {
        &[Mechanism::Landlock, Mechanism::Seccomp]
    };
    let processes: &[Mechanism] = &[
        Mechanism::PidNamespace,
        Mechanism::Landlock,
        Mechanism::Supervisor,
    ];
    let level = enclosure.network.as_str();
    let mut list = vec![
        rule(format!("network {level}"), None, network),
        rule("reading by allow-list".to_owned(), None, files),
        rule("writing by allow-list".to_owned(), None, files),
        rule(
            "processes of others are out of reach".to_owned(),
            None,
            processes,
        ),
        rule(
            "no rights are gained".to_owned(),
            None,
            &[Mechanism::UserNamespace, Mechanism::NoNewPrivileges],
        ),
        rule(
            "dangerous system calls are refused".to_owned(),
            None,
            &[Mechanism::Seccomp],
        ),
    ];
    let crossing = |what: &str, value: String, layer: Layer| {
        rule(format!("{what} {value} ({layer})"), None, network)
    };
    for address in &policy.reach {
        list.push(crossing("reach", address.value.to_string(), address.layer));
    }
    for port in &policy.publish {
        list.push(crossing("publish", port.value.to_string(), port.layer));
    }
    for (word, hosts) in enclosure
        .egress
        .iter()
        .flat_map(|egress| [("host", &egress.allow), ("host refused:", &egress.deny)])
    {
        for host in hosts {
            let text = format!("{word} {} ({})", host.rule, host.origin);
            list.push(rule(text, None, &[Mechanism::EgressProxy]));
        }
    }
    if let Some(egress) = &enclosure.egress {
        for one in &egress.rules {
            let text = format!(
                "requests to {} ({}), TLS ends in the proxy",
                said(&one.rule),
                one.origin
            );
            list.push(rule(text, None, &[Mechanism::EgressProxy]));
        }
        for one in &egress.secrets {
            let (name, hosts) = (&one.name, one.hosts.join(", "));
            let text = format!(
                "secret {name} is told to {hosts} alone ({}), TLS ends in the proxy",
                one.origin
            );
            list.push(rule(text, None, &[Mechanism::EgressProxy]));
        }
    }
    for path in &policy.deny_read {
        let text = format!("deny_read ({})", path.layer);
        list.push(rule(
            text,
            Some(path.value.clone()),
            &[Mechanism::MountNamespace],
        ));
    }
    for protection in &enclosure.protections {
        let wanted: &[Mechanism] = match protection.enforce {
            Enforce::Prevent => files,
            Enforce::Undo => &[Mechanism::SnapshotUndo],
            Enforce::Report => &[],
        };
        list.push(RuleExplanation {
            rule: protection.rule.clone(),
            path: Some(protection.path.clone()),
            enforce: Some(protection.enforce),
            enforced_by: held(wanted),
        });
    }
    list
}
