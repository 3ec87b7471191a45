//! What became of each proposal: a fold of events.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::effect::{Proposal, Sent};
use crate::approval::{Answerer, Entitled};
use crate::error::{ErrorCode, Problem};
use crate::event::{Event, event_type};
use crate::id::{LeaseId, OperationId, ProposalId};
use crate::spec::Digest;

/// Where a proposal stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeldState {
    /// It waits for an answer; nothing has left.
    Held,
    /// It was released, and is on its way.
    Releasing,
    /// It has left.
    Released,
    /// It was refused, and will not leave.
    Refused,
    /// It was released and did not get through; it can be released again.
    Failed,
    /// It was released and cut off: nobody knows whether it got through. It is not tried again, since
    /// that could be twice; the owner looks, and proposes it anew where it did not.
    Unknown,
}

impl HeldState {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Releasing => "releasing",
            Self::Released => "released",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// Tells whether an answer is waited for.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Held | Self::Failed)
    }

    /// Tells whether the owner has something to do about it.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Held | Self::Failed | Self::Unknown)
    }
}

/// Data of `outbox.released`: the answer, and the intent of what it leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutboxReleased {
    /// Which proposal.
    pub proposal_id: ProposalId,
    /// Which release; only the first one counts.
    pub release_id: OperationId,
    /// The digest of the effect that was looked at.
    pub digest: Digest,
    /// By whom.
    pub by: Answerer,
    /// By which door.
    pub door: String,
    /// The plane that carries it out.
    pub lease: LeaseId,
    /// Whether doing it twice is more than doing it once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
}

/// Data of `outbox.sent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutboxSent {
    /// Which proposal.
    pub proposal_id: ProposalId,
    /// Which release.
    pub release_id: OperationId,
    /// What left.
    pub sent: Sent,
}

/// Data of `outbox.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutboxFailed {
    /// Which proposal.
    pub proposal_id: ProposalId,
    /// Which release.
    pub release_id: OperationId,
    /// Why.
    pub problem: Problem,
    /// Whether nobody knows if it got through, so that it must not be tried again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

/// Data of `outbox.refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutboxRefused {
    /// Which proposal.
    pub proposal_id: ProposalId,
    /// Which answer; only the first one counts.
    pub answer_id: OperationId,
    /// By whom.
    pub by: Answerer,
    /// By which door.
    pub door: String,
    /// Why, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// Which one it was.
    pub answer_id: OperationId,
    /// By whom.
    pub by: Answerer,
    /// By which door.
    pub door: String,
    /// Why, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    #[schemars(with = "String")]
    pub time: Timestamp,
}

