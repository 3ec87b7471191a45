//! The same key twice starts one process.
//!
//! A key is claimed by an event. The claim with the lowest position wins, whichever process wrote it;
//! everybody else waits for the outcome of the winner and returns that.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, EventFilter, event_type};
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_journal::Query;
use serde_json::json;

use crate::run::Opening;
use crate::runtime::Runtime;
use crate::scribe::Line;

/// Who carries a key out.
#[derive(Debug)]
pub(crate) enum Claim {
    /// The one who asked.
    Mine,
    /// Somebody before; this is what came out.
    Ended(Box<CommandOutcome>),
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
    /// Claims a key, or waits for the outcome of whoever had it first.
    pub(crate) fn claim(&self, key: &str, opening: &Opening<'_>) -> Result<Claim, Problem> {
        if key.is_empty() || key.len() > KEY_BYTES {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("an idempotency key has 1 to {KEY_BYTES} bytes"),
            )
            .with_field("idempotency_key"));
        }
        let first = if let Some(first) = self.first_claim(key)? {
            first
        } else {
            self.write_claim(key, opening)?;
            self.first_claim(key)?.ok_or_else(|| {
                Problem::new(
                    ErrorCode::JournalIo,
                    "a claim that was written is not there",
                )
            })?
        };
        match &first.op {
            Some(operation) if *operation == opening.who.operation => Ok(Claim::Mine),
            Some(_) => self
                .outcome_of(&first)
                .map(|outcome| Claim::Ended(Box::new(outcome))),
            None => Err(Problem::new(
                ErrorCode::JournalCorrupt,
                "a claim names no operation",
            )),
        }
    }

    fn write_claim(&self, key: &str, opening: &Opening<'_>) -> Result<(), Problem> {
        let mut lines = opening.lines();
        lines.push(Line::new(
            event_type::POLICY_DECIDED,
            &opening.who.subject(),
            json!({
                "operation": "run_command",
                "verdict": "claim",
                "rule": "idempotency_key",
                "why": "the key was new",
                "idempotency_key": key,
                "lease": self.plane.lease(),
            }),
        ));
        self.scribe.record(lines).map(drop)
    }

    /// Finds the claim of a key with the lowest position; what was read once is not read again.
    fn first_claim(&self, key: &str) -> Result<Option<Event>, Problem> {
        // The map is whole after every statement that changes it.
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let mut query = Query::of(EventFilter {
            event_type: Some(event_type::POLICY_DECIDED.to_owned()),
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

    /// Waits until the operation of a claim has an outcome; each has a conversation of its own.
    fn outcome_of(&self, claim: &Event) -> Result<CommandOutcome, Problem> {
        let query = Query::of(EventFilter {
            conversation: claim.conversation.clone(),
            event_type: Some("exec".to_owned()),
            ..EventFilter::default()
        })
        .after(claim.pos)
        .resolved();
        let lease = claim.data.get("lease").and_then(|one| one.as_str());
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
            if !lease.is_some_and(|lease| self.is_alive(lease)) {
                return Err(interrupted());
            }
            self.journal()
                .wait_beyond(page.head.pos, Duration::from_millis(250))
                .map_err(|error| error.to_problem())?;
        }
    }
}

fn interrupted() -> Problem {
    Problem::new(
        ErrorCode::EnclosureLost,
        "whoever carried this key out died before there was an outcome",
    )
    .with_hint("take another key to run the command again")
}
