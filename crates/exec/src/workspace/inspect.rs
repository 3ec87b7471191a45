//! Looking at what a task left, through git inside the walls.

use std::collections::HashSet;
use std::path::Path;

use cofferdam_core::bytes::BytePath;

use super::carry::after_spaces;
use super::inside::{Inside, read_oid};
use super::record::{Unsaved, WorktreeRecord};
use super::{WorkspaceError, files};

/// Ignored paths that are listed.
const MOST_IGNORED: usize = 1000;

const IN_PROGRESS: [(&str, &str); 6] = [
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("BISECT_LOG", "bisect"),
];

/// What git inside says about the tree.
#[derive(Debug, Default)]
pub(super) struct Status {
    /// Anything that differs from the last commit, copied-in files apart.
    pub(super) dirty: bool,
    pub(super) untracked: HashSet<Vec<u8>>,
    pub(super) ignored: Vec<BytePath>,
    pub(super) unsaved: Vec<Unsaved>,
}

/// The task's repository as it was found.
pub(super) struct Found {
    pub(super) head: Option<String>,
    /// Tree of the last commit.
    pub(super) head_tree: Option<String>,
    /// Branch at `HEAD`; `None` when detached or unborn.
    pub(super) head_branch: Option<String>,
    pub(super) references: Vec<(String, String)>,
    pub(super) stash: Vec<String>,
    /// Commits from which a detached `HEAD` went away to something else.
    pub(super) left: Vec<String>,
    pub(super) status: Status,
}

pub(super) fn look(inside: Inside<'_>, record: &WorktreeRecord) -> Result<Found, WorkspaceError> {
    std::thread::scope(|scope| {
        let status = scope.spawn(|| look_at_tree(inside, record));
        let mut found = look_at_history(inside)?;
        found.status = status
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(found)
    })
}

/// Lists branches, stash and what `HEAD` has left.
fn look_at_history(inside: Inside<'_>) -> Result<Found, WorkspaceError> {
    let listed = inside.output(
        "listing references",
        &[
            "for-each-ref",
            "--format=%(objectname) %(refname)%(if)%(HEAD)%(then) %(HEAD)%(end)",
        ],
        &[],
        None,
    )?;
    let mut references = Vec::new();
    let mut head_branch = None;
    for line in String::from_utf8_lossy(&listed).lines() {
        let mut words = line.split(' ');
        if let (Some(oid), Some(name)) = (words.next(), words.next()) {
            if words.next() == Some("*") {
                head_branch = Some(name.to_owned());
            }
            references.push((name.to_owned(), read_oid(oid.as_bytes())?));
        }
    }
    let both = inside.git(&["rev-parse", "HEAD^{commit}", "HEAD^{tree}"], &[], None)?;
    let (head, head_tree) = match both.stdout.split(|byte| *byte == b'\n').collect::<Vec<_>>()[..] {
        [commit, tree, ..] if both.code == Some(0) => {
            (Some(read_oid(commit)?), Some(read_oid(tree)?))
        }
        _ => (None, None),
    };
    let left = left_detached(inside, head.as_deref())?;
    let stash = if references.iter().any(|(name, _)| name == "refs/stash") {
        let output = inside.output(
            "listing the stash",
            &["rev-list", "-g", "refs/stash"],
            &[],
            None,
        )?;
        let text = String::from_utf8_lossy(&output).into_owned();
        text.lines()
            .map(|line| read_oid(line.as_bytes()))
            .collect::<Result<_, _>>()?
    } else {
        Vec::new()
    };
    Ok(Found {
        head,
        head_tree,
        head_branch,
        references,
        stash,
        left,
        status: Status::default(),
    })
}

/// Lists what is not committed.
fn look_at_tree(inside: Inside<'_>, record: &WorktreeRecord) -> Result<Status, WorkspaceError> {
    let output = inside.output(
        "looking at the tree",
        &[
            "status",
            "--porcelain=v2",
            "-z",
            "--untracked-files=all",
            "--ignored=matching",
            "--ignore-submodules=none",
            "--no-renames",
        ],
        &[],
        None,
    )?;
    Ok(read_status(&output, record))
}

/// Finds commits that only the log of `HEAD` still knows, because a detached `HEAD` left them.
///
/// Commits that were amended, rebased or reset away are not among them: those were let go on purpose.
fn left_detached(inside: Inside<'_>, head: Option<&str>) -> Result<Vec<String>, WorkspaceError> {
    let log = inside.git(&["log", "-g", "--format=%gs", "HEAD", "--"], &[], None)?;
    let mut found: Vec<String> = Vec::new();
    for line in String::from_utf8_lossy(&log.stdout).lines() {
        let from = line
            .strip_prefix("checkout: moving from ")
            .and_then(|rest| rest.split(' ').next());
        if let Some(oid) = from.and_then(|from| read_oid(from.as_bytes()).ok())
            && !found.contains(&oid)
        {
            found.push(oid);
        }
    }
    if found.is_empty() {
        return Ok(found);
    }
    let mut revisions = found.join("\n");
    revisions.push('\n');
    // Options among the revisions are only read by git 2.42 and newer.
    let mut arguments = vec!["rev-list", "--ignore-missing", "--stdin", "--not", "--all"];
    arguments.extend(head);
    let unknown = inside.output(
        "looking for left commits",
        &arguments,
        &[],
        Some(revisions.into_bytes()),
    )?;
    let unknown = String::from_utf8_lossy(&unknown).into_owned();
    found.retain(|oid| unknown.lines().any(|line| line == oid));
    Ok(found)
}

fn read_status(output: &[u8], record: &WorktreeRecord) -> Status {
    let seeds: HashSet<&[u8]> = record
        .seeds
        .iter()
        .map(|seed| seed.path.as_bytes())
        .collect();
    let mut status = Status::default();
    for entry in output
        .split(|byte| *byte == 0)
        .filter(|entry| entry.len() > 2)
    {
        match entry[0] {
            b'?' | b'!' if seeds.contains(&entry[2..]) => {}
            b'?' => {
                status.dirty = true;
                if entry.ends_with(b"/") {
                    let path = BytePath::from_bytes(&entry[2..entry.len() - 1]);
                    let why = "a repository of its own stands there".to_owned();
                    status.unsaved.push(Unsaved { path, why });
                } else {
                    status.untracked.insert(entry[2..].to_vec());
                }
            }
            b'!' if status.ignored.len() < MOST_IGNORED => {
                status.ignored.push(BytePath::from_bytes(&entry[2..]));
            }
            b'1' | b'u' => {
                status.dirty = true;
                let spaces = if entry[0] == b'1' { 8 } else { 10 };
                let path = after_spaces(entry, spaces).unwrap_or_default();
                if entry.get(5) == Some(&b'S') {
                    let why = "a submodule has changes of its own".to_owned();
                    status.unsaved.push(Unsaved {
                        path: BytePath::from_bytes(path),
                        why,
                    });
                }
            }
            _ => {}
        }
    }
    status
}

pub(super) fn in_progress(tree: &Path, git_dir: &str) -> Vec<String> {
    let Ok(top) = files::open_directory(tree) else {
        return Vec::new();
    };
    let mut found: Vec<String> = Vec::new();
    for (name, what) in IN_PROGRESS {
        let there = files::exists_beneath(
            std::os::fd::AsFd::as_fd(&top),
            &Path::new(git_dir).join(name),
        );
        if there && !found.iter().any(|own| own == what) {
            found.push(what.to_owned());
        }
    }
    found
}
