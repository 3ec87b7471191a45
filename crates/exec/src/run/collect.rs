//! Both streams of a command, and what they were in order of arrival: the end in memory, the whole
//! in files once it is more than that, or once the command has run for a while.
//!
//! Memory stays bounded however much comes; a command is never slowed down by a full buffer, and
//! every byte is counted, also those that a limit drops.

use std::io;
use std::time::Duration;

use cofferdam_core::limits;
use cofferdam_core::mask::{self, Masker};
use cofferdam_core::spec::DigestSum;

use crate::background::{Order, STREAMS, Shelf, Tape};
use crate::output::{Stream, keep_tail};

/// Collects the output of one command; known secrets are masked before anything is kept.
#[derive(Debug)]
pub(super) struct Collection<'m> {
    totals: [u64; 2],
    /// The end of each stream; nothing is taken while the files hold all of it.
    tails: [Vec<u8>; 2],
    /// The end of both in order of arrival, as long as the files do not hold it.
    arrival: Vec<u8>,
    arrived: u64,
    /// The order as long as there are no files.
    order: Order,
    tape: Option<Tape>,
    shelf: Shelf,
    cap: u64,
    /// Whether output goes to files as soon as there is some.
    is_live: bool,
    masks: Option<[mask::Stream<'m>; 2]>,
    masked: Vec<u8>,
    /// Since when bytes are held back that may be the beginning of a secret.
    held_since: Option<Duration>,
    /// The first failure of the files: the command goes on, the outcome says it.
    pub(super) failure: Option<io::Error>,
}

/// What one stream came to.
#[derive(Debug)]
pub(super) struct StreamEnd {
    pub(super) total: u64,
    /// Bytes that are in neither memory nor file.
    pub(super) dropped: u64,
    pub(super) tail: Vec<u8>,
    /// Whether the whole is in a file and not in the tail.
    pub(super) is_filed: bool,
}

impl StreamEnd {
    /// Tells whether the tail is all there is.
    pub(super) const fn is_whole(&self) -> bool {
        self.total == self.tail.len() as u64
    }
}

