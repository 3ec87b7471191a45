//! Removing a tree, when it is provably ours, dead and saved.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::task::{CleanupStatus, WorkspaceStrategy};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gitdir::MARKER;
use super::record::{TreeState, WorktreeRecord};
use super::saga::remove_empty_parent;
use super::store::Lease;
use super::{Places, WorkspaceError, Workspaces, files};
use crate::git::RepositoryLock;

/// What was found out before a removal. Everything has to hold; what is not known does not hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The path is the one that the record's names give, below our own directory.
    pub inside_our_root: bool,
    /// Device and inode are those of the directory that was made.
    pub is_same_directory: bool,
    /// The marker in its git directory holds the record's secret.
    pub marker_matches: bool,
    /// It is not the user's checkout, nor above it or its git directory.
    pub is_not_the_users: bool,
    /// Nobody holds its lease.
    pub no_live_lease: bool,
    /// Processes that have their working directory in it.
    pub processes_inside: Vec<u32>,
    /// Merges, rebases and the like that are not finished.
    pub in_progress: Vec<String>,
    /// The last commit.
    pub head: Option<String>,
    /// A reference of the user's repository that leads to it.
    pub head_saved_by: Option<String>,
    /// What is on no reference.
    pub unsaved: Vec<super::Unsaved>,
    /// Stash entries and other references of the task that are saved.
    pub saved_references: u64,
    /// Ignored files and directories that go with it, at most a thousand.
    pub ignored: Vec<BytePath>,
    /// Copied-in files that the task changed; they go with it.
    pub seeds_changed: Vec<BytePath>,
}

/// What became of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum RemovalOutcome {
    /// It is gone.
    Deleted,
    /// It was gone already.
    AlreadyGone,
    /// It stays: something in it is not saved.
    KeptDirty {
        /// What.
        why: String,
    },
    /// It stays: something in it still lives.
    KeptLive {
        /// What.
        why: String,
    },
    /// It stays: what it is could not be proved.
    KeptUnknown {
        /// What could not.
        why: String,
    },
    /// Some of it is left.
    PartiallyRemoved {
        /// What, and where.
        what: String,
    },
}

/// Shows what was removed or kept, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemovalReceipt {
    /// The record.
    pub record: String,
    /// The tree.
    pub path: BytePath,
    /// What became of it.
    pub result: RemovalOutcome,
    /// What that rests on.
    pub proof: Proof,
    /// How to get at what was in it.
    pub way_back: Option<String>,
}

impl RemovalReceipt {
    /// Gives the word for a task's result.
    pub fn status(&self) -> CleanupStatus {
        match self.result {
            RemovalOutcome::Deleted => CleanupStatus::Removed,
            RemovalOutcome::AlreadyGone => CleanupStatus::NotNeeded,
            RemovalOutcome::KeptDirty { .. } => CleanupStatus::KeptDirty,
            RemovalOutcome::KeptLive { .. } => CleanupStatus::KeptLive,
            RemovalOutcome::KeptUnknown { .. } => CleanupStatus::KeptUnknown,
            RemovalOutcome::PartiallyRemoved { .. } => CleanupStatus::Pending,
        }
    }
}

impl Workspaces {
    /// Removes a tree when it is proved that it is ours, that nothing in it lives, and that
    /// everything in it is on a reference or was never git's. Otherwise it stays, and the receipt
    /// says why.
    ///
    /// Give the lease of [`super::Worktree`] when the task was run by this process; without it the
    /// lease has to be free.
    pub fn remove(
        &self,
        record: &WorktreeRecord,
        lease: Option<Lease>,
    ) -> Result<RemovalReceipt, WorkspaceError> {
        self.acting(|| self.remove_acting(record, lease))
    }

