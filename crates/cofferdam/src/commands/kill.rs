//! `kill`.

use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::CancelCommand;
use cofferdam_runtime::StopEnd;
use serde_json::json;

use super::logs::{Target, target};
use crate::arguments::logs::KillArguments;
use crate::context::Context;
use crate::failure::{Ending, problem_exit_code};
use crate::render::ps as render;

/// How long is waited for the end of tasks.
const PATIENCE: Duration = Duration::from_secs(20);

/// Carries out `kill`.
pub(crate) fn kill(context: &Context, arguments: &KillArguments) -> Ending {
    let runtime = context.task_runtime()?;
    let mut commands = Vec::new();
    let mut tasks = Vec::new();
    // All of them are known before one is ended.
    for name in &arguments.names {
        match target(&runtime, name)? {
            Target::Command(id) => commands.push(id),
            Target::Task(task) => tasks.push(task.to_string()),
        }
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
    context
        .output
        .result(&json!({"commands": ended, "tasks": stopped}), |_| {
            let mut text = render::cancelled(&ended);
            if !stopped.is_empty() {
                text.push_str(&render::stopped(&stopped, &[]));
            }
            text
        })?;
    let mut code = exit::SUCCESS;
    for problem in &problems {
        context.output.explain(problem);
        code = problem_exit_code(problem);
    }
    Ok(code)
}
