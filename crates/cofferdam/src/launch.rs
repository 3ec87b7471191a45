//! From flags to what the runtime is asked for.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::facts::HostFacts;
use cofferdam_core::operation::{CommandForm, RunCommand};
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_core::policy::{
    EffectivePolicy, NetworkRule, PolicyDocument, ProviderChoice, RequestAccess, SecretDocument,
};
use cofferdam_core::spec::{Network, Variable};
use cofferdam_exec::host::{GatherRequest, gather, resolve_workspace};
use cofferdam_exec::{CommandIo, Control};
use cofferdam_runtime::{FrontDoor, PolicyRequest, RunRequest};

use crate::arguments::policy::{NetworkChoice, WallArguments};
use crate::arguments::run::TimeArguments;
use crate::context::Context;

/// Gives what the flags say about workspace and walls.
pub(crate) fn policy(context: &Context, walls: &WallArguments) -> Result<PolicyRequest, Problem> {
    let absolute = |path: &PathBuf| context.absolute(path);
    Ok(PolicyRequest {
        workspace: walls.workspace.as_ref().map(absolute).transpose()?,
        policy_file: walls.policy.as_ref().map(absolute).transpose()?,
        owner: document(context, walls)?,
        request: None,
        permit: None,
    })
}

/// Gives what the flags say as the command line's layer of the policy.
fn document(context: &Context, walls: &WallArguments) -> Result<PolicyDocument, Problem> {
    let paths = |paths: &[PathBuf]| -> Result<Option<Vec<BytePath>>, Problem> {
        if paths.is_empty() {
            return Ok(None);
        }
        let absolute = |path: &PathBuf| context.absolute(path).map(BytePath::from);
        paths
            .iter()
            .map(absolute)
            .collect::<Result<_, _>>()
            .map(Some)
    };
    Ok(PolicyDocument {
        provider: walls
            .provider
            .map(crate::arguments::policy::ProviderChoice::choice),
        network: network(walls),
        network_allow: list(&allowed(walls)),
        network_rules: rules(walls),
        secrets: secrets(walls)?,
        network_deny: list(&walls.deny),
        profile: walls.profile.clone(),
        permission: walls
            .permission
            .map(crate::arguments::policy::PermissionChoice::permission),
        read: paths(&walls.ro)?,
        write: paths(&walls.rw)?,
        reach: (!walls.reach.is_empty()).then(|| walls.reach.clone()),
        publish: (!walls.publish.is_empty()).then(|| walls.publish.clone()),
        ..PolicyDocument::default()
    })
}

/// Gives the network level: hosts and questions are of a restricted one.
fn network(walls: &WallArguments) -> Option<Network> {
    let is_meant = walls.ask || !allowed(walls).is_empty();
    walls
        .net
        .map(NetworkChoice::level)
        .or_else(|| is_meant.then_some(Network::Restricted))
}

/// Gives the hosts that may be reached: for whatever, for reading, or with a secret.
fn allowed(walls: &WallArguments) -> Vec<String> {
    let told = walls.broker.iter().filter_map(|text| text.split_once('='));
    walls
        .allow
        .iter()
        .chain(&walls.allow_read)
        .cloned()
        .chain(told.map(|(_, host)| host.to_owned()))
        .collect()
}

/// Gives one rule over requests for all hosts that are for reading.
fn rules(walls: &WallArguments) -> Option<Vec<NetworkRule>> {
    let rule = NetworkRule {
        hosts: walls.allow_read.clone(),
        access: Some(RequestAccess::Read),
        ..NetworkRule::default()
    };
    (!rule.hosts.is_empty()).then(|| vec![rule])
}

/// Gives the secrets of `--broker`, each under the name of its variable.
fn secrets(walls: &WallArguments) -> Result<Option<BTreeMap<String, SecretDocument>>, Problem> {
    let mut secrets: BTreeMap<String, SecretDocument> = BTreeMap::new();
    for text in &walls.broker {
        let Some((name, host)) = text.split_once('=') else {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("--broker {text:?} names no host"),
            )
            .with_field("broker")
            .with_hint("--broker NAME=HOST; what else a secret can be stands in a policy file"));
        };
        let secret = secrets.entry(name.to_owned()).or_default();
        secret.env = Some(name.to_owned());
        secret.hosts.push(host.to_owned());
    }
    Ok((!secrets.is_empty()).then_some(secrets))
}

fn list(entries: &[String]) -> Option<Vec<String>> {
    (!entries.is_empty()).then(|| entries.to_vec())
}

