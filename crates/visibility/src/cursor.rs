use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::request::RequestError;

/// A place in a log, written `<epoch>:<pos>`: everything up to and including `pos` was seen.
///
/// To others it is one opaque word.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The log; another one has another epoch.
    pub epoch: String,
    /// The position.
    pub pos: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.epoch, self.pos)
    }
}

impl FromStr for Cursor {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let refused = || RequestError::InvalidCursor {
            text: text.chars().take(80).collect(),
        };
        let (epoch, pos) = text.split_once(':').ok_or_else(refused)?;
        let word = !epoch.is_empty()
            && epoch.len() <= 64
            && epoch.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // Only the form that is written: no sign, no leading zero.
        let number =
            pos == "0" || (!pos.starts_with('0') && pos.bytes().all(|b| b.is_ascii_digit()));
        if !word || !number {
            return Err(refused());
        }
        Ok(Self {
            epoch: epoch.to_owned(),
            pos: pos.parse().map_err(|_| refused())?,
        })
    }
}

/// What a view was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Position of the oldest event that the journal keeps, from 1.
    pub window_start: u64,
    /// Position of the newest event.
    pub head: u64,
    /// Whether events that belong to the view are no longer kept.
    pub gap: bool,
    /// The place up to which the view is true; a stream that resumes there misses nothing.
    pub as_of: String,
}

impl Meta {
    /// Describes a view of everything up to `head`.
    pub fn of_view(epoch: &str, window_start: u64, head: u64) -> Self {
        Self {
            window_start,
            head,
            gap: window_start > 1,
            as_of: Cursor {
                epoch: epoch.to_owned(),
                pos: head,
            }
            .to_string(),
        }
    }

    /// Describes a page that goes on after a position.
    pub fn of_page(epoch: &str, window_start: u64, head: u64, after: u64) -> Self {
        Self {
            gap: after + 1 < window_start,
            ..Self::of_view(epoch, window_start, head)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c100_only_cursors_as_written_are_read() {
        let cursor: Cursor = "00ff12ab:42".parse().expect("a cursor");
        assert_eq!(cursor.to_string(), "00ff12ab:42");
        for wrong in [
            "",
            ":",
            "a",
            "a:",
            ":1",
            "a:-1",
            "a:+1",
            "a:01",
            "a:1:2",
            "a b:1",
            "a:99999999999999999999",
        ] {
            let refused = wrong.parse::<Cursor>().expect_err(wrong);
            assert_eq!(refused.to_problem().code.as_str(), "invalid_cursor");
            assert_eq!(refused.to_problem().field.as_deref(), Some("cursor"));
        }
    }

    #[test]
    fn c101_a_gap_is_what_lies_before_the_window() {
        assert!(!Meta::of_page("e", 1, 9, 0).gap);
        assert!(Meta::of_page("e", 5, 9, 3).gap);
        assert!(!Meta::of_page("e", 5, 9, 4).gap);
        assert!(Meta::of_view("e", 5, 9).gap);
    }
}
