//! Which directory is the workspace, and which may not be one.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};

use super::person::{Account, accounts};
use super::surroundings::Surroundings;

/// Accounts from this number on belong to people.
const FIRST_PERSON: u32 = 1000;
/// The account that stands for nobody.
const NOBODY: u32 = 65534;

/// The directory in which commands work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Its real path.
    pub root: PathBuf,
    /// Other spellings that the caller uses for it.
    pub spellings: Vec<PathBuf>,
    /// The numeric user that owns it.
    pub uid: u32,
    /// The current directory, when it lies within.
    pub directory: Option<PathBuf>,
}

/// What belongs to the system with all that lies below it.
const SYSTEM: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/lib",
    "/usr/sbin",
];

/// What belongs to the system, though people keep projects below it.
const SYSTEM_TOPS: &[&str] = &["/run", "/usr", "/usr/local", "/var"];

/// Finds the workspace: the named directory, else the git top level, else the current directory.
///
/// # Errors
///
/// `workspace_missing` when it does not exist, `workspace_refused` for `/`, for home directories and
/// for what holds one, and for a directory that holds `data_dir`.
pub fn resolve_workspace(
    surroundings: &Surroundings,
    named: Option<&Path>,
    data_dir: Option<&Path>,
) -> Result<Workspace, Problem> {
    let homes = homes(surroundings, &accounts());
    let current = surroundings.directory();
    let mut spellings = Vec::new();
    let root = if let Some(named) = named {
        let asked = current.join(named);
        let root = real_directory(&asked)?;
        let asked = super::paths::tidy(&asked);
        if asked != root {
            spellings.push(asked);
        }
        root
    } else {
        let here = real_directory(current)?;
        let top = super::git::top_level(&here).filter(|top| !holds_home(top, &homes));
        top.unwrap_or(here)
    };
    if let Some(system) = SYSTEM
        .iter()
        .map(Path::new)
        .find(|system| root.starts_with(system))
    {
        return Err(refused(
            &root,
            &format!("it lies in the system directory {}", system.display()),
        ));
    }
    if SYSTEM_TOPS.iter().any(|top| root == Path::new(top)) {
        return Err(refused(&root, "it is a system directory"));
    }
    if root == Path::new("/") {
        return Err(refused(&root, "it is the root of the file system"));
    }
    if homes.contains(&root) {
        return Err(refused(&root, "it is a home directory"));
    }
    if holds_home(&root, &homes) {
        return Err(refused(&root, "it holds home directories"));
    }
    if data_dir.is_some_and(|data| data.starts_with(&root)) {
        return Err(refused(&root, "it holds the data directory of Cofferdam"));
    }
    let found = std::fs::metadata(&root).map_err(|error| missing(&root, &error))?;
    // A shell names the directory by the way it took, which may lead through links.
    if let Some(shell) = surroundings.path("PWD")
        && let Ok(real) = shell.canonicalize()
        && let Ok(rest) = real.strip_prefix(&root)
        && real != shell
        && shell.ends_with(rest)
    {
        let depth = rest.components().count();
        if let Some(spelled) = shell.ancestors().nth(depth) {
            let spelled = spelled.to_owned();
            if spelled != root && !spellings.contains(&spelled) {
                spellings.push(spelled);
            }
        }
    }
    let directory = current
        .canonicalize()
        .ok()
        .filter(|current| current.starts_with(&root));
    Ok(Workspace {
        root,
        spellings,
        uid: found.uid(),
        directory,
    })
}

fn real_directory(path: &Path) -> Result<PathBuf, Problem> {
    let real = path.canonicalize().map_err(|error| missing(path, &error))?;
    if real.is_dir() {
        Ok(real)
    } else {
        Err(refused(&real, "it is no directory"))
    }
}

fn missing(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(
        ErrorCode::WorkspaceMissing,
        format!("the workspace {} is not there: {error}", path.display()),
    )
    .with_field("workspace")
}

fn refused(path: &Path, why: &str) -> Problem {
    Problem::new(
        ErrorCode::WorkspaceRefused,
        format!("{} may not be a workspace: {why}", path.display()),
    )
    .with_field("workspace")
    .with_hint("change into a project's directory, or name one with --workspace")
}

