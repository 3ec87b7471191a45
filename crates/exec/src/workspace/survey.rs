//! Questions to the user's repository.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::record::Base;
use crate::git::{Git, GitError, Repository};

/// Reads how old the base is, as far as it can be told without a network.
pub(super) fn base_age(git: &Git, repository: &Repository, branch: Option<&str>) -> Base {
    let mut age = Base {
        oid: String::new(),
        reference: None,
        committed_at: None,
        upstream: None,
        behind: None,
        ahead: None,
        fetched_at: None,
    };
    let fetched = repository.common_dir.join("FETCH_HEAD").metadata();
    age.fetched_at = fetched.ok().map(|metadata| metadata.mtime());
    let Some(branch) = branch else { return age };
    let line = git
        .on(&repository.git_dir, &repository.top)
        .args(["for-each-ref", branch])
        .args(["--format=%(committerdate:unix)%00%(upstream)%00%(upstream:track,nobracket)"])
        .line();
    let Ok(line) = line else { return age };
    let mut fields = line.split('\0');
    age.committed_at = fields.next().and_then(|text| text.parse().ok());
    age.upstream = fields
        .next()
        .filter(|text| !text.is_empty())
        .map(str::to_owned);
    let track = fields.next().unwrap_or_default();
    if age.upstream.is_some() && track != "gone" {
        let number = |word: &str| {
            let after = track.split(word).nth(1)?;
            after.trim().split(',').next()?.parse().ok()
        };
        age.behind = Some(number("behind").unwrap_or(0));
        age.ahead = Some(number("ahead").unwrap_or(0));
    }
    age
}

/// Finds the checkout that stands on a branch, among the repository's own and linked ones.
pub(super) fn checkout_of(
    git: &Git,
    repository: &Repository,
    reference: &str,
) -> Result<Option<PathBuf>, GitError> {
    let output = git
        .on(&repository.git_dir, &repository.top)
        .args(["worktree", "list", "--porcelain", "-z"])
        .output()?;
    let mut path = None;
    for line in output.split(|byte| *byte == 0) {
        if let Some(own) = line.strip_prefix(b"worktree ") {
            path = Some(PathBuf::from(std::ffi::OsStr::from_bytes(own)));
        } else if line.strip_prefix(b"branch ") == Some(reference.as_bytes()) {
            return Ok(path);
        }
    }
    Ok(None)
}
