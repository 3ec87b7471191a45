//! Requests and results about command lines before they run (E10), and about tools of the owner's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::command::{CommandForm, RunCommand};
use super::request::command_form;
use crate::bytes::BytePath;
use crate::commands::CommandJudgement;
use crate::decide::Verdict;
use crate::error::Problem;
use crate::plan::Clamp;
use crate::spec::{Access, Network, ProviderKind};
use crate::tool::{Tool, ToolHints, fill_tool};

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

/// Asks for the tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTools {
    /// The workspace that is meant; another one than this server's is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// The tools, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolList {
    /// Each of them.
    pub tools: Vec<ToolView>,
}

/// One tool: a command template with parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolView {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub origin: ToolOrigin,
    /// Whether it can be run.
    pub state: ToolState,
    /// What it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The words of its command, with `{parameter}` where arguments go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// The JSON Schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// What is said of it.
    #[serde(default, skip_serializing_if = "ToolHints::is_unsaid")]
    pub hints: ToolHints,
    /// Its file, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why it cannot be run, and what makes it runnable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Where a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolOrigin {
    /// It comes with the program.
    Shipped,
    /// A file of the owner's.
    Owner,
    /// A file of the workspace, which only proposes it.
    Project,
}

impl ToolOrigin {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shipped => "shipped",
            Self::Owner => "owner",
            Self::Project => "project",
        }
    }
}

/// Whether a tool can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// It can.
    Runnable,
    /// A project proposes it; the owner has not accepted it.
    Proposed,
    /// Its file is wrong.
    Broken,
}

impl ToolState {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runnable => "runnable",
            Self::Proposed => "proposed",
            Self::Broken => "broken",
        }
    }
}

/// Asks for a tool to be run. What it may do is what a command may do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolRun {
    /// Name of the tool, as `tool_list` gives it.
    pub name: String,
    /// Its arguments, by name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
    /// Directory within the workspace in which it starts; its top when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// A network level that is narrower than the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// `read` takes the right to write the workspace away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_access: Option<Access>,
    /// The same key twice starts one process only, and gives its result both times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The workspace that is meant; another one than this server's is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

impl ToolRun {
    /// Gives the command of the tool that it names.
    ///
    /// # Errors
    ///
    /// `invalid_request`, with the argument that is wrong or missing.
    pub fn into_command(self, tool: &Tool) -> Result<RunCommand, Problem> {
        let words = fill_tool(tool, &self.arguments)?;
        Ok(RunCommand {
            cwd: self.cwd.map(BytePath::from_bytes),
            timeout: tool.timeout,
            network: self.network,
            write_access: self.write_access,
            idempotency_key: self.idempotency_key,
            ..RunCommand::new(CommandForm::Argv(words))
        })
    }
}
