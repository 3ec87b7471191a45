//! Somebody who gives the caller's terminal back where this process is killed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_keeper::{TERMINAL_DONE, TERMINAL_MESSAGE, TERMINAL_UNDO};
use cofferdam_sandbox::{Program, Spawn, Spawned, message_pair, spawn, wait_pid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};

use crate::plane::Plane;

/// How long a guard may take to begin.
const PATIENCE: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// Watches over a terminal until it is dropped: a process of its own, on the host, that does nothing
/// but wait. Where this process ends without dropping it, it gives the terminal back.
#[derive(Debug)]
pub struct TerminalGuard {
    channel: OwnedFd,
    child: Spawned,
}

impl Plane {
    /// Has a terminal watched over; it must still be as it shall be given back.
    ///
    /// # Errors
    ///
    /// `io` where the guard cannot be started.
    pub fn guard_terminal(&self, terminal: BorrowedFd<'_>) -> Result<TerminalGuard, Problem> {
        let failed = |why: &dyn std::fmt::Display| {
            Problem::new(
                ErrorCode::Io,
                format!("the terminal cannot be guarded: {why}"),
            )
        };
        let program = self.keeper()?;
        let (ours, theirs) = message_pair().map_err(|error| failed(&error))?;
        let null = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .map_err(|error| failed(&error))?;
        let arguments = [c"cofferdam-tty", c"3", c"terminal"];
        let mut guard = Spawn::new(
            Program::File(program.as_fd()),
            arguments.map(ToOwned::to_owned).to_vec(),
        );
        guard.descriptors = vec![
            (terminal, 0),
            (null.as_fd(), 1),
            (null.as_fd(), 2),
            (theirs.as_fd(), 3),
        ];
        // What is sent to the group of the caller is not for it.
        guard.new_session = true;
        guard.no_new_privileges = true;
        let child = spawn(&guard).map_err(|error| failed(&error))?;
        drop(theirs);
        let guard = TerminalGuard {
            channel: ours,
            child,
        };
        guard.wait_until_ready().map_err(|error| failed(&error))?;
        Ok(guard)
    }
}

impl TerminalGuard {
    fn wait_until_ready(&self) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.channel, PollFlags::IN)];
        if poll(&mut fds, Some(&PATIENCE))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut byte = [0];
        match rustix::net::recv(&self.channel, &mut byte, RecvFlags::DONTWAIT)? {
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Says what undoes the modes in which the screen is now.
    pub fn undo_with(&self, undo: &[u8]) {
        let mut message = vec![TERMINAL_UNDO];
        message.extend(undo.iter().take(TERMINAL_MESSAGE - 1));
        // A guard that is gone is no reason to stop.
        let _ = rustix::net::send(&self.channel, &message, SendFlags::NOSIGNAL);
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        let _ = rustix::net::send(&self.channel, &[TERMINAL_DONE], SendFlags::NOSIGNAL);
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
        // An embedding host may have reaped it.
        let _ = wait_pid(self.child.pid);
    }
}
