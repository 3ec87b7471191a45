//! Questions that somebody has to answer: listed by everybody, answered by the owner.

use cofferdam_core::approval::Approval;
use cofferdam_core::error::Problem;
use cofferdam_core::operation::{
    AnswerApproval, ApprovalDecided, ApprovalPage, ForgetAnswer, GetApproval, ListApprovals,
    ListRemembered, RememberedLine, RememberedPage,
};
use cofferdam_runtime::FrontDoor;

use super::context::OperationContext;
use super::entry::{Annotations, Operation, Scope};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "approval_list",
            "List questions that wait for an answer",
            "Gives the approvals that are asked for, the newest first: those that wait for an answer, \
             those of a `state`, or `all`. Each shows what is needed to answer: the command, the diff, \
             paths, hosts, and why it is asked.",
            Scope::Read,
            Annotations::READS,
            |context, request: ListApprovals| -> Result<ApprovalPage, Problem> {
                context.runtime().approvals(&request)
            },
        ),
        Operation::new(
            "approval_get",
            "Look at one question and what became of it",
            "Gives one approval: what is asked, who must answer, the answers that counted, where it \
             stands, and whether what was approved has been done.",
            Scope::Read,
            Annotations::READS,
            |context, request: GetApproval| -> Result<Approval, Problem> {
                context.runtime().approval(&request.approval_id)
            },
        ),
        Operation::new(
            "approval_answer",
            "Answer a question in the owner's name",
            "Approves or rejects, once: a question that is decided stays as it was, and `counted` is \
             false. An answer after its time, or when nobody waits any more, is refused as \
             `approval_closed`. Only the owner's token has the scope for it; agents that ask over MCP \
             have no such tool.",
            Scope::Answer,
            Annotations::CHANGES,
            answer,
        ),
        Operation::new(
            "approval_remembered",
            "List the answers that are remembered",
            "Gives each answer that holds for longer than one question, the newest first: the one line \
             of what it allows or denies, for which repository, and until when.",
            Scope::Read,
            Annotations::READS,
            |context, _: ListRemembered| -> Result<RememberedPage, Problem> {
                Ok(context.runtime().remembered())
            },
        ),
        Operation::new(
            "approval_forget",
            "Take a remembered answer back",
            "From now on it is asked again. Only the owner's token has the scope for it.",
            Scope::Answer,
            Annotations::CHANGES,
            |context, request: ForgetAnswer| -> Result<RememberedLine, Problem> {
                context.runtime().forget(&request)
            },
        ),
    ]
}

fn answer(context: &OperationContext, request: AnswerApproval) -> Result<ApprovalDecided, Problem> {
    context
        .runtime()
        .answer_approval(&request, FrontDoor::Protocol)
}
