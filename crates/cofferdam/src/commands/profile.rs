//! `profile list`, `profile show`, `profile check`.

use std::fmt::Write as _;
use std::path::Path;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::profile::read_profile;
use cofferdam_runtime::{ProfileEntry, ProfileOrigin, Profiles};
use serde_json::{Value, json};

use crate::arguments::profile::ProfileCommand;
use crate::context::Context;
use crate::failure::Ending;
use crate::render::table::Table;
use crate::render::{BAD, CAUTION, GOOD, PLACE, paint};

/// Carries out `profile …`.
pub(crate) fn profile(context: &Context, command: &ProfileCommand) -> Ending {
    match command {
        ProfileCommand::List => list(context),
        ProfileCommand::Show { name } => show(context, name),
        ProfileCommand::Check { file } => check(context, file),
    }
}

fn origin(entry: &ProfileEntry) -> String {
    match &entry.origin {
        ProfileOrigin::Shipped => "shipped".to_owned(),
        ProfileOrigin::User(path) => path.display().to_string(),
    }
}

fn list(context: &Context) -> Ending {
    let profiles = Profiles::read(&context.surroundings()?);
    let value: Vec<Value> = profiles
        .entries()
        .iter()
        .map(|entry| match &entry.profile {
            Ok(profile) => json!({
                "name": entry.name,
                "title": profile.title,
                "programs": profile.programs,
                "origin": origin(entry),
                "untried": profile.untried,
            }),
            Err(problem) => json!({
                "name": entry.name,
                "origin": origin(entry),
                "problem": problem,
            }),
        })
        .collect();
    context.output.result(&json!({"profiles": value}), |_| {
        let mut table = Table::new(&["PROFILE", "AGENT", "PROGRAMS", "FROM"]);
        for entry in profiles.entries() {
            let (title, programs) = match &entry.profile {
                Ok(profile) if profile.untried.is_empty() => {
                    (profile.title.clone(), profile.programs.join(", "))
                }
                Ok(profile) => (
                    format!("{} {}", profile.title, paint(CAUTION, "(untried)")),
                    profile.programs.join(", "),
                ),
                Err(problem) => (paint(BAD, "cannot be read"), problem.message.clone()),
            };
            table.row([entry.name.clone(), title, programs, origin(entry)]);
        }
        table.render()
    })?;
    Ok(exit::SUCCESS)
}

fn show(context: &Context, name: &str) -> Ending {
    let profiles = Profiles::read(&context.surroundings()?);
    let profile = profiles.find(name)?.profile.clone()?;
    let text = toml::to_string(&profile).map_err(|error| {
        Problem::new(
            ErrorCode::Internal,
            format!("the profile cannot be written as TOML: {error}"),
        )
    })?;
    context.output.result(&profile, |_| text)?;
    Ok(exit::SUCCESS)
}

fn check(context: &Context, file: &Path) -> Ending {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Problem::new(
            ErrorCode::PolicyUnreadable,
            format!("the profile {} cannot be read: {error}", file.display()),
        )
    })?;
    let profile = read_profile(&text, &file.display().to_string())?;
    let named = file.file_stem().and_then(|name| name.to_str());
    if named != Some(profile.name.as_str()) {
        return Err(Problem::new(
            ErrorCode::PolicyInvalidValue,
            format!("name is {:?}, and the file is another one's", profile.name),
        )
        .with_field("name")
        .with_hint(format!("call the file {}.toml", profile.name))
        .into());
    }
    context.output.result(
        &json!({"file": file.to_string_lossy(), "good": true, "untried": profile.untried}),
        |_| {
            let mut text = format!("{} {}", paint(GOOD, "good:"), paint(PLACE, file.display()));
            for one in &profile.untried {
                let _ = write!(text, "\n{} {one}", paint(CAUTION, "untried:"));
            }
            text
        },
    )?;
    Ok(exit::SUCCESS)
}
