//! `run`: one command behind walls, with the caller's streams.

use std::sync::Arc;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_exec::Control;
use cofferdam_runtime::{FrontDoor, RunRequest};

use super::snapshots::Kept;
use crate::arguments::run::RunArguments;
use crate::context::Context;
use crate::failure::Ending;
use crate::launch;
use crate::render::outcome::notes;
use crate::streams::{Caller, Wish, exit_code};

/// Carries out `run`.
pub(crate) fn run(context: &Context, arguments: &RunArguments) -> Ending {
    let words: Vec<BytePath> = arguments
        .command
        .iter()
        .map(|word| word.as_os_str().into())
        .collect();
    let wish = Wish::of(arguments.terminal, context.output.is_json(), &words);
    let policy = launch::policy(context, &arguments.walls)?;
    let command = launch::command(context, &arguments.walls, arguments.limits, words)?;
    let words = command.command.summary();
    let runtime = Arc::new(context.runtime()?);
    let output = context.output;
    runtime.on_note(move |line| output.note(line));
    let control = Control::new();
    crate::ask::on_terminal(context, &runtime, &control, &policy, arguments.walls.ask);
    let kept = Kept::begin(&runtime, &policy, arguments.snapshot, &words)?;
    let mut caller = Caller::begin(wish, control.clone(), command.timeout, runtime.plane())?;
    let outcome = runtime.run_command(RunRequest {
        policy: policy.clone(),
        command,
        front_door: FrontDoor::CommandLine,
        io: caller.io()?,
        control,
    });
    let asked = caller.end(Some(outcome.status));
    if let Some(said) = kept.and_then(|kept| kept.end(&runtime, &policy, &outcome)) {
        context.output.note(&said);
    }
    drop(runtime);
    finish(context, &outcome, asked)
}

fn finish(context: &Context, outcome: &CommandOutcome, asked: Option<u8>) -> Ending {
    for line in notes(outcome) {
        context.output.note(&line);
    }
    if let Some(problem) = &outcome.error {
        context.output.explain(problem);
    }
    if context.output.is_json() {
        context.output.result(outcome, |_| String::new())?;
    }
    Ok(exit_code(outcome.status, outcome.exit_code(), asked))
}
