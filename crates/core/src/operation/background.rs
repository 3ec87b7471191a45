//! Commands that go on after the call that started them (E2): requests and results.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorCode, Problem};
use crate::id::{CommandId, ConversationId};
use crate::limits;
use crate::outcome::{CommandOutcome, Isolation, Status};
use crate::spec::{Access, Network, ProviderKind};

/// A request to start a command and not to wait for its end (E2).
///
/// Words, directory and variables are text as it is, without escapes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundRequest {
    /// Text for a shell, never a login shell; any valid script, of any length. This or `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program and its arguments, unchanged; no shell reads them. This or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Directory within the workspace in which it starts; its top when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Seconds until the command and all that it started are ended, 3600 at most; more is lowered,
    /// and said in `timeout_clamped`. No limit when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Seconds without output after which they are ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<f64>,
    /// Variables in addition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Text that the command reads from standard input, then its end; at once the end without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// A network level that is narrower than the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// `read` takes the right to write the workspace away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_access: Option<Access>,
    /// The same key twice starts one process only; the second call follows the first one's command.
    /// A key that was cancelled before starts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The workspace that is meant; another one than this server's is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Seconds to wait for an early end, 0 to 5, and 5 when not said; more is lowered, and said in
    /// `wait_clamped`. A command that ends within them is no background command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<f64>,
}

/// What came of the start of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundStart {
    /// Whether the command goes on after this answer.
    pub background: bool,
    /// The command.
    pub command_id: CommandId,
    /// `running` when it goes on, else how it ended.
    pub status: Status,
    /// The result, when it ended within the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<CommandOutcome>,
    /// The output so far, when it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputPage>,
    /// The time limit in effect, in milliseconds; `null` is none.
    pub timeout_ms: Option<u64>,
    /// Whether a longer limit was asked for than there is.
    pub timeout_clamped: bool,
    /// How long was waited for an early end at most, in milliseconds.
    pub wait_ms: u64,
    /// Whether a longer wait was asked for than there is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait_clamped: bool,
}

/// Which output of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputView {
    /// Both streams in order of arrival.
    #[default]
    Combined,
    /// Standard output, or everything of a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output, or everything of a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How bytes are written in a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputForm {
    /// As text. A page never ends within a character; bytes that are no text are replaced, and
    /// `replaced` says so.
    #[default]
    Text,
    /// As base64, exact.
    Base64,
}

/// A request to read the output of a command from an offset on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadOutput {
    /// The command.
    pub command_id: CommandId,
    /// Which output; both streams in order of arrival when not said.
    #[serde(default)]
    pub stream: OutputView,
    /// The byte from which on; 0 is the beginning. Take `next_offset` of the page before.
    #[serde(default)]
    pub offset: u64,
    /// Most bytes of the page: 65536 when not said, 1048576 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// How the bytes are written.
    #[serde(default)]
    pub form: OutputForm,
    /// Seconds to wait for output where there is none beyond `offset` yet: 0 when not said, 30 at
    /// most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<f64>,
}

/// Output that came in one piece from one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputChunk {
    /// Number of the piece in order of arrival, from 0. A piece that is cut by the end of a page has
    /// the same number on the next.
    pub seq: u64,
    /// From where.
    pub stream: OutputStream,
    /// Where it begins in its stream, in bytes.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// The bytes, in the form of the page.
    pub content: String,
}

/// Bytes that were not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputGap {
    /// The first of them.
    pub from: u64,
    /// The first byte after them.
    pub to: u64,
}

/// One page of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputPage {
    /// The command.
    pub command_id: CommandId,
    /// Its status when the page was made.
    pub status: Status,
    /// Which output.
    pub stream: OutputView,
    /// Where the page begins, in bytes.
    pub offset: u64,
    /// The bytes of the page, in its form.
    pub content: String,
    /// How the bytes are written.
    pub form: OutputForm,
    /// Whether bytes that are no text were replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
    /// The same bytes piece by piece with their streams, where both are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<OutputChunk>,
    /// Where to read on, in bytes.
    pub next_offset: u64,
    /// Whether nothing follows and nothing will.
    pub eof: bool,
    /// Bytes that there are so far.
    pub total: u64,
    /// Bytes from this page's end on that were not kept, because a limit was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<OutputGap>,
}

/// One stream at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamSummary {
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes that were not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// Lines; `null` where there are too many bytes to count them.
    pub lines: Option<u64>,
    /// The first lines; all of them where there are not more than ten.
    pub head: Vec<String>,
    /// The last lines, where there are more than ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tail: Vec<String>,
    /// Lines between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_lines: Option<u64>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// On whose word and behind which walls a command was started. It never changes afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthoritySnapshot {
    /// By which door it came.
    pub front_door: String,
    /// The rule that let it run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Digest of the policy in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Digest of the plan of its walls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,
    /// Who puts the walls up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderKind>,
    /// The network level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The walls as they were, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
}

