//! What is done with the text of a file, without the file: edits, ranges, matches.
//!
//! The bytes come from the file door and go back through it; nothing here opens anything. All of it
//! is linear in the size of the file, since both the file and what is looked for may be hostile.

mod edit;
mod lines;
mod matches;

pub use edit::{
    AmbiguousMatch, CloseMatch, EditFailure, EditFailureReason, Edited, Replacement,
    ReplacementDetail, edit,
};
pub use lines::{Excerpt, LineRange, TextFacts, excerpt, line_count};
pub use matches::{MatchBlock, MatchedLine, SearchOptions, Searched, search};
