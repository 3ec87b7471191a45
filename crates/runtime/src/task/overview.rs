//! A task as the journal tells of it.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::id::{ConversationId, TaskId};
use cofferdam_core::outcome::Status;
use cofferdam_core::task::{IsolationMode, MergeStatus, TaskResult, VerificationStatus};
use serde::{Deserialize, Serialize};

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// It is accepted.
    Planned,
    /// Its workspace is being made.
    Creating,
    /// Files are copied in.
    Seeding,
    /// Set-up steps run.
    Setup,
    /// Its command runs.
    Running,
    /// What it did is brought in.
    Harvesting,
    /// Its checks run.
    Verifying,
    /// It has a result.
    Settled,
}

impl TaskState {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Creating => "creating",
            Self::Seeding => "seeding",
            Self::Setup => "setup",
            Self::Running => "running",
            Self::Harvesting => "harvesting",
            Self::Verifying => "verifying",
            Self::Settled => "settled",
        }
    }
}

/// A task as the journal tells of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskOverview {
    /// The task.
    pub task_id: TaskId,
    /// Its number.
    pub number: u64,
    /// The line of work.
    pub conversation_id: ConversationId,
    /// The goal.
    pub goal: String,
    /// The command as a line.
    pub command: String,
    /// How far it stands apart.
    pub isolation_mode: IsolationMode,
    /// When it was accepted, RFC 3339.
    pub created_at: String,
    /// When it ended, RFC 3339.
    pub ended_at: Option<String>,
    /// How far it is.
    pub state: TaskState,
    /// `running` until it has ended.
    pub status: Status,
    /// The verdict, once there is one.
    pub verification: Option<VerificationStatus>,
    /// What became of its changes.
    pub merge: MergeStatus,
    /// Its branch.
    pub branch: Option<String>,
    /// Where its tree lies on the host.
    pub workspace_path: Option<BytePath>,
    /// Files that differ from the base.
    pub files: usize,
    /// The whole result, once there is one, with what became of it since.
    #[serde(skip)]
    pub result: Option<TaskResult>,
}
