//! Snapshots of the user's own checkout: every file that git does not ignore, new ones included, as
//! a commit under `refs/cofferdam/snapshots/`, made with a private index and put back on demand.
//!
//! What tasks kept of their own trees, after each of their commands and at their end, can be gone to
//! in the same way.
//!
//! Neither the user's index nor any branch is touched by taking one or by going back to one. Filter
//! drivers are off, so that files are kept byte for byte and no program of a repository runs.

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::plan::TOP_LEVEL_NAMES;
use cofferdam_core::task::{ChangeKind, ModifiedFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::populate::{CHECKOUT, without_filters};
use super::watch::TreeWatch;
use super::{WorkspaceError, Workspaces, carry, make_private, repository_name};
use crate::git::{
    Configuration, GitCall, GitError, RefChange, Repository, RepositoryLock, diff_trees, discover,
};
use crate::tool::Input;

/// Where they lie.
const PREFIX: &str = "refs/cofferdam/snapshots";

/// Where the branches of tasks lie, which hold what there was at the end of each.
const BRANCHES: &str = "refs/heads/cofferdam";
/// Where lies what was saved of tasks, what was kept of their trees among it.
const SAVED: &str = "refs/cofferdam/saved";

/// Snapshots that a repository keeps; the oldest go. Those of tasks go with their tasks.
pub const SNAPSHOTS_KEPT: usize = 100;
/// Bytes of a file from which on it is not kept where git does not hold it as it is: it would fill the
/// repository, and going back leaves it alone.
const SNAPSHOT_FILE_BYTES: u64 = 64 << 20;
/// Files of that size that are told apart.
const LARGE_FILES: usize = 100;

/// The files of a checkout at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckoutSnapshot {
    /// Its name: `s` and a number that counts up within the repository; of a task `t`, its run, and
    /// the number of the command or `end`.
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
            self.all_snapshots(&found.repository)
        })
    }

    /// Lists those of the checkout and those of tasks.
    fn all_snapshots(
        &self,
        repository: &Repository,
    ) -> Result<Vec<CheckoutSnapshot>, WorkspaceError> {
        let mut all = self.list(repository, &[PREFIX, BRANCHES, SAVED])?;
        all.sort_by_key(|one| (one.taken_at, number(&one.name)));
        Ok(all)
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
            let all = self.all_snapshots(&checkout.repository)?;
            let snapshot = find(&all, name)?.clone();
            let before = checkout.take(&format!("before undo {name}"))?;
            let repository = &checkout.repository;
            let files = diff_trees(&self.git, repository, &before.tree, &snapshot.tree)?.files;
            let top = repository.top.as_path();
            // What a task made of names that start programs comes in by its own door only.
            let guarded: Vec<BytePath> = files
                .iter()
                .flat_map(|file| std::iter::once(&file.path).chain(&file.from))
                .filter(|path| snapshot.name.starts_with('t') && is_protected(path))
                .cloned()
                .collect();
            if !guarded.is_empty() {
                return Err(WorkspaceError::ProtectedChanged { files: guarded });
            }
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

    /// Watches the checkout around a directory.
    pub(super) fn watch(&self, directory: &Path) -> Result<TreeWatch, WorkspaceError> {
        self.acting(|| {
            let checkout = self.checkout(directory)?;
            checkout.begin_index()?;
            TreeWatch::start(&checkout.repository.top, &|| checkout.call())
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
        let mut found = self.list(repository, &[PREFIX])?;
        found.sort_by_key(|one| number(&one.name));
        Ok(found)
    }

    fn list(
        &self,
        repository: &Repository,
        places: &[&str],
    ) -> Result<Vec<CheckoutSnapshot>, WorkspaceError> {
        let output = self
            .git
            .on(&repository.git_dir, &repository.top)
            .args([
                "for-each-ref",
                "--format=%(refname) %(objectname) %(tree) %(creatordate:unix) %(contents:subject)",
            ])
            .args(places.iter().copied())
            .output()?;
        let text = String::from_utf8_lossy(&output).into_owned();
        Ok(text.lines().filter_map(read).collect())
    }
}

/// Finds a snapshot by its name, or by the beginning of the run in the name of one of a task.
fn find<'a>(
    all: &'a [CheckoutSnapshot],
    name: &str,
) -> Result<&'a CheckoutSnapshot, WorkspaceError> {
    let unknown = |why: String| WorkspaceError::State { why };
    if let Some(found) = all.iter().find(|one| one.name == name) {
        return Ok(found);
    }
    let short = |one: &&CheckoutSnapshot| {
        let parts = one.name.split_once('.').zip(name.split_once('.'));
        parts.is_some_and(|((run, which), (wanted, last))| {
            let number = run.split_once('-').map_or(run, |(number, _)| number);
            which == last && number == wanted
        })
    };
    let mut found = all.iter().filter(short);
    match (found.next(), found.next()) {
        (Some(found), None) => Ok(found),
        (Some(one), Some(other)) => Err(unknown(format!(
            "{name} may be {} or {}",
            one.name, other.name
        ))),
        (None, _) => Err(unknown(format!(
            "there is no snapshot {name} in this repository"
        ))),
    }
}

fn is_protected(path: &BytePath) -> bool {
    TOP_LEVEL_NAMES
        .iter()
        .any(|entry| path.is_within(&BytePath::from(entry.name)))
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
    let reference = words.next()?;
    let name = name_of(reference)?;
    let (oid, tree) = (words.next()?.to_owned(), words.next()?.to_owned());
    let taken_at = words.next()?.parse().ok()?;
    let said = words.next().unwrap_or_default().to_owned();
    let what = match reference.strip_prefix(BRANCHES) {
        Some(rest) => format!("the end of {}", rest.trim_start_matches('/')),
        None => said,
    };
    Some(CheckoutSnapshot {
        name,
        oid,
        tree,
        taken_at,
        what,
    })
}

