//! Search through the files of a folder, by a program that the plane starts behind the same walls
//! as commands: what a command cannot read, a search does not find.
//!
//! What it is told and what it answers stands in `cofferdam-keeper`.

#[cfg(feature = "program")]
mod program;

#[cfg(feature = "program")]
pub use program::run;
