//! Which files with secrets, and which protected names, git did not hold when they were first seen.
//!
//! A command in a live checkout may write git's index and make commits, so neither can be asked
//! whether a file was the repository's own: what it was when it was first seen counts. That lies in
//! the data directory, which no command reaches, and is kept by path and by inode, so that no
//! renamed folder makes an old file a new one. Only the owner releases a name.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use serde::{Deserialize, Serialize};

use crate::workspace::replace_file;

/// Most files that are remembered; those that are gone give way, the oldest first.
const MOST: usize = 8_192;
/// Most bytes of the record.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    files: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: BytePath,
    device: u64,
    inode: u64,
}

impl Entry {
    fn new(path: &Path, metadata: &Metadata) -> Self {
        Self {
            path: BytePath::from(path),
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    /// Of something that a command made and that is not there any more.
    fn gone(path: &BytePath) -> Self {
        Self {
            path: path.clone(),
            device: 0,
            inode: 0,
        }
    }

    fn is_same_file(&self, other: &Self) -> bool {
        let is_same_inode = (self.device, self.inode) == (other.device, other.inode);
        self.path == other.path || (is_same_inode && self.inode != 0)
    }
}

impl Record {
    /// Reads the record; `None` where there is one that cannot be understood.
    fn read(path: &Path) -> Option<Self> {
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(Self::default()),
            Err(_) => return None,
            Ok(found) if found.len() > MOST_BYTES => return None,
            Ok(_) => std::fs::read(path).ok()?,
        };
        serde_json::from_slice(&text).ok()
    }

    fn has(&self, wanted: &Entry) -> bool {
        self.files.iter().any(|one| one.is_same_file(wanted))
    }
}

fn record_of(data_dir: &Path) -> PathBuf {
    data_dir.join("withheld.json")
}

/// Gives those of the files that are not the repository's own: what git does not hold, and what it
/// did not hold when it was first seen. `found` says of each whether git holds it now.
pub(super) fn withheld(data_dir: &Path, found: Vec<(PathBuf, bool)>) -> Vec<PathBuf> {
    if found.is_empty() {
        return Vec::new();
    }
    let place = record_of(data_dir);
    let Some(record) = Record::read(&place) else {
        // Nobody knows: then nothing of it is read.
        return found.into_iter().map(|(path, _)| path).collect();
    };
    let mut denied = Vec::new();
    let mut fresh = Vec::new();
    for (path, is_held) in found {
        let entry = std::fs::symlink_metadata(&path)
            .ok()
            .map(|metadata| Entry::new(&path, &metadata));
        let is_known = entry.as_ref().is_some_and(|entry| record.has(entry));
        if is_held && !is_known {
            continue;
        }
        fresh.extend(entry.filter(|entry| !record.files.contains(entry)));
        denied.push(path);
    }
    if !fresh.is_empty() {
        // What cannot be written down is denied all the same, and is tried again at the next look.
        let _ = add(&place, fresh);
    }
    denied
}

/// Remembers names at which a command made something that was taken away again: whatever git gets
/// them back from, it was no owner who made them.
pub(crate) fn remember_made<'a>(data_dir: &Path, paths: impl Iterator<Item = &'a BytePath>) {
    let made: Vec<Entry> = paths.map(Entry::gone).collect();
    if !made.is_empty() {
        // Where it cannot be written down, the name is still held as absent until somebody makes it.
        let _ = add(&record_of(data_dir), made);
    }
}

/// Tells of each path whether it stands in the record, by its name or by what is there now.
pub(super) fn is_withheld(data_dir: &Path, path: &Path) -> bool {
    let Some(record) = Record::read(&record_of(data_dir)) else {
        return true;
    };
    let entry = std::fs::symlink_metadata(path).map_or_else(
        |_| Entry::gone(&BytePath::from(path)),
        |metadata| Entry::new(path, &metadata),
    );
    record.has(&entry)
}

