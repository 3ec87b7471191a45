//! Replacing pieces of a text: groups in order, all of them or none.

use std::borrow::Cow;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;

/// One group: what is replaced by what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// The text as it stands in the file; must not be empty. In a file whose lines end in two bytes,
    /// a text with plain line feeds is found too, and the new text gets the file's ends of lines.
    pub old_string: String,
    /// The text that takes its place; must differ. Where it adds lines within one line, they end as
    /// that one does.
    pub new_string: String,
    /// Whether every occurrence is replaced.
    #[serde(default)]
    pub replace_all: bool,
}

/// What is done where a text that is to be replaced once stands in several places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AmbiguousMatch {
    /// Nothing is written, and the lines are told.
    #[default]
    Refuse,
    /// The first is replaced, and the lines of all are told.
    First,
}

/// What became of one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacementDetail {
    /// Which group, from 0.
    pub index: usize,
    /// How often its old text stood there.
    pub found_matches: u64,
    /// How many of them were replaced.
    pub replacements: u64,
    /// The lines, from 1, where they began, before this group was applied; at most 20.
    pub lines: Vec<u64>,
    /// Whether ends of lines were read as those of the file.
    pub line_ends_converted: bool,
}

/// Why a group cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "reason", deny_unknown_fields)]
pub enum EditFailureReason {
    /// There are no groups, or too many.
    #[error("an edit has 1 to {} groups, not {count}", limits::EDIT_GROUPS)]
    GroupCount {
        /// How many there are.
        count: usize,
    },
    /// The old text is empty.
    #[error("the old text is empty")]
    EmptyOld,
    /// Old and new are the same.
    #[error("old and new text are the same")]
    SameText,
    /// The old text does not stand in the file.
    #[error("the old text does not stand in the file{}", close_words(close.as_ref()))]
    NotFound {
        /// Where something like it stands.
        close: Option<CloseMatch>,
    },
    /// It stands in several places, and not all of them were meant.
    #[error(
        "the old text stands in {found_matches} places, on lines {}",
        lines_words(lines)
    )]
    Ambiguous {
        /// How many.
        found_matches: u64,
        /// The lines where they begin, at most 20.
        lines: Vec<u64>,
    },
    /// The file would grow beyond what a file may have.
    #[error("the file would have more than {limit} bytes")]
    TooLarge {
        /// The bound in bytes.
        limit: u64,
    },
}

/// Where a text stands that differs from the wanted one in blanks only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloseMatch {
    /// First line, from 1.
    pub start_line: u64,
    /// Last line.
    pub end_line: u64,
    /// How it stands there, at most 1000 characters.
    pub text: String,
}

fn close_words(close: Option<&CloseMatch>) -> String {
    close.map_or_else(String::new, |close| {
        format!(
            "; lines {} to {} differ from it in blanks only",
            close.start_line, close.end_line
        )
    })
}

fn lines_words(lines: &[u64]) -> String {
    let words: Vec<String> = lines.iter().map(u64::to_string).collect();
    words.join(", ")
}

/// Which group failed and why; nothing is to be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("group {index}: {reason}")]
#[serde(deny_unknown_fields)]
pub struct EditFailure {
    /// The failing group, from 0.
    pub index: usize,
    /// Why.
    pub reason: EditFailureReason,
}

/// A text after all groups. What the last of them did is not carried out: the text may be large, and
/// whoever writes it has no need of it in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited<'a> {
    text: Cow<'a, [u8]>,
    last: Option<Replaced>,
    /// What became of each group, in their order.
    pub details: Vec<ReplacementDetail>,
}

/// Places of a text, and what takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Replaced {
    places: Vec<Range<usize>>,
    new: Vec<u8>,
    /// The same with ends of lines of two bytes, and the places that it takes.
    other: Option<(Vec<u8>, Vec<bool>)>,
}

impl Replaced {
    /// Lends what takes a place.
    fn new_at(&self, index: usize) -> &[u8] {
        match &self.other {
            Some((other, places)) if places[index] => other,
            _ => &self.new,
        }
    }
}

impl Edited<'_> {
    /// Lends the new text in pieces that follow each other.
    pub fn pieces(&self) -> Vec<&[u8]> {
        let Some(last) = &self.last else {
            return vec![&self.text];
        };
        let mut pieces = Vec::with_capacity(2 * last.places.len() + 1);
        let mut from = 0;
        for (index, place) in last.places.iter().enumerate() {
            pieces.push(&self.text[from..place.start]);
            pieces.push(last.new_at(index));
            from = place.end;
        }
        pieces.push(&self.text[from..]);
        pieces
    }

    /// Gives the new text.
    pub fn bytes(&self) -> Vec<u8> {
        self.pieces().concat()
    }
}

