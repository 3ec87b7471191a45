//! Persistent terminals: a screen that stays, at which several may look and type.
//!
//! The terminal is a real one, its master is the plane's, and the program in it has it as its
//! controlling one, behind the walls of an enclosure. What it writes is kept three times: as bytes
//! with their offsets, as a screen with a history, and, where that is wanted, as a recording.
//!
//! Whether a program has ended, runs, or waits for input is asked of the kernel and never read from
//! the output: see [`Terminal::type_and_wait`].

mod lend;
mod open;
mod record;
mod ring;
mod screen;
mod settle;
mod state;
mod tell;
mod wait;

pub use open::{Terminal, TerminalOptions, TerminalWatch};
pub use ring::Chunk;
pub use screen::{Lines, Screen, clean};
pub use wait::{Typed, Waited};
