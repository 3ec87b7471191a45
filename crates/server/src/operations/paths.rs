//! Paths outside of the workspace: authorised by the owner, asked for by agents.

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{
    AuthorisePath, AuthorisedPath, AuthorisedPathPage, ListAuthorisedPaths, RequestPath, RevokePath,
};

use super::entry::{Annotations, Operation, Scope};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "path_authorise",
            "Open a path outside of the workspace in the owner's name",
            "Lets commands and files read a path, or read and write it, from whatever begins next: for \
             as long as this server (`task`), or for the repository until it expires. Refused \
             (`path_refused`) is what is denied, secret or protected, what holds something of that, \
             home directories, the system, and what is given already. Only the owner's token has the \
             scope for it.",
            Scope::Answer,
            Annotations::CHANGES,
            |context, request: AuthorisePath| -> Result<AuthorisedPath, Problem> {
                context
                    .runtime()
                    .authorise_path(&context.policy(), &request)
            },
        ),
        Operation::new(
            "path_authorised",
            "List the paths outside of the workspace that are open",
            "Gives each path that the owner has authorised for this workspace, the newest first: the \
             one line that it is, until when it holds, and whether it is in effect.",
            Scope::Read,
            Annotations::READS,
            |context, _: ListAuthorisedPaths| -> Result<AuthorisedPathPage, Problem> {
                context.runtime().authorised_paths(&context.policy())
            },
        ),
        Operation::new(
            "path_revoke",
            "Close a path again in the owner's name",
            "From whatever begins next it is closed. Only the owner's token has the scope for it.",
            Scope::Answer,
            Annotations::CHANGES,
            |context, request: RevokePath| -> Result<AuthorisedPath, Problem> {
                context.runtime().revoke_path(&context.policy(), &request)
            },
        ),
        Operation::new(
            "path_request",
            "Ask the owner for a path outside of the workspace",
            "Says which path is needed, for reading or writing, and what for, and waits for the answer. \
             What may not be authorised is refused before anybody is asked. After a yes the path is \
             open from the next command or file on.",
            Scope::Execute,
            Annotations::CHANGES,
            |context, request: RequestPath| -> Result<AuthorisedPath, Problem> {
                context.runtime().request_path(&context.files(), &request)
            },
        ),
    ]
}
