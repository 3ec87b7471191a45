//! Pure projections of Cofferdam's journal: events in, what can be shown out.
//!
//! [`State`] is folded over events, one after the other; its views are plain data. The same events
//! always give the same state, so that a state at a position is a fresh fold up to that position, and
//! a filtered view is a fold over the events that the filter accepts. Types of events that nobody
//! knows are counted and left alone.
//!
//! Nothing here reads a journal, a clock or a socket. See `ARCHITECTURE.md` for who does.
//!
//! ```
//! use cofferdam_visibility::State;
//!
//! let state = State::default();
//! assert_eq!(state.summary().status.as_str(), "idle");
//! assert!(state.topology().roots.is_empty());
//! ```

mod cursor;
mod evidence;
mod hosts;
mod reading;
mod records;
mod request;
mod state;
mod summary;
mod thread;
mod topology;
mod verifier;

pub use cursor::{Cursor, Meta};
pub use evidence::{
    Claim, ClaimVerdict, CommandFacts, DenialFact, Fact, FileFact, Freshness, FreshnessVerdict,
    Moment, TaskEvidence,
};
pub use hosts::HostFact;
pub use request::{Checked, RequestError, VisibilityRequest, parse_time};
pub use state::State;
pub use summary::{Activity, Counts, EventCounts, Running, RuntimeSummary, UsageSum};
pub use thread::{Message, ThreadMessages, ThreadSummary};
pub use topology::{Node, NodeDetail, Topology};
pub use verifier::{CheckView, VerifierCounts, VerifierRun, VerifierSummary};