/// Gives the home directories of people, as they are written and as they really are.
pub(super) fn homes(surroundings: &Surroundings, accounts: &[Account]) -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let is_person = |uid: u32| uid == 0 || uid == own || (uid >= FIRST_PERSON && uid != NOBODY);
    let mut homes: Vec<PathBuf> = accounts
        .iter()
        .filter(|one| is_person(one.uid))
        .map(|one| one.home.clone())
        .chain(surroundings.path("HOME").map(Path::to_owned))
        .filter(|home| home.is_absolute() && home != Path::new("/"))
        .collect();
    let real: Vec<PathBuf> = homes
        .iter()
        .filter_map(|home| home.canonicalize().ok())
        .collect();
    homes.extend(real);
    homes.sort();
    homes.dedup();
    homes
}

/// Tells whether a directory is a home directory or lies above one.
pub(super) fn holds_home(path: &Path, homes: &[PathBuf]) -> bool {
    homes.iter().any(|home| home.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(directory: &Path, home: &Path) -> Surroundings {
        Surroundings::new([("HOME", home.as_os_str())], directory)
    }

    #[test]
    fn the_git_top_level_comes_before_the_current_directory() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        let (home, deep) = (base.join("home"), base.join("repo/a/b"));
        std::fs::create_dir_all(&home).expect("made");
        std::fs::create_dir_all(&deep).expect("made");
        let plain = resolve_workspace(&at(&deep, &home), None, None).expect("found");
        assert_eq!(plain.root, deep);
        std::fs::create_dir(base.join("repo/.git")).expect("made");
        std::fs::write(base.join("repo/.git/HEAD"), "ref: refs/heads/main\n").expect("written");
        let found = resolve_workspace(&at(&deep, &home), None, None).expect("found");
        assert_eq!(found.root, base.join("repo"));
        assert_eq!(found.directory, Some(deep));
    }

    #[test]
    fn the_root_homes_and_what_holds_them_are_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        let home = base.join("people/me");
        std::fs::create_dir_all(&home).expect("made");
        let refuse = |path: &Path| {
            resolve_workspace(&at(&home, &home), Some(path), None)
                .expect_err("refused")
                .code
        };
        assert_eq!(refuse(Path::new("/")), ErrorCode::WorkspaceRefused);
        assert_eq!(refuse(&home), ErrorCode::WorkspaceRefused);
        assert_eq!(refuse(&base.join("people")), ErrorCode::WorkspaceRefused);
        assert_eq!(refuse(&base.join("none")), ErrorCode::WorkspaceMissing);
        let project = home.join("project");
        std::fs::create_dir(&project).expect("made");
        assert!(resolve_workspace(&at(&home, &home), Some(&project), None).is_ok());
        let data = project.join("data");
        let held = resolve_workspace(&at(&home, &home), Some(&project), Some(&data));
        assert_eq!(held.expect_err("refused").code, ErrorCode::WorkspaceRefused);
    }

    #[test]
    fn a_home_that_is_a_repository_is_not_the_top_level() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        let (home, project) = (base.join("me"), base.join("me/project"));
        std::fs::create_dir_all(&project).expect("made");
        std::fs::create_dir(home.join(".git")).expect("made");
        std::fs::write(home.join(".git/HEAD"), "ref: refs/heads/main\n").expect("written");
        let found = resolve_workspace(&at(&project, &home), None, None).expect("found");
        assert_eq!(found.root, project);
    }

    #[test]
    fn fc_26_both_spellings_are_known() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        std::fs::create_dir_all(base.join("real/sub")).expect("made");
        let link = base.join("link");
        std::os::unix::fs::symlink(base.join("real"), &link).expect("made");
        let home = base.join("home");
        let named = resolve_workspace(&at(&base, &home), Some(&link), None).expect("found");
        assert_eq!(named.root, base.join("real"));
        assert_eq!(named.spellings.as_slice(), std::slice::from_ref(&link));
        let walked = Surroundings::new(
            [("HOME", home.as_os_str()), ("PWD", link.as_os_str())],
            base.join("real"),
        );
        let found = resolve_workspace(&walked, None, None).expect("found");
        assert_eq!(found.spellings, [link]);
    }
}
