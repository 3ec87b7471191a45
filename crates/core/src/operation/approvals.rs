//! Requests and results about questions that somebody has to answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::approval::{Approval, ApprovalAnswer, ApprovalState, Remember, RememberedAnswer};
use crate::id::{ApprovalId, RuleId, TaskId};

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
    /// For how long it holds: this once unless said. What is remembered is exactly `remember` of the
    /// question, and nothing where that is absent.
    #[serde(default)]
    pub remember: Remember,
    /// Days for which it holds in the repository, 1 to 365; 30 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember_days: Option<u32>,
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

/// Which remembered answers are wanted: all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListRemembered {}

/// A remembered answer with the line that says what it allows or denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RememberedLine {
    /// What it allows or denies, in one line.
    pub line: String,
    /// The answer.
    pub remembered: RememberedAnswer,
}

/// Remembered answers, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RememberedPage {
    /// The answers that still hold.
    pub remembered: Vec<RememberedLine>,
}

/// Takes a remembered answer back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetAnswer {
    /// Which.
    pub rule_id: RuleId,
}
