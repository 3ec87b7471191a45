//! What there is to be looked at when a task has ended, and what runs now.
//!
//! [`Runtime::review`](crate::Runtime::review) gives one task as one value, made from its events
//! alone: what changed, what the checks say and whether they still speak for it, which hosts were
//! reached and refused, what was denied, which protected names were touched, what of the agent's own
//! state changed, and what was not carried. Events of other parts are read by what they say, and
//! kept whole where this version does not know them.

mod commands;
mod gather;
mod model;
mod reading;
mod running;
mod stop;
mod told;

pub use commands::{ChangedName, CommandChange, CommandsReview, FileCommands};
pub use model::{
    HostVerdict, ProtectedOutcome, ReviewChanges, ReviewChecks, ReviewedCommand, ReviewedCommit,
    ReviewedDenial, ReviewedFile, ReviewedHost, ReviewedName, ReviewedStateChange, TaskReview,
};
pub use running::{RunningCommand, RunningTask, RunningThings};
pub use stop::{CommandStopped, StopEnd, TaskStopped};
