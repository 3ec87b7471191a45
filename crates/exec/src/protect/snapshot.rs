//! Remembers what stands at protected names.

use std::io::Read as _;
use std::os::fd::AsFd;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::spec::{Enforce, Protection};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{ENTRIES, FILE_BYTES, Name, Node, Snapshot, place};

/// Takes the snapshot of every name that no mount holds.
///
/// # Errors
///
/// Returns the path that could not be looked at: a name that cannot be remembered cannot be held.
pub(crate) fn take(protections: &[Protection]) -> Result<Snapshot, (BytePath, Errno)> {
    let mut names = Vec::new();
    let mut walker = place::Walker::default();
    for protection in protections {
        if protection.enforce == Enforce::Prevent {
            continue;
        }
        let failed = |error| (protection.path.clone(), error);
        let walked = walker.walk(&protection.path).map_err(failed)?;
        let (was, existing) = if walked.complete {
            let was = read(&*walked.directory, &walked.name, &mut 0).map_err(failed)?;
            let there = usize::from(was != Node::Absent);
            (was, walked.depth + there)
        } else {
            (Node::Absent, walked.depth)
        };
        names.push(Name {
            path: protection.path.clone(),
            rule: protection.rule.clone(),
            undo: protection.enforce == Enforce::Undo,
            was,
            existing,
        });
    }
    Ok(Snapshot { names })
}

/// Reads what stands at a name, directories with all below them; `count` bounds the whole.
pub(super) fn read(at: impl AsFd, name: &[u8], count: &mut usize) -> Result<Node, Errno> {
    let stat = match rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Node::Absent),
        Err(error) => return Err(error),
    };
    *count += 1;
    if *count > ENTRIES {
        return Err(Errno::OVERFLOW);
    }
    let mode = stat.st_mode & 0o7777;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_size as u64 > FILE_BYTES => Ok(Node::LargeFile {
            mode,
            size: stat.st_size as u64,
            modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
        }),
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&at, name, flags, Mode::empty())?;
            let mut content = Vec::with_capacity(stat.st_size as usize);
            std::fs::File::from(file)
                .take(FILE_BYTES + 1)
                .read_to_end(&mut content)
                .map_err(|error| place::errno(&error))?;
            Ok(Node::File {
                mode,
                content: BytePath::from_bytes(content),
            })
        }
        FileType::Symlink => Ok(Node::Symlink {
            target: place::read_link(&at, name)?,
        }),
        FileType::Directory => {
            let directory = place::open_directory(&at, name)?;
            let mut entries = Vec::new();
            for inner in place::names(&directory, ENTRIES)? {
                let node = read(&directory, &inner, count)?;
                entries.push((BytePath::from_bytes(inner), node));
            }
            Ok(Node::Directory { mode, entries })
        }
        other => Ok(Node::Other {
            kind: other.as_raw_mode(),
        }),
    }
}
