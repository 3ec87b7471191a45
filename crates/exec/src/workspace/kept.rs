//! A checkout whose files are kept whenever something has changed in it.

use std::path::{Path, PathBuf};

use cofferdam_core::task::ModifiedFile;

use super::snapshot::CheckoutSnapshot;
use super::watch::TreeWatch;
use super::{WorkspaceError, Workspaces};

/// A checkout that is watched: where nothing changed, that is known at once.
#[derive(Debug)]
pub struct KeptCheckout {
    workspaces: Workspaces,
    top: PathBuf,
    newest: CheckoutSnapshot,
    watch: Option<TreeWatch>,
}

/// What changed in a checkout between two moments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutChange {
    /// The files before.
    pub before: CheckoutSnapshot,
    /// The files after.
    pub after: CheckoutSnapshot,
    /// Every file that differs.
    pub files: Vec<ModifiedFile>,
}

impl KeptCheckout {
    /// Takes the first snapshot of the checkout around a directory, and watches it from then on.
    ///
    /// `must_be_cheap` refuses one that cannot be watched; without, such a one is looked at each time.
    pub fn begin(
        workspaces: Workspaces,
        directory: &Path,
        what: &str,
        must_be_cheap: bool,
    ) -> Result<Self, WorkspaceError> {
        // What changes meanwhile is told afterwards.
        let watch = match workspaces.watch(directory) {
            Err(error @ WorkspaceError::State { .. }) if must_be_cheap => return Err(error),
            Err(WorkspaceError::State { .. }) => None,
            watch => Some(watch?),
        };
        let newest = workspaces.take_snapshot(directory, what)?;
        Ok(Self {
            workspaces,
            top: directory.to_owned(),
            newest,
            watch,
        })
    }

    /// Lends the newest snapshot.
    pub const fn newest(&self) -> &CheckoutSnapshot {
        &self.newest
    }

    /// Tells whether anything may have changed since the newest snapshot. It costs next to nothing
    /// where nothing has.
    pub fn may_have_changed(&mut self) -> bool {
        self.watch.as_mut().is_none_or(TreeWatch::has_changed)
    }

    /// Keeps the files as they are, where they are others than in the newest snapshot.
    pub fn take(&mut self, what: &str) -> Result<Option<CheckoutChange>, WorkspaceError> {
        if !self.may_have_changed() {
            return Ok(None);
        }
        let taken = self.look(what);
        if let (Err(_), Some(watch)) = (&taken, &mut self.watch) {
            watch.remember();
        }
        taken
    }

    fn look(&mut self, what: &str) -> Result<Option<CheckoutChange>, WorkspaceError> {
        if let Some(watch) = &mut self.watch {
            // Before the look: what comes later is told by the new one.
            if watch.has_new_directories() {
                match self.workspaces.watch(&self.top) {
                    Ok(new) => *watch = new,
                    // From now on every look is at all files.
                    Err(WorkspaceError::State { .. }) => self.watch = None,
                    Err(error) => return Err(error),
                }
            } else {
                watch.forget();
            }
        }
        let after = self.workspaces.take_snapshot(&self.top, what)?;
        if after.tree == self.newest.tree {
            self.newest = after;
            return Ok(None);
        }
        let files = self
            .workspaces
            .snapshot_changes(&self.top, &self.newest, &after)?;
        let before = std::mem::replace(&mut self.newest, after.clone());
        Ok(Some(CheckoutChange {
            before,
            after,
            files,
        }))
    }
}
