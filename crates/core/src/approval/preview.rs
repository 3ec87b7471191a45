//! What is shown, so that an answer is about what will be done.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

use crate::bytes::BytePath;
use crate::spec::Network;

/// Lines of a file that are shown before and after a change.
const CONTEXT: usize = 3;
/// Most lines of a diff.
const MOST_LINES: usize = 400;
/// Most characters of one line.
const MOST_CHARACTERS: usize = 400;
/// Most bytes of a file that is compared line by line.
const MOST_BYTES: usize = 1024 * 1024;

/// What is needed to answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalPreview {
    /// The command, whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Where it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<BytePath>,
    /// Variables that come along with it, `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The network that it sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Paths that would be written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<BytePath>,
    /// Paths that would be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<BytePath>,
    /// Hosts that would be reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Bytes that would be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What changes in a file, with three lines around it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<PreviewLine>,
    /// Whether lines of the diff, or parts of lines, are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub diff_cut: bool,
    /// What a try without the right to write left on its output, its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The plan that would be carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The goal of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LineSign {
    /// It stays.
    Same,
    /// It goes.
    Removed,
    /// It comes.
    Added,
}

impl LineSign {
    /// Gives the sign that diffs have.
    pub const fn mark(self) -> char {
        match self {
            Self::Same => ' ',
            Self::Removed => '-',
            Self::Added => '+',
        }
    }
}

/// One line of a diff.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewLine {
    /// What becomes of it.
    pub sign: LineSign,
    /// Its number before, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<usize>,
    /// Its number after, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<usize>,
    /// Its text, without the end of line; bytes that are no text are replaced.
    pub text: String,
}

impl ApprovalPreview {
    /// Shows a change of a file.
    #[must_use]
    pub fn with_change(mut self, path: BytePath, before: &[u8], after: &[u8]) -> Self {
        let (diff, cut) = diff_lines(before, after);
        self.writes.push(path);
        self.bytes = Some(after.len() as u64);
        self.diff = diff;
        self.diff_cut = cut;
        self
    }
}

/// Compares two contents line by line: what changes with three lines around it, and whether
/// something is left out.
pub fn diff_lines(before: &[u8], after: &[u8]) -> (Vec<PreviewLine>, bool) {
    if before.len() > MOST_BYTES || after.len() > MOST_BYTES {
        return (Vec::new(), true);
    }
    let old: Vec<&[u8]> = before.split_inclusive(|byte| *byte == b'\n').collect();
    let new: Vec<&[u8]> = after.split_inclusive(|byte| *byte == b'\n').collect();
    let mut shown = Shown::default();
    let operations = capture_diff_slices(Algorithm::Myers, &old, &new);
    for operation in group_diff_ops(operations, CONTEXT).into_iter().flatten() {
        match operation {
            DiffOp::Equal {
                old_index,
                new_index,
                len,
            } => {
                for step in 0..len {
                    let line = old.get(old_index + step).copied().unwrap_or_default();
                    shown.line(
                        LineSign::Same,
                        Some(old_index + step),
                        Some(new_index + step),
                        line,
                    );
                }
            }
            DiffOp::Delete {
                old_index, old_len, ..
            } => shown.removed(&old, old_index, old_len),
            DiffOp::Insert {
                new_index, new_len, ..
            } => shown.added(&new, new_index, new_len),
            DiffOp::Replace {
                old_index,
                old_len,
                new_index,
                new_len,
            } => {
                shown.removed(&old, old_index, old_len);
                shown.added(&new, new_index, new_len);
            }
        }
    }
    (shown.lines, shown.is_cut)
}

#[derive(Default)]
struct Shown {
    lines: Vec<PreviewLine>,
    is_cut: bool,
}

impl Shown {
    fn removed(&mut self, old: &[&[u8]], from: usize, count: usize) {
        for (step, line) in old.iter().skip(from).take(count).enumerate() {
            self.line(LineSign::Removed, Some(from + step), None, line);
        }
    }

    fn added(&mut self, new: &[&[u8]], from: usize, count: usize) {
        for (step, line) in new.iter().skip(from).take(count).enumerate() {
            self.line(LineSign::Added, None, Some(from + step), line);
        }
    }

    fn line(&mut self, sign: LineSign, old: Option<usize>, new: Option<usize>, line: &[u8]) {
        if self.lines.len() == MOST_LINES {
            self.is_cut = true;
            return;
        }
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let text = String::from_utf8_lossy(line);
        let short: String = text.chars().take(MOST_CHARACTERS).collect();
        self.is_cut |= short.len() < text.len();
        self.lines.push(PreviewLine {
            sign,
            old: old.map(|index| index + 1),
            new: new.map(|index| index + 1),
            text: short,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn shown(before: &str, after: &str) -> String {
        let (lines, cut) = diff_lines(before.as_bytes(), after.as_bytes());
        let mut text = String::new();
        for line in lines {
            let sign = match line.sign {
                LineSign::Same => ' ',
                LineSign::Removed => '-',
                LineSign::Added => '+',
            };
            let number = |one: Option<usize>| one.map_or_else(String::new, |one| one.to_string());
            let _ = writeln!(
                text,
                "{:>3} {:>3} {sign}{}",
                number(line.old),
                number(line.new),
                line.text
            );
        }
        let _ = write!(text, "cut {cut}");
        text
    }

    #[test]
    fn row_69_a_change_is_shown_with_three_numbered_lines_around_it() {
        let before: String = (1..=12).map(|line| format!("line {line}\n")).collect();
        let after = before.replace("line 6\n", "line six\nand more\n");
        insta::assert_snapshot!(shown(&before, &after), @r"
          3   3  line 3
          4   4  line 4
          5   5  line 5
          6     -line 6
              6 +line six
              7 +and more
          7   8  line 7
          8   9  line 8
          9  10  line 9
        cut false
        ");
    }

    #[test]
    fn row_69_what_is_left_out_is_said() {
        let long = "x".repeat(MOST_CHARACTERS + 1);
        assert!(diff_lines(b"", long.as_bytes()).1);
        let many = "y\n".repeat(MOST_LINES + 1);
        let (lines, cut) = diff_lines(b"", many.as_bytes());
        assert_eq!((lines.len(), cut), (MOST_LINES, true));
        assert!(diff_lines(b"", &vec![b'z'; MOST_BYTES + 1]).1);
    }
}
