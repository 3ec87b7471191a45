//! Commands to whose end the caller waits (E1).

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{CommandRequest, RunCommand};
use cofferdam_core::outcome::{CommandOutcome, Status};
use cofferdam_exec::CommandIo;
use cofferdam_runtime::{FrontDoor, RunRequest};

use super::context::OperationContext;
use super::entry::{Annotations, Operation, Scope};
use crate::problem::is_wrong_request;

pub(super) fn operations() -> Vec<Operation> {
    vec![Operation::new(
        "run_command",
        "Run one command behind the walls and wait for its end",
        "Runs text for a shell (`command`) or a program with its arguments (`argv`) in the workspace, \
         waits for its end and gives its output. The command and everything that it started have \
         ended when the result is there, also after a time limit, and when the caller goes away. \
         `status` says how it ended: completed is exit code 0, failed any other. `output` holds the \
         end of both streams in order of arrival. `denials` names what the walls refused and what to \
         do instead.",
        Scope::Execute,
        Annotations::RUNS,
        run_command,
    )]
}

fn run_command(
    context: &OperationContext,
    request: CommandRequest,
) -> Result<CommandOutcome, Problem> {
    context.check_workspace(request.workspace.as_deref())?;
    carry_out(context, request.into_command()?)
}

/// Runs a command of a request to its end: the one way for whatever waits for one.
pub(super) fn carry_out(
    context: &OperationContext,
    mut command: RunCommand,
) -> Result<CommandOutcome, Problem> {
    // The top of the workspace: where this server was started is nobody's business.
    command
        .cwd
        .get_or_insert_with(|| context.workspace().clone());
    let outcome = context.runtime().run_command(RunRequest {
        policy: context.policy(),
        command,
        front_door: FrontDoor::Protocol,
        io: CommandIo::Capture { input: None },
        control: context.control().clone(),
    });
    match outcome.error {
        Some(problem) if outcome.status == Status::Error && is_wrong_request(problem.code) => {
            Err(problem)
        }
        _ => Ok(outcome),
    }
}
