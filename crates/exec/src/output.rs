//! What a command writes, as text: its end.

use std::io;

use cofferdam_core::limits;
use cofferdam_core::outcome::StreamEncoding;

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or everything of a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes output as it comes, before it is collected.
pub trait OutputSink {
    /// Passes bytes on. An error closes the stream, as a closed pipe would.
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()>;
}

/// Appends and forgets the front beyond `keep` bytes, moving memory only now and then.
pub(crate) fn keep_tail(tail: &mut Vec<u8>, bytes: &[u8], keep: usize) {
    if bytes.len() >= keep {
        tail.clear();
        tail.extend_from_slice(&bytes[bytes.len() - keep..]);
        return;
    }
    if tail.len() + bytes.len() > 2 * keep {
        tail.drain(..tail.len() + bytes.len() - keep);
    }
    tail.extend_from_slice(bytes);
}

/// Text of the last [`limits::OUTPUT_CHARACTERS`] characters, how it was made, and whether it is
/// less than the whole.
pub(crate) fn text_tail(bytes: &[u8], whole: bool) -> (String, StreamEncoding, bool) {
    let (text, encoding) = if let Ok(text) = std::str::from_utf8(bytes) {
        (text.to_owned(), StreamEncoding::Utf8)
    } else {
        let cut = if whole {
            bytes
        } else {
            skip_continuation(bytes)
        };
        match std::str::from_utf8(cut) {
            Ok(text) => (text.to_owned(), StreamEncoding::Utf8),
            Err(_) => (
                String::from_utf8_lossy(cut).into_owned(),
                StreamEncoding::Utf8Replaced,
            ),
        }
    };
    let start = text
        .char_indices()
        .rev()
        .nth(limits::OUTPUT_CHARACTERS.saturating_sub(1))
        .map_or(0, |(index, _)| index);
    let truncated = start > 0 || !whole;
    (
        if start > 0 {
            text[start..].to_owned()
        } else {
            text
        },
        encoding,
        truncated,
    )
}

/// Leaves out the rest of a character whose beginning was cut off.
fn skip_continuation(bytes: &[u8]) -> &[u8] {
    let skip = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xc0 == 0x80)
        .count();
    &bytes[skip..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fc_75_a_cut_never_splits_a_character() {
        let bytes = "€€€".as_bytes();
        let (text, encoding, truncated) = text_tail(&bytes[1..], false);
        assert_eq!(
            (text.as_str(), encoding, truncated),
            ("€€", StreamEncoding::Utf8, true)
        );
        let (text, encoding, _) = text_tail(b"a\xffb", true);
        assert_eq!(
            (text.as_str(), encoding),
            ("a\u{fffd}b", StreamEncoding::Utf8Replaced)
        );
    }

    #[test]
    fn the_last_characters_are_kept() {
        let long = "é".repeat(limits::OUTPUT_CHARACTERS + 1);
        let (text, _, truncated) = text_tail(long.as_bytes(), true);
        assert_eq!(text.chars().count(), limits::OUTPUT_CHARACTERS);
        assert!(truncated);
    }
}
