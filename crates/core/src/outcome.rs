//! How a command ended: status words, results, isolation, denials and hints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::id::CommandId;
use crate::ports::PublishedPort;
use crate::spec::{Gap, Mechanism, Network, ProviderKind};

/// The status of anything that runs: one list everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Exit 0.
    Completed,
    /// Another exit code, or a signal.
    Failed,
    /// The time limit was reached.
    Timeout,
    /// Somebody cancelled it.
    Cancelled,
    /// A policy or an approval denied it.
    Denied,
    /// It never ran: provider or request.
    Error,
    /// It runs.
    Running,
    /// The plane died meanwhile.
    Interrupted,
}

impl Status {
    /// Gives the status of what was refused before it started: somebody's no, or a failure.
    pub const fn of_refusal(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Denied
            | ErrorCode::ReadonlyDenied
            | ErrorCode::ApprovalUnavailable
            | ErrorCode::ApprovalRejected
            | ErrorCode::ApprovalExpired
            | ErrorCode::GrantRefused => Self::Denied,
            ErrorCode::Cancelled => Self::Cancelled,
            _ => Self::Error,
        }
    }

    /// Every status word.
    pub const ALL: &[Self] = &[
        Self::Completed,
        Self::Failed,
        Self::Timeout,
        Self::Cancelled,
        Self::Denied,
        Self::Error,
        Self::Running,
        Self::Interrupted,
    ];

    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Denied => "denied",
            Self::Error => "error",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// How text was made from bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamEncoding {
    /// The bytes are valid UTF-8.
    #[default]
    Utf8,
    /// Bytes that are not UTF-8 were replaced; the whole is readable by offset.
    Utf8Replaced,
}

/// A provider and a network level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IsolationLevel {
    /// Who puts the walls up; `None` is `auto`, which only a request can be.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub provider: Option<ProviderKind>,
    /// The network level.
    pub network: Network,
}

/// What was asked for, what was in effect, and what enforced it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Isolation {
    /// As asked for.
    pub requested: IsolationLevel,
    /// As it was.
    pub effective: IsolationLevel,
    /// By what means.
    pub enforced_by: Vec<Mechanism>,
    /// What was not enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// The uid as which the command acted.
    pub uid: u32,
}

/// Where a denial was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DenialSource {
    /// The system-call filter.
    Seccomp,
    /// A mount that is absent or read-only, or an undone change.
    Mount,
    /// The egress proxy.
    Proxy,
    /// The file door.
    FileDoor,
    /// A rule of the policy.
    Policy,
}

/// Evidence that something was denied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Denial {
    /// Who saw it.
    pub source: DenialSource,
    /// Which rule it is.
    pub rule: String,
    /// On what: a path, a host, a program.
    pub subject: String,
    /// What to do instead, in one plain sentence.
    pub instead: String,
    /// Whether it can be asked for.
    pub askable: bool,
    /// Whether it was seen so often that it is certain not to change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub will_not_change: bool,
}

/// A guess about why something failed; it never changes a status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hint {
    /// What may be the reason.
    pub text: String,
    /// The line of policy or the flag that would allow it, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<String>,
}

/// A process that was still there when the command had ended, and was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Leftover {
    /// Its pid as the supervisor saw it.
    pub pid: i32,
    /// Its name.
    pub name: String,
}

/// By what a tree was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// It ended by itself and left nothing.
    Itself,
    /// The supervisor's sweep.
    Sweep,
    /// The control group.
    Cgroup,
    /// The end of the process namespace.
    Namespace,
}

/// Where the whole output of a stream can be read, and how much there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputReference {
    /// Bytes of the whole stream.
    pub bytes: u64,
    /// Digest under which the content store holds it, when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Bytes that were dropped because a limit was reached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a command used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Processor time in user mode, in milliseconds.
    pub user_ms: u64,
    /// Processor time in the kernel, in milliseconds.
    pub system_ms: u64,
    /// Largest resident set of one process, in KiB.
    pub max_resident_kib: u64,
}

/// Something that can be bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitedResource {
    /// Memory, in bytes.
    Memory,
    /// Processes and threads.
    Tasks,
    /// Processor time, in seconds.
    Cpu,
    /// Open files.
    OpenFiles,
    /// One written file, in bytes.
    FileSize,
    /// One output stream that is kept, in bytes.
    Output,
}

/// What holds a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitHolder {
    /// A control group of version 2: for everything in the enclosure together.
    CgroupV2,
    /// A control group of version 1: for everything in the enclosure together.
    CgroupV1,
    /// The kernel's limits of one process: for each process by itself; of tasks, for all of the user.
    Rlimit,
    /// The engine of the container: for everything in it together.
    Engine,
    /// The plane itself.
    Plane,
}

/// A bound that was asked for, and whether and by what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitInEffect {
    /// What is bounded.
    pub limit: LimitedResource,
    /// As asked for, in the resource's unit.
    pub requested: u64,
    /// As it holds; absent where nothing on this host holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<u64>,
    /// What holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<LimitHolder>,
}

/// A bound that was met while a command ran, as the kernel counted it or the plane held it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitReason {
    /// Memory ran out and a process was ended.
    Oom,
    /// A process or thread was refused.
    PidsLimit,
    /// The command itself was ended because it had used up its processor time.
    CpuLimit,
    /// Output came after as much as is kept; it was counted and dropped.
    OutputLimit,
    /// It ran for as long as it might.
    TimeLimit,
    /// It wrote nothing for as long as it might.
    IdleLimit,
}

impl LimitReason {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oom => "oom",
            Self::PidsLimit => "pids_limit",
            Self::CpuLimit => "cpu_limit",
            Self::OutputLimit => "output_limit",
            Self::TimeLimit => "time_limit",
            Self::IdleLimit => "idle_limit",
        }
    }
}

