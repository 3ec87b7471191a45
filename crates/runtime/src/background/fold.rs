//! What the journal says of one command, as one value.

use cofferdam_core::error::Problem;
use cofferdam_core::event::{Event, EventFilter, Subject, event_type};
use cofferdam_core::id::{CommandId, ConversationId};
use cofferdam_core::limits;
use cofferdam_core::operation::{AuthoritySnapshot, CommandRecord};
use cofferdam_core::outcome::{CommandOutcome, OutputReference, Status};
use cofferdam_journal::{Journal, Query};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::runtime::Runtime;

/// A command with what is not for everybody.
#[derive(Debug, Clone)]
pub(super) struct Folded {
    pub(super) record: CommandRecord,
    pub(super) outcome: Option<CommandOutcome>,
    /// The order of arrival of its output, as an event tells it.
    pub(super) order: Option<Value>,
    /// What was kept of both streams, where it was settled.
    pub(super) settled: Option<[OutputReference; 2]>,
    pub(super) lease: Option<String>,
    pub(super) timeout_clamped: bool,
    /// Position of the event that ended it.
    pub(super) ended_pos: Option<u64>,
    pub(super) is_expired: bool,
    /// Position and lease of the first acknowledgement.
    pub(super) acknowledged: Option<u64>,
    pub(super) subject: Subject,
}

/// Pages that are looked through for a command before it is given up.
const PAGES: usize = 50;

impl Runtime {
    /// Folds what the journal says of a command; `None` where it says nothing.
    pub(super) fn fold_of(
        &self,
        command: &CommandId,
        conversation: Option<ConversationId>,
    ) -> Result<Option<Folded>, Problem> {
        let conversation = match conversation {
            Some(conversation) => Some(conversation),
            None => match self.subject_of_command(command)? {
                Some(found) => found.conversation,
                None => return Ok(None),
            },
        };
        let read = || -> Result<Option<Folded>, Problem> {
            let mut events = Vec::new();
            for kind in ["exec", event_type::POLICY_DECIDED] {
                let filter = EventFilter {
                    conversation: conversation.clone(),
                    event_type: Some(kind.to_owned()),
                    ..EventFilter::default()
                };
                each(self.journal().as_ref(), filter, |event| events.push(event))?;
            }
            events.sort_by_key(|event| event.pos);
            Ok(fold(command, &events))
        };
        let Some(mut folded) = read()? else {
            return Ok(None);
        };
        let seems_dead = |folded: &Folded| {
            let lease = folded.lease.as_deref();
            folded.record.status == Status::Running
                && !lease.is_some_and(|lease| self.is_alive(lease))
        };
        if seems_dead(&folded) {
            // It may have ended well since the journal was read. Whoever is dead writes no more, so
            // what stands there now is the end of it.
            if let Some(again) = read()? {
                folded = again;
            }
        }
        let is_lost = seems_dead(&folded);
        let record = &mut folded.record;
        if is_lost {
            // Not settled yet, and never a success.
            record.status = Status::Interrupted;
            record.ended_at = Some(record.updated_at);
        }
        let until = record
            .ended_at
            .unwrap_or_else(|| self.plane.ambient().now());
        let elapsed = until.duration_since(record.created_at);
        record.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or_default();
        Ok(Some(folded))
    }

    /// Finds in which line of work a command was, by the time in its id.
    fn subject_of_command(&self, command: &CommandId) -> Result<Option<Subject>, Problem> {
        if let Some(entry) = self.attendance.entry(command) {
            return Ok(Some(entry.subject.clone()));
        }
        let Some(made) = time_of(command) else {
            return Ok(None);
        };
        let mut query = Query::of(EventFilter {
            event_type: Some("exec".to_owned()),
            from: made.checked_sub(SignedDuration::from_secs(2)).ok(),
            ..EventFilter::default()
        })
        .limit(limits::PAGE_EVENTS)
        .resolved();
        for _ in 0..PAGES {
            let page = self
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            let next = page.next();
            let found = page.events.into_iter().find(|event| is_of(event, command));
            if let Some(event) = found {
                return Ok(Some(event.subject()));
            }
            match next {
                Some(pos) => query.after = Some(pos),
                None => break,
            }
        }
        Ok(None)
    }
}

/// Reads every event of a filter, oldest first, large bodies put back.
pub(super) fn each(
    journal: &dyn Journal,
    filter: EventFilter,
    mut take: impl FnMut(Event),
) -> Result<(), Problem> {
    let mut query = Query::of(filter).limit(limits::PAGE_EVENTS_CAP).resolved();
    loop {
        let page = journal.read(&query).map_err(|error| error.to_problem())?;
        let next = page.next();
        page.events.into_iter().for_each(&mut take);
        match next {
            Some(pos) => query.after = Some(pos),
            None => return Ok(()),
        }
    }
}

/// Reads the time in an id: the first twelve digits of a UUIDv7 are milliseconds since 1970.
fn time_of(command: &CommandId) -> Option<Timestamp> {
    let digits = command.as_str().split_once('_')?.1.get(..12)?;
    let milliseconds = i64::from_str_radix(digits, 16).ok()?;
    Timestamp::from_millisecond(milliseconds).ok()
}

