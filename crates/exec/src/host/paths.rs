//! The paths that a policy names, as they are on this host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::facts::{PathFact, PathKind};
use cofferdam_core::policy::{EffectivePolicy, WantedPath};
use cofferdam_core::spec::Access;
use globset::{GlobBuilder, GlobMatcher};

/// Most directories that are looked through for a pattern.
const PATTERN_DIRECTORIES: usize = 20_000;

/// Where paths of a policy begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bases<'a> {
    /// The owner's home directory.
    pub(super) home: &'a Path,
    /// The top of the workspace.
    pub(super) workspace: &'a Path,
    /// Where the tree really lies, when a task has one of its own.
    pub(super) tree: &'a Path,
}

/// Takes `.` and double slashes out of a path, and `..` by words.
pub(super) fn tidy(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for piece in path.components() {
        match piece {
            Component::CurDir => {}
            Component::ParentDir => {
                tidied.pop();
            }
            other => tidied.push(other),
        }
    }
    tidied
}

/// Looks at every path that a policy names.
pub(super) fn path_facts(policy: &EffectivePolicy, bases: Bases<'_>) -> Vec<PathFact> {
    let mut facts: Vec<PathFact> = Vec::new();
    let plain = policy
        .read
        .iter()
        .chain(&policy.write)
        .map(|one| &one.value)
        .chain(policy.protect.iter().map(|one| &one.value.path))
        .chain(policy.allow.sockets.iter().map(|one| &one.value))
        .chain(
            policy
                .secrets
                .values()
                .filter_map(|one| one.value.file.as_ref()),
        );
    let (patterns, denied): (Vec<_>, Vec<_>) = policy
        .deny_read
        .iter()
        .map(|one| &one.value)
        .partition(|path| has_pattern(path));
    for written in plain.chain(denied) {
        if !facts.iter().any(|fact| fact.written == *written) {
            facts.push(look(written, &absolute(written, bases)));
        }
    }
    if !patterns.is_empty() {
        facts.extend(expand(&patterns, bases.tree));
    }
    facts
}

fn has_pattern(path: &BytePath) -> bool {
    path.as_bytes().iter().any(|byte| b"*?[]{}".contains(byte))
}

fn absolute(written: &BytePath, bases: Bases<'_>) -> PathBuf {
    let bytes = written.as_bytes();
    let path = if bytes == b"~" {
        bases.home.to_owned()
    } else if let Some(rest) = bytes.strip_prefix(b"~/") {
        bases.home.join(OsStr::from_bytes(rest))
    } else {
        bases.tree.join(written.as_path())
    };
    let path = tidy(&path);
    match path.strip_prefix(bases.workspace) {
        // A task works on a tree of its own, in the place of the one that is named.
        Ok(rest) if bases.tree != bases.workspace => bases.tree.join(rest),
        _ => path,
    }
}

fn look(written: &BytePath, path: &Path) -> PathFact {
    let kind = match std::fs::metadata(path) {
        Err(_) => PathKind::Absent,
        Ok(found) if found.is_dir() => PathKind::Directory,
        Ok(found) if found.is_file() => PathKind::File,
        Ok(found) if found.file_type().is_socket() => PathKind::Socket,
        Ok(_) => PathKind::Other,
    };
    let real = (kind != PathKind::Absent)
        .then(|| path.canonicalize().ok())
        .flatten()
        .filter(|real| real != path)
        .map(BytePath::from);
    PathFact {
        written: written.clone(),
        path: BytePath::from(path),
        real,
        kind,
    }
}

/// Most entries of a directory that are looked at for repositories.
const ENTRIES: usize = 1_000;

/// Gives a path that begins at the top or in a home directory.
fn from_top(written: &BytePath, home: &BytePath) -> Result<PathBuf, Problem> {
    let bytes = written.as_bytes();
    let path = match bytes.strip_prefix(b"~/") {
        Some(rest) => home.as_path().join(OsStr::from_bytes(rest)),
        None if bytes == b"~" => home.as_path().to_owned(),
        None => written.as_path().to_owned(),
    };
    if !path.is_absolute() || bytes.contains(&0) {
        let message = format!("{written} is neither absolute nor from ~/");
        return Err(Problem::new(ErrorCode::InvalidRequest, message).with_field("path"));
    }
    Ok(path)
}

fn missing(written: &BytePath, error: &std::io::Error) -> Problem {
    let message = format!("{written} cannot be looked at: {error}");
    Problem::new(ErrorCode::FileMissing, message).with_field("path")
}

