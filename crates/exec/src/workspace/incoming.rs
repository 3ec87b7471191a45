//! The quarantine: a pack from inside the walls is checked before the user's repository sees it.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::gitdir::alternate_line;
use super::{WorkspaceError, files};
use crate::git::{Git, GitCall, GitError, Repository};
use crate::tool::Input;

/// Holds checked objects apart; removed when dropped.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    /// `None` where nothing comes in: everything is in the repository already.
    directory: Option<PathBuf>,
    repository: &'a Repository,
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            // What stays is swept with the next one of the same name, and lies outside the repository.
            let _ = files::remove_tree(directory);
        }
    }
}

impl<'a> Incoming<'a> {
    /// Makes an empty quarantine that sees the user's objects.
    pub(crate) fn open(
        place: &Path,
        nonce: &str,
        repository: &'a Repository,
    ) -> Result<Self, WorkspaceError> {
        let directory = place.join(format!("pack-{nonce}"));
        let _ = files::remove_tree(&directory);
        let objects = directory.join("objects");
        let own = Self {
            directory: Some(directory),
            repository,
        };
        let make = WorkspaceError::file;
        for part in ["info", "pack"] {
            let path = objects.join(part);
            std::fs::create_dir_all(&path).map_err(make("making the quarantine", &path))?;
        }
        let alternates = objects.join("info/alternates");
        std::fs::write(&alternates, alternate_line(&repository.objects))
            .map_err(make("writing", &alternates))?;
        Ok(own)
    }

    /// Looks at the user's objects alone, where nothing new has come.
    pub(crate) fn nothing(repository: &'a Repository) -> Self {
        Self {
            directory: None,
            repository,
        }
    }

    fn objects(&self) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join("objects"))
    }

    fn call<'b>(&'b self, git: &'b Git) -> GitCall<'b> {
        let call = git.on(&self.repository.git_dir, &self.repository.top);
        match self.objects() {
            Some(objects) => call.env("GIT_OBJECT_DIRECTORY", objects.as_os_str().as_bytes()),
            None => call,
        }
    }

    /// Checks a pack: its form, every object in it, names in trees, and that nothing is missing.
    pub(crate) fn take(&self, git: &Git, pack: &File, bound: u64) -> Result<(), WorkspaceError> {
        let size = pack
            .metadata()
            .map_err(|error| WorkspaceError::rejected(format!("its pack: {error}")))?
            .len();
        if size > bound {
            return Err(WorkspaceError::rejected(format!(
                "it has {size} bytes of new objects, {bound} are allowed"
            )));
        }
        let checked = self
            .call(git)
            .args(["index-pack", "--stdin", "--strict", "--fsck-objects"])
            .args([format!("--max-input-size={bound}")])
            .input(Input::File(pack.as_fd()))
            .timeout(std::time::Duration::from_mins(30))
            .output();
        rejecting(checked, "its objects did not pass the check")?;
        Ok(())
    }

    /// Checks that everything that these commits lead to is there.
    pub(crate) fn check_connected(&self, git: &Git, tips: &[&str]) -> Result<(), WorkspaceError> {
        let mut input = tips.join("\n").into_bytes();
        input.push(b'\n');
        // Options among the revisions are only read by git 2.42 and newer.
        let checked = self
            .call(git)
            .args([
                "rev-list",
                "--objects",
                "--quiet",
                "--stdin",
                "--not",
                "--all",
            ])
            .input(Input::Bytes(&input))
            .output();
        rejecting(checked, "objects are missing")?;
        Ok(())
    }

    /// Gives the tree of a commit.
    pub(crate) fn tree_of(&self, git: &Git, commit: &str) -> Result<String, WorkspaceError> {
        let line = self
            .call(git)
            .args(["rev-parse", "--verify", &format!("{commit}^{{tree}}")])
            .line();
        rejecting(line, "its last commit cannot be read")
    }

    /// Whether one commit has another among its ancestors.
    pub(crate) fn descends(
        &self,
        git: &Git,
        from: &str,
        commit: &str,
    ) -> Result<bool, WorkspaceError> {
        if from == commit {
            return Ok(true);
        }
        Ok(self
            .call(git)
            .args(["merge-base", "--is-ancestor", from, commit])
            .verdict()?)
    }

    /// Counts the commits that lead from one to another.
    pub(crate) fn count(&self, git: &Git, from: &str, to: &str) -> Result<u64, WorkspaceError> {
        if from == to {
            return Ok(0);
        }
        let line = self
            .call(git)
            .args(["rev-list", "--count", to, "--not", from])
            .line()?;
        Ok(line.parse().unwrap_or(0))
    }

    /// Whether two commits have the same tree and the same parents: the same work, saved twice.
    pub(crate) fn same_work(
        &self,
        git: &Git,
        one: &str,
        other: &str,
    ) -> Result<bool, WorkspaceError> {
        if one == other {
            return Ok(true);
        }
        let show = |commit| {
            self.call(git)
                .args([
                    "rev-list",
                    "--no-walk",
                    "--no-commit-header",
                    "--format=%T %P",
                    commit,
                ])
                .line()
        };
        Ok(show(one)? == show(other)?)
    }

    /// Moves the checked pack into the user's objects, its index last.
    ///
    /// A crash in between leaves files that git takes for temporary ones and collects.
    pub(crate) fn move_in(&self) -> Result<(), WorkspaceError> {
        let Some(objects) = self.objects() else {
            return Ok(());
        };
        let from = objects.join("pack");
        let to = self.repository.objects.join("pack");
        let fail = WorkspaceError::file;
        std::fs::create_dir_all(&to).map_err(fail("making", &to))?;
        let mut names: Vec<_> = std::fs::read_dir(&from)
            .map_err(fail("reading", &from))?
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.sort_by_key(|name| Path::new(name).extension() == Some("idx".as_ref()));
        for name in names {
            let (source, target) = (from.join(&name), to.join(&name));
            if target.exists() {
                continue;
            }
            let mut temporary = std::ffi::OsString::from("tmp_cofferdam_");
            temporary.push(&name);
            let temporary = to.join(temporary);
            let _ = std::fs::remove_file(&temporary);
            std::fs::hard_link(&source, &temporary)
                .or_else(|_| std::fs::copy(&source, &temporary).map(drop))
                .and_then(|()| {
                    let read_only = std::fs::Permissions::from_mode(0o444);
                    std::fs::set_permissions(&temporary, read_only)
                })
                .and_then(|()| std::fs::rename(&temporary, &target))
                .map_err(fail("moving a pack to", &target))?;
        }
        Ok(())
    }
}

/// A refusal by git is a verdict on what came out of the task; anything else is a failure of ours.
fn rejecting<T>(outcome: Result<T, GitError>, what: &str) -> Result<T, WorkspaceError> {
    outcome.map_err(|error| match error {
        GitError::Failed { stderr, .. } if !stderr.contains("No space left") => {
            let said: String = stderr.trim().chars().take(1000).collect();
            WorkspaceError::rejected(format!("{what}: {said}"))
        }
        other => other.into(),
    })
}
