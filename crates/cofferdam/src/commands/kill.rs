//! `kill`.

use std::time::Duration;

use cofferdam_client::Client;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::{
    CancelCommand, SessionClosed, SessionReference, TerminalChoice, TerminalClosed,
};
use cofferdam_runtime::StopEnd;
use serde::Serialize;
use serde_json::{Value, json};

use super::living::{self, Lasting};
use super::logs::{Target, target};
use crate::arguments::logs::KillArguments;
use crate::context::Context;
use crate::failure::{Ending, Failure, problem_exit_code};
use crate::render::ps as render;

/// How long is waited for the end of tasks.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was closed on the server.
#[derive(Debug, Serialize)]
struct Closed {
    #[serde(skip)]
    said: String,
    /// The whole answer, by what it was.
    #[serde(flatten)]
    answer: Value,
}

fn close(client: &Client, one: Lasting) -> Result<Closed, Failure> {
    Ok(match one {
        Lasting::Terminal(name) => {
            let choice = TerminalChoice { name: Some(name) };
            let closed: TerminalClosed = client.call("terminal_close", &choice)?;
            Closed {
                said: crate::render::terminals::closed(&closed),
                answer: json!({"terminal": closed}),
            }
        }
        Lasting::Session(session) => {
            let closed: SessionClosed =
                client.call("session_close", &SessionReference { session })?;
            Closed {
                said: crate::render::sessions::closed(&closed),
                answer: json!({"session": closed}),
            }
        }
    })
}

/// Carries out `kill`.
pub(crate) fn kill(context: &Context, arguments: &KillArguments) -> Ending {
    let runtime = context.task_runtime()?;
    let mut commands = Vec::new();
    let mut tasks = Vec::new();
    let mut lasting = Vec::new();
    // All of them are known before one is ended.
    for name in &arguments.names {
        match target(&runtime, name) {
            Ok(Target::Command(id)) => commands.push(id),
            Ok(Target::Task(task)) => tasks.push(task.to_string()),
            Err(problem) => match living::lasting(context, name) {
                Some(found) => lasting.push(found),
                None => return Err(problem.into()),
            },
        }
    }
    let mut closed = Vec::new();
    for (client, one) in lasting {
        closed.push(close(&client, one)?);
    }
    let mut problems = Vec::new();
    let mut ended = Vec::new();
    for command in commands {
        let request = CancelCommand {
            command_id: Some(command.clone()),
            idempotency_key: None,
            force: arguments.force,
        };
        match runtime.cancel_command(&request) {
            Ok(cancelled) => {
                if !cancelled.ended {
                    problems.push(Problem::new(
                        ErrorCode::CommandState,
                        format!("{command} was asked to end and has not yet"),
                    ));
                }
                ended.push(cancelled);
            }
            Err(problem) => problems.push(problem),
        }
    }
    let stopped = if tasks.is_empty() {
        Vec::new()
    } else {
        runtime.stop(&tasks, PATIENCE)?
    };
    for one in &stopped {
        if let (StopEnd::StillRunning | StopEnd::Refused, Some(problem)) = (one.end, &one.problem) {
            problems.push(problem.clone());
        }
    }
    context.output.result(
        &json!({"commands": ended, "tasks": stopped, "closed": closed}),
        |_| {
            let mut text = render::cancelled(&ended);
            for one in &closed {
                text.push_str(&one.said);
                text.push('\n');
            }
            if !stopped.is_empty() {
                text.push_str(&render::stopped(&stopped, &[]));
            }
            text
        },
    )?;
    let mut code = exit::SUCCESS;
    for problem in &problems {
        context.output.explain(problem);
        code = problem_exit_code(problem);
    }
    Ok(code)
}
