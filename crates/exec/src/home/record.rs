//! What is written down about a layer, so that any later process can settle it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::profile::ProfileHome;
use cofferdam_core::spec::Identity;
use serde::{Deserialize, Serialize};

/// The directory of a layer that is the home.
pub(super) const HOME: &str = "home";
/// Copies of files of which keys come back, as they were at the start.
pub(super) const SEED: &str = "seed";
/// The record.
pub(super) const RECORD: &str = "record.json";
/// The file that is locked as long as the process lives to which the layer belongs.
const ALIVE: &str = "alive";

/// What is known about a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HomeRecord {
    /// Version of this format: 1.
    pub(super) schema: u32,
    pub(super) task: String,
    pub(super) profile: String,
    pub(super) rules: ProfileHome,
    /// The workspace's path with `-` in it, for patterns.
    pub(super) workspace: String,
    pub(super) real: BytePath,
    pub(super) identity: Option<Identity>,
    /// Where state lies, what is more exact last.
    pub(super) sources: Vec<Source>,
    /// What was copied in, by its path below the home directory.
    pub(super) seeded: BTreeMap<BytePath, Copied>,
}

/// A file or directory with state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    /// Its path below the home directory.
    pub(super) inside: BytePath,
    /// Where it really lies.
    pub(super) host: BytePath,
    /// Whether it is a file.
    pub(super) file: bool,
}

/// Both sides of a file that was copied in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Copied {
    /// The real one as it was read.
    pub(super) real: Stamp,
    /// The copy.
    pub(super) layer: Stamp,
}

/// By what a file is known to be unchanged. The kernel alone sets `changed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stamp {
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) changed: i64,
    pub(super) inode: u64,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let nanoseconds =
            |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Self {
            size: metadata.len(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }
}

impl HomeRecord {
    /// Gives the directory and the path below it where a file of the layer lies in the real home.
    pub(super) fn host(&self, path: &Path) -> (PathBuf, PathBuf) {
        for source in self.sources.iter().rev() {
            let inside = source.inside.as_path();
            let host = source.host.as_path();
            let Ok(rest) = path.strip_prefix(inside) else {
                continue;
            };
            if !rest.as_os_str().is_empty() && !source.file {
                return (host.to_owned(), rest.to_owned());
            }
            if rest.as_os_str().is_empty()
                && let (Some(parent), Some(name)) = (host.parent(), host.file_name())
            {
                return (parent.to_owned(), PathBuf::from(name));
            }
        }
        (self.real.as_path().to_owned(), path.to_owned())
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), Problem> {
        let path = directory.join(RECORD);
        let fresh = directory.join("record.new");
        let text = serde_json::to_vec(self).map_err(|error| {
            Problem::new(ErrorCode::Internal, format!("a record is no JSON: {error}"))
        })?;
        std::fs::write(&fresh, text)
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(|error| super::files::problem("write", &path, &error))
    }

    /// Reads a record; `None` where there is none, or none that this version can read.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        let text = std::fs::read(directory.join(RECORD)).ok()?;
        let record: Self = serde_json::from_slice(&text).ok()?;
        (record.schema == 1).then_some(record)
    }
}

/// Takes the lock by which a layer is known to be in use; `None` where somebody holds it.
pub(super) fn hold(directory: &Path) -> Result<Option<File>, Problem> {
    let path = directory.join(ALIVE);
    let failed = |error: &std::io::Error| super::files::problem("lock", &path, error);
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(failed(&error)),
    }
}
