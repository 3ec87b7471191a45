//! What would leave, as it is shown and as it is done.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::approval::Binding;
use crate::bytes::BytePath;
use crate::id::ProposalId;
use crate::task::DiffSummary;

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

/// Something that would leave the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// A push.
    Push {
        /// Of what, and where to.
        push: PushEffect,
    },
}

impl Effect {
    /// Gives the word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Push { .. } => "push",
        }
    }

    /// Says it in one line.
    pub fn summary(&self) -> String {
        match self {
            Self::Push { push } => format!(
                "push {} at {} to {}",
                push.branch.trim_start_matches("refs/heads/"),
                push.commit.get(..10).unwrap_or(&push.commit),
                push.remote
            ),
        }
    }
}

/// By what something was proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProposedBy {
    /// A call of the operation.
    Operation,
    /// `git push` in the task's own tree.
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
    /// The number of the task.
    pub task_number: u64,
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

/// How a push came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SentAs {
    /// The remote has a new branch.
    New,
    /// The branch of the remote went forward.
    Forward,
    /// The remote had it already.
    Same,
}

impl SentAs {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Forward => "forward",
            Self::Same => "same",
        }
    }
}

/// What left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// What it was for the remote.
    pub sent_as: SentAs,
    /// What the remote and the owner's hooks said, its end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
}
