//! A line in a start-up file, between two marks, and taking it away again to the byte.

use std::path::Path;

const BEGIN: &[u8] = b"# >>> cofferdam setup";
const END: &[u8] = b"# <<< cofferdam setup <<<\n";
/// The first mark where the file did not end in a line end, so that one had to be put before it.
const AFTER_NO_END: &str = " (after a line without end)";
/// The first mark of a file that was made for it.
const MADE: &str = " (file made for it)";

/// A family of shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shell {
    Posix,
    Fish,
}

impl Shell {
    /// Writes the line that puts a directory first in `PATH`.
    pub(super) fn line(self, directory: &Path) -> String {
        let quoted: String = directory
            .to_string_lossy()
            .chars()
            .flat_map(|one| {
                let escaped = matches!(one, '"' | '\\' | '$' | '`');
                escaped.then_some('\\').into_iter().chain([one])
            })
            .collect();
        match self {
            Self::Posix => format!("export PATH=\"{quoted}:$PATH\""),
            Self::Fish => format!("set -gx PATH \"{quoted}\" $PATH"),
        }
    }
}

/// Puts a line at the end; `None` where a marked one is there already.
pub(super) fn with_block(there: Option<&[u8]>, line: &str) -> Option<Vec<u8>> {
    let text = there.unwrap_or_default();
    if find(text, BEGIN).is_some() {
        return None;
    }
    let mut out = text.to_vec();
    let note = match there {
        None => MADE,
        Some(text) if !text.is_empty() && !text.ends_with(b"\n") => {
            out.push(b'\n');
            AFTER_NO_END
        }
        Some(_) => "",
    };
    out.extend_from_slice(BEGIN);
    out.extend_from_slice(format!("{note} >>>\n{line}\n").as_bytes());
    out.extend_from_slice(END);
    Some(out)
}

/// A file without the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// There was none.
    Same,
    /// Nothing is left of a file that was made for it.
    Gone,
    /// What is left.
    Text(Vec<u8>),
}

/// Takes the line away, with the marks and the line end that was put before them.
pub(super) fn without_block(text: &[u8]) -> Without {
    let Some(begin) = find(text, BEGIN).filter(|at| *at == 0 || text[at - 1] == b'\n') else {
        return Without::Same;
    };
    let Some(end) = find(&text[begin..], END) else {
        return Without::Same;
    };
    let after = begin + end + END.len();
    let note = &text[begin + BEGIN.len()..];
    let from = if note.starts_with(AFTER_NO_END.as_bytes()) {
        begin.saturating_sub(1)
    } else {
        begin
    };
    let left = [&text[..from], &text[after..]].concat();
    if left.is_empty() && note.starts_with(MADE.as_bytes()) {
        Without::Gone
    } else {
        Without::Text(left)
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "export PATH=\"/home/u/shims:$PATH\"";

    #[test]
    fn what_was_put_in_is_taken_out_to_the_byte() {
        for before in ["", "a\n", "a", "a\n\n", "\u{e9}\n"] {
            let with = with_block(Some(before.as_bytes()), LINE).expect("a new line");
            assert_eq!(with_block(Some(&with), LINE), None);
            assert_eq!(
                without_block(&with),
                Without::Text(before.as_bytes().to_vec())
            );
            // What was written after it stays.
            let more = [with, b"later\n".to_vec()].concat();
            let Without::Text(left) = without_block(&more) else {
                panic!("a line was there");
            };
            assert!(left.ends_with(b"later\n"));
        }
        let made = with_block(None, LINE).expect("a new line");
        assert_eq!(without_block(&made), Without::Gone);
        assert_eq!(without_block(b"# other\n"), Without::Same);
    }

    #[test]
    fn a_directory_of_any_name_is_quoted() {
        assert_eq!(
            Shell::Posix.line(Path::new("/h/a $b\"c")),
            r#"export PATH="/h/a \$b\"c:$PATH""#
        );
    }
}