/// Looks at a file that is to be written, which need not be there yet: where it really is, every link
/// above it resolved. It is none itself, so that what is shown is what is written.
///
/// # Errors
///
/// `invalid_request` for a path that is neither absolute nor from `~/`, or has no name at its end;
/// `file_missing` for a folder that is not there; `not_a_file` for a link.
pub fn wanted_file(written: &BytePath, home: &BytePath) -> Result<WantedPath, Problem> {
    let path = from_top(written, home)?;
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        let message = format!("{written} names no file");
        return Err(Problem::new(ErrorCode::InvalidRequest, message).with_field("path"));
    };
    let above = above
        .canonicalize()
        .map_err(|error| missing(written, &error))?;
    let real = above.join(name);
    let kind = match std::fs::symlink_metadata(&real) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => PathKind::Absent,
        Err(error) => return Err(missing(written, &error)),
        Ok(found) if found.is_symlink() => {
            let message = format!("{written} is a link");
            return Err(Problem::new(ErrorCode::NotAFile, message)
                .with_field("path")
                .with_hint("name the file to which it leads"));
        }
        Ok(found) if found.is_file() => PathKind::File,
        Ok(found) if found.is_dir() => PathKind::Directory,
        Ok(found) if found.file_type().is_socket() => PathKind::Socket,
        Ok(_) => PathKind::Other,
    };
    Ok(WantedPath {
        real: BytePath::from(real),
        kind,
        access: Access::Write,
        repositories: Vec::new(),
    })
}

/// Looks at a path that is to be authorised: where it really is, what stands there, and which git
/// directories stand at it and right below it.
///
/// # Errors
///
/// `invalid_request` for a path that is neither absolute nor from `~/`; `file_missing`.
pub fn wanted_path(
    written: &BytePath,
    access: Access,
    home: &BytePath,
) -> Result<WantedPath, Problem> {
    let path = from_top(written, home)?;
    let real = path
        .canonicalize()
        .map_err(|error| missing(written, &error))?;
    let fact = look(written, &real);
    let mut repositories = Vec::new();
    if fact.kind == PathKind::Directory {
        let below = std::fs::read_dir(&real).into_iter().flatten().flatten();
        let tops = below.take(ENTRIES).map(|entry| entry.path());
        repositories = std::iter::once(real.clone())
            .chain(tops)
            .map(|top| top.join(".git"))
            .filter(|git| std::fs::symlink_metadata(git).is_ok())
            .map(BytePath::from)
            .collect();
    }
    Ok(WantedPath {
        real: BytePath::from(real),
        kind: fact.kind,
        access,
        repositories,
    })
}

/// Reads a pattern of a policy, which is held against paths below the top of a tree; `None` for a
/// path that is none.
pub(crate) fn pattern_of(written: &BytePath) -> Option<GlobMatcher> {
    if !has_pattern(written) {
        return None;
    }
    let text = written.to_text();
    // A pattern without a slash means the name at any depth, as in .gitignore.
    let full = if text.contains('/') {
        text.trim_start_matches("./").to_owned()
    } else {
        format!("**/{text}")
    };
    let glob = GlobBuilder::new(&full)
        .literal_separator(true)
        .build()
        .ok()?;
    Some(glob.compile_matcher())
}

/// Finds what patterns mean, never through a link (FC-24), never in `.git`.
fn expand(patterns: &[&BytePath], tree: &Path) -> Vec<PathFact> {
    let matchers: Vec<(&BytePath, GlobMatcher)> = patterns
        .iter()
        .filter_map(|written| Some((*written, pattern_of(written)?)))
        .collect();
    let mut facts = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    let mut seen = 0;
    while let Some(below) = waiting.pop() {
        seen += 1;
        if seen > PATTERN_DIRECTORIES {
            break;
        }
        let Ok(entries) = std::fs::read_dir(tree.join(&below)) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = below.join(entry.file_name());
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let hit = matchers.iter().find(|(_, glob)| glob.is_match(&path));
            if let Some((written, _)) = hit {
                // A link that is denied is judged by where it leads, which another rule may name.
                if !kind.is_symlink() {
                    facts.push(look(written, &tree.join(&path)));
                }
            } else if kind.is_dir() && entry.file_name() != ".git" {
                waiting.push(path);
            }
        }
    }
    facts.sort_by(|left, right| left.path.cmp(&right.path));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fc_20_fc_24_patterns_are_expanded_and_links_not_followed() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        std::fs::create_dir_all(base.join("tree/deep")).expect("made");
        std::fs::create_dir_all(base.join("cache")).expect("made");
        std::fs::write(base.join("cache/key.pem"), "").expect("written");
        std::fs::write(base.join("tree/deep/key.pem"), "").expect("written");
        std::os::unix::fs::symlink(base.join("cache"), base.join("tree/link")).expect("made");
        let pattern = BytePath::from("*.pem");
        let found = expand(&[&pattern], &base.join("tree"));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].path,
            BytePath::from(base.join("tree/deep/key.pem"))
        );
        assert_eq!(found[0].written, pattern);
    }

    #[test]
    fn fc_29_dots_do_not_lead_out_unseen() {
        assert_eq!(tidy(Path::new("/w/../w-evil/./f")), Path::new("/w-evil/f"));
    }
}
