//! What became of each question: a fold of events.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ask::{
    Answerer, ApprovalAnswer, ApprovalAnswered, ApprovalAsk, ApprovalResolved, ApprovalUsed,
    Binding,
};
use super::remember::Remember;
use crate::error::{ErrorCode, Problem};
use crate::event::{Event, event_type};
use crate::id::{ApprovalId, OperationId};

/// Seconds after a decision within which what was approved must be done.
const USE_SECONDS: i64 = 60;

/// Where a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// It waits for an answer.
    Pending,
    /// Everybody who must say yes has.
    Approved,
    /// Somebody said no.
    Rejected,
    /// Nobody answered in time.
    Expired,
    /// Whoever asked does not wait any more.
    Cancelled,
    /// The plane that waited died.
    Interrupted,
}

impl ApprovalState {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    /// Tells whether answers decided it.
    pub const fn is_decided(self) -> bool {
        matches!(self, Self::Approved | Self::Rejected)
    }
}

/// One answer that counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenAnswer {
    /// What was said.
    pub answer: ApprovalAnswer,
    /// By whom.
    pub by: Answerer,
    /// By which door.
    pub door: String,
    /// Why, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For how long it holds.
    #[serde(default)]
    pub remember: Remember,
    /// For how many days, where it is remembered for the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember_days: Option<u32>,
    /// When.
    #[schemars(with = "String")]
    pub time: Timestamp,
}

/// Whether an answer would count now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It counts.
    Open,
    /// The question is decided, or this one has answered: what was said first stands.
    Stands,
}

/// A question and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// What is asked.
    pub ask: ApprovalAsk,
    /// Where it stands by the events alone; time may have run out since.
    pub state: ApprovalState,
    /// The answers that counted, in their order.
    pub answers: Vec<GivenAnswer>,
    /// When it came to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ended: Option<Timestamp>,
    /// The one use that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<OperationId>,
}

impl Approval {
    /// Begins with a question.
    pub const fn new(ask: ApprovalAsk) -> Self {
        Self {
            ask,
            state: ApprovalState::Pending,
            answers: Vec::new(),
            ended: None,
            used: None,
        }
    }

    /// Gives where it stands at a time.
    pub fn state_at(&self, now: Timestamp) -> ApprovalState {
        if self.state == ApprovalState::Pending && now >= self.ask.expires {
            ApprovalState::Expired
        } else {
            self.state
        }
    }

