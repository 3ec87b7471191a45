//! Cofferdam's journal: an append-only log of events, and a store for bodies that are too large.
//!
//! Everything that is shown, and the runtime's own state, is made from these events. The journal
//! gives each event its position, its number within the conversation and its link in the hash chain
//! in the moment of appending; several processes append at once. It does not know what an event
//! means.
//!
//! The chain covers the stored bytes. It shows that something was changed by somebody who does not
//! own the file; its owner can make a new chain, and for that case [`Head`] is kept elsewhere. The
//! log survives the death of every process at any moment, not the loss of power.
//!
//! ```
//! use std::sync::Arc;
//!
//! use cofferdam_core::ambient::FixedAmbient;
//! use cofferdam_journal::{Journal, MemoryJournal, Query};
//!
//! # fn main() -> Result<(), cofferdam_journal::JournalError> {
//! let journal = MemoryJournal::new(Arc::new(FixedAmbient::default()));
//! assert_eq!(journal.head()?.pos, 0);
//! assert!(journal.read(&Query::default())?.events.is_empty());
//! # Ok(())
//! # }
//! ```

mod ambient;
mod body;
mod content;
mod data_dir;
mod error;
mod exchange;
mod journal;
mod lease;
mod memory;
mod patience;
mod platform;
mod signal;
mod sqlite;

pub use ambient::SystemAmbient;
pub use data_dir::DataDir;
pub use error::JournalError;
pub use exchange::export;
pub use journal::{
    Access, Appended, Bodies, ContentReference, ContentSink, Direction, Fault, Head, Journal, Page,
    Query, Retained, Verification, Window,
};
pub use lease::{DeadLease, Lease, LeaseRecord, dead_leases, unsettled};
pub use memory::MemoryJournal;
pub use patience::Patience;
pub use sqlite::SqliteJournal;
