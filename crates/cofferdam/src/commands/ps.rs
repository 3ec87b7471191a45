//! `ps` and `stop`.

use std::time::Duration;

use cofferdam_core::exit;
use cofferdam_runtime::StopEnd;
use serde_json::json;

use crate::arguments::review::StopArguments;
use crate::context::Context;
use crate::failure::{Ending, problem_exit_code};
use crate::render::ps as render;

/// Carries out `ps`.
pub(crate) fn ps(context: &Context) -> Ending {
    let running = context.task_runtime()?.running()?;
    context.output.result(&running, render::running)?;
    Ok(exit::SUCCESS)
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
