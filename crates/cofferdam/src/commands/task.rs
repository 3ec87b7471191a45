//! `task …`

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::CommandForm;
use cofferdam_core::task::TaskRequest;
use cofferdam_exec::Control;
use cofferdam_runtime::{DiffForm, FrontDoor, TaskRunRequest};

use super::review;
use crate::arguments::task::{TaskCommand, TaskRunArguments};
use crate::context::Context;
use crate::failure::Ending;
use crate::launch;
use crate::render::task as render;
use crate::render::tasks;
use crate::streams::{Caller, Wish, exit_code};

/// Carries out `task …`.
pub(crate) fn task(context: &Context, command: TaskCommand) -> Ending {
    match command {
        TaskCommand::Run(arguments) => return run(context, *arguments),
        TaskCommand::List { limit } => {
            let mut list = context.task_runtime()?.tasks()?;
            let hidden = list.len().saturating_sub(limit);
            list.drain(..hidden);
            context
                .output
                .result(&serde_json::json!({"tasks": list}), |_| {
                    tasks::list(&list, hidden)
                })?;
        }
        TaskCommand::Show(reference) => {
            let overview = context.task_runtime()?.task(&reference.task)?;
            match &overview.result {
                Some(result) => context.output.result(result, render::result)?,
                None => context.output.result(&overview, tasks::running)?,
            }
        }
        TaskCommand::Diff { task, stat } => {
            let form = if stat {
                DiffForm::Stat
            } else {
                DiffForm::Patch
            };
            let diff = context.task_runtime()?.diff(&task.task, form)?;
            if context.output.is_json() || stat {
                let mut value = serde_json::to_value(&diff)?;
                if !stat {
                    // Bytes that are no text are replaced here; the plain form gives them as they are.
                    value["patch"] = String::from_utf8_lossy(&diff.patch).into();
                }
                context.output.result(&value, |_| tasks::stat(&diff))?;
            } else {
                patch(&diff.patch)?;
            }
        }
        TaskCommand::Merge { task, how } => return review::merge(context, &[task.task], &how),
        TaskCommand::Drop(reference) => return review::drop_tasks(context, &[reference.task]),
        TaskCommand::Undo { task, repository } => {
            return review::undo(context, &[task.task], &repository);
        }
    }
    Ok(exit::SUCCESS)
}

/// Prints a patch: bytes as they are for a program, with colours for a person.
fn patch(patch: &[u8]) -> Ending {
    let mut stream = std::io::stdout().lock();
    if stream.is_terminal() {
        drop(stream);
        anstream::stdout()
            .lock()
            .write_all(tasks::coloured(patch).as_bytes())?;
    } else {
        stream.write_all(patch)?;
        stream.flush()?;
    }
    Ok(exit::SUCCESS)
}

fn run(context: &Context, arguments: TaskRunArguments) -> Ending {
    if arguments.merge_back {
        return Err(Problem::new(
            ErrorCode::UnsupportedField,
            "--merge-back is not enforced by this version",
        )
        .with_field("merge_back")
        .with_hint("merge by hand when the task has ended: cofferdam task merge N")
        .into());
    }
    let words: Vec<BytePath> = arguments
        .command
        .iter()
        .map(|word| word.as_os_str().into())
        .collect();
    let policy = launch::task_policy(context, &arguments.walls)?;
    let wish = Wish::of(arguments.terminal, context.output.is_json(), &words);
    let form = CommandForm::Argv(words);
    let request = TaskRequest {
        goal: arguments.goal.unwrap_or_else(|| form.summary()),
        command: form,
        cwd: launch::cwd(context, &arguments.walls)?,
        verify: arguments.verify,
        verify_from: arguments.verify_from.into(),
        setup: arguments.setup,
        isolation_mode: arguments.isolation.into(),
        workspace_strategy: arguments.strategy.into(),
        cleanup_policy: arguments.cleanup.into(),
        carry: arguments.carry.into(),
        worker: arguments.worker,
        timeout: arguments.limits.timeout,
        idle_timeout: arguments.limits.idle_timeout,
        verify_timeout: arguments.verify_timeout,
    };
    if let Some(count) = arguments.fork {
        return super::task_fork::run(context, count, &policy, &request, arguments.walls.ask);
    }
    let runtime = Arc::new(context.task_runtime()?);
    let control = Control::new();
    crate::ask::on_terminal(context, &runtime, &control, &policy, arguments.walls.ask);
    let mut caller = Caller::begin(wish, control.clone(), request.timeout, runtime.plane())?;
    let output = context.output;
    let quiet = output.is_json();
    let mut progress = |step| {
        if !quiet && let Some(line) = tasks::progress(&step) {
            output.note(&line);
        }
    };
    let result = runtime.run_task(TaskRunRequest {
        policy,
        task: request,
        front_door: FrontDoor::CommandLine,
        io: caller.io()?,
        progress: &mut progress,
        control,
    });
    let asked = caller.end(result.as_ref().ok().map(|result| result.status));
    let result = result?;
    if let Some(problem) = &result.error {
        context.output.explain(problem);
    }
    context.output.result(&result, render::ended)?;
    Ok(exit_code(result.status, result.exit_code(), asked))
}
