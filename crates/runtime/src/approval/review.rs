//! The reviewer that the owner has set: asked in the owner's place or besides, and a no whenever
//! anything is wrong with it.

use std::path::PathBuf;
use std::time::Duration;

use cofferdam_core::approval::{Answerer, ApprovalAnswer, ApprovalAnswered, ApprovalAsk, Remember};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::limits;
use cofferdam_core::operation::{CommandForm, RunCommand};
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::{PolicyDocument, Reviewer};
use cofferdam_core::spec::Network;
use cofferdam_exec::{CommandIo, Control, OwnDirectory};
use serde::Deserialize;

use super::is_given_up;
use crate::host::PolicyRequest;
use crate::run::{FrontDoor, RunRequest};
use crate::runtime::Runtime;
use crate::scribe::to_value;

/// Most characters of what a reviewer printed that are told when it makes no sense.
const SHOWN: usize = 200;

/// Sends a question to a reviewer that is a service. Below the server nothing knows the web, so that
/// whoever has a client brings it; without one such a reviewer says no.
pub trait ReviewByUrl: std::fmt::Debug + Send + Sync {
    /// Posts JSON to an address and gives the body of a good answer.
    ///
    /// # Errors
    ///
    /// Whatever went wrong, in words.
    fn post(&self, url: &str, body: &str, limit: Duration) -> Result<String, String>;
}

/// What a reviewer says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Review {
    answer: ApprovalAnswer,
    #[serde(default)]
    reason: Option<String>,
}

impl Runtime {
    /// Says how reviewers that are services are reached. Only the first who says it is heard.
    pub fn on_review_by_url(&self, client: std::sync::Arc<dyn ReviewByUrl>) {
        let _ = self.review_by_url.set(client);
    }

    /// Puts a question to the reviewer, and writes its answer down.
    pub(super) fn ask_reviewer(&self, reviewer: &Reviewer, ask: &ApprovalAsk, control: &Control) {
        let review = self
            .reviewed(reviewer, ask, control)
            .unwrap_or_else(|why| Review {
                answer: ApprovalAnswer::Reject,
                reason: Some(format!("the reviewer gave no answer that counts: {why}")),
            });
        // Somebody else's word was enough.
        if is_given_up(control) {
            return;
        }
        let reason = review.reason.map(|reason| {
            reason
                .chars()
                .take(limits::APPROVAL_REASON_CHARACTERS)
                .collect()
        });
        // It may be at its end by now; then whoever waits sees how.
        let _ = self.answer(&ApprovalAnswered {
            approval_id: ask.approval_id.clone(),
            answer: review.answer,
            by: Answerer::Reviewer,
            door: "reviewer".to_owned(),
            reason,
            remember: Remember::Once,
            remember_days: None,
        });
    }

    fn reviewed(
        &self,
        reviewer: &Reviewer,
        ask: &ApprovalAsk,
        control: &Control,
    ) -> Result<Review, String> {
        let question = to_value(ask)
            .map_err(|problem| problem.message)?
            .to_string();
        let limit = reviewer.limit();
        let said = match (&reviewer.command, &reviewer.url) {
            (Some(command), _) => self
                .ask_program(command, question.into_bytes(), limit, control)
                .map_err(|problem| problem.message)?,
            (None, Some(url)) => self
                .review_by_url
                .get()
                .ok_or("nothing here can reach an address")?
                .post(url, &question, limit)?,
            (None, None) => return Err("it has neither command nor url".to_owned()),
        };
        serde_json::from_str(said.trim()).map_err(|_| {
            let shown: String = said.trim().chars().take(SHOWN).collect();
            format!("it said {shown:?}")
        })
    }

    /// Runs the owner's own program, without walls and journalled like any command.
    fn ask_program(
        &self,
        command: &[String],
        question: Vec<u8>,
        limit: Duration,
        control: &Control,
    ) -> Result<String, Problem> {
        let place = PathBuf::from(self.scratch().as_path());
        let _place = OwnDirectory::make(&place)?;
        let words = command.iter().map(|word| word.as_str().into()).collect();
        let outcome = self.run_command(RunRequest {
            policy: PolicyRequest {
                workspace: Some(place.clone()),
                // A policy of the user's own could ask about the reviewer itself.
                policy_file: None,
                owner: PolicyDocument {
                    provider: Some(cofferdam_core::policy::ProviderChoice::Direct),
                    network: Some(Network::Full),
                    permission: Some(cofferdam_core::policy::Permission::Unrestricted),
                    ..PolicyDocument::default()
                },
                ..PolicyRequest::default()
            },
            command: RunCommand {
                cwd: Some(place.clone().into()),
                timeout: Some(limit.as_secs_f64()),
                ..RunCommand::new(CommandForm::Argv(words))
            },
            front_door: FrontDoor::Embedded,
            io: CommandIo::Capture {
                input: Some(question),
            },
            control: control.clone(),
        });
        match outcome.status {
            Status::Completed => Ok(outcome.stdout),
            status => Err(outcome.error.unwrap_or_else(|| {
                Problem::new(
                    ErrorCode::ApprovalRejected,
                    format!("it ended as {}", status.as_str()),
                )
            })),
        }
    }
}
