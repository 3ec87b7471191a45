//! Requests and results of the operations that the plane carries out, one file per area.

mod command;

pub use command::{CommandForm, Input, RunCommand};
