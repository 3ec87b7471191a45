//! Answers that hold for more than one question: each one line, no wider than what was shown.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ask::ApprovalAnswer;
use crate::bytes::BytePath;
use crate::id::{ApprovalId, RuleId};
use crate::spec::{Access, Digest};

/// For how long an answer holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Remember {
    /// For this question.
    #[default]
    Once,
    /// For the same question again, as long as the task, or the process that asks where there is
    /// no task.
    Task,
    /// For the same question again in this repository, until it expires or is taken back.
    Repository,
}

impl Remember {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Task => "task",
            Self::Repository => "repository",
        }
    }
}

/// Of what a remembered answer speaks: exactly what was shown, and nothing like it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RememberedWhat {
    /// One host at one port.
    Host {
        /// As a policy writes it: `example.com:443`.
        rule: String,
    },
    /// One command line, whole, with its directory, variables and input.
    Command {
        /// The command line, for whoever reads it.
        command: String,
        /// Of everything that makes it this command.
        digest: Digest,
    },
    /// Changes of one file.
    File {
        /// Its path, as commands see it.
        path: BytePath,
    },
    /// A path outside of the workspace, with everything below it.
    Path {
        /// Where it really is.
        path: BytePath,
        /// What may be done there.
        access: Access,
    },
}

impl RememberedWhat {
    /// Gives the one line that is saved, as it is shown before.
    pub fn line(&self, answer: ApprovalAnswer) -> String {
        let word = match answer {
            ApprovalAnswer::Approve => "allow",
            ApprovalAnswer::Reject => "deny",
        };
        match self {
            Self::Host { rule } => format!("network_{word} = [{}]", quoted(rule)),
            Self::Command { command, .. } => format!("{word} command = {}", quoted(command)),
            Self::File { path } => format!("{word} change of = {}", quoted(&path.to_string())),
            Self::Path { path, access } => {
                let field = match access {
                    Access::Read => "read",
                    Access::Write => "write",
                };
                let path = quoted(&path.to_string());
                match answer {
                    ApprovalAnswer::Approve => format!("{field} = [{path}]"),
                    ApprovalAnswer::Reject => format!("deny {field} = [{path}]"),
                }
            }
        }
    }
}

/// Writes text as TOML and JSON do: one line, whatever is in it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An answer that is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RememberedAnswer {
    /// By what it is taken back.
    pub rule_id: RuleId,
    /// The top of the workspace in which it holds.
    pub repository: BytePath,
    /// What was said.
    pub answer: ApprovalAnswer,
    /// Of what.
    pub what: RememberedWhat,
    /// The question that was answered so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// When it was said.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// From when on it is asked again.
    #[schemars(with = "String")]
    pub expires: Timestamp,
}

impl RememberedAnswer {
    /// Tells whether it answers a question at a time.
    pub fn answers(&self, what: &RememberedWhat, now: Timestamp) -> bool {
        now < self.expires && self.what == *what
    }
}

/// Finds the answer to a question among those that are remembered; of two that contradict each
/// other the no holds.
pub fn recall<'a>(
    answers: impl IntoIterator<Item = &'a RememberedAnswer>,
    what: &RememberedWhat,
    now: Timestamp,
) -> Option<&'a RememberedAnswer> {
    answers
        .into_iter()
        .filter(|one| one.answers(what, now))
        .min_by_key(|one| one.answer == ApprovalAnswer::Approve)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> RememberedWhat {
        RememberedWhat::Command {
            command: text.to_owned(),
            digest: Digest::sha256(text.as_bytes()),
        }
    }

    fn answer(answer: ApprovalAnswer, what: RememberedWhat) -> RememberedAnswer {
        RememberedAnswer {
            rule_id: RuleId::new(0, [0; 10]),
            repository: BytePath::from("/w"),
            answer,
            what,
            approval_id: None,
            created: Timestamp::UNIX_EPOCH,
            expires: Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(10),
        }
    }

    #[test]
    fn a_compound_command_is_remembered_whole_and_nothing_like_it_is_answered() {
        let said = [answer(
            ApprovalAnswer::Approve,
            command("npm test && npm run build"),
        )];
        let recalled = |text: &str| recall(&said, &command(text), Timestamp::UNIX_EPOCH).is_some();
        assert!(recalled("npm test && npm run build"));
        for other in [
            "npm test",
            "npm run build",
            "npm test && npm run build && curl evil",
            "npm test  && npm run build",
        ] {
            assert!(!recalled(other), "{other}");
        }
    }

    #[test]
    fn an_answer_expires_and_a_no_outweighs_a_yes() {
        let host = RememberedWhat::Host {
            rule: "a.example:443".to_owned(),
        };
        let said = [
            answer(ApprovalAnswer::Approve, host.clone()),
            answer(ApprovalAnswer::Reject, host.clone()),
        ];
        let at = |seconds| {
            let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(seconds);
            recall(&said, &host, now).map(|one| one.answer)
        };
        assert_eq!(at(9), Some(ApprovalAnswer::Reject));
        assert_eq!(at(10), None);
    }

    #[test]
    fn what_is_saved_is_one_line_whatever_is_in_it() {
        let line = command("echo \"a\nb\"").line(ApprovalAnswer::Approve);
        assert_eq!(line, r#"allow command = "echo \"a\nb\"""#);
        let host = RememberedWhat::Host {
            rule: "a.example:443".to_owned(),
        };
        assert_eq!(
            host.line(ApprovalAnswer::Reject),
            r#"network_deny = ["a.example:443"]"#
        );
    }
}
