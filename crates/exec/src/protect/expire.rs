//! Bounded retention of what was taken away at protected names: the oldest goes first.

use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use serde_json::{Value, json};

use crate::workspace::remove_tree;

/// What a command left at protected names, in a directory of its own.
struct Kept {
    path: PathBuf,
    bytes: u64,
}

/// What went, and what is left.
#[derive(Debug)]
pub(crate) struct Expired {
    /// A row for each command whose things went.
    pub(crate) removed: Vec<Value>,
    /// How many commands have things there still.
    pub(crate) kept: usize,
    /// How many bytes those are.
    pub(crate) kept_bytes: u64,
}

/// Removes what was taken away from the oldest commands, where there are more than `most`, or more
/// bytes than `room`. What the newest command left always stays.
pub(crate) fn expire(data_dir: &Path, most: usize, room: u64) -> Expired {
    let entries = std::fs::read_dir(data_dir.join("quarantine"));
    // Directories of commands only: what keepers keep for a last resort lies beside them.
    let is_commands = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("cmd_"))
    };
    let mut all: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(is_commands)
        .collect();
    // Ids begin with the time: the newest first.
    all.sort_unstable_by(|left, right| right.cmp(left));
    let mut expired = Expired {
        removed: Vec::new(),
        kept: 0,
        kept_bytes: 0,
    };
    let mut is_full = false;
    for path in all {
        let one = Kept {
            bytes: size(&path),
            path,
        };
        is_full |= expired.kept > 0
            && (expired.kept == most || expired.kept_bytes.saturating_add(one.bytes) > room);
        if !is_full {
            expired.kept += 1;
            expired.kept_bytes += one.bytes;
            continue;
        }
        let places = origins(&one.path);
        if matches!(remove_tree(&one.path), Ok(0)) {
            let command = one.path.file_name().map(|name| name.to_string_lossy());
            expired.removed.push(json!({
                "command_id": command,
                "bytes": one.bytes,
                "paths": places,
            }));
        }
    }
    expired
}

/// Reads where the things of one command stood.
fn origins(directory: &Path) -> Vec<BytePath> {
    let entries = std::fs::read_dir(directory);
    entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == super::kept::FROM))
        .filter_map(|path| std::fs::read(path).ok())
        .map(BytePath::from_bytes)
        .collect()
}

/// Adds up the files below a directory; no link is followed.
fn size(directory: &Path) -> u64 {
    let mut total = 0;
    let mut folders = vec![directory.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) if found.is_file() => total += found.len(),
                _ => {}
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_where_there_are_too_many_or_too_much() {
        let data = tempfile::tempdir().expect("a directory");
        let top = data.path().join("quarantine");
        let outside = data.path().join("outside");
        std::fs::write(&outside, "stays").expect("written");
        for number in 1..=4 {
            let kept = top.join(format!("cmd_{number}"));
            std::fs::create_dir_all(kept.join("1-dir")).expect("made");
            std::fs::write(kept.join("1-dir/file"), [0; 100]).expect("written");
            std::os::unix::fs::symlink(&outside, kept.join("2-link")).expect("linked");
            std::fs::write(kept.join("1.from"), "/w/.claude").expect("written");
        }
        std::fs::create_dir(top.join("undo")).expect("made");
        let left = || {
            let entries = std::fs::read_dir(&top).expect("there").flatten();
            let mut names: Vec<_> = entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(expire(data.path(), 4, 1 << 20).removed, [Value::Null; 0]);
        let expired = expire(data.path(), 3, 1 << 20);
        assert_eq!(
            expired.removed,
            [json!({"command_id": "cmd_1", "bytes": 110, "paths": ["/w/.claude"]})]
        );
        assert_eq!((expired.kept, expired.kept_bytes), (3, 330));
        assert_eq!(left(), ["cmd_2", "cmd_3", "cmd_4", "undo"]);
        expire(data.path(), 3, 250);
        assert_eq!(left(), ["cmd_3", "cmd_4", "undo"]);
        // The newest stays, whatever its size.
        expire(data.path(), 1, 1);
        assert_eq!(left(), ["cmd_4", "undo"]);
        assert_eq!(std::fs::read_to_string(&outside).expect("there"), "stays");
    }
}
