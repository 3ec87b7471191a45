//! Trees that last: a task of the same worker name uses the tree of the one before.

use super::inside::{GIT_DIR, Inside, InsideGit};
use super::store::Lease;
use super::{Places, TreeState, WorkspaceError, Workspaces, WorktreeRecord};
use crate::git::RepositoryLock;

/// Takes over the tree of an earlier task of this worker; `None` when there is none to take over.
///
/// The base is recorded anew: the user's `HEAD` when it already has everything that the tree has,
/// else the last state of the tree. Refused while another task lives in it.
pub(super) fn take_over(
    workspaces: &Workspaces,
    places: &Places,
    record: &mut WorktreeRecord,
) -> Result<Option<Lease>, WorkspaceError> {
    let directory = record.record_directory(places);
    let Some(before) = WorktreeRecord::load(&directory)? else {
        return Ok(None);
    };
    let Some(lease) = Lease::take(&directory)? else {
        return Err(WorkspaceError::Live {
            worker: record.worker.clone(),
        });
    };
    let repository = record.user_repository();
    if before.state == TreeState::Making {
        // Nothing ever ran in it: it is made anew.
        let made = super::saga::Made {
            records: vec![directory],
            references: vec![(before.base_reference(), before.base.oid.clone())],
            trees: before
                .identity
                .map(|_| vec![before.tree_path().to_path_buf()])
                .unwrap_or_default(),
        };
        drop(lease);
        workspaces.take_back(&repository, &made);
        return Ok(None);
    }
    if !before.is_same_directory() {
        return Err(WorkspaceError::DirectoryTaken {
            path: record.tree_path().to_path_buf(),
        });
    }
    let older = before.base_reference();
    record.identity = before.identity;
    record.nonce = before.nonce;
    record.seeds = before.seeds;
    record.state = TreeState::Ready;
    let head = record.base.oid.clone();
    if let Some(harvest) = before.harvest {
        let git = &workspaces.git;
        let has_all = git
            .on(&repository.git_dir, &repository.top)
            .args(["merge-base", "--is-ancestor", &harvest.commit, &head])
            .run()?
            .code()
            == Some(0);
        if !has_all && git.commit(&repository, &harvest.commit).is_ok() {
            record.base.oid = harvest.commit;
            record.base.reference = None;
        }
    } else {
        record.base = before.base;
        record.carried = before.carried;
        record.notes.push(format!(
            "the tree still holds what {} left in it, which was not brought in",
            before.record
        ));
        record.continues = Some(before.record);
        // Two references hold the same base for a moment; the older one goes with its task.
        let _lock = RepositoryLock::take(&workspaces.locks(), &repository.common_dir)?;
        workspaces.release(&repository, &older)?;
    }
    record.save(places)?;
    Ok(Some(lease))
}

impl Workspaces {
    /// Puts a reused tree on the branch of its new task. Call it once, when the walls stand and
    /// before anything else runs in them.
    ///
    /// What the tree holds and git does not know, such as build results, stays as it is.
    pub fn attach(
        &self,
        record: &WorktreeRecord,
        walls: &dyn InsideGit,
    ) -> Result<(), WorkspaceError> {
        let program = self.git.program();
        let inside = Inside {
            git: &program,
            walls,
            git_dir: GIT_DIR,
        };
        let mut arguments = vec!["checkout", "-q", "-B", &record.branch];
        if record.continues.is_none() {
            arguments.push(&record.base.oid);
        }
        inside.output("going to the task's branch", &arguments, &[], None)?;
        Ok(())
    }

    /// Puts a tree that lasts on its harvested commit, so that the next task finds it clean.
    pub(super) fn settle_persistent(
        &self,
        commit: &str,
        walls: &dyn InsideGit,
    ) -> Result<(), WorkspaceError> {
        let program = self.git.program();
        let inside = Inside {
            git: &program,
            walls,
            git_dir: GIT_DIR,
        };
        inside.output(
            "settling the tree",
            &["reset", "-q", "--mixed", commit],
            &[],
            None,
        )?;
        Ok(())
    }
}
