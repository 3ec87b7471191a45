//! Looking at directories of state, no link followed.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, openat2};

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Directories that are entered within each other.
const DEPTH: usize = 32;

/// Something in a directory of state.
#[derive(Debug)]
pub(super) struct Found {
    /// Its path below the directory that was walked.
    pub(super) path: PathBuf,
    pub(super) kind: FileType,
}

pub(super) fn problem(what: &str, path: &Path, error: &io::Error) -> Problem {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::StorageExhausted,
        _ => ErrorCode::Io,
    };
    Problem::new(code, format!("cannot {what} {}: {error}", path.display()))
}

/// Opens a directory, which may not be a link itself.
pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory below another one; an empty path is that one again.
pub(super) fn directory_beneath(top: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(top, path, flags, Mode::empty(), BENEATH)?)
}

/// Opens a regular file below a directory.
pub(super) fn open_beneath(top: BorrowedFd<'_>, path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(openat2(top, path, flags, Mode::empty(), BENEATH)?);
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata))
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

/// Opens a regular file below a directory that is given by its path; `None` where nothing stands.
pub(super) fn open_in(top: &Path, path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let opened = open_directory(top).and_then(|top| open_beneath(top.as_fd(), path));
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists everything below a directory, at most `limit` entries; tells whether that was all.
///
/// `enter` is asked before a directory is entered and before anything is listed.
pub(super) fn walk(
    top: &OwnedFd,
    limit: usize,
    wanted: &dyn Fn(&Path) -> bool,
) -> io::Result<(Vec<Found>, bool)> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        let entries = match directory_beneath(top.as_fd(), &directory) {
            Ok(entries) => Dir::new(entries)?,
            Err(error) if directory.as_os_str().is_empty() => return Err(error),
            // It cannot be read, or is no directory any more.
            Err(_) => continue,
        };
        for entry in entries {
            let Ok(entry) = entry else { continue };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let path = directory.join(OsStr::from_bytes(name));
            if !wanted(&path) {
                continue;
            }
            if found.len() == limit {
                return Ok((found, false));
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
                kind = directory_beneath(top.as_fd(), &directory)
                    .and_then(|at| Ok(rustix::fs::statat(at, entry.file_name(), flags)?))
                    .map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
            }
            if kind == FileType::Directory {
                if path.components().count() < DEPTH {
                    open.push(path);
                }
                continue;
            }
            found.push(Found { path, kind });
        }
    }
    Ok((found, true))
}
