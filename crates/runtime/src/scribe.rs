//! Writing several events in one step.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{NewEvent, Severity, Subject};
use cofferdam_core::id::EventId;
use cofferdam_core::mask::Masker;
use cofferdam_exec::Plane;
use serde::Serialize;
use serde_json::Value;

/// An event that is about to be written.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) kind: &'static str,
    pub(crate) severity: Severity,
    pub(crate) subject: Subject,
    pub(crate) data: Value,
}

impl Line {
    pub(crate) fn new(kind: &'static str, subject: &Subject, data: Value) -> Self {
        Self {
            kind,
            severity: Severity::Info,
            subject: subject.clone(),
            data,
        }
    }

    pub(crate) const fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

/// Writes events of the runtime's own, with secret values masked.
#[derive(Debug, Clone)]
pub(crate) struct Scribe {
    plane: Plane,
}

impl Scribe {
    /// Lends what masks values that are known to be secret.
    pub(crate) fn masker(&self) -> &Masker {
        self.plane.masker()
    }

    pub(crate) const fn new(plane: Plane) -> Self {
        Self { plane }
    }

    /// Writes events together; gives the position of each.
    pub(crate) fn record(&self, lines: Vec<Line>) -> Result<Vec<u64>, Problem> {
        self.plane.append(self.events(lines))
    }

    /// Takes events to be written together with the next ones.
    pub(crate) fn record_later(&self, lines: Vec<Line>) {
        self.plane.append_later(self.events(lines));
    }

    /// Makes the events of lines, for whoever writes them.
    pub(crate) fn events(&self, lines: Vec<Line>) -> Vec<NewEvent> {
        let ambient = self.plane.ambient();
        lines
            .into_iter()
            .map(|mut line| {
                let redactions = self.masker().mask_json(&mut line.data);
                let (time, random) = ambient.id_parts();
                NewEvent {
                    id: EventId::new(time, random),
                    time: ambient.now(),
                    kind: line.kind.to_owned(),
                    subject: line.subject,
                    causation: None,
                    severity: line.severity,
                    data: line.data,
                    redactions,
                }
            })
            .collect()
    }

    /// Writes one event; gives its position.
    pub(crate) fn say(&self, line: Line) -> Result<u64, Problem> {
        let positions = self.record(vec![line])?;
        positions.first().copied().ok_or_else(|| {
            Problem::new(
                ErrorCode::Internal,
                "the journal gave no position for an event",
            )
        })
    }
}

/// Turns a value of ours into JSON.
pub(crate) fn to_value<T: Serialize>(value: &T) -> Result<Value, Problem> {
    serde_json::to_value(value).map_err(|error| {
        Problem::new(
            ErrorCode::Internal,
            format!("a value cannot be written as JSON: {error}"),
        )
    })
}
