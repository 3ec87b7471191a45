//! What each command does.

mod events;
mod explain;
mod journal;
mod policy;
mod reference;

use cofferdam_core::error::{ErrorCode, Problem};

use crate::arguments::TopCommand;
use crate::context::Context;
use crate::failure::Ending;

/// Carries a command out.
pub(crate) fn dispatch(context: &Context, command: TopCommand) -> Ending {
    match command {
        TopCommand::Policy(command) => policy::policy(context, *command),
        TopCommand::Journal(command) => journal::journal(context, command),
        TopCommand::Events(arguments) => events::events(context, &arguments),
        _ => Err(Problem::new(ErrorCode::Internal, "not wired").into()),
    }
}
