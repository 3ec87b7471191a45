//! Commands that go on after the call that started them (E2).
//!
//! What is known of a command is a fold of the journal's events, so that every process says the
//! same, also after a restart; what is kept here is only what reaches into commands that run in
//! this process.

mod attend;
mod cancel;
mod expire;
mod fold;
mod notices;
mod page;
mod start;
mod view;

pub use page::{Follow, Followed};
pub use start::StartCommand;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cofferdam_core::event::Subject;
use cofferdam_core::id::CommandId;
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_exec::Control;

use crate::run::FrontDoor;
use notices::Notices;

/// What runs in this process, and by what it is reached.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    /// Commands that were started to go on.
    commands: Mutex<HashMap<CommandId, Arc<Entry>>>,
    /// Whatever runs, also what somebody waits for.
    controls: Mutex<HashMap<CommandId, Control>>,
    notices: Mutex<Notices>,
    /// Whether a thread listens for requests of other processes.
    listens: Mutex<bool>,
}

impl Attendance {
    fn entry(&self, command: &CommandId) -> Option<Arc<Entry>> {
        lock(&self.commands).get(command).map(Arc::clone)
    }

    fn entry_of_key(&self, key: &str) -> Option<Arc<Entry>> {
        lock(&self.commands)
            .values()
            .find(|entry| entry.key.as_deref() == Some(key))
            .map(Arc::clone)
    }

    pub(crate) fn control(&self, command: &CommandId) -> Option<Control> {
        lock(&self.controls).get(command).cloned()
    }

    /// Remembers how a command is reached, as long as the guard lives.
    pub(crate) fn hold(&self, command: &CommandId, control: &Control) -> Held<'_> {
        lock(&self.controls).insert(command.clone(), control.clone());
        Held {
            attendance: self,
            command: command.clone(),
        }
    }
}

/// Forgets how a command was reached when it is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    attendance: &'a Attendance,
    command: CommandId,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.attendance.controls).remove(&self.command);
    }
}

/// A command that was started to go on.
#[derive(Debug)]
struct Entry {
    command: CommandId,
    key: Option<String>,
    control: Control,
    words: String,
    door: FrontDoor,
    subject: Subject,
    state: Mutex<EntryState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct EntryState {
    /// The journal has its intent.
    is_intended: bool,
    outcome: Option<Box<CommandOutcome>>,
    /// Whoever started it was told that it goes on.
    is_background: bool,
}

impl Entry {
    fn change(&self, change: impl FnOnce(&mut EntryState)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// Waits until something holds, or a moment has come; gives the state of then.
    fn wait(
        &self,
        until: Option<Instant>,
        holds: impl Fn(&EntryState) -> bool,
    ) -> MutexGuard<'_, EntryState> {
        let mut state = lock(&self.state);
        while !holds(&state) {
            state = match until {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.changed
                        .wait_timeout(state, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        state
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
