//! Reading (E5): content, matches, ranges, media.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::file::{LineRange, SearchOptions, excerpt, search};
use cofferdam_core::limits;
use cofferdam_core::operation::{Encoding, FileRead, Media, ReadFile, ReadKind, Segment};
use cofferdam_core::spec::Digest;
use cofferdam_keeper::{FileReply, FileRequest};

use super::content::{Whole, read_all, tell, tell_all, too_large};
use super::digests::Known;
use super::media::mime_type;
use super::path::Located;
use super::{FileDoor, worker};

/// Bytes up to which a file comes with the answer about it.
const INLINE: u32 = 32 * 1024;
/// Matching lines unless a request says how many.
const MATCHES: usize = 5;
/// Lines around a match unless a request says how many.
const CONTEXT: usize = 1;
/// Most lines before a match.
pub(super) const BEFORE_CAP: usize = 3;
/// Most lines after a match.
pub(super) const AFTER_CAP: usize = 5;

impl FileDoor<'_> {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// `invalid_request` naming the field; `file_missing`, `path_outside`, `not_a_file`, `denied`,
    /// `file_too_large`.
    pub fn read(&self, request: &ReadFile) -> Result<FileRead, Problem> {
        let asked = Asked::of(request)?;
        let at = self.locate(&request.path)?;
        let (real, whole) = self.content_of(&at, self.terms.bounds.read_bytes)?;
        self.may_read(&real)?;
        let Known { digest, facts } = self.known_to_show(&whole);
        let bytes = &whole.bytes;
        let total_lines = facts.lines(bytes);
        if let Some(visits) = &self.terms.visits {
            visits.see(self.on_host(&real), digest.clone());
        }
        let mut read = FileRead {
            encoding: request.encoding,
            ..FileRead::of(request.path.clone(), bytes, total_lines, digest)
        };
        match asked {
            Asked::Content { range, characters }
                if range == LineRange::default() && bytes.len() <= characters =>
            {
                read.start_line = total_lines.min(1);
                read.end_line = total_lines;
                let (content, encoding, characters) =
                    tell_all(whole.bytes, facts, request.encoding);
                read.char_count = characters;
                read.encoding = encoding;
                read.content = Some(content);
            }
            Asked::Content { range, characters } => {
                let piece = excerpt(bytes, range, characters);
                let (content, encoding) = tell(piece.bytes, request.encoding);
                read.char_count = content.chars().count() as u64;
                read.encoding = encoding;
                read.content = Some(content);
                read.start_line = piece.first_line;
                read.end_line = piece.last_line;
                read.truncated = piece.is_truncated;
            }
            Asked::Search(options) => {
                let found = search(bytes, &options);
                let shown = found
                    .blocks
                    .iter()
                    .flat_map(|block| &block.lines)
                    .filter(|line| line.is_match)
                    .count() as u64;
                read.truncated = shown < found.matching_lines;
                read.matching_lines = Some(found.matching_lines);
                read.matches = found.blocks;
            }
            Asked::Extract {
                ranges,
                mut characters,
            } => {
                for range in ranges {
                    let piece = excerpt(bytes, range, characters);
                    let (content, encoding) = tell(piece.bytes, request.encoding);
                    let taken = content.chars().count();
                    characters = characters.saturating_sub(taken);
                    read.char_count += taken as u64;
                    read.truncated |= piece.is_truncated;
                    if encoding != Encoding::Utf8 {
                        read.encoding = encoding;
                    }
                    read.segments.push(Segment {
                        start_line: piece.first_line,
                        end_line: piece.last_line,
                        content,
                        truncated: piece.is_truncated,
                    });
                }
            }
            Asked::Media => {
                let Some(mime_type) = mime_type(bytes) else {
                    let message = format!("{} is neither an image nor a video", request.path);
                    return Err(Problem::new(ErrorCode::NotAFile, message)
                        .with_field("path")
                        .with_hint(
                            "`type = read` reads text, and with `encoding = base64` bytes",
                        ));
                };
                read.total_lines = 0;
                read.encoding = Encoding::Base64;
                read.media = Some(Media {
                    mime_type: mime_type.to_owned(),
                    base64: tell(bytes, Encoding::Base64).0,
                });
            }
        }
        Ok(read)
    }

    /// Reads all bytes of a file, links followed as far as they stay beneath the root; tells where it
    /// really stands.
    pub(super) fn content_of(&self, at: &Located, most: u64) -> Result<(Located, Whole), Problem> {
        let request = FileRequest::Read {
            path: at.relative().to_vec(),
            inline: INLINE,
        };
        let (FileReply::Read(found), file) = self.ask(at, &request)? else {
            let message = "a file worker gave no content";
            return Err(Problem::new(ErrorCode::Internal, message));
        };
        let whole = match (found.bytes, file) {
            (Some(bytes), _) if bytes.0.len() as u64 <= most => Whole {
                bytes: bytes.0,
                stamp: None,
            },
            (Some(bytes), _) => return Err(too_large(at.shown(), bytes.0.len() as u64, most)),
            (None, Some(file)) => read_all(file, most, at.shown())?,
            (None, None) => {
                let message = "a file worker sent no file";
                return Err(Problem::new(ErrorCode::Internal, message));
            }
        };
        Ok((at.really(found.path), whole))
    }

    /// Reads all bytes of what really stands at a place.
    pub(super) fn whole_of(&self, at: &Located, most: u64) -> Result<Whole, Problem> {
        let (real, whole) = self.content_of(at, most)?;
        if real.relative() == at.relative() {
            return Ok(whole);
        }
        // A link was put in the way since the place was looked at.
        Err(worker::refused(
            at.shown(),
            rustix::io::Errno::LOOP.raw_os_error(),
        ))
    }

    /// Tells what there is to know of a file that is only shown: as it is remembered, where the file
    /// looks unchanged.
    fn known_to_show(&self, whole: &Whole) -> Known {
        let Some(stamp) = &whole.stamp else {
            return Known::of(&whole.bytes);
        };
        let memo = self.plane.digests();
        memo.of(stamp).unwrap_or_else(|| {
            let known = Known::of(&whole.bytes);
            memo.put(stamp, &known, self.plane.ambient().now());
            known
        })
    }

    /// Digests a file that something is decided by: its very bytes.
    pub(super) fn digest_to_act(&self, whole: &Whole) -> Digest {
        let digest = Digest::of(&whole.bytes);
        if let Some(stamp) = &whole.stamp {
            self.plane.digests().correct(stamp, &digest);
        }
        digest
    }
}

