//! What would leave the machine: proposed by whoever works, listed by everybody, released by the owner.

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{
    GetHeld, ListOutbox, OutboxAnswer, OutboxPage, Proposed, Publish, PullRequest, Push,
    RefuseHeld, ReleaseHeld, WriteOutside,
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
            "pull_request",
            "Propose a pull request of a task's own branch",
            "Holds a pull request of the task's own branch into another branch of the repository that a \
             remote leads to, and the push that it needs before. Nothing leaves the machine by it: the \
             owner looks at both and releases or refuses them. It is opened by the forge's own program \
             (gh, glab) or by one that the owner names; where nothing is known or installed that opens \
             one, it is `forge_unknown`. Proposing the same again gives what is there. Then there is \
             nothing more to do: do not wait for the answer.",
            Scope::Execute,
            Annotations::CHANGES,
            |context, request: PullRequest| -> Result<Proposed, Problem> {
                let actor = context.authority().actor();
                let from = context.workspace().as_path();
                context
                    .runtime()
                    .propose_pull_request(&request, actor, Some(from))
            },
        ),
        Operation::new(
            "publish",
            "Propose to publish what a task's own branch holds",
            "Holds a command such as `npm publish` or `cargo publish`. Nothing runs by it: when the \
             owner releases it, exactly these words are run as the owner, outside of the walls and with \
             their credentials, in a clean export of exactly the commit that was shown, which holds \
             neither a git directory nor what git ignores. A program that is not there is `not_found`, \
             a commit with a link that leads out of it `denied`. Do not wait for the answer.",
            Scope::Execute,
            Annotations::CHANGES,
            |context, request: Publish| -> Result<Proposed, Problem> {
                let actor = context.authority().actor();
                let from = context.workspace().as_path();
                context
                    .runtime()
                    .propose_publish(&request, actor, Some(from))
            },
        ),
        Operation::new(
            "write_outside",
            "Propose a file outside of the workspace",
            "Holds what one file outside of the workspace would hold, with what stands in it now and \
             what changes. Nothing is written by it: when the owner releases it, the file is replaced \
             as a whole, and only where it still holds what it held (`file_conflict`). What is denied, \
             secret, protected, the system's or can be written already is `path_refused`; a link, a \
             device and a file of several names are `not_a_file`. Do not wait for the answer.",
            Scope::Execute,
            Annotations::CHANGES,
            |context, request: WriteOutside| -> Result<Proposed, Problem> {
                context
                    .runtime()
                    .propose_write_outside(&context.files(), request)
            },
        ),
        Operation::new(
            "outbox_list",
            "List what is held and would leave the machine",
            "Gives the proposals, the newest first: those that wait for an answer, those of a `state` \
             or a `task`, or `all`. Each shows what would leave: the commit, the branch, where it \
             goes, the commits that the remote does not have, the command, the lines of a file, and what \
             is to be known before an answer. `pending` is what tasks that still run have left to be \
             proposed when they have ended, by their own word.",
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
            "Carries out the proposals that are named, or all of a task that wait, one after the other, with \
             the owner's own credentials and hooks. Each is carried out once; what is not as it was shown is \
             `target_moved` or `file_conflict` and stays held; what does not get through is `push_failed` \
             or `effect_failed` and waits again. A pull request or a command that was cut off is \
             `unknown` and never tried again. With several, each one's problem stands beside it and `success` is false. Only the \
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

fn push(context: &OperationContext, request: Push) -> Result<Proposed, Problem> {
    let actor = context.authority().actor();
    let from = context.workspace().as_path();
    context.runtime().propose_push(&request, actor, Some(from))
}
