//! Ignored files that a fresh tree needs to build, named by the owner in `.worktreeinclude`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cofferdam_core::bytes::BytePath;

use super::record::Seed;
use super::{WorkspaceError, WorktreeRecord, files};
use crate::git::{Git, Repository};
use crate::tool::Input;

/// The file at the top of the user's checkout that names them, in the form of `.gitignore`.
pub(crate) const FILE: &str = ".worktreeinclude";

/// Copies what the file names into the tree, as far as it is ignored there.
///
/// Links and other special files are not copied, nothing is copied over something or through a
/// link; what was named and not copied is noted.
pub(crate) fn plant(
    git: &Git,
    repository: &Repository,
    record: &mut WorktreeRecord,
) -> Result<(), WorkspaceError> {
    let named = git
        .on(&repository.git_dir, &repository.top)
        .args(["ls-files", "-z", "--others", "--ignored"])
        .args([format!("--exclude-from={FILE}")])
        .output()?;
    if named.is_empty() {
        return Ok(());
    }
    let tree = record.tree_path().to_path_buf();
    // In the target tree, whose ignore rules may be others: what is not ignored there would be
    // committed by the next `git add --all`.
    let answer = git
        .on(&tree.join(".git"), &tree)
        .args(["check-ignore", "-z", "--stdin"])
        .input(Input::Bytes(&named))
        .run()?;
    let ignored: HashSet<&[u8]> = pieces(&answer.stdout).collect();
    let open =
        |path: &Path| files::open_directory(path).map_err(WorkspaceError::file("opening", path));
    let (from, to) = (open(&repository.top)?, open(&tree)?);
    let mut passed_over = 0;
    for path in pieces(&named) {
        if !ignored.contains(&path) {
            passed_over += 1;
            continue;
        }
        let relative = Path::new(OsStr::from_bytes(path));
        match files::copy_beneath(from.as_fd(), to.as_fd(), relative) {
            Ok(copied) => record.seeds.push(Seed {
                path: BytePath::from_bytes(path),
                size: copied.size,
                modified: copied.modified,
            }),
            Err(error) => {
                let path = BytePath::from_bytes(path);
                record
                    .notes
                    .push(format!("{path} of {FILE} was not copied: {error}"));
            }
        }
    }
    if passed_over > 0 {
        record.notes.push(format!(
            "{passed_over} file(s) of {FILE} were not copied: they are not ignored in the tree"
        ));
    }
    Ok(())
}

fn pieces(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    output
        .split(|byte| *byte == 0)
        .filter(|piece| !piece.is_empty())
}

/// Lists the copied-in files that are no longer as they were copied.
pub(crate) fn changed(record: &WorktreeRecord) -> Vec<BytePath> {
    let Ok(top) = files::open_directory(record.tree_path()) else {
        return record.seeds.iter().map(|seed| seed.path.clone()).collect();
    };
    let same = |seed: &Seed| {
        files::open_beneath(top.as_fd(), seed.path.as_path())
            .and_then(|file| file.metadata())
            .is_ok_and(|found| {
                found.len() == seed.size && files::nanoseconds(&found) == seed.modified
            })
    };
    record
        .seeds
        .iter()
        .filter(|seed| !same(seed))
        .map(|seed| seed.path.clone())
        .collect()
}
