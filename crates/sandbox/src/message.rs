//! Messages with descriptors over a SEQPACKET socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::error::{SandboxError, Step, at_step};

/// Most descriptors in one message.
pub const MAX_DESCRIPTORS: usize = 32;

const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS));

/// Makes two ends of a channel, both close-on-exec.
pub fn message_pair() -> Result<(OwnedFd, OwnedFd), SandboxError> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(at_step(Step::Message))
}

/// Sends one message, waiting for room.
///
/// # Errors
///
/// `EPIPE` when the other end is gone, `EMSGSIZE` when the message is too long for the socket.
pub fn send_message(
    socket: BorrowedFd<'_>,
    body: &[IoSlice<'_>],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), SandboxError> {
    let mut space = [MaybeUninit::<u8>::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(SandboxError::new(Step::Message, libc::E2BIG));
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, body, &mut control, SendFlags::NOSIGNAL)
    })
    .map(drop)
    .map_err(at_step(Step::Message))
}

/// Receives one message into `buffer`; descriptors arrive close-on-exec.
///
/// Gives the number of bytes, 0 when the other end is gone.
///
/// # Errors
///
/// `EMSGSIZE` when the message or its descriptors did not fit: they are lost then. `EAGAIN` on a
/// non-blocking socket with nothing to receive.
pub fn receive_message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, SandboxError> {
    let mut space = [MaybeUninit::<u8>::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(buffer)];
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    let received = match received {
        Ok(received) => received,
        // A peer that is ended with unread messages resets the connection: it is gone all the same.
        Err(rustix::io::Errno::CONNRESET) => return Ok(0),
        Err(errno) => return Err(SandboxError::new(Step::Message, errno.raw_os_error())),
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(SandboxError::new(Step::Message, libc::EMSGSIZE));
    }
    Ok(received.bytes)
}

/// Takes over the channel that this process was started with, and closes every other descriptor
/// above 2. Has to be the first thing that a program does; works once in a process.
///
/// # Errors
///
/// `EBADF` or `ENOTSOCK` when the number is no channel, `EBUSY` when it is below 3 or a channel was
/// taken already.
pub fn take_inherited_channel(number: RawFd) -> Result<OwnedFd, SandboxError> {
    take_inherited(number, None).map(|(channel, _)| channel)
}

/// The same with a file beside the channel. A number that is no regular file is none; it is closed.
///
/// # Errors
///
/// Those of [`take_inherited_channel`].
pub fn take_inherited(
    channel: RawFd,
    file: Option<RawFd>,
) -> Result<(OwnedFd, Option<OwnedFd>), SandboxError> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if channel < 3 || TAKEN.swap(true, Ordering::SeqCst) {
        return Err(SandboxError::new(Step::Descriptors, libc::EBUSY));
    }
    let step = at_step(Step::Descriptors);
    // SAFETY: only borrowed for two questions; a closed number is refused by the kernel.
    let borrowed = unsafe { BorrowedFd::borrow_raw(channel) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).map_err(&step)?;
    let kind = rustix::net::sockopt::socket_type(borrowed).map_err(&step)?;
    if kind != SocketType::SEQPACKET {
        return Err(SandboxError::new(Step::Descriptors, libc::ENOTSOCK));
    }
    let file = file.filter(|number| *number >= 3 && *number != channel && is_file(*number));
    // SAFETY: as above; it was just looked at.
    let beside = file.map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    let kept: Vec<BorrowedFd<'_>> = [Some(borrowed), beside].into_iter().flatten().collect();
    crate::tree::close_all_but(&kept);
    // SAFETY: open descriptors that the process was started with, two different ones; nothing else
    // in this process knows their numbers, and the flag above keeps them from being taken twice.
    unsafe {
        Ok((
            OwnedFd::from_raw_fd(channel),
            file.map(|number| OwnedFd::from_raw_fd(number)),
        ))
    }
}

/// Tells whether a number is an open regular file, which is then closed by whoever executes another
/// program.
fn is_file(number: RawFd) -> bool {
    // SAFETY: only borrowed for two questions; a closed number is refused by the kernel.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).is_ok()
        && rustix::fs::fstat(borrowed)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file())
}

/// Tells whether the other end of a channel is still there, without taking a message.
pub fn peer_is_gone(socket: &impl AsFd) -> bool {
    let mut poll = [rustix::event::PollFd::new(
        socket,
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut poll, Some(&now)).is_ok()
        && poll[0].revents().intersects(rustix::event::PollFlags::HUP)
}
