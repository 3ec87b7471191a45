//! Output of commands that can be read while they run, from any process, and after their end.
//!
//! What a command writes lies in files of the data directory as soon as it has run for a moment:
//! `output/<command>.stdout`, `.stderr`, and `.order`, which says in which order both arrived. At
//! the end the content store takes them over; the names are removed when the journal has the
//! outcome.

mod order;
mod reader;
mod shelf;
mod sum;
mod tape;

pub(crate) use order::Order;
pub(crate) use reader::order_value;
pub use reader::{OutputPiece, OutputPieces, OutputReader};
pub(crate) use shelf::{Shelf, adopt_abandoned, sweep};
pub(crate) use tape::Tape;

/// Both streams, in the order in which arrays hold them.
pub(crate) const STREAMS: [crate::Stream; 2] = [crate::Stream::Stdout, crate::Stream::Stderr];
