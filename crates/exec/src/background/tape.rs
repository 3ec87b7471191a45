//! What writes the output of a running command to its files.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use cofferdam_core::limits;
use cofferdam_core::spec::DigestSum;

use super::order::Order;
use super::shelf::{Part, Shelf};
use super::sum::FileSum;
use super::{STREAMS, reader};
use crate::output::Stream;

/// The files of one command, by its only writer.
#[derive(Debug)]
pub(crate) struct Tape {
    shelf: Shelf,
    tracks: [Track; 2],
    order: Order,
    order_file: Option<File>,
    order_bytes: u64,
    /// Bytes of one stream that are taken; what comes after is dropped.
    cap: u64,
}

#[derive(Debug, Default)]
struct Track {
    file: Option<File>,
    kept: u64,
    sum: FileSum,
    /// Nothing more is taken: the limit is reached, or the disk refused.
    is_closed: bool,
}

impl Tape {
    pub(crate) fn new(shelf: Shelf, cap: u64) -> Self {
        Self {
            shelf,
            tracks: Default::default(),
            order: Order::new(),
            order_file: None,
            order_bytes: 0,
            cap,
        }
    }

    /// Takes over what memory held until now, which is all there is.
    pub(crate) fn begin(&mut self, order: &Order, streams: [&[u8]; 2]) -> io::Result<()> {
        self.order = order.clone();
        self.write_order()?;
        for (stream, bytes) in STREAMS.into_iter().zip(streams) {
            let room = usize::try_from(self.cap).unwrap_or(usize::MAX);
            let taken = bytes.len().min(room);
            let track = &mut self.tracks[stream as usize];
            track.is_closed = taken < bytes.len();
            if taken > 0 {
                let file = track.file.insert(self.shelf.create(Part::of(stream))?);
                file.write_all(&bytes[..taken])?;
                track.kept = taken as u64;
                track.sum.add(&bytes[..taken], file);
            }
        }
        Ok(())
    }

    /// Takes bytes as far as there is room.
    pub(crate) fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let track = &mut self.tracks[stream as usize];
        let room = self.cap.saturating_sub(track.kept);
        let taken = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if track.is_closed || taken == 0 {
            track.is_closed |= !bytes.is_empty();
            return Ok(());
        }
        let written = self.take(stream, &bytes[..taken]);
        let track = &mut self.tracks[stream as usize];
        track.is_closed |= written.is_err() || taken < bytes.len();
        written
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        // First the order, then the bytes: whoever looks at sizes first and then at the order finds
        // each byte in its place.
        self.order.note(stream, bytes.len() as u64);
        self.write_order()?;
        let track = &mut self.tracks[stream as usize];
        let file = match &mut track.file {
            Some(file) => file,
            none => none.insert(self.shelf.create(Part::of(stream))?),
        };
        file.write_all(bytes)?;
        track.kept += bytes.len() as u64;
        track.sum.add(bytes, file);
        Ok(())
    }

    fn write_order(&mut self) -> io::Result<()> {
        let closed = self.order.closed();
        if closed.is_empty() {
            return Ok(());
        }
        if self.order_bytes < limits::OUTPUT_ORDER_BYTES {
            let file = match &mut self.order_file {
                Some(file) => file,
                none => none.insert(self.shelf.create(Part::Order)?),
            };
            file.write_all(closed)?;
            self.order_bytes += closed.len() as u64;
        }
        self.order.clear();
        Ok(())
    }

    /// Counts bytes of a stream that are kept.
    pub(crate) const fn kept(&self, stream: Stream) -> u64 {
        self.tracks[stream as usize].kept
    }

    /// Tells whether every byte that came is kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.tracks.iter().all(|track| !track.is_closed)
    }

    /// Reads the last bytes of a stream back.
    pub(crate) fn tail(&self, stream: Stream, bytes: usize) -> io::Result<Vec<u8>> {
        let track = &self.tracks[stream as usize];
        let Some(file) = &track.file else {
            return Ok(Vec::new());
        };
        let length = track.kept.min(bytes as u64);
        let mut tail = vec![0; length as usize];
        file.read_exact_at(&mut tail, track.kept - length)?;
        Ok(tail)
    }

    /// Reads the last bytes of both streams back in order of arrival, and whether they are all.
    pub(crate) fn arrival(&self, bytes: usize) -> io::Result<(Vec<u8>, bool)> {
        let [stdout, stderr] = STREAMS.map(|stream| self.kept(stream));
        if stdout == 0 || stderr == 0 {
            let stream = if stderr == 0 {
                Stream::Stdout
            } else {
                Stream::Stderr
            };
            let tail = self.tail(stream, bytes)?;
            let is_all = tail.len() as u64 == stdout + stderr;
            return Ok((tail, is_all));
        }
        let total = stdout + stderr;
        let from = total.saturating_sub(bytes as u64);
        let read = reader::OutputReader::of_shelf(&self.shelf).pieces(
            cofferdam_core::operation::OutputView::Combined,
            from,
            bytes,
        );
        let pieces = read.map_err(|problem| io::Error::other(problem.message))?;
        let tail = pieces
            .pieces
            .into_iter()
            .flat_map(|one| one.bytes)
            .collect();
        Ok((tail, from == 0))
    }

    /// Gives the order, where both streams have bytes.
    pub(crate) fn order(&self) -> io::Result<Option<Vec<u8>>> {
        match &self.order_file {
            Some(file) => reader::read_whole(file).map(Some),
            None => Ok(None),
        }
    }

    /// Lends the file of a stream, to be kept elsewhere, with the sum of what was written to it.
    pub(crate) fn file(&mut self, stream: Stream) -> Option<(&mut File, Option<DigestSum>)> {
        let track = &mut self.tracks[stream as usize];
        let file = track.file.as_mut()?;
        Some((file, track.sum.take()))
    }
}
