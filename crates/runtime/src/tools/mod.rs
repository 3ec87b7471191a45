//! Looking at command lines before they run, and tools of the owner's own.

mod check;
mod own;
mod permit;

pub use own::{ToolEntry, Tools};
