//! Requests and results about command lines before they run (E10), and about tools of the owner's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::RunCommand;
use super::request::command_form;
use crate::commands::CommandJudgement;
use crate::decide::Verdict;
use crate::error::Problem;
use crate::plan::Clamp;
use crate::spec::{Network, ProviderKind};

/// A command line that is only looked at: text for a shell in `command`, or words in `argv`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandCheckRequest {
    /// Text for a shell. This or `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program and its arguments. This or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The time limit in seconds that would be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// The workspace that is meant; another one than this server's is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

impl CommandCheckRequest {
    /// Gives the command.
    ///
    /// # Errors
    ///
    /// `invalid_request` when neither or both of `command` and `argv` are there.
    pub fn into_command(self) -> Result<RunCommand, Problem> {
        Ok(RunCommand {
            timeout: self.timeout,
            ..RunCommand::new(command_form(self.command, self.argv)?)
        })
    }
}

/// What would happen to a command line; nothing was started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandCheck {
    /// Whether it would run now, would be asked about, or is denied.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// What the rules about commands say about each simple command. They advise; the walls hold.
    pub judgement: CommandJudgement,
    /// What would put the walls up.
    pub provider: ProviderKind,
    /// The network level that it would see.
    pub network: Network,
    /// The time limit that would be in effect, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What of the request would be lowered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamps: Vec<Clamp>,
}
