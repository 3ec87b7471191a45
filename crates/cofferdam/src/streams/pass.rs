//! Bytes that pass between the caller's standard streams and a command.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_exec::{OutputSink, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::signals::Urgency;
use super::terminal::CallerTerminal;

/// Bytes that a pipe takes without blocking once `poll` calls it writable (PIPE_BUF).
const UNBLOCKED_BYTES: usize = 4096;
/// How often a blocked writer looks whether the command is to end.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Passes output on at once, byte for byte, never through a buffer of ours.
///
/// A reader that has gone closes the stream, and the command meets a closed pipe as it would in a
/// shell. A reader that does not read holds the command back, but not its end: once somebody wants
/// it ended, or its time is over, what nobody takes is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    urgency: Urgency,
    limit: Option<Duration>,
    /// Counted from the first output, so that it is never before the command's own limit.
    deadline: Option<Instant>,
    waits: [bool; 2],
    terminal: Option<Arc<CallerTerminal>>,
}

impl Pass {
    /// Passes to standard output and error; `limit` is the command's time limit, `terminal` that of
    /// the caller where the command has one of its own.
    pub(crate) fn new(
        urgency: Urgency,
        limit: Option<Duration>,
        terminal: Option<Arc<CallerTerminal>>,
    ) -> Self {
        Self {
            terminal,
            urgency,
            limit,
            deadline: None,
            waits: [rustix::stdio::stdout(), rustix::stdio::stderr()].map(can_block),
        }
    }

    fn is_over(&self) -> bool {
        self.urgency.is_urgent()
            || self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn wait_writable(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
            match poll(&mut fds, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if self.is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

impl OutputSink for Pass {
    fn write(&mut self, stream: Stream, mut bytes: &[u8]) -> io::Result<()> {
        let (fd, waits) = match stream {
            Stream::Stdout => (rustix::stdio::stdout(), self.waits[0]),
            Stream::Stderr => (rustix::stdio::stderr(), self.waits[1]),
        };
        if let Some(terminal) = &self.terminal {
            terminal.watch(bytes);
        }
        if let (None, Some(limit)) = (self.deadline, self.limit) {
            self.deadline = Instant::now().checked_add(limit);
        }
        while !bytes.is_empty() {
            if waits {
                self.wait_writable(fd)?;
            }
            let piece = if waits {
                &bytes[..bytes.len().min(UNBLOCKED_BYTES)]
            } else {
                bytes
            };
            match rustix::io::write(fd, piece) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_writable(fd)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Tells whether writing there can wait for a reader.
fn can_block(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::Fifo | FileType::Socket
        ) || rustix::termios::isatty(fd)
    })
}

/// Takes output that is only wanted in the result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Discard;

impl OutputSink for Discard {
    fn write(&mut self, _stream: Stream, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Tells whether standard input is data to be passed on: a pipe, a socket or a file, not a terminal
/// and not `/dev/null`, since some programs read an open input to its end before they start.
pub(crate) fn has_input() -> bool {
    rustix::fs::fstat(rustix::stdio::stdin()).is_ok_and(|stat| {
        matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::Fifo | FileType::Socket | FileType::RegularFile
        )
    })
}
