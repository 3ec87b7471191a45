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
    let stopped = runtime.stop(&arguments.tasks, Duration::from_secs(arguments.wait))?;
    context
        .output
        .result(&json!({"tasks": stopped}), |_| render::stopped(&stopped))?;
    let mut code = exit::SUCCESS;
    for one in &stopped {
        if let (StopEnd::StillRunning | StopEnd::Refused, Some(problem)) = (one.end, &one.problem) {
            context.output.explain(problem);
            code = problem_exit_code(problem);
        }
    }
    Ok(code)
}
