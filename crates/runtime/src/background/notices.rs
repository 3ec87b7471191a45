//! Telling of ends, each once.

use std::collections::{HashMap, VecDeque};

use cofferdam_core::error::Problem;
use cofferdam_core::event::{EventFilter, event_type};
use cofferdam_core::id::{CommandId, ConversationId};
use cofferdam_core::limits;
use cofferdam_core::operation::{CommandNotices, PollCommands};
use cofferdam_core::outcome::Status;
use cofferdam_journal::Query;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::fold::Folded;
use super::lock;
use super::view::limit;
use crate::runtime::Runtime;
use crate::scribe::Line;

/// What is still to be told of.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The journal up to which background commands are known.
    after: u64,
    open: VecDeque<(CommandId, Option<ConversationId>)>,
    /// Commands whose end somebody waits for and will claim.
    expected: HashMap<CommandId, usize>,
}

/// Says that an end will be claimed, until it is dropped.
pub(super) struct Expected<'a> {
    runtime: &'a Runtime,
    command: CommandId,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        let mut notices = lock(&self.runtime.attendance.notices);
        if let Some(count) = notices.expected.get_mut(&self.command) {
            *count -= 1;
            if *count == 0 {
                notices.expected.remove(&self.command);
            }
        }
    }
}

impl Runtime {
    pub(super) fn expect(&self, command: &CommandId) -> Expected<'_> {
        let mut notices = lock(&self.attendance.notices);
        *notices.expected.entry(command.clone()).or_default() += 1;
        Expected {
            runtime: self,
            command: command.clone(),
        }
    }

    /// Writes that an end was told; tells whether this was the first time, whichever process asks.
    pub(super) fn acknowledge(&self, folded: &Folded, how: &str) -> Result<bool, Problem> {
        let pos = self.scribe.say(Line::new(
            event_type::EXEC_ACKNOWLEDGED,
            &folded.subject,
            json!({"command_id": folded.record.command_id, "how": how}),
        ))?;
        let conversation = folded.record.conversation_id.clone();
        let now = self.fold_of(&folded.record.command_id, conversation)?;
        Ok(now.is_some_and(|now| now.acknowledged == Some(pos)))
    }

    /// Takes the ends of background commands of which nobody was told yet. Each is given once, also
    /// when it was interrupted by the end of the process that it belonged to.
    ///
    /// # Errors
    ///
    /// `invalid_request` for a limit that is none, and when the journal cannot be read or written.
    pub fn poll_commands(&self, request: &PollCommands) -> Result<CommandNotices, Problem> {
        let limit = limit(request.limit, 100)?;
        // One at a time: what one takes, no other sees.
        let mut notices = lock(&self.attendance.notices);
        self.learn(&mut notices)?;
        let mut ended = Vec::new();
        let mut running = 0;
        let mut open = std::mem::take(&mut notices.open);
        while let Some((command, conversation)) = open.pop_front() {
            let is_expected = notices.expected.contains_key(&command);
            let folded = self.fold_of(&command, conversation.clone());
            let keep = match folded {
                Err(problem) => {
                    notices.open.push_back((command, conversation));
                    notices.open.append(&mut open);
                    return Err(problem);
                }
                Ok(None) => false,
                Ok(Some(folded)) if folded.record.status == Status::Running => {
                    running += 1;
                    true
                }
                Ok(Some(folded)) if folded.acknowledged.is_some() => false,
                Ok(Some(_)) if is_expected || ended.len() == limit => true,
                Ok(Some(mut folded)) => {
                    if self.acknowledge(&folded, "notified")? {
                        folded.record.notified = true;
                        ended.push(folded.record);
                    }
                    false
                }
            };
            if keep {
                notices.open.push_back((command, conversation));
            }
        }
        ended.sort_by_key(|record| record.ended_at);
        Ok(CommandNotices { ended, running })
    }

    /// Takes background commands of which the journal has told since the last time.
    fn learn(&self, notices: &mut Notices) -> Result<(), Problem> {
        let kept = SignedDuration::from_secs(limits::OUTPUT_KEPT_SECONDS as i64);
        let mut query = Query::of(EventFilter {
            event_type: Some(event_type::EXEC_BACKGROUND.to_owned()),
            from: self.plane.ambient().now().checked_sub(kept).ok(),
            ..EventFilter::default()
        })
        .after(notices.after)
        .limit(limits::PAGE_EVENTS_CAP);
        loop {
            let page = self
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            let next = page.next();
            for event in page.events {
                notices.after = event.pos;
                let id = event.data.get("command_id").and_then(Value::as_str);
                if let Some(id) = id.and_then(|id| CommandId::parse(id).ok()) {
                    notices.open.push_back((id, event.conversation));
                }
            }
            match next {
                Some(pos) => query.after = Some(pos),
                None => return Ok(()),
            }
        }
    }
}
