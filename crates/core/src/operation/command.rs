//! One command (E1): what it is and what it may.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::spec::{Access, Network, Variable};

/// What is to be run: words as they are, or text for a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CommandForm {
    /// The program and its arguments, unchanged.
    Argv(Vec<BytePath>),
    /// Text for a shell, never a login shell.
    Shell(String),
}

impl CommandForm {
    /// Gives a short line for people.
    pub fn summary(&self) -> String {
        match self {
            Self::Argv(words) => words
                .iter()
                .map(|word| quoted(&word.to_text()))
                .collect::<Vec<_>>()
                .join(" "),
            Self::Shell(text) => text.clone(),
        }
    }
}

/// Quotes a word for a shell where that is needed.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// What standard input of a command is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Input {
    /// Nothing: reads give the end at once.
    #[default]
    Null,
    /// These bytes, then the end.
    Bytes(BytePath),
}

/// A request to run one command (E1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCommand {
    /// What to run.
    pub command: CommandForm,
    /// Directory within the workspace; its top when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<BytePath>,
    /// Time limit in seconds; must be above zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Seconds without output after which the command is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<f64>,
    /// Variables in addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Variable>,
    /// Standard input.
    #[serde(default)]
    pub stdin: Input,
    /// A narrower network level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// `read` takes the right to write the workspace away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_access: Option<Access>,
    /// The same key twice starts one process only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Why it cannot do without running free of walls, once: the owner and the reviewer both have to
    /// approve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_access: Option<String>,
}

impl RunCommand {
    /// Makes a request with nothing but the command.
    pub const fn new(command: CommandForm) -> Self {
        Self {
            command,
            cwd: None,
            timeout: None,
            idle_timeout: None,
            env: Vec::new(),
            stdin: Input::Null,
            network: None,
            write_access: None,
            idempotency_key: None,
            full_access: None,
        }
    }

    /// Makes a request from words.
    pub fn argv<Word: Into<BytePath>>(words: impl IntoIterator<Item = Word>) -> Self {
        Self::new(CommandForm::Argv(
            words.into_iter().map(Into::into).collect(),
        ))
    }

    /// Makes a request from text for a shell.
    pub fn shell(text: impl Into<String>) -> Self {
        Self::new(CommandForm::Shell(text.into()))
    }
}
