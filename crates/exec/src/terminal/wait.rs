//! Typing, and waiting for what comes of it: no longer than until it is known.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::operation::{InputStatus, TerminalKey, TerminalState};
use serde_json::json;

use super::open::Terminal;
use super::screen::clean;
use super::settle;
use crate::control::{Control, TerminalSize};

/// How long something that one look cannot prove has to stay so.
const STAYS: Duration = Duration::from_millis(120);
/// How long a program that still runs has to be quiet to have answered.
const QUIET: Duration = Duration::from_secs(1);
const FIRST_LOOK: Duration = Duration::from_micros(300);
const LAST_LOOK: Duration = Duration::from_millis(25);
/// How long everything that was read may take to be passed on.
const PASS_ON: Duration = Duration::from_millis(200);

/// What is typed.
#[derive(Debug, Clone, Copy)]
pub struct Typed<'a> {
    /// Text, as it is.
    pub text: &'a str,
    /// Whether Enter follows it.
    pub enter: bool,
    /// Keys that follow.
    pub keys: &'a [TerminalKey],
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Waited {
    /// How the wait ended.
    pub status: InputStatus,
    /// What the terminal is doing.
    pub state: TerminalState,
    /// The program in the foreground.
    pub foreground: Option<String>,
    /// Offset of the first byte that came.
    pub from: u64,
    /// Offset after the last.
    pub to: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// What could not be typed, where something could not.
    pub problem: Option<Problem>,
}

/// What was seen at the end of a wait.
pub(super) struct Settled {
    state: TerminalState,
    foreground: Option<String>,
    /// Whether it is known that nothing more comes by itself.
    known: bool,
    unread: u64,
}

impl Terminal {
    /// Types, and waits until the program in the foreground waits for input again, until it has
    /// ended, or until the time is over, whichever is first.
    ///
    /// That somebody waits for input is a fact of the kernel: the process group in the foreground
    /// sleeps in a read of this terminal, and everything that was typed has been read. A prompt that
    /// looks different, or text that looks like a prompt, makes no difference. `control` ends the wait
    /// early when it is cancelled.
    ///
    /// # Errors
    ///
    /// `terminal_ended` when there is nobody to type to.
    pub fn type_and_wait(
        &self,
        typed: Typed<'_>,
        wait: Duration,
        control: &Control,
    ) -> Result<Waited, Problem> {
        let began = Instant::now();
        let until = began + wait;
        if self.end().is_some() {
            return Err(self.has_ended());
        }
        let from;
        let problem = {
            let _typing = self.typing.lock().unwrap_or_else(PoisonError::into_inner);
            let application = {
                let state = self.shared.state();
                from = state.ring.total();
                state.screen.wants_application_keys()
            };
            let mut bytes = typed.text.as_bytes().to_vec();
            if typed.enter {
                bytes.push(b'\r');
            }
            for key in typed.keys {
                bytes.extend(key.bytes(application));
            }
            self.tell_input(typed, &bytes, from);
            match self.master.write(&bytes, until) {
                Ok(count) if count == bytes.len() => None,
                Ok(count) => Some(Problem::new(
                    ErrorCode::Io,
                    format!(
                        "only {count} of {} bytes could be typed: nobody reads them",
                        bytes.len()
                    ),
                )),
                Err(_) => return Err(self.has_ended()),
            }
        };
        let settled = self.settle(until, control);
        // Whoever waited finds the output in the journal, too.
        self.teller
            .output(&self.shared, Some(self.command_id()), false);
        let (to, quiet) = {
            let state = self.shared.state();
            let quiet = state.last_output.map(|at| at.elapsed());
            (state.ring.total(), quiet)
        };
        let status = if problem.is_some() {
            InputStatus::Error
        } else if settled.known {
            match settled.state {
                TerminalState::Ready | TerminalState::Ended => InputStatus::Completed,
                _ => InputStatus::AwaitingInput,
            }
        } else {
            self.unsettled(typed.text, &settled, (from, to), quiet, wait)
        };
        Ok(Waited {
            status,
            state: settled.state,
            foreground: settled.foreground,
            from,
            to,
            elapsed: began.elapsed(),
            problem,
        })
    }

    /// Names what is left when the time is over and something still runs.
    fn unsettled(
        &self,
        text: &str,
        settled: &Settled,
        (from, to): (u64, u64),
        quiet: Option<Duration>,
        wait: Duration,
    ) -> InputStatus {
        if from == to {
            return InputStatus::NoOutput;
        }
        let wide = TerminalSize {
            rows: 24,
            columns: cofferdam_core::limits::TERMINAL_COLUMNS_CAP,
        };
        let shown = clean(&self.read(from, 64 * 1024).bytes, wide)
            .lines
            .join("\n");
        let only_echo = !text.is_empty() && shown.trim() == text.trim();
        if only_echo {
            return if settled.unread > 0 {
                InputStatus::EchoLoop
            } else {
                InputStatus::Timeout
            };
        }
        if quiet.is_some_and(|quiet| quiet >= QUIET.min(wait / 2)) {
            InputStatus::OutputWithEcho
        } else {
            InputStatus::Timeout
        }
    }

