//! From what was seen to the outcome that is told.

use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::id::CommandId;
use cofferdam_core::outcome::{
    CommandOutcome, Denial, DenialSource, LimitInEffect, LimitReason, LimitedResource,
    OutputReference, Status, signal_name,
};
use cofferdam_core::spec::CommandSpec;
use serde_json::{Value, json};

use super::collect::{Collection, StreamEnd};
use super::pump::Stop;
use crate::backend::{Ended, Exit};
use crate::background::{Shelf, order_value};
use crate::hints;
use crate::limits;
use crate::output::{Stream, text_tail};
use crate::protect::{Change, undone};
use crate::standing::Place;

/// What the kernel sends to who has used up its processor time.
const SIGXCPU: u8 = 24;

/// One event that goes with an outcome.
pub(crate) struct Told {
    pub(crate) kind: &'static str,
    pub(crate) severity: Severity,
    pub(crate) data: Value,
}

/// Everything that was seen of a command.
pub(super) struct Facts<'a> {
    place: &'a Place,
    command: &'a CommandSpec,
    pub(super) command_id: CommandId,
    pub(super) collection: Collection<'a>,
    pub(super) ended: Option<Ended>,
    pub(super) stop: Option<Stop>,
    pub(super) changes: Vec<Change>,
    /// What the way out refused.
    pub(super) refused: Vec<Denial>,
    /// Whether something that was let live may still write to the command's streams.
    pub(super) holds_pipes: bool,
    pub(super) limits: Vec<LimitInEffect>,
    /// Bounds that were met.
    pub(super) reasons: Vec<LimitReason>,
    clamped: bool,
}

impl<'a> Facts<'a> {
    pub(super) fn new(
        place: &'a Place,
        command: &'a CommandSpec,
        command_id: &CommandId,
        clamped: bool,
        shelf: Shelf,
    ) -> Self {
        Self {
            place,
            command,
            command_id: command_id.clone(),
            collection: Collection::new(place.output_limit, place.plane.masker(), shelf),
            ended: None,
            stop: None,
            changes: Vec::new(),
            refused: Vec::new(),
            holds_pipes: false,
            limits: Vec::new(),
            reasons: Vec::new(),
            clamped,
        }
    }

    /// Makes the outcome, and the events that go before it.
    pub(super) fn finish(mut self, elapsed: Duration) -> (CommandOutcome, Vec<Told>) {
        let (status, mut error) = self.status();
        self.collection.finish();
        let out = self.collection.end_of(Stream::Stdout);
        let err = self.collection.end_of(Stream::Stderr);
        let (stdout, stdout_encoding, out_cut) = text_tail(&out.tail, out.is_whole());
        let (stderr, stderr_encoding, err_cut) = text_tail(&err.tail, err.is_whole());
        let (arrival, arrival_whole) = self.collection.arrival();
        let (output, _, cut) = text_tail(&arrival, arrival_whole);
        let exit = self.ended.as_ref().map(|ended| ended.exit);
        let hints = if status == Status::Failed {
            let mut hints = hints::guess(&output, &self.place.spec);
            hints.extend(limits::guess(&output, self.ended.as_ref(), &self.limits));
            hints
        } else {
            Vec::new()
        };
        let (mut denials, mut events) = self.denials();
        for (change, _) in denials
            .iter()
            .zip(&self.changes)
            .filter(|(_, one)| !one.undone)
        {
            error.get_or_insert_with(|| {
                Problem::new(
                    ErrorCode::Io,
                    format!(
                        "{} was changed by the command and could not be put back",
                        change.subject
                    ),
                )
                .with_hint("look at it before any tool of the host does")
            });
        }
        denials.append(&mut self.refused);
        self.name_reasons(out.dropped + err.dropped > 0);
        let stdout_full = self.reference(Stream::Stdout, &out, out_cut);
        let stderr_full = self.reference(Stream::Stderr, &err, err_cut);
        events.extend(self.order());
        if let Some(failure) = self.collection.failure.take() {
            error.get_or_insert_with(|| spill_problem(&failure));
        }
        let mut ended = self.ended.take();
        let kept = ended
            .as_mut()
            .and_then(|one| one.kept.take())
            .map(|tree| tree.processes)
            .unwrap_or_default();
        let pipes_held_by = if self.holds_pipes {
            kept.iter().map(|one| one.pid).collect()
        } else {
            Vec::new()
        };
        let outcome = CommandOutcome {
            command_id: self.command_id.clone(),
            success: status == Status::Completed,
            status,
            output,
            stdout,
            stderr,
            stdout_encoding,
            stderr_encoding,
            return_code: match exit {
                Some(Exit::Code(code)) => Some(code),
                _ => None,
            },
            signal: match exit {
                Some(Exit::Signal(number)) => Some(signal_name(number)),
                _ => None,
            },
            truncated: out_cut || err_cut || cut,
            elapsed_ms: elapsed.as_millis() as u64,
            isolation: self.place.isolation.clone(),
            published: self.place.published(),
            denials,
            hints,
            stdout_full,
            stderr_full,
            leftovers: ended
                .as_ref()
                .map(|one| one.leftovers.clone())
                .unwrap_or_default(),
            kept,
            pipes_held_by,
            ended_by: ended.as_ref().map(|one| one.by),
            usage: ended.map(|one| one.usage).unwrap_or_default(),
            timeout_ms: self.command.timeout_ms,
            timeout_clamped: self.clamped,
            limits: std::mem::take(&mut self.limits),
            reasons: std::mem::take(&mut self.reasons),
            undone: undone(&self.changes),
            error,
        };
        (outcome, events)
    }

