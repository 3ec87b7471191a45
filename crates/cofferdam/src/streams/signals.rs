//! Signals that this program gets while a command runs.
//!
//! The first SIGINT, SIGTERM or SIGHUP goes to the command; the second, or five seconds, ends it.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_exec::Control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::backend::{Handle, SignalDelivery};
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::low_level::emulate_default_handler;

use super::terminal::CallerTerminal;

/// Time between the first signal and the end of the command.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for the command to be stopped before this program stops itself.
const STOP_AHEAD: Duration = Duration::from_millis(20);

/// Tells whether the command is to end at once, whatever still waits, and because of which signal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Urgency(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    first: AtomicI32,
    urgent: AtomicBool,
}

impl Urgency {
    /// Tells whether somebody wants the end.
    pub(crate) fn is_urgent(&self) -> bool {
        self.0.urgent.load(Ordering::Relaxed)
    }

    /// Gives the first signal that asked for the end.
    pub(crate) fn first(&self) -> Option<u8> {
        let number = self.0.first.load(Ordering::Relaxed);
        u8::try_from(number).ok().filter(|number| *number > 0)
    }

    fn ask(&self, number: i32) {
        self.0.first.store(number, Ordering::Relaxed);
    }

    fn set(&self) {
        self.0.urgent.store(true, Ordering::Relaxed);
    }
}

/// Watches for signals on a thread of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    urgency: Urgency,
}

impl Watch {
    /// Begins to pass signals on to a command.
    pub(crate) fn start(
        control: Control,
        terminal: Option<Arc<CallerTerminal>>,
    ) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let mut numbers = vec![SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
        if terminal.is_some() {
            numbers.extend([SIGWINCH, SIGTSTP, SIGCONT]);
        }
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers)?;
        let handle = delivery.handle();
        let urgency = Urgency::default();
        let mut watcher = Watcher {
            delivery,
            control,
            terminal,
            urgency: urgency.clone(),
            end_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("signals".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || watcher.watch())?;
        Ok(Self {
            handle,
            thread: Some(thread),
            urgency,
        })
    }

    /// Gives what tells whether the command is to end at once.
    pub(crate) fn urgency(&self) -> Urgency {
        self.urgency.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watcher {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    control: Control,
    terminal: Option<Arc<CallerTerminal>>,
    urgency: Urgency,
    end_at: Option<Instant>,
}

impl Watcher {
    fn watch(&mut self) {
        while !self.delivery.handle().is_closed() {
            self.wait();
            if self.end_at.is_some_and(|at| Instant::now() >= at) {
                self.end();
            }
            let numbers: Vec<i32> = self.delivery.pending().collect();
            for number in numbers {
                self.take(number);
            }
        }
    }

    fn wait(&self) {
        let limit = self
            .end_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = [PollFd::new(self.delivery.get_read(), PollFlags::IN)];
        // An interrupted wait is a wait that is over.
        let _ = poll(&mut fds, limit.as_ref());
    }

    fn take(&mut self, number: i32) {
        match number {
            SIGINT | SIGTERM | SIGHUP => {
                if self.end_at.is_some() {
                    self.end();
                } else {
                    self.urgency.ask(number);
                    self.end_at = Some(Instant::now() + PATIENCE);
                    self.control.signal(number);
                }
            }
            SIGWINCH => {
                if let Some(terminal) = &self.terminal {
                    self.control.resize(terminal.size());
                }
            }
            SIGTSTP => self.stop(),
            SIGCONT => self.go_on(),
            other => self.control.signal(other),
        }
    }

    fn end(&mut self) {
        self.urgency.set();
        self.control.cancel();
        // A further signal says it again; the clock does not.
        self.end_at = Some(Instant::now() + Duration::from_hours(1));
    }

    /// Stops the command and this program, with the terminal as it was before.
    fn stop(&self) {
        self.control.signal(SIGSTOP);
        std::thread::sleep(STOP_AHEAD);
        if let Some(terminal) = &self.terminal {
            terminal.restore();
        }
        let _ = emulate_default_handler(SIGTSTP);
        // Here somebody has sent SIGCONT, which arrives as a signal of its own.
    }

    /// Goes on after a stop; also one that could not be caught.
    fn go_on(&self) {
        self.control.signal(SIGCONT);
        if let Some(terminal) = &self.terminal {
            terminal.restore();
            let _ = terminal.make_raw();
            self.control.resize(terminal.size());
            // The screen is another one now: ask for it to be drawn again.
            self.control.signal(SIGWINCH);
        }
    }
}