/// The result of `run_command`, with exactly these fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandOutcome {
    /// The id of the command.
    pub command_id: CommandId,
    /// True only when the status is `completed`.
    pub success: bool,
    /// How it ended.
    pub status: Status,
    /// Both streams in order of arrival, the tail of them.
    pub output: String,
    /// Standard output, the tail of it.
    pub stdout: String,
    /// Standard error, the tail of it.
    pub stderr: String,
    /// How the text was made.
    pub stdout_encoding: StreamEncoding,
    /// How the text was made.
    pub stderr_encoding: StreamEncoding,
    /// The exit code, only ever from `wait`.
    pub return_code: Option<i32>,
    /// The signal that ended the leader, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Whether the text above is only the tail.
    pub truncated: bool,
    /// Wall time from request to end, in milliseconds.
    pub elapsed_ms: u64,
    /// The walls.
    pub isolation: Isolation,
    /// Ports of the inside that were opened outside, as long as the enclosure stood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedPort>,
    /// What was denied.
    pub denials: Vec<Denial>,
    /// Guesses.
    pub hints: Vec<Hint>,
    /// The whole of standard output.
    pub stdout_full: OutputReference,
    /// The whole of standard error.
    pub stderr_full: OutputReference,
    /// What was still running at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<Leftover>,
    /// What it left running in its session, where that lives on until the session ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Leftover>,
    /// Those of `kept` that may still write to the command's streams: what they write from now on
    /// is in the session's log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipes_held_by: Vec<i32>,
    /// By what the tree ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndedBy>,
    /// What it used.
    #[serde(default)]
    pub usage: Usage,
    /// The time limit in effect, in milliseconds, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether the limit asked for was clamped to the cap.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timeout_clamped: bool,
    /// Bounds that were asked for, and by what they hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitInEffect>,
    /// Bounds that were met while it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<LimitReason>,
    /// Files below the workspace that the plane put back, see `denials`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<BytePath>,
    /// Why it never ran, or was ended by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

impl CommandOutcome {
    /// Tells of a command that never ran; the status follows from the problem.
    pub fn never_ran(
        command_id: CommandId,
        isolation: Isolation,
        problem: Problem,
        elapsed_ms: u64,
    ) -> Self {
        let nothing = || OutputReference {
            bytes: 0,
            digest: None,
            dropped: 0,
        };
        Self {
            command_id,
            success: false,
            status: Status::of_refusal(problem.code),
            output: String::new(),
            stdout: String::new(),
            stderr: String::new(),
            stdout_encoding: StreamEncoding::Utf8,
            stderr_encoding: StreamEncoding::Utf8,
            return_code: None,
            signal: None,
            truncated: false,
            elapsed_ms,
            isolation,
            published: Vec::new(),
            denials: Vec::new(),
            hints: Vec::new(),
            stdout_full: nothing(),
            stderr_full: nothing(),
            leftovers: Vec::new(),
            kept: Vec::new(),
            pipes_held_by: Vec::new(),
            ended_by: None,
            usage: Usage::default(),
            timeout_ms: None,
            timeout_clamped: false,
            limits: Vec::new(),
            reasons: Vec::new(),
            undone: Vec::new(),
            error: Some(problem),
        }
    }

    /// Gives the exit code that the command line ends with.
    pub fn exit_code(&self) -> u8 {
        use crate::exit;
        match self.status {
            Status::Completed => exit::SUCCESS,
            Status::Timeout => exit::TIMEOUT,
            Status::Denied => exit::DENIED,
            Status::Error | Status::Running | Status::Interrupted => {
                match self.error.as_ref().map(|problem| problem.code) {
                    Some(ErrorCode::NotFound) => exit::NOT_FOUND,
                    Some(ErrorCode::NotExecutable) => exit::DENIED,
                    _ => exit::OWN_FAILURE,
                }
            }
            Status::Failed | Status::Cancelled => match (self.return_code, self.signal_number()) {
                (Some(code), _) => code as u8,
                (None, Some(number)) => exit::signalled(number),
                (None, None) => exit::OWN_FAILURE,
            },
        }
    }

    fn signal_number(&self) -> Option<u8> {
        signal_number(self.signal.as_deref()?)
    }
}

/// The signals of Linux on x86-64 and ARM by number, from signal(7).
const SIGNALS: &[(u8, &str)] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (16, "SIGSTKFLT"),
    (17, "SIGCHLD"),
    (18, "SIGCONT"),
    (19, "SIGSTOP"),
    (20, "SIGTSTP"),
    (21, "SIGTTIN"),
    (22, "SIGTTOU"),
    (23, "SIGURG"),
    (24, "SIGXCPU"),
    (25, "SIGXFSZ"),
    (26, "SIGVTALRM"),
    (27, "SIGPROF"),
    (28, "SIGWINCH"),
    (29, "SIGIO"),
    (30, "SIGPWR"),
    (31, "SIGSYS"),
];

/// Gives the name of a signal, `SIGRTMIN+n` style numbers as `SIG<number>`.
pub fn signal_name(number: u8) -> String {
    SIGNALS
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("SIG{number}"), |(_, name)| (*name).to_owned())
}

/// Gives the number of a signal's name.
pub fn signal_number(name: &str) -> Option<u8> {
    SIGNALS
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(number, _)| *number)
        .or_else(|| name.strip_prefix("SIG")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_names_read_back() {
        for number in 1..=64 {
            assert_eq!(signal_number(&signal_name(number)), Some(number));
        }
    }

    #[test]
    fn status_words_are_the_serialised_ones() {
        for status in Status::ALL {
            assert_eq!(
                serde_json::to_value(status).expect("a word"),
                status.as_str()
            );
        }
    }
}
