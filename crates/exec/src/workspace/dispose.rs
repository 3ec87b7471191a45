//! Looking at what a task brought in, dropping it, and bringing it back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::WorktreeRecord;
use super::survey::checkout_of;
use super::{WorkspaceError, Workspaces};
use crate::git::{GitError, RefChange, Reference, RepositoryLock};

/// References of a dropped task, and where they are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Each reference: what it was, where it is kept, what it names.
    pub references: Vec<super::Saved>,
}

impl Workspaces {
    /// Gives the differences that a harvested task made, in git's own form, without colours.
    pub fn diff(&self, record: &WorktreeRecord) -> Result<Vec<u8>, WorkspaceError> {
        let Some(harvest) = &record.harvest else {
            return Err(WorkspaceError::State {
                why: "the task is not harvested yet".to_owned(),
            });
        };
        self.acting(|| {
            let repository = record.user_repository();
            let output = self
                .git
                .on(&repository.git_dir, &repository.top)
                .args([
                    "diff-tree",
                    "-r",
                    "-p",
                    "-M",
                    "--binary",
                    "--full-index",
                    "--no-color",
                ])
                .args([
                    "--no-ext-diff",
                    "--no-textconv",
                    "--src-prefix=a/",
                    "--dst-prefix=b/",
                ])
                .args([record.measured_from(), &harvest.commit, "--"])
                .output()?;
            Ok(output)
        })
    }

    /// Gives a file as it was where the task began; `None` when there was none.
    pub fn file_at_base(
        &self,
        record: &WorktreeRecord,
        path: &cofferdam_core::bytes::BytePath,
    ) -> Result<Option<Vec<u8>>, WorkspaceError> {
        use std::os::unix::ffi::OsStrExt;
        self.acting(|| {
            let repository = record.user_repository();
            // A carried commit is in the task's own store until it is brought in.
            let mut call = self.git.on(&repository.git_dir, &repository.top);
            if record.carried.is_some() && record.harvest.is_none() {
                let objects = record.tree_path().join(".git/objects");
                call = call.env(
                    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
                    objects.as_os_str().as_bytes(),
                );
            }
            let mut name = record.measured_from().as_bytes().to_vec();
            name.push(b':');
            name.extend_from_slice(path.as_bytes());
            let answer = call
                .args(["cat-file", "blob"])
                .args([std::ffi::OsStr::from_bytes(&name)])
                .run()?;
            Ok((answer.code() == Some(0)).then_some(answer.stdout))
        })
    }

    /// Takes a task's branch and saved references away in one step: [`Workspaces::plan_drop`], then
    /// [`Workspaces::apply_drop`].
    pub fn drop_task(&self, record: &WorktreeRecord) -> Result<Dropped, WorkspaceError> {
        let planned = self.plan_drop(record)?;
        self.apply_drop(record, &planned)?;
        Ok(planned)
    }

    /// Lists a task's branch and saved references, and where under
    /// `refs/cofferdam/trash/<run>/<worker>/` each of them would go. Changes nothing.
    ///
    /// Refused while the branch is checked out somewhere.
    pub fn plan_drop(&self, record: &WorktreeRecord) -> Result<Dropped, WorkspaceError> {
        self.acting(|| {
            let repository = &record.user_repository();
            let branch = record.branch_reference();
            if let Some(path) = checkout_of(&self.git, repository, &branch)? {
                return Err(WorkspaceError::State {
                    why: format!(
                        "branch {} is checked out in {}",
                        record.branch,
                        path.display()
                    ),
                });
            }
            let saved = record.saved_prefix();
            let base = record.base_reference();
            let found = self.git.references(repository, &[&branch, &saved, &base])?;
            let trash = record.trash_prefix();
            let mut references = Vec::new();
            for Reference { name, oid, .. } in found {
                let reference = if name == branch {
                    format!("{trash}/branch")
                } else if name == base {
                    format!("{trash}/base")
                } else if let Some(rest) = name.strip_prefix(&saved) {
                    format!("{trash}/saved{rest}")
                } else {
                    continue;
                };
                references.push(super::Saved {
                    name,
                    reference,
                    oid,
                });
            }
            Ok(Dropped { references })
        })
    }

    /// Moves the references of a planned drop, all or none. The tree is a matter of
    /// [`Workspaces::remove`].
    pub fn apply_drop(
        &self,
        record: &WorktreeRecord,
        planned: &Dropped,
    ) -> Result<(), WorkspaceError> {
        self.acting(|| {
            let repository = &record.user_repository();
            let _lock = RepositoryLock::take(&self.locks(), &repository.common_dir)?;
            let mut changes = Vec::new();
            for one in &planned.references {
                let (kept, oid) = (one.reference.as_str(), one.oid.as_str());
                changes.push(match self.git.reference(repository, kept)? {
                    None => RefChange::create(kept, oid),
                    Some(old) => RefChange::update(kept, oid, old),
                });
                changes.push(RefChange::delete(one.name.as_str(), oid));
            }
            if !changes.is_empty() {
                self.git
                    .change_references(repository, "cofferdam: drop", &changes)?;
            }
            Ok(())
        })
    }

    /// Finds out what became of a drop that was cut off; gives whether its references are in the
    /// trash. One that was caught between two of them is carried to its end.
    pub fn settle_drop(
        &self,
        record: &WorktreeRecord,
        planned: &Dropped,
    ) -> Result<bool, WorkspaceError> {
        self.acting(|| {
            let repository = &record.user_repository();
            let _lock = RepositoryLock::take(&self.locks(), &repository.common_dir)?;
            let mut kept = false;
            let mut changes = Vec::new();
            for one in &planned.references {
                let is_kept =
                    self.git.reference(repository, &one.reference)?.as_ref() == Some(&one.oid);
                kept |= is_kept;
                if self.git.reference(repository, &one.name)?.as_ref() == Some(&one.oid) {
                    if !is_kept {
                        changes.push(RefChange::create(one.reference.as_str(), one.oid.as_str()));
                    }
                    changes.push(RefChange::delete(one.name.as_str(), one.oid.as_str()));
                }
            }
            if kept && !changes.is_empty() {
                self.git
                    .change_references(repository, "cofferdam: drop", &changes)?;
            }
            Ok(kept)
        })
    }

    /// Brings back what [`Workspaces::drop_task`] took away.
    pub fn undo_drop(
        &self,
        record: &WorktreeRecord,
        dropped: &Dropped,
    ) -> Result<(), WorkspaceError> {
        self.acting(|| {
            let repository = &record.user_repository();
            let _lock = RepositoryLock::take(&self.locks(), &repository.common_dir)?;
            let mut changes = Vec::new();
            for one in &dropped.references {
                changes.push(RefChange::create(one.name.as_str(), one.oid.as_str()));
                changes.push(RefChange::delete(one.reference.as_str(), one.oid.as_str()));
            }
            match self
                .git
                .change_references(repository, "cofferdam: undo drop", &changes)
            {
                Err(GitError::RefMoved { stderr }) => Err(WorkspaceError::BranchTaken {
                    branch: record.branch.clone(),
                    by: stderr,
                }),
                other => Ok(other?),
            }
        })
    }
}
