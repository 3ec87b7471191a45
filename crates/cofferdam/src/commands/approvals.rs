//! `approvals`: what waits for an answer, and answering it.

use cofferdam_core::approval::ApprovalAnswer;
use cofferdam_core::exit;
use cofferdam_core::operation::{AnswerApproval, ForgetAnswer, ListApprovals};
use cofferdam_runtime::{FrontDoor, Runtime};

use crate::arguments::approvals::{AnswerArguments, ApprovalsArguments, ApprovalsCommand};
use crate::context::Context;
use crate::failure::Ending;
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
    Ok(exit::SUCCESS)
}
