//! Posting JSON to a service that is no Cofferdam server.

use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use ureq::Agent;

/// Largest answer that is taken, in bytes.
const ANSWER_BYTES: u64 = 1024 * 1024;

/// Posts JSON to an `http://` address and gives the body of a successful answer as text. Proxies and
/// redirects are not followed: what is posted goes where it is said.
///
/// # Errors
///
/// `server_unreachable` when there is no answer within `limit`, one that is no success, or no text.
pub fn post_json(url: &str, body: &str, limit: Duration) -> Result<String, Problem> {
    let failed = |why: &dyn std::fmt::Display| {
        Problem::new(ErrorCode::ServerUnreachable, format!("{url}: {why}"))
    };
    let agent: Agent = Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .build()
        .new_agent();
    let mut response = agent
        .post(url)
        .header("Content-Type", "application/json")
        .send(body)
        .map_err(|error| failed(&error))?;
    if !response.status().is_success() {
        return Err(failed(&response.status()));
    }
    response
        .body_mut()
        .with_config()
        .limit(ANSWER_BYTES)
        .read_to_string()
        .map_err(|error| failed(&error))
}
