//! Paths of requests, and patterns over them.
//!
//! A path is compared by its segments, decoded once. What two readers could take for two paths is
//! none at all: it is refused, never guessed.

use std::fmt;
use std::str::FromStr;

/// The most segments of a path or a pattern.
const MOST_SEGMENTS: usize = 256;

/// Says why a path could be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with a slash.
    #[error("it does not begin with a slash")]
    NoSlash,
    /// A segment is `.` or `..`, written out or encoded.
    #[error("it has a segment of dots in it")]
    Dots,
    /// A segment is empty.
    #[error("it has an empty segment in it")]
    Empty,
    /// A backslash, which some take for a slash.
    #[error("it has a backslash in it")]
    Backslash,
    /// A percent sign without two hexadecimal digits, or one that is itself encoded.
    #[error("it is encoded wrongly or twice")]
    Encoding,
    /// A control byte, a blank, or a byte outside of ASCII that is not encoded.
    #[error("it has a byte in it that no path has")]
    Byte,
    /// More segments than are compared.
    #[error("it has too many segments")]
    TooLong,
}

/// A path that can be read in one way only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPath {
    segments: Vec<Segment>,
}

/// One segment: pieces between slashes that were encoded, each decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment(Vec<Vec<u8>>);

impl RequestPath {
    /// Reads a path without its query.
    ///
    /// # Errors
    ///
    /// [`PathError`] for whatever servers do not all read alike: `//`, segments of dots, backslashes,
    /// wrong or double encoding.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let rest = text.strip_prefix('/').ok_or(PathError::NoSlash)?;
        let parts: Vec<&str> = rest.split('/').collect();
        if parts.len() > MOST_SEGMENTS {
            return Err(PathError::TooLong);
        }
        let last = parts.len() - 1;
        let mut segments = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            if part.is_empty() && at < last {
                return Err(PathError::Empty);
            }
            segments.push(Segment::parse(part)?);
        }
        Ok(Self { segments })
    }
}

impl Segment {
    fn parse(part: &str) -> Result<Self, PathError> {
        let mut pieces = vec![Vec::new()];
        let mut bytes = part.bytes();
        while let Some(byte) = bytes.next() {
            let decoded = match byte {
                b'%' => {
                    let mut digit = || bytes.next().and_then(|byte| (byte as char).to_digit(16));
                    let (high, low) = (digit(), digit());
                    let value = high.zip(low).ok_or(PathError::Encoding)?;
                    (value.0 * 16 + value.1) as u8
                }
                b'\\' => return Err(PathError::Backslash),
                byte if !byte.is_ascii_graphic() => return Err(PathError::Byte),
                byte => {
                    push(&mut pieces, byte);
                    continue;
                }
            };
            match decoded {
                b'/' => pieces.push(Vec::new()),
                b'\\' => return Err(PathError::Backslash),
                b'%' => return Err(PathError::Encoding),
                byte if byte.is_ascii_control() => return Err(PathError::Byte),
                byte => push(&mut pieces, byte),
            }
        }
        // Some cut parameters off behind a semicolon before they look for dots.
        let is_dots = |piece: &Vec<u8>| {
            let name = piece.split(|byte| *byte == b';').next().unwrap_or_default();
            matches!(name, b"." | b"..") || (name.is_empty() && !piece.is_empty())
        };
        if pieces.iter().any(is_dots) {
            return Err(PathError::Dots);
        }
        if pieces.len() > 1 && pieces.iter().any(Vec::is_empty) {
            return Err(PathError::Empty);
        }
        Ok(Self(pieces))
    }
}

fn push(pieces: &mut [Vec<u8>], byte: u8) {
    if let Some(piece) = pieces.last_mut() {
        piece.push(byte);
    }
}

/// Says why a text is no pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// What is left without its stars is no path.
    #[error("the path {text:?} is none: {source}")]
    Path {
        /// The pattern.
        text: String,
        /// Why.
        source: PathError,
    },
    /// Two stars stand within a segment.
    #[error("the path {text:?} has ** within a segment; it stands for whole segments, as in /a/**")]
    Stars {
        /// The pattern.
        text: String,
    },
    /// It has a query.
    #[error("the path {text:?} has a query; rules do not look at queries")]
    Query {
        /// The pattern.
        text: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Any number of segments, none included.
    Deep,
    /// One segment. A star, here the byte 0, is any run of bytes of one piece.
    One(Segment),
}

/// The byte that stands for a star: no path has it.
const STAR: u8 = 0;

