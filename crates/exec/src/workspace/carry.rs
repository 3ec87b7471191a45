//! Uncommitted work of the user's checkout: carried into a task's tree, or said to be left behind.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::task::Carry;

use super::record::{LeftBehind, LeftKind};
use super::{WorkspaceError, WorktreeRecord};
use crate::git::{Configuration, Git, Repository};
use crate::tool::Input;

/// Says who makes the commits that the plane makes.
pub(crate) fn person(configuration: &Configuration) -> (String, String) {
    let text = |key| {
        configuration
            .text(key)
            .filter(|text| !text.trim().is_empty())
    };
    (
        text("user.name").unwrap_or_else(|| "Cofferdam".to_owned()),
        text("user.email").unwrap_or_else(|| "cofferdam@localhost".to_owned()),
    )
}

/// Lists what of the user's checkout would not be in a fresh tree.
pub(crate) fn left_behind(
    git: &Git,
    repository: &Repository,
    carry: Carry,
) -> Result<Vec<LeftBehind>, WorkspaceError> {
    let untracked = if carry == Carry::All { "no" } else { "normal" };
    let output = git
        .on(&repository.git_dir, &repository.top)
        .args([
            "status",
            "--porcelain=v2",
            "-z",
            "--no-renames",
            "--ignore-submodules=none",
        ])
        .args([format!("--untracked-files={untracked}")])
        .output()?;
    let mut left = Vec::new();
    for entry in output
        .split(|byte| *byte == 0)
        .filter(|entry| !entry.is_empty())
    {
        let (kind, path) = match entry[0] {
            b'?' => (LeftKind::Untracked, &entry[2..]),
            b'1' | b'u' => {
                let spaces = if entry[0] == b'1' { 8 } else { 10 };
                let Some(path) = after_spaces(entry, spaces) else {
                    continue;
                };
                let submodule = entry.get(5) == Some(&b'S');
                let kind = if submodule {
                    LeftKind::Submodule
                } else {
                    LeftKind::Modified
                };
                (kind, path)
            }
            _ => continue,
        };
        let carried = match kind {
            LeftKind::Modified => carry != Carry::None,
            LeftKind::Untracked => carry == Carry::All,
            LeftKind::Submodule => false,
        };
        if !carried {
            left.push(LeftBehind {
                path: BytePath::from_bytes(path),
                kind,
            });
        }
    }
    Ok(left)
}

/// Gives what follows a number of spaces.
pub(crate) fn after_spaces(entry: &[u8], spaces: usize) -> Option<&[u8]> {
    let mut rest = entry;
    for _ in 0..spaces {
        let cut = rest.iter().position(|byte| *byte == b' ')?;
        rest = &rest[cut + 1..];
    }
    Some(rest)
}

/// Makes a commit on top of the base that holds the user's uncommitted work, in the task's store.
///
/// The user's index and objects are left alone: the index is a private copy, and new objects go to
/// the task's directory. `None` when there is nothing to carry.
pub(crate) fn carry_in(
    git: &Git,
    repository: &Repository,
    record: &WorktreeRecord,
    configuration: &Configuration,
    carry: Carry,
) -> Result<Option<String>, WorkspaceError> {
    let task_git = record.tree_path().join(".git");
    let index = task_git.join("cofferdam-carry");
    let own = repository.git_dir.join("index");
    if own.exists() {
        copy_index(&own, &index).map_err(WorkspaceError::file("copying the index", &own))?;
    }
    let objects = task_git.join("objects");
    let call = || {
        git.on(&repository.git_dir, &repository.top)
            .env("GIT_INDEX_FILE", index.as_os_str().as_bytes())
            .env("GIT_OBJECT_DIRECTORY", objects.as_os_str().as_bytes())
    };
    let what = if carry == Carry::All {
        "--all"
    } else {
        "--update"
    };
    let made = call()
        .args(["add", what, "--", ":/"])
        .output()
        .and_then(|_| {
            let tree = call().args(["write-tree"]).line()?;
            let base = &record.base.oid;
            let same = call()
                .args(["rev-parse", "--verify", &format!("{base}^{{tree}}")])
                .line()?;
            if tree == same {
                return Ok(None);
            }
            let (name, email) = person(configuration);
            call()
                .env("GIT_AUTHOR_NAME", &name)
                .env("GIT_AUTHOR_EMAIL", &email)
                .env("GIT_COMMITTER_NAME", &name)
                .env("GIT_COMMITTER_EMAIL", &email)
                .args(["commit-tree", "-p", base, &tree])
                .input(Input::Bytes(
                    b"carried in: uncommitted work of the checkout\n",
                ))
                .line()
                .map(Some)
        });
    remove_quietly(&index);
    Ok(made?)
}

/// Copies an index with its time: git reads files that are as old as their index again, and would
/// take a change in the same second for none if the copy were younger.
pub(super) fn copy_index(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::copy(from, to)?;
    let time = std::fs::metadata(from)?.modified()?;
    std::fs::File::options()
        .write(true)
        .open(to)?
        .set_modified(time)
}

fn remove_quietly(path: &Path) {
    // It lies in the task's git directory and is nothing to anybody.
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_follows_the_fields() {
        assert_eq!(
            after_spaces(b"1 .M N... a b c d e a file", 8),
            Some(b"a file".as_slice())
        );
        assert_eq!(after_spaces(b"1 .M", 8), None);
    }
}