    /// Names the bounds that the plane itself held, beside those that the kernel counted.
    fn name_reasons(&mut self, has_dropped: bool) {
        match self.stop {
            Some(Stop::Timeout) => self.reasons.push(LimitReason::TimeLimit),
            Some(Stop::Idle) => self.reasons.push(LimitReason::IdleLimit),
            _ => {}
        }
        let bound = self
            .limits
            .iter()
            .find(|one| one.limit == LimitedResource::Cpu && one.by.is_some());
        if let (Some(bound), Some(ended)) = (bound, &self.ended) {
            // The kernel counts in ticks.
            let used = (ended.usage.user_ms + ended.usage.system_ms + 100) / 1000;
            // A shell passes the signal of its child on as a code.
            let code = 128 + i32::from(SIGXCPU);
            let says = match ended.exit {
                Exit::Signal(number) => number == SIGXCPU,
                Exit::Code(own) => own == code && used >= bound.requested,
            };
            if says {
                self.reasons.push(LimitReason::CpuLimit);
            }
        }
        if has_dropped && self.collection.failure.is_none() {
            self.reasons.push(LimitReason::OutputLimit);
        }
    }

    fn status(&self) -> (Status, Option<Problem>) {
        match (&self.stop, self.ended.as_ref().map(|ended| ended.exit)) {
            (Some(Stop::Cancelled), _) => {
                let problem = self
                    .ended
                    .is_none()
                    .then(|| Problem::new(ErrorCode::Cancelled, "cancelled before it started"));
                (Status::Cancelled, problem)
            }
            (Some(Stop::Timeout | Stop::Idle), _) => (Status::Timeout, None),
            (Some(Stop::Lost(problem)), _) => (Status::Error, Some(problem.clone())),
            (_, Some(Exit::Code(0))) => (Status::Completed, None),
            (_, Some(Exit::Code(_) | Exit::Signal(_))) => (Status::Failed, None),
            (_, None) => {
                let problem = Problem::new(
                    ErrorCode::EnclosureLost,
                    "the command's end was not seen in time; its enclosure was taken down",
                );
                (Status::Error, Some(problem))
            }
        }
    }

    fn denials(&self) -> (Vec<Denial>, Vec<Told>) {
        let mut denials = Vec::with_capacity(self.changes.len());
        let mut events = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            let denial = Denial {
                source: DenialSource::Mount,
                rule: change.rule.clone(),
                subject: change.path.to_string(),
                instead: format!(
                    "leave it to the owner: tools of the host obey it, so it was {} and put back",
                    change.what.as_str()
                ),
                askable: false,
                will_not_change: false,
            };
            events.push(Told {
                kind: event_type::FILE_UNDONE,
                severity: Severity::Warning,
                data: json!({
                    "command_id": self.command_id,
                    "path": change.path,
                    "rule": change.rule,
                    "what": change.what,
                    "undone": change.undone,
                }),
            });
            denials.push(denial);
        }
        (denials, events)
    }

    /// Keeps the whole of a stream that is longer than its text.
    fn reference(&mut self, stream: Stream, end: &StreamEnd, cut: bool) -> OutputReference {
        let mut reference = OutputReference {
            bytes: end.total,
            digest: None,
            dropped: end.dropped,
        };
        let journal = self.place.plane.journal();
        let kept = if end.is_filed {
            self.collection
                .file(stream)
                .map(|(file, sum)| journal.adopt_content(file, sum))
        } else {
            let is_needed = cut || std::str::from_utf8(&end.tail).is_err();
            is_needed.then(|| journal.put_content(&end.tail))
        };
        match kept {
            Some(Ok(kept)) => reference.digest = Some(kept.content.0),
            None => {}
            Some(Err(error)) => {
                let error = std::io::Error::other(error);
                self.collection.failure.get_or_insert(error);
            }
        }
        reference
    }

    /// Tells in which order both streams arrived, where both have bytes.
    fn order(&mut self) -> Option<Told> {
        let order = self.collection.order()?;
        let journal = self.place.plane.journal();
        match order_value(&order, |bytes| journal.put_content(bytes)) {
            Ok(mut data) => {
                data["command_id"] = json!(self.command_id);
                Some(Told {
                    kind: event_type::EXEC_ORDER,
                    severity: Severity::Debug,
                    data,
                })
            }
            Err(error) => {
                let error = std::io::Error::other(error);
                self.collection.failure.get_or_insert(error);
                None
            }
        }
    }
}

fn spill_problem(error: &std::io::Error) -> Problem {
    let full = error.kind() == std::io::ErrorKind::StorageFull;
    let code = if full {
        ErrorCode::StorageExhausted
    } else {
        ErrorCode::Io
    };
    Problem::new(code, format!("the whole output could not be kept: {error}"))
        .with_hint("the command itself was not disturbed; free room in the data directory")
}
