//! `mode`: in which mode a workspace is worked on.

use cofferdam_core::exit;
use cofferdam_core::operation::{Mode, ModeView, SetMode};
use cofferdam_runtime::PolicyRequest;

use crate::arguments::mode::{ModeArguments, ModeCommand};
use crate::context::Context;
use crate::failure::Ending;

/// Carries out `mode`.
pub(crate) fn mode(context: &Context, arguments: &ModeArguments) -> Ending {
    let runtime = context.runtime()?;
    let workspace = arguments.workspace.as_ref();
    let policy = PolicyRequest {
        workspace: workspace.map(|path| context.absolute(path)).transpose()?,
        ..PolicyRequest::default()
    };
    let set = |to| runtime.set_mode(&policy, &SetMode { to });
    let view = match &arguments.command {
        None | Some(ModeCommand::Show) => runtime.mode(&policy)?,
        Some(ModeCommand::Permission { permission }) => set(Mode::Permission {
            permission: permission.permission(),
        })?,
        Some(ModeCommand::Plan { folder }) => set(Mode::Plan {
            folder: folder.as_path().into(),
        })?,
        Some(ModeCommand::Leave) => set(Mode::Policy)?,
    };
    context.output.result(&view, render)?;
    Ok(exit::SUCCESS)
}

fn render(view: &ModeView) -> String {
    let permission = view.permission.as_str();
    match &view.mode {
        Mode::Policy => format!("as the policy says: {permission}\n"),
        Mode::Permission { .. } => format!("{permission}, until: cofferdam mode leave\n"),
        Mode::Plan { folder } => {
            format!("a plan is made: only {folder} can be written, until one is approved\n")
        }
    }
}
