//! What stands at protected names, and which environment files git does not hold.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::facts::{GitFacts, ProtectedName, WorkspaceFacts};
use cofferdam_core::operation::{ProtectedBy, ProtectedLine};
use cofferdam_core::plan::{GIT_NAMES, TOP_LEVEL_NAMES};
use cofferdam_core::spec::ProtectedState;

use super::git_index;
use super::paths::tidy;
use super::withheld::{self, withheld};

/// The rule about `.env` files.
const ENV_RULE: &str = "environment files";
/// Directories below the top that are looked into for environment files.
const ENV_DIRECTORIES: usize = 96;
/// Directories that hold other people's code or build results.
const PASSED_OVER: &[&[u8]] = &[
    b".git",
    b"node_modules",
    b"target",
    b".venv",
    b"venv",
    b"vendor",
];
/// Ends of names that are examples, meant to be read.
const SAMPLES: &[&[u8]] = &[
    b".example",
    b".sample",
    b".template",
    b".dist",
    b".defaults",
    b".schema",
];

/// Names that git runs as hooks on its own.
const HOOKS: &[&str] = &[
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-rewrite",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "prepare-commit-msg",
    "reference-transaction",
    "sendemail-validate",
];

/// Tells what stands at a path, links not followed.
fn state(path: &Path) -> ProtectedState {
    match std::fs::symlink_metadata(path) {
        Err(_) => ProtectedState::Absent,
        Ok(found) if found.is_dir() => ProtectedState::Directory,
        Ok(found) if found.is_symlink() => ProtectedState::Symlink,
        Ok(_) => ProtectedState::File,
    }
}

struct Names<'a> {
    root: &'a Path,
    seen: BTreeSet<PathBuf>,
    list: Vec<ProtectedName>,
}

impl Names<'_> {
    /// Adds a name, and where it is a link, what it leads to (FC-23).
    fn add(&mut self, path: &Path, rule: &str) {
        let mut path = path.to_owned();
        for _ in 0..8 {
            if !self.seen.insert(path.clone()) {
                return;
            }
            let state = state(&path);
            self.list.push(ProtectedName {
                path: BytePath::from(path.as_path()),
                state,
                rule: rule.to_owned(),
                tracked: false,
            });
            if state != ProtectedState::Symlink {
                return;
            }
            let Ok(target) = std::fs::read_link(&path) else {
                return;
            };
            let target = tidy(&path.parent().unwrap_or(Path::new("/")).join(target));
            // What lies elsewhere is out of reach, or granted by somebody.
            if !target.starts_with(self.root) {
                return;
            }
            path = target;
        }
    }
}

/// Lists the protected names of a workspace with what stands there, absent ones included.
pub(super) fn protected_names(
    data_dir: &Path,
    root: &Path,
    git: Option<&GitFacts>,
) -> Vec<ProtectedName> {
    let mut names = Names {
        root,
        seen: BTreeSet::new(),
        list: Vec::new(),
    };
    for entry in TOP_LEVEL_NAMES {
        names.add(&root.join(entry.name), entry.rule);
    }
    if let Some(git) = git {
        add_git_names(&mut names, git);
        mark_tracked(data_dir, &mut names.list, git);
    } else {
        let pointer = root.join(".git");
        if matches!(
            state(&pointer),
            ProtectedState::File | ProtectedState::Symlink
        ) {
            names.add(&pointer, "git directory pointers");
        }
    }
    names.list
}