/// A pattern of paths: `*` is any run of characters within a segment, `**` any number of segments.
///
/// | Written | Holds for |
/// |---|---|
/// | `/a/b` | exactly this path |
/// | `/a/*` | one segment below `/a`, none with an encoded slash in it |
/// | `/a/**` | `/a`, `/a/` and everything below |
/// | `/**` | every path that can be read in one way |
///
/// ```
/// use cofferdam_core::hosts::{PathPattern, RequestPath};
///
/// let pattern: PathPattern = "/repos/me/**".parse().unwrap();
/// assert!(pattern.matches(&RequestPath::parse("/repos/me/app/pulls").unwrap()));
/// assert!(RequestPath::parse("/repos/me/../you").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    parts: Vec<Part>,
}

impl FromStr for PathPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.contains(['?', '#']) {
            return Err(PatternError::Query {
                text: text.to_owned(),
            });
        }
        let no_path = |source| PatternError::Path {
            text: text.to_owned(),
            source,
        };
        let whole = text
            .strip_prefix('/')
            .ok_or_else(|| no_path(PathError::NoSlash))?;
        // Checked as a path, with a letter for each star.
        RequestPath::parse(&text.replace('*', "x")).map_err(no_path)?;
        let mut parts: Vec<Part> = Vec::new();
        for part in whole.split('/') {
            if part == "**" {
                if parts.last() != Some(&Part::Deep) {
                    parts.push(Part::Deep);
                }
                continue;
            }
            if part.contains("**") {
                return Err(PatternError::Stars {
                    text: text.to_owned(),
                });
            }
            // Decoded piece by piece, so that an encoded star stays a letter.
            let mut segment = Segment(vec![Vec::new()]);
            for (at, piece) in part.split('*').enumerate() {
                if at > 0 {
                    push(&mut segment.0, STAR);
                }
                let mut pieces = Segment::parse_piece(piece).map_err(no_path)?.into_iter();
                for byte in pieces.next().unwrap_or_default() {
                    push(&mut segment.0, byte);
                }
                segment.0.extend(pieces);
            }
            parts.push(Part::One(segment));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }
}

