//! Looking at command lines before they run, and tools of the owner's own.

mod check;
mod own;

pub use own::{ToolEntry, Tools};