    fn remove_acting(
        &self,
        record: &WorktreeRecord,
        lease: Option<Lease>,
    ) -> Result<RemovalReceipt, WorkspaceError> {
        let places = self.places(&record.repository);
        let receipt = |result, proof: Proof| {
            let way_back = proof.head_saved_by.as_ref().and_then(|reference| {
                let name = reference.strip_prefix("refs/heads/").unwrap_or(reference);
                (proof.head.as_deref() != Some(&record.base.oid))
                    .then(|| format!("git worktree add PATH {name}"))
            });
            RemovalReceipt {
                record: record.record.clone(),
                path: record.tree.clone(),
                result,
                proof,
                way_back,
            }
        };
        let tree = record.tree_path();
        let mut proof = Proof {
            inside_our_root: is_ours(&places, record),
            ..Proof::default()
        };
        if !proof.inside_our_root {
            let why = "its path is not one of ours".to_owned();
            return Ok(receipt(RemovalOutcome::KeptUnknown { why }, proof));
        }
        if tree
            .symlink_metadata()
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        {
            self.forget(record, &places)?;
            return Ok(receipt(RemovalOutcome::AlreadyGone, proof));
        }
        let lease = match lease {
            Some(lease) => Some(lease),
            None => Lease::take(&record.record_directory(&places))
                .ok()
                .flatten(),
        };
        proof.no_live_lease = lease.is_some();
        self.look_for_proof(record, &mut proof)?;
        if let Some(kept) = verdict(&proof) {
            return Ok(receipt(kept, proof));
        }
        let trash = places
            .trash()
            .join(format!("{}-{}", record.nonce, record.worker));
        let _ = files::remove_tree(&trash);
        std::fs::rename(tree, &trash).map_err(WorkspaceError::file("moving to the trash", tree))?;
        let left = files::remove_tree(&trash).unwrap_or(1);
        self.forget(record, &places)?;
        remove_empty_parent(tree);
        let result = if tree.symlink_metadata().is_ok() || left > 0 {
            let what = format!("{left} thing(s) in {}", trash.display());
            RemovalOutcome::PartiallyRemoved { what }
        } else {
            RemovalOutcome::Deleted
        };
        Ok(receipt(result, proof))
    }

    fn look_for_proof(
        &self,
        record: &WorktreeRecord,
        proof: &mut Proof,
    ) -> Result<(), WorkspaceError> {
        let tree = record.tree_path();
        proof.is_same_directory = record.is_same_directory();
        proof.marker_matches = marker_matches(record);
        proof.is_not_the_users = is_not_the_users(record);
        proof.processes_inside = processes_inside(tree);
        match &record.harvest {
            Some(harvest) => {
                proof.in_progress.clone_from(&harvest.in_progress);
                proof.head = Some(harvest.commit.clone());
                proof.unsaved.clone_from(&harvest.unsaved);
                proof.ignored.clone_from(&harvest.ignored);
                proof.seeds_changed.clone_from(&harvest.seeds_changed);
                let repository = record.user_repository();
                for saved in &harvest.saved {
                    let trashed = saved.reference.replacen(
                        &record.saved_prefix(),
                        &format!("{}/saved", record.trash_prefix()),
                        1,
                    );
                    let found = self
                        .git
                        .references(&repository, &[&saved.reference, &trashed])?;
                    if found.iter().any(|one| one.oid == saved.oid) {
                        proof.saved_references += 1;
                    } else {
                        let path = BytePath::from(saved.name.as_str());
                        let why = format!("{} does not hold it any more", saved.reference);
                        proof.unsaved.push(super::Unsaved { path, why });
                    }
                }
                let call = self.git.on(&repository.git_dir, &repository.top);
                let contains = format!("--contains={}", harvest.commit);
                let line = call
                    .args([
                        "for-each-ref",
                        "--count=1",
                        "--format=%(refname)",
                        &contains,
                    ])
                    .args(["refs/heads", "refs/tags", "refs/cofferdam", "refs/remotes"])
                    .run()?;
                let name = String::from_utf8_lossy(&line.stdout).trim().to_owned();
                proof.head_saved_by = (line.code() == Some(0) && !name.is_empty()).then_some(name);
                if record
                    .harvest
                    .as_ref()
                    .is_some_and(|own| own.commit == record.base.oid)
                    && proof.head_saved_by.is_none()
                {
                    // It did nothing, from a commit that no reference holds: nothing of it is lost.
                    proof.head_saved_by = Some("the base, unchanged".to_owned());
                }
            }
            None if record.state == TreeState::Making
                && record.strategy == WorkspaceStrategy::Ephemeral =>
            {
                // Nothing ever ran in it; in a tree that lasts, an earlier task may have.
                proof.head = Some(record.base.oid.clone());
                proof.head_saved_by = Some("nothing ran in it".to_owned());
            }
            None => {}
        }
        Ok(())
    }

