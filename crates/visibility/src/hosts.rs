//! Which hosts a task asked for, and what came of it.

use cofferdam_core::event::{Event, event_type};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::{number, owned, text};
use crate::records::HostRecord;
use crate::state::State;

/// A host and a port that something of a task asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostFact {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Connections that were let through.
    pub reached: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Why, as the last decision says it.
    pub reason: Option<String>,
    /// The rule that decided last.
    pub rule: Option<String>,
    /// Where that rule comes from.
    pub origin: Option<String>,
    /// Bytes sent there.
    pub sent: u64,
    /// Bytes received from there.
    pub received: u64,
    /// Position of the last event about it.
    pub pos: u64,
}

impl State {
    pub(crate) fn host(&mut self, event: &Event) {
        let Some(task) = &event.task else { return };
        let data = &event.data;
        let port = number(data, "port").and_then(|port| u16::try_from(port).ok());
        let (Some(host), Some(port)) = (owned(data, "host"), port) else {
            return;
        };
        let task = self.tasks.entry(task.to_string()).or_default();
        let record = task.hosts.entry((host, port)).or_default();
        record.pos = event.pos;
        if event.kind == event_type::NET_CLOSED {
            record.sent += number(data, "sent").unwrap_or(0);
            record.received += number(data, "received").unwrap_or(0);
            return;
        }
        match text(data, "verdict") {
            Some("allowed") => record.reached += 1,
            _ => record.refused += 1,
        }
        record.reason = owned(data, "reason");
        record.rule = owned(data, "rule");
        record.origin = owned(data, "origin");
    }
}

pub(crate) fn fact((host, port): (&String, u16), record: &HostRecord) -> HostFact {
    HostFact {
        host: host.clone(),
        port,
        reached: record.reached,
        refused: record.refused,
        reason: record.reason.clone(),
        rule: record.rule.clone(),
        origin: record.origin.clone(),
        sent: record.sent,
        received: record.received,
        pos: record.pos,
    }
}
