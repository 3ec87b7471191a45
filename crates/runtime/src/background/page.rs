//! Output of a command, page by page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::CommandId;
use cofferdam_core::limits;
use cofferdam_core::operation::{
    OutputChunk, OutputForm, OutputGap, OutputPage, OutputStream, OutputView, ReadOutput, wait_time,
};
use cofferdam_core::outcome::Status;
use cofferdam_exec::{Control, OutputPieces, OutputReader, Stream};

use super::fold::Folded;
use crate::runtime::Runtime;

/// How often is looked for more output.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How often is looked whether the process of a command lives.
const LOOK_AT_LIFE: Duration = Duration::from_secs(1);

/// What a page is made of.
#[derive(Debug)]
pub(super) struct PageRequest<'a> {
    command: &'a CommandId,
    view: OutputView,
    offset: u64,
    max: usize,
    form: OutputForm,
}

impl<'a> PageRequest<'a> {
    /// The first page, as text.
    pub(super) const fn first(command: &'a CommandId, view: OutputView) -> Self {
        Self {
            command,
            view,
            offset: 0,
            max: limits::OUTPUT_PAGE_BYTES as usize,
            form: OutputForm::Text,
        }
    }
}

impl Runtime {
    /// Reads output of a command from an offset on, while it runs and after its end, whichever
    /// process of this data directory it belongs to. Pages that are read one after the other give
    /// every byte that was kept, once.
    ///
    /// `stop` ends a wait for more.
    ///
    /// # Errors
    ///
    /// `command_unknown`, `offset_out_of_window` for an offset beyond what came, `output_expired`,
    /// `invalid_request`, and those of reading.
    pub fn read_output(&self, request: &ReadOutput, stop: &Control) -> Result<OutputPage, Problem> {
        let most = limits::OUTPUT_WAIT_SECONDS as f64;
        let (wait, _) = wait_time("wait_seconds", request.wait_seconds, 0.0, most)?;
        let bytes = request.max_bytes.unwrap_or(limits::OUTPUT_PAGE_BYTES);
        if bytes == 0 {
            return Err(
                Problem::new(ErrorCode::InvalidRequest, "a page has at least one byte")
                    .with_field("max_bytes"),
            );
        }
        // A page of text must have room for a character.
        let bytes = bytes.clamp(4, limits::OUTPUT_PAGE_BYTES_CAP);
        let request = PageRequest {
            command: &request.command_id,
            view: request.stream,
            offset: request.offset,
            max: bytes as usize,
            form: request.form,
        };
        let until = Instant::now() + wait;
        let mut known = None;
        loop {
            let page = self.page_of(&request, &mut known)?;
            let is_empty = page.next_offset == request.offset && !page.eof;
            if !is_empty || stop.is_cancelled() || Instant::now() >= until {
                return Ok(page);
            }
            std::thread::sleep(LOOK_AGAIN.min(until.saturating_duration_since(Instant::now())));
        }
    }

    /// Makes one page.
    pub(super) fn page(&self, request: &PageRequest<'_>) -> Result<OutputPage, Problem> {
        self.page_of(request, &mut None)
    }

    /// Makes one page; what is known of the command is looked up anew when the journal has grown.
    fn page_of(
        &self,
        request: &PageRequest<'_>,
        known: &mut Option<(u64, Folded)>,
    ) -> Result<OutputPage, Problem> {
        let mut folded = self.refresh(request.command, known)?;
        let read = |folded: &Folded| {
            self.reader(folded)
                .pieces(request.view, request.offset, request.max)
        };
        let mut pieces = read(folded)?;
        if folded.record.status == Status::Running && pieces.pieces.is_empty() {
            // It may have ended meanwhile; then its output lies elsewhere.
            folded = self.refresh(request.command, known)?;
            if folded.record.status != Status::Running {
                pieces = read(folded)?;
            }
        }
        let is_over = folded.record.status != Status::Running;
        if request.offset > pieces.total {
            return Err(Problem::new(
                ErrorCode::OffsetOutOfWindow,
                format!(
                    "the offset {} lies beyond the {} bytes that came so far",
                    request.offset, pieces.total
                ),
            )
            .with_field("offset")
            .with_hint("go on from next_offset of an earlier page"));
        }
        Ok(lay(request, folded.record.status, &pieces, is_over))
    }