    /// Takes away what is kept about a tree that is gone.
    fn forget(&self, record: &WorktreeRecord, places: &Places) -> Result<(), WorkspaceError> {
        let repository = record.user_repository();
        if repository.git_dir.exists() {
            let _lock = RepositoryLock::take(&self.locks(), &repository.common_dir)?;
            let is_needed = record
                .harvest
                .as_ref()
                .is_some_and(|harvest| harvest.branch.is_some() && !harvest.descends_from_base);
            if !is_needed {
                self.release(&repository, &record.base_reference())?;
            }
        }
        let directory = record.record_directory(places);
        let _ = files::remove_tree(&directory);
        remove_empty_parent(&directory);
        Ok(())
    }
}

/// Decides from the proof alone; `None` when the tree may go.
fn verdict(proof: &Proof) -> Option<RemovalOutcome> {
    let unknown = |why: &str| {
        Some(RemovalOutcome::KeptUnknown {
            why: why.to_owned(),
        })
    };
    if !proof.is_not_the_users {
        return unknown("it is, or holds, the user's own checkout");
    }
    if !proof.is_same_directory {
        return unknown("another directory stands at its path");
    }
    if !proof.marker_matches {
        return unknown("its marker is not there");
    }
    if !proof.no_live_lease {
        let why = "another process holds its lease".to_owned();
        return Some(RemovalOutcome::KeptLive { why });
    }
    if let Some(pid) = proof.processes_inside.first() {
        let why = format!("process {pid} works in it");
        return Some(RemovalOutcome::KeptLive { why });
    }
    if proof.head.is_none() {
        return unknown("it was not harvested");
    }
    let dirty = |why: String| Some(RemovalOutcome::KeptDirty { why });
    if let Some(what) = proof.in_progress.first() {
        return dirty(format!("a {what} is not finished"));
    }
    if let Some(unsaved) = proof.unsaved.first() {
        return dirty(format!("{}: {}", unsaved.path, unsaved.why));
    }
    if proof.head_saved_by.is_none() {
        return dirty("no reference leads to its last commit any more".to_owned());
    }
    None
}

fn is_ours(places: &Places, record: &WorktreeRecord) -> bool {
    let run = match record.strategy {
        WorkspaceStrategy::Ephemeral => record.run.as_str(),
        WorkspaceStrategy::Persistent => super::names::PERSISTENT,
    };
    let named = super::names::check("worker", &record.worker).is_ok()
        && (super::names::check("run", &record.run).is_ok());
    named
        && record.tree_path() == places.tree(run, &record.worker)
        && record.tree_path().parent().is_some_and(|parent| {
            parent
                .canonicalize()
                .map_or(!parent.exists(), |real| real == parent)
        })
}

fn is_not_the_users(record: &WorktreeRecord) -> bool {
    let Ok(tree) = record.tree_path().canonicalize() else {
        return false;
    };
    [&record.top, &record.git_dir, &record.common_dir]
        .into_iter()
        .all(|own| {
            // A checkout that is gone cannot lie in the tree; its path still may not.
            let own = own
                .as_path()
                .canonicalize()
                .unwrap_or_else(|_| own.as_path().to_path_buf());
            !own.starts_with(&tree)
        })
}

