//! `policy check`, `policy schema`, `policy import`; `policy explain` lies beside.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::policy::{
    Layer, PolicyDocument, PolicyFormat, import_runner_policy, policy_schema, read_policy,
};
use serde_json::json;

use crate::arguments::policy::PolicyCommand;
use crate::context::Context;
use crate::failure::Ending;
use crate::render::{GOOD, PLACE, paint};

/// Carries out `policy …`.
pub(crate) fn policy(context: &Context, command: PolicyCommand) -> Ending {
    match command {
        PolicyCommand::Explain(arguments) => super::explain::explain(context, &arguments),
        PolicyCommand::Check { file } => check(context, &file),
        PolicyCommand::Schema => {
            let schema = policy_schema();
            let text = serde_json::to_string_pretty(&schema)?;
            context.output.result(&schema, |_| text)?;
            Ok(exit::SUCCESS)
        }
        PolicyCommand::Import { file } => import(context, &file),
    }
}

fn check(context: &Context, file: &Path) -> Ending {
    read(file, Layer::User)?;
    context.output.result(
        &json!({"file": file.to_string_lossy(), "good": true}),
        |_| format!("{} {}", paint(GOOD, "good:"), paint(PLACE, file.display())),
    )?;
    Ok(exit::SUCCESS)
}

fn import(context: &Context, file: &Path) -> Ending {
    let (document, notes) = import_runner_policy(&text(file)?)?;
    let toml = toml::to_string(&document).map_err(|error| {
        Problem::new(
            ErrorCode::Internal,
            format!("the policy cannot be written as TOML: {error}"),
        )
    })?;
    context
        .output
        .result(&json!({"policy": document, "notes": notes}), |_| {
            let mut lines: String = notes.iter().map(|note| format!("# {note}\n")).collect();
            lines.push_str(&toml);
            lines
        })?;
    Ok(exit::SUCCESS)
}

/// Reads a policy file.
pub(crate) fn read(file: &Path, layer: Layer) -> Result<PolicyDocument, Problem> {
    let format = PolicyFormat::of_name(file.as_os_str().as_bytes());
    read_policy(&text(file)?, format, layer, &file.to_string_lossy())
}

fn text(file: &Path) -> Result<String, Problem> {
    std::fs::read_to_string(file).map_err(|error| {
        Problem::new(
            ErrorCode::PolicyUnreadable,
            format!("the policy {} cannot be read: {error}", file.display()),
        )
    })
}