/// Forgets what is known of a name and of what stands there: git is asked again. Tells whether there
/// was something to forget.
pub(super) fn release(data_dir: &Path, path: &Path) -> io::Result<bool> {
    let place = record_of(data_dir);
    let lock = File::create(place.with_extension("lock"))?;
    lock.lock()?;
    let Some(mut record) = Record::read(&place) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} cannot be understood", place.display()),
        ));
    };
    let entry = Entry::new(path, &std::fs::symlink_metadata(path)?);
    let before = record.files.len();
    record.files.retain(|one| !one.is_same_file(&entry));
    let is_changed = record.files.len() != before;
    if is_changed {
        replace_file(&place, &serde_json::to_vec(&record)?)?;
    }
    Ok(is_changed)
}

fn add(place: &Path, fresh: Vec<Entry>) -> io::Result<()> {
    let lock = File::create(place.with_extension("lock"))?;
    lock.lock()?;
    let Some(mut record) = Record::read(place) else {
        return Ok(());
    };
    // A file that was written anew under its old name has another inode; one entry is enough.
    record
        .files
        .retain(|one| !fresh.iter().any(|fresh| fresh.path == one.path));
    record.files.extend(fresh);
    if record.files.len() > MOST {
        record
            .files
            .retain(|one| std::fs::symlink_metadata(one.path.as_path()).is_ok());
    }
    replace_file(place, &serde_json::to_vec(&record)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_did_not_hold_at_first_stays_withheld_whatever_git_holds_later() {
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path().join("data");
        std::fs::create_dir_all(place.path().join("web")).expect("made");
        std::fs::create_dir(&data).expect("made");
        let path = place.path().join("web/.env");
        let own = place.path().join(".env.ours");
        for path in [&path, &own] {
            std::fs::write(path, "KEY=1").expect("written");
        }
        let look = |path: &Path, is_held| withheld(&data, vec![(path.to_owned(), is_held)]);
        assert_eq!(look(&own, true), Vec::<PathBuf>::new());
        assert_eq!(look(&path, false), [path.as_path()]);
        assert_eq!(look(&path, true), [path.as_path()]);
        // Written anew, it is what it was.
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "KEY=2").expect("written");
        assert_eq!(look(&path, true), [path.as_path()]);
        // The same file by another name.
        std::fs::rename(place.path().join("web"), place.path().join("other")).expect("renamed");
        let other = place.path().join("other/.env");
        assert_eq!(look(&other, false), [other.as_path()]);
        assert_eq!(look(&other, true), [other.as_path()]);
    }

    #[test]
    fn a_file_by_another_name_is_known_by_its_inode() {
        let place = tempfile::tempdir().expect("a directory");
        let one = place.path().join("one");
        std::fs::write(&one, "KEY=1").expect("written");
        let look = |path: &Path, is_held| withheld(place.path(), vec![(path.to_owned(), is_held)]);
        assert_eq!(look(&one, false), [one.as_path()]);
        let two = place.path().join("two");
        std::fs::rename(&one, &two).expect("renamed");
        assert_eq!(look(&two, true), [two.as_path()]);
    }

    #[test]
    fn what_a_command_made_is_withheld_when_it_comes_back_and_the_owner_releases_it() {
        let place = tempfile::tempdir().expect("a directory");
        let (path, other) = (place.path().join(".envrc"), place.path().join(".mcp.json"));
        remember_made(
            place.path(),
            [&path, &other]
                .map(|one| BytePath::from(one.as_path()))
                .iter(),
        );
        let look = |path: &Path| withheld(place.path(), vec![(path.to_owned(), true)]);
        std::fs::write(&path, "").expect("written");
        assert_eq!(look(&path), [path.as_path()]);
        assert!(is_withheld(place.path(), &path));
        assert!(release(place.path(), &path).expect("released"));
        assert!(!release(place.path(), &path).expect("released"));
        assert_eq!(look(&path), Vec::<PathBuf>::new());
        // One that is released does not release another.
        std::fs::write(&other, "").expect("written");
        assert_eq!(look(&other), [other.as_path()]);
    }

    #[test]
    fn a_record_that_cannot_be_read_withholds_everything() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("withheld.json"), "{").expect("written");
        let path = place.path().join(".env");
        std::fs::write(&path, "KEY=1").expect("written");
        assert_eq!(withheld(place.path(), vec![(path.clone(), true)]), [path]);
    }
}
