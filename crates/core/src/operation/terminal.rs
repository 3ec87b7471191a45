//! Persistent terminals (E7): what is asked of them and what they answer.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::error::Problem;
use crate::id::{CommandId, SessionId, TerminalId};
use crate::spec::{Access, Network, ProviderKind};

mod key;
mod name;

pub use key::{KeyError, TerminalKey};
pub use name::{TerminalName, TerminalNameError};

/// A request to open a terminal. Its rights are fixed here; nothing widens them later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalOpen {
    /// What to call it; must be new.
    pub name: TerminalName,
    /// Directory within the workspace, which must be there; its top when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The program in it with its arguments; an interactive shell without start-up files when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Variables in addition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Height in characters, 1 to 500; 24 when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
    /// Width in characters, 1 to 1000; 80 when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<u16>,
    /// `read` makes a terminal that cannot write the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_access: Option<Access>,
    /// A narrower network level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// A session in whose place it stands, by id or name: same walls, same files, same processes.
    /// Its walls are those of the session, and its end is the terminal's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether what happens on the screen is kept as a recording (asciicast v2).
    #[serde(default = "yes")]
    pub record: bool,
    /// The workspace that is meant; another one than this server's is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

const fn yes() -> bool {
    true
}

impl TerminalOpen {
    /// Makes a request with nothing but the name.
    pub const fn new(name: TerminalName) -> Self {
        Self {
            name,
            cwd: None,
            argv: Vec::new(),
            env: BTreeMap::new(),
            rows: None,
            columns: None,
            write_access: None,
            network: None,
            session: None,
            record: true,
            workspace: None,
        }
    }
}

/// One terminal as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalInfo {
    /// Its name.
    pub name: TerminalName,
    /// Its id; a reset gives another one.
    pub terminal_id: TerminalId,
    /// The command that it runs, as the journal knows it.
    pub command_id: CommandId,
    /// The directory in which it began, as seen inside.
    pub cwd: BytePath,
    /// The program and its arguments.
    pub command: Vec<BytePath>,
    /// Height in characters.
    pub rows: u16,
    /// Width in characters.
    pub columns: u16,
    /// Whether it may write the workspace.
    pub write_access: Access,
    /// How much of the network it sees.
    pub network: Network,
    /// What puts up its walls.
    pub provider: ProviderKind,
    /// Hash of the plan of its walls.
    pub spec_hash: String,
    /// Whether it is the one that requests without a name mean.
    pub active: bool,
    /// What it is doing.
    pub state: TerminalState,
    /// Name of the program in the foreground, where the kernel tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground: Option<String>,
    /// The session in whose place it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Bytes that it has written since it began.
    pub written: u64,
    /// Milliseconds since it wrote the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_output_ms: Option<u64>,
    /// Where its recording lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<BytePath>,
}

/// What a terminal is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TerminalState {
    /// Its shell waits for a command.
    Ready,
    /// Something runs in the foreground.
    Running,
    /// What runs in the foreground waits for a line of input.
    AwaitingLine,
    /// What runs in the foreground waits for a line that is not shown, a password for instance.
    AwaitingHiddenLine,
    /// What runs in the foreground waits for keys, as an editor does.
    AwaitingKeys,
    /// Its program has ended.
    Ended,
}

/// The answer to [`TerminalOpen`] and [`TerminalReset`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalOpened {
    /// The terminal.
    pub terminal: TerminalInfo,
    /// How many there are now.
    pub total: usize,
    /// How many there may be.
    pub limit: usize,
}

/// A request to type into a terminal, and to wait for what comes of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalInput {
    /// Which one; the active one when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TerminalName>,
    /// What is typed, as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether Enter follows the text; yes where there is text and no keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enter: Option<bool>,
    /// Keys that are pressed after the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<TerminalKey>,
    /// Seconds to wait at most, above 0 and not above 300. The answer comes sooner when it is known
    /// that nothing more will come by itself.
    pub output_wait: f64,
    /// Whether the bytes are wanted as they came, too.
    #[serde(default)]
    pub raw: bool,
}

impl TerminalInput {
    /// Makes a request that types a line.
    pub fn line(text: impl Into<String>, output_wait: f64) -> Self {
        Self {
            name: None,
            text: Some(text.into()),
            enter: None,
            keys: Vec::new(),
            output_wait,
            raw: false,
        }
    }
}

/// How waiting for the output of an input ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputStatus {
    /// The shell waits for the next command, or the terminal's program has ended.
    Completed,
    /// What runs in the foreground waits for input.
    AwaitingInput,
    /// It still runs, it has answered something, and is quiet now.
    OutputWithEcho,
    /// What was typed came back and nothing else did: nobody has read it.
    EchoLoop,
    /// It still runs and nothing at all came.
    NoOutput,
    /// It still runs when the time is over.
    Timeout,
    /// It could not be typed.
    Error,
}

