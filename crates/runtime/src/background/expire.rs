//! Removing output of background commands that has been kept for its time.

use std::time::Duration;

use cofferdam_core::error::Problem;
use cofferdam_core::event::{EventFilter, event_type};
use cofferdam_core::id::CommandId;
use cofferdam_core::limits;
use cofferdam_core::outcome::Status;
use cofferdam_core::spec::Digest;
use cofferdam_journal::Query;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::runtime::Runtime;
use crate::scribe::Line;

impl Runtime {
    /// Removes the kept output of background commands that ended longer ago than `kept`, and says so
    /// in the journal; gives how many commands it was. What their results tell stays.
    ///
    /// # Errors
    ///
    /// When the journal cannot be read or written.
    pub fn expire_output(&self, kept: Duration) -> Result<u64, Problem> {
        let told = |error: cofferdam_journal::JournalError| error.to_problem();
        let kept = SignedDuration::try_from(kept).unwrap_or(SignedDuration::MAX);
        let Ok(before) = self.plane.ambient().now().checked_sub(kept) else {
            return Ok(0);
        };
        let mut query = Query::of(EventFilter {
            event_type: Some(event_type::EXEC_BACKGROUND.to_owned()),
            to: Some(before),
            ..EventFilter::default()
        })
        .backward()
        .limit(limits::PAGE_EVENTS);
        let mut expired = 0;
        loop {
            let page = self.journal().read(&query).map_err(told)?;
            let next = page.next();
            for event in page.events {
                let id = event.data.get("command_id").and_then(Value::as_str);
                let Some(id) = id.and_then(|id| CommandId::parse(id).ok()) else {
                    continue;
                };
                let Some(folded) = self.fold_of(&id, event.conversation)? else {
                    continue;
                };
                if folded.is_expired {
                    // The older ones were seen when this one was.
                    return Ok(expired);
                }
                let (Some(pos), Some(ended)) = (folded.ended_pos, folded.record.ended_at) else {
                    continue;
                };
                if folded.record.status == Status::Running || ended >= before {
                    continue;
                }
                let mut removed = 0;
                let outcome = folded.outcome.as_ref();
                let references = outcome
                    .map(|outcome| [outcome.stdout_full.clone(), outcome.stderr_full.clone()])
                    .or(folded.settled);
                let order = folded.order.as_ref();
                let order =
                    order.and_then(|order| order.get("digest")?.as_str().map(str::to_owned));
                let digests = references
                    .into_iter()
                    .flatten()
                    .filter_map(|reference| reference.digest)
                    .chain(order);
                for digest in digests {
                    removed += u64::from(
                        self.journal()
                            .remove_content(&Digest(digest), pos)
                            .map_err(told)?,
                    );
                }
                self.scribe.say(Line::new(
                    event_type::EXEC_EXPIRED,
                    &folded.subject,
                    json!({"command_id": id, "removed": removed}),
                ))?;
                expired += 1;
            }
            match next {
                Some(pos) => query.after = Some(pos),
                None => return Ok(expired),
            }
        }
    }
}
