//! Requests and results about what would leave the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Encoding;
use crate::bytes::BytePath;
use crate::error::Problem;
use crate::id::ProposalId;
use crate::outbox::{Held, HeldState};
use crate::spec::Digest;

/// Proposes a push of a task's own branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// The task, by its number or its id. Its own branch is pushed, and no other.
    pub task: String,
    /// The remote, by its name in the owner's configuration of the repository; where the base branch
    /// is pushed to, when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
}

/// Proposes a pull request of a task's own branch, with the push that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullRequest {
    /// The task, by its number or its id. Its own branch is offered, and no other.
    pub task: String,
    /// The title, one line.
    pub title: String,
    /// The text.
    #[serde(default)]
    pub body: String,
    /// The branch into which it is offered, by its short name; the one from which the task began,
    /// when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The remote, by its name in the owner's configuration of the repository; where the base branch
    /// is pushed to, when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
}

/// Proposes to publish what a task's own branch holds, by a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// The task, by its number or its id.
    pub task: String,
    /// The command, word for word, such as `["npm", "publish"]`. Its first word is the name of a
    /// program on the owner's search path, or an absolute path outside of the workspace.
    pub argv: Vec<String>,
    /// The folder where it runs, from the top of the repository; the top when nothing is said.
    #[serde(default, skip_serializing_if = "BytePath::is_empty")]
    pub directory: BytePath,
}

/// Proposes that a file outside of the workspace holds certain bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteOutside {
    /// The file, by an absolute path or from `~/`. The folder it lies in has to be there.
    pub path: BytePath,
    /// What it would hold, all of it.
    pub content: String,
    /// How `content` is told: `utf8` or `base64`.
    #[serde(default)]
    pub encoding: Encoding,
    /// What the file must hold now, by its BLAKE3 digest; a conflict where it holds something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_digest: Option<Digest>,
}

/// Something that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proposed {
    /// What is held, and where it stands.
    pub held: Held,
    /// The push that it needs before, with a pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Held>,
    /// Whether it was not proposed before.
    pub is_new: bool,
    /// What the owner may do next.
    pub next: Vec<String>,
}

/// Which proposals are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListOutbox {
    /// Those in this state; when nothing is said those that wait for an answer, and those of which
    /// nobody knows whether they got through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<HeldState>,
    /// Those of this task, by its number or its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Those in every state.
    pub all: bool,
}

/// Proposals, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutboxPage {
    /// The proposals.
    pub held: Vec<Held>,
    /// How many older ones are left out.
    pub left_out: usize,
    /// What tasks that still run have left to be proposed; it is looked at when each has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingEffect>,
}

/// What a task that still runs has left to be proposed when it has ended. It is the task's own word:
/// nothing of it was looked at, and it can still change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PendingEffect {
    /// The number of the task.
    pub task_number: u64,
    /// What it is, in one line.
    pub summary: String,
}

/// One proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetHeld {
    /// Its id.
    pub proposal_id: ProposalId,
}

/// Releases proposals: all of a task, or those that are named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReleaseHeld {
    /// Those with these ids, in this order.
    pub proposal_ids: Vec<ProposalId>,
    /// All that wait of this task, by its number or its id, in place of ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// Refuses proposals: all of a task, or those that are named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RefuseHeld {
    /// Those with these ids.
    pub proposal_ids: Vec<ProposalId>,
    /// All that wait of this task, by its number or its id, in place of ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of one proposal by an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldAnswer {
    /// The proposal as it stands.
    pub held: Held,
    /// Why this answer did not do what was said, where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutboxAnswer {
    /// Each proposal, in the order of the answer.
    pub answers: Vec<HeldAnswer>,
    /// Whether all of it was done as said.
    pub success: bool,
}