fn text<'a>(event: &'a Event, key: &str) -> Option<&'a str> {
    event.data.get(key).and_then(Value::as_str)
}

fn is_of(event: &Event, command: &CommandId) -> bool {
    text(event, "command_id") == Some(command.as_str())
}

/// Makes the value; a pure function of the events of the command's conversation.
fn fold(command: &CommandId, events: &[Event]) -> Option<Folded> {
    let mut folded: Option<Folded> = None;
    for event in events.iter().filter(|event| is_of(event, command)) {
        let one = folded.get_or_insert_with(|| begin(command, event, events));
        take(one, event);
    }
    folded
}

fn begin(command: &CommandId, first: &Event, events: &[Event]) -> Folded {
    let before = |kind: &str| {
        events
            .iter()
            .rev()
            .find(|event| event.kind == kind && event.task == first.task && event.op == first.op)
    };
    let decided = before(event_type::POLICY_DECIDED);
    let word = |key: &str| {
        decided
            .and_then(|event| text(event, key))
            .map(str::to_owned)
    };
    let clamps = decided
        .and_then(|event| event.data.get("clamps"))
        .and_then(Value::as_array);
    Folded {
        record: CommandRecord {
            command_id: command.clone(),
            status: Status::Running,
            background: false,
            command: String::new(),
            cwd: None,
            conversation_id: first.conversation.clone(),
            created_at: first.time,
            updated_at: first.time,
            ended_at: None,
            last_output_at: None,
            elapsed_ms: 0,
            timeout_ms: None,
            notified: false,
            claimed: false,
            authority: AuthoritySnapshot {
                front_door: String::new(),
                rule: word("rule"),
                policy: word("policy"),
                spec_hash: word("spec_hash"),
                provider: decided.and_then(|event| read(event.data.get("provider"))),
                network: decided.and_then(|event| read(event.data.get("network"))),
                isolation: None,
            },
            error: None,
        },
        outcome: None,
        order: None,
        settled: None,
        lease: None,
        timeout_clamped: clamps.is_some_and(|clamps| {
            clamps
                .iter()
                .any(|clamp| clamp.get("field").and_then(Value::as_str) == Some("timeout"))
        }),
        ended_pos: None,
        is_expired: false,
        acknowledged: None,
        subject: first.subject(),
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Option<&Value>) -> Option<T> {
    serde_json::from_value(value?.clone()).ok()
}

fn take(folded: &mut Folded, event: &Event) {
    let record = &mut folded.record;
    record.updated_at = record.updated_at.max(event.time);
    let data = &event.data;
    match event.kind.as_str() {
        event_type::EXEC_INTENDED => {
            record.created_at = event.time;
            record.cwd = text(event, "cwd").map(str::to_owned);
            record.timeout_ms = data.get("timeout_ms").and_then(Value::as_u64);
            record.command = words(data.get("argv"));
            record.authority.spec_hash = text(event, "spec_hash").map(str::to_owned);
            folded.lease = text(event, "lease").map(str::to_owned);
        }
        event_type::EXEC_BACKGROUND => {
            record.background = true;
            if let Some(line) = text(event, "command") {
                line.clone_into(&mut record.command);
            }
            if let Some(door) = text(event, "front_door") {
                door.clone_into(&mut record.authority.front_door);
            }
        }
        event_type::EXEC_OUTPUT => record.last_output_at = Some(event.time),
        event_type::EXEC_ORDER => folded.order = Some(data.clone()),
        event_type::EXEC_ENDED => {
            let outcome: Result<CommandOutcome, _> = serde_json::from_value(data.clone());
            if let Ok(outcome) = outcome {
                record.status = outcome.status;
                record.timeout_ms = outcome.timeout_ms;
                record.error.clone_from(&outcome.error);
                record.authority.isolation = Some(outcome.isolation.clone());
                folded.timeout_clamped = outcome.timeout_clamped;
                folded.outcome = Some(outcome);
            } else {
                // The body has expired; the first word of it is still known.
                record.status = Status::Error;
            }
            record.ended_at = Some(event.time);
            folded.ended_pos = Some(event.pos);
        }
        event_type::EXEC_SETTLED => {
            record.status = Status::Interrupted;
            record.ended_at = Some(event.time);
            folded.ended_pos = Some(event.pos);
            let kept = |key: &str| {
                data.get(key)
                    .and_then(|kept| serde_json::from_value(kept.clone()).ok())
                    .unwrap_or(OutputReference {
                        bytes: 0,
                        digest: None,
                        dropped: 0,
                    })
            };
            folded.settled = Some([kept("stdout_full"), kept("stderr_full")]);
            folded.order = data.get("order").cloned();
        }
        // Only the first one counts.
        event_type::EXEC_ACKNOWLEDGED if folded.acknowledged.is_none() => {
            folded.acknowledged = Some(event.pos);
            match text(event, "how") {
                Some("claimed") => record.claimed = true,
                _ => record.notified = true,
            }
        }
        event_type::EXEC_EXPIRED => folded.is_expired = true,
        _ => {}
    }
}

fn words(argv: Option<&Value>) -> String {
    argv.and_then(Value::as_array)
        .map(|words| {
            words
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .unwrap_or_default()
}