/// Gives a command with its directory, limits and variables.
pub(crate) fn command(
    context: &Context,
    walls: &WallArguments,
    limits: TimeArguments,
    words: Vec<BytePath>,
) -> Result<RunCommand, Problem> {
    Ok(RunCommand {
        cwd: cwd(context, walls)?,
        timeout: limits.timeout,
        idle_timeout: limits.idle_timeout,
        env: variables(context, walls)?,
        ..RunCommand::new(CommandForm::Argv(words))
    })
}

/// Gives the directory of `--cwd`, absolute.
pub(crate) fn cwd(context: &Context, walls: &WallArguments) -> Result<Option<BytePath>, Problem> {
    let absolute = |path: &PathBuf| context.absolute(path).map(BytePath::from);
    walls.cwd.as_ref().map(absolute).transpose()
}

/// Gives the same with the variables of `--env` in it, for tasks: every step of one sees them.
pub(crate) fn task_policy(
    context: &Context,
    walls: &WallArguments,
) -> Result<PolicyRequest, Problem> {
    let mut policy = policy(context, walls)?;
    let mut set = BTreeMap::new();
    for variable in variables(context, walls)? {
        let text = |bytes: &BytePath| String::from_utf8(bytes.as_bytes().to_vec());
        let (Ok(name), Ok(value)) = (text(&variable.name), text(&variable.value)) else {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("the variable {} of a task is not UTF-8", variable.name),
            )
            .with_field("env"));
        };
        set.insert(name, value);
    }
    if !set.is_empty() {
        policy.owner.env.get_or_insert_default().set = Some(set);
    }
    Ok(policy)
}

/// Gives the variables of `--env`: with a value as it is, without one from the caller's environment.
fn variables(context: &Context, walls: &WallArguments) -> Result<Vec<Variable>, Problem> {
    let mut variables = Vec::new();
    for entry in &walls.env {
        let bytes = entry.as_bytes();
        let name = bytes.split(|byte| *byte == b'=').next().unwrap_or_default();
        let wrong = if name.is_empty() {
            Some("has no name")
        } else if name
            .iter()
            .any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control())
        {
            Some("has a name with white space in it")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("--env {:?} {wrong}", entry.to_string_lossy()),
            )
            .with_field("env")
            .with_hint("--env NAME=VALUE sets a variable, --env NAME passes yours on"));
        }
        if let Some(cut) = bytes.iter().position(|byte| *byte == b'=') {
            variables.push(Variable {
                name: BytePath::from_bytes(&bytes[..cut]),
                value: BytePath::from_bytes(&bytes[cut + 1..]),
            });
        } else if let Some((_, value)) = context.environment.iter().find(|(name, _)| name == entry)
        {
            variables.push(Variable {
                name: BytePath::from(entry.as_os_str()),
                value: BytePath::from(value.as_os_str()),
            });
        } else {
            let name = entry.to_string_lossy();
            context
                .output
                .note(&format!("--env {name}: there is no such variable here"));
        }
    }
    Ok(variables)
}

/// Runs a program without walls, for a change that the owner asked for; it is journalled like any.
pub(crate) fn without_walls(
    context: &Context,
    words: Vec<BytePath>,
    input: Option<Vec<u8>>,
) -> Result<CommandOutcome, Problem> {
    let place = tempfile::tempdir().map_err(|error| {
        Problem::new(
            ErrorCode::Io,
            format!("no temporary directory can be made: {error}"),
        )
    })?;
    let runtime = context.runtime()?;
    Ok(runtime.run_command(RunRequest {
        policy: PolicyRequest {
            workspace: Some(place.path().to_owned()),
            owner: PolicyDocument {
                provider: Some(ProviderChoice::Direct),
                network: Some(Network::Full),
                ..PolicyDocument::default()
            },
            ..PolicyRequest::default()
        },
        command: RunCommand {
            cwd: Some(place.path().into()),
            ..RunCommand::new(CommandForm::Argv(words))
        },
        front_door: FrontDoor::CommandLine,
        io: CommandIo::Capture { input },
        control: Control::new(),
    }))
}

/// Looks at this machine, from a directory that is of no account.
pub(crate) fn machine(context: &Context) -> Result<HostFacts, Problem> {
    let data_dir = context.data_dir()?;
    let place = tempfile::tempdir().map_err(|error| {
        Problem::new(
            ErrorCode::Io,
            format!("no temporary directory can be made: {error}"),
        )
    })?;
    let surroundings = context.surroundings()?;
    let workspace = resolve_workspace(&surroundings, Some(place.path()), Some(&data_dir))?;
    Ok(gather(&GatherRequest {
        surroundings: &surroundings,
        workspace: &workspace,
        data_dir: &data_dir,
        policy: &EffectivePolicy::built_in(),
        tree: None,
    }))
}
