//! Conversations, tasks and verification over Cofferdam's plane.
//!
//! The runtime takes an operation from a front door, attaches whom it is for, decides, plans, hands
//! it to the plane and tells what came out. It starts no process and writes no file by itself: that
//! is done by the plane, and every fact goes to the journal. Its own state is a fold of those events
//! ([`Runtime::tasks`]), so that another process, or the next start, sees the same.
//!
//! - [`Runtime::run_command`]: one command behind walls (E1).
//! - [`Runtime::open_session`], [`Runtime::run_in_session`]: many commands in one place that stands.
//! - [`Runtime::run_task`]: a goal given to a worker: workspace, set-up, command, harvest, checks.
//! - [`Runtime::diff`], [`Runtime::merge`], [`Runtime::drop_task`], [`Runtime::undo`]: what is done
//!   with the result afterwards.
//!
//! - [`Runtime::propose_push`], [`Runtime::release_held`]: what leaves the machine, held until the
//!   owner answers.
//! - [`Runtime::read_file`], [`Runtime::edit_file`] and their kin: files behind the same walls.
//! - [`Runtime::terminal_open`] and its kin: terminals that stay (E7).
//!
//! Everything is synchronous: the calling thread waits. `Control` reaches into it from others.

mod approval;
mod background;
mod decide;
mod describe;
mod files;
mod host;
mod idempotency;
mod keeping;
mod known;
mod lasting;
mod mode;
mod options;
mod outbox;
mod owned;
mod participants;
mod paths;
mod profile;
mod project;
mod protected;
mod refusal;
mod review;
mod run;
mod runtime;
mod scribe;
mod session;
mod snapshots;
mod system;
mod task;
mod terminal;
mod tools;

pub use approval::{AskOwner, OperationQuestion, OwnerAnswer, Permit, ReviewByUrl, Watching};
pub use background::{Follow, Followed, StartCommand};
pub use cofferdam_exec::host::Surroundings;
pub use cofferdam_exec::workspace::{CheckoutSnapshot, RestoredSnapshot};
pub use files::FileRequest;
pub use host::{Authorised, HostDoor, LookRequest, PolicyRequest, Resolved};
pub use lasting::PolicyFollowed;
pub use options::RuntimeOptions;
pub use profile::{AppliedState, ProfileEntry, ProfileOrigin, Profiles};
pub use project::{Projected, project};
pub use review::{
    ChangedName, CommandChange, CommandStopped, CommandsReview, FileCommands, HostVerdict,
    ProtectedOutcome, ReviewChanges, ReviewChecks, ReviewedCommand, ReviewedCommit, ReviewedDenial,
    ReviewedFile, ReviewedHost, ReviewedName, ReviewedStateChange, RunningCommand, RunningTask,
    RunningThings, StopEnd, TaskReview, TaskStopped,
};
pub use run::{FrontDoor, RunRequest};
pub use runtime::Runtime;
pub use task::{
    DiffForm, MergeOptions, Reconciled, TaskDiff, TaskDropped, TaskMerge, TaskOverview,
    TaskProgress, TaskRunRequest, TaskState, TaskUndone, worker_name,
};
pub use terminal::TerminalRequest;
pub use tools::{ToolEntry, Tools};
