//! Where `git push` in a task's tree goes: to a place in its own git directory, from where it can be
//! proposed when the task has ended. Nothing leaves by it.
//!
//! For each remote that the owner's configuration names, the task's own configuration has a push
//! address below its git directory, a bare repository that borrows the task's objects. A hook in it,
//! which runs inside like everything of the task, says what became of the push. All of it may be
//! changed by the task, and holds nothing: what is read from it is one object id, and whether that is
//! a commit of the task's own branch is found out in the owner's repository.
//!
//! Beside them is a folder for requests, small files of JSON that say what else shall leave: they are
//! read as words of a stranger, and looked at like a call of the operation.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::inside::{GIT_DIR, read_oid};
use cofferdam_core::limits::{INSIDE_REQUESTS, PROPOSED_FILE_BYTES};

use super::record::{InsidePush, LeftRequest, WorktreeRecord};
use super::{WorkspaceError, Workspaces, files, push};
use crate::git::Configuration;

/// The directory of these places, in a task's git directory.
const PLACE: &str = "cofferdam-outbox";
/// The folder of requests, in that.
const REQUESTS: &str = "requests";
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
    names.retain(|name| is_plain(name) && name != REQUESTS);
    names.truncate(MOST);
    names
}

/// Gives the push address of a remote, as it holds at the top of the tree.
pub(super) fn address(remote: &str) -> String {
    format!("{GIT_DIR}/{PLACE}/{remote}")
}

/// Gives the folder in which a task leaves requests, from the top of its tree.
pub fn requests_folder() -> String {
    format!("{GIT_DIR}/{PLACE}/{REQUESTS}")
}

/// Makes the places of remotes and of requests in a git directory that nothing ran in yet.
pub(super) fn make(git_dir: &Path, remotes: &[String], object_format: &str) -> io::Result<()> {
    std::fs::create_dir_all(git_dir.join(PLACE).join(REQUESTS))?;
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
        let Ok(mut file) = files::open_beneath(top.as_fd(), &path) else {
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

/// Lists the files of requests in a task's tree.
fn request_names(top: BorrowedFd<'_>) -> Vec<OsString> {
    let folder = PathBuf::from(requests_folder());
    let mut names = files::names_beneath(top, &folder).unwrap_or_default();
    names.retain(|name| Path::new(name).extension().is_some_and(|end| end == "json"));
    names.sort();
    names.truncate(INSIDE_REQUESTS);
    names
}

/// Reads the requests that a task left, in the order of their names. Links and what is no file are
/// passed over.
pub(super) fn left_requests(record: &WorktreeRecord) -> Vec<LeftRequest> {
    let Ok(top) = files::open_directory(record.tree_path()) else {
        return Vec::new();
    };
    let folder = PathBuf::from(requests_folder());
    // One file of the largest size, in base64 with its quotes, or many small ones.
    let mut room = PROPOSED_FILE_BYTES as u64 * 2;
    let mut read = |name: OsString| -> Option<LeftRequest> {
        let mut file = files::open_beneath(top.as_fd(), &folder.join(&name)).ok()?;
        let mut text = Vec::new();
        let request = match file.by_ref().take(room + 1).read_to_end(&mut text) {
            Err(error) => Err(error.to_string()),
            Ok(count) if count as u64 > room => {
                Err("it is larger than all requests of a task may be".to_owned())
            }
            Ok(count) => {
                room -= count as u64;
                serde_json::from_slice(&text).map_err(|error| error.to_string())
            }
        };
        let file = name.to_string_lossy().into_owned();
        let (request, wrong) = match request {
            Ok(request) => (Some(request), None),
            Err(wrong) => (None, Some(wrong)),
        };
        Some(LeftRequest {
            file,
            request,
            wrong,
        })
    };
    let names = request_names(top.as_fd());
    names.into_iter().filter_map(&mut read).collect()
}

/// Removes the requests of a tree that has another task after this one.
pub(super) fn clear_requests(record: &WorktreeRecord) {
    let Ok(top) = files::open_directory(record.tree_path()) else {
        return;
    };
    for name in request_names(top.as_fd()) {
        // One that cannot be removed is proposed once more, and looked at once more.
        let _ = files::remove_beneath(top.as_fd(), &PathBuf::from(requests_folder()), &name);
    }
}

impl Workspaces {
    /// Reads what a task that still runs has pushed and asked for in its own tree, as it says itself.
    pub fn pending(
        &self,
        record: &WorktreeRecord,
    ) -> Result<(Vec<InsidePush>, Vec<LeftRequest>), WorkspaceError> {
        self.acting(|| {
            let configuration = self.git.owner_configuration(&record.user_repository())?;
            Ok((pushes(record, &configuration), left_requests(record)))
        })
    }
}
