//! The same key twice starts one process.
//!
//! A key is claimed by an event. The claim with the lowest position wins, whichever process wrote it;
//! everybody else waits for the outcome of the winner and returns that.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, EventFilter, Subject, event_type};
use cofferdam_core::id::CommandId;
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_journal::Query;
use serde_json::{Value, json};

use crate::run::Opening;
use crate::runtime::Runtime;
use crate::scribe::Line;

/// Who carries a key out.
#[derive(Debug)]
pub(crate) enum Claim {
    /// The one who asked.
    Mine,
    /// Somebody before; this is what they wrote.
    Theirs(Box<Event>),
    /// Somebody cancelled it before it began.
    Cancelled,
}

/// The longest key.
const KEY_BYTES: usize = 256;

/// The first claim of each key, as far as the journal was read.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    epoch: String,
    as_of: u64,
    first: HashMap<String, Event>,
}

impl Runtime {
    /// Claims a key for a command.
    pub(crate) fn claim(
        &self,
        key: &str,
        opening: &Opening<'_>,
        command: &CommandId,
    ) -> Result<Claim, Problem> {
        let mut lines = opening.lines();
        lines.push(Line::new(
            event_type::EXEC_CLAIMED,
            &opening.who.subject(),
            json!({
                "idempotency_key": key,
                "command_id": command,
                "lease": self.plane.lease(),
            }),
        ));
        let first = self.first_of(key, lines)?;
        let is_mine = named(&first, "command_id") == Some(command.as_str());
        Ok(if first.data.get("cancelled") == Some(&Value::Bool(true)) {
            Claim::Cancelled
        } else if is_mine {
            Claim::Mine
        } else {
            Claim::Theirs(Box::new(first))
        })
    }

    /// Cancels a key that nobody has claimed yet; gives the claim of whoever has.
    pub(crate) fn cancel_key(&self, key: &str) -> Result<Option<Box<Event>>, Problem> {
        let line = Line::new(
            event_type::EXEC_CLAIMED,
            &Subject::default(),
            json!({
                "idempotency_key": key,
                "cancelled": true,
                "lease": self.plane.lease(),
            }),
        );
        let first = self.first_of(key, vec![line])?;
        let is_cancelled = first.data.get("cancelled") == Some(&Value::Bool(true));
        Ok((!is_cancelled).then(|| Box::new(first)))
    }

    /// Gives the first claim of a key; writes one where there is none.
    fn first_of(&self, key: &str, lines: Vec<Line>) -> Result<Event, Problem> {
        if key.is_empty() || key.len() > KEY_BYTES {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("an idempotency key has 1 to {KEY_BYTES} bytes"),
            )
            .with_field("idempotency_key"));
        }
        if let Some(first) = self.first_claim(key)? {
            return Ok(first);
        }
        self.scribe.record(lines)?;
        self.first_claim(key)?.ok_or_else(|| {
            Problem::new(
                ErrorCode::JournalIo,
                "a claim that was written is not there",
            )
        })
    }

    /// Finds the claim of a key with the lowest position; what was read once is not read again.
    fn first_claim(&self, key: &str) -> Result<Option<Event>, Problem> {
        // The map is whole after every statement that changes it.
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let mut query = Query::of(EventFilter {
            event_type: Some(event_type::EXEC_CLAIMED.to_owned()),
            ..EventFilter::default()
        })
        .after(claims.as_of)
        .limit(cofferdam_core::limits::PAGE_EVENTS_CAP);
        loop {
            let page = self
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            if page.head.epoch != claims.epoch {
                // Another log: nothing that was known holds.
                let epoch = page.head.epoch.clone();
                let was_fresh = claims.as_of == 0;
                *claims = Claims {
                    epoch,
                    ..Claims::default()
                };
                if !was_fresh {
                    query.after = Some(0);
                    continue;
                }
            }
            let next = page.next();
            claims.as_of = next.unwrap_or(page.head.pos);
            for event in page.events {
                let named = event.data.get("idempotency_key");
                let named = named.and_then(|one| one.as_str()).map(str::to_owned);
                if let Some(named) = named {
                    claims.first.entry(named).or_insert(event);
                }
            }
            match next {
                Some(pos) => query.after = Some(pos),
                None => return Ok(claims.first.get(key).cloned()),
            }
        }
    }

    /// Tells whether whoever wrote a claim lives.
    pub(crate) fn claim_lives(&self, claim: &Event) -> bool {
        named(claim, "lease").is_some_and(|lease| self.is_alive(lease))
    }

    /// Waits until the operation of a claim has an outcome; each has a conversation of its own.
    pub(crate) fn outcome_of(&self, claim: &Event) -> Result<CommandOutcome, Problem> {
        let query = Query::of(EventFilter {
            conversation: claim.conversation.clone(),
            event_type: Some("exec".to_owned()),
            ..EventFilter::default()
        })
        .after(claim.pos)
        .resolved();
        loop {
            let page = self
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            for event in page.events {
                match event.kind.as_str() {
                    event_type::EXEC_ENDED => {
                        return serde_json::from_value(event.data).map_err(|_| interrupted());
                    }
                    event_type::EXEC_SETTLED => return Err(interrupted()),
                    _ => {}
                }
            }
            if !self.claim_lives(claim) {
                return Err(interrupted());
            }
            self.journal()
                .wait_beyond(page.head.pos, Duration::from_millis(250))
                .map_err(|error| error.to_problem())?;
        }
    }
}

pub(crate) fn interrupted() -> Problem {
    Problem::new(
        ErrorCode::EnclosureLost,
        "whoever carried this key out died before there was an outcome",
    )
    .with_hint("take another key to run the command again")
}

pub(crate) fn cancelled() -> Problem {
    Problem::new(
        ErrorCode::Cancelled,
        "the key was cancelled before this start came",
    )
    .with_hint("take another key to run the command")
}

fn named<'a>(event: &'a Event, key: &str) -> Option<&'a str> {
    event.data.get(key).and_then(Value::as_str)
}