    fn refresh<'k>(
        &self,
        command: &CommandId,
        known: &'k mut Option<(u64, Folded)>,
    ) -> Result<&'k Folded, Problem> {
        let head = self
            .journal()
            .head()
            .map_err(|error| error.to_problem())?
            .pos;
        if known.as_ref().is_none_or(|(seen, _)| *seen != head) {
            *known = Some((head, self.known(command)?));
        }
        known.as_ref().map(|(_, folded)| folded).ok_or_else(|| {
            Problem::new(ErrorCode::Internal, "what was just looked up is not there")
        })
    }

    /// Finds a command.
    pub(super) fn known(&self, command: &CommandId) -> Result<Folded, Problem> {
        self.fold_of(command, None)?.ok_or_else(|| {
            Problem::new(
                ErrorCode::CommandUnknown,
                format!("there is no command {command}"),
            )
            .with_field("command_id")
            .with_hint("list them with command_list, or with: cofferdam ps")
        })
    }

    /// Gives what reads the output of a command.
    pub(super) fn reader(&self, folded: &Folded) -> OutputReader {
        let command = &folded.record.command_id;
        let kept = match (&folded.outcome, &folded.settled) {
            (Some(outcome), _) => [
                (outcome.stdout_full.clone(), Some(outcome.stdout.clone())),
                (outcome.stderr_full.clone(), Some(outcome.stderr.clone())),
            ],
            (None, Some(settled)) => settled.clone().map(|reference| (reference, None)),
            (None, None) => {
                return self
                    .attendance
                    .control(command)
                    .and_then(|control| OutputReader::of_control(&control))
                    .unwrap_or_else(|| OutputReader::live(&self.data_dir, command));
            }
        };
        OutputReader::kept(Arc::clone(self.journal()), kept, folded.order.clone())
    }
}

/// Lays the pieces of a page out in its form.
fn lay(
    request: &PageRequest<'_>,
    status: Status,
    pieces: &OutputPieces,
    is_over: bool,
) -> OutputPage {
    let mut bytes: Vec<u8> = Vec::new();
    for piece in &pieces.pieces {
        bytes.extend_from_slice(&piece.bytes);
    }
    let mut end = request.offset + bytes.len() as u64;
    let is_last = is_over && end >= pieces.kept;
    if request.form == OutputForm::Text && !is_last {
        let cut = unfinished(&bytes);
        bytes.truncate(bytes.len() - cut);
        end -= cut as u64;
    }
    let gap = (is_last && pieces.kept < pieces.total).then_some(OutputGap {
        from: pieces.kept.max(end),
        to: pieces.total,
    });
    let (content, replaced) = write(&bytes, request.form);
    let chunks = if request.view == OutputView::Combined {
        chunks(pieces, bytes.len(), request.form)
    } else {
        Vec::new()
    };
    OutputPage {
        command_id: request.command.clone(),
        status,
        stream: request.view,
        offset: request.offset,
        content,
        form: request.form,
        replaced,
        chunks,
        next_offset: end,
        eof: is_last,
        total: pieces.total,
        gap,
    }
}

/// Lays out the pieces, as far as the page goes.
fn chunks(pieces: &OutputPieces, bytes: usize, form: OutputForm) -> Vec<OutputChunk> {
    let mut left = bytes;
    let mut chunks = Vec::with_capacity(pieces.pieces.len());
    for piece in &pieces.pieces {
        let taken = piece.bytes.len().min(left);
        if taken == 0 {
            break;
        }
        left -= taken;
        chunks.push(OutputChunk {
            seq: piece.seq,
            stream: match piece.stream {
                Stream::Stdout => OutputStream::Stdout,
                Stream::Stderr => OutputStream::Stderr,
            },
            offset: piece.offset,
            bytes: taken as u64,
            content: write(&piece.bytes[..taken], form).0,
        });
    }
    chunks
}

