//! From a request to the plan of one command.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::commands::CommandJudgement;
use crate::error::{ErrorCode, Problem};
use crate::facts::HostFacts;
use crate::limits::ARGUMENT_BYTES;
use crate::operation::{CommandForm, RunCommand};
use crate::policy::EffectivePolicy;
use crate::spec::{CommandSpec, EnclosureSpec, StreamPlan, Variable};

/// What the front door decides about a command.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommandOptions {
    /// The streams.
    pub streams: StreamPlan,
    /// Seconds until the tree is ended where the request names none; `None` is no limit.
    pub default_timeout: Option<f64>,
    /// Most seconds that a request or the default may ask for; `None` is no cap.
    pub timeout_cap: Option<f64>,
}

impl CommandOptions {
    /// Gives what holds on a command line: pipes, no time limit of its own.
    pub const fn command_line(streams: StreamPlan) -> Self {
        Self {
            streams,
            default_timeout: None,
            timeout_cap: None,
        }
    }

    /// Gives what holds over a protocol: null input, 120 s unless said, 3600 s at most.
    pub const fn protocol() -> Self {
        Self {
            streams: StreamPlan::Pipes,
            default_timeout: Some(crate::limits::COMMAND_TIMEOUT_SECONDS as f64),
            timeout_cap: Some(crate::limits::COMMAND_TIMEOUT_CAP_SECONDS as f64),
        }
    }
}

/// A value that was asked for and lowered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Clamp {
    /// The field of the request.
    pub field: String,
    /// What was asked for, in seconds.
    pub requested: f64,
    /// What is in effect, in seconds.
    pub effective: f64,
    /// Who lowered it.
    pub by: String,
}

/// A command and what was lowered in it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCommand {
    /// The plan.
    pub spec: CommandSpec,
    /// What was lowered.
    pub clamps: Vec<Clamp>,
    /// What the rules about commands say, where there are rules and whoever plans asked them.
    pub judgement: Option<CommandJudgement>,
}

/// Plans one command in an enclosure.
///
/// # Errors
///
/// `invalid_timeout`, `cwd_outside`, and `invalid_request` for words and variables that the kernel
/// cannot take.
pub fn plan_command(
    policy: &EffectivePolicy,
    enclosure: &EnclosureSpec,
    facts: &HostFacts,
    request: &RunCommand,
    options: CommandOptions,
) -> Result<PlannedCommand, Problem> {
    let argv = argv(&request.command, facts)?;
    let cwd = directory(request.cwd.as_ref(), enclosure, facts)?;
    let mut environment = vec![Variable {
        name: BytePath::from("PWD"),
        value: cwd.clone(),
    }];
    for variable in &request.env {
        check_variable(variable)?;
        environment.retain(|one| one.name != variable.name);
        environment.push(variable.clone());
    }
    let mut clamps = Vec::new();
    // Where nothing is the default, nothing stays nothing.
    let is_limited = request.timeout.or(options.default_timeout).is_some();
    let cap = options.timeout_cap.filter(|_| is_limited);
    let timeout = plan_timeout(
        "timeout",
        request.timeout,
        options.default_timeout,
        &[
            (cap, "the protocol"),
            (policy.limits.wall.map(|one| one.value.get()), "limits.wall"),
        ],
        &mut clamps,
    )?;
    let idle = plan_timeout(
        "idle_timeout",
        request.idle_timeout,
        None,
        &[(policy.limits.idle.map(|one| one.value.get()), "limits.idle")],
        &mut clamps,
    )?;
    Ok(PlannedCommand {
        spec: CommandSpec {
            argv,
            cwd,
            environment,
            streams: options.streams,
            timeout_ms: timeout.map(milliseconds),
            idle_timeout_ms: idle.map(milliseconds),
            limits: enclosure.limits.clone(),
        },
        clamps,
        judgement: None,
    })
}

fn milliseconds(seconds: f64) -> u64 {
    ((seconds * 1000.0).ceil() as u64).max(1)
}

