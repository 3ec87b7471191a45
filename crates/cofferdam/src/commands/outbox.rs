//! `push` and `outbox`: what would leave the machine, and the owner's answer.

use std::path::Path;

use cofferdam_core::authority::Actor;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::id::ProposalId;
use cofferdam_core::operation::{
    ListOutbox, OutboxAnswer, Proposed, Publish, PullRequest, Push, RefuseHeld, ReleaseHeld,
};
use cofferdam_runtime::{FrontDoor, Runtime};

use crate::arguments::outbox::{
    NamedHeld, OutboxArguments, OutboxCommand, PublishArguments, PullRequestArguments,
    PushArguments,
};
use crate::context::Context;
use crate::failure::{Ending, problem_exit_code};
use crate::render::outbox as render;

/// Carries out `push`.
pub(crate) fn push(context: &Context, arguments: &PushArguments) -> Ending {
    let from = super::review::meant(context, &arguments.repository)?;
    let runtime = context.task_runtime()?;
    let request = Push {
        task: arguments.task.clone(),
        remote: arguments.remote.clone(),
    };
    let proposed = runtime.propose_push(&request, Actor::Owner, Some(&from))?;
    proposed_or_released(context, &runtime, &proposed, arguments.release)
}

fn pull_request(context: &Context, arguments: &PullRequestArguments) -> Ending {
    let from = super::review::meant(context, &arguments.repository)?;
    let body = match &arguments.body_file {
        Some(path) => read_text(context, path)?,
        None => arguments.body.clone(),
    };
    let runtime = context.task_runtime()?;
    let request = PullRequest {
        task: arguments.task.clone(),
        title: arguments.title.clone(),
        body,
        base: arguments.base.clone(),
        remote: arguments.remote.clone(),
    };
    let proposed = runtime.propose_pull_request(&request, Actor::Owner, Some(&from))?;
    proposed_or_released(context, &runtime, &proposed, arguments.release)
}

fn publish(context: &Context, arguments: &PublishArguments) -> Ending {
    let from = super::review::meant(context, &arguments.repository)?;
    let runtime = context.task_runtime()?;
    let directory = arguments.directory.as_ref();
    let request = Publish {
        task: arguments.task.clone(),
        argv: arguments.argv.clone(),
        directory: directory.map_or_else(BytePath::default, |path| path.as_path().into()),
    };
    let proposed = runtime.propose_publish(&request, Actor::Owner, Some(&from))?;
    proposed_or_released(context, &runtime, &proposed, arguments.release)
}

fn read_text(context: &Context, path: &Path) -> Result<String, Problem> {
    let wrong = |error: std::io::Error| {
        let message = format!("{} cannot be read: {error}", path.display());
        Problem::new(ErrorCode::InvalidRequest, message).with_field("body")
    };
    if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).map_err(wrong)
    } else {
        std::fs::read_to_string(context.absolute(path)?).map_err(wrong)
    }
}

/// Shows what was proposed, or releases it at once with what it needs before.
fn proposed_or_released(
    context: &Context,
    runtime: &Runtime,
    proposed: &Proposed,
    release: bool,
) -> Ending {
    if !release {
        context.output.result(proposed, render::proposed)?;
        return Ok(exit::SUCCESS);
    }
    let all = proposed.before.iter().chain([&proposed.held]);
    let request = ReleaseHeld {
        proposal_ids: all.map(|held| held.proposal.proposal_id.clone()).collect(),
        task: None,
    };
    let answer = runtime.release_held(&request, FrontDoor::CommandLine)?;
    finish(context, &answer)
}

/// Carries out `outbox`.
pub(crate) fn outbox(context: &Context, arguments: &OutboxArguments) -> Ending {
    let runtime = context.task_runtime()?;
    match &arguments.command {
        None => {
            let page = runtime.held(&ListOutbox::default())?;
            context.output.result(&page, render::list)?;
            Ok(exit::SUCCESS)
        }
        Some(OutboxCommand::List { all, task }) => {
            let page = runtime.held(&ListOutbox {
                state: None,
                task: task.clone(),
                all: *all,
            })?;
            context.output.result(&page, render::list)?;
            Ok(exit::SUCCESS)
        }
        Some(OutboxCommand::PullRequest(arguments)) => pull_request(context, arguments),
        Some(OutboxCommand::Publish(arguments)) => publish(context, arguments),
        Some(OutboxCommand::Show { id }) => {
            context
                .output
                .result(&runtime.held_one(id)?, render::held)?;
            Ok(exit::SUCCESS)
        }
        Some(OutboxCommand::Release(named)) => {
            let (proposal_ids, task) = read(named)?;
            let request = ReleaseHeld { proposal_ids, task };
            finish(
                context,
                &runtime.release_held(&request, FrontDoor::CommandLine)?,
            )
        }
        Some(OutboxCommand::Refuse { named, reason }) => {
            let (proposal_ids, task) = read(named)?;
            let request = RefuseHeld {
                proposal_ids,
                task,
                reason: reason.clone(),
            };
            finish(
                context,
                &runtime.refuse_held(&request, FrontDoor::CommandLine)?,
            )
        }
    }
}

/// Tells ids from a task.
fn read(named: &NamedHeld) -> Result<(Vec<ProposalId>, Option<String>), Problem> {
    let is_id = |name: &&String| name.starts_with("out_");
    if let ([task], None) = (named.names.as_slice(), named.names.iter().find(is_id)) {
        return Ok((Vec::new(), Some(task.clone())));
    }
    let ids = named.names.iter().map(|name| {
        name.parse().map_err(|_| {
            Problem::new(
                ErrorCode::InvalidRequest,
                format!("{name:?} is no id of something that is held"),
            )
            .with_hint("name ids, or one task for all that is held of it")
        })
    });
    Ok((ids.collect::<Result<_, _>>()?, None))
}

/// Prints what became of an answer; the first problem gives the exit code.
fn finish(context: &Context, answer: &OutboxAnswer) -> Ending {
    context.output.result(answer, render::answered)?;
    let problems = answer.answers.iter().filter_map(|one| one.problem.as_ref());
    let mut code = exit::SUCCESS;
    for problem in problems {
        if code == exit::SUCCESS {
            code = problem_exit_code(problem);
        }
        context.output.explain(problem);
    }
    Ok(code)
}
