//! Sessions: one place that is kept for many commands: requests and results.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::id::{CommandId, ConversationId, SessionId};
use crate::outcome::{CommandOutcome, EndedBy, Isolation, Leftover};
use crate::spec::{Access, Network};

/// What the commands of a session have in common beside the place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// Directory, mask and exported variables go from one command to the next; one runs at a time.
    #[default]
    Shell,
    /// Nothing: each begins at the top of the workspace, and several run at once.
    Plain,
}

/// A request to open a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// A name by which it can be found as well as by its id: 1 to 64 letters, digits, `-`, `_`, `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `shell` hands directory, mask and exported variables from one command to the next; `plain`
    /// does not. `shell` when not said.
    #[serde(default)]
    pub mode: SessionMode,
    /// A network level that is narrower than the policy's, for all its commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// `read` takes the right to write the workspace away, from all its commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_access: Option<Access>,
    /// Seconds without a command or a background job after which it ends: 3600 when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit: Option<f64>,
    /// Seconds after which it ends whatever runs in it: 86400 when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<f64>,
    /// The workspace that is meant; another one than this server's is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// A request to run one command in a session and to wait for its end.
///
/// Words, directory and variables are text as it is, without escapes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunInSession {
    /// The session, by its id or its name.
    pub session: String,
    /// Text for the shell, any valid script of any length. This or `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A program and its arguments, unchanged; no shell reads them. This or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Directory within the workspace in which it starts; where the session is when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Seconds until the command and what it started are ended: 120 when not said, 3600 at most.
    /// A command that waits for its turn in a shell session waits no longer than this, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Seconds without output after which they are ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<f64>,
    /// Variables in addition, for this command only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Text that the command reads from standard input, then its end; at once the end without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// In a shell session: beside the others. It does not wait for one that runs, begins where the
    /// session is, and hands nothing on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aside: bool,
}

/// A request about one session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionReference {
    /// The session, by its id or its name.
    pub session: String,
}

/// A request for all sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {}

/// A request for what background jobs of a session wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadSessionLog {
    /// The session, by its id or its name.
    pub session: String,
    /// The byte from which on; take `next_offset` of the answer before.
    #[serde(default)]
    pub offset: u64,
}

/// A request to end what one command of a session left running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndSessionJob {
    /// The session, by its id or its name.
    pub session: String,
    /// The command that started the job.
    pub command_id: CommandId,
}

/// Something that a command of a session left running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionJob {
    /// The command that started it.
    pub command_id: CommandId,
    /// What it was when that command ended.
    pub processes: Vec<Leftover>,
}

/// A session as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionView {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What its commands have in common.
    pub mode: SessionMode,
    /// Where its next command begins.
    pub cwd: BytePath,
    /// The conversation of everything that the journal tells of it.
    pub conversation_id: ConversationId,
    /// When it was opened.
    #[schemars(with = "String")]
    pub opened: Timestamp,
    /// Commands that were run in it.
    pub commands: u64,
    /// Commands that run in it now.
    pub running: u64,
    /// What its commands left running.
    pub jobs: Vec<SessionJob>,
    /// Whether its walls stand; where they do not, the next command has them put up anew, and says
    /// `session_reset`.
    pub standing: bool,
    /// Seconds without a command or a job after which it ends.
    pub idle_limit: f64,
    /// Seconds for which nothing has run in it.
    pub idle: f64,
    /// When it ends whatever runs in it.
    #[schemars(with = "String")]
    pub ends: Timestamp,
    /// The walls.
    pub isolation: Isolation,
}

/// Every session that is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionList {
    /// The sessions, the oldest first.
    pub sessions: Vec<SessionView>,
}

/// How a command of a session ended, and the session after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionResult {
    /// The session.
    pub session_id: SessionId,
    /// Whether its walls were put up anew for this command, because they had gone or the policy
    /// asks for others: background jobs and private files are gone; files of the workspace,
    /// directory and variables are as they were.
    pub session_reset: bool,
    /// Where the next command begins.
    pub cwd: BytePath,
    /// Whether directory, mask and exported variables that the command left were taken over; else
    /// those from before it hold. True in a plain session, which has none.
    pub state_saved: bool,
    /// Why they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
    /// How the command ended.
    pub result: CommandOutcome,
}

/// What background jobs of a session wrote after the end of their commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionLogPage {
    /// Offset of the first byte of the text: later than asked for where older bytes are gone.
    pub offset: u64,
    /// The text; bytes that are none are replaced.
    pub text: String,
    /// The offset to ask for next.
    pub next_offset: u64,
}

/// What came of ending a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionJobEnded {
    /// Whether something of it was still running.
    pub ended: bool,
}

/// What came of closing a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionClosed {
    /// The session.
    pub session_id: SessionId,
    /// Commands that ran in it, which were cancelled.
    pub cancelled: u64,
    /// By what everything in it was ended.
    pub ended_by: EndedBy,
}
