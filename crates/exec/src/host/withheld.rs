//! Which files with secrets git did not hold when they were first seen.
//!
//! A command in a live checkout may write git's index and make commits, so neither can be asked
//! whether a file was the repository's own: what it was when it was first seen counts. That lies in
//! the data directory, which no command reaches, and is kept by path and by inode, so that no
//! renamed folder makes an old file a new one. Only the owner releases a name, by a policy.

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

    fn is_same_file(&self, other: &Self) -> bool {
        self.path == other.path || (self.device, self.inode) == (other.device, other.inode)
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

/// Gives those of the files that may not be read: what git does not hold, and what it did not hold
/// when it was first seen. `found` says of each whether git holds it now.
pub(super) fn withheld(data_dir: &Path, found: Vec<(PathBuf, bool)>) -> Vec<PathBuf> {
    if found.is_empty() {
        return Vec::new();
    }
    let place = data_dir.join("withheld.json");
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
    fn a_record_that_cannot_be_read_withholds_everything() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("withheld.json"), "{").expect("written");
        let path = place.path().join(".env");
        std::fs::write(&path, "KEY=1").expect("written");
        assert_eq!(withheld(place.path(), vec![(path.clone(), true)]), [path]);
    }
}
