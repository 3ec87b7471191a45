//! Commands that go on after the call that started them (E2).

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{
    BackgroundRequest, BackgroundStart, CancelCommand, CommandCancelled, CommandList,
    CommandNotices, CommandRequest, CommandView, GetCommand, ListCommands, OutputPage,
    PollCommands, ReadOutput, WaitCommand,
};
use cofferdam_core::outcome::Status;
use cofferdam_runtime::{FrontDoor, StartCommand};

use super::context::OperationContext;
use super::entry::{Annotations, Operation, Scope};
use crate::problem::is_wrong_request;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "run_command_background",
            "Start a command behind the walls that may go on in the background",
            "Starts a command as run_command does and waits up to `wait_seconds` for its end. One \
             that ends within them gives its result, with `background` false, and leaves nothing to \
             follow. Otherwise `background` is true, and `command_id` names the command for \
             command_read, command_wait, command_get and command_cancel; `output` is what it wrote \
             so far. It has no time limit unless `timeout` or the policy sets one; the limit in \
             effect is in the answer. Walls and policy are those of the start until its end. It \
             ends with this server.",
            Scope::Execute,
            Annotations::RUNS,
            run_command_background,
        )
        .outliving(),
        Operation::new(
            "command_get",
            "Look at a command: status, output at a glance, result",
            "Tells how a command stands, on whose word and behind which walls it was started, the \
             first and last five lines of each stream, and its result once it has ended. A command \
             whose server died is `interrupted`.",
            Scope::Read,
            Annotations::READS,
            |context, request: GetCommand| -> Result<CommandView, Problem> {
                context.runtime().command(&request.command_id)
            },
        ),
        Operation::new(
            "command_list",
            "List background commands, the newest first",
            "Lists commands that were started in the background, also those that have ended, of \
             every process of this data directory.",
            Scope::Read,
            Annotations::READS,
            |context, request: ListCommands| -> Result<CommandList, Problem> {
                context.runtime().list_commands(&request)
            },
        ),
        Operation::new(
            "command_wait",
            "Wait for the end of a command",
            "Waits until the command has ended, and no longer than `limit_seconds`; then \
             `wait_expired` is true and the command goes on. With `claim` the end is not told again \
             by command_poll.",
            Scope::Read,
            Annotations::READS,
            |context, request: WaitCommand| -> Result<CommandView, Problem> {
                context.runtime().wait_command(&request, context.control())
            },
        ),
        Operation::new(
            "command_read",
            "Read the output of a command from an offset on",
            "Gives a page of standard output, standard error, or both in order of arrival, from \
             `offset` on, while the command runs and after its end. Read on from `next_offset` until \
             `eof`. Pages give every byte once; as text no page ends within a character, and as \
             base64 they are exact. `gap` names bytes that a limit dropped.",
            Scope::Read,
            Annotations::READS,
            |context, request: ReadOutput| -> Result<OutputPage, Problem> {
                context.runtime().read_output(&request, context.control())
            },
        ),
        Operation::new(
            "command_cancel",
            "End a command, or a start that has not happened yet",
            "Asks the command and everything that it started to end, ends them by force after two \
             seconds, and waits for it. Named by `idempotency_key` it also cancels a start that has \
             not come yet: that start then gives `cancelled`.",
            Scope::Execute,
            Annotations::ENDS,
            |context, request: CancelCommand| -> Result<CommandCancelled, Problem> {
                context.runtime().cancel_command(&request)
            },
        ),
        Operation::new(
            "command_poll",
            "Take the ends of background commands that nobody was told of yet",
            "Gives each end of a background command once, the oldest first; ends that a \
             command_wait claimed are left out. Interrupted commands of a server that died are told \
             too.",
            Scope::Execute,
            Annotations::CHANGES,
            |context, request: PollCommands| -> Result<CommandNotices, Problem> {
                context.runtime().poll_commands(&request)
            },
        ),
    ]
}

fn run_command_background(
    context: &OperationContext,
    request: BackgroundRequest,
) -> Result<BackgroundStart, Problem> {
    context.check_workspace(request.workspace.as_deref())?;
    let BackgroundRequest {
        command,
        argv,
        cwd,
        timeout,
        idle_timeout,
        env,
        stdin,
        network,
        write_access,
        idempotency_key,
        workspace: _,
        wait_seconds,
    } = request;
    let mut command = CommandRequest {
        command,
        argv,
        cwd,
        timeout,
        idle_timeout,
        env,
        stdin,
        network,
        write_access,
        idempotency_key,
        workspace: None,
        full_access: None,
    }
    .into_command()?;
    // The top of the workspace: where this server was started is nobody's business.
    command
        .cwd
        .get_or_insert_with(|| context.workspace().clone());
    let started = context.runtime().start_command(StartCommand {
        policy: context.policy(),
        command,
        front_door: FrontDoor::Protocol,
        wait_seconds,
    })?;
    let refused = started.result.as_ref().and_then(|result| {
        let problem = result.error.as_ref()?;
        (result.status == Status::Error && is_wrong_request(problem.code)).then(|| problem.clone())
    });
    match refused {
        Some(problem) => Err(problem),
        None => Ok(started),
    }
}