fn marker_matches(record: &WorktreeRecord) -> bool {
    let Ok(top) = files::open_directory(record.tree_path()) else {
        return false;
    };
    let Ok(file) = files::open_beneath(top.as_fd(), &Path::new(".git").join(MARKER)) else {
        return false;
    };
    let mut text = String::new();
    let read = std::io::Read::read_to_string(&mut std::io::Read::take(file, 4096), &mut text);
    read.is_ok() && text.lines().next() == Some(&record.nonce)
}

impl WorktreeRecord {
    /// Whether the directory at the tree's path is the one that was made.
    pub(super) fn is_same_directory(&self) -> bool {
        let tree = self.tree_path();
        // The number of a device may change with a restart; the file system is that of our root.
        let root = tree
            .parent()
            .and_then(|parent| parent.symlink_metadata().ok());
        let device = root.map(|root| root.dev());
        tree.symlink_metadata().is_ok_and(|found| {
            let same_inode = self.identity.is_some_and(|(_, inode)| inode == found.ino());
            found.is_dir() && same_inode && device == Some(found.dev())
        })
    }
}

/// Finds processes whose working directory is a directory or lies below it, in whatever mount
/// namespace: by device and inode, going up.
pub(super) fn processes_inside(tree: &Path) -> Vec<u32> {
    let Ok(own) = tree.metadata() else {
        return Vec::new();
    };
    let is_it = |directory: &OwnedFd| {
        statat(directory, "", AtFlags::EMPTY_PATH)
            .is_ok_and(|stat| stat.st_dev == own.dev() && stat.st_ino == own.ino())
    };
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let cwd = entry.path().join("cwd");
        // Somebody else's process cannot be looked into, nor can it enter our private directory.
        let Ok(mut here) = openat(rustix::fs::CWD, &cwd, flags, Mode::empty()) else {
            continue;
        };
        for _ in 0..256 {
            if is_it(&here) {
                found.push(pid);
                break;
            }
            let Ok(up) = openat(&here, "..", flags, Mode::empty()) else {
                break;
            };
            let same = |one: &OwnedFd| {
                statat(one, "", AtFlags::EMPTY_PATH)
                    .map(|stat| (stat.st_dev, stat.st_ino))
                    .ok()
            };
            if same(&up) == same(&here) {
                break;
            }
            here = up;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Proof {
        Proof {
            inside_our_root: true,
            is_same_directory: true,
            marker_matches: true,
            is_not_the_users: true,
            no_live_lease: true,
            head: Some("a".to_owned()),
            head_saved_by: Some("refs/heads/x".to_owned()),
            ..Proof::default()
        }
    }

    #[test]
    fn every_single_missing_piece_of_the_proof_keeps_the_tree() {
        assert_eq!(verdict(&whole()), None);
        let unsaved = super::super::Unsaved {
            path: "a".into(),
            why: "w".to_owned(),
        };
        let spoiled = [
            Proof {
                is_same_directory: false,
                ..whole()
            },
            Proof {
                marker_matches: false,
                ..whole()
            },
            Proof {
                is_not_the_users: false,
                ..whole()
            },
            Proof {
                no_live_lease: false,
                ..whole()
            },
            Proof {
                processes_inside: vec![1],
                ..whole()
            },
            Proof {
                head: None,
                ..whole()
            },
            Proof {
                head_saved_by: None,
                ..whole()
            },
            Proof {
                in_progress: vec!["merge".to_owned()],
                ..whole()
            },
            Proof {
                unsaved: vec![unsaved],
                ..whole()
            },
        ];
        for proof in spoiled {
            assert!(verdict(&proof).is_some(), "{proof:?}");
        }
    }

    #[test]
    fn a_process_with_its_directory_inside_is_found() {
        let own = std::env::current_dir().unwrap();
        assert!(processes_inside(&own).contains(&std::process::id()));
        let other = tempfile::tempdir().unwrap();
        assert!(processes_inside(other.path()).is_empty());
    }
}
