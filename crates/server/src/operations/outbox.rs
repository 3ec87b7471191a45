//! What would leave the machine: proposed by whoever works, listed by everybody, released by the owner.

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{
    GetHeld, ListOutbox, OutboxAnswer, OutboxPage, Push, PushProposed, RefuseHeld, ReleaseHeld,
};
use cofferdam_core::outbox::Held;

use super::context::OperationContext;
use super::entry::{Annotations, Operation, Scope};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "push",
            "Propose to push a task's own branch",
            "Holds a push of the task's own branch, as it was brought in when the task ended, to a \
             remote of the owner's repository. Nothing leaves the machine by it: the owner looks at \
             the commits and releases or refuses them. No other branch can be pushed, nothing is \
             forced, and a branch that has moved since is `target_moved`. Proposing the same again \
             gives what is there. Then there is nothing more to do: do not wait for the answer.",
            Scope::Execute,
            Annotations::CHANGES,
            push,
        ),
        Operation::new(
            "outbox_list",
            "List what is held and would leave the machine",
            "Gives the proposals, the newest first: those that wait for an answer, those of a `state` \
             or a `task`, or `all`. Each shows what would leave: the commit, the branch, where it \
             goes, the commits that the remote does not have, and what is to be known before an answer.",
            Scope::Read,
            Annotations::READS,
            |context, request: ListOutbox| -> Result<OutboxPage, Problem> {
                context.runtime().held(&request)
            },
        ),
        Operation::new(
            "outbox_get",
            "Look at one proposal and what became of it",
            "Gives one proposal: what would leave, where it stands, who answered, what the remote said.",
            Scope::Read,
            Annotations::READS,
            |context, request: GetHeld| -> Result<Held, Problem> {
                context.runtime().held_one(&request.proposal_id)
            },
        ),
        Operation::new(
            "outbox_release",
            "Release what is held, in the owner's name",
            "Sends the proposals that are named, or all of a task that wait, one after the other, with \
             the owner's own credentials and hooks. Each is sent once; what is not as it was shown is \
             `target_moved` and stays held; what does not get through is `push_failed` and waits again. \
             With several, each one's problem stands beside it and `success` is false. Only the \
             owner's token has the scope for it; agents that ask over MCP have no such tool.",
            Scope::Answer,
            Annotations::RUNS,
            |context, request: ReleaseHeld| -> Result<OutboxAnswer, Problem> {
                context
                    .runtime()
                    .release_held(&request, context.front_door())
            },
        ),
        Operation::new(
            "outbox_refuse",
            "Refuse what is held, in the owner's name",
            "The proposals that are named, or all of a task that wait, will not leave. An answer to \
             one that is decided is `proposal_decided`. Only the owner's token has the scope for it.",
            Scope::Answer,
            Annotations::CHANGES,
            |context, request: RefuseHeld| -> Result<OutboxAnswer, Problem> {
                context
                    .runtime()
                    .refuse_held(&request, context.front_door())
            },
        ),
    ]
}

fn push(context: &OperationContext, request: Push) -> Result<PushProposed, Problem> {
    let actor = context.authority().actor();
    let from = context.workspace().as_path();
    context.runtime().propose_push(&request, actor, Some(from))
}
