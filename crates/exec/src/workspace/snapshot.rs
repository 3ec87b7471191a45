//! Snapshots of the user's own checkout: every file that git does not ignore, new ones included, as
//! a commit under `refs/cofferdam/snapshots/`, made with a private index and put back on demand.
//!
//! Neither the user's index nor any branch is touched by taking one or by going back to one. Filter
//! drivers are off, so that files are kept byte for byte and no program of a repository runs.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::task::{ChangeKind, ModifiedFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::populate::{CHECKOUT, without_filters};
use super::{WorkspaceError, Workspaces, carry, make_private, repository_name};
use crate::git::{
    Configuration, GitCall, GitError, RefChange, Repository, RepositoryLock, diff_trees, discover,
};
use crate::tool::Input;

/// Where they lie.
const PREFIX: &str = "refs/cofferdam/snapshots";

/// Snapshots that a repository keeps; the oldest go.
pub const SNAPSHOTS_KEPT: usize = 50;

/// The files of a checkout at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckoutSnapshot {
    /// Its name: `s` and a number that counts up within the repository.
    pub name: String,
    /// The commit that holds it.
    pub oid: String,
    /// The tree of that commit.
    pub tree: String,
    /// When it was taken, in seconds since 1970.
    pub taken_at: i64,
    /// At which moment it was taken, in words.
    pub what: String,
}

/// What going back to a snapshot came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoredSnapshot {
    /// The snapshot that the files are as in now.
    pub snapshot: CheckoutSnapshot,
    /// The files as they were before, by which it can be taken back.
    pub before: CheckoutSnapshot,
    /// Every file that changed by it.
    pub files: Vec<ModifiedFile>,
    /// The top of the checkout.
    pub top: BytePath,
}

/// A checkout with the private index of its snapshots.
struct Checkout<'a> {
    workspaces: &'a Workspaces,
    repository: Repository,
    configuration: Configuration,
    head: String,
    index: PathBuf,
    _lock: RepositoryLock,
}

impl Workspaces {
    /// Takes a snapshot of the checkout around a directory. Where nothing changed since the newest
    /// one, that is given and none is made.
    ///
    /// The repository keeps the newest [`SNAPSHOTS_KEPT`].
    pub fn take_snapshot(
        &self,
        directory: &Path,
        what: &str,
    ) -> Result<CheckoutSnapshot, WorkspaceError> {
        self.acting(|| self.checkout(directory)?.take(what))
    }

    /// Refuses a directory around which no task's tree can be made.
    pub fn check_repository(&self, directory: &Path) -> Result<(), WorkspaceError> {
        self.acting(|| Ok(discover(&self.git, directory).map(drop)?))
    }

    /// Lists the snapshots of the repository around a directory, oldest first.
    pub fn snapshots(&self, directory: &Path) -> Result<Vec<CheckoutSnapshot>, WorkspaceError> {
        self.acting(|| {
            let found = discover(&self.git, directory)?;
            self.list_snapshots(&found.repository)
        })
    }

    /// Lists the files that differ between two snapshots of the repository around a directory.
    pub fn snapshot_changes(
        &self,
        directory: &Path,
        from: &CheckoutSnapshot,
        to: &CheckoutSnapshot,
    ) -> Result<Vec<ModifiedFile>, WorkspaceError> {
        self.acting(|| {
            let found = discover(&self.git, directory)?;
            Ok(diff_trees(&self.git, &found.repository, &from.tree, &to.tree)?.files)
        })
    }

    /// Makes the files of the checkout around a directory those of a snapshot. What they are now is
    /// kept as another one first. Files that git ignores stay as they are; where one of them is in
    /// the way, nothing is changed.
    pub fn restore_snapshot(
        &self,
        directory: &Path,
        name: &str,
    ) -> Result<RestoredSnapshot, WorkspaceError> {
        self.acting(|| {
            let checkout = self.checkout(directory)?;
            let wanted =
                |list: Vec<CheckoutSnapshot>| list.into_iter().find(|one| one.name == name);
            let Some(snapshot) = wanted(self.list_snapshots(&checkout.repository)?) else {
                return Err(WorkspaceError::State {
                    why: format!("there is no snapshot {name} in this repository"),
                });
            };
            let before = checkout.take(&format!("before undo {name}"))?;
            let repository = &checkout.repository;
            let files = diff_trees(&self.git, repository, &before.tree, &snapshot.tree)?.files;
            let top = repository.top.as_path();
            // Whatever is not in the snapshot before is ignored by git, and would be written over.
            if let Some(path) = files.iter().find_map(|file| in_the_way(top, file)) {
                return Err(WorkspaceError::State {
                    why: format!("{path} is in the way, which git ignores; nothing was changed"),
                });
            }
            checkout
                .call()
                .args(["read-tree", "-m", "-u", &before.tree, &snapshot.tree])
                .timeout(CHECKOUT)
                .output()?;
            Ok(RestoredSnapshot {
                snapshot,
                before,
                files,
                top: repository.top.clone().into(),
            })
        })
    }