/// A command as the journal knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRecord {
    /// The command.
    pub command_id: CommandId,
    /// Its status now.
    pub status: Status,
    /// Whether it went on after the call that started it.
    pub background: bool,
    /// The command as a line.
    pub command: String,
    /// Where it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The line of work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// When its intent was written, RFC 3339.
    #[schemars(with = "String")]
    pub created_at: Timestamp,
    /// When it was last heard of.
    #[schemars(with = "String")]
    pub updated_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ended_at: Option<Timestamp>,
    /// When its last output was told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_output_at: Option<Timestamp>,
    /// Milliseconds from its beginning to its end, or to now.
    pub elapsed_ms: u64,
    /// The time limit in effect, in milliseconds; `null` is none.
    pub timeout_ms: Option<u64>,
    /// Whether its end was told to somebody who asked for notices.
    pub notified: bool,
    /// Whether somebody waited for its end and claimed it, so that there is no notice.
    pub claimed: bool,
    /// On whose word and behind which walls.
    pub authority: AuthoritySnapshot,
    /// Why it never ran, or was ended by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// A command with its output at a glance, and its result once it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandView {
    /// The command.
    pub command: CommandRecord,
    /// Standard output at a glance.
    pub stdout: StreamSummary,
    /// Standard error at a glance.
    pub stderr: StreamSummary,
    /// The result, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<CommandOutcome>,
    /// Whether the wait ended before the command did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait_expired: bool,
}

/// Names one command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetCommand {
    /// The command.
    pub command_id: CommandId,
}

/// A request to list background commands, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListCommands {
    /// Most of them: 200 when not said, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Only those with this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// Background commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandList {
    /// The newest first.
    pub commands: Vec<CommandRecord>,
    /// Whether there are older ones.
    pub more: bool,
}

/// A request to wait for the end of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitCommand {
    /// The command.
    pub command_id: CommandId,
    /// Seconds to wait at most: 60 when not said, 3605 at most. The command goes on afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_seconds: Option<f64>,
    /// Whether this answer is notice enough: then `command_poll` does not tell of the end again.
    #[serde(default)]
    pub claim: bool,
}

/// A request to end a command, by its id, or by the key of a start that may not have happened yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelCommand {
    /// The command. This or `idempotency_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
    /// The key that its start has or will have. A start that comes later does not happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// End it at once, without a polite signal first.
    #[serde(default)]
    pub force: bool,
}

/// What came of a cancellation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandCancelled {
    /// The command, where it had begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandRecord>,
    /// Whether it has ended.
    pub ended: bool,
}

/// A request for the ends of background commands that nobody was told of yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PollCommands {
    /// Most of them: 100 when not said, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Ends of background commands, each told once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandNotices {
    /// Those that ended, the oldest end first.
    pub ended: Vec<CommandRecord>,
    /// How many go on.
    pub running: u64,
}

/// Seconds that a caller names, and whether they were lowered to the most there is.
///
/// # Errors
///
/// `invalid_request` for what is negative or no number.
pub fn wait_time(
    field: &str,
    asked: Option<f64>,
    default: f64,
    most: f64,
) -> Result<(std::time::Duration, bool), Problem> {
    let seconds = asked.unwrap_or(default);
    if !seconds.is_finite() || seconds < 0.0 {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            format!("{field} must be a number of seconds from 0 to {most}, it is {seconds}"),
        )
        .with_field(field));
    }
    let wait = std::time::Duration::from_secs_f64(seconds.min(most));
    Ok((wait, seconds > most))
}

impl BackgroundRequest {
    /// Asks for text that a shell reads.
    pub fn shell(text: impl Into<String>) -> Self {
        Self {
            command: Some(text.into()),
            ..Self::default()
        }
    }

    /// Gives the first wait, and whether it was lowered.
    ///
    /// # Errors
    ///
    /// `invalid_request` for what is negative or no number.
    pub fn first_wait(&self) -> Result<(std::time::Duration, bool), Problem> {
        let most = limits::FIRST_WAIT_SECONDS as f64;
        wait_time("wait_seconds", self.wait_seconds, most, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_15_a_wait_is_a_number_of_seconds_up_to_five() {
        let wait = |seconds| {
            BackgroundRequest {
                wait_seconds: seconds,
                ..BackgroundRequest::shell("true")
            }
            .first_wait()
            .map(|(wait, clamped)| (wait.as_millis(), clamped))
        };
        assert_eq!(wait(None), Ok((5_000, false)));
        assert_eq!(wait(Some(0.0)), Ok((0, false)));
        assert_eq!(wait(Some(0.25)), Ok((250, false)));
        assert_eq!(wait(Some(60.0)), Ok((5_000, true)));
        for wrong in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let problem = wait(Some(wrong)).expect_err("no wait");
            assert_eq!(problem.code, ErrorCode::InvalidRequest);
            assert_eq!(problem.field.as_deref(), Some("wait_seconds"));
        }
    }
}
