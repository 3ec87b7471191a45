//! Requests and results of the operations that the plane carries out, one file per area.

mod command;
mod request;

pub use command::{CommandForm, Input, RunCommand};
pub use request::{CommandRequest, command_form, variables};