    /// Tells the journal what is about to be typed; what is not shown is not told.
    fn tell_input(&self, typed: Typed<'_>, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        let look = self.master.look();
        let hidden = settle::is_hidden(&look, self.prompt().as_ref());
        let shown = (!hidden && !typed.text.is_empty()).then_some(typed.text);
        {
            let mut state = self.shared.state();
            let plane = &self.teller.plane;
            let masked = shown.map(|text| {
                let (bytes, _) = plane.masker().mask_bytes(text.as_bytes());
                String::from_utf8_lossy(&bytes).into_owned()
            });
            let keys: Vec<&str> = typed.keys.iter().map(TerminalKey::as_str).collect();
            match &masked {
                Some(text) => state.marker(&format!("input {text}")),
                None if keys.is_empty() => state.marker("input (hidden)"),
                None => state.marker(&format!("keys {}", keys.join(" "))),
            }
            if masked.is_some() {
                state.last_input = masked;
            }
        }
        // What was written before it is told before it.
        self.teller
            .output(&self.shared, Some(self.command_id()), false);
        self.teller.say(
            event_type::TERMINAL_INPUT,
            Severity::Info,
            json!({
                "command_id": self.command_id(),
                "offset": offset,
                "text": shown,
                "enter": typed.enter,
                "keys": typed.keys,
                "hidden": hidden,
                "bytes": bytes.len(),
            }),
        );
    }

    /// Types bytes of a person who watches, without waiting.
    ///
    /// # Errors
    ///
    /// `terminal_ended` when there is nobody to type to.
    pub fn type_bytes(&self, bytes: &[u8]) -> Result<usize, Problem> {
        if self.end().is_some() {
            return Err(self.has_ended());
        }
        let _typing = self.typing.lock().unwrap_or_else(PoisonError::into_inner);
        let look = self.master.look();
        let hidden = settle::is_hidden(&look, self.prompt().as_ref());
        let text = (!hidden).then(|| String::from_utf8_lossy(bytes).into_owned());
        self.teller.say(
            event_type::TERMINAL_INPUT,
            Severity::Info,
            json!({
                "command_id": self.command_id(),
                "offset": self.written(),
                "text": text,
                "enter": false,
                "keys": [],
                "hidden": hidden,
                "bytes": bytes.len(),
            }),
        );
        self.master
            .write(bytes, Instant::now() + Duration::from_secs(2))
            .map_err(|_| self.has_ended())
    }

    /// Waits until somebody in the foreground waits for input, the program has ended, or time is
    /// over.
    pub(super) fn settle(&self, until: Instant, control: &Control) -> Settled {
        let mut pause = FIRST_LOOK;
        let mut perhaps: Option<(TerminalState, u64, Instant)> = None;
        loop {
            let (total, held) = {
                let state = self.shared.state();
                if state.ended.is_some() {
                    return Settled {
                        state: TerminalState::Ended,
                        foreground: None,
                        known: true,
                        unread: 0,
                    };
                }
                (state.ring.total(), state.held)
            };
            let look = self.master.look();
            let doing = settle::doing(&look, self.prompt().as_ref());
            let waits = doing.state != TerminalState::Running;
            if waits && doing.certain {
                perhaps = None;
            } else if waits {
                let same =
                    perhaps.is_some_and(|(state, at, _)| state == doing.state && at == total);
                if !same {
                    perhaps = Some((doing.state, total, Instant::now()));
                }
            } else {
                perhaps = None;
            }
            let stays = perhaps.is_none_or(|(_, _, since)| since.elapsed() >= STAYS);
            // All that was written before the look has come to us by then.
            let known = waits
                && stays
                && !held
                && !self.master.has_output()
                && self.control.sync(PASS_ON)
                && !self.shared.state().held;
            let now = Instant::now();
            if known || now >= until || control.is_cancelled() {
                return Settled {
                    state: doing.state,
                    foreground: look.name,
                    known,
                    unread: look.unread,
                };
            }
            let limit = pause.min(until.saturating_duration_since(now));
            let state = self.shared.state();
            if state.ring.total() == total && state.held == held && state.ended.is_none() {
                drop(self.shared.wait(state, limit));
                pause = (pause * 2).min(LAST_LOOK);
            } else {
                pause = FIRST_LOOK;
            }
        }
    }
}