    /// Gives the same as it is at a time.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.state = self.state_at(now);
        self
    }

    /// Tells whether an answer would count.
    ///
    /// # Errors
    ///
    /// `approval_forbidden` for who may not answer; `approval_closed` when it ended without a
    /// decision.
    pub fn standing(&self, by: Answerer, now: Timestamp) -> Result<Standing, Problem> {
        let id = &self.ask.approval_id;
        if !self.ask.entitled.includes(by) {
            return Err(Problem::new(
                ErrorCode::ApprovalForbidden,
                format!(
                    "{} is for the owner to answer, not for the {}",
                    id,
                    by.as_str()
                ),
            ));
        }
        match self.state_at(now) {
            ApprovalState::Pending if self.answers.iter().all(|one| one.by != by) => {
                Ok(Standing::Open)
            }
            ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Rejected => {
                Ok(Standing::Stands)
            }
            state => Err(Problem::new(
                ErrorCode::ApprovalClosed,
                format!("{id} is {}: an answer comes too late", state.as_str()),
            )
            .with_hint("run it again to be asked anew")
            .with_details(serde_json::json!({"state": state}))),
        }
    }

    /// Takes an answer, where it counts.
    pub fn answer(&mut self, given: GivenAnswer) {
        if self.standing(given.by, given.time) != Ok(Standing::Open) {
            return;
        }
        let time = given.time;
        let answer = given.answer;
        self.answers.push(given);
        if answer == ApprovalAnswer::Reject {
            self.end(ApprovalState::Rejected, time);
        } else if self.answers.len() >= self.ask.entitled.needed() {
            self.end(ApprovalState::Approved, time);
        }
    }

    /// Takes an end that no answer made. Nothing but answers approves or rejects.
    pub fn resolve(&mut self, state: ApprovalState, time: Timestamp) {
        if self.state == ApprovalState::Pending
            && !state.is_decided()
            && state != ApprovalState::Pending
        {
            self.end(state, time);
        }
    }

    fn end(&mut self, state: ApprovalState, time: Timestamp) {
        self.state = state;
        self.ended = Some(time);
    }

    /// Tells whether what was approved may be done.
    ///
    /// # Errors
    ///
    /// `grant_refused` when it is not approved, was used already, is for something else, or its time
    /// is over.
    pub fn may_use(&self, binding: &Binding, now: Timestamp) -> Result<(), Problem> {
        let id = &self.ask.approval_id;
        let refused = |why: String| Err(Problem::new(ErrorCode::GrantRefused, why));
        if self.state != ApprovalState::Approved {
            return refused(format!(
                "{id} is {}, not approved",
                self.state_at(now).as_str()
            ));
        }
        if self.used.is_some() {
            return refused(format!("what {id} allowed was done already"));
        }
        if let Some(part) = self.ask.binding.difference(binding) {
            return refused(format!(
                "{id} allowed something else: the {part} is another one"
            ));
        }
        let until = self.ended.and_then(|ended| {
            ended
                .checked_add(SignedDuration::from_secs(USE_SECONDS))
                .ok()
        });
        if until.is_none_or(|until| now >= until) {
            return refused(format!("what {id} allowed was not done in time"));
        }
        Ok(())
    }

    /// Takes a use, where it counts.
    pub fn use_once(&mut self, used: &ApprovalUsed, time: Timestamp) {
        if self.may_use(&used.binding, time).is_ok() {
            self.used = Some(used.use_id.clone());
        }
    }
}

/// Every question of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approvals(BTreeMap<ApprovalId, Approval>);

impl Approvals {
    /// Takes an event; those of other areas, and what is not understood, change nothing.
    pub fn apply(&mut self, event: &Event) {
        fn read<T: serde::de::DeserializeOwned>(event: &Event) -> Option<T> {
            serde_json::from_value(event.data.clone()).ok()
        }
        match event.kind.as_str() {
            event_type::APPROVAL_REQUESTED => {
                if let Some(ask) = read::<ApprovalAsk>(event) {
                    // The first one stands: nobody asks twice by the same id.
                    let id = ask.approval_id.clone();
                    self.0.entry(id).or_insert_with(|| Approval::new(ask));
                }
            }
            event_type::APPROVAL_ANSWERED => {
                if let Some(data) = read::<ApprovalAnswered>(event)
                    && let Some(approval) = self.0.get_mut(&data.approval_id)
                {
                    approval.answer(GivenAnswer {
                        answer: data.answer,
                        by: data.by,
                        door: data.door,
                        reason: data.reason,
                        remember: data.remember,
                        remember_days: data.remember_days,
                        time: event.time,
                    });
                }
            }
            event_type::APPROVAL_RESOLVED => {
                if let Some(data) = read::<ApprovalResolved>(event)
                    && let Some(approval) = self.0.get_mut(&data.approval_id)
                {
                    approval.resolve(data.state, event.time);
                }
            }
            event_type::APPROVAL_USED => {
                if let Some(data) = read::<ApprovalUsed>(event)
                    && let Some(approval) = self.0.get_mut(&data.approval_id)
                {
                    approval.use_once(&data, event.time);
                }
            }
            _ => {}
        }
    }

    /// Finds one.
    pub fn get(&self, id: &ApprovalId) -> Option<&Approval> {
        self.0.get(id)
    }

    /// Lists them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Approval> {
        self.0.values()
    }
}
