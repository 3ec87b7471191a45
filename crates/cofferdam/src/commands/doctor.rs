//! `doctor`: what this machine can enforce, and the changes that let it enforce more.

use std::fmt::Write as _;

use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::facts::HostFacts;
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::{Layer, PolicyDocument};
use cofferdam_core::spec::ProviderKind;
use serde_json::json;

use super::{policy, remedy};
use crate::arguments::{AcceptedProvider, DoctorArguments};
use crate::context::Context;
use crate::failure::{Ending, Failure};
use crate::launch;
use crate::render::doctor::doctor as render;
use crate::render::{GOOD, PLACE, STRONG, paint};
use remedy::{Change, Tools};

/// Writes standard input to a file that appears whole or not at all.
const WRITE: &str = "\
set -e
umask 022
mkdir -p \"$(dirname \"$1\")\"
cat >\"$1.cofferdam-new\"
mv \"$1.cofferdam-new\" \"$1\"
";

/// Carries out `doctor`.
pub(crate) fn doctor(context: &Context, arguments: &DoctorArguments) -> Ending {
    if let Some(provider) = arguments.accept {
        return accept(context, provider);
    }
    let facts = launch::machine(context)?;
    if arguments.fix {
        return fix(context, &facts, arguments.yes);
    }
    let good = remedy::bwrap_problem(&facts).is_none();
    let changes = remedy::changes(&facts, Tools::find());
    let said = json!({
        "default_works": good,
        "kernel": facts.kernel,
        "landlock_abi": facts.landlock_abi,
        "overlay": facts.overlay,
        "providers": facts.providers,
        "changes": changes.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    context.output.result(&said, |_| {
        let mut text = render(&facts);
        if !changes.is_empty() {
            let _ = write!(
                text,
                "\nnext: {}\n",
                paint(PLACE, "sudo cofferdam doctor --fix")
            );
        }
        text
    })?;
    Ok(if good {
        exit::SUCCESS
    } else {
        exit::OWN_FAILURE
    })
}

fn fix(context: &Context, facts: &HostFacts, yes: bool) -> Ending {
    let changes = remedy::changes(facts, Tools::find());
    if changes.is_empty() {
        let Some(problem) = remedy::bwrap_problem(facts) else {
            context.output.result(&json!({"changed": []}), |_| {
                format!(
                    "{}: the default provider works, nothing to change",
                    paint(GOOD, "good")
                )
            })?;
            return Ok(exit::SUCCESS);
        };
        return Err(problem.clone().into());
    }
    for change in &changes {
        context.output.note(&change.to_string());
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Problem::new(ErrorCode::Denied, "these changes need root")
            .with_hint("sudo cofferdam doctor --fix")
            .into());
    }
    if !yes && !answered_yes(context) {
        return Err(
            Problem::new(ErrorCode::Denied, "nothing was changed: nobody said yes")
                .with_hint("answer y, or give --yes")
                .into(),
        );
    }
    for change in &changes {
        make(context, change)?;
    }
    let facts = launch::machine(context)?;
    if let Some(problem) = remedy::bwrap_problem(&facts) {
        return Err(problem.clone().into());
    }
    let done: Vec<_> = changes.iter().map(ToString::to_string).collect();
    context.output.result(&json!({"changed": done}), |_| {
        format!("{}: the default provider works now", paint(GOOD, "good"))
    })?;
    Ok(exit::SUCCESS)
}

fn answered_yes(context: &Context) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    context
        .output
        .note(&paint(STRONG, "make these changes? [y/N]"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).is_ok()
        && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn make(context: &Context, change: &Change) -> Result<(), Failure> {
    let outcome = match change {
        Change::Run(words) => launch::without_walls(
            context,
            words.iter().map(|word| BytePath::from(*word)).collect(),
            None,
        ),
        Change::Write { path, content } => launch::without_walls(
            context,
            write(path.into()),
            Some(content.clone().into_bytes()),
        ),
    }?;
    if outcome.status == Status::Completed {
        return Ok(());
    }
    let problem = Problem::new(ErrorCode::Io, format!("this change failed: {change}"));
    let said = outcome.output.trim();
    Err(if said.is_empty() {
        problem
    } else {
        problem.with_hint(said)
    }
    .into())
}

fn write(path: PathBuf) -> Vec<BytePath> {
    ["sh", "-c", WRITE, "sh"]
        .into_iter()
        .map(BytePath::from)
        .chain([path.into()])
        .collect()
}

/// Notes in the user's policy that `auto` may fall back to a provider.
fn accept(context: &Context, provider: AcceptedProvider) -> Ending {
    let AcceptedProvider::Landlock = provider;
    let kind = ProviderKind::Landlock;
    let path = context
        .config_dir()
        .map(|directory| directory.join("policy.toml"))
        .ok_or_else(|| {
            Problem::new(
                ErrorCode::PolicyUnreadable,
                "there is no home directory for a policy file",
            )
            .with_hint("set HOME or XDG_CONFIG_HOME")
        })?;
    let mut document = if path.exists() {
        policy::read(&path, Layer::User)?
    } else {
        PolicyDocument {
            schema: Some(cofferdam_core::policy::POLICY_SCHEMA),
            ..PolicyDocument::default()
        }
    };
    let fallback = document.fallback.get_or_insert_default();
    if fallback.contains(&kind) {
        context.output.result(
            &json!({"accepted": kind, "file": path, "changed": false}),
            |_| {
                format!(
                    "{kind} is accepted already in {}",
                    paint(PLACE, path.display())
                )
            },
        )?;
        return Ok(exit::SUCCESS);
    }
    fallback.push(kind);
    let line = format!("fallback = {}", serde_json::to_string(fallback)?);
    let text = with_line(&std::fs::read_to_string(&path).unwrap_or_default(), &line);
    context.output.note(&format!("{}: {line}", path.display()));
    let outcome = launch::without_walls(context, write(path.clone()), Some(text.into_bytes()))?;
    if outcome.status != Status::Completed {
        return Err(Problem::new(
            ErrorCode::Io,
            format!("{} cannot be written", path.display()),
        )
        .with_hint(outcome.output.trim())
        .into());
    }
    context.output.result(
        &json!({"accepted": kind, "file": path, "changed": true}),
        |_| {
            format!(
                "{} {kind} takes the place of bwrap where that does not work; each time it is said",
                paint(GOOD, "accepted:")
            )
        },
    )?;
    Ok(exit::SUCCESS)
}

/// Puts a line for `fallback` among the top-level keys, with everything else as it was written.
fn with_line(text: &str, line: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let is_fallback = |line: &&str| {
        line.trim_start()
            .strip_prefix("fallback")
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    if let Some(at) = lines.iter().position(is_fallback) {
        lines[at] = line;
    } else if let Some(at) = lines
        .iter()
        .position(|line| line.trim_start().starts_with("schema"))
    {
        lines.insert(at + 1, line);
    } else {
        lines.splice(0..0, ["schema = 1", line]);
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_file_stays_as_it_was_written() {
        let line = r#"fallback = ["landlock"]"#;
        assert_eq!(
            with_line("", line),
            "schema = 1\nfallback = [\"landlock\"]\n"
        );
        assert_eq!(
            with_line("# mine\nschema = 1\n\n[limits]\nwall = 9\n", line),
            "# mine\nschema = 1\nfallback = [\"landlock\"]\n\n[limits]\nwall = 9\n"
        );
        assert_eq!(
            with_line("schema = 1\nfallback = []\n", line),
            "schema = 1\nfallback = [\"landlock\"]\n"
        );
    }
}