/// A request that makes sense.
enum Asked {
    Content {
        range: LineRange,
        characters: usize,
    },
    Search(SearchOptions),
    Extract {
        ranges: Vec<LineRange>,
        characters: usize,
    },
    Media,
}

impl Asked {
    fn of(request: &ReadFile) -> Result<Self, Problem> {
        let wrong = |field: &str, message: String| {
            Err(Problem::new(ErrorCode::InvalidRequest, message).with_field(field))
        };
        let characters = request.max_chars.unwrap_or(limits::OUTPUT_CHARACTERS);
        if characters == 0 {
            return wrong("max_chars", "max_chars is at least 1".to_owned());
        }
        let ranges = request.segments.iter().copied().chain([LineRange {
            start_line: request.start_line,
            end_line: request.end_line,
        }]);
        for range in ranges {
            if range.start_line == Some(0) {
                return wrong("start_line", "lines are counted from 1".to_owned());
            }
            let last = range.end_line.unwrap_or(u64::MAX);
            if last < range.start_line.unwrap_or(1) {
                return wrong("end_line", "a range ends before it begins".to_owned());
            }
        }
        let is_of = |kinds: &[ReadKind]| kinds.contains(&request.kind);
        let others = [
            ("query", request.query.is_some(), &[ReadKind::Search][..]),
            (
                "segments",
                !request.segments.is_empty(),
                &[ReadKind::Extract],
            ),
            (
                "start_line",
                request.start_line.is_some() || request.end_line.is_some(),
                &[ReadKind::Read],
            ),
        ];
        for (field, is_given, kinds) in others {
            if is_given && !is_of(kinds) {
                return wrong(field, format!("{field} does not go with this type"));
            }
        }
        match request.kind {
            ReadKind::Read => Ok(Self::Content {
                range: LineRange {
                    start_line: request.start_line,
                    end_line: request.end_line,
                },
                characters,
            }),
            ReadKind::Search => {
                let query = request.query.clone().unwrap_or_default();
                if query.is_empty() || query.contains('\n') {
                    let message = "a search needs a query, of one line";
                    return wrong("query", message.to_owned());
                }
                let most_matches = request.max_matches.unwrap_or(MATCHES);
                if !(1..=limits::SEARCH_MATCHES).contains(&most_matches) {
                    let message = format!("max_matches is 1 to {}", limits::SEARCH_MATCHES);
                    return wrong("max_matches", message);
                }
                let around = |field, given: Option<usize>, cap| match given.unwrap_or(CONTEXT) {
                    lines if lines <= cap => Ok(lines),
                    _ => Err(Problem::new(
                        ErrorCode::InvalidRequest,
                        format!("{field} is at most {cap}"),
                    )
                    .with_field(field)),
                };
                Ok(Self::Search(SearchOptions {
                    query,
                    is_case_sensitive: request.case_sensitive,
                    most_matches,
                    context_before: around("context_before", request.context_before, BEFORE_CAP)?,
                    context_after: around("context_after", request.context_after, AFTER_CAP)?,
                }))
            }
            ReadKind::Extract => {
                let ranges = request.segments.clone();
                if ranges.is_empty() || ranges.len() > limits::EXTRACT_SEGMENTS {
                    let message = format!("segments are 1 to {}", limits::EXTRACT_SEGMENTS);
                    return wrong("segments", message);
                }
                Ok(Self::Extract { ranges, characters })
            }
            ReadKind::Media => Ok(Self::Media),
        }
    }
}
