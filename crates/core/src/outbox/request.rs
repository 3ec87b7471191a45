//! What a task with nothing but a shell leaves behind, so that it is proposed when the task has ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::operation::Encoding;

/// One request, a JSON object in a file whose name ends in `.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum InsideRequest {
    /// A pull request of the task's own branch, with the push that it needs.
    PullRequest {
        /// Its title, one line.
        title: String,
        /// Its text.
        #[serde(default)]
        body: String,
        /// The branch into which it is offered; the one from which the task began, when nothing is
        /// said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<String>,
        /// The remote, by its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<String>,
    },
    /// A command that publishes what the task's branch holds.
    Publish {
        /// The command, word for word.
        argv: Vec<String>,
        /// The folder where it runs, from the top of the repository.
        #[serde(default)]
        directory: BytePath,
    },
    /// A file outside of the workspace.
    WriteOutside {
        /// The file, by an absolute path or from `~/`.
        path: BytePath,
        /// What it would hold.
        content: String,
        /// How `content` is told.
        #[serde(default)]
        encoding: Encoding,
    },
}

impl InsideRequest {
    /// Gives the word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::PullRequest { .. } => "pull_request",
            Self::Publish { .. } => "publish",
            Self::WriteOutside { .. } => "write_outside",
        }
    }
}
