//! `ps` and `stop`.

use std::time::Duration;

use cofferdam_core::exit;
use cofferdam_core::operation::{
    ListSessions, SessionList, SessionView, TerminalInfo, TerminalList, TerminalListRequest,
};
use cofferdam_runtime::{RunningThings, StopEnd};
use serde::Serialize;
use serde_json::json;

use super::living;
use crate::arguments::review::StopArguments;
use crate::context::Context;
use crate::failure::{Ending, problem_exit_code};
use crate::render::ps as render;

/// Carries out `ps`.
pub(crate) fn ps(context: &Context) -> Ending {
    let mut running = context.task_runtime()?.running()?;
    let lasting = lasting(context);
    // A terminal is shown as what it is, and not as its command too.
    running.commands.retain(|command| {
        let is_it = |one: &TerminalInfo| one.command_id.as_str() == command.command_id;
        !lasting.terminals.iter().any(is_it)
    });
    let all = Alive { running, lasting };
    context.output.result(&all, |all| {
        render::running(&all.running, &all.lasting.sessions, &all.lasting.terminals)
    })?;
    Ok(exit::SUCCESS)
}

/// Everything that runs, as one object.
#[derive(Debug, Serialize)]
struct Alive {
    #[serde(flatten)]
    running: RunningThings,
    #[serde(flatten)]
    lasting: Lasting,
}

/// What servers of the data directory hold, those of agents too.
#[derive(Debug, Default, Serialize)]
struct Lasting {
    sessions: Vec<SessionView>,
    terminals: Vec<TerminalInfo>,
}

fn lasting(context: &Context) -> Lasting {
    let mut all = Lasting::default();
    for client in living::servers(context) {
        // A server of another workspace, or one that ends just now, has none to tell of.
        let sessions: Option<SessionList> = client.call("session_list", &ListSessions {}).ok();
        all.sessions
            .extend(sessions.into_iter().flat_map(|list| list.sessions));
        let terminals: Option<TerminalList> =
            client.call("terminal_list", &TerminalListRequest {}).ok();
        all.terminals
            .extend(terminals.into_iter().flat_map(|list| list.terminals));
    }
    all
}

/// Carries out `stop`.
pub(crate) fn stop(context: &Context, arguments: &StopArguments) -> Ending {
    let runtime = context.task_runtime()?;
    let patience = Duration::from_secs(arguments.wait);
    let tasks = runtime.stop(&arguments.tasks, patience)?;
    let commands = if arguments.all {
        runtime.stop_commands(patience)?
    } else {
        Vec::new()
    };
    let value = json!({"tasks": tasks, "commands": commands});
    context
        .output
        .result(&value, |_| render::stopped(&tasks, &commands))?;
    let mut code = exit::SUCCESS;
    let ends = tasks.iter().map(|one| (one.end, &one.problem));
    let of_commands = commands.iter().map(|one| (one.end, &one.problem));
    for end in ends.chain(of_commands) {
        if let (StopEnd::StillRunning | StopEnd::Refused, Some(problem)) = end {
            context.output.explain(problem);
            code = problem_exit_code(problem);
        }
    }
    Ok(code)
}
