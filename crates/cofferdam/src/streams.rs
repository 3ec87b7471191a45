//! The caller's side of a command: streams, terminal and signals.

mod pass;
mod signals;
mod terminal;

pub(crate) use pass::{Discard, Pass, has_input};
pub(crate) use signals::Watch;
pub(crate) use terminal::{CallerTerminal, is_foreground_terminal};
