//! `paths`: what the owner opens outside of a workspace.

use std::fmt::Write as _;

use cofferdam_core::approval::Remember;
use cofferdam_core::exit;
use cofferdam_core::operation::{AuthorisePath, AuthorisedPath, AuthorisedPathPage, RevokePath};
use cofferdam_core::spec::Access;
use cofferdam_runtime::PolicyRequest;

use crate::arguments::paths::{PathsArguments, PathsCommand};
use crate::context::Context;
use crate::failure::Ending;

/// Carries out `paths`.
pub(crate) fn paths(context: &Context, arguments: &PathsArguments) -> Ending {
    let runtime = context.runtime()?;
    let workspace = arguments.workspace.as_ref();
    let policy = PolicyRequest {
        workspace: workspace.map(|path| context.absolute(path)).transpose()?,
        ..PolicyRequest::default()
    };
    match &arguments.command {
        None | Some(PathsCommand::List) => {
            context
                .output
                .result(&runtime.authorised_paths(&policy)?, list)?;
        }
        Some(PathsCommand::Authorise { path, write, days }) => {
            let request = AuthorisePath {
                path: context.absolute(path)?.into(),
                access: if *write { Access::Write } else { Access::Read },
                hold: Remember::Repository,
                days: *days,
            };
            let done = runtime.authorise_path(&policy, &request)?;
            context.output.result(&done, one)?;
        }
        Some(PathsCommand::Revoke { id }) => {
            let request = RevokePath {
                rule_id: id.clone(),
            };
            let done = runtime.revoke_path(&policy, &request)?;
            context.output.result(&done, |done: &AuthorisedPath| {
                format!("closed again: {}\n", done.line)
            })?;
        }
    }
    Ok(exit::SUCCESS)
}

fn one(path: &AuthorisedPath) -> String {
    let until = path
        .expires
        .map_or_else(|| "its process ends".to_owned(), |at| at.to_string());
    let mut text = format!("{}  {}\n    until {until}\n", path.rule_id, path.line);
    if !path.in_effect {
        text.push_str("    not in effect: it is not there, or a link leads elsewhere by now\n");
    }
    for below in &path.read_only_below {
        let _ = writeln!(text, "    stays read only: {below}");
    }
    text
}

fn list(page: &AuthorisedPathPage) -> String {
    if page.paths.is_empty() {
        return "nothing is open besides the workspace\n".to_owned();
    }
    page.paths.iter().map(one).collect()
}
