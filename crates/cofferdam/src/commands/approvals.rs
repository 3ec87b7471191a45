//! `approvals`: what waits for an answer, and answering it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cofferdam_core::approval::{ApprovalAnswer, ApprovalAsk, ApprovalState};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::{AnswerApproval, ForgetAnswer, ListApprovals, ListOutbox};
use cofferdam_runtime::{FrontDoor, Runtime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::approvals::{AnswerArguments, ApprovalsArguments, ApprovalsCommand};
use crate::context::Context;
use crate::failure::{Ending, Failure};
use crate::render::approvals as render;

/// Carries out `approvals`.
pub(crate) fn approvals(context: &Context, arguments: &ApprovalsArguments) -> Ending {
    let runtime = context.runtime()?;
    match &arguments.command {
        None => list(context, &runtime, false),
        Some(ApprovalsCommand::List { all }) => list(context, &runtime, *all),
        Some(ApprovalsCommand::Show { id }) => {
            let approval = runtime.approval(id)?;
            context.output.result(&approval, render::approval)?;
            Ok(exit::SUCCESS)
        }
        Some(ApprovalsCommand::Approve(given)) => {
            answer(context, &runtime, ApprovalAnswer::Approve, given)
        }
        Some(ApprovalsCommand::Deny(given)) => {
            answer(context, &runtime, ApprovalAnswer::Reject, given)
        }
        Some(ApprovalsCommand::Watch) => watch(context, &runtime),
        Some(ApprovalsCommand::Remembered) => {
            context
                .output
                .result(&runtime.remembered(), render::remembered)?;
            Ok(exit::SUCCESS)
        }
        Some(ApprovalsCommand::Forget { id }) => {
            let forgotten = runtime.forget(&ForgetAnswer {
                rule_id: id.clone(),
            })?;
            context.output.result(&forgotten, render::forgotten)?;
            Ok(exit::SUCCESS)
        }
    }
}

fn answer(
    context: &Context,
    runtime: &Runtime,
    answer: ApprovalAnswer,
    given: &AnswerArguments,
) -> Ending {
    let decided = runtime.answer_approval(
        &AnswerApproval {
            approval_id: given.id.clone(),
            answer,
            reason: given.reason.clone(),
            remember: given.remember.remember(),
            remember_days: given.days,
        },
        FrontDoor::CommandLine,
    )?;
    context.output.result(&decided, render::decided)?;
    Ok(exit::SUCCESS)
}

fn list(context: &Context, runtime: &Runtime, all: bool) -> Ending {
    let page = runtime.approvals(&ListApprovals {
        all,
        ..ListApprovals::default()
    })?;
    context.output.result(&page, render::list)?;
    let held = runtime.held(&ListOutbox::default())?;
    let number = held.held.len() + held.left_out;
    if number > 0 {
        let what = if number == 1 {
            "effect is"
        } else {
            "effects are"
        };
        context
            .output
            .note(&format!("{number} {what} held besides: cofferdam outbox"));
    }
    Ok(exit::SUCCESS)
}

/// How often news are looked for at the latest; an interruption is seen then.
const LOOK: Duration = Duration::from_millis(100);

/// Puts every question that is open, or comes, until somebody interrupts.
fn watch(context: &Context, runtime: &Runtime) -> Ending {
    let _watching = runtime.watch_approvals()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| {
            Problem::new(ErrorCode::Io, format!("signals cannot be watched: {error}"))
        })?;
    }
    context
        .output
        .note("watching: what is asked comes here until you interrupt");
    let stopped = || stop.load(Ordering::Relaxed);
    let journal_failed = |error: cofferdam_journal::JournalError| error.to_problem();
    let mut shown = BTreeSet::new();
    let mut head = None;
    while !stopped() {
        let now = runtime.journal().head().map_err(journal_failed)?.pos;
        if head.replace(now) != Some(now) {
            let page = runtime.approvals(&ListApprovals::default())?;
            for one in page.approvals.iter().rev() {
                if stopped() || !shown.insert(one.ask.approval_id.clone()) {
                    continue;
                }
                put(context, runtime, &one.ask, &stopped)?;
            }
        }
        runtime
            .journal()
            .wait_beyond(now, LOOK)
            .map_err(journal_failed)?;
    }
    Ok(exit::SUCCESS)
}

/// Puts one question.
fn put(
    context: &Context,
    runtime: &Runtime,
    ask: &ApprovalAsk,
    stopped: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    if context.output.is_json() {
        return context.output.line(ask);
    }
    let id = &ask.approval_id;
    let is_open = || {
        !stopped()
            && runtime
                .approval(id)
                .is_ok_and(|one| one.state == ApprovalState::Pending)
    };
    let said = match crate::ask::put_watched(ask, &is_open) {
        None => {
            return context.output.text(&format!(
                "{}answer   cofferdam approvals approve {id}, or deny",
                render::question(ask)
            ));
        }
        Some(Ok(Some(said))) => said,
        // The terminal has gone, or nobody said anything.
        Some(_) => return Ok(()),
    };
    let request = AnswerApproval {
        approval_id: id.clone(),
        answer: said.answer,
        reason: None,
        remember: said.remember,
        remember_days: None,
    };
    match runtime.answer_approval(&request, FrontDoor::CommandLine) {
        // It ended meanwhile: whoever waited knows how.
        Err(problem) if problem.code == ErrorCode::ApprovalClosed => Ok(()),
        answered => Ok(answered.map(drop)?),
    }
}