    fn checkout(&self, directory: &Path) -> Result<Checkout<'_>, WorkspaceError> {
        let found = discover(&self.git, directory)?;
        let repository = found.repository;
        let configuration = self.git.configuration(&repository)?;
        let place = self.trees.join(".snapshots");
        make_private(&place)?;
        let lock = RepositoryLock::take(&self.locks(), &repository.common_dir)?;
        let index = place.join(repository_name(&repository.git_dir));
        Ok(Checkout {
            workspaces: self,
            configuration,
            head: found.head,
            index,
            repository,
            _lock: lock,
        })
    }

    fn list_snapshots(
        &self,
        repository: &Repository,
    ) -> Result<Vec<CheckoutSnapshot>, WorkspaceError> {
        let output = self
            .git
            .on(&repository.git_dir, &repository.top)
            .args([
                "for-each-ref",
                "--format=%(refname:lstrip=3) %(objectname) %(tree) %(creatordate:unix) %(contents:subject)",
                PREFIX,
            ])
            .output()?;
        let text = String::from_utf8_lossy(&output).into_owned();
        let mut found: Vec<CheckoutSnapshot> = text.lines().filter_map(read).collect();
        found.sort_by_key(|one| number(&one.name));
        Ok(found)
    }
}

/// Gives what stands where a file is to come, a directory on the way to it included.
fn in_the_way(top: &Path, file: &ModifiedFile) -> Option<BytePath> {
    if !matches!(file.change, ChangeKind::Added | ChangeKind::Renamed) {
        return None;
    }
    let path = file.path.as_path();
    let full = top.join(path);
    if full.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
        return Some(file.path.clone());
    }
    None
}

/// Reads one line of the list.
fn read(line: &str) -> Option<CheckoutSnapshot> {
    let mut words = line.splitn(5, ' ');
    let name = words.next()?.to_owned();
    number(&name)?;
    Some(CheckoutSnapshot {
        name,
        oid: words.next()?.to_owned(),
        tree: words.next()?.to_owned(),
        taken_at: words.next()?.parse().ok()?,
        what: words.next().unwrap_or_default().to_owned(),
    })
}

fn number(name: &str) -> Option<u64> {
    name.strip_prefix('s')?.parse().ok()
}

impl Checkout<'_> {
    fn call(&self) -> GitCall<'_> {
        let git = &self.workspaces.git;
        let call = git
            .on(&self.repository.git_dir, &self.repository.top)
            .env("GIT_INDEX_FILE", self.index.as_os_str().as_bytes());
        without_filters(call, &self.configuration)
    }

    /// Puts every file into the private index; gives the tree.
    fn tree(&self) -> Result<String, GitError> {
        self.call()
            .args(["add", "--all", "--", ":/"])
            .timeout(CHECKOUT)
            .output()?;
        self.call().args(["write-tree"]).line()
    }

    fn take(&self, what: &str) -> Result<CheckoutSnapshot, WorkspaceError> {
        let git = &self.workspaces.git;
        // The index of the last snapshot knows the files that the user's does not.
        let tree = if let Some(Ok(tree)) = self.index.exists().then(|| self.tree()) {
            tree
        } else {
            // There is none, or it was cut off while it was written.
            let own = self.repository.git_dir.join("index");
            let copied = if own.exists() {
                carry::copy_index(&own, &self.index)
            } else {
                std::fs::remove_file(&self.index).or(Ok(()))
            };
            copied.map_err(WorkspaceError::file("copying the index", &own))?;
            self.tree()?
        };
        let known = self.workspaces.list_snapshots(&self.repository)?;
        if let Some(newest) = known.last().filter(|newest| newest.tree == tree) {
            return Ok(newest.clone());
        }
        let (name, email) = carry::person(&self.configuration);
        let line: String = what
            .chars()
            .map(|one| if one.is_control() { ' ' } else { one })
            .take(200)
            .collect();
        let oid = self
            .call()
            .env("GIT_AUTHOR_NAME", &name)
            .env("GIT_AUTHOR_EMAIL", &email)
            .env("GIT_COMMITTER_NAME", &name)
            .env("GIT_COMMITTER_EMAIL", &email)
            .args(["commit-tree", "-p", &self.head, &tree])
            .input(Input::Bytes(format!("{line}\n").as_bytes()))
            .line()?;
        let next = known.last().and_then(|one| number(&one.name)).unwrap_or(0) + 1;
        let name = format!("s{next}");
        let mut changes = vec![RefChange::create(format!("{PREFIX}/{name}"), oid.as_str())];
        let too_many = (known.len() + 1).saturating_sub(SNAPSHOTS_KEPT);
        for old in &known[..too_many] {
            let reference = format!("{PREFIX}/{}", old.name);
            changes.push(RefChange::delete(reference, old.oid.as_str()));
        }
        git.change_references(&self.repository, "cofferdam: snapshot", &changes)?;
        let made = self.workspaces.list_snapshots(&self.repository)?;
        made.into_iter()
            .find(|one| one.name == name)
            .ok_or_else(|| WorkspaceError::State {
                why: format!("snapshot {name} is not where it was put"),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_are_read() {
        let line = "s12 aa bb 1700000000 after: make it";
        let read_one = read(line).unwrap();
        assert_eq!(
            (read_one.name.as_str(), read_one.what.as_str()),
            ("s12", "after: make it")
        );
        assert_eq!(read("x12 aa bb 1 a"), None);
        assert_eq!(read("s12 aa bb soon a"), None);
    }
}