/// Writes bytes in a form; tells whether some were replaced.
fn write(bytes: &[u8], form: OutputForm) -> (String, bool) {
    match form {
        OutputForm::Base64 => (STANDARD.encode(bytes), false),
        OutputForm::Text => {
            let text = String::from_utf8_lossy(bytes);
            let replaced = matches!(text, std::borrow::Cow::Owned(_));
            (text.into_owned(), replaced)
        }
    }
}

/// Counts the bytes at the end that are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let wanted = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if wanted > back { back } else { 0 };
    }
    0
}

/// Follows the output of a command as bytes, from any process.
#[derive(Debug)]
pub struct Follow {
    command: CommandId,
    view: OutputView,
    offset: u64,
    /// The journal up to which the state is known.
    seen: Option<(u64, Instant)>,
    folded: Option<Box<Folded>>,
}

/// What following gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Pieces that are new, with their streams.
    pub pieces: Vec<(OutputStream, Vec<u8>)>,
    /// The status when they were read.
    pub status: Status,
    /// Whether nothing follows and nothing will.
    pub eof: bool,
    /// Bytes that came and were not kept, told with the last of the kept ones.
    pub dropped: u64,
}

impl Follow {
    /// Begins at the beginning.
    pub const fn new(command: CommandId, view: OutputView) -> Self {
        Self {
            command,
            view,
            offset: 0,
            seen: None,
            folded: None,
        }
    }

    /// Reads what is new, at most a page; never waits.
    ///
    /// # Errors
    ///
    /// As [`Runtime::read_output`].
    pub fn next(&mut self, runtime: &Runtime) -> Result<Followed, Problem> {
        let head = runtime
            .journal()
            .head()
            .map_err(|error| error.to_problem())?
            .pos;
        let folded = match self.folded.take() {
            // A process that dies does not say so: now and then it is looked at.
            Some(folded)
                if self
                    .seen
                    .is_some_and(|(seen, at)| seen == head && at.elapsed() < LOOK_AT_LIFE) =>
            {
                folded
            }
            _ => {
                self.seen = Some((head, Instant::now()));
                Box::new(runtime.known(&self.command)?)
            }
        };
        let folded = self.folded.insert(folded);
        let reader = runtime.reader(folded);
        let max = limits::OUTPUT_PAGE_BYTES_CAP as usize;
        let read = reader.pieces(self.view, self.offset, max)?;
        let pieces: Vec<(OutputStream, Vec<u8>)> = read
            .pieces
            .into_iter()
            .map(|piece| {
                let stream = match piece.stream {
                    Stream::Stdout => OutputStream::Stdout,
                    Stream::Stderr => OutputStream::Stderr,
                };
                (stream, piece.bytes)
            })
            .collect();
        self.offset += pieces.iter().map(|one| one.1.len() as u64).sum::<u64>();
        let status = folded.record.status;
        let eof = status != Status::Running && self.offset >= read.kept;
        Ok(Followed {
            pieces,
            status,
            eof,
            dropped: if eof { read.total - read.kept } else { 0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c7_a_page_never_ends_within_a_character() {
        assert_eq!(unfinished("aé".as_bytes()), 0);
        assert_eq!(unfinished(&"é".as_bytes()[..1]), 1);
        assert_eq!(unfinished(&"€".as_bytes()[..2]), 2);
        assert_eq!(unfinished(&"🦀".as_bytes()[..3]), 3);
        assert_eq!(unfinished("🦀".as_bytes()), 0);
        assert_eq!(unfinished(b"\x80\x80\x80\x80"), 0);
        assert_eq!(unfinished(b"a\xff"), 0);
        assert_eq!(unfinished(b""), 0);
    }
}
