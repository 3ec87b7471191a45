//! What a terminal writes, told to the journal: gathered for a moment, its newest end as text.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::id::{CommandId, TerminalId};
use cofferdam_core::limits::{
    TERMINAL_EVENT_BYTES, TERMINAL_EVENT_MILLISECONDS, TERMINAL_RING_BYTES,
};
use cofferdam_core::operation::TerminalName;
use serde_json::{Value, json};

use super::record::unfinished;
use super::state::{Feed, Shared};
use crate::plane::Plane;

/// Whom the events of a terminal are about.
#[derive(Debug)]
pub(super) struct Teller {
    pub(super) plane: Plane,
    pub(super) subject: Subject,
    pub(super) terminal_id: TerminalId,
    pub(super) name: TerminalName,
    /// Held while output is told, so that nothing overtakes it.
    pub(super) telling: Mutex<()>,
}

impl Teller {
    /// Writes an event about the terminal.
    pub(super) fn say(&self, kind: &str, severity: Severity, mut data: Value) {
        data["terminal_id"] = json!(self.terminal_id);
        data["name"] = json!(self.name);
        // A journal that cannot be written stops commands at their intents; a terminal that is open
        // goes on.
        let _ = self.plane.record(&self.subject, kind, severity, data);
    }

    /// Tells all output that has not been told, whole characters only unless it is the end.
    pub(super) fn output(&self, shared: &Shared, command: Option<&CommandId>, end: bool) {
        let _telling = self
            .telling
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let (chunk, first) = {
            let mut state = shared.state();
            state
                .recorder
                .iter_mut()
                .for_each(super::record::Recorder::flush);
            let first = state.told;
            let mut chunk = state.ring.read(first, TERMINAL_RING_BYTES * 2);
            if !end {
                let keep = unfinished(&chunk.bytes);
                chunk.bytes.truncate(chunk.bytes.len() - keep);
            }
            state.told = chunk.to();
            (chunk, first)
        };
        let count = chunk.to() - first;
        if count == 0 {
            return;
        }
        let mut start = chunk.bytes.len().saturating_sub(TERMINAL_EVENT_BYTES);
        while start < chunk.bytes.len() && chunk.bytes[start] & 0xc0 == 0x80 {
            start += 1;
        }
        let text = String::from_utf8_lossy(&chunk.bytes[start..]);
        self.say(
            event_type::TERMINAL_OUTPUT,
            Severity::Debug,
            json!({
                "command_id": command,
                "offset": first,
                "bytes": count,
                "text": text,
                "omitted": chunk.gap + start as u64,
            }),
        );
    }

    /// Tells output as it comes, until the terminal has ended; lets go what is held too long.
    pub(super) fn watch(&self, shared: &Shared, feed: &Feed<'_>) {
        let gather = Duration::from_millis(TERMINAL_EVENT_MILLISECONDS);
        let mut since: Option<Instant> = None;
        loop {
            let holds = feed.let_go(false);
            let mut state = shared.state();
            let silent = state.silent;
            let waiting = state.ring.total() > state.told;
            if waiting && since.is_none() {
                since = Some(Instant::now());
            }
            let due = since.is_some_and(|since| since.elapsed() >= gather);
            if silent || (waiting && due) {
                drop(state);
                self.output(shared, None, silent);
                since = None;
                if silent {
                    return;
                }
                continue;
            }
            let limit = if holds {
                super::state::HOLD
            } else if waiting {
                gather
            } else {
                Duration::from_hours(1)
            };
            state = shared.wait(state, limit);
            drop(state);
        }
    }
}
