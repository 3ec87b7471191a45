//! What was taken away at protected names: listed, and put back where the owner says so.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::Quarantined;
use cofferdam_core::spec::ProtectedState;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::{Snapshot, place};

/// End of the name of the file that says where something stood.
pub(super) const FROM: &str = "from";
/// Most that are listed.
const MOST: usize = 1_000;

/// Writes down where something stood that is now `number-…` in a quarantine. What cannot be written
/// down is kept all the same, and is not listed.
pub(super) fn note_origin(quarantine: &Path, number: &str, path: &[u8]) {
    let _ = std::fs::write(quarantine.join(format!("{number}.{FROM}")), path);
}

/// Writes down where something stood that a keeper took away.
pub(super) fn note_origin_of_keeper(snapshot: &Snapshot, quarantine: &Path, entry: &[u8]) {
    let Some((number, name)) = split(entry) else {
        return;
    };
    let line = number
        .strip_prefix("keeper-")
        .and_then(|rest| rest.split('-').next())
        .and_then(|line| line.parse::<usize>().ok());
    let Some(found) = line.and_then(|line| snapshot.names.get(line)) else {
        return;
    };
    let path = if found.path.file_name() == name {
        found.path.clone()
    } else {
        found.path.join(name)
    };
    note_origin(quarantine, number, path.as_bytes());
}

/// Parts the name of an entry: what numbers it, and what it was called.
fn split(entry: &[u8]) -> Option<(&str, &[u8])> {
    let dashes = if entry.starts_with(b"keeper-") { 3 } else { 1 };
    let mut positions = entry.iter().enumerate().filter(|(_, byte)| **byte == b'-');
    let (at, _) = positions.nth(dashes - 1)?;
    let number = std::str::from_utf8(&entry[..at]).ok()?;
    Some((number, &entry[at + 1..]))
}

/// Lists what was taken away below any of some directories, the newest command first.
pub fn quarantined(data_dir: &Path, below: &[BytePath]) -> Vec<Quarantined> {
    let mut commands: Vec<PathBuf> = std::fs::read_dir(data_dir.join("quarantine"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    // Ids begin with the time.
    commands.sort_unstable_by(|left, right| right.cmp(left));
    let mut found = Vec::new();
    for command in commands {
        let Some(id) = command.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let mut entries: Vec<_> = std::fs::read_dir(&command)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| one(id, &command, entry.file_name().as_bytes()))
            .filter(|one| below.iter().any(|top| one.path.is_within(top)))
            .collect();
        entries.sort_by(|left, right| left.path.cmp(&right.path));
        found.extend(entries);
        if found.len() >= MOST {
            found.truncate(MOST);
            break;
        }
    }
    found
}

fn one(command: &str, directory: &Path, entry: &[u8]) -> Option<Quarantined> {
    let (number, _) = split(entry)?;
    let path = std::fs::read(directory.join(format!("{number}.{FROM}"))).ok()?;
    let kept = directory.join(std::ffi::OsStr::from_bytes(entry));
    let metadata = std::fs::symlink_metadata(&kept).ok()?;
    Some(Quarantined {
        quarantine_id: format!("{command}/{number}"),
        path: BytePath::from(std::ffi::OsStr::from_bytes(&path)),
        state: state(&metadata),
        bytes: if metadata.is_file() {
            metadata.len()
        } else {
            0
        },
        kept: BytePath::from(kept),
    })
}

fn state(metadata: &Metadata) -> ProtectedState {
    if metadata.is_dir() {
        ProtectedState::Directory
    } else if metadata.is_symlink() {
        ProtectedState::Symlink
    } else {
        ProtectedState::File
    }
}

/// Puts something back where it stood, if nothing stands there now.
///
/// # Errors
///
/// `invalid_request` for an id that nothing has; `file_exists` where something stands there, and
/// then nothing is changed; `io`.
pub fn restore_quarantined(
    data_dir: &Path,
    below: &[BytePath],
    id: &str,
) -> Result<Quarantined, Problem> {
    let all = quarantined(data_dir, below);
    let found = all.into_iter().find(|one| one.quarantine_id == id);
    let found = found.ok_or_else(|| {
        Problem::new(
            ErrorCode::InvalidRequest,
            format!("nothing was taken away under {id}"),
        )
        .with_field("quarantine_id")
        .with_hint("cofferdam protected quarantine lists what was")
    })?;
    let failed = |error: Errno| {
        let path = &found.path;
        match error {
            Errno::EXIST => Problem::new(
                ErrorCode::FileExists,
                format!("something stands at {path} already"),
            ),
            Errno::XDEV => {
                Problem::new(ErrorCode::Io, format!("{path} lies on another file system"))
                    .with_hint(format!("copy it yourself: {}", found.kept))
            }
            other => Problem::new(ErrorCode::Io, format!("{path} cannot be put back: {other}")),
        }
    };
    // What lies on the way was in the hands of commands: no link is followed.
    let walked = place::Walker::default().walk(&found.path).map_err(failed)?;
    if !walked.complete {
        return Err(failed(Errno::NOENT));
    }
    rustix::fs::renameat_with(
        CWD,
        found.kept.as_path(),
        &*walked.directory,
        &*walked.name,
        RenameFlags::NOREPLACE,
    )
    .map_err(failed)?;
    let (command, number) = id.split_once('/').unwrap_or((id, ""));
    let directory = data_dir.join("quarantine").join(command);
    let _ = std::fs::remove_file(directory.join(format!("{number}.{FROM}")));
    // Stays where something else is in it.
    let _ = std::fs::remove_dir(directory);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_parted_as_planes_and_keepers_name_them() {
        assert_eq!(split(b"3-.envrc"), Some(("3", &b".envrc"[..])));
        assert_eq!(split(b"12-a-b"), Some(("12", &b"a-b"[..])));
        assert_eq!(
            split(b"keeper-2-1-pre-commit"),
            Some(("keeper-2-1", &b"pre-commit"[..]))
        );
        assert_eq!(split(b"3.from"), None);
    }

    #[test]
    fn what_was_taken_away_is_listed_and_goes_back_where_nothing_stands() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        let (data, repo) = (base.join("data"), base.join("repo"));
        let kept = data.join("quarantine/cmd_1");
        std::fs::create_dir_all(&kept).expect("made");
        std::fs::create_dir(&repo).expect("made");
        let at = repo.join(".envrc");
        std::fs::write(kept.join("1-.envrc"), "use flake").expect("written");
        note_origin(&kept, "1", at.as_os_str().as_bytes());
        let below = [BytePath::from(repo.as_path())];
        let list = quarantined(&data, &below);
        assert_eq!(list.len(), 1, "{list:?}");
        assert_eq!((list[0].bytes, list[0].state), (9, ProtectedState::File));
        let elsewhere = [BytePath::from("/elsewhere")];
        assert_eq!(quarantined(&data, &elsewhere), []);
        let id = "cmd_1/1";
        let code = |outcome: Result<Quarantined, Problem>| outcome.map_err(|one| one.code);
        assert_eq!(
            code(restore_quarantined(&data, &elsewhere, id)),
            Err(ErrorCode::InvalidRequest)
        );
        std::fs::write(&at, "mine").expect("written");
        assert_eq!(
            code(restore_quarantined(&data, &below, id)),
            Err(ErrorCode::FileExists)
        );
        std::fs::remove_file(&at).expect("removed");
        restore_quarantined(&data, &below, id).expect("put back");
        assert_eq!(std::fs::read_to_string(&at).expect("there"), "use flake");
        assert_eq!(quarantined(&data, &below), []);
        assert!(!kept.exists());
    }
}