/// Most lines that are told of one group.
const MOST_LINES: usize = 20;
/// Most characters of a text that is told as a close one.
const CLOSE_CHARACTERS: usize = 1000;

/// Applies groups in order, each to what the ones before it left.
///
/// # Errors
///
/// The first group that cannot be applied; then none is.
pub fn edit<'a>(
    bytes: &'a [u8],
    groups: &[Replacement],
    ambiguous: AmbiguousMatch,
    most_bytes: u64,
) -> Result<Edited<'a>, EditFailure> {
    if groups.is_empty() || groups.len() > limits::EDIT_GROUPS {
        let count = groups.len();
        return Err(EditFailure {
            index: 0,
            reason: EditFailureReason::GroupCount { count },
        });
    }
    let mut edited = Edited {
        text: Cow::Borrowed(bytes),
        last: None,
        details: Vec::with_capacity(groups.len()),
    };
    for (index, group) in groups.iter().enumerate() {
        let failed = |reason| EditFailure { index, reason };
        if edited.last.is_some() {
            edited.text = Cow::Owned(edited.bytes());
            edited.last = None;
        }
        let text = &edited.text;
        let mut found = find(text, group).map_err(failed)?;
        let told = ReplacementDetail {
            index,
            found_matches: found.places.len() as u64,
            replacements: 1,
            lines: lines_of(text, &found.places),
            line_ends_converted: found.has_converted_ends,
        };
        if !group.replace_all && found.places.len() > 1 {
            if ambiguous == AmbiguousMatch::Refuse {
                return Err(failed(EditFailureReason::Ambiguous {
                    found_matches: told.found_matches,
                    lines: told.lines,
                }));
            }
            found.places.truncate(1);
        }
        let gone: u64 = found.places.iter().map(|place| place.len() as u64).sum();
        let other = following_neighbours(text, group, &found);
        let is_other = other.is_some();
        let replaced = Replaced {
            places: found.places,
            new: found.new,
            other,
        };
        let places = &replaced.places;
        let come: u64 = (0..places.len())
            .map(|index| replaced.new_at(index).len() as u64)
            .sum();
        if text.len() as u64 + come - gone > most_bytes {
            return Err(failed(EditFailureReason::TooLarge { limit: most_bytes }));
        }
        edited.details.push(ReplacementDetail {
            replacements: places.len() as u64,
            line_ends_converted: told.line_ends_converted || is_other,
            ..told
        });
        edited.last = Some(replaced);
    }
    Ok(edited)
}

/// Where a group's old text stands, and what takes its place.
struct Found {
    places: Vec<Range<usize>>,
    new: Vec<u8>,
    has_converted_ends: bool,
}

fn find(text: &[u8], group: &Replacement) -> Result<Found, EditFailureReason> {
    if group.old_string.is_empty() {
        return Err(EditFailureReason::EmptyOld);
    }
    if group.old_string == group.new_string {
        return Err(EditFailureReason::SameText);
    }
    let places = occurrences(text, group.old_string.as_bytes());
    if !places.is_empty() {
        return Ok(Found {
            places,
            new: group.new_string.clone().into_bytes(),
            has_converted_ends: false,
        });
    }
    let is_plain = group.old_string.contains('\n') && !group.old_string.contains('\r');
    if is_plain {
        let places = occurrences(text, group.old_string.replace('\n', "\r\n").as_bytes());
        if !places.is_empty() {
            let new = group.new_string.replace("\r\n", "\n").replace('\n', "\r\n");
            return Ok(Found {
                places,
                new: new.into_bytes(),
                has_converted_ends: true,
            });
        }
    }
    Err(EditFailureReason::NotFound {
        close: close_match(text, &group.old_string),
    })
}

/// Where lines are added within a line that ends in two bytes, they end so, too: gives the new text as
/// it is then, and which of the places take it.
fn following_neighbours(
    text: &[u8],
    group: &Replacement,
    found: &Found,
) -> Option<(Vec<u8>, Vec<bool>)> {
    let (old, new) = (&group.old_string, &group.new_string);
    // A text that has ends of lines itself says what it wants.
    if old.contains(['\r', '\n']) || new.contains('\r') || !new.contains('\n') {
        return None;
    }
    let ends_in_two = |feed: usize| feed > 0 && text[feed - 1] == b'\r';
    // From the back, so that no byte is looked at twice; a last line without an end is as the one
    // before.
    let mut is_two = memchr::memrchr(b'\n', text).is_some_and(ends_in_two);
    let mut bound = text.len();
    let mut places = vec![false; found.places.len()];
    for (place, takes) in found.places.iter().zip(&mut places).rev() {
        if let Some(feed) = memchr::memchr(b'\n', &text[place.end..bound]) {
            is_two = ends_in_two(place.end + feed);
        }
        *takes = is_two;
        bound = place.start;
    }
    let other = new.replace('\n', "\r\n").into_bytes();
    places.contains(&true).then_some((other, places))
}

