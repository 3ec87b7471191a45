//! Taking over a policy that was written for the JVM runner.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::check::check_document;
use super::document::{
    EnvironmentDocument, Inherit, POLICY_SCHEMA, PolicyDocument, ProviderChoice,
};
use super::effective::Layer;
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::spec::Network;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RunnerPolicy {
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    mode: Option<RunnerMode>,
    #[serde(default)]
    net: Option<RunnerNet>,
    #[serde(default)]
    inherit_env: Option<bool>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    working_directory: Option<String>,
    #[serde(default)]
    read_only_paths: BTreeSet<String>,
    #[serde(default)]
    writable_paths: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum RunnerMode {
    Direct,
    Sandbox,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum RunnerNet {
    Enable,
    Disable,
}

/// Gives the same wishes as a document, and in words what could not be taken over as it was.
///
/// The runner's own defaults are kept where it had them: provider `direct`, the whole environment.
/// What it read and never enforced (`mode`) is held against `provider` here.
///
/// # Errors
///
/// `policy_unreadable` for what is not such a file, `policy_contradiction` for `SANDBOX` with
/// `direct`, `policy_invalid_value` for an unknown provider, and what [`check_document`] says.
pub fn import_runner_policy(text: &str) -> Result<(PolicyDocument, Vec<String>), Problem> {
    let runner: RunnerPolicy = serde_json::from_str(text).map_err(|error| {
        Problem::new(
            ErrorCode::PolicyUnreadable,
            format!("this is no policy of the JVM runner: {error}"),
        )
    })?;
    let mut notes = Vec::new();
    let provider = match (runner.provider.as_deref(), runner.mode) {
        (Some("direct") | None, Some(RunnerMode::Sandbox)) => {
            return Err(Problem::new(
                ErrorCode::PolicyContradiction,
                "mode SANDBOX with provider direct: the runner ran such commands without walls",
            )
            .with_field("provider")
            .with_hint("set provider to bwrap, or mode to DIRECT"));
        }
        (Some(name @ ("bwrap" | "bubblewrap")), Some(RunnerMode::Direct)) => {
            return Err(Problem::new(
                ErrorCode::PolicyContradiction,
                format!("mode DIRECT with provider {name}"),
            )
            .with_field("mode"));
        }
        (Some("direct") | None, _) => ProviderChoice::Direct,
        (Some("bwrap" | "bubblewrap"), _) => ProviderChoice::Bwrap,
        (Some(other), _) => {
            return Err(Problem::new(
                ErrorCode::PolicyInvalidValue,
                format!("unknown provider {other:?}, which the runner took for direct"),
            )
            .with_field("provider")
            .with_hint("name direct or bwrap"));
        }
    };
    let network = match (provider, runner.net) {
        (ProviderChoice::Direct, Some(RunnerNet::Disable)) => {
            return Err(Problem::new(
                ErrorCode::PolicyContradiction,
                "net DISABLE with provider direct: the runner did not enforce it",
            )
            .with_field("net")
            .with_hint("set provider to bwrap"));
        }
        (_, Some(RunnerNet::Disable)) => Network::None,
        (_, Some(RunnerNet::Enable) | None) => Network::Full,
    };
    if provider == ProviderChoice::Bwrap {
        notes.push(
            "the runner showed the whole host read-only; here only system directories, toolchains, \
             the workspace and the named paths are shown"
                .to_owned(),
        );
    }
    let inherit = if runner.inherit_env.unwrap_or(true) {
        notes.push(
            "inheritEnv: variables whose name looks like a secret are not inherited; name them in \
             env.allow"
                .to_owned(),
        );
        Inherit::All
    } else {
        Inherit::None
    };
    if let Some(directory) = &runner.working_directory {
        notes.push(format!(
            "workingDirectory {directory:?} is no part of a policy: use --workspace and --cwd"
        ));
    }
    let paths = |set: BTreeSet<String>| {
        let list: Vec<BytePath> = set.into_iter().map(BytePath::from).collect();
        (!list.is_empty()).then_some(list)
    };
    let (read, write) = if provider == ProviderChoice::Direct {
        if !runner.read_only_paths.is_empty() || !runner.writable_paths.is_empty() {
            notes.push("direct has no walls: the paths are left out".to_owned());
        }
        (None, None)
    } else {
        (paths(runner.read_only_paths), paths(runner.writable_paths))
    };
    let document = PolicyDocument {
        schema: Some(POLICY_SCHEMA),
        provider: Some(provider),
        network: Some(network),
        read,
        write,
        env: Some(EnvironmentDocument {
            inherit: Some(inherit),
            set: (!runner.env.is_empty()).then_some(runner.env),
            ..EnvironmentDocument::default()
        }),
        ..PolicyDocument::default()
    };
    check_document(&document, Layer::User)?;
    Ok((document, notes))
}
