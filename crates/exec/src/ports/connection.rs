//! Two sockets that are joined: what comes from one goes to the other.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, sockopt};

/// Makes the sockets by which a target is dialled.
pub(super) trait Dial {
    /// Gives a socket for the family of an address, not connected.
    fn socket(&self, target: &SocketAddr) -> io::Result<OwnedFd>;
}

/// One direction.
#[derive(Debug, Default)]
struct Half {
    /// What was read and not yet written.
    pending: Vec<u8>,
    /// Whether nothing more comes.
    is_at_end: bool,
    /// Whether the end was passed on.
    is_done: bool,
}

#[derive(Debug)]
enum Stage {
    /// The far side is being dialled; these are left to try.
    Dialling(VecDeque<SocketAddr>),
    Joined,
}

/// Somebody who connected, and whom it is joined with.
#[derive(Debug)]
pub(super) struct Connection {
    near: OwnedFd,
    far: OwnedFd,
    stage: Stage,
    up: Half,
    down: Half,
}

/// What is waited for on both sides; empty where nothing is.
pub(super) struct Interest {
    pub(super) near: PollFlags,
    pub(super) far: PollFlags,
}

impl Connection {
    /// Begins to join somebody who connected with the first of these targets that answers.
    ///
    /// # Errors
    ///
    /// When none can even be tried; whoever connected is refused.
    pub(super) fn begin(
        near: OwnedFd,
        targets: impl IntoIterator<Item = SocketAddr>,
        dial: &dyn Dial,
    ) -> io::Result<Self> {
        let mut left: VecDeque<SocketAddr> = targets.into_iter().collect();
        let _ = sockopt::set_tcp_nodelay(&near, true);
        let Some(far) = next(&mut left, dial) else {
            refuse(&near);
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        Ok(Self {
            near,
            far,
            stage: Stage::Dialling(left),
            up: Half::default(),
            down: Half::default(),
        })
    }

    pub(super) fn near(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }

    pub(super) fn far(&self) -> BorrowedFd<'_> {
        self.far.as_fd()
    }

    /// Tells what is waited for. A side for which nothing is must not be polled: that it hung up
    /// would be reported for ever.
    pub(super) fn interest(&self) -> Interest {
        let mut interest = Interest {
            near: PollFlags::empty(),
            far: PollFlags::empty(),
        };
        if matches!(self.stage, Stage::Dialling(_)) {
            interest.far = PollFlags::OUT;
            return interest;
        }
        let wait = |half: &Half, from: &mut PollFlags, to: &mut PollFlags| {
            if !half.pending.is_empty() {
                *to |= PollFlags::OUT;
            } else if !half.is_at_end {
                *from |= PollFlags::IN;
            }
        };
        wait(&self.up, &mut interest.near, &mut interest.far);
        wait(&self.down, &mut interest.far, &mut interest.near);
        interest
    }

    /// Does what can be done without waiting; false when both sides are at their end.
    pub(super) fn advance(
        &mut self,
        near: PollFlags,
        far: PollFlags,
        dial: &dyn Dial,
        buffer: &mut [u8],
    ) -> bool {
        if let Stage::Dialling(left) = &mut self.stage {
            if far.is_empty() {
                return true;
            }
            if matches!(sockopt::socket_error(&self.far), Ok(Ok(()))) {
                self.stage = Stage::Joined;
            } else if let Some(far) = next(left, dial) {
                self.far = far;
            } else {
                refuse(&self.near);
                return false;
            }
            return true;
        }
        let moved = self
            .up
            .advance(&self.near, &self.far, near, far, buffer)
            .and_then(|()| self.down.advance(&self.far, &self.near, far, near, buffer));
        if moved.is_err() {
            // Whoever is left learns that this was no orderly end.
            refuse(&self.near);
            refuse(&self.far);
            return false;
        }
        !(self.up.is_done && self.down.is_done)
    }
}

impl Half {
    fn advance(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        from_ready: PollFlags,
        to_ready: PollFlags,
        buffer: &mut [u8],
    ) -> Result<(), Errno> {
        if !self.pending.is_empty() && !to_ready.is_empty() {
            let sent = write(to, &self.pending)?;
            self.pending.drain(..sent);
        } else if self.pending.is_empty() && !self.is_at_end && !from_ready.is_empty() {
            match rustix::io::read(from, &mut *buffer) {
                Ok(0) => self.is_at_end = true,
                Ok(count) => {
                    let sent = write(to, &buffer[..count])?;
                    self.pending.extend_from_slice(&buffer[sent..count]);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if self.is_at_end && self.pending.is_empty() && !self.is_done {
            self.is_done = true;
            // A side that is gone altogether has no end to be told.
            let _ = rustix::net::shutdown(to, Shutdown::Write);
        }
        Ok(())
    }
}

fn write(to: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    match rustix::net::send(to, bytes, SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        result => result,
    }
}

/// Makes the close of a socket a reset.
fn refuse(socket: &OwnedFd) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Begins to dial the next target that can be tried.
fn next(left: &mut VecDeque<SocketAddr>, dial: &dyn Dial) -> Option<OwnedFd> {
    while let Some(target) = left.pop_front() {
        let Ok(socket) = dial.socket(&target) else {
            continue;
        };
        if crate::run::set_nonblocking(socket.as_fd()).is_err() {
            continue;
        }
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        match rustix::net::connect(&socket, &target) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => return Some(socket),
            Err(_) => {}
        }
    }
    None
}
