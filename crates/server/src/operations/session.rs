//! Sessions: one place that is kept for many commands.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{
    EndSessionJob, ListSessions, OpenSession, ReadSessionLog, RunInSession, SessionClosed,
    SessionJobEnded, SessionList, SessionLogPage, SessionReference, SessionResult, SessionView,
};
use cofferdam_core::outcome::Status;

use super::context::OperationContext;
use super::entry::{Annotations, Operation, Scope};
use crate::problem::is_wrong_request;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "session_open",
            "Open a session: walls that stay up for many commands",
            "Puts walls up and keeps them until the session is closed, idle for too long, or the \
             server ends. Files, also private ones as in /tmp, and background jobs last as long as \
             it. In a `shell` session the directory, the umask and exported variables go from one \
             command to the next, one command at a time; unexported variables, functions, aliases, \
             options and traps do not, since each command is a shell of its own. A `plain` session \
             runs several commands at once. Its end takes everything in it along, and nothing else.",
            Scope::Execute,
            Annotations::CHANGES,
            open,
        ),
        Operation::new(
            "session_run",
            "Run one command in a session and wait for its end",
            "Each command has its own result, time limit and output. What it leaves running in the \
             background goes on, is named in `kept`, and does not hold the answer; a time limit or \
             a cancellation ends all that the command started. Whatever a command does to its shell \
             (exit, exec, set -e, a time limit) is over with it: `state_saved` says whether its \
             directory and exported variables were taken over. A script with an open quote, bracket \
             or here-document is refused at once as `syntax_incomplete`, and nothing of it runs. \
             `session_reset` is true where the walls had gone and were put up anew.",
            Scope::Execute,
            Annotations::RUNS,
            run,
        ),
        Operation::new(
            "session_list",
            "List the open sessions",
            "Gives every session of this server that is open, the oldest first.",
            Scope::Read,
            Annotations::READS,
            |context, _: ListSessions| -> Result<SessionList, Problem> {
                Ok(context.runtime().sessions())
            },
        ),
        Operation::new(
            "session_get",
            "Look at one session",
            "Gives where the session is, what runs in it, what its commands left running, and when \
             it ends.",
            Scope::Read,
            Annotations::READS,
            |context, request: SessionReference| -> Result<SessionView, Problem> {
                context.runtime().session(&request.session)
            },
        ),
        Operation::new(
            "session_log",
            "Read what background jobs of a session wrote",
            "Gives what jobs wrote after their commands had ended, both streams of all of them as \
             it came. The last 256 KiB are kept.",
            Scope::Read,
            Annotations::READS,
            |context, request: ReadSessionLog| -> Result<SessionLogPage, Problem> {
                context
                    .runtime()
                    .session_log(&request.session, request.offset)
            },
        ),
        Operation::new(
            "session_end_job",
            "End what one command of a session left running",
            "Ends every process that the command started and that still runs; commands and other \
             jobs of the session are left alone.",
            Scope::Execute,
            Annotations::ENDS,
            |context, request: EndSessionJob| -> Result<SessionJobEnded, Problem> {
                context
                    .runtime()
                    .end_session_job(&request.session, &request.command_id)
            },
        ),
        Operation::new(
            "session_reset",
            "Begin a session anew",
            "Cancels its commands, ends its jobs, takes its walls down and puts them up again, at \
             the top of the workspace and with the variables of the policy.",
            Scope::Execute,
            Annotations::ENDS,
            |context, request: SessionReference| -> Result<SessionView, Problem> {
                context.runtime().reset_session(&request.session)
            },
        ),
        Operation::new(
            "session_close",
            "Close a session and end everything in it",
            "Cancels its commands, ends its jobs and takes its walls down. Nothing of other sessions \
             is touched.",
            Scope::Execute,
            Annotations::ENDS,
            |context, request: SessionReference| -> Result<SessionClosed, Problem> {
                context.runtime().close_session(&request.session)
            },
        ),
    ]
}

fn open(context: &OperationContext, request: OpenSession) -> Result<SessionView, Problem> {
    context.check_workspace(request.workspace.as_deref())?;
    context
        .runtime()
        .open_session(context.policy(), &request, context.session_door())
}

fn run(context: &OperationContext, request: RunInSession) -> Result<SessionResult, Problem> {
    let end = context
        .runtime()
        .run_in_session(request, context.control())?;
    match &end.result.error {
        Some(problem)
            if end.result.status == Status::Error
                && (is_wrong_request(problem.code) || problem.code == ErrorCode::SessionBusy) =>
        {
            Err(problem.clone())
        }
        _ => Ok(end),
    }
}
