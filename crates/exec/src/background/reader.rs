//! Reading output by offset: while it is written, and after its end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::CommandId;
use cofferdam_core::limits;
use cofferdam_core::operation::OutputView;
use cofferdam_core::outcome::OutputReference;
use cofferdam_core::spec::Digest;
use cofferdam_journal::{ContentReference, Journal, JournalError};
use serde_json::{Value, json};

use super::STREAMS;
use super::order::{Order, runs};
use super::shelf::{Part, Shelf};
use crate::control::Control;
use crate::output::Stream;

/// Runs up to which the order of arrival stands in an event itself.
const INLINE_RUNS: usize = 256;

/// Bytes of one stream that arrived in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPiece {
    /// Number of the piece in order of arrival, from 0.
    pub seq: u64,
    /// From where.
    pub stream: Stream,
    /// Where it begins in its stream.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What was read, and how much there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPieces {
    /// The pieces, without a hole between them.
    pub pieces: Vec<OutputPiece>,
    /// Bytes that can be read.
    pub kept: u64,
    /// Bytes that came, as far as that is known.
    pub total: u64,
}

/// Reads the output of one command.
#[derive(Debug)]
pub struct OutputReader(Source);

#[derive(Debug)]
enum Source {
    Live(Shelf),
    Kept {
        journal: Arc<dyn Journal>,
        streams: [KeptStream; 2],
        order: Value,
    },
}

#[derive(Debug)]
struct KeptStream {
    /// The bytes, where they stand in the outcome itself.
    text: Option<Vec<u8>>,
    reference: OutputReference,
}

impl KeptStream {
    /// Counts the bytes that can be read.
    fn kept(&self) -> u64 {
        if self.reference.digest.is_some() {
            self.reference.bytes - self.reference.dropped.min(self.reference.bytes)
        } else {
            self.text.as_ref().map_or(0, |text| text.len() as u64)
        }
    }
}

impl OutputReader {
    /// Reads what a command of any process of this data directory writes while it runs.
    pub fn live(data: &Path, command: &CommandId) -> Self {
        Self(Source::Live(Shelf::new(Some(data), data, command)))
    }

    /// Reads what the command of a handle writes; `None` while nothing of it is in files.
    pub fn of_control(control: &Control) -> Option<Self> {
        control.shelf().as_ref().map(Self::of_shelf)
    }

    pub(crate) fn of_shelf(shelf: &Shelf) -> Self {
        Self(Source::Live(shelf.clone()))
    }

    /// Reads what was kept of a command that has ended: a reference and the text of its outcome for
    /// each stream, and what the journal says about the order of arrival.
    pub fn kept(
        journal: Arc<dyn Journal>,
        [stdout, stderr]: [(OutputReference, Option<String>); 2],
        order: Option<Value>,
    ) -> Self {
        let stream = |(reference, text): (OutputReference, Option<String>)| KeptStream {
            // A tail is not the whole.
            text: text
                .map(String::into_bytes)
                .filter(|text| text.len() as u64 == reference.bytes),
            reference,
        };
        Self(Source::Kept {
            journal,
            streams: [stream(stdout), stream(stderr)],
            order: order.unwrap_or(Value::Null),
        })
    }

    /// Tells when output was last written, while it is written.
    pub fn last_written(&self) -> Option<SystemTime> {
        match &self.0 {
            Source::Live(shelf) => shelf.last_written(),
            Source::Kept { .. } => None,
        }
    }

    /// Reads pieces from an offset on, of `max` bytes together at most.
    ///
    /// # Errors
    ///
    /// `output_expired` for what was kept for its time, `io` and `journal_io`.
    pub fn pieces(
        &self,
        view: OutputView,
        offset: u64,
        max: usize,
    ) -> Result<OutputPieces, Problem> {
        match &self.0 {
            Source::Live(shelf) => live_pieces(shelf, view, offset, max).map_err(unreadable),
            Source::Kept {
                journal,
                streams,
                order,
            } => {
                let kept = [streams[0].kept(), streams[1].kept()];
                let totals = [streams[0].reference.bytes, streams[1].reference.bytes];
                let order = match view {
                    OutputView::Combined => kept_order(journal.as_ref(), order)?,
                    _ => Vec::new(),
                };
                let is_open = (order.len() as u64) < limits::OUTPUT_ORDER_BYTES;
                let mut read = |stream: Stream, from, bytes| {
                    kept_bytes(journal.as_ref(), &streams[stream as usize], from, bytes)
                };
                cut(view, offset, max, &order, kept, is_open, totals, &mut read)
            }
        }
    }
}

fn unreadable(error: io::Error) -> Problem {
    Problem::new(
        ErrorCode::Io,
        format!("the output of the command cannot be read: {error}"),
    )
}

