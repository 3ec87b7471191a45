//! Ending commands, from here and from other processes.

use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::event_type;
use cofferdam_core::id::CommandId;
use cofferdam_core::limits;
use cofferdam_core::operation::{CancelCommand, CommandCancelled};
use cofferdam_core::outcome::Status;
use cofferdam_exec::Control;
use serde_json::{Value, json};

use super::fold::Folded;
use super::lock;
use crate::runtime::Runtime;
use crate::scribe::Line;

/// How long is waited for the end of what was asked to end politely.
const PATIENCE: Duration =
    Duration::from_millis(limits::GRACE_MILLISECONDS + limits::SWEEP_MILLISECONDS + 1_000);

impl Runtime {
    /// Ends a command: politely first, by force after a while or at once when the request says so,
    /// and waits for its end.
    ///
    /// By a key it also cancels a start that has not happened yet: a later one gives `cancelled`.
    /// A command of another process is ended by that process when it attends to such requests, and
    /// otherwise by asking the process to end when it runs nothing else.
    ///
    /// # Errors
    ///
    /// `invalid_request` when neither or both names are given, `command_unknown`, `command_state`
    /// when it cannot be reached, and when the journal cannot be read or written.
    pub fn cancel_command(&self, request: &CancelCommand) -> Result<CommandCancelled, Problem> {
        let command = match (&request.command_id, &request.idempotency_key) {
            (Some(command), None) => command.clone(),
            (None, Some(key)) => match self.cancel_key(key)? {
                None => {
                    return Ok(CommandCancelled {
                        command: None,
                        ended: true,
                    });
                }
                Some(claim) => claim
                    .data
                    .get("command_id")
                    .and_then(Value::as_str)
                    .and_then(|id| CommandId::parse(id).ok())
                    .ok_or_else(|| {
                        Problem::new(ErrorCode::JournalCorrupt, "a claim names no command")
                    })?,
            },
            _ => {
                return Err(Problem::new(
                    ErrorCode::InvalidRequest,
                    "give command_id or idempotency_key, one of them",
                )
                .with_field("command_id"));
            }
        };
        if let Some(control) = self.control_of(&command) {
            end(&control, request.force);
            return self.await_end(&command);
        }
        let folded = self.known(&command)?;
        if folded.record.status != Status::Running {
            return Ok(CommandCancelled {
                command: Some(folded.record),
                ended: true,
            });
        }
        self.ask_other_process(&folded, request.force)?;
        self.await_end(&command)
    }

    /// Ends every command of this process, politely first, and waits for their ends, no longer than
    /// `patience`; gives how many go on. For whoever is about to end the process: what still runs
    /// then is ended without a word, and is told to have been interrupted.
    pub fn end_commands(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        let controls: Vec<Control> = lock(&self.attendance.controls).values().cloned().collect();
        controls.iter().for_each(Control::end);
        loop {
            let left =
                lock(&self.attendance.controls).len() + lock(&self.attendance.commands).len();
            if left == 0 || Instant::now() >= until {
                return left;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Finds what reaches into a command of this process.
    fn control_of(&self, command: &CommandId) -> Option<Control> {
        self.attendance
            .entry(command)
            .map(|entry| entry.control.clone())
            .or_else(|| self.attendance.control(command))
    }

    /// Does what another process asked for; what is not ours is not ours.
    pub(super) fn obey(&self, command: &CommandId, force: bool) {
        if let Some(control) = self.control_of(command) {
            end(&control, force);
        }
    }

    fn ask_other_process(&self, folded: &Folded, force: bool) -> Result<(), Problem> {
        let command = &folded.record.command_id;
        let unreachable = |why: String| {
            Problem::new(ErrorCode::CommandState, why)
                .with_hint("look at what runs with: cofferdam ps")
        };
        let lease = folded
            .lease
            .as_deref()
            .ok_or_else(|| unreachable(format!("nobody says which process runs {command}")))?;
        let planes = self.other_planes();
        let plane = planes
            .iter()
            .find(|plane| plane.record().lease.as_str() == lease)
            .ok_or_else(|| unreachable(format!("no living process runs {command}")))?;
        let data = json!({"command_id": command, "force": force, "of": lease});
        self.scribe.say(Line::new(
            event_type::EXEC_CANCEL_REQUESTED,
            &folded.subject,
            data,
        ))?;
        if self.is_attended(lease)? {
            return Ok(());
        }
        let others = self.commands_of(plane)?;
        if let Some(other) = others.iter().find(|one| *one != command) {
            return Err(unreachable(format!(
                "process {} runs {command} and also {other}, so it is not signalled",
                plane.record().pid
            )));
        }
        plane.terminate()
    }

    fn await_end(&self, command: &CommandId) -> Result<CommandCancelled, Problem> {
        let until = Instant::now() + PATIENCE;
        loop {
            let head = self
                .journal()
                .head()
                .map_err(|error| error.to_problem())?
                .pos;
            let folded = self.fold_of(command, None)?;
            let ended = folded
                .as_ref()
                .is_some_and(|folded| folded.record.status != Status::Running);
            let left = until.saturating_duration_since(Instant::now());
            if ended || left.is_zero() {
                return Ok(CommandCancelled {
                    command: folded.map(|folded| folded.record),
                    ended,
                });
            }
            self.journal()
                .wait_beyond(head, left.min(Duration::from_millis(250)))
                .map_err(|error| error.to_problem())?;
        }
    }
}

fn end(control: &Control, force: bool) {
    if force {
        control.cancel();
    } else {
        control.end();
    }
}
