//! Unix sockets of the host that stand where commands will look: a mount that is read-only does not
//! keep anybody from connecting to one.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::SocketFacts;

/// Most directories of one tree that are looked through.
const MOST_DIRECTORIES: usize = 4_096;
/// Most bytes of the kernel's list that are read.
const MOST_BYTES: u64 = 8 << 20;
/// The socket by which git asks its own watcher what has changed.
const GIT_WATCHER: &[u8] = b"fsmonitor--daemon.ipc";

/// Looks for sockets: in `read` by looking through every directory, in `write` by the kernel's list
/// of those that are bound in the host's network. What commands bind behind walls with a network of
/// their own stands in no list, so it is not taken for the host's.
pub(super) fn look(read: &[PathBuf], write: &[PathBuf]) -> SocketFacts {
    let mut found = BTreeSet::new();
    let mut unseen = Vec::new();
    for top in read {
        if !walk(top, write, &mut found) {
            unseen.push(BytePath::from(top.as_path()));
        }
    }
    let tops = || read.iter().chain(write);
    if tops().next().is_some() {
        for bound in bound_names() {
            let candidates: Vec<PathBuf> = if bound.is_absolute() {
                vec![bound]
            } else {
                // Bound by a relative name: nobody says from where.
                tops().map(|top| top.join(&bound)).collect()
            };
            let standing = candidates
                .into_iter()
                .filter(|path| is_socket(path))
                .filter_map(|path| path.canonicalize().ok());
            found.extend(standing.filter(|path| tops().any(|top| path.starts_with(top))));
        }
    }
    SocketFacts {
        found: found
            .into_iter()
            .filter(|path| path.file_name() != Some(OsStr::from_bytes(GIT_WATCHER)))
            .map(BytePath::from)
            .collect(),
        unseen,
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Looks through a tree, never through a link nor into `passed_over`; tells whether all of the rest
/// was seen.
fn walk(top: &Path, passed_over: &[PathBuf], found: &mut BTreeSet<PathBuf>) -> bool {
    let mut waiting = vec![top.to_owned()];
    let mut seen = 0;
    while let Some(directory) = waiting.pop() {
        seen += 1;
        if seen > MOST_DIRECTORIES {
            return false;
        }
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                let path = entry.path();
                if !passed_over.contains(&path) {
                    waiting.push(path);
                }
            } else if kind.is_socket() {
                found.insert(entry.path());
            }
        }
    }
    true
}

/// Gives the names, each once, under which sockets are bound in this network.
fn bound_names() -> BTreeSet<PathBuf> {
    use std::io::Read as _;
    let mut text = Vec::new();
    if let Ok(file) = std::fs::File::open("/proc/net/unix") {
        let _ = file.take(MOST_BYTES).read_to_end(&mut text);
    }
    names_in(&text)
}

fn names_in(text: &[u8]) -> BTreeSet<PathBuf> {
    text.split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(|line| {
            // Seven columns come before the name, which may hold spaces.
            let mut rest = line;
            for _ in 0..7 {
                rest = rest.trim_ascii_start();
                let end = rest.iter().position(|byte| *byte == b' ')?;
                rest = &rest[end..];
            }
            let name = rest.strip_prefix(b" ")?;
            let is_named = !name.is_empty() && !name.starts_with(b"@");
            is_named.then(|| PathBuf::from(OsStr::from_bytes(name)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_kernels_list_is_read_as_it_is() {
        let text = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20001 /run/a b.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 20002\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20003 @abstract\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20004 own.sock\n";
        let names: Vec<_> = names_in(text).into_iter().collect();
        assert_eq!(names, [Path::new("/run/a b.sock"), Path::new("own.sock")]);
    }

    #[test]
    fn sockets_are_found_in_depth_where_it_is_read_and_by_the_list_where_it_is_written() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        let (read, write) = (base.join("read"), base.join("write"));
        std::fs::create_dir_all(read.join("deep")).expect("made");
        std::fs::create_dir_all(&write).expect("made");
        std::os::unix::fs::symlink(&write, base.join("link")).expect("made");
        let bind = |path: PathBuf| UnixListener::bind(path).expect("bound");
        let _kept = [
            bind(read.join("deep/a.sock")),
            bind(base.join("link/b.sock")),
            bind(write.join("fsmonitor--daemon.ipc")),
            bind(base.join("elsewhere.sock")),
        ];
        let facts = look(std::slice::from_ref(&read), std::slice::from_ref(&write));
        let expected = [read.join("deep/a.sock"), write.join("b.sock")];
        assert_eq!(facts.found, expected.map(BytePath::from));
        assert_eq!(facts.unseen, []);
        assert_eq!(look(&[], &[]), SocketFacts::default());
    }
}
