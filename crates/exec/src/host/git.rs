//! The repository around a workspace, by its files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::GitFacts;

use super::files::{first_line, read_small};
use super::git_config::{self, Conditions, Setting};
use super::git_portable;
use super::paths::tidy;
use super::surroundings::Surroundings;

/// A repository's directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    pub(super) top_level: PathBuf,
    pub(super) git_dir: PathBuf,
    pub(super) common_dir: PathBuf,
    pub(super) linked: bool,
}

/// Finds the top of the working tree around a directory.
pub(super) fn top_level(directory: &Path) -> Option<PathBuf> {
    find(directory).map(|found| found.top_level)
}

/// Finds the repository around a directory, as git does: the nearest `.git` that is one.
pub(super) fn find(directory: &Path) -> Option<Repository> {
    directory
        .ancestors()
        .find_map(|top| open(top, &top.join(".git")))
}

fn open(top: &Path, entry: &Path) -> Option<Repository> {
    let found = std::fs::metadata(entry).ok()?;
    let git_dir = if found.is_dir() {
        entry.canonicalize().ok()?
    } else {
        let content = read_small(entry, 64 * 1024)?;
        let target = first_line(&content).strip_prefix(b"gitdir:")?;
        let target = Path::new(OsStr::from_bytes(target.trim_ascii()));
        top.join(target).canonicalize().ok()?
    };
    // A directory without HEAD is no repository, and git looks further up.
    std::fs::symlink_metadata(git_dir.join("HEAD")).ok()?;
    let common = read_small(&git_dir.join("commondir"), 64 * 1024);
    let common_dir = match &common {
        Some(content) => {
            let target = Path::new(OsStr::from_bytes(first_line(content).trim_ascii()));
            git_dir.join(target).canonicalize().ok()?
        }
        None => git_dir.clone(),
    };
    Some(Repository {
        top_level: top.to_owned(),
        linked: common_dir != git_dir,
        git_dir,
        common_dir,
    })
}

/// Tells whether a repository's git directory knows this working tree as its own.
///
/// A `.git` file or link is content of the workspace: without this a project could name any
/// repository of the user, and have it shown.
pub(super) fn belongs(repository: &Repository) -> bool {
    let entry = repository.top_level.join(".git");
    if repository.linked {
        let is_registered =
            repository.git_dir.parent() == Some(repository.common_dir.join("worktrees").as_path());
        let back = read_small(&repository.git_dir.join("gitdir"), 64 * 1024);
        let points_back = back.is_some_and(|content| {
            let target = Path::new(OsStr::from_bytes(first_line(&content).trim_ascii()));
            let target = tidy(&repository.git_dir.join(target));
            let top = target.parent().and_then(|top| top.canonicalize().ok());
            target.file_name().is_some_and(|name| name == ".git")
                && top.as_deref() == Some(repository.top_level.as_path())
        });
        return is_registered && points_back;
    }
    if repository.git_dir == entry {
        return true;
    }
    let config = git_config::read(&repository.git_dir.join("config"), &Conditions::default());
    if let Some(tree) = git_config::last(&config, "core", "worktree") {
        let tree = tidy(&repository.git_dir.join(tree)).canonicalize();
        return tree.is_ok_and(|tree| tree == repository.top_level);
    }
    // Nobody else's: neither a bare repository nor the one of the tree that it stands in.
    let is_bare = git_config::last(&config, "core", "bare")
        .is_some_and(|value| !value.eq_ignore_ascii_case("false"));
    let is_anothers = repository
        .git_dir
        .file_name()
        .is_some_and(|name| name == ".git");
    !is_bare && !is_anothers
}

/// Gives the branch that is checked out, `None` when HEAD is detached.
fn branch(repository: &Repository) -> Option<String> {
    let head = read_small(&repository.git_dir.join("HEAD"), 64 * 1024)?;
    let name = first_line(&head).strip_prefix(b"ref: refs/heads/")?;
    String::from_utf8(name.to_vec()).ok()
}

/// Reads the settings of the user and of the machine.
fn global_settings(
    surroundings: &Surroundings,
    home: &Path,
    conditions: &Conditions,
    is_own: bool,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    if surroundings.get("GIT_CONFIG_NOSYSTEM").is_none() {
        settings.extend(git_config::read(Path::new("/etc/gitconfig"), conditions));
    }
    // Variables of the caller name the caller's files, not those of somebody else.
    if let Some(named) = surroundings.path("GIT_CONFIG_GLOBAL").filter(|_| is_own) {
        settings.extend(git_config::read(named, conditions));
    } else {
        let directory = surroundings
            .path("XDG_CONFIG_HOME")
            .filter(|_| is_own)
            .map_or_else(|| home.join(".config"), Path::to_owned);
        settings.extend(git_config::read(&directory.join("git/config"), conditions));
        settings.extend(git_config::read(&home.join(".gitconfig"), conditions));
    }
    settings
}

