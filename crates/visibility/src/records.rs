//! What is kept of each thing that events are about. Bounded per thing: output is never kept.

use std::collections::BTreeMap;

use cofferdam_core::event::Event;
use cofferdam_core::outcome::{Denial, Status, Usage};
use cofferdam_core::spec::{Network, ProviderKind};
use cofferdam_core::task::{ChangeKind, IsolationMode, VerificationStatus};
use jiff::Timestamp;

/// When something began and ended, and where that is said.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Life {
    pub(crate) first_pos: u64,
    pub(crate) started: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
    pub(crate) status: Option<Status>,
}

impl Life {
    pub(crate) fn seen(&mut self, event: &Event) {
        if self.first_pos == 0 {
            self.first_pos = event.pos;
        }
    }

    pub(crate) fn start(&mut self, event: &Event) {
        self.started.get_or_insert(event.time);
        // An end that was already told stays: events of two processes may come in either order.
        self.status.get_or_insert(Status::Running);
    }

    pub(crate) fn end(&mut self, event: &Event, status: Status) {
        self.ended = Some(event.time);
        self.status = Some(status);
    }

    pub(crate) fn runs(&self) -> bool {
        self.status == Some(Status::Running)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ConversationRecord {
    pub(crate) life: Life,
    pub(crate) goal: Option<String>,
    pub(crate) front_door: Option<String>,
    pub(crate) root_agent: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AgentRecord {
    pub(crate) life: Life,
    pub(crate) name: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) conversation: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TaskRecord {
    pub(crate) life: Life,
    pub(crate) goal: Option<String>,
    pub(crate) isolation_mode: Option<IsolationMode>,
    pub(crate) state: Option<String>,
    pub(crate) summary: Option<String>,
    pub(crate) branch: Option<String>,
    pub(crate) base: Option<String>,
    pub(crate) verification: Option<VerificationStatus>,
    pub(crate) conversation: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) facts: Vec<FactRecord>,
    pub(crate) files: BTreeMap<String, FileRecord>,
    pub(crate) denials: Vec<DenialRecord>,
    /// Hosts and ports that were decided, with what came of it.
    pub(crate) hosts: BTreeMap<(String, u16), HostRecord>,
    pub(crate) last_edit: Option<(u64, Timestamp)>,
    pub(crate) last_passing_check: Option<(u64, Timestamp)>,
    pub(crate) commands: Vec<String>,
}

/// A claim or a fact, as `evidence.recorded` or a message said it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FactRecord {
    pub(crate) pos: u64,
    pub(crate) time: Timestamp,
    pub(crate) id: Option<String>,
    pub(crate) kind: String,
    pub(crate) summary: String,
    pub(crate) by: Option<String>,
    pub(crate) claim: Option<String>,
    pub(crate) supports: Option<bool>,
    pub(crate) command: Option<String>,
}

/// A host and a port that something of a task asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostRecord {
    pub(crate) reached: u64,
    pub(crate) refused: u64,
    pub(crate) reason: Option<String>,
    pub(crate) rule: Option<String>,
    pub(crate) origin: Option<String>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) pos: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FileRecord {
    pub(crate) change: ChangeKind,
    pub(crate) from: Option<String>,
    pub(crate) pos: u64,
    pub(crate) commands: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DenialRecord {
    pub(crate) pos: u64,
    pub(crate) command: Option<String>,
    pub(crate) denial: Denial,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CommandRecord {
    pub(crate) life: Life,
    pub(crate) line: Option<String>,
    pub(crate) conversation: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) return_code: Option<i64>,
    pub(crate) signal: Option<String>,
    pub(crate) elapsed_ms: Option<u64>,
    pub(crate) provider: Option<ProviderKind>,
    pub(crate) network: Option<Network>,
    pub(crate) denials: u64,
    pub(crate) usage: Usage,
    pub(crate) output_bytes: u64,
    pub(crate) error: Option<String>,
    pub(crate) last_pos: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct VerifierRecord {
    pub(crate) life: Life,
    pub(crate) task: Option<String>,
    pub(crate) planned: Vec<String>,
    pub(crate) checks: Vec<CheckRecord>,
    pub(crate) verdict: Option<VerificationStatus>,
    pub(crate) tampered_inputs: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CheckRecord {
    pub(crate) pos: u64,
    pub(crate) time: Timestamp,
    pub(crate) check: String,
    pub(crate) status: VerificationStatus,
    pub(crate) return_code: Option<i64>,
    pub(crate) elapsed_ms: Option<u64>,
    pub(crate) command: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MessageRecord {
    pub(crate) pos: u64,
    pub(crate) time: Timestamp,
    pub(crate) id: String,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) text: String,
    pub(crate) task: Option<String>,
}