fn add_git_names(names: &mut Names<'_>, git: &GitFacts) {
    let git_dir = git.git_dir.as_path();
    let pointer = git.top_level.as_path().join(".git");
    if git_dir != pointer && pointer.starts_with(names.root) {
        names.add(&pointer, "git directory pointers");
    }
    for entry in GIT_NAMES {
        let is_absent_directory = entry.name == "worktrees" || entry.name == "info";
        let path = git_dir.join(entry.name);
        // Where the directory is missing it is the file in it that counts, and other trees cannot
        // come to be without git knowing.
        if is_absent_directory && state(&path) == ProtectedState::Absent {
            continue;
        }
        // Below a directory that is held as a whole nothing needs to be held by itself.
        if entry.name == "info/attributes"
            && state(&git_dir.join("info")) == ProtectedState::Directory
        {
            continue;
        }
        // A linked tree has these in its own directory, and they are what makes it one.
        if entry.name == "hooks" && git.linked {
            continue;
        }
        names.add(&path, entry.rule);
    }
    if git.linked {
        names.add(&git_dir.join("gitdir"), "git directory pointers");
    }
    let hooks = git.hooks_path.as_path();
    if names.root.starts_with(hooks) || git_dir.starts_with(hooks) {
        // Everything lies below it, so only the hooks themselves can be held.
        for name in HOOKS {
            let hook = hooks.join(name);
            if hook.starts_with(names.root) || hook.starts_with(git_dir) {
                names.add(&hook, "git hooks");
            }
        }
    } else if hooks.starts_with(names.root) || hooks.starts_with(git_dir) {
        names.add(hooks, "git hooks");
    }
    // Submodules are repositories of their own, which git enters on its own.
    let modules = git_dir.join("modules");
    for module in std::fs::read_dir(modules)
        .into_iter()
        .flatten()
        .flatten()
        .take(64)
    {
        for (name, rule) in [("hooks", "git hooks"), ("config", "git config")] {
            names.add(&module.path().join(name), rule);
        }
    }
}

/// Marks what is the repository's own: git holds it, and held it when it was first seen. What a
/// command gives to git by itself is protected as before.
fn mark_tracked(data_dir: &Path, list: &mut [ProtectedName], git: &GitFacts) {
    let top = git.top_level.as_path();
    let mut asked: Vec<usize> = Vec::new();
    let mut paths: Vec<PathBuf> = Vec::new();
    for (number, name) in list.iter().enumerate() {
        let path = name.path.as_path();
        if name.state == ProtectedState::Absent
            || path.starts_with(top.join(".git"))
            || !path.starts_with(top)
        {
            continue;
        }
        asked.push(number);
        paths.push(path.to_owned());
    }
    if asked.is_empty() {
        return;
    }
    let held = held_by_index(git, &paths);
    let withheld = withheld(data_dir, paths.into_iter().zip(held).collect());
    for number in asked {
        let path = list[number].path.as_path();
        list[number].tracked = !withheld.iter().any(|one| one == path);
    }
}

/// Asks git's index for each path whether it holds it, or something below it.
fn held_by_index(git: &GitFacts, paths: &[PathBuf]) -> Vec<bool> {
    let top = git.top_level.as_path();
    let names: Vec<&[u8]> = paths
        .iter()
        .map(|path| {
            path.strip_prefix(top)
                .unwrap_or(path)
                .as_os_str()
                .as_bytes()
        })
        .collect();
    git_index::holds(&git.git_dir.as_path().join("index"), &names)
}

/// Tells of each protected name, and of each `.env` file, who answers for it.
pub fn protected_lines(data_dir: &Path, workspace: &WorkspaceFacts) -> Vec<ProtectedLine> {
    let git = workspace.git.as_ref();
    let held = |path: &BytePath| {
        let path = path.as_path();
        git.is_some_and(|git| held_by_index(git, &[path.to_owned()]) == [true])
            && withheld::is_withheld(data_dir, path)
    };
    let mut lines: Vec<ProtectedLine> = workspace
        .protected
        .iter()
        .map(|name| ProtectedLine {
            path: name.path.clone(),
            rule: name.rule.clone(),
            state: name.state,
            by: if name.tracked {
                ProtectedBy::Git
            } else if name.state != ProtectedState::Absent && held(&name.path) {
                ProtectedBy::Withheld
            } else {
                ProtectedBy::Walls
            },
        })
        .collect();
    lines.extend(workspace.env_files.iter().map(|path| ProtectedLine {
        path: path.clone(),
        rule: ENV_RULE.to_owned(),
        state: ProtectedState::File,
        by: if held(path) {
            ProtectedBy::Withheld
        } else {
            ProtectedBy::Walls
        },
    }));
    lines
}

