//! Tasks: a goal given to a worker, in an isolation, with a result.

mod actions;
mod course;
mod draft;
mod drive;
mod hosts;
mod inputs;
mod intent;
mod ledger;
mod measure;
mod merging;
mod overview;
mod place;
mod reconcile;
mod request;
mod salvage;
mod settle;
mod verify;
mod words;

pub use actions::{DiffForm, TaskDiff, TaskDropped};
pub(crate) use actions::{ended, wrong_state};
pub(crate) use course::Course;
pub(crate) use ledger::{Act, Entry, Ledger, each};
pub(crate) use merging::check_repository;
pub use merging::{MergeOptions, TaskMerge, TaskUndone};
pub use overview::{TaskOverview, TaskState};
pub use reconcile::Reconciled;
pub use request::{TaskProgress, TaskRunRequest};
pub(crate) use settle::file_changes;
pub(crate) use words::rescued;
pub use words::worker_name;
