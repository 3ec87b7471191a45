//! Who may answer in the owner's place.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::Seconds;
use crate::error::{ErrorCode, Problem};

/// How long a reviewer has, unless the policy says it.
const LIMIT: Duration = Duration::from_mins(1);

/// A program or a service that looks at questions in the owner's place. It is handed the question as
/// JSON and says `{"answer": "approve" | "reject", "reason": "…"}`; whatever else comes of it, or
/// nothing in time, is a no.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reviewer {
    /// The program and its arguments: it reads the question from standard input, and its answer is
    /// all that it prints. It runs as the owner, without walls. This or `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Where the question is sent by POST, an `http://` address. This or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Seconds until it counts as a no; 60 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Seconds>,
}

impl Reviewer {
    /// Gives how long it has.
    pub fn limit(&self) -> Duration {
        self.timeout
            .and_then(|timeout| Duration::try_from_secs_f64(timeout.get()).ok())
            .unwrap_or(LIMIT)
    }

    /// Refuses what names no reviewer.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let wrong = match (&self.command, &self.url) {
            (Some(command), None) if command.first().is_some_and(|one| !one.is_empty()) => None,
            (Some(_), None) => Some("reviewer.command names no program"),
            (None, Some(url)) if url.starts_with("http://") => None,
            (None, Some(_)) => Some("reviewer.url is no http:// address"),
            _ => Some("reviewer has command or url, one of them"),
        };
        match wrong {
            None => Ok(()),
            Some(wrong) => {
                Err(Problem::new(ErrorCode::PolicyInvalidValue, wrong).with_field("reviewer"))
            }
        }
    }
}
