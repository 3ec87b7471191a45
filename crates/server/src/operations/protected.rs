//! Protected names: looked at by everybody, released by the owner.

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{
    ListProtected, ListQuarantine, ProtectedPage, ProtectedReleased, QuarantinePage, Quarantined,
    ReleaseProtected, RestoreQuarantined,
};

use super::entry::{Annotations, Operation, Scope};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "protected_list",
            "List the protected names of the workspace",
            "Gives each name that the host's own tools obey, absent ones included, with who answers \
             for it: `walls` hold it; `git` held it when it was first seen, so a change stands in the \
             diff; `withheld` is held by git by now, but was not when it was first seen.",
            Scope::Read,
            Annotations::READS,
            |context, _: ListProtected| -> Result<ProtectedPage, Problem> {
                context.runtime().protected(&context.policy())
            },
        ),
        Operation::new(
            "protected_release",
            "Let git decide about a withheld name in the owner's name",
            "For a name that git did not hold when it was first seen and holds now: from the next \
             command on it counts as the repository's own. Only the owner's token has the scope for \
             it.",
            Scope::Answer,
            Annotations::CHANGES,
            |context, request: ReleaseProtected| -> Result<ProtectedReleased, Problem> {
                let policy = context.policy();
                context.runtime().release_protected(&policy, &request)
            },
        ),
        Operation::new(
            "quarantine_list",
            "List what was taken away at protected names",
            "Gives what commands had put at protected names of this workspace and what was taken away \
             when they ended, the newest command first, with where it lies.",
            Scope::Read,
            Annotations::READS,
            |context, _: ListQuarantine| -> Result<QuarantinePage, Problem> {
                context.runtime().quarantine(&context.policy())
            },
        ),
        Operation::new(
            "quarantine_restore",
            "Put back what was taken away in the owner's name",
            "Moves one of what `quarantine_list` gives to where it stood, if nothing stands there. \
             Only the owner's token has the scope for it.",
            Scope::Answer,
            Annotations::CHANGES,
            |context, request: RestoreQuarantined| -> Result<Quarantined, Problem> {
                let policy = context.policy();
                context.runtime().restore_quarantined(&policy, &request)
            },
        ),
    ]
}
