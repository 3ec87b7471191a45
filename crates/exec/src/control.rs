//! A handle by which other threads reach into a running command.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::id::CommandId;
use rustix::event::{EventfdFlags, eventfd};

use crate::background::Shelf;

/// Rows and columns of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// What another thread asks of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// End it, whatever it is doing.
    Cancel,
    /// Ask it to end, and end it when it has not after a while.
    End,
    /// Send the whole of it a signal, by number.
    Signal(i32),
    /// Its terminal has another size.
    Resize(TerminalSize),
    /// Say that everything that was read until now has been passed on.
    Sync,
}

/// Cancels, signals and resizes a command from any thread, also before it has started.
#[derive(Debug, Clone)]
pub struct Control {
    shared: Arc<Shared>,
    /// The id of the command, where it is another one than the first of the handle.
    other: Option<CommandId>,
}

struct Shared {
    wake: Option<OwnedFd>,
    state: Mutex<State>,
    command: OnceLock<CommandId>,
    shelf: Mutex<Option<Shelf>>,
    intended: OnceLock<Box<dyn Fn() + Send + Sync>>,
    synced: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Shared")
            .field("command", &self.command.get())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    asked: u64,
    answered: u64,
    requests: VecDeque<Request>,
    cancelled: bool,
    interrupted: bool,
    input_held: bool,
    /// Whether its command was given its id.
    named: bool,
    /// Whether it is the handle of one command only, whose id was known before.
    is_of_one: bool,
}

impl Control {
    /// Makes a handle that belongs to no command yet.
    pub fn new() -> Self {
        // Without a descriptor requests still wait in the queue, and are seen at the next wake-up.
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Self {
            shared: Arc::new(Shared {
                wake,
                state: Mutex::default(),
                command: OnceLock::new(),
                shelf: Mutex::default(),
                intended: OnceLock::new(),
                synced: Condvar::new(),
            }),
            other: None,
        }
    }

    /// Makes a handle of a command that will have this id.
    pub fn of(command: CommandId) -> Self {
        let control = Self::new();
        let _ = control.shared.command.set(command);
        control.state().is_of_one = true;
        control
    }

    /// Gives a handle that reaches whatever this one reaches, for one more command that will have
    /// this id, such as the second run of one that was tried.
    #[must_use]
    pub fn for_another(&self, command: CommandId) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            other: Some(command),
        }
    }

    /// Tells the id of its command, the first of several, once that has one.
    pub fn command_id(&self) -> Option<&CommandId> {
        self.shared.command.get()
    }

    /// Gives the id that its one command will have; makes it where there is none yet.
    pub fn preset(&self, make: impl FnOnce() -> CommandId) -> CommandId {
        self.state().is_of_one = true;
        self.shared.command.get_or_init(make).clone()
    }

    /// Gives the id that the next command will have: the one that is known already, else a new one.
    /// A handle may serve several commands, one after the other; each has an id of its own.
    pub(crate) fn name(&self, make: impl FnOnce() -> CommandId) -> CommandId {
        if let Some(other) = &self.other {
            return other.clone();
        }
        let is_later = {
            let mut state = self.state();
            std::mem::replace(&mut state.named, true) && !state.is_of_one
        };
        if is_later {
            return make();
        }
        self.shared.command.get_or_init(make).clone()
    }

    /// Says who is called when the journal has the intent of the command, before it starts. Only the
    /// first who asks is told.
    pub fn when_intended(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.intended.set(Box::new(hook));
    }

    pub(crate) fn tell_intended(&self) {
        if let Some(hook) = self.shared.intended.get() {
            hook();
        }
    }

    /// Remembers where output stands while the command runs.
    pub(crate) fn set_shelf(&self, shelf: Shelf) {
        *self
            .shared
            .shelf
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(shelf);
    }

    /// Gives where the output of the command stands that was begun last.
    pub(crate) fn shelf(&self) -> Option<Shelf> {
        let shelf = self
            .shared
            .shelf
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        shelf.clone()
    }

    /// Ends the command; one that has not started never will.
    pub fn cancel(&self) {
        self.push(Request::Cancel);
    }

    /// Asks the command to end, by SIGTERM to all of it, and ends it when it has not after a while;
    /// one that has not started never will. It counts as cancelled.
    pub fn end(&self) {
        self.push(Request::End);
    }

    /// Sends a signal, by number, to the command.
    pub fn signal(&self, number: i32) {
        self.push(Request::Signal(number));
    }

    /// Gives the command's terminal another size.
    pub fn resize(&self, size: TerminalSize) {
        self.push(Request::Resize(size));
    }

    /// Leaves the command's input unread until it is let go again: somebody is asked on the terminal
    /// that it comes from.
    pub fn hold_input(&self, is_held: bool) {
        self.state().input_held = is_held;
        self.ring();
    }

    pub(crate) fn is_input_held(&self) -> bool {
        self.state().input_held
    }

    /// Tells whether somebody has cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.state().cancelled
    }

    /// Tells whether somebody has asked for an end by SIGHUP, SIGINT, SIGQUIT or SIGTERM: a command
    /// that is running gets the signal, one that has not started never does.
    pub fn is_interrupted(&self) -> bool {
        self.state().interrupted
    }

    /// Waits until everything that the loop had read by now has been passed on; gives up after
    /// `limit`, or when nobody runs the loop.
    pub(crate) fn sync(&self, limit: Duration) -> bool {
        let mine = {
            let mut state = self.state();
            state.asked += 1;
            state.requests.push_back(Request::Sync);
            state.asked
        };
        self.ring();
        let until = Instant::now() + limit;
        let mut state = self.state();
        while state.answered < mine {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self
                .shared
                .synced
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    /// Answers the oldest [`Request::Sync`].
    pub(crate) fn answer_sync(&self) {
        self.state().answered += 1;
        self.shared.synced.notify_all();
    }

    pub(crate) fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.shared.wake.as_ref().map(AsFd::as_fd)
    }

    /// Takes everything that was asked for since the last time.
    pub(crate) fn take(&self) -> Vec<Request> {
        if let Some(wake) = &self.shared.wake {
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
        self.state().requests.drain(..).collect()
    }

    fn push(&self, request: Request) {
        {
            let mut state = self.state();
            state.cancelled |= matches!(request, Request::Cancel | Request::End);
            state.interrupted |= matches!(request, Request::Signal(1..=3 | 15));
            state.requests.push_back(request);
        }
        self.ring();
    }

    /// Wakes whoever waits for requests.
    fn ring(&self) {
        if let Some(wake) = &self.shared.wake {
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A queue is whole after every push, so a panicking pusher leaves nothing half done.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_in_order_and_wake_the_reader() {
        let control = Control::new();
        let other = control.clone();
        other.signal(2);
        other.cancel();
        assert!(control.is_cancelled());
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            control.wake().expect("an eventfd"),
            rustix::event::PollFlags::IN,
        )];
        let ready = rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default()));
        assert_eq!(ready, Ok(1));
        assert_eq!(control.take(), [Request::Signal(2), Request::Cancel]);
        assert_eq!(control.take(), []);
    }

    #[test]
    fn only_what_asks_for_an_end_interrupts() {
        let control = Control::new();
        control.signal(10);
        assert!(!control.is_interrupted());
        control.signal(2);
        assert!(control.is_interrupted());
        assert!(!control.is_cancelled());
    }
}
