//! Whether commands left anything in places that are an enclosure's own.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Most entries that are looked at.
const ENTRIES: usize = 1_000;
/// Lists of System V objects, each with one line of headings.
const OBJECTS: [&str; 3] = [
    "/proc/sysvipc/shm",
    "/proc/sysvipc/sem",
    "/proc/sysvipc/msg",
];

/// Gives one number for the state of directories and, where they are an enclosure's own, of System V
/// objects. What is mounted below is passed over; links are not followed.
///
/// The times of directories do not count: a file that was made and removed again leaves no trace. Of
/// files they do. `None` where there is too much to look at, or it cannot be looked at.
pub fn traces(roots: &[Vec<u8>], ipc: bool) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut budget = ENTRIES;
    for root in roots {
        let root = Path::new(std::ffi::OsStr::from_bytes(root));
        let Ok(found) = std::fs::symlink_metadata(root) else {
            0_u8.hash(&mut hasher);
            continue;
        };
        note(&found, &mut hasher);
        walk(root, found.dev(), &mut budget, &mut hasher)?;
    }
    if ipc {
        for list in OBJECTS {
            let lines =
                std::fs::read(list).map_or(0, |text| text.split(|byte| *byte == b'\n').count());
            lines.hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}

fn walk(top: &Path, device: u64, budget: &mut usize, hasher: &mut DefaultHasher) -> Option<()> {
    let mut next: Vec<PathBuf> = vec![top.to_owned()];
    while let Some(directory) = next.pop() {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&directory).ok()? {
            *budget = budget.checked_sub(1)?;
            entries.push(entry.ok()?.path());
        }
        entries.sort_unstable();
        for path in entries {
            let found = std::fs::symlink_metadata(&path).ok()?;
            path.as_os_str().as_bytes().hash(hasher);
            if found.dev() != device {
                continue;
            }
            note(&found, hasher);
            if found.is_dir() {
                next.push(path);
            }
        }
    }
    Some(())
}

fn note(found: &std::fs::Metadata, hasher: &mut DefaultHasher) {
    (found.ino(), found.mode(), found.uid(), found.gid()).hash(hasher);
    if !found.is_dir() {
        (found.size(), found.ctime(), found.ctime_nsec()).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_seen_and_what_was_removed_again_is_not() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path();
        std::fs::create_dir(root.join("made")).expect("made");
        let roots = [root.as_os_str().as_bytes().to_vec()];
        let clean = traces(&roots, true).expect("little");
        std::fs::write(root.join("made/passing"), "x").expect("written");
        let dirty = traces(&roots, true).expect("little");
        assert_ne!(dirty, clean);
        std::fs::write(root.join("made/passing"), "y").expect("written");
        assert_ne!(traces(&roots, true), Some(dirty));
        std::fs::remove_file(root.join("made/passing")).expect("removed");
        assert_eq!(traces(&roots, true), Some(clean));
        std::os::unix::fs::symlink("/nowhere", root.join("link")).expect("made");
        assert_ne!(traces(&roots, true), Some(clean));
        std::fs::remove_file(root.join("link")).expect("removed");
        for number in 0..ENTRIES {
            std::fs::write(root.join(number.to_string()), "").expect("written");
        }
        assert_eq!(traces(&roots, true), None);
    }
}
