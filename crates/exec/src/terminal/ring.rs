//! The last bytes that a terminal wrote, by their offsets among all of them.

use cofferdam_core::limits::TERMINAL_RING_BYTES;

use crate::output::keep_tail;

/// Bytes of a terminal from an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first of them; later than what was asked for when those are gone.
    pub from: u64,
    /// They themselves.
    pub bytes: Vec<u8>,
    /// How many are missing before them.
    pub gap: u64,
}

impl Chunk {
    /// Gives the offset after the last byte.
    pub fn to(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

/// Keeps the end of a stream of bytes. A reader is nothing but an offset, so any number of them
/// costs nothing, and one that is too slow is told how much it missed.
#[derive(Debug, Default)]
pub(super) struct Ring {
    tail: Vec<u8>,
    total: u64,
}

impl Ring {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        keep_tail(&mut self.tail, bytes, TERMINAL_RING_BYTES);
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Gives at most `most` bytes from an offset on.
    pub(super) fn read(&self, offset: u64, most: usize) -> Chunk {
        let first = self.total - self.tail.len() as u64;
        let from = offset.clamp(first, self.total);
        let start = (from - first) as usize;
        let end = self.tail.len().min(start.saturating_add(most));
        Chunk {
            from,
            bytes: self.tail[start..end].to_vec(),
            gap: from.saturating_sub(offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c11_a_slow_reader_is_told_what_it_missed() {
        let mut ring = Ring::default();
        ring.push(b"hello ");
        ring.push(b"world");
        assert_eq!(ring.read(6, 99).bytes, b"world");
        assert_eq!(
            ring.read(99, 99),
            Chunk {
                from: 11,
                bytes: Vec::new(),
                gap: 0
            }
        );
        let many = vec![b'x'; 3 * TERMINAL_RING_BYTES];
        ring.push(&many);
        let chunk = ring.read(3, 10);
        assert_eq!(chunk.bytes.len(), 10);
        assert_eq!(chunk.from, 3 + chunk.gap);
        assert!(chunk.gap > 2 * TERMINAL_RING_BYTES as u64 - 99);
    }
}
