//! Requests and results about what would leave the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Problem;
use crate::id::ProposalId;
use crate::outbox::{Held, HeldState};

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

/// A push that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PushProposed {
    /// What is held, and where it stands.
    pub held: Held,
    /// Whether it was not proposed before.
    pub is_new: bool,
    /// What the owner may do next.
    pub next: Vec<String>,
}

/// Which proposals are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListOutbox {
    /// Those in this state; those that wait for an answer when nothing is said.
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
