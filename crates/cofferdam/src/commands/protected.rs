//! `protected`: names that the host's own tools obey, and what was taken away there.

use std::fmt::Write as _;

use cofferdam_core::exit;
use cofferdam_core::operation::{
    ProtectedPage, ProtectedReleased, QuarantinePage, Quarantined, ReleaseProtected,
    RestoreQuarantined,
};
use cofferdam_core::spec::ProtectedState;
use cofferdam_runtime::PolicyRequest;

use crate::arguments::protected::{ProtectedArguments, ProtectedCommand};
use crate::context::Context;
use crate::failure::Ending;
use crate::render::table::Table;

/// Carries out `protected`.
pub(crate) fn protected(context: &Context, arguments: &ProtectedArguments) -> Ending {
    let runtime = context.runtime()?;
    let workspace = arguments.workspace.as_ref();
    let policy = PolicyRequest {
        workspace: workspace.map(|path| context.absolute(path)).transpose()?,
        ..PolicyRequest::default()
    };
    match &arguments.command {
        None | Some(ProtectedCommand::List) => {
            context.output.result(&runtime.protected(&policy)?, list)?;
        }
        Some(ProtectedCommand::Release { path }) => {
            let request = ReleaseProtected {
                path: context.absolute(path)?.into(),
            };
            let done = runtime.release_protected(&policy, &request)?;
            context.output.result(&done, |done: &ProtectedReleased| {
                format!("git decides about {} from the next command on\n", done.path)
            })?;
        }
        Some(ProtectedCommand::Quarantine) => {
            context
                .output
                .result(&runtime.quarantine(&policy)?, quarantine)?;
        }
        Some(ProtectedCommand::Restore { id }) => {
            let request = RestoreQuarantined {
                quarantine_id: id.clone(),
            };
            let done = runtime.restore_quarantined(&policy, &request)?;
            context.output.result(&done, |done: &Quarantined| {
                format!("put back: {}\n", done.path)
            })?;
        }
    }
    Ok(exit::SUCCESS)
}

const fn word(state: ProtectedState) -> &'static str {
    match state {
        ProtectedState::Absent => "absent",
        ProtectedState::File => "file",
        ProtectedState::Directory => "directory",
        ProtectedState::Symlink => "link",
    }
}

fn list(page: &ProtectedPage) -> String {
    let mut table = Table::new(&["PATH", "STATE", "HELD BY", "RULE"]);
    for one in &page.names {
        table.row([
            one.path.to_string(),
            word(one.state).to_owned(),
            one.by.as_str().to_owned(),
            one.rule.clone(),
        ]);
    }
    table.render()
}

fn quarantine(page: &QuarantinePage) -> String {
    if page.quarantined.is_empty() {
        return "nothing was taken away here\n".to_owned();
    }
    let mut text = String::new();
    for one in &page.quarantined {
        let _ = writeln!(
            text,
            "{}  {} ({}, {} bytes)\n    kept as {}",
            one.quarantine_id,
            one.path,
            word(one.state),
            one.bytes,
            one.kept
        );
    }
    text
}
