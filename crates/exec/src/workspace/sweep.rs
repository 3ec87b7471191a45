//! What is left of trees after a crash: found by what lies on disk, reported, and removed only when
//! nothing ever ran in it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_core::bytes::BytePath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::publish::sweep_exports;
use super::record::{TreeState, WorktreeRecord};
use super::remove::processes_inside;
use super::saga::{Made, remove_empty_parent};
use super::store::Lease;
use super::{Places, WorkspaceError, Workspaces, files};

/// Processes of a plane that died are gone after a second; this is longer.
const LAST_BREATH: Duration = Duration::from_secs(3);

/// Something that lies among the trees and that no living task has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Orphan {
    /// Where it lies.
    pub path: BytePath,
    /// What it is.
    pub kind: OrphanKind,
    /// Its record, where there is one.
    pub record: Option<Box<WorktreeRecord>>,
}

/// What an orphan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrphanKind {
    /// Its making was cut off; nothing ran in it.
    HalfMade,
    /// A task ran in it and was cut off; what it did is not brought in.
    Unharvested,
    /// A task ended and its tree was kept.
    Kept,
    /// It is recorded and its directory is gone.
    Missing,
    /// A directory that no record knows; it is never touched.
    Foreign,
    /// A record that cannot be read.
    Unreadable,
}

impl Workspaces {
    /// Lists what lies among the trees and belongs to no living task. Changes nothing.
    ///
    /// A failure to read something ends the search with an error: half a list is no list.
    pub fn orphans(&self) -> Result<Vec<Orphan>, WorkspaceError> {
        self.acting(|| {
            let mut found = Vec::new();
            for repository in list(&self.trees)? {
                if is_hidden(&repository) {
                    continue;
                }
                Self::look_at(&repository, &mut found)?;
            }
            Ok(found)
        })
    }

    fn look_at(repository: &Path, found: &mut Vec<Orphan>) -> Result<(), WorkspaceError> {
        let places = Places {
            top: repository.to_path_buf(),
        };
        let mut known: Vec<PathBuf> = Vec::new();
        for run in list(&repository.join(".records"))? {
            for directory in list(&run)? {
                let tree = repository.join(relative(&directory));
                known.push(tree.clone());
                let lease = match Lease::take(&directory) {
                    // Another process has just taken it away.
                    Err(_) if !directory.exists() => continue,
                    other => other?,
                };
                if lease.is_none() {
                    continue;
                }
                let record = WorktreeRecord::load(&directory);
                let (kind, record) = match record {
                    Err(_) | Ok(None) if tree.exists() => (OrphanKind::Unreadable, None),
                    Err(_) => (OrphanKind::Unreadable, None),
                    Ok(None) => (OrphanKind::HalfMade, None),
                    Ok(Some(record)) => {
                        let kind = match record.state {
                            TreeState::Making => OrphanKind::HalfMade,
                            _ if !tree.exists() => OrphanKind::Missing,
                            TreeState::Ready => OrphanKind::Unharvested,
                            TreeState::Harvested => OrphanKind::Kept,
                        };
                        (kind, Some(Box::new(record)))
                    }
                };
                found.push(Orphan {
                    path: tree.into(),
                    kind,
                    record,
                });
            }
        }
        for run in list(&places.top)? {
            if is_hidden(&run) {
                continue;
            }
            for tree in list(&run)? {
                if !known.contains(&tree) {
                    found.push(Orphan {
                        path: tree.into(),
                        kind: OrphanKind::Foreign,
                        record: None,
                    });
                }
            }
        }
        Ok(())
    }

    /// Takes back a tree whose making was cut off; gives whether it is gone.
    ///
    /// Only where the record says that nothing ran in it, its lease is free and the directory is
    /// the one that was made.
    pub fn take_back_half_made(&self, orphan: &Orphan) -> Result<bool, WorkspaceError> {
        if orphan.kind != OrphanKind::HalfMade {
            return Ok(false);
        }
        let Some(record) = &orphan.record else {
            return self.acting(|| forget_unwritten(&orphan.path));
        };
        self.acting(|| {
            let places = self.places(&record.repository);
            let directory = record.record_directory(&places);
            let Some(_lease) = Lease::take(&directory)? else {
                return Ok(false);
            };
            // What is on disk now decides, not what was read earlier.
            let Some(record) = WorktreeRecord::load(&directory)? else {
                return Ok(false);
            };
            let tree = record.tree_path();
            let is_ours = match record.identity {
                Some(_) => record.is_same_directory() || !tree.exists(),
                // The directory is made before its identity can be written down: then it is empty.
                None => !tree.exists() || !files::holds_more_than(tree, "").unwrap_or(true),
            };
            if record.state != TreeState::Making || !is_ours {
                return Ok(false);
            }
            let repository = record.user_repository();
            let mut made = Made {
                records: vec![directory],
                references: Vec::new(),
                trees: vec![tree.to_path_buf()],
            };
            let name = record.base_reference();
            if let Some(oid) = self.git.reference(&repository, &name)? {
                made.references.push((name, oid));
            }
            Ok(self.take_back(&repository, &made).is_empty())
        })
    }

    /// Takes over the tree of a task whose process died, so that what is in it can be brought in:
    /// gives the record as it lies on disk, and its lease.
    ///
    /// `None` while somebody holds the lease, or a process of the task that is on its way to its end
    /// still has its working directory in the tree.
    pub fn adopt(
        &self,
        record: &WorktreeRecord,
    ) -> Result<Option<(WorktreeRecord, Lease)>, WorkspaceError> {
        self.acting(|| {
            let directory = record.record_directory(&self.places(&record.repository));
            let Some(lease) = Lease::take(&directory)? else {
                return Ok(None);
            };
            let Some(record) = WorktreeRecord::load(&directory)? else {
                return Ok(None);
            };
            let until = Instant::now() + LAST_BREATH;
            while !processes_inside(record.tree_path()).is_empty() {
                if Instant::now() >= until {
                    return Ok(None);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(Some((record, lease)))
        })
    }

    /// Empties the trash: what lies there was proved removable before it came there.
    pub fn empty_trash(&self) -> Result<u64, WorkspaceError> {
        self.acting(|| {
            sweep_exports(&self.trees);
            let mut left = 0;
            for repository in list(&self.trees)?.iter().filter(|path| !is_hidden(path)) {
                for tree in list(&repository.join(".trash"))? {
                    left += files::remove_tree(&tree).unwrap_or(1);
                }
            }
            Ok(left)
        })
    }
}

/// Takes away the place of a record that was never written: the first thing that is made.
fn forget_unwritten(tree: &BytePath) -> Result<bool, WorkspaceError> {
    let tree = tree.as_path();
    let repository = tree.parent().and_then(Path::parent);
    let Some(repository) = repository else {
        return Ok(false);
    };
    let directory = repository.join(".records").join(relative(tree));
    let Some(_lease) = Lease::take(&directory)? else {
        return Ok(false);
    };
    if tree.exists() || WorktreeRecord::load(&directory)?.is_some() {
        return Ok(false);
    }
    let gone = matches!(files::remove_tree(&directory), Ok(0));
    remove_empty_parent(&directory);
    Ok(gone)
}

fn relative(directory: &Path) -> PathBuf {
    let worker = directory.file_name().unwrap_or_default();
    let run = directory
        .parent()
        .and_then(Path::file_name)
        .unwrap_or_default();
    Path::new(run).join(worker)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, WorkspaceError> {
    let fail = || WorkspaceError::file("listing", directory);
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail()(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(fail())?;
        let kind = entry.file_type().map_err(fail())?;
        if kind.is_dir() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}