impl InputStatus {
    /// Tells whether the status counts as success.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Completed | Self::OutputWithEcho)
    }

    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::AwaitingInput => "awaiting_input",
            Self::OutputWithEcho => "output_with_echo",
            Self::EchoLoop => "echo_loop",
            Self::NoOutput => "no_output",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}

/// The answer to [`TerminalInput`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalOutput {
    /// The terminal.
    pub name: TerminalName,
    /// How the wait ended.
    pub status: InputStatus,
    /// Whether that is a success: `completed` or `output_with_echo`.
    pub success: bool,
    /// What the terminal shows of it, as clean text; the tail where it is too long.
    pub output: String,
    /// The bytes as they came, in base64, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Offset of the first byte among all that the terminal has written.
    pub from: u64,
    /// Offset after the last.
    pub to: u64,
    /// Whether the output is less than what came.
    pub truncated: bool,
    /// What the terminal is doing now.
    pub state: TerminalState,
    /// Name of the program in the foreground, where the kernel tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground: Option<String>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// How long it could have taken, in seconds.
    pub output_wait: f64,
    /// What that means, for people.
    pub message: String,
    /// What to do about it, where there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// How the terminal's program ended, when it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<TerminalEnd>,
}

/// How the program of a terminal ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalEnd {
    /// Its exit code, when it left by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Why it ended when it was not by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// A request to type bytes, without waiting for what comes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalWrite {
    /// Which terminal; the active one when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TerminalName>,
    /// The bytes, in base64.
    pub bytes: String,
}

/// The answer to [`TerminalWrite`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalWritten {
    /// How many bytes could be typed.
    pub typed: usize,
}

/// A request for what a terminal shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TerminalSnapshot {
    /// Which one; the active one when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<TerminalName>,
    /// How many of the last lines, screen and history together: 50 unless said, 200 at most; 0 and
    /// less is everything that is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<i32>,
    /// Whether colours are kept, as escape sequences; plain text otherwise.
    pub colors: bool,
    /// Whether the bytes that are still in memory are wanted as they came, too.
    pub raw: bool,
}

/// What a terminal shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalScreen {
    /// The terminal.
    pub terminal: TerminalInfo,
    /// The lines, the oldest first.
    pub text: String,
    /// How many lines were asked for; 0 is all.
    pub lines_requested: u32,
    /// How many there are.
    pub lines_returned: u32,
    /// Whether there is more before them.
    pub truncated: bool,
    /// The line of the cursor on the screen, from 0.
    pub cursor_row: u16,
    /// The column of the cursor, from 0.
    pub cursor_column: u16,
    /// Whether a program uses the whole screen, as editors do.
    pub alternate_screen: bool,
    /// The title that a program gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The last text that was typed, unless it was hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_input: Option<String>,
    /// Seconds since it last wrote something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_since_last_output: Option<f64>,
    /// The bytes in memory as they came, in base64, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Offset of the first byte of `raw`.
    pub raw_from: u64,
}

/// A request to give a terminal another size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalResize {
    /// Which one; the active one when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TerminalName>,
    /// Height in characters, 1 to 500.
    pub rows: u16,
    /// Width in characters, 1 to 1000.
    pub columns: u16,
}

/// A request to send a signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSignal {
    /// Which terminal; the active one when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TerminalName>,
    /// The signal, `SIGTERM` or `TERM` for instance.
    pub signal: String,
    /// Who gets it.
    #[serde(default)]
    pub target: TerminalTarget,
}

/// Who gets a signal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TerminalTarget {
    /// What runs in the foreground.
    #[default]
    Foreground,
    /// Every process of the terminal.
    All,
}

/// A request that says nothing but which terminal: to make it the active one, to open it anew with
/// the same rights, directory and size, or to close it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TerminalChoice {
    /// Which one; the active one when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<TerminalName>,
}

/// A request to open a terminal anew with the same rights, directory and size.
pub type TerminalReset = TerminalChoice;

/// The answer to closing a terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalClosed {
    /// The terminal as it was.
    pub terminal: TerminalInfo,
    /// How its program ended.
    pub end: TerminalEnd,
    /// The one that requests without a name mean now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<TerminalName>,
    /// How many are left.
    pub total: usize,
}

/// A request for every terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalListRequest {}

/// Every terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalList {
    /// They, in the order in which they were opened.
    pub terminals: Vec<TerminalInfo>,
    /// The one that requests without a name mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<TerminalName>,
    /// How many there may be.
    pub limit: usize,
}