/// Gives the time limit in effect in seconds, and tells what was lowered.
///
/// # Errors
///
/// `invalid_timeout` for what is zero, negative or no number.
pub fn plan_timeout(
    field: &str,
    requested: Option<f64>,
    default: Option<f64>,
    caps: &[(Option<f64>, &str)],
    clamps: &mut Vec<Clamp>,
) -> Result<Option<f64>, Problem> {
    if let Some(wanted) = requested
        && !(wanted.is_finite() && wanted > 0.0)
    {
        return Err(Problem::new(
            ErrorCode::InvalidTimeout,
            format!("{field} must be a number of seconds above zero, it is {wanted}"),
        )
        .with_field(field)
        .with_hint("leave it out for the default"));
    }
    let lowest = caps
        .iter()
        .filter_map(|(cap, by)| cap.map(|cap| (cap, *by)))
        .min_by(|left, right| left.0.total_cmp(&right.0));
    let wanted = requested.or(default);
    Ok(match (wanted, lowest) {
        (Some(wanted), Some((cap, by))) if wanted > cap => {
            if requested.is_some() {
                clamps.push(Clamp {
                    field: field.to_owned(),
                    requested: wanted,
                    effective: cap,
                    by: by.to_owned(),
                });
            }
            Some(cap)
        }
        (Some(wanted), _) => Some(wanted),
        (None, Some((cap, _))) => Some(cap),
        (None, None) => None,
    })
}

fn bad(field: &str, text: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, text).with_field(field)
}

fn argv(form: &CommandForm, facts: &HostFacts) -> Result<Vec<BytePath>, Problem> {
    let words = match form {
        CommandForm::Argv(words) => words.clone(),
        CommandForm::Shell(text) => vec![
            facts.shell.clone(),
            BytePath::from("-c"),
            BytePath::from(text.as_str()),
        ],
    };
    match words.first() {
        None => return Err(bad("argv", "the command has no words")),
        Some(program) if program.is_empty() => {
            return Err(bad("argv", "the program's name is empty"));
        }
        Some(_) => {}
    }
    for word in &words {
        if word.as_bytes().contains(&0) {
            return Err(bad("argv", "an argument holds a zero byte"));
        }
        if word.as_bytes().len() >= ARGUMENT_BYTES {
            let size = word.as_bytes().len();
            return Err(bad(
                "argv",
                format!(
                    "an argument has {size} bytes, the kernel takes less than {ARGUMENT_BYTES}"
                ),
            )
            .with_hint("pass it by standard input or a file"));
        }
    }
    Ok(words)
}

fn check_variable(variable: &Variable) -> Result<(), Problem> {
    let (name, value) = (variable.name.as_bytes(), variable.value.as_bytes());
    if name.is_empty() || name.contains(&b'=') || name.contains(&0) {
        let name = &variable.name;
        return Err(bad("env", format!("{name:?} is no name of a variable")));
    }
    if value.contains(&0) {
        return Err(bad("env", format!("{} holds a zero byte", variable.name)));
    }
    if name.len() + value.len() + 1 >= ARGUMENT_BYTES {
        return Err(bad(
            "env",
            format!("{} has more bytes than the kernel takes", variable.name),
        ));
    }
    Ok(())
}

/// Gives the directory as the command sees it, within the workspace.
fn directory(
    wanted: Option<&BytePath>,
    enclosure: &EnclosureSpec,
    facts: &HostFacts,
) -> Result<BytePath, Problem> {
    let Some(wanted) = wanted else {
        return Ok(enclosure.workspace.clone());
    };
    let outside = || {
        Problem::new(
            ErrorCode::CwdOutside,
            format!(
                "{wanted} is not within the workspace {}",
                enclosure.workspace
            ),
        )
        .with_field("cwd")
        .with_hint("name a directory of the workspace, or another one with --workspace")
    };
    if wanted.as_bytes().contains(&0) {
        return Err(bad("cwd", "the directory holds a zero byte"));
    }
    let full = normal(&enclosure.workspace.join(wanted.as_bytes())).ok_or_else(outside)?;
    let tops = [
        &enclosure.workspace,
        &enclosure.workspace_source,
        &facts.workspace.root,
    ];
    tops.into_iter()
        .chain(&facts.workspace.spellings)
        .find_map(|top| full.below(top))
        .map(|rest| {
            if rest.is_empty() {
                enclosure.workspace.clone()
            } else {
                enclosure.workspace.join(rest)
            }
        })
        .ok_or_else(outside)
}

/// Takes `.` and `..` out by words; `None` when it would lead above the root.
fn normal(path: &BytePath) -> Option<BytePath> {
    let mut pieces: Vec<&[u8]> = Vec::new();
    for piece in path.as_bytes().split(|byte| *byte == b'/') {
        match piece {
            b"" | b"." => {}
            b".." => {
                pieces.pop()?;
            }
            name => pieces.push(name),
        }
    }
    let mut bytes = vec![b'/'];
    bytes.extend(pieces.join(&b'/'));
    Some(BytePath::from_bytes(bytes))
}
