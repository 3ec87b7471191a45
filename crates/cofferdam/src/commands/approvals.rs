//! `approvals`: what waits for an answer, and answering it.

use cofferdam_core::exit;
use cofferdam_core::operation::{AnswerApproval, ListApprovals};
use cofferdam_runtime::FrontDoor;

use crate::arguments::approvals::{ApprovalsArguments, ApprovalsCommand};
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
        Some(ApprovalsCommand::Answer { id, answer, reason }) => {
            let decided = runtime.answer_approval(
                &AnswerApproval {
                    approval_id: id.clone(),
                    answer: answer.answer(),
                    reason: reason.clone(),
                },
                FrontDoor::CommandLine,
            )?;
            context.output.result(&decided, render::decided)?;
            Ok(exit::SUCCESS)
        }
    }
}

fn list(context: &Context, runtime: &cofferdam_runtime::Runtime, all: bool) -> Ending {
    let page = runtime.approvals(&ListApprovals {
        all,
        ..ListApprovals::default()
    })?;
    context.output.result(&page, render::list)?;
    Ok(exit::SUCCESS)
}
