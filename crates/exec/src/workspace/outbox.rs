//! Where `git push` in a task's tree goes: to a place in its own git directory, from where it can be
//! proposed when the task has ended. Nothing leaves by it.
//!
//! For each remote that the owner's configuration names, the task's own configuration has a push
//! address below its git directory, a bare repository that borrows the task's objects. A hook in it,
//! which runs inside like everything of the task, says what became of the push. All of it may be
//! changed by the task, and holds nothing: what is read from it is one object id, and whether that is
//! a commit of the task's own branch is found out in the owner's repository.

use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::inside::{GIT_DIR, read_oid};
use super::record::{InsidePush, WorktreeRecord};
use super::{files, push};
use crate::git::Configuration;

/// The directory of these places, in a task's git directory.
const PLACE: &str = "cofferdam-outbox";
/// Remotes that get one.
const MOST: usize = 16;

const HOOK: &str = r#"#!/bin/sh
# Says what becomes of a push. Nothing leaves by it.
while read -r _ _ name; do
    if [ -n "$COFFERDAM_BRANCH" ] && [ "$name" != "refs/heads/$COFFERDAM_BRANCH" ]; then
        echo "refused: only this task's own branch can be pushed" >&2
        echo "do this instead: git push ${PWD##*/} HEAD:refs/heads/$COFFERDAM_BRANCH" >&2
        exit 1
    fi
done
echo "held: nothing has left this machine" >&2
echo "when this task has ended, its owner looks at the push and releases or refuses it" >&2
"#;

/// Gives the remotes that get a place: those whose name can be that of a directory.
pub(super) fn remotes(configuration: &Configuration) -> Vec<String> {
    let is_plain = |name: &String| {
        name.len() <= 64
            && !name.starts_with(['.', '-'])
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let mut names = push::remotes(configuration);
    names.retain(is_plain);
    names.truncate(MOST);
    names
}

/// Gives the push address of a remote, as it holds at the top of the tree.
pub(super) fn address(remote: &str) -> String {
    format!("{GIT_DIR}/{PLACE}/{remote}")
}

/// Makes the places of remotes in a git directory that nothing ran in yet.
pub(super) fn make(git_dir: &Path, remotes: &[String], object_format: &str) -> io::Result<()> {
    for remote in remotes {
        let place = git_dir.join(PLACE).join(remote);
        for directory in ["objects/info", "objects/pack", "refs/heads", "hooks"] {
            std::fs::create_dir_all(place.join(directory))?;
        }
        let (version, format) = match object_format {
            "sha1" => ("0", String::new()),
            other => ("1", format!("[extensions]\n\tobjectFormat = {other}\n")),
        };
        let configuration = format!(
            "[core]\n\trepositoryFormatVersion = {version}\n\tbare = true\n\thooksPath = hooks\n\
             {format}[receive]\n\tdenyDeletes = true\n\tautoGC = false\n[gc]\n\tauto = 0\n"
        );
        std::fs::write(place.join("config"), configuration)?;
        std::fs::write(place.join("HEAD"), "ref: refs/heads/none\n")?;
        std::fs::write(place.join("objects/info/alternates"), "../../../objects\n")?;
        let hook = place.join("hooks/pre-receive");
        std::fs::write(&hook, HOOK)?;
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Reads what the task pushed of its own branch, to each remote of the owner's configuration.
pub(super) fn pushes(record: &WorktreeRecord, configuration: &Configuration) -> Vec<InsidePush> {
    let Ok(top) = files::open_directory(record.tree_path()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for remote in remotes(configuration) {
        let path = PathBuf::from(address(&remote)).join(record.branch_reference());
        let Ok(mut file) = files::open_beneath(std::os::fd::AsFd::as_fd(&top), &path) else {
            continue;
        };
        let mut text = Vec::new();
        let read = file.by_ref().take(128).read_to_end(&mut text);
        if let (Ok(_), Ok(commit)) = (read, read_oid(&text)) {
            found.push(InsidePush { remote, commit });
        }
    }
    found
}
