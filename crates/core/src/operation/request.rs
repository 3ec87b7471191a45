//! A command as a request over a protocol writes it: flat, and in plain text.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::{CommandForm, Input, RunCommand};
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::spec::{Access, Network, Variable};

/// One command (E1): text for a shell in `command`, or a program and its arguments in `argv`.
///
/// Words, directory and variables are text as it is, without escapes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// Text for a shell, never a login shell; any valid script, of any length. This or `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program and its arguments, unchanged; no shell reads them. This or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Directory within the workspace in which it starts; its top when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Seconds until the command and all that it started are ended: 120 when not said, 3600 at
    /// most; more is lowered, and said in `timeout_clamped`.
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
    /// The same key twice starts one process only, and gives its result both times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Why it cannot do without running free of walls, once. The owner and a reviewer both have to
    /// approve it; without a reviewer nobody can. For `run_command` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_access: Option<String>,
    /// The workspace that is meant; another one than this server's is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

impl CommandRequest {
    /// Asks for text that a shell reads.
    pub fn shell(text: impl Into<String>) -> Self {
        Self {
            command: Some(text.into()),
            ..Self::default()
        }
    }

    /// Asks for a program with its arguments.
    pub fn argv<Word: Into<String>>(words: impl IntoIterator<Item = Word>) -> Self {
        Self {
            argv: Some(words.into_iter().map(Into::into).collect()),
            ..Self::default()
        }
    }

    /// Gives the command. The workspace is for whoever knows which one it is.
    ///
    /// # Errors
    ///
    /// `invalid_request` when neither or both of `command` and `argv` are there.
    pub fn into_command(self) -> Result<RunCommand, Problem> {
        let form = command_form(self.command, self.argv)?;
        Ok(RunCommand {
            command: form,
            cwd: self.cwd.map(BytePath::from_bytes),
            timeout: self.timeout,
            idle_timeout: self.idle_timeout,
            env: variables(self.env),
            stdin: self
                .stdin
                .map_or(Input::Null, |text| Input::Bytes(BytePath::from_bytes(text))),
            network: self.network,
            write_access: self.write_access,
            idempotency_key: self.idempotency_key,
            full_access: self.full_access,
        })
    }
}

/// Gives the command of a request that writes it as `command` or as `argv`.
///
/// # Errors
///
/// `invalid_request` when neither or both are there.
pub fn command_form(
    command: Option<String>,
    argv: Option<Vec<String>>,
) -> Result<CommandForm, Problem> {
    match (command, argv) {
        (Some(text), None) => Ok(CommandForm::Shell(text)),
        (None, Some(words)) => Ok(CommandForm::Argv(
            words.into_iter().map(BytePath::from_bytes).collect(),
        )),
        (None, None) => Err(Problem::new(
            ErrorCode::InvalidRequest,
            "there is nothing to run: give command or argv",
        )
        .with_field("command")
        .with_hint("write {\"command\": \"make test\"} or {\"argv\": [\"make\", \"test\"]}")),
        (Some(_), Some(_)) => Err(Problem::new(
            ErrorCode::InvalidRequest,
            "command and argv contradict each other: give one of them",
        )
        .with_field("argv")),
    }
}

/// Gives variables as the kernel has them.
pub fn variables(env: BTreeMap<String, String>) -> Vec<Variable> {
    env.into_iter()
        .map(|(name, value)| Variable {
            name: BytePath::from_bytes(name),
            value: BytePath::from_bytes(value),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CommandRequest, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn text_is_taken_as_it_is() {
        let request = read(r#"{"argv": ["grep", "a\\.b"], "env": {"A": "\\x"}, "cwd": "s\\u"}"#)
            .expect("a request");
        let command = request.into_command().expect("a command");
        assert_eq!(command.command.summary(), r"grep 'a\.b'");
        assert_eq!(command.env[0].value.as_bytes(), br"\x");
        assert_eq!(
            command.cwd.as_ref().map(BytePath::as_bytes),
            Some(&br"s\u"[..])
        );
    }

    #[test]
    fn row_48_what_nobody_knows_and_what_contradicts_is_refused() {
        for text in [
            r#"{"command": "true", "permission": "unrestricted"}"#,
            r#"{"command": "true", "grants": []}"#,
            r#"{"command": "true", "actor": "owner"}"#,
            r#"{"command": "true", "policy": {}}"#,
        ] {
            let error = read(text).expect_err("an unknown key");
            assert!(error.contains("unknown field"), "{error}");
        }
        for request in [
            CommandRequest::default(),
            CommandRequest {
                argv: Some(vec!["true".to_owned()]),
                ..CommandRequest::shell("true")
            },
        ] {
            let problem = request.into_command().expect_err("a contradiction");
            assert_eq!(problem.code, ErrorCode::InvalidRequest);
        }
    }
}
