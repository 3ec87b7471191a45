//! What lies beside a tree: its record, its lease, and the references that it was given.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cofferdam_core::task::WorkspaceStrategy;
use rustix::fs::{FlockOperation, flock};

use super::names::PERSISTENT;
use super::record::WorktreeRecord;
use super::{Places, WorkspaceError, files};
use crate::git::Reference;

/// Says that a tree is in use, as long as it is held; other processes see it.
#[derive(Debug)]
pub struct Lease {
    _file: File,
}

impl Lease {
    /// Takes the lease of a record that was just made: whoever looks for orphans at this very moment
    /// holds it for an instant.
    pub(super) fn take_soon(record_directory: &Path) -> Result<Option<Self>, WorkspaceError> {
        for _ in 0..100 {
            if let Some(lease) = Self::take(record_directory)? {
                return Ok(Some(lease));
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Self::take(record_directory)
    }

    /// Takes the lease of a record; `None` when somebody else has it.
    pub(super) fn take(record_directory: &Path) -> Result<Option<Self>, WorkspaceError> {
        let path = record_directory.join("lease");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(WorkspaceError::file("opening the lease", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(WorkspaceError::file("locking the lease", &path)(
                errno.into(),
            )),
        }
    }
}

/// The text of the marker in a task's git directory.
pub(super) fn marker_text(record: &WorktreeRecord) -> String {
    format!("{}\n{}\n", record.nonce, record.record)
}

pub(super) fn save_references(
    directory: &Path,
    references: &[Reference],
) -> Result<(), WorkspaceError> {
    let mut text = String::new();
    for reference in references {
        text.push_str(&reference.oid);
        text.push(' ');
        text.push_str(&reference.name);
        text.push('\n');
    }
    let path = directory.join("references");
    std::fs::write(&path, text).map_err(WorkspaceError::file("writing", &path))
}

pub(super) fn read_references(directory: &Path) -> HashMap<String, String> {
    // Without the list everything counts as the task's own, which saves too much and loses nothing.
    let text = std::fs::read_to_string(directory.join("references")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(oid, name)| (name.to_owned(), oid.to_owned()))
        .collect()
}

impl WorktreeRecord {
    fn directory(&self, places: &Places) -> PathBuf {
        let run = match self.strategy {
            WorkspaceStrategy::Ephemeral => self.run.as_str(),
            WorkspaceStrategy::Persistent => PERSISTENT,
        };
        places.record(run, &self.worker)
    }

    /// Gives the directory beside the trees that holds this record.
    pub(super) fn record_directory(&self, places: &Places) -> PathBuf {
        self.directory(places)
    }

    /// Writes the record beside the trees, in one step.
    pub(super) fn save(&self, places: &Places) -> Result<(), WorkspaceError> {
        let path = self.directory(places).join("record.json");
        let text = serde_json::to_vec_pretty(self).map_err(|error| {
            WorkspaceError::file("writing the record", &path)(std::io::Error::other(error))
        })?;
        files::replace_file(&path, &text).map_err(WorkspaceError::file("writing the record", &path))
    }

    /// Reads the record in a directory; `None` when there is none.
    pub(super) fn load(directory: &Path) -> Result<Option<Self>, WorkspaceError> {
        let path = directory.join("record.json");
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(WorkspaceError::file("reading the record", &path)(error)),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            WorkspaceError::file("reading the record", &path)(std::io::Error::other(error))
        })
    }
}
