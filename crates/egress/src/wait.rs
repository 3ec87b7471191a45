//! Waiting for sockets, with a deadline and an end to everything.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// A descriptor that becomes readable once and stays so: everything that waits ends.
#[derive(Debug)]
pub(crate) struct StopSignal(OwnedFd);

impl StopSignal {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(crate) fn raise(&self) {
        // Nobody reads it, so that a second write could only be refused because it is raised.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn is_raised(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.0, PollFlags::IN)];
        poll_for(&mut descriptors, Some(Duration::ZERO)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Polls; an interruption counts as nothing ready.
pub(crate) fn poll_for(
    descriptors: &mut [PollFd<'_>],
    limit: Option<Duration>,
) -> io::Result<usize> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    match poll(descriptors, limit.as_ref()) {
        Ok(ready) => Ok(ready),
        Err(rustix::io::Errno::INTR) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

/// Why waiting for one socket ended without it.
#[derive(Debug)]
pub(crate) enum WaitEnd {
    Deadline,
    Stopped,
    Broken,
}

/// Waits until the socket is ready for `flags`.
pub(crate) fn wait_for(
    socket: BorrowedFd<'_>,
    flags: PollFlags,
    stop: BorrowedFd<'_>,
    deadline: Instant,
) -> Result<(), WaitEnd> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut descriptors = [
            PollFd::from_borrowed_fd(socket, flags),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
        ];
        poll_for(&mut descriptors, Some(left)).map_err(|_| WaitEnd::Broken)?;
        if !descriptors[1].revents().is_empty() {
            return Err(WaitEnd::Stopped);
        }
        if !descriptors[0].revents().is_empty() {
            return Ok(());
        }
        if left.is_zero() {
            return Err(WaitEnd::Deadline);
        }
    }
}

/// Reads what there is onto the end of `bytes`, at most up to `limit` bytes in all; gives how much.
pub(crate) fn read_more(
    mut socket: &TcpStream,
    bytes: &mut Vec<u8>,
    limit: usize,
    stop: &StopSignal,
    deadline: Instant,
) -> Result<usize, WaitEnd> {
    let mut piece = [0_u8; 8 * 1024];
    let room = limit.saturating_sub(bytes.len()).min(piece.len());
    loop {
        // A client that trickles bytes is always ready: the deadline has to be looked at here too.
        if Instant::now() >= deadline {
            return Err(WaitEnd::Deadline);
        }
        match socket.read(&mut piece[..room]) {
            Ok(count) => {
                bytes.extend_from_slice(&piece[..count]);
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(socket.as_fd(), PollFlags::IN, stop.as_fd(), deadline)?;
            }
            Err(_) => return Err(WaitEnd::Broken),
        }
    }
}

/// Writes everything, or as much as the other side takes before the deadline.
pub(crate) fn write_whole(
    mut socket: &TcpStream,
    mut bytes: &[u8],
    stop: &StopSignal,
    deadline: Instant,
) -> Result<(), WaitEnd> {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(0) => return Err(WaitEnd::Broken),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(socket.as_fd(), PollFlags::OUT, stop.as_fd(), deadline)?;
            }
            Err(_) => return Err(WaitEnd::Broken),
        }
    }
    Ok(())
}

/// Says that nothing more comes, then waits shortly for the other side to close: closing with
/// unread bytes would reset the connection and destroy what is still on its way.
pub(crate) fn close_gently(socket: &TcpStream, stop: &StopSignal) {
    const PATIENCE: Duration = Duration::from_millis(500);
    const MOST: usize = 1024 * 1024;
    if socket.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    let mut discarded = Vec::new();
    let mut total = 0;
    while total < MOST {
        discarded.clear();
        match read_more(socket, &mut discarded, usize::MAX, stop, deadline) {
            Ok(0) | Err(_) => return,
            Ok(count) => total += count,
        }
    }
}