impl Segment {
    /// Decodes what stands between stars, where dots mean nothing.
    fn parse_piece(piece: &str) -> Result<Vec<Vec<u8>>, PathError> {
        let mut framed = Self::parse(&format!("x{piece}x"))?.0;
        if let Some(first) = framed.first_mut() {
            first.remove(0);
        }
        if let Some(last) = framed.last_mut() {
            last.pop();
        }
        Ok(framed)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl PathPattern {
    /// Tells whether the pattern holds for a path.
    pub fn matches(&self, path: &RequestPath) -> bool {
        let mut segments = path.segments.as_slice();
        let mut parts = self.parts.as_slice();
        // One place to come back to is enough: whatever the last `**` took, a later one can take.
        let mut back: Option<(&[Part], &[Segment])> = None;
        loop {
            match (parts.split_first(), segments.split_first()) {
                (Some((Part::Deep, rest)), _) => {
                    if rest.is_empty() {
                        return true;
                    }
                    back = Some((rest, segments));
                    parts = rest;
                    continue;
                }
                (Some((Part::One(pattern), rest)), Some((segment, more)))
                    if holds(pattern, segment) =>
                {
                    parts = rest;
                    segments = more;
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((rest, from)) = back else {
                return false;
            };
            let Some((_, more)) = from.split_first() else {
                return false;
            };
            back = Some((rest, more));
            parts = rest;
            segments = more;
        }
    }
}

fn holds(pattern: &Segment, segment: &Segment) -> bool {
    pattern.0.len() == segment.0.len()
        && pattern
            .0
            .iter()
            .zip(&segment.0)
            .all(|(pattern, piece)| piece_holds(pattern, piece))
}

fn piece_holds(pattern: &[u8], piece: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(at), piece.get(seen)) {
            (Some(&STAR), _) => {
                at += 1;
                back = Some((at, seen));
                continue;
            }
            (Some(byte), Some(other)) if byte == other => {
                at += 1;
                seen += 1;
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        match back {
            Some((star, from)) if from < piece.len() => {
                back = Some((star, from + 1));
                at = star;
                seen = from + 1;
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let pattern: PathPattern = pattern.parse().expect("a pattern");
        RequestPath::parse(path).is_ok_and(|path| pattern.matches(&path))
    }

    #[test]
    fn the_forms_hold_for_what_the_table_says() {
        for (pattern, path) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/b", "/a/%62"),
            ("/a/*", "/a/b"),
            ("/a/*", "/a/"),
            ("/a/**", "/a"),
            ("/a/**", "/a/"),
            ("/a/**", "/a/b/c"),
            ("/**", "/"),
            ("/**", "/a%2fb"),
            ("/**/pulls", "/repos/me/app/pulls"),
            ("/**/pulls", "/pulls"),
            ("/a/**/b/*.json", "/a/b/x/b/c.json"),
            ("/@scope%2fname", "/@scope%2Fname"),
            ("/@scope%2f*", "/@scope%2Fname"),
            ("/*-*", "/a-b-c"),
            ("/caf%c3%a9", "/caf%C3%A9"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/", "/a"),
            ("/a", "/a/"),
            ("/a/b", "/a/B"),
            ("/a/*", "/a"),
            ("/a/*", "/a/b/c"),
            ("/a/*", "/a/b%2fc"),
            ("/a/**", "/ab"),
            ("/**/pulls", "/pulls/1"),
            ("/*-*", "/ab"),
            ("/@scope/name", "/@scope%2fname"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_no_path() {
        for (path, why) in [
            ("", PathError::NoSlash),
            ("*", PathError::NoSlash),
            ("a/b", PathError::NoSlash),
            ("//a", PathError::Empty),
            ("/a//b", PathError::Empty),
            ("/a/%2f/b", PathError::Empty),
            ("/a%2f", PathError::Empty),
            ("/.", PathError::Dots),
            ("/a/..", PathError::Dots),
            ("/a/%2e%2E/b", PathError::Dots),
            ("/a/.%2e/b", PathError::Dots),
            ("/a/..%2fb", PathError::Dots),
            ("/a/x%2f..%2f..%2fb", PathError::Dots),
            ("/a/..;/b", PathError::Dots),
            ("/a/..%3bx/b", PathError::Dots),
            ("/a/;x/b", PathError::Dots),
            ("/a\\b", PathError::Backslash),
            ("/a%5cb", PathError::Backslash),
            ("/a%252e", PathError::Encoding),
            ("/a%2", PathError::Encoding),
            ("/a%zz", PathError::Encoding),
            ("/a%+1", PathError::Encoding),
            ("/a%00", PathError::Byte),
            ("/a%0d%0a", PathError::Byte),
            ("/a b", PathError::Byte),
            ("/\u{e9}", PathError::Byte),
        ] {
            assert_eq!(RequestPath::parse(path), Err(why), "{path:?}");
        }
        for path in ["/...", "/.git", "/a..b", "/a;x=1", "/a.", "/%c3%a9"] {
            assert!(RequestPath::parse(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        for text in [
            "", "a", "*", "//", "/a//b", "/../a", "/a**", "/a?b", "/a#b", "/a\\*",
        ] {
            assert!(text.parse::<PathPattern>().is_err(), "{text:?}");
        }
    }

    /// What a plain reader makes of a path: decoded once, dots followed, slashes run together.
    fn followed(path: &str) -> Vec<Vec<u8>> {
        let mut decoded = Vec::new();
        let mut bytes = path.bytes();
        while let Some(byte) = bytes.next() {
            if byte != b'%' {
                decoded.push(byte);
                continue;
            }
            let mut digit = || bytes.next().and_then(|byte| (byte as char).to_digit(16));
            if let (Some(high), Some(low)) = (digit(), digit()) {
                decoded.push((high * 16 + low) as u8);
            }
        }
        let mut segments: Vec<Vec<u8>> = Vec::new();
        for segment in decoded.split(|byte| matches!(byte, b'/' | b'\\')) {
            match segment {
                b"" | b"." => {}
                b".." => {
                    segments.pop();
                }
                other => segments.push(other.to_vec()),
            }
        }
        segments
    }

    proptest! {
        #[test]
        fn nothing_below_a_top_leads_out_of_it(
            path in "(/|a|b|\\.|%2e|%2E|%2f|%5c|\\\\|%25|;|%3b|x){0,14}",
        ) {
            let path = format!("/a/{path}");
            if matches("/a/**", &path) {
                let followed = followed(&path);
                prop_assert_eq!(followed.first().map(Vec::as_slice), Some(b"a".as_slice()));
            }
        }

        #[test]
        fn any_text_is_a_path_or_none_and_matches_itself(text in "\\PC{0,40}|(/[a-z%0-9.;]{0,6}){0,6}") {
            if let Ok(path) = RequestPath::parse(&text)
                && !text.contains(['*', '?', '#'])
            {
                let pattern: PathPattern = text.parse().expect("a path is a pattern of itself");
                prop_assert!(pattern.matches(&path));
            }
            let _ = text.parse::<PathPattern>();
        }

        #[test]
        fn stars_take_time_in_proportion(count in 1..60_usize) {
            let pattern = format!("/{}x", "*a".repeat(count));
            let path = format!("/{}", "a".repeat(2000));
            prop_assert!(!matches(&pattern, &path));
            let deep = format!("/{}x", "**/a/".repeat(count));
            let path = "/a".repeat(200);
            prop_assert!(!matches(&deep, &path));
        }
    }
}
