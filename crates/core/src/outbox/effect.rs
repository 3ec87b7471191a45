//! What would leave, as it is shown and as it is done.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::approval::Binding;
use crate::bytes::BytePath;
use crate::id::ProposalId;
use crate::task::DiffSummary;

use super::payload::{PublishEffect, PullRequestEffect, WriteOutsideEffect};

/// One commit that would leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldCommit {
    /// Its id.
    pub oid: String,
    /// The first line of its message; bytes that are not UTF-8 are replaced.
    pub subject: String,
}

/// One commit that is to be put on one branch of one remote, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PushEffect {
    /// Top of the owner's working tree, from which it is pushed.
    pub repository: BytePath,
    /// The remote, by its name in the owner's configuration.
    pub remote: String,
    /// Where that leads, without passwords; several where the owner pushes to several.
    pub urls: Vec<String>,
    /// The branch by its full name, here and there.
    pub branch: String,
    /// The commit: exactly this one is pushed.
    pub commit: String,
    /// Where the branch stood when it was proposed. Where it has moved, nothing is pushed.
    pub tip: String,
    /// What the remote is not known to have, oldest first; the newest fifty.
    pub commits: Vec<HeldCommit>,
    /// How many older ones are left out.
    #[serde(default)]
    pub commits_left_out: u64,
    /// What differs from where the task began.
    pub summary: DiffSummary,
    /// The owner's own hook that runs before, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<BytePath>,
    /// What is to be known before an answer, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<String>,
}

/// Something that would leave the machine, or the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// A push.
    Push {
        /// Of what, and where to.
        push: PushEffect,
    },
    /// A pull request.
    PullRequest {
        /// Of what, and where to.
        pull_request: PullRequestEffect,
    },
    /// A command that publishes what is in a commit.
    Publish {
        /// Of what, and by which command.
        publish: PublishEffect,
    },
    /// A file outside of the workspace.
    WriteOutside {
        /// Which, and what it would hold.
        write_outside: WriteOutsideEffect,
    },
}

impl Effect {
    /// Gives the word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Push { .. } => "push",
            Self::PullRequest { .. } => "pull_request",
            Self::Publish { .. } => "publish",
            Self::WriteOutside { .. } => "write_outside",
        }
    }

    /// Tells whether doing it twice is more than doing it once, so that one of which nobody knows
    /// whether it got through is never tried again.
    pub const fn is_once(&self) -> bool {
        match self {
            Self::Push { .. } | Self::WriteOutside { .. } => false,
            Self::PullRequest { .. } | Self::Publish { .. } => true,
        }
    }

    /// Gives the branch of the owner's repository that it needs, by its full name.
    pub fn branch(&self) -> Option<&str> {
        match self {
            Self::Push { push } => Some(&push.branch),
            Self::PullRequest { pull_request } => Some(&pull_request.branch),
            Self::Publish { publish } => Some(&publish.branch),
            Self::WriteOutside { .. } => None,
        }
    }

    /// Gives the owner's working tree, or the workspace, to which it belongs.
    pub const fn root(&self) -> &BytePath {
        match self {
            Self::Push { push } => &push.repository,
            Self::PullRequest { pull_request } => &pull_request.repository,
            Self::Publish { publish } => &publish.repository,
            Self::WriteOutside { write_outside } => &write_outside.workspace,
        }
    }

    /// Gives what is to be known before an answer, in words.
    pub fn cautions(&self) -> &[String] {
        match self {
            Self::Push { push } => &push.cautions,
            Self::PullRequest { pull_request } => &pull_request.cautions,
            Self::Publish { publish } => &publish.cautions,
            Self::WriteOutside { write_outside } => &write_outside.cautions,
        }
    }

    /// Says it in one line.
    pub fn summary(&self) -> String {
        match self {
            Self::Push { push } => format!(
                "push {} at {} to {}",
                push.branch.trim_start_matches("refs/heads/"),
                short(&push.commit),
                push.remote
            ),
            Self::PullRequest { pull_request } => format!(
                "pull request into {} of {}: {}",
                pull_request.base, pull_request.remote, pull_request.title
            ),
            Self::Publish { publish } => {
                format!("publish {} by {}", short(&publish.commit), publish.line())
            }
            Self::WriteOutside { write_outside } => format!(
                "{} {}, {} bytes",
                if write_outside.before.is_some() {
                    "replace"
                } else {
                    "make"
                },
                write_outside.path,
                write_outside.bytes
            ),
        }
    }
}

fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

/// By what something was proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProposedBy {
    /// A call of the operation.
    Operation,
    /// The task itself, in its own tree: by `git push`, or by a request that it left.
    Task,
    /// The owner, with a merge.
    Merge,
}

/// Something that would leave the machine, held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// Its id.
    pub proposal_id: ProposalId,
    /// The number of the task; none where it was proposed from a checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_number: Option<u64>,
    /// By what it was proposed.
    pub by: ProposedBy,
    /// What would leave, in one line.
    pub summary: String,
    /// What would leave.
    pub effect: Effect,
    /// On whose word, for which task, on which root; the digest is of the effect.
    pub binding: Binding,
    /// When.
    #[schemars(with = "String")]
    pub proposed: Timestamp,
}

/// How what was released came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SentAs {
    /// The remote has a new branch.
    New,
    /// The branch of the remote went forward.
    Forward,
    /// It was there already.
    Same,
    /// The program that makes pull requests ended well.
    Opened,
    /// The command that publishes ended well.
    Published,
    /// The file holds it.
    Written,
}

impl SentAs {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Forward => "forward",
            Self::Same => "same",
            Self::Opened => "opened",
            Self::Published => "published",
            Self::Written => "written",
        }
    }
}

/// What left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// What became of it.
    pub sent_as: SentAs,
    /// What the remote, the owner's hooks or the program said, its end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
}
