//! What is done with a task after it has ended.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::task::{DiffSummary, Merge, ModifiedFile};
use serde::Serialize;

use super::overview::TaskOverview;
use crate::runtime::Runtime;

/// How a diff is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffForm {
    /// As a patch.
    Patch,
    /// Figures only.
    Stat,
}

/// What a task changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskDiff {
    /// The task's number.
    pub number: u64,
    /// Every file.
    pub files: Vec<ModifiedFile>,
    /// In figures.
    pub summary: DiffSummary,
    /// The patch, as git writes it; not always UTF-8.
    #[serde(skip)]
    pub patch: Vec<u8>,
}

/// What a merge came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskMerge {
    /// The task's number.
    pub number: u64,
    /// What became of it.
    pub merge: Merge,
    /// The branch that it went into.
    pub into: Option<String>,
    /// Why not, where it did not.
    pub problem: Option<Problem>,
    /// The next commands.
    pub next: Vec<String>,
}

/// What dropping a task came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskDropped {
    /// The task's number.
    pub number: u64,
    /// Under which references its work is kept.
    pub kept_under: Vec<String>,
    /// What became of its tree, in words.
    pub place: String,
    /// The next commands.
    pub next: Vec<String>,
}

/// What taking back came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskUndone {
    /// The task's number.
    pub number: u64,
    /// What was taken back, in words.
    pub what: String,
    /// The next commands.
    pub next: Vec<String>,
}

fn not_yet() -> Problem {
    Problem::new(ErrorCode::Internal, "trees of tasks are not wired yet")
}

impl Runtime {
    /// Lists every task, oldest first.
    pub fn tasks(&self) -> Result<Vec<TaskOverview>, Problem> {
        Err(not_yet())
    }

    /// Finds a task by its number, its id, or the beginning of it.
    pub fn task(&self, name: &str) -> Result<TaskOverview, Problem> {
        Err(Problem::new(
            ErrorCode::TaskUnknown,
            format!("there is no task {name:?}"),
        ))
    }

    /// Shows what a task changed, from where it began.
    pub fn diff(&self, name: &str, form: DiffForm) -> Result<TaskDiff, Problem> {
        let _ = (name, form);
        Err(not_yet())
    }

    /// Merges a task's branch into the branch that is checked out where the task came from.
    ///
    /// A conflict, a target that moved and a dirty checkout are results with a problem; nothing is
    /// touched then.
    pub fn merge(&self, name: &str) -> Result<TaskMerge, Problem> {
        let _ = name;
        Err(not_yet())
    }

    /// Drops a task: its tree and its branch go, its work stays under a reference.
    pub fn drop_task(&self, name: &str) -> Result<TaskDropped, Problem> {
        let _ = name;
        Err(not_yet())
    }

    /// Takes back the last merge or drop of a task.
    pub fn undo(&self, name: &str) -> Result<TaskUndone, Problem> {
        let _ = name;
        Err(not_yet())
    }
}
