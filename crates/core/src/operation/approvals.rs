//! Requests and results about questions that somebody has to answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::approval::{Approval, ApprovalAnswer, ApprovalState};
use crate::id::{ApprovalId, TaskId};

/// Which approvals are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListApprovals {
    /// Those in this state; those that wait for an answer when nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ApprovalState>,
    /// Those of this task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// Those in every state.
    pub all: bool,
}

/// Approvals, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalPage {
    /// The approvals.
    pub approvals: Vec<Approval>,
    /// How many older ones are left out.
    pub left_out: usize,
}

/// One approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetApproval {
    /// Its id.
    pub approval_id: ApprovalId,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerApproval {
    /// Which question is answered.
    pub approval_id: ApprovalId,
    /// What is said.
    pub answer: ApprovalAnswer,
    /// Why; whoever asked is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalDecided {
    /// The approval as it stands.
    pub approval: Approval,
    /// Whether this answer counted; else what was said first stands.
    pub counted: bool,
}
