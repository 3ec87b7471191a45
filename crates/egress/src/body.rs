//! How much of what a client sends belongs to its one request.

use crate::chunked::{ChunkedEnd, ChunkedError};

/// Knows where the body of a request ends, so that nothing behind it is ever forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyFraming {
    /// So many bytes are left.
    Length(u64),
    /// Chunks up to the last one.
    Chunked(ChunkedEnd),
}

impl BodyFraming {
    /// Tells whether the body is complete.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.is_over(),
        }
    }

    /// Takes the next bytes and gives how many of them belong to the body.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, ChunkedError> {
        self.feed_data(bytes, |_| {})
    }

    /// Does the same, and hands over what the body says without its framing.
    pub(crate) fn feed_data(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
    ) -> Result<usize, ChunkedError> {
        match self {
            Self::Length(left) => {
                let taken = (bytes.len() as u64).min(*left);
                *left -= taken;
                data(&bytes[..taken as usize]);
                Ok(taken as usize)
            }
            Self::Chunked(chunked) => chunked.feed_data(bytes, data),
        }
    }
}
