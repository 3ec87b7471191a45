//! What is asked, and the data of the events that tell of it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::preview::ApprovalPreview;
use super::remember::{Remember, RememberedWhat};
use super::state::ApprovalState;
use crate::authority::Actor;
use crate::bytes::BytePath;
use crate::id::{ApprovalId, LeaseId, OperationId, TaskId};
use crate::spec::Digest;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// A command is to write the workspace.
    Command,
    /// A file is to be made, changed or removed.
    FileChange,
    /// A host that no rule allows is to be reached.
    Host,
    /// One command is to run without walls.
    FullAccess,
    /// A plan is to be carried out.
    Plan,
    /// A path outside of the workspace is to be opened.
    Path,
    /// A tool is to be used.
    Tool,
}

impl ApprovalKind {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::FileChange => "file_change",
            Self::Host => "host",
            Self::FullAccess => "full_access",
            Self::Plan => "plan",
            Self::Path => "path",
            Self::Tool => "tool",
        }
    }
}

/// Whose word an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answerer {
    /// The owner, by any door of theirs.
    Owner,
    /// The reviewer that the owner has set.
    Reviewer,
}

impl Answerer {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Reviewer => "reviewer",
        }
    }
}

/// Who must answer. Whoever asks is never among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entitled {
    /// The owner.
    Owner,
    /// The owner or the reviewer, whoever is first.
    Either,
    /// Both, in either order.
    Both,
}

impl Entitled {
    /// Tells whether somebody's answer counts.
    pub const fn includes(self, who: Answerer) -> bool {
        match self {
            Self::Owner => matches!(who, Answerer::Owner),
            Self::Either | Self::Both => true,
        }
    }

    /// Gives how many must say yes.
    pub const fn needed(self) -> usize {
        match self {
            Self::Owner | Self::Either => 1,
            Self::Both => 2,
        }
    }
}

/// To what an answer is bound: nothing else is allowed by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// On whose word it would be done.
    pub actor: Actor,
    /// For which task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// For which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<OperationId>,
    /// On which root.
    pub root: BytePath,
    /// The digest of the exact request.
    pub digest: Digest,
}

impl Binding {
    /// Names the first part that is another one; `None` when both are the same.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.actor != other.actor {
            Some("actor")
        } else if self.task != other.task {
            Some("task")
        } else if self.call != other.call {
            Some("call")
        } else if self.root != other.root {
            Some("root")
        } else if self.digest != other.digest {
            Some("digest")
        } else {
            None
        }
    }
}

/// A question, as it stands in the journal and as whoever answers sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalAsk {
    /// Its id.
    pub approval_id: ApprovalId,
    /// What is asked for.
    pub kind: ApprovalKind,
    /// What is asked, in one line.
    pub summary: String,
    /// Why it is asked: the rule, or what was seen.
    pub why: String,
    /// To what an answer is bound.
    pub binding: Binding,
    /// What is needed to answer.
    pub preview: ApprovalPreview,
    /// Who must answer.
    pub entitled: Entitled,
    /// Of what an answer may be remembered; of nothing where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember: Option<RememberedWhat>,
    /// When it was asked.
    #[schemars(with = "String")]
    pub asked: Timestamp,
    /// From when on no answer counts.
    #[schemars(with = "String")]
    pub expires: Timestamp,
    /// The plane that waits for the answer.
    pub lease: LeaseId,
}

/// What somebody says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalAnswer {
    /// Yes, exactly this, once.
    Approve,
    /// No.
    Reject,
}

impl ApprovalAnswer {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
        }
    }
}

/// Data of `approval.answered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalAnswered {
    /// Which question.
    pub approval_id: ApprovalId,
    /// What was said.
    pub answer: ApprovalAnswer,
    /// By whom.
    pub by: Answerer,
    /// By which door.
    pub door: String,
    /// Why, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For how long it holds.
    #[serde(default)]
    pub remember: Remember,
    /// For how many days, where it is remembered for the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember_days: Option<u32>,
}

/// Data of `approval.resolved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalResolved {
    /// Which question.
    pub approval_id: ApprovalId,
    /// What became of it.
    pub state: ApprovalState,
}

/// Data of `approval.used`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalUsed {
    /// Which question.
    pub approval_id: ApprovalId,
    /// Which use; only the first one counts.
    pub use_id: OperationId,
    /// What is to be done.
    pub binding: Binding,
}
