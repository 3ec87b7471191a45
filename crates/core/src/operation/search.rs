//! Search through the files of a folder (E5): what is asked for and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::file::MatchBlock;

/// Searches the files of a folder, without what ignore files leave out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchFiles {
    /// What is looked for, within single lines: plain text, or a pattern where `pattern` says so.
    pub query: String,
    /// Whether the query is a regular expression, in the syntax of Rust's `regex`.
    #[serde(default)]
    pub pattern: bool,
    /// The folder or file; the workspace unless said. No link on the way is followed.
    #[serde(default)]
    pub path: BytePath,
    /// Globs of names to look at; one that begins with `!` leaves names out. At most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub globs: Vec<String>,
    /// Whether capital letters are told from small ones.
    #[serde(default)]
    pub case_sensitive: bool,
    /// Whether names that begin with a dot are looked at.
    #[serde(default)]
    pub hidden: bool,
    /// Whether what `.gitignore` and `.ignore` files leave out is looked at.
    #[serde(default)]
    pub ignored: bool,
    /// Most matching lines in all, 1 to 2 000; 100 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_matches: Option<usize>,
    /// Lines before each match, at most 3; none unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_before: Option<usize>,
    /// Lines after each match, at most 5; none unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_after: Option<usize>,
}

impl SearchFiles {
    /// Asks for a text in the whole workspace.
    pub fn text(query: impl Into<String>) -> Self {
        Self {
            query: query.into(),
            pattern: false,
            path: BytePath::default(),
            globs: Vec::new(),
            case_sensitive: false,
            hidden: false,
            ignored: false,
            max_matches: None,
            context_before: None,
            context_after: None,
        }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesSearched {
    /// Files with matches, by their paths.
    pub files: Vec<FileMatches>,
    /// Matching lines that are shown.
    pub matching_lines: u64,
    /// Files that were looked at.
    pub searched_files: u64,
    /// Of those, files that hold no text; what matches in them is not shown.
    pub binary_files: u64,
    /// Files and folders that could not be read: the walls do not allow it, or they have gone.
    pub unreadable: u64,
    /// Whether the search ended with `max_matches`, and there is more.
    pub truncated: bool,
}

/// The matches of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileMatches {
    /// Its path below the workspace.
    pub path: BytePath,
    /// Matching lines with those around them; a line of more than 500 bytes is cut.
    pub matches: Vec<MatchBlock>,
}
