//! The caller's terminal while a command has one of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use cofferdam_exec::{Plane, TerminalGuard, TerminalSize};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr,
};

use super::screen::Screen;

/// The value that switches a special character off.
const DISABLED: u8 = 0;

/// What is done with Ctrl-Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspend {
    /// It stops this program and the command, as for any job of the caller's shell.
    Outside,
    /// It goes to the command: a shell has jobs of its own.
    Inside,
}

/// Makes the caller's terminal raw, and gives it back as it was on every way out.
#[derive(Debug)]
pub(crate) struct CallerTerminal {
    fd: OwnedFd,
    original: Termios,
    suspend: Suspend,
    state: Mutex<State>,
    screen: Mutex<Screen>,
    /// Gives it back where this program is killed.
    guard: Option<TerminalGuard>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Raw,
    Restored,
    /// The command is over: nothing makes it raw again.
    Finished,
}

impl CallerTerminal {
    /// Takes standard input's terminal, and leaves it as it is for now. Nobody guards it where no
    /// guard can be started.
    pub(crate) fn new(suspend: Suspend, plane: &Plane) -> io::Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let original = tcgetattr(&fd)?;
        Ok(Self {
            fd,
            original,
            suspend,
            state: Mutex::new(State::Restored),
            screen: Mutex::default(),
            guard: plane.guard_terminal(rustix::stdio::stdin()).ok(),
        })
    }

    /// Gives another descriptor of the terminal, for reading.
    pub(crate) fn input(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Tells the size; 24 by 80 when the terminal does not know it.
    pub(crate) fn size(&self) -> TerminalSize {
        match tcgetwinsize(&self.fd) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => TerminalSize {
                rows: size.ws_row,
                columns: size.ws_col,
            },
            _ => TerminalSize {
                rows: 24,
                columns: 80,
            },
        }
    }

    /// Makes the terminal raw, unless the command is over or somebody else is in the foreground.
    pub(crate) fn make_raw(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state != State::Restored || !is_foreground(&self.fd) {
            return Ok(());
        }
        let mut raw = self.original.clone();
        raw.make_raw();
        if self.suspend == Suspend::Outside {
            // Only the key that stops a job still makes a signal here.
            raw.local_modes |= LocalModes::ISIG | LocalModes::NOFLSH;
            for code in [SpecialCodeIndex::VINTR, SpecialCodeIndex::VQUIT] {
                raw.special_codes[code] = DISABLED;
            }
        }
        tcsetattr(&self.fd, OptionalActions::Drain, &raw)?;
        *state = State::Raw;
        Ok(())
    }

    /// Gives the terminal back as it was.
    pub(crate) fn restore(&self) {
        self.give_back(State::Restored);
    }

    fn give_back(&self, next: State) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == State::Raw {
            let _ = tcsetattr(&self.fd, OptionalActions::Drain, &self.original);
        }
        *state = next;
    }

    /// Gives the terminal back for good.
    pub(crate) fn finish(&self) {
        self.give_back(State::Finished);
    }

    /// Looks at what goes to the screen.
    pub(crate) fn watch(&self, bytes: &[u8]) {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        if screen.watch(bytes)
            && let Some(guard) = &self.guard
        {
            guard.undo_with(&screen.undo());
        }
    }

    /// Undoes the modes in which a command left the screen that was ended before it could.
    pub(crate) fn undo_screen(&self) {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let undo = screen.undo();
        *screen = Screen::default();
        if !undo.is_empty() {
            let _ = rustix::io::write(rustix::stdio::stdout(), &undo);
        }
    }
}

impl Drop for CallerTerminal {
    fn drop(&mut self) {
        self.finish();
    }
}

fn is_foreground(fd: &OwnedFd) -> bool {
    tcgetpgrp(fd).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Tells whether standard input and output are a terminal on which this program is in the
/// foreground.
pub(crate) fn is_foreground_terminal() -> bool {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    rustix::termios::isatty(input)
        && rustix::termios::isatty(output)
        && tcgetpgrp(input).is_ok_and(|group| group == rustix::process::getpgrp())
}
