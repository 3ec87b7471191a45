//! In which order the bytes of both streams arrived: lengths of runs, turn by turn, standard output
//! first, each in LEB128. The last run is open: it holds whatever its stream has beyond.

use crate::output::Stream;

/// Notes the order while bytes arrive.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// Runs that are closed.
    closed: Vec<u8>,
    stream: Stream,
    length: u64,
}

impl Order {
    pub(crate) const fn new() -> Self {
        Self {
            closed: Vec::new(),
            stream: Stream::Stdout,
            length: 0,
        }
    }

    /// Notes bytes of a stream; closes the run before when it was of the other.
    pub(crate) fn note(&mut self, stream: Stream, bytes: u64) {
        if stream != self.stream {
            write(self.length, &mut self.closed);
            self.stream = stream;
            self.length = 0;
        }
        self.length += bytes;
    }

    /// Lends the closed runs.
    pub(crate) fn closed(&self) -> &[u8] {
        &self.closed
    }

    /// Takes the closed runs away, once they are written elsewhere.
    pub(crate) fn clear(&mut self) {
        self.closed.clear();
    }
}

/// Bytes of one stream that arrived without any of the other between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// Which run it is.
    pub(super) seq: u64,
    pub(super) stream: Stream,
    /// Where it begins in its stream.
    pub(super) offset: u64,
    /// Where it begins in both.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// Reads an order as far as both streams have bytes for it. `sizes` must have been seen before the
/// order was; `is_open` tells whether what follows the last closed run is still ordered.
pub(super) fn runs(order: &[u8], sizes: [u64; 2], is_open: bool) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut at = 0;
    let mut taken = [0_u64; 2];
    let mut turn = 0;
    let mut rest = order;
    let mut add = |turn: usize, wanted: u64| {
        let there = sizes[turn].saturating_sub(taken[turn]);
        let bytes = wanted.min(there);
        if bytes > 0 {
            runs.push(Run {
                seq: runs.len() as u64,
                stream: super::STREAMS[turn],
                offset: taken[turn],
                at,
                bytes,
            });
            taken[turn] += bytes;
            at += bytes;
        }
        bytes == wanted
    };
    while let Some(length) = read(&mut rest) {
        if !add(turn, length) {
            return runs;
        }
        turn = 1 - turn;
    }
    if is_open {
        add(turn, u64::MAX);
    }
    runs
}

/// Lists the lengths of the closed runs, turn by turn, standard output first.
pub(super) fn lengths(order: &[u8]) -> Vec<u64> {
    let mut rest = order;
    std::iter::from_fn(|| read(&mut rest)).collect()
}

fn write(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes one number; `None` at the end, or where it is only half there.
fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_back_as_they_were_noted() {
        use Stream::{Stderr, Stdout};

        let mut order = Order::new();
        for (stream, bytes) in [
            (Stream::Stderr, 3),
            (Stream::Stderr, 2),
            (Stream::Stdout, 300),
            (Stream::Stderr, 1),
            (Stream::Stdout, 7),
        ] {
            order.note(stream, bytes);
        }
        let seen = |sizes, is_open| -> Vec<(Stream, u64, u64, u64)> {
            runs(order.closed(), sizes, is_open)
                .into_iter()
                .map(|run| (run.stream, run.offset, run.at, run.bytes))
                .collect()
        };
        assert_eq!(
            seen([307, 6], true),
            [
                (Stderr, 0, 0, 5),
                (Stdout, 0, 5, 300),
                (Stderr, 5, 305, 1),
                (Stdout, 300, 306, 7)
            ]
        );
        // Sizes that were seen earlier than the order cut it where they end.
        assert_eq!(
            seen([100, 5], true),
            [(Stderr, 0, 0, 5), (Stdout, 0, 5, 100)]
        );
        assert_eq!(seen([307, 6], false).len(), 3);
        assert_eq!(runs(&[], [4, 9], true).len(), 1);
    }

    #[test]
    fn a_number_that_is_half_there_is_not_read() {
        let mut order = Order::new();
        order.note(Stream::Stdout, 300);
        order.note(Stream::Stderr, 1);
        let half = &order.closed()[..1];
        assert!(runs(half, [300, 1], false).is_empty());
    }
}
