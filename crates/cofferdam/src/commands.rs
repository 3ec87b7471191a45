//! What each command does.

use cofferdam_core::error::{ErrorCode, Problem};

use crate::arguments::TopCommand;
use crate::context::Context;
use crate::failure::Ending;

/// Carries a command out.
pub(crate) fn dispatch(_context: &Context, command: TopCommand) -> Ending {
    let _ = command;
    Err(Problem::new(ErrorCode::Internal, "not wired").into())
}