fn live_pieces(
    shelf: &Shelf,
    view: OutputView,
    offset: u64,
    max: usize,
) -> io::Result<OutputPieces> {
    // Sizes first, then the order: see the writer.
    let files = [
        shelf.open(Part::of(Stream::Stdout))?,
        shelf.open(Part::of(Stream::Stderr))?,
    ];
    let mut sizes = [0; 2];
    for (size, file) in sizes.iter_mut().zip(&files) {
        if let Some(file) = file {
            *size = file.metadata()?.len();
        }
    }
    let order = match (view, shelf.open(Part::Order)?) {
        (OutputView::Combined, Some(file)) => read_whole(&file)?,
        _ => Vec::new(),
    };
    let is_open = (order.len() as u64) < limits::OUTPUT_ORDER_BYTES;
    let mut read = |stream: Stream, from: u64, bytes: usize| {
        let Some(file) = &files[stream as usize] else {
            return Ok(Vec::new());
        };
        let mut buffer = vec![0; bytes];
        let mut filled = 0;
        while filled < bytes {
            match file.read_at(&mut buffer[filled..], from + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled);
        Ok(buffer)
    };
    cut(view, offset, max, &order, sizes, is_open, sizes, &mut read)
}

/// Cuts a page out of both streams.
#[expect(clippy::too_many_arguments, reason = "what both kinds of source know")]
fn cut<E>(
    view: OutputView,
    offset: u64,
    max: usize,
    order: &[u8],
    kept: [u64; 2],
    is_open: bool,
    totals: [u64; 2],
    read: &mut dyn FnMut(Stream, u64, usize) -> Result<Vec<u8>, E>,
) -> Result<OutputPieces, E> {
    let one = match view {
        OutputView::Stdout => Some(Stream::Stdout),
        OutputView::Stderr => Some(Stream::Stderr),
        OutputView::Combined => None,
    };
    if let Some(stream) = one {
        let there = kept[stream as usize];
        let bytes = there.saturating_sub(offset).min(max as u64) as usize;
        let bytes = if bytes == 0 {
            Vec::new()
        } else {
            read(stream, offset, bytes)?
        };
        let piece = OutputPiece {
            seq: 0,
            stream,
            offset,
            bytes,
        };
        return Ok(OutputPieces {
            pieces: if piece.bytes.is_empty() {
                Vec::new()
            } else {
                vec![piece]
            },
            kept: there,
            total: totals[stream as usize],
        });
    }
    let all = runs(order, kept, is_open);
    let there = all.last().map_or(0, |run| run.at + run.bytes);
    let mut left = max as u64;
    let mut pieces = Vec::new();
    let first = all.partition_point(|run| run.at + run.bytes <= offset);
    for run in &all[first..] {
        if left == 0 {
            break;
        }
        let skip = offset.saturating_sub(run.at);
        let wanted = (run.bytes - skip).min(left);
        let bytes = read(run.stream, run.offset + skip, wanted as usize)?;
        let is_short = (bytes.len() as u64) < wanted;
        left -= bytes.len() as u64;
        pieces.push(OutputPiece {
            seq: run.seq,
            stream: run.stream,
            offset: run.offset + skip,
            bytes,
        });
        if is_short {
            break;
        }
    }
    Ok(OutputPieces {
        pieces,
        kept: there,
        total: (totals[0] + totals[1]).max(there),
    })
}

fn kept_bytes(
    journal: &dyn Journal,
    stream: &KeptStream,
    from: u64,
    bytes: usize,
) -> Result<Vec<u8>, Problem> {
    if let Some(digest) = &stream.reference.digest {
        let found = journal
            .content(&Digest(digest.clone()), from, bytes)
            .map_err(|error| error.to_problem())?;
        return found.ok_or_else(expired);
    }
    let text = stream.text.as_deref().unwrap_or_default();
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(text.len());
    Ok(text[from..text.len().min(from.saturating_add(bytes))].to_vec())
}

fn expired() -> Problem {
    Problem::new(
        ErrorCode::OutputExpired,
        "the output was kept for its time and is gone",
    )
    .with_hint("the end of it stands in the result of the command")
}

/// Reads the order as an event tells it.
fn kept_order(journal: &dyn Journal, told: &Value) -> Result<Vec<u8>, Problem> {
    if let Some(lengths) = told.get("runs").and_then(Value::as_array) {
        let mut order = Order::new();
        for (turn, length) in lengths.iter().enumerate() {
            order.note(STREAMS[turn % 2], length.as_u64().unwrap_or_default());
        }
        // The last one stays open.
        return Ok(order.closed().to_vec());
    }
    let Some(digest) = told.get("digest").and_then(Value::as_str) else {
        return Ok(Vec::new());
    };
    let limit = limits::OUTPUT_ORDER_BYTES as usize * 2;
    journal
        .content(&Digest(digest.to_owned()), 0, limit)
        .map_err(|error| error.to_problem())?
        .ok_or_else(expired)
}

/// Makes what an event says about an order: the lengths themselves where they are few.
pub(crate) fn order_value(
    order: &[u8],
    keep: impl FnOnce(&[u8]) -> Result<ContentReference, JournalError>,
) -> Result<Value, JournalError> {
    let all = super::order::lengths(order);
    if all.len() < INLINE_RUNS {
        // The open run at the end takes whatever there is.
        return Ok(json!({"runs": all.into_iter().chain([0]).collect::<Vec<_>>()}));
    }
    let kept = keep(order)?;
    Ok(json!({"digest": kept.content, "bytes": kept.bytes}))
}

pub(crate) fn read_whole(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or_default()];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
