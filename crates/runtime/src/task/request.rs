//! What a task is asked for with, and what is told while it runs.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::id::TaskId;
use cofferdam_core::task::{TaskRequest, VerificationStatus};
use cofferdam_exec::{CommandIo, Control};

use crate::host::PolicyRequest;
use crate::run::FrontDoor;

/// A request to run a task, with everything around it.
pub struct TaskRunRequest<'a> {
    /// Workspace and walls.
    pub policy: PolicyRequest,
    /// The task.
    pub task: TaskRequest,
    /// By which door it came.
    pub front_door: FrontDoor,
    /// The streams of the command; set-up steps and checks are captured.
    pub io: CommandIo<'a>,
    /// Told while it runs.
    pub progress: &'a mut dyn FnMut(TaskProgress),
    /// By what others reach into whatever of it runs now.
    pub control: Control,
}

impl std::fmt::Debug for TaskRunRequest<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TaskRunRequest")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}

/// A step of a task, as it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskProgress {
    /// It is accepted and written down.
    Planned {
        /// The task.
        task_id: TaskId,
        /// Its number.
        number: u64,
    },
    /// Its workspace is ready.
    WorkspaceReady {
        /// Where it lies on the host; `None` where it has none of its own.
        path: Option<BytePath>,
        /// Its branch.
        branch: Option<String>,
        /// What was not carried in, with the flag that would, and what else is worth a word.
        notes: Vec<String>,
    },
    /// A set-up step begins.
    Setup {
        /// Its number, from 1.
        step: usize,
        /// How many there are.
        of: usize,
        /// The shell command.
        command: String,
    },
    /// The command starts.
    Running {
        /// The command as a line.
        command: String,
    },
    /// The command has ended; what it did is brought in.
    Harvesting,
    /// A check begins.
    Verifying {
        /// Its number, from 1.
        step: usize,
        /// How many there are.
        of: usize,
        /// The shell command.
        check: String,
    },
    /// A check has ended.
    Verified {
        /// The shell command.
        check: String,
        /// Its verdict.
        status: VerificationStatus,
    },
    /// Something worth a word.
    Noted {
        /// The word.
        text: String,
    },
    /// It has ended; the result follows.
    Done,
}
