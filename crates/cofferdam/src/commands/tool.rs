//! `tool list`, `tool show`, `tool check`.

use std::fmt::Write as _;
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::{ToolState, ToolView};
use cofferdam_core::tool::read_tool;
use cofferdam_runtime::{PolicyRequest, Tools};
use cofferdam_server::OperationTable;
use serde_json::json;

use crate::arguments::tool::ToolCommand;
use crate::context::Context;
use crate::failure::Ending;
use crate::render::table::Table;
use crate::render::{BAD, GOOD, PLACE, paint};

/// Carries out `tool …`.
pub(crate) fn tool(context: &Context, command: &ToolCommand) -> Ending {
    match command {
        ToolCommand::List => list(context),
        ToolCommand::Show { name } => show(context, name),
        ToolCommand::Check { file } => check(context, file),
    }
}

fn is_operation(name: &str) -> bool {
    OperationTable::new().find(name).is_some()
}

/// Reads the tools; outside of a workspace there are no proposals.
fn tools(context: &Context) -> Result<Tools, Problem> {
    let workspace = context.runtime()?.workspace(&PolicyRequest::default()).ok();
    let surroundings = context.surroundings()?;
    let workspace = workspace.as_ref().map(BytePath::as_path);
    Ok(Tools::read(&surroundings, workspace, is_operation))
}

fn list(context: &Context) -> Ending {
    let list = tools(context)?.views();
    context.output.result(&list, |list| {
        let mut table = Table::new(&["TOOL", "FROM", "STATE", "WHAT IT DOES"]);
        for one in &list.tools {
            let state = match one.state {
                ToolState::Runnable => one.state.as_str().to_owned(),
                ToolState::Proposed | ToolState::Broken => paint(BAD, one.state.as_str()),
            };
            let said = match &one.problem {
                Some(problem) if one.state == ToolState::Broken => &problem.message,
                _ => &one.description,
            };
            table.row([
                one.name.clone(),
                one.origin.as_str().to_owned(),
                state,
                said.clone(),
            ]);
        }
        let mut text = table.render();
        let proposed = |one: &&ToolView| one.state == ToolState::Proposed;
        for one in list.tools.iter().filter(proposed) {
            let hint = one
                .problem
                .as_ref()
                .and_then(|problem| problem.hint.as_deref());
            let _ = write!(text, "\n{}: {}", one.name, hint.unwrap_or_default());
        }
        text
    })?;
    Ok(exit::SUCCESS)
}

fn show(context: &Context, name: &str) -> Ending {
    let tools = tools(context)?;
    let tool = match tools.entry(name) {
        Some(entry) => entry.tool.clone()?,
        None => tools.find(name)?.clone(),
    };
    let text = toml::to_string(&tool).map_err(|error| {
        Problem::new(
            ErrorCode::Internal,
            format!("the tool cannot be written as TOML: {error}"),
        )
    })?;
    context.output.result(&tool, |_| text)?;
    Ok(exit::SUCCESS)
}

fn check(context: &Context, file: &Path) -> Ending {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Problem::new(
            ErrorCode::PolicyUnreadable,
            format!("the tool {} cannot be read: {error}", file.display()),
        )
    })?;
    let tool = read_tool(&text, &file.display().to_string())?;
    let named = file.file_stem().and_then(|name| name.to_str());
    let wrong = if is_operation(&tool.name) {
        Some("is the name of an operation")
    } else if named == Some(tool.name.as_str()) {
        None
    } else {
        Some("is not the name of its file")
    };
    if let Some(wrong) = wrong {
        let message = format!("name: {:?} {wrong}", tool.name);
        let problem = Problem::new(ErrorCode::PolicyInvalidValue, message).with_field("name");
        return Err(problem.into());
    }
    context.output.result(
        &json!({"file": file.to_string_lossy(), "good": true}),
        |_| format!("{} {}", paint(GOOD, "good:"), paint(PLACE, file.display())),
    )?;
    Ok(exit::SUCCESS)
}
