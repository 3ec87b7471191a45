//! The caller's side of a command: streams, terminal and signals.

mod caller;
mod pass;
mod screen;
mod signals;
mod terminal;

pub(crate) use caller::{Caller, Wish, exit_code};
pub(crate) use terminal::{CallerTerminal, Suspend};
