//! Starting a command that may go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, Severity, event_type};
use cofferdam_core::id::CommandId;
use cofferdam_core::limits;
use cofferdam_core::operation::{BackgroundStart, OutputView, RunCommand, wait_time};
use cofferdam_core::outcome::{CommandOutcome, Status};
use cofferdam_core::spec::Network;
use cofferdam_exec::{CommandIo, Control};
use serde_json::json;

use super::page::PageRequest;
use super::{Entry, lock};
use crate::host::PolicyRequest;
use crate::idempotency::Claim;
use crate::participants::Participants;
use crate::refusal;
use crate::run::{FrontDoor, Opening, RunRequest};
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// A request to start a command and to wait only for a while.
#[derive(Debug)]
pub struct StartCommand {
    /// Workspace and walls. They are resolved before the call returns, and hold until the command's
    /// end whatever becomes of the policy.
    pub policy: PolicyRequest,
    /// The command.
    pub command: RunCommand,
    /// By which door it came.
    pub front_door: FrontDoor,
    /// Seconds to wait for an early end, at most 5; 5 without.
    pub wait_seconds: Option<f64>,
}

/// How long is waited for an early end.
#[derive(Debug, Clone, Copy)]
struct FirstWait {
    until: Instant,
    length: Duration,
    is_clamped: bool,
}

impl Runtime {
    /// Starts a command on a thread of its own and waits a while for its end.
    ///
    /// One that ends within the wait gives its result and is no background command. Every other one
    /// goes on until its end, its time limit, [`Runtime::cancel_command`], or the end of this
    /// process. Refusals are results, as with [`Runtime::run_command`].
    ///
    /// # Errors
    ///
    /// `invalid_request` for a wait that is no number from 0 on or a key that is none,
    /// `too_many_commands`, and when the journal cannot be written.
    pub fn start_command(
        self: &Arc<Self>,
        request: StartCommand,
    ) -> Result<BackgroundStart, Problem> {
        let most = limits::FIRST_WAIT_SECONDS as f64;
        let (length, is_clamped) = wait_time("wait_seconds", request.wait_seconds, most, most)?;
        let wait = FirstWait {
            until: Instant::now() + length,
            length,
            is_clamped,
        };
        let StartCommand {
            policy,
            mut command,
            front_door,
            ..
        } = request;
        let door = match front_door {
            FrontDoor::Protocol => FrontDoor::ProtocolBackground,
            other => other,
        };
        let who = Participants::new(self.plane.ambient());
        let words = command.command.summary();
        let id = self.command_id();
        let opening = Opening {
            who: &who,
            words: &words,
            door,
        };
        let key = command.idempotency_key.take();
        if let Some(entry) = key
            .as_deref()
            .and_then(|key| self.attendance.entry_of_key(key))
        {
            return self.follow_start(&entry, wait);
        }
        self.make_room()?;
        let told = match key.as_deref() {
            None => false,
            Some(key) => match self.claim(key, &opening, &id)? {
                Claim::Mine => true,
                Claim::Theirs(claim) => return self.follow_claim(&claim, wait),
                Claim::Cancelled => {
                    let problem = crate::idempotency::cancelled();
                    let asked = refusal::asked_for(&policy.owner, Network::None);
                    let isolation = refusal::no_walls(asked, self.uid());
                    let outcome = refusal::outcome(id, isolation, problem, 0);
                    let outcome = self.tell_refusal(&opening, outcome, false);
                    return Ok(early(outcome, wait));
                }
            },
        };
        let control = Control::of(id.clone());
        let entry = Arc::new(Entry {
            command: id.clone(),
            key,
            control: control.clone(),
            words: words.clone(),
            door,
            subject: who.subject(),
            state: std::sync::Mutex::default(),
            changed: std::sync::Condvar::new(),
        });
        let weak = Arc::downgrade(&entry);
        control.when_intended(move || {
            if let Some(entry) = weak.upgrade() {
                entry.change(|state| state.is_intended = true);
            }
        });
        lock(&self.attendance.commands).insert(id.clone(), Arc::clone(&entry));
        let work = Work {
            policy,
            command,
            door,
            who,
            words,
            told,
        };
        let (runtime, own) = (Arc::clone(self), Arc::clone(&entry));
        let spawned = std::thread::Builder::new()
            .name("background".to_owned())
            .spawn(move || runtime.carry(&own, work));
        if let Err(error) = spawned {
            lock(&self.attendance.commands).remove(&id);
            return Err(Problem::new(
                ErrorCode::SpawnFailed,
                format!("cannot start a thread for the command: {error}"),
            ));
        }
        self.attend();
        self.follow_start(&entry, wait)
    }

    fn make_room(&self) -> Result<(), Problem> {
        if lock(&self.attendance.commands).len() < limits::BACKGROUND_COMMANDS {
            return Ok(());
        }
        Err(Problem::new(
            ErrorCode::TooManyCommands,
            format!(
                "{} background commands run already",
                limits::BACKGROUND_COMMANDS
            ),
        )
        .with_hint("wait for one of them, or cancel one"))
    }

    /// Runs the command of an entry to its end.
    fn carry(self: &Arc<Self>, entry: &Arc<Entry>, work: Work) {
        let Work {
            policy,
            command,
            door,
            who,
            words,
            told,
        } = work;
        let opening = Opening {
            who: &who,
            words: &words,
            door,
        };
        let request = RunRequest {
            policy,
            command,
            front_door: door,
            io: CommandIo::Capture { input: None },
            control: entry.control.clone(),
        };
        let ran = catch_unwind(AssertUnwindSafe(|| self.carry_out(request, &opening, told)));
        let outcome = ran.unwrap_or_else(|_| self.broken(entry));
        entry.change(|state| state.outcome = Some(Box::new(outcome)));
        lock(&self.attendance.commands).remove(&entry.command);
    }