/// Lets git decide about a name from now on that it did not hold when it was first seen.
///
/// # Errors
///
/// `invalid_request` for what is not there, what git does not hold, and what is not withheld; `io`.
pub fn release_name(data_dir: &Path, git: Option<&GitFacts>, path: &Path) -> Result<(), Problem> {
    let refused = |why: &str| {
        Problem::new(
            ErrorCode::InvalidRequest,
            format!("{} {why}", path.display()),
        )
        .with_field("path")
    };
    if std::fs::symlink_metadata(path).is_err() {
        return Err(refused("is not there"));
    }
    let is_held = git.is_some_and(|git| held_by_index(git, &[path.to_owned()]) == [true]);
    if !is_held {
        return Err(refused("is not held by git")
            .with_hint("look at it, `git add` it, and release it then"));
    }
    match withheld::release(data_dir, path) {
        Ok(true) => Ok(()),
        Ok(false) => Err(refused("is not withheld: git decides about it already")),
        Err(error) => Err(Problem::new(
            ErrorCode::Io,
            format!("{} cannot be released: {error}", path.display()),
        )),
    }
}

/// Tells whether a name is that of a file with secrets, and not of a sample of one.
pub(crate) fn is_env_file(name: &[u8]) -> bool {
    let is_one = name == b".env" || name.starts_with(b".env.");
    is_one && !SAMPLES.iter().any(|end| name.ends_with(end))
}

/// Finds `.env` files at the top, one directory below it, and on the way to `directory`, that git's
/// index does not hold, or did not hold when they were first seen.
pub(super) fn env_files(
    data_dir: &Path,
    root: &Path,
    directory: Option<&Path>,
    git: Option<&GitFacts>,
) -> Vec<BytePath> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut below: Vec<PathBuf> = Vec::new();
    look_into(root, &mut found, Some(&mut below));
    for path in below.iter().take(ENV_DIRECTORIES) {
        look_into(path, &mut found, None);
    }
    if let Some(git) = git {
        // Where the workspace is a part of a repository, the rest of it is shown.
        let top = git.top_level.as_path();
        for path in root
            .ancestors()
            .skip(1)
            .take_while(|path| path.starts_with(top))
        {
            look_into(path, &mut found, None);
        }
    }
    let way = directory
        .into_iter()
        .flat_map(Path::ancestors)
        .take_while(|path| path.starts_with(root) && *path != root)
        .filter(|path| !below.iter().any(|one| one == path));
    for path in way {
        look_into(path, &mut found, None);
    }
    found.sort();
    found.dedup();
    let mut held = vec![false; found.len()];
    if let Some(git) = git
        && !found.is_empty()
    {
        held = held_by_index(git, &found);
    }
    let found = found.into_iter().zip(held).collect();
    withheld(data_dir, found)
        .into_iter()
        .map(BytePath::from)
        .collect()
}

fn look_into(directory: &Path, found: &mut Vec<PathBuf>, mut below: Option<&mut Vec<PathBuf>>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_file() && is_env_file(name.as_bytes()) {
            found.push(entry.path());
        } else if kind.is_dir()
            && let Some(below) = below.as_deref_mut()
            && !PASSED_OVER.contains(&name.as_bytes())
        {
            below.push(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fc_16_absent_names_are_listed_as_well() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(place.path().join(".claude")).expect("made");
        let found = protected_names(place.path(), place.path(), None);
        assert_eq!(found.len(), TOP_LEVEL_NAMES.len());
        assert_eq!(found[0].state, ProtectedState::Directory);
        assert!(
            found[1..]
                .iter()
                .all(|one| one.state == ProtectedState::Absent)
        );
    }

    #[test]
    fn fc_23_a_link_and_what_it_leads_to_are_both_held() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        std::os::unix::fs::symlink("shared/claude", base.join(".claude")).expect("made");
        let found = protected_names(&base, &base, None);
        assert_eq!(found[0].state, ProtectedState::Symlink);
        assert_eq!(found[1].path, BytePath::from(base.join("shared/claude")));
        assert_eq!(found[1].state, ProtectedState::Absent);
    }

    #[test]
    fn env_files_are_found_and_examples_are_not() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path();
        std::fs::create_dir_all(base.join("web/deep/er")).expect("made");
        for name in [
            ".env",
            ".env.example",
            ".envrc",
            "web/.env.local",
            "web/deep/er/.env",
        ] {
            std::fs::write(base.join(name), "").expect("written");
        }
        let data = tempfile::tempdir().expect("a directory");
        let found = env_files(data.path(), base, None, None);
        let expected = [base.join(".env"), base.join("web/.env.local")];
        assert_eq!(found, expected.map(BytePath::from));
        let from = env_files(data.path(), base, Some(&base.join("web/deep/er")), None);
        assert_eq!(from.len(), 3);
    }
}