impl<'m> Collection<'m> {
    pub(super) fn new(cap: Option<u64>, masker: &'m Masker, shelf: Shelf) -> Self {
        let cap = match cap {
            Some(cap) if cap < limits::OUTPUT_KEPT_BYTES => cap,
            _ => limits::OUTPUT_KEPT_BYTES,
        };
        Self {
            totals: [0; 2],
            tails: Default::default(),
            arrival: Vec::new(),
            arrived: 0,
            order: Order::new(),
            tape: None,
            shelf,
            cap,
            is_live: false,
            masks: (!masker.is_empty()).then(|| [masker.stream(), masker.stream()]),
            masked: Vec::new(),
            held_since: None,
            failure: None,
        }
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8], now: Duration) {
        let Some(masks) = &mut self.masks else {
            return self.keep(stream, bytes);
        };
        let mut masked = std::mem::take(&mut self.masked);
        masked.clear();
        masks[stream as usize].feed(bytes, &mut masked);
        self.held_since = masks
            .iter()
            .any(|mask| mask.held() > 0)
            .then(|| self.held_since.unwrap_or(now));
        self.keep(stream, &masked);
        self.masked = masked;
    }

    /// Tells until when bytes are held back, where some are.
    pub(super) fn held_until(&self) -> Option<Duration> {
        let most = Duration::from_millis(limits::OUTPUT_HELD_MILLISECONDS);
        self.held_since.map(|since| since + most)
    }

    /// Lets out what was held back long enough.
    pub(super) fn release(&mut self) {
        self.held_since = None;
        let Some(masks) = &mut self.masks else { return };
        let mut released = [Vec::new(), Vec::new()];
        for (mask, out) in masks.iter_mut().zip(&mut released) {
            mask.release(out);
        }
        for (stream, bytes) in STREAMS.into_iter().zip(released) {
            self.keep(stream, &bytes);
        }
    }

    /// From here on output goes to files, where others can read it.
    pub(super) fn go_live(&mut self) {
        self.is_live = true;
        if self.totals != [0; 2] {
            self.open_tape();
        }
    }

    /// Counts the bytes of both streams.
    pub(super) const fn totals(&self) -> [u64; 2] {
        self.totals
    }

    /// Tells whether there is more than memory holds.
    pub(super) fn is_much(&self) -> bool {
        self.totals
            .iter()
            .any(|total| *total > limits::OUTPUT_RING_BYTES as u64)
    }

    /// Takes what was held back because it might have been the beginning of a secret.
    pub(super) fn finish(&mut self) {
        let Some(masks) = self.masks.take() else {
            return;
        };
        for (mask, stream) in masks.into_iter().zip(STREAMS) {
            let mut rest = Vec::new();
            mask.finish(&mut rest);
            self.keep(stream, &rest);
        }
    }

    fn keep(&mut self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let total = self.totals[stream as usize] + bytes.len() as u64;
        if self.tape.is_none() && (self.is_live || total > limits::OUTPUT_RING_BYTES as u64) {
            self.open_tape();
        }
        self.totals[stream as usize] = total;
        let Some(tape) = &mut self.tape else {
            self.order.note(stream, bytes.len() as u64);
            return self.keep_in_memory(stream, bytes);
        };
        if tape.is_whole() {
            if let Err(error) = tape.write(stream, bytes) {
                self.failure.get_or_insert(error);
            }
            if !self.tape.as_ref().is_some_and(Tape::is_whole) {
                self.leave_files(stream, bytes);
            }
            return;
        }
        if let Err(error) = tape.write(stream, bytes) {
            self.failure.get_or_insert(error);
        }
        self.keep_in_memory(stream, bytes);
    }

    /// Goes back to memory for the ends, once the files do not hold everything any more: with what
    /// they have, and the bytes of which some did not go there.
    fn leave_files(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(tape) = &self.tape else { return };
        let before = self.totals.iter().sum::<u64>() - bytes.len() as u64;
        let mut read = || -> io::Result<()> {
            for (one, tail) in STREAMS.into_iter().zip(&mut self.tails) {
                *tail = tape.tail(one, limits::OUTPUT_RING_BYTES)?;
            }
            (self.arrival, _) = tape.arrival(limits::OUTPUT_RING_BYTES)?;
            Ok(())
        };
        let read = read();
        if let Err(error) = read {
            self.failure.get_or_insert(error);
        }
        // A part of these bytes may be in the files already.
        let kept: u64 = STREAMS.into_iter().map(|one| tape.kept(one)).sum();
        let taken = kept.saturating_sub(before);
        self.arrived = before + taken;
        let rest = &bytes[bytes.len().min(taken as usize)..];
        self.keep_in_memory(stream, rest);
    }

    fn keep_in_memory(&mut self, stream: Stream, bytes: &[u8]) {
        keep_tail(
            &mut self.tails[stream as usize],
            bytes,
            limits::OUTPUT_RING_BYTES,
        );
        self.arrived += bytes.len() as u64;
        keep_tail(&mut self.arrival, bytes, limits::OUTPUT_RING_BYTES);
    }

    /// Moves what memory holds, which is still everything, to files.
    fn open_tape(&mut self) {
        if self.tape.is_some() || self.failure.is_some() {
            return;
        }
        let mut tape = Tape::new(self.shelf.clone(), self.cap);
        match tape.begin(&self.order, [&self.tails[0], &self.tails[1]]) {
            Ok(()) => self.tape = Some(tape),
            Err(error) => {
                self.shelf.remove();
                self.failure = Some(error);
            }
        }
        if self.tape.as_ref().is_some_and(Tape::is_whole) {
            self.tails = Default::default();
            self.arrival = Vec::new();
        }
    }

    /// Gives what a stream came to.
    pub(super) fn end_of(&mut self, stream: Stream) -> StreamEnd {
        let total = self.totals[stream as usize];
        let mut end = StreamEnd {
            total,
            dropped: 0,
            tail: std::mem::take(&mut self.tails[stream as usize]),
            is_filed: false,
        };
        let Some(tape) = &self.tape else {
            end.dropped = if self.failure.is_some() {
                total - end.tail.len() as u64
            } else {
                0
            };
            return end;
        };
        end.dropped = total - tape.kept(stream);
        if tape.is_whole() {
            match tape.tail(stream, 2 * limits::OUTPUT_RING_BYTES) {
                Ok(tail) => end.tail = tail,
                Err(error) => drop(self.failure.get_or_insert(error)),
            }
        }
        end.is_filed = !end.is_whole();
        end
    }

    /// Gives the tail in order of arrival, and whether it is everything.
    pub(super) fn arrival(&mut self) -> (Vec<u8>, bool) {
        if let Some(tape) = self.tape.as_ref().filter(|tape| tape.is_whole()) {
            match tape.arrival(limits::OUTPUT_RING_BYTES) {
                Ok(arrival) => return arrival,
                Err(error) => drop(self.failure.get_or_insert(error)),
            }
        }
        let is_all = self.arrived == self.arrival.len() as u64;
        (std::mem::take(&mut self.arrival), is_all)
    }

    /// Gives the order in which both streams arrived, where both have bytes.
    pub(super) fn order(&mut self) -> Option<Vec<u8>> {
        if self.totals.contains(&0) {
            return None;
        }
        match &self.tape {
            None => Some(self.order.closed().to_vec()),
            Some(tape) => match tape.order() {
                Ok(order) => order,
                Err(error) => {
                    self.failure.get_or_insert(error);
                    None
                }
            },
        }
    }

    /// Lends the file that holds a stream, with the sum of its bytes where there is one.
    pub(super) fn file(
        &mut self,
        stream: Stream,
    ) -> Option<(&mut std::fs::File, Option<DigestSum>)> {
        self.tape.as_mut()?.file(stream)
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_core::id::CommandId;
    use cofferdam_core::operation::OutputView;

    use super::*;
    use crate::background::OutputReader;

    const NOW: Duration = Duration::ZERO;

    fn shelf(place: &std::path::Path) -> Shelf {
        Shelf::new(Some(place), place, &CommandId::new(1, [1; 10]))
    }

    #[test]
    fn the_tail_is_bounded_and_every_byte_is_counted() {
        let place = tempfile::tempdir().expect("a directory");
        let masker = Masker::default();
        let shelf = shelf(place.path());
        let mut collection = Collection::new(Some(1_000_000), &masker, shelf.clone());
        for piece in 0..20_u8 {
            collection.push(Stream::Stdout, &vec![b'a' + piece; 70_000], NOW);
            assert!(collection.tails[0].capacity() <= 3 * limits::OUTPUT_RING_BYTES);
        }
        collection.finish();
        let end = collection.end_of(Stream::Stdout);
        assert_eq!((end.total, end.dropped), (1_400_000, 400_000));
        assert!(end.tail.ends_with(&vec![b't'; 70_000]) && end.tail.len() >= 256 * 1024);
        assert!(!end.tail.contains(&b'a'));
        let (arrival, is_all) = collection.arrival();
        assert!(arrival.ends_with(&vec![b't'; 70_000]) && !is_all);
        let pieces = OutputReader::of_shelf(&shelf)
            .pieces(OutputView::Stdout, 999_990, 100)
            .expect("readable");
        assert_eq!(pieces.pieces[0].bytes, [b'o'; 10]);
        assert!(collection.failure.is_none());
        shelf.remove();
        let left = std::fs::read_dir(place.path().join("output")).expect("a directory");
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn row_9_both_streams_are_read_in_order_of_arrival_while_they_come() {
        let place = tempfile::tempdir().expect("a directory");
        let masker = Masker::default();
        let shelf = shelf(place.path());
        let mut collection = Collection::new(None, &masker, shelf.clone());
        let reader = OutputReader::of_shelf(&shelf);
        let mut expected = Vec::new();
        let mut put = |collection: &mut Collection<'_>, stream, bytes: &[u8]| {
            collection.push(stream, bytes, NOW);
            expected.extend_from_slice(bytes);
        };
        put(&mut collection, Stream::Stderr, b"one ");
        put(&mut collection, Stream::Stdout, b"two ");
        assert_eq!(
            reader
                .pieces(OutputView::Combined, 0, 100)
                .expect("empty")
                .kept,
            0
        );
        collection.go_live();
        put(&mut collection, Stream::Stdout, b"three ");
        put(&mut collection, Stream::Stderr, b"four ");
        let read = reader.pieces(OutputView::Combined, 0, 100).expect("output");
        let seen: Vec<(u64, Stream, u64, &[u8])> = read
            .pieces
            .iter()
            .map(|one| (one.seq, one.stream, one.offset, &*one.bytes))
            .collect();
        assert_eq!(
            seen,
            [
                (0, Stream::Stderr, 0, &b"one "[..]),
                (1, Stream::Stdout, 0, b"two three "),
                (2, Stream::Stderr, 4, b"four "),
            ]
        );
        let page = reader.pieces(OutputView::Combined, 6, 5).expect("output");
        assert_eq!(
            (page.pieces[0].seq, &*page.pieces[0].bytes),
            (1, &b"o thr"[..])
        );
        collection.finish();
        assert_eq!(collection.arrival(), (expected, true));
        assert_eq!(collection.end_of(Stream::Stdout).tail, b"two three ");
        assert!(collection.order().is_some());
        shelf.remove();
    }

    #[test]
    fn row_17_what_may_be_a_secret_is_held_no_longer_than_promised() {
        let place = tempfile::tempdir().expect("a directory");
        let masker = Masker::new(["s3cr3t"]);
        let mut collection = Collection::new(None, &masker, shelf(place.path()));
        collection.push(Stream::Stdout, b"name: s3c", NOW);
        assert_eq!(collection.totals(), [6, 0]);
        let until = collection.held_until().expect("held");
        assert_eq!(until, Duration::from_millis(50));
        collection.push(Stream::Stderr, b"x", Duration::from_millis(20));
        assert_eq!(collection.held_until(), Some(until));
        collection.release();
        assert_eq!(
            (collection.totals(), collection.held_until()),
            ([9, 1], None)
        );
    }
}