    /// Tells of a command whose thread broke off: it is ended by then, its enclosure was dropped.
    fn broken(&self, entry: &Entry) -> CommandOutcome {
        let problem = Problem::new(
            ErrorCode::Internal,
            "the thread of the command broke off; the command was ended",
        );
        let isolation = refusal::no_walls(
            cofferdam_core::outcome::IsolationLevel {
                provider: None,
                network: Network::None,
            },
            self.uid(),
        );
        let outcome = CommandOutcome::never_ran(entry.command.clone(), isolation, problem, 0);
        if let Ok(data) = to_value(&outcome) {
            let line = Line::new(event_type::EXEC_ENDED, &entry.subject, data);
            // Without a journal there is nobody left to be told.
            let _ = self.scribe.say(line.severity(Severity::Error));
        }
        outcome
    }

    /// Waits for an early end of what this process runs.
    fn follow_start(&self, entry: &Entry, wait: FirstWait) -> Result<BackgroundStart, Problem> {
        drop(entry.wait(None, |state| state.is_intended || state.outcome.is_some()));
        let mut state = entry.wait(Some(wait.until), |state| state.outcome.is_some());
        if let Some(outcome) = &state.outcome {
            return Ok(early((**outcome).clone(), wait));
        }
        let timeout_ms = self.planned_timeout(entry)?;
        if !state.is_background {
            self.scribe.say(Line::new(
                event_type::EXEC_BACKGROUND,
                &entry.subject,
                json!({
                    "command_id": entry.command,
                    "lease": self.plane.lease(),
                    "command": entry.words,
                    "front_door": entry.door.as_str(),
                    "idempotency_key": entry.key,
                    "timeout_ms": timeout_ms.0,
                }),
            ))?;
            state.is_background = true;
        }
        drop(state);
        let output = self.page(&PageRequest::first(&entry.command, OutputView::Combined))?;
        Ok(BackgroundStart {
            background: true,
            command_id: entry.command.clone(),
            status: Status::Running,
            result: None,
            output: Some(output),
            timeout_ms: timeout_ms.0,
            timeout_clamped: timeout_ms.1,
            wait_ms: wait.length.as_millis() as u64,
            wait_clamped: wait.is_clamped,
        })
    }

    /// Finds the time limit in effect, as the journal has it.
    fn planned_timeout(&self, entry: &Entry) -> Result<(Option<u64>, bool), Problem> {
        let found = self.fold_of(&entry.command, entry.subject.conversation.clone())?;
        Ok(found.map_or((None, false), |found| {
            (found.record.timeout_ms, found.timeout_clamped)
        }))
    }

    /// Waits for an early end of what somebody else started with the same key.
    fn follow_claim(&self, claim: &Event, wait: FirstWait) -> Result<BackgroundStart, Problem> {
        let id = claim
            .data
            .get("command_id")
            .and_then(|id| id.as_str())
            .and_then(|id| CommandId::parse(id).ok())
            .ok_or_else(|| Problem::new(ErrorCode::JournalCorrupt, "a claim names no command"))?;
        loop {
            let head = self
                .journal()
                .head()
                .map_err(|error| error.to_problem())?
                .pos;
            let found = self.fold_of(&id, claim.conversation.clone())?;
            let left = wait.until.saturating_duration_since(Instant::now());
            let running = found
                .as_ref()
                .is_none_or(|found| found.record.status == Status::Running);
            if let Some(outcome) = found.as_ref().and_then(|found| found.outcome.clone()) {
                return Ok(early(outcome, wait));
            }
            if running && found.is_none() && !self.claim_lives(claim) {
                return Err(crate::idempotency::interrupted());
            }
            if !running || left.is_zero() {
                let output = self
                    .page(&PageRequest::first(&id, OutputView::Combined))
                    .ok();
                return Ok(BackgroundStart {
                    background: true,
                    command_id: id,
                    status: found
                        .as_ref()
                        .map_or(Status::Running, |found| found.record.status),
                    result: None,
                    output,
                    timeout_ms: found.as_ref().and_then(|found| found.record.timeout_ms),
                    timeout_clamped: found.is_some_and(|found| found.timeout_clamped),
                    wait_ms: wait.length.as_millis() as u64,
                    wait_clamped: wait.is_clamped,
                });
            }
            self.journal()
                .wait_beyond(head, left.min(Duration::from_millis(250)))
                .map_err(|error| error.to_problem())?;
        }
    }
}

/// What the thread of a command takes with it.
struct Work {
    policy: PolicyRequest,
    command: RunCommand,
    door: FrontDoor,
    who: Participants,
    words: String,
    told: bool,
}

/// The answer for a command that ended within the wait.
fn early(outcome: CommandOutcome, wait: FirstWait) -> BackgroundStart {
    BackgroundStart {
        background: false,
        command_id: outcome.command_id.clone(),
        status: outcome.status,
        timeout_ms: outcome.timeout_ms,
        timeout_clamped: outcome.timeout_clamped,
        result: Some(outcome),
        output: None,
        wait_ms: wait.length.as_millis() as u64,
        wait_clamped: wait.is_clamped,
    }
}
