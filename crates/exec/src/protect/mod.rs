//! Protected names: remembered before a command, compared after it, put back where they changed.
//!
//! Where a mount can hold a name, nothing of this is needed. It is for names that are absent (a
//! mount point would have to be created on the host) and for providers without mounts. Everything
//! is done beneath directories opened without following links, because what lies there was in the
//! hands of the command: a link planted on the way is itself what gets removed, never what it
//! points to. What is taken away goes to a quarantine, so nothing of the user's can be lost.

mod expire;
mod kept;
mod last;
mod place;
mod restore;
mod snapshot;

use cofferdam_core::bytes::BytePath;
use serde::{Deserialize, Serialize};

pub(crate) use expire::expire;
pub use kept::{quarantined, restore_quarantined};
pub(crate) use last::{LastUndo, put_back_by_keeper};
pub(crate) use restore::{restore, taken_away, undone};
pub(crate) use snapshot::take;

/// Bytes of one file, and entries of one directory, that a snapshot holds. A protected file beyond
/// that is compared by size and time alone and reported instead of put back.
const FILE_BYTES: u64 = 1024 * 1024;
const ENTRIES: usize = 512;

/// What stood at every protected name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) names: Vec<Name>,
}

/// One protected name and what stood there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Name {
    pub(crate) path: BytePath,
    pub(crate) rule: String,
    /// Whether a change is put back, or only said.
    pub(crate) undo: bool,
    pub(crate) was: Node,
    /// How many components of the path existed.
    pub(crate) existing: usize,
}

/// Something in a directory, with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Node {
    Absent,
    File {
        mode: u32,
        content: BytePath,
    },
    /// Too large to be held.
    LargeFile {
        mode: u32,
        size: u64,
        modified_ns: i128,
    },
    Symlink {
        target: BytePath,
    },
    Directory {
        mode: u32,
        entries: Vec<(BytePath, Self)>,
    },
    /// A socket, FIFO or device: held by kind only.
    Other {
        kind: u32,
    },
}

/// Something that was not as before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) path: BytePath,
    pub(crate) rule: String,
    pub(crate) what: What,
    /// Whether it is as before again.
    pub(crate) undone: bool,
}

/// What had happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    Created,
    Changed,
    Removed,
}

impl What {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}
