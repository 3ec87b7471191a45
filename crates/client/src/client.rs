use std::io::Read;
use std::path::Path;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{
    CommandCheck, CommandCheckRequest, CommandRequest, DescribeEnvironment, EnvironmentDescription,
};
use cofferdam_core::outcome::CommandOutcome;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use ureq::Agent;

use crate::find::find_server;

/// Largest answer that is taken, in bytes.
const ANSWER_BYTES: u64 = 256 * 1024 * 1024;

/// Calls operations of one server. A clone shares the connections.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    base: String,
    authorization: String,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token.
        formatter
            .debug_struct("Client")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

/// A failure as a server sends it (RFC 9457).
#[derive(Debug, Deserialize)]
struct Refused {
    detail: String,
    code: ErrorCode,
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    details: Option<Box<serde_json::Value>>,
}

impl Client {
    /// Calls a server at an address, `http://127.0.0.1:7411` or without the scheme.
    pub fn new(address: &str, token: &str) -> Self {
        let base = address.trim_end_matches('/');
        let base = if base.contains("://") {
            base.to_owned()
        } else {
            format!("http://{base}")
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The token goes to the server that was named and nowhere else.
            .proxy(None)
            .max_redirects(0)
            .build();
        Self {
            agent: config.new_agent(),
            base,
            authorization: format!("Bearer {}", token.trim()),
        }
    }

    /// The same, with the token in a file.
    ///
    /// # Errors
    ///
    /// `unauthorized` when the file cannot be read.
    pub fn with_token_file(address: &str, path: &Path) -> Result<Self, Problem> {
        let token = std::fs::read_to_string(path).map_err(|error| {
            Problem::new(
                ErrorCode::Unauthorized,
                format!("the token in {} cannot be read: {error}", path.display()),
            )
            .with_field("token-file")
        })?;
        Ok(Self::new(address, &token))
    }

    /// Calls the server of a data directory; nothing when none lives there.
    ///
    /// # Errors
    ///
    /// `unauthorized` when its token cannot be read.
    pub fn of_data_dir(data_dir: &Path) -> Result<Option<Self>, Problem> {
        let Some(found) = find_server(data_dir) else {
            return Ok(None);
        };
        Self::with_token_file(&found.address, found.token_file.as_path()).map(Some)
    }

    /// Calls an operation by its name.
    ///
    /// # Errors
    ///
    /// The server's own problem; `server_unreachable` when there is no answer, or none of ours.
    pub fn call<Request: Serialize, Answer: DeserializeOwned>(
        &self,
        operation: &str,
        request: &Request,
    ) -> Result<Answer, Problem> {
        let body = serde_json::to_vec(request).map_err(|error| {
            Problem::new(
                ErrorCode::InvalidRequest,
                format!("the request cannot be expressed as JSON: {error}"),
            )
        })?;
        let sent = self
            .agent
            .post(format!("{}/api/v1/{operation}", self.base))
            .header("Authorization", &self.authorization)
            .header("Content-Type", "application/json")
            .send(&body[..]);
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        let text = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES)
            .read_to_vec()
            .map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return serde_json::from_slice(&text).map_err(|error| self.unreachable(&error));
        }
        Err(self.refused(&text))
    }

    /// Reads what the server goes on telling, below `/api/v1/`.
    pub(crate) fn stream(&self, path: &str) -> Result<Box<dyn Read + Send>, Problem> {
        let sent = self
            .agent
            .get(format!("{}/api/v1/{path}", self.base))
            .header("Authorization", &self.authorization)
            .call();
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(Box::new(response.into_body().into_reader()));
        }
        let text = response
            .body_mut()
            .read_to_vec()
            .map_err(|error| self.unreachable(&error))?;
        Err(self.refused(&text))
    }

    fn refused(&self, text: &[u8]) -> Problem {
        match serde_json::from_slice::<Refused>(text) {
            Ok(refused) => Problem {
                code: refused.code,
                message: refused.detail,
                hint: refused.hint,
                field: refused.field,
                details: refused.details,
            },
            Err(error) => self.unreachable(&error),
        }
    }

    /// Runs one command and waits for its end (E1).
    ///
    /// # Errors
    ///
    /// As [`Client::call`].
    pub fn run_command(&self, request: &CommandRequest) -> Result<CommandOutcome, Problem> {
        self.call("run_command", request)
    }

    /// Describes where commands run (E9).
    ///
    /// # Errors
    ///
    /// As [`Client::call`].
    pub fn describe_environment(
        &self,
        request: &DescribeEnvironment,
    ) -> Result<EnvironmentDescription, Problem> {
        self.call("describe_environment", request)
    }

    /// Tells what would be decided about a command (E10).
    ///
    /// # Errors
    ///
    /// As [`Client::call`].
    pub fn check_command(&self, request: &CommandCheckRequest) -> Result<CommandCheck, Problem> {
        self.call("command_check", request)
    }

    fn unreachable(&self, error: &dyn std::fmt::Display) -> Problem {
        Problem::new(
            ErrorCode::ServerUnreachable,
            format!("no answer from {}: {error}", self.base),
        )
        .with_hint("start one with `cofferdam serve`, or name it with --server")
    }
}
