//! What the program that searches files is told, and what it answers.
//!
//! It is a program of its own, and not part of the keeper, because every enclosure pays for the
//! keeper's size and few are searched. The plane hands it over as a descriptor and writes one
//! [`SearchOrder`] to its standard input; one [`SearchReport`] comes back.

use serde::{Deserialize, Serialize};

/// What is looked for, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchOrder {
    /// The folder, absolute, as it is seen inside; nothing outside it is looked at.
    pub root: Vec<u8>,
    /// Where beneath it the search begins; empty for all of it. A file is a place too.
    pub place: Vec<u8>,
    /// Text or pattern.
    pub query: String,
    /// Whether the query is a regular expression, in the syntax of the `regex` crate.
    pub is_pattern: bool,
    /// Whether capital letters are told from small ones.
    pub is_case_sensitive: bool,
    /// Globs of names to look at, or not to where they begin with `!`; all where there is none.
    pub globs: Vec<String>,
    /// Whether names that begin with a dot are looked at.
    pub hidden: bool,
    /// Whether what ignore files leave out is looked at.
    pub ignored: bool,
    /// Most matching lines that are told.
    pub most_matches: usize,
    /// Lines told before each.
    pub context_before: usize,
    /// Lines told after each.
    pub context_after: usize,
    /// Most bytes of one line that are told.
    pub line_bytes: usize,
    /// Threads that look at once; 0 for as many as there are processors.
    pub threads: usize,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchReport {
    /// Files with matches, by their names.
    pub files: Vec<FoundFile>,
    /// How many files were looked at.
    pub searched: u64,
    /// How many of those were left after a null byte: they hold no text.
    pub binary: u64,
    /// How many files and folders could not be read.
    pub unreadable: u64,
    /// Whether the search ended early, because there were enough matches.
    pub truncated: bool,
    /// Why nothing was looked at: the query, a glob, or the place.
    pub refused: Option<SearchRefusal>,
}

/// Why there was no search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchRefusal {
    /// The query is no pattern.
    Query(String),
    /// A glob is none.
    Glob(String),
    /// The place cannot be opened; the number is the kernel's.
    Place(i32),
}

/// One file with matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Its path beneath the root.
    pub path: Vec<u8>,
    /// Lines in their order: those that match and those around them.
    pub lines: Vec<FoundLine>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLine {
    /// Its number, from 1.
    pub number: u64,
    /// Its bytes, without the end of the line, cut where they are too many.
    pub bytes: Vec<u8>,
    /// Whether it matches; else it stands around one that does.
    pub is_match: bool,
}

impl SearchOrder {
    /// Writes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Plain data of known length: there is nothing that could fail.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Reads one; `None` where the bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

impl SearchReport {
    /// Writes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        // As with an order.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Reads one; `None` where the bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_travel() {
        let report = SearchReport {
            files: vec![FoundFile {
                path: b"a/\xff".to_vec(),
                lines: vec![FoundLine {
                    number: 7,
                    bytes: b"x".to_vec(),
                    is_match: true,
                }],
            }],
            searched: 3,
            refused: Some(SearchRefusal::Place(2)),
            ..SearchReport::default()
        };
        assert_eq!(SearchReport::from_bytes(&report.to_bytes()), Some(report));
        assert_eq!(SearchReport::from_bytes(b"\xff"), None);
    }
}