/// Gives the name of the snapshot that a reference is, if it is one.
fn name_of(reference: &str) -> Option<String> {
    if let Some(name) = reference.strip_prefix(PREFIX) {
        let name = name.trim_start_matches('/');
        return number(name).map(|_| name.to_owned());
    }
    let below = |place: &str| reference.strip_prefix(place)?.strip_prefix('/');
    if let Some(rest) = below(BRANCHES) {
        let (run, worker) = rest.split_once('/')?;
        return (!worker.contains('/')).then(|| format!("t{run}.end"));
    }
    let (run, rest) = below(SAVED)?.split_once('/')?;
    let (_, which) = rest.split_once("/cofferdam/snapshots/")?;
    let is_number = !which.is_empty() && which.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| format!("t{run}.{which}"))
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

    /// Has the private index begin as the user's, where there is none.
    fn begin_index(&self) -> Result<(), WorkspaceError> {
        if self.index.exists() {
            return Ok(());
        }
        let own = self.repository.git_dir.join("index");
        let copied = if own.exists() {
            carry::copy_index(&own, &self.index)
        } else {
            Ok(())
        };
        copied.map_err(WorkspaceError::file("copying the index", &own))
    }

    /// Puts every file into the private index; gives the tree, and the files that are too large.
    fn tree(&self) -> Result<(String, Vec<BytePath>), GitError> {
        let large = self.large()?;
        let but = large.iter().map(|path| {
            let mut pathspec = b":(top,exclude,literal)".to_vec();
            pathspec.extend_from_slice(path.as_bytes());
            std::ffi::OsString::from_vec(pathspec)
        });
        self.call()
            .args(["add", "--all", "--", ":/"])
            .args(but)
            .timeout(CHECKOUT)
            .output()?;
        let tree = self.call().args(["write-tree"]).line()?;
        Ok((tree, large))
    }

    /// Lists the files that would be taken in and are too large for it.
    fn large(&self) -> Result<Vec<BytePath>, GitError> {
        let listed = self
            .call()
            .args([
                "ls-files",
                "-z",
                "--others",
                "--modified",
                "--exclude-standard",
            ])
            .timeout(CHECKOUT)
            .output()?;
        let top = self.repository.top.as_path();
        let is_large = |path: &BytePath| {
            let found = top.join(path.as_path()).symlink_metadata();
            found.is_ok_and(|found| found.is_file() && found.len() > SNAPSHOT_FILE_BYTES)
        };
        let mut large: Vec<BytePath> = listed
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
            .map(BytePath::from_bytes)
            .filter(is_large)
            .take(LARGE_FILES)
            .collect();
        large.dedup();
        Ok(large)
    }

    fn take(&self, what: &str) -> Result<CheckoutSnapshot, WorkspaceError> {
        let git = &self.workspaces.git;
        // The index of the last snapshot knows the files that the user's does not.
        let (tree, large) = if let Some(Ok(tree)) = self.index.exists().then(|| self.tree()) {
            tree
        } else {
            // There is none, or it was cut off while it was written.
            std::fs::remove_file(&self.index).or_else(|error| {
                if error.kind() == std::io::ErrorKind::NotFound {
                    return Ok(());
                }
                Err(WorkspaceError::file("removing an index", &self.index)(
                    error,
                ))
            })?;
            self.begin_index()?;
            self.tree()?
        };
        let known = self.workspaces.list_snapshots(&self.repository)?;
        if let Some(newest) = known.last().filter(|newest| newest.tree == tree) {
            return Ok(newest.clone());
        }
        let (name, email) = carry::person(&self.configuration);
        let what = match large.as_slice() {
            [] => what.to_owned(),
            [one] => format!("{what} (without {one}, which is too large)"),
            more => format!("{what} (without {} files that are too large)", more.len()),
        };
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
        let line = "refs/cofferdam/snapshots/s12 aa bb 1700000000 after: make it";
        let read_one = read(line).unwrap();
        assert_eq!(
            (read_one.name.as_str(), read_one.what.as_str()),
            ("s12", "after: make it")
        );
        assert_eq!(read("refs/cofferdam/snapshots/x12 aa bb 1 a"), None);
        assert_eq!(read("refs/cofferdam/snapshots/s12 aa bb soon a"), None);
    }

    #[test]
    fn what_tasks_kept_has_names_too() {
        let lines = [
            "refs/heads/cofferdam/3-abc/fix a t 5 done",
            "refs/cofferdam/saved/3-abc/fix/cofferdam/snapshots/1 b t 4 task 3 after setup: npm ci",
            "refs/cofferdam/saved/3-abc/fix/tags/v1 c t 4 no",
            "refs/heads/cofferdam/4-abc/other d t 6 done",
        ];
        let all: Vec<_> = lines.iter().filter_map(|line| read(line)).collect();
        let told: Vec<_> = all
            .iter()
            .map(|one| (one.name.as_str(), one.what.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("t3-abc.end", "the end of 3-abc/fix"),
                ("t3-abc.1", "task 3 after setup: npm ci"),
                ("t4-abc.end", "the end of 4-abc/other"),
            ]
        );
        assert_eq!(find(&all, "t3.1").unwrap().oid, "b");
        assert_eq!(find(&all, "t3-abc.end").unwrap().oid, "a");
        find(&all, "t5.end").unwrap_err();
        find(&all, "t3").unwrap_err();
    }
}
