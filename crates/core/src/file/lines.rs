//! Ranges of lines of a text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Lines of a file, the first being 1; both ends belong to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LineRange {
    /// First line; the file's first where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_line: Option<u64>,
    /// Last line; the file's last where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_line: Option<u64>,
}

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt<'a> {
    /// Its bytes, whole characters only, ends of lines included.
    pub bytes: &'a [u8],
    /// Its first line, from 1; 0 where the range holds no line.
    pub first_line: u64,
    /// Its last line; 0 where the range holds no line.
    pub last_line: u64,
    /// Whether characters of the range were left out at the end.
    pub is_truncated: bool,
}

/// What one pass over a text, or over a part of it, tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextFacts {
    /// How many line feeds there are.
    pub line_feeds: u64,
    /// Whether every byte is a character of ASCII, and so one for itself.
    pub is_ascii: bool,
}

impl TextFacts {
    /// Looks at a text.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            line_feeds: memchr::memchr_iter(b'\n', bytes).count() as u64,
            is_ascii: bytes.is_ascii(),
        }
    }

    /// Gives those of a text and what follows it.
    #[must_use]
    pub const fn and(self, next: Self) -> Self {
        Self {
            line_feeds: self.line_feeds + next.line_feeds,
            is_ascii: self.is_ascii && next.is_ascii,
        }
    }

    /// Counts the lines of the text, which is given again for its end.
    pub fn lines(&self, bytes: &[u8]) -> u64 {
        self.line_feeds + u64::from(bytes.last().is_some_and(|last| *last != b'\n'))
    }
}

/// Counts the lines: pieces between line feeds, the last of which need not end in one.
pub fn line_count(bytes: &[u8]) -> u64 {
    TextFacts::of(bytes).lines(bytes)
}

/// Gives the lines of a range, at most so many characters of them. A range that goes beyond the file
/// ends with it; one that begins beyond it is empty.
pub fn excerpt(bytes: &[u8], range: LineRange, most_characters: usize) -> Excerpt<'_> {
    let first = range.start_line.unwrap_or(1).max(1);
    let last = range.end_line.unwrap_or(u64::MAX);
    let empty = Excerpt {
        bytes: &[],
        first_line: 0,
        last_line: 0,
        is_truncated: false,
    };
    if last < first {
        return empty;
    }
    let Some(start) = line_start(bytes, 0, first - 1) else {
        return empty;
    };
    if start == bytes.len() {
        return empty;
    }
    let end = line_start(bytes, start, last.saturating_sub(first).saturating_add(1))
        .unwrap_or(bytes.len());
    let whole = &bytes[start..end];
    let cut = character_boundary(whole, most_characters);
    let piece = &whole[..cut];
    Excerpt {
        bytes: piece,
        first_line: first,
        last_line: first + line_count(piece).max(1) - 1,
        is_truncated: cut < whole.len(),
    }
}

/// Finds where the line begins that lies so many lines further on; `None` when there are fewer.
fn line_start(bytes: &[u8], from: usize, lines: u64) -> Option<usize> {
    if lines == 0 {
        return Some(from);
    }
    let nth = usize::try_from(lines - 1).ok()?;
    memchr::memchr_iter(b'\n', &bytes[from..])
        .nth(nth)
        .map(|at| from + at + 1)
}

/// Counts so many characters from the front, and gives the bytes that they take. A byte that is no
/// UTF-8 counts as one character.
fn character_boundary(bytes: &[u8], characters: usize) -> usize {
    if bytes.len() <= characters {
        return bytes.len();
    }
    let mut left = characters;
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for (offset, _) in chunk.valid().char_indices() {
            if left == 0 {
                return at + offset;
            }
            left -= 1;
        }
        at += chunk.valid().len();
        for _ in chunk.invalid() {
            if left == 0 {
                return at;
            }
            left -= 1;
            at += 1;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], start: u64, end: u64, characters: usize) -> (Vec<u8>, u64, u64, bool) {
        let range = LineRange {
            start_line: Some(start),
            end_line: Some(end),
        };
        let piece = excerpt(bytes, range, characters);
        let Excerpt {
            bytes,
            first_line,
            last_line,
            is_truncated,
        } = piece;
        (bytes.to_vec(), first_line, last_line, is_truncated)
    }

    #[test]
    fn a_range_keeps_its_ends_and_stops_with_the_file() {
        let text = b"one\r\ntwo\nthree";
        assert_eq!(lines(text, 2, 2, 99), (b"two\n".to_vec(), 2, 2, false));
        assert_eq!(lines(text, 2, 9, 99), (b"two\nthree".to_vec(), 2, 3, false));
        assert_eq!(lines(text, 4, 9, 99), (Vec::new(), 0, 0, false));
        assert_eq!(lines(text, 3, 2, 99), (Vec::new(), 0, 0, false));
        assert_eq!(lines(b"", 1, 1, 99), (Vec::new(), 0, 0, false));
        assert_eq!(lines(b"a\n", 2, 2, 99), (Vec::new(), 0, 0, false));
        assert_eq!(line_count(text), 3);
        assert_eq!(line_count(b"a\n"), 1);
    }

    #[test]
    fn facts_of_parts_are_those_of_the_whole() {
        let text = "one\ntwo é\nthree".as_bytes();
        for cut in 0..text.len() {
            let (first, second) = text.split_at(cut);
            let parts = TextFacts::of(first).and(TextFacts::of(second));
            assert_eq!(parts, TextFacts::of(text), "{cut}");
            assert_eq!((parts.lines(text), parts.is_ascii), (3, false));
        }
    }

    #[test]
    fn a_character_is_never_cut() {
        let text = "aé漢x".as_bytes();
        assert_eq!(lines(text, 1, 1, 2), ("aé".into(), 1, 1, true));
        assert_eq!(lines(text, 1, 1, 3), ("aé漢".into(), 1, 1, true));
        assert_eq!(lines(text, 1, 1, 4), ("aé漢x".into(), 1, 1, false));
        assert_eq!(lines(b"\xff\xfeab", 1, 1, 3).0, b"\xff\xfea".to_vec());
    }
}
