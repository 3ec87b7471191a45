//! Typed messages over a SEQPACKET socket.
//!
//! One byte of kind, then a postcard-encoded body: in the message itself, or, where it is longer
//! than [`INLINE_BYTES`], in a sealed memory file that comes as the first descriptor.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_sandbox::{SandboxError, read_memory, receive_message, sealed_memory, send_message};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest body that travels in the message itself, in bytes.
pub const INLINE_BYTES: usize = 60 * 1024;
/// Longest body at all: more than the kernel takes as arguments and environment.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

const INLINE: u8 = 1;
const IN_MEMORY: u8 = 2;

/// Says why a message could not be sent or understood.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The socket or the memory file failed.
    #[error(transparent)]
    System(#[from] SandboxError),
    /// The other end is gone.
    #[error("the other end of the channel is gone")]
    Closed,
    /// The body is not one of ours.
    #[error("message of {length} bytes is not understood")]
    Malformed {
        /// Length of the body in bytes.
        length: usize,
    },
}

impl ChannelError {
    /// Gives the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::System(_) => "channel_failed",
            Self::Closed => "channel_closed",
            Self::Malformed { .. } => "message_malformed",
        }
    }
}

/// Sends one message with descriptors.
pub fn send<T: Serialize>(
    socket: &impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ChannelError> {
    let body = postcard::to_stdvec(message).map_err(|_| ChannelError::Malformed { length: 0 })?;
    let sent = if body.len() <= INLINE_BYTES {
        send_message(
            socket.as_fd(),
            &[IoSlice::new(&[INLINE]), IoSlice::new(&body)],
            descriptors,
        )
    } else {
        let memory = sealed_memory("cofferdam-message", &body)?;
        let all: Vec<BorrowedFd<'_>> = std::iter::once(memory.as_fd())
            .chain(descriptors.iter().copied())
            .collect();
        send_message(socket.as_fd(), &[IoSlice::new(&[IN_MEMORY])], &all)
    };
    sent.map_err(
        |error| match rustix::io::Errno::from_raw_os_error(error.errno) {
            rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => ChannelError::Closed,
            _ => ChannelError::System(error),
        },
    )
}

/// Receives one message and its descriptors, waiting for it.
///
/// # Errors
///
/// [`ChannelError::Closed`] when the other end is gone and nothing is left to read.
pub fn receive<T: DeserializeOwned>(socket: &impl AsFd) -> Result<(T, Vec<OwnedFd>), ChannelError> {
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::TRUNC;
    let mut nothing = [0u8; 0];
    let length = rustix::io::retry_on_intr(|| {
        rustix::net::recv(socket, &mut nothing[..], flags).map(|(_, length)| length)
    });
    let length = match length {
        Ok(0) | Err(rustix::io::Errno::CONNRESET) => return Err(ChannelError::Closed),
        Ok(length) => length,
        Err(errno) => {
            let step = cofferdam_sandbox::Step::Message;
            return Err(SandboxError::new(step, errno.raw_os_error()).into());
        }
    };
    let mut buffer = vec![0; length];
    let mut descriptors = Vec::new();
    let length = receive_message(socket.as_fd(), &mut buffer, &mut descriptors)?;
    let malformed = || ChannelError::Malformed { length };
    match buffer[..length].split_first() {
        None => Err(ChannelError::Closed),
        Some((&INLINE, body)) => {
            let message = postcard::from_bytes(body).map_err(|_| malformed())?;
            Ok((message, descriptors))
        }
        Some((&IN_MEMORY, [])) if !descriptors.is_empty() => {
            let memory = descriptors.remove(0);
            let body = read_memory(&memory, MOST_BYTES)?;
            let message = postcard::from_bytes(&body).map_err(|_| malformed())?;
            Ok((message, descriptors))
        }
        Some(_) => Err(malformed()),
    }
}
