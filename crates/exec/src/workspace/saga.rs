//! Making directories that nobody else has, and taking back what an attempt made.

use std::path::{Path, PathBuf};

use super::{WorkspaceError, Workspaces, files, make_private};
use crate::git::{RefChange, Repository, RepositoryLock};

/// What an attempt made, to be taken back when it fails.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) records: Vec<PathBuf>,
    pub(super) references: Vec<(String, String)>,
    pub(super) trees: Vec<PathBuf>,
}

impl Workspaces {
    /// Takes back what an attempt made; gives what is left in words.
    pub(super) fn take_back(&self, repository: &Repository, made: &Made) -> Vec<String> {
        let mut left = Vec::new();
        for tree in &made.trees {
            if !matches!(files::remove_tree(tree), Ok(0)) {
                left.push(format!("directory {}", tree.display()));
            }
            remove_empty_parent(tree);
        }
        if !made.references.is_empty() {
            let changes: Vec<RefChange> = made
                .references
                .iter()
                .map(|(name, oid)| RefChange::delete(name.as_str(), oid.as_str()))
                .collect();
            let undone =
                RepositoryLock::take(&self.locks(), &repository.common_dir).and_then(|_lock| {
                    self.git
                        .change_references(repository, "cofferdam", &changes)
                });
            if let Err(error) = undone {
                left.push(format!("reference {}: {error}", made.references[0].0));
            }
        }
        if left.is_empty() {
            for record in &made.records {
                let _ = files::remove_tree(record);
                remove_empty_parent(record);
            }
        }
        left
    }
}

/// Removes the directory of a run when nothing is in it any more.
pub(super) fn remove_empty_parent(path: &Path) {
    if let Some(parent) = path.parent() {
        // It may well have something in it still, or somebody puts something there right now.
        let _ = std::fs::remove_dir(parent);
    }
}

/// Makes a directory that is not there yet, and its parents.
pub(super) fn make_exclusively(path: &Path) -> Result<(), WorkspaceError> {
    for _ in 0..8 {
        if let Some(parent) = path.parent() {
            make_private(parent)?;
        }
        match std::fs::create_dir(path) {
            Ok(()) => return Ok(()),
            // Another task that ended took the empty parent away in between.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(WorkspaceError::DirectoryTaken {
                    path: path.to_path_buf(),
                });
            }
            Err(error) => return Err(WorkspaceError::file("making the directory", path)(error)),
        }
    }
    Err(WorkspaceError::DirectoryTaken {
        path: path.to_path_buf(),
    })
}
