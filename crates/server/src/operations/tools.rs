//! Command lines before they run (E10).

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{CommandCheck, CommandCheckRequest};
use cofferdam_runtime::FrontDoor;

use super::context::OperationContext;
use super::entry::{Annotations, Operation, Scope};

pub(super) fn operations() -> Vec<Operation> {
    vec![Operation::new(
        "command_check",
        "Tell what would happen to a command, without running it",
        "Reads a command line with the grammar of the shell and tells each simple command in it, also \
         behind pipes, substitutions, `bash -c`, `xargs`, `sudo` and their like, with the policy's rule \
         that fires for it. `verdict` says whether run_command would run it now. Rules about commands \
         are advice: the walls are what holds.",
        Scope::Read,
        Annotations::READS,
        command_check,
    )]
}

fn command_check(
    context: &OperationContext,
    request: CommandCheckRequest,
) -> Result<CommandCheck, Problem> {
    context.check_workspace(request.workspace.as_deref())?;
    let mut command = request.into_command()?;
    command
        .cwd
        .get_or_insert_with(|| context.workspace().clone());
    let policy = context.policy();
    context
        .runtime()
        .check_command(&policy, &command, FrontDoor::Protocol)
}
