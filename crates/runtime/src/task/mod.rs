//! Tasks: a goal given to a worker, in an isolation, with a result.

mod actions;
mod drive;
mod overview;
mod request;

pub use actions::{DiffForm, TaskDiff, TaskDropped, TaskMerge, TaskUndone};
pub use overview::{TaskOverview, TaskState};
pub use request::{TaskProgress, TaskRunRequest};
