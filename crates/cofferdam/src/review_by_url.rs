//! Reviewers that are services, reached over HTTP.

use std::time::Duration;

use cofferdam_runtime::ReviewByUrl;

/// Posts questions.
#[derive(Debug)]
pub(crate) struct Http;

impl ReviewByUrl for Http {
    fn post(&self, url: &str, body: &str, limit: Duration) -> Result<String, String> {
        cofferdam_client::post_json(url, body, limit).map_err(|problem| problem.message)
    }
}