/// Gives what a plan needs to know about a repository, or about git where there is none.
pub(super) fn git_facts(
    repository: &Repository,
    surroundings: &Surroundings,
    home: &Path,
    is_own: bool,
) -> GitFacts {
    let conditions = Conditions {
        home: home.to_owned(),
        git_dir: Some(repository.git_dir.clone()),
        branch: branch(repository),
    };
    let global = global_settings(surroundings, home, &conditions, is_own);
    let mut local = git_config::read(&repository.common_dir.join("config"), &conditions);
    if git_config::last(&local, "extensions", "worktreeconfig")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    {
        let own = repository.git_dir.join("config.worktree");
        local.extend(git_config::read(&own, &conditions));
    }
    let hooks = git_config::last(&local, "core", "hookspath")
        .or_else(|| git_config::last(&global, "core", "hookspath"))
        .filter(|value| !value.is_empty());
    let hooks_path = match hooks {
        Some(value) => tidy(&git_config::path_value(value, home, &repository.top_level)),
        None => repository.common_dir.join("hooks"),
    };
    let made = git_portable::portable(&global);
    GitFacts {
        top_level: BytePath::from(repository.top_level.as_path()),
        git_dir: BytePath::from(repository.git_dir.as_path()),
        common_dir: BytePath::from(repository.common_dir.as_path()),
        linked: repository.linked,
        hooks_path: BytePath::from(hooks_path),
        portable_config: made.text,
        left_out: made.left_out,
    }
}

/// Gives a configuration for use inside where there is no repository yet.
pub(super) fn portable_config(surroundings: &Surroundings, home: &Path, is_own: bool) -> String {
    let conditions = Conditions {
        home: home.to_owned(),
        ..Conditions::default()
    };
    let global = global_settings(surroundings, home, &conditions, is_own);
    git_portable::portable(&global).text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_linked_and_pointed_repositories_are_told_apart() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        let admin = base.join("repo/.git/worktrees/side");
        std::fs::create_dir_all(&admin).expect("made");
        std::fs::write(base.join("repo/.git/HEAD"), "ref: refs/heads/main\n").expect("written");
        std::fs::write(admin.join("HEAD"), "ref: refs/heads/side\n").expect("written");
        std::fs::write(admin.join("commondir"), "../..\n").expect("written");
        let tree = base.join("side/deep");
        std::fs::create_dir_all(&tree).expect("made");
        let pointer = format!("gitdir: {}\n", admin.display());
        std::fs::write(base.join("side/.git"), pointer).expect("written");
        let plain = find(&base.join("repo")).expect("found");
        assert!(!plain.linked);
        let linked = find(&tree).expect("found");
        assert!(linked.linked);
        assert!(belongs(&plain));
        assert!(!belongs(&linked), "nothing points back yet");
        let back = format!("{}\n", base.join("side/.git").display());
        std::fs::write(admin.join("gitdir"), back).expect("written");
        assert!(belongs(&linked));
        assert_eq!(linked.top_level, base.join("side"));
        assert_eq!(linked.common_dir, base.join("repo/.git"));
        assert_eq!(branch(&linked).as_deref(), Some("side"));
    }

    #[test]
    fn a_workspace_cannot_claim_somebody_elses_repository() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        std::fs::create_dir(base.join("ws")).expect("made");
        for path in ["private/.git", "meta", "bare.git", "modules/sub"] {
            std::fs::create_dir_all(base.join(path)).expect("made");
            std::fs::write(base.join(path).join("HEAD"), "ref: refs/heads/main\n")
                .expect("written");
        }
        std::fs::write(base.join("bare.git/config"), "[core]\n\tbare = true\n").expect("written");
        std::fs::write(
            base.join("modules/sub/config"),
            "[core]\n\tworktree = ../../ws\n",
        )
        .expect("written");
        let claims = |target: &str| {
            let pointer = base.join("ws/.git");
            let _ = std::fs::remove_file(&pointer);
            std::os::unix::fs::symlink(base.join(target), &pointer).expect("made");
            let by_link = belongs(&find(&base.join("ws")).expect("found"));
            std::fs::remove_file(&pointer).expect("removed");
            std::fs::write(&pointer, format!("gitdir: ../{target}\n")).expect("written");
            let by_file = belongs(&find(&base.join("ws")).expect("found"));
            assert_eq!(by_file, by_link);
            by_file
        };
        assert!(!claims("private/.git"));
        assert!(!claims("bare.git"));
        assert!(claims("meta"), "FC-23");
        assert!(claims("modules/sub"));
    }

    #[test]
    fn fc_36_the_effective_hooks_directory_is_known_even_while_absent() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        std::fs::create_dir_all(base.join("repo/.git")).expect("made");
        std::fs::write(base.join("repo/.git/HEAD"), "x").expect("written");
        let repository = find(&base.join("repo")).expect("found");
        let nowhere = Surroundings::new([("GIT_CONFIG_NOSYSTEM", "1")], "/");
        let facts = |text: &str| {
            std::fs::write(base.join("repo/.git/config"), text).expect("written");
            git_facts(&repository, &nowhere, &base, true).hooks_path
        };
        assert_eq!(facts(""), BytePath::from(base.join("repo/.git/hooks")));
        assert_eq!(
            facts("[core]\n\thooksPath = .githooks\n"),
            BytePath::from(base.join("repo/.githooks"))
        );
        assert_eq!(
            facts("[core]\n\thooksPath = ~/h\n"),
            BytePath::from(base.join("h"))
        );
    }
}
