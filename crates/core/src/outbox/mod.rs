//! The outbox: what would leave the machine, held until its owner answers.
//!
//! A proposal is more than a question. A question ([`crate::approval`]) lives as long as whoever asks
//! waits for it: it belongs to a plane, is over within the hour, and the asker does what was allowed.
//! A proposal outlives whoever made it, waits without end, and is carried out by the answer itself.
//! What both have in common they share: who may answer, to what an answer is bound, and that the
//! first one stands. Everything is a fold of events ([`Outbox`]).

mod effect;
mod payload;
mod request;
mod state;
#[cfg(test)]
mod tests;

pub use effect::{Effect, HeldCommit, Proposal, ProposedBy, PushEffect, Sent, SentAs};
pub use payload::{FileBefore, ProgramInput, PublishEffect, PullRequestEffect, WriteOutsideEffect};
pub use request::InsideRequest;
pub use state::{
    Answered, Held, HeldState, Outbox, OutboxFailed, OutboxRefused, OutboxReleased, OutboxSent,
};

/// Tells a task which branch is its own, the only one of which a push can be proposed.
pub const BRANCH_VARIABLE: &str = "COFFERDAM_BRANCH";

/// Tells a task in which folder it leaves requests ([`InsideRequest`]), from the top of its own tree.
pub const REQUESTS_VARIABLE: &str = "COFFERDAM_OUTBOX";