/// A proposal and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// What would leave.
    pub proposal: Proposal,
    /// Where it stands.
    pub state: HeldState,
    /// The answer that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answered>,
    /// What left, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    /// Why it did not get through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl Held {
    /// Begins with a proposal.
    pub const fn new(proposal: Proposal) -> Self {
        Self {
            proposal,
            state: HeldState::Held,
            answer: None,
            sent: None,
            problem: None,
        }
    }

    /// Tells whether an answer would count.
    ///
    /// # Errors
    ///
    /// `approval_forbidden` for who may not answer; `proposal_decided` when it was answered.
    pub fn check(&self, by: Answerer) -> Result<(), Problem> {
        let id = &self.proposal.proposal_id;
        if !Entitled::Owner.includes(by) {
            return Err(Problem::new(
                ErrorCode::ApprovalForbidden,
                format!(
                    "{id} is for the owner to answer, not for the {}",
                    by.as_str()
                ),
            ));
        }
        if self.state.waits() {
            return Ok(());
        }
        let problem = if self.state == HeldState::Unknown {
            Problem::new(
                ErrorCode::ProposalDecided,
                format!("whether {id} got through is not known, so it is not tried again"),
            )
            .with_hint(
                "look whether it did; where it did not, propose it anew yourself, else refuse it, which puts it away",
            )
        } else {
            Problem::new(
                ErrorCode::ProposalDecided,
                format!("{id} is {} already", self.state.as_str()),
            )
        };
        Err(problem.with_details(serde_json::json!({"proposal_id": id, "state": self.state})))
    }

    /// Tells whether a refusal would count: it also puts away what was cut off.
    ///
    /// # Errors
    ///
    /// As [`Self::check`].
    pub fn check_refusal(&self, by: Answerer) -> Result<(), Problem> {
        if self.state == HeldState::Unknown && Entitled::Owner.includes(by) {
            return Ok(());
        }
        self.check(by)
    }

    /// Tells whether an answer is the one that counts.
    pub fn is_by(&self, answer: &OperationId) -> bool {
        self.answer
            .as_ref()
            .is_some_and(|one| one.answer_id == *answer)
    }

    fn release(&mut self, data: OutboxReleased, time: Timestamp) {
        if self.check(data.by).is_err() || data.digest != self.proposal.binding.digest {
            return;
        }
        self.state = HeldState::Releasing;
        self.problem = None;
        self.answer = Some(Answered {
            answer_id: data.release_id,
            by: data.by,
            door: data.door,
            reason: None,
            time,
        });
    }

    fn refuse(&mut self, data: OutboxRefused, time: Timestamp) {
        if self.check_refusal(data.by).is_err() {
            return;
        }
        self.state = HeldState::Refused;
        self.answer = Some(Answered {
            answer_id: data.answer_id,
            by: data.by,
            door: data.door,
            reason: data.reason,
            time,
        });
    }

    fn is_releasing(&self, release: &OperationId) -> bool {
        self.state == HeldState::Releasing && self.is_by(release)
    }
}

/// Every proposal of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outbox(BTreeMap<ProposalId, Held>);

impl Outbox {
    /// Takes an event; those of other areas, and what is not understood, change nothing.
    pub fn apply(&mut self, event: &Event) {
        fn read<T: serde::de::DeserializeOwned>(event: &Event) -> Option<T> {
            serde_json::from_value(event.data.clone()).ok()
        }
        match event.kind.as_str() {
            event_type::OUTBOX_PROPOSED => {
                if let Some(proposal) = read::<Proposal>(event) {
                    // The first one stands: nobody proposes twice by the same id.
                    let id = proposal.proposal_id.clone();
                    self.0.entry(id).or_insert_with(|| Held::new(proposal));
                }
            }
            event_type::OUTBOX_RELEASED => {
                if let Some(data) = read::<OutboxReleased>(event)
                    && let Some(held) = self.0.get_mut(&data.proposal_id)
                {
                    held.release(data, event.time);
                }
            }
            event_type::OUTBOX_REFUSED => {
                if let Some(data) = read::<OutboxRefused>(event)
                    && let Some(held) = self.0.get_mut(&data.proposal_id)
                {
                    held.refuse(data, event.time);
                }
            }
            event_type::OUTBOX_SENT => {
                if let Some(data) = read::<OutboxSent>(event)
                    && let Some(held) = self.0.get_mut(&data.proposal_id)
                    && held.is_releasing(&data.release_id)
                {
                    held.state = HeldState::Released;
                    held.sent = Some(data.sent);
                }
            }
            event_type::OUTBOX_FAILED => {
                if let Some(data) = read::<OutboxFailed>(event)
                    && let Some(held) = self.0.get_mut(&data.proposal_id)
                    && held.is_releasing(&data.release_id)
                {
                    held.state = if data.unknown {
                        HeldState::Unknown
                    } else {
                        HeldState::Failed
                    };
                    held.problem = Some(data.problem);
                }
            }
            _ => {}
        }
    }

    /// Finds one.
    pub fn get(&self, id: &ProposalId) -> Option<&Held> {
        self.0.get(id)
    }

    /// Lists them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Held> {
        self.0.values()
    }
}