/// Finds every place of a needle, from the front, none overlapping another.
fn occurrences(text: &[u8], needle: &[u8]) -> Vec<Range<usize>> {
    memchr::memmem::find_iter(text, needle)
        .map(|start| start..start + needle.len())
        .collect()
}

/// Numbers the lines where the first places begin, in one pass.
fn lines_of(text: &[u8], places: &[Range<usize>]) -> Vec<u64> {
    let mut line = 1;
    let mut at = 0;
    let mut lines = Vec::new();
    for place in places.iter().take(MOST_LINES) {
        line += feeds(&text[at..place.start]) as u64;
        at = place.start;
        lines.push(line);
    }
    lines
}

fn feeds(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// Looks for the same lines with other blanks: the usual reason for which an old text is not found.
///
/// Each line is brought to its words; the lines are then searched like a text, so that the time is
/// linear whatever stands in them.
fn close_match(text: &[u8], old: &str) -> Option<CloseMatch> {
    let wanted = words_of_lines(old.as_bytes());
    // Lines without a word at the ends carry nothing.
    let first = wanted.iter().position(|line| !line.is_empty())?;
    let last = wanted.iter().rposition(|line| !line.is_empty())?;
    let wanted = joined(&wanted[first..=last]);
    let standing = words_of_lines(text);
    let all = joined(&standing);
    let at = memchr::memmem::find(&all, &wanted)?;
    let start = feeds(&all[..at]);
    let count = feeds(&wanted) - 1;
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let shown = lines[start..start + count].join(&b'\n');
    let shown: String = String::from_utf8_lossy(&shown)
        .chars()
        .take(CLOSE_CHARACTERS)
        .collect();
    Some(CloseMatch {
        start_line: start as u64 + 1,
        end_line: (start + count) as u64,
        text: shown,
    })
}

/// Brings each line to its words, one blank between them.
fn words_of_lines(text: &[u8]) -> Vec<Vec<u8>> {
    text.split(|byte| *byte == b'\n')
        .map(|line| {
            line.split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>()
                .join(&b' ')
        })
        .collect()
}

/// Joins lines so that a search for some of them finds whole lines only.
fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut all = vec![b'\n'];
    for line in lines {
        all.extend_from_slice(line);
        all.push(b'\n');
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(old: &str, new: &str) -> Replacement {
        Replacement {
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all: false,
        }
    }

    fn all(old: &str, new: &str) -> Replacement {
        Replacement {
            replace_all: true,
            ..group(old, new)
        }
    }

    fn apply(text: &[u8], groups: &[Replacement]) -> Result<Vec<u8>, String> {
        edit(text, groups, AmbiguousMatch::Refuse, 1 << 20)
            .map(|edited| edited.bytes())
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn row_31_groups_apply_in_order_to_what_the_ones_before_left() {
        let groups = [group("one", "two"), all("two", "three")];
        assert_eq!(
            apply(b"one two\xff", &groups),
            Ok(b"three three\xff".to_vec())
        );
    }

    #[test]
    fn row_31_a_group_that_fails_is_located() {
        let groups = [group("one", "two"), group("absent", "x")];
        assert_eq!(
            apply(b"one", &groups),
            Err("group 1: the old text does not stand in the file".to_owned())
        );
        assert_eq!(
            apply(b"one", &[group("", "x")]),
            Err("group 0: the old text is empty".to_owned())
        );
        assert_eq!(
            apply(b"one", &[group("one", "one")]),
            Err("group 0: old and new text are the same".to_owned())
        );
        assert_eq!(
            apply(b"one", &[]),
            Err("group 0: an edit has 1 to 100 groups, not 0".to_owned())
        );
        assert_eq!(
            apply(b"a", &vec![group("a", "b"); 101]),
            Err("group 0: an edit has 1 to 100 groups, not 101".to_owned())
        );
    }

    #[test]
    fn row_32_an_ambiguous_match_is_refused_with_its_lines_or_the_first_is_taken() {
        let text = b"x\ny\nx\n";
        assert_eq!(
            apply(text, &[group("x", "z")]),
            Err("group 0: the old text stands in 2 places, on lines 1, 3".to_owned())
        );
        let first = edit(text, &[group("x", "z")], AmbiguousMatch::First, 99).expect("applied");
        assert_eq!(first.bytes(), b"z\ny\nx\n");
        assert_eq!(
            first.details,
            [ReplacementDetail {
                index: 0,
                found_matches: 2,
                replacements: 1,
                lines: vec![1, 3],
                line_ends_converted: false,
            }]
        );
    }

    #[test]
    fn ends_of_lines_are_those_of_the_file() {
        let edited = edit(
            b"a\r\nb\r\nc\n",
            &[group("a\nb", "a\nB\nb")],
            AmbiguousMatch::Refuse,
            99,
        )
        .expect("applied");
        assert_eq!(edited.bytes(), b"a\r\nB\r\nb\r\nc\n");
        assert!(edited.details[0].line_ends_converted);
    }

    #[test]
    fn fc_79_untouched_bytes_stay_and_added_lines_end_as_their_neighbours() {
        let text = b"one\r\ntwo\nodd\rthree\r\nlast";
        assert_eq!(
            apply(text, &[group("three", "3")]),
            Ok(b"one\r\ntwo\nodd\r3\r\nlast".to_vec())
        );
        assert_eq!(
            apply(text, &[group("one", "one\nhalf")]),
            Ok(b"one\r\nhalf\r\ntwo\nodd\rthree\r\nlast".to_vec())
        );
        assert_eq!(
            apply(text, &[group("two", "two\nhalf")]),
            Ok(b"one\r\ntwo\nhalf\nodd\rthree\r\nlast".to_vec())
        );
        // A last line without an end is as the one before.
        assert_eq!(
            apply(text, &[group("last", "last\n")]),
            Ok(b"one\r\ntwo\nodd\rthree\r\nlast\r\n".to_vec())
        );
        // Each place for itself.
        assert_eq!(
            apply(b"a\r\na\na", &[all("a", "b\nc")]),
            Ok(b"b\r\nc\r\nb\nc\nb\nc".to_vec())
        );
        let edited = edit(text, &[group("one", "1\n")], AmbiguousMatch::Refuse, 99);
        assert!(edited.expect("applied").details[0].line_ends_converted);
    }

    #[test]
    fn d6_a_text_with_other_blanks_is_pointed_at_and_not_replaced() {
        let text = b"fn a() {\n\tif x {\n\t\ty();\n\t}\n}\n";
        let wanted = group("    if x {\n        y();\n    }", "z");
        let failure = edit(text, &[wanted], AmbiguousMatch::Refuse, 99).expect_err("refused");
        assert_eq!(
            failure.reason,
            EditFailureReason::NotFound {
                close: Some(CloseMatch {
                    start_line: 2,
                    end_line: 4,
                    text: "\tif x {\n\t\ty();\n\t}".to_owned(),
                })
            }
        );
    }

    #[test]
    fn a_file_grows_to_its_bound_only() {
        let groups = [all("a", "bbb")];
        assert!(edit(b"aa", &groups, AmbiguousMatch::Refuse, 6).is_ok());
        let failure = edit(b"aa", &groups, AmbiguousMatch::Refuse, 5).expect_err("too large");
        assert_eq!(failure.reason, EditFailureReason::TooLarge { limit: 5 });
    }

    proptest::proptest! {
        #[test]
        fn replacing_all_leaves_none_and_keeps_every_other_byte(
            pieces in proptest::collection::vec("[ab\r\n]{0,6}", 1..8),
        ) {
            let text = pieces.join("#!");
            let edited = edit(text.as_bytes(), &[all("#!", "%")], AmbiguousMatch::Refuse, 1 << 20);
            match edited {
                Ok(edited) => proptest::prop_assert_eq!(edited.bytes(), pieces.join("%").into_bytes()),
                Err(failure) => {
                    proptest::prop_assert_eq!(pieces.len(), 1);
                    let is_absent = matches!(failure.reason, EditFailureReason::NotFound { .. });
                    proptest::prop_assert!(is_absent);
                }
            }
        }

        #[test]
        fn hostile_texts_neither_panic_nor_lie(text in "[a \t\n]{0,60}", old in "[a \t\n]{1,8}") {
            match edit(text.as_bytes(), &[group(&old, "Z")], AmbiguousMatch::First, 1 << 20) {
                Ok(edited) => proptest::prop_assert_eq!(
                    edited.bytes(),
                    text.replacen(&old, "Z", 1).into_bytes()
                ),
                Err(failure) => {
                    proptest::prop_assert!(!text.contains(&old), "{}", failure);
                }
            }
        }
    }
}
