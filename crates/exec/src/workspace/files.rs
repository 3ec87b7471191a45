//! File operations that never follow a link out of the directory they work in.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RawDir, ResolveFlags, fchmod, ioctl_ficlone, mkdirat,
    openat, openat2, statat, unlinkat,
};

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Opens a directory, which may not be a link itself.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(rustix::fs::CWD, path, flags, Mode::empty())?)
}

/// Opens a regular file below a directory for reading, no link on the way.
pub(crate) fn open_beneath(top: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(openat2(top, path, flags, Mode::empty(), BENEATH)?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

/// Lists the names in a folder below a directory, no link on the way.
pub(crate) fn names_beneath(
    top: BorrowedFd<'_>,
    path: &Path,
) -> io::Result<Vec<std::ffi::OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    names(&openat2(top, path, flags, Mode::empty(), BENEATH)?)
}

/// Removes a file from a folder below a directory, no link on the way.
pub(crate) fn remove_beneath(top: BorrowedFd<'_>, path: &Path, name: &OsStr) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat2(top, path, flags, Mode::empty(), BENEATH)?;
    Ok(unlinkat(&folder, name, AtFlags::empty())?)
}

/// Whether something, whatever it is, stands at a path below a directory.
pub(crate) fn exists_beneath(top: BorrowedFd<'_>, path: &Path) -> bool {
    let (parent, Some(name)) = (path.parent(), path.file_name()) else {
        return false;
    };
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = match parent {
        Some(parent) => openat2(top, parent, flags, Mode::empty(), BENEATH),
        None => top
            .try_clone_to_owned()
            .map_err(|_| rustix::io::Errno::MFILE),
    };
    directory.is_ok_and(|directory| statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}

/// Makes the directories that lead to a path below a directory, and opens the last one.
fn parent_beneath(top: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let mut here = top.try_clone_to_owned()?;
    for component in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(name) = component else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a plain path",
            ));
        };
        match mkdirat(&here, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        here = openat(&here, name, flags, Mode::empty())?;
    }
    Ok(here)
}

/// What was copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied {
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: i64,
}

/// Copies a regular file from below one directory to below another, where nothing may stand yet.
///
/// Shares the blocks where the file system can.
pub(crate) fn copy_beneath(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    path: &Path,
) -> io::Result<Copied> {
    let mut source = open_beneath(from, path)?;
    let metadata = source.metadata()?;
    let name = path.file_name().unwrap_or_else(|| OsStr::from_bytes(b""));
    let parent = parent_beneath(to, path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(metadata.mode() & 0o777);
    let mut target = File::from(openat(&parent, name, flags, mode)?);
    let copied = ioctl_ficlone(&target, &source)
        .map_err(io::Error::from)
        .or_else(|_| io::copy(&mut source, &mut target).map(drop))
        .and_then(|()| Ok(fchmod(&target, mode)?));
    if let Err(error) = copied {
        let _ = unlinkat(&parent, name, AtFlags::empty());
        return Err(error);
    }
    let written = target.metadata()?;
    Ok(Copied {
        size: written.len(),
        modified: nanoseconds(&written),
    })
}

/// Gives the modification time in nanoseconds since 1970.
pub(crate) fn nanoseconds(metadata: &std::fs::Metadata) -> i64 {
    metadata
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(metadata.mtime_nsec())
}

/// Removes a directory and everything below it, following nothing, staying on its file system.
///
/// Directories without permissions are opened up first, as they are to go anyway. Gives how many
/// things are left.
pub(crate) fn remove_tree(path: &Path) -> io::Result<u64> {
    let Some((parent, name)) = path.parent().zip(path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "no directory to remove",
        ));
    };
    let parent = match open_directory(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let stat = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => return Ok(0),
        other => other?,
    };
    Ok(remove_below(parent.as_fd(), name, stat.st_dev))
}

fn remove_below(parent: BorrowedFd<'_>, name: &OsStr, device: u64) -> u64 {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => return 0,
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
        Err(_) => return 1,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(parent, name, flags, Mode::empty()).or_else(|_| {
        open_up(parent, name)?;
        openat(parent, name, flags, Mode::empty())
    });
    let Ok(directory) = opened else { return 1 };
    // A mount that somebody made in there is not ours to empty.
    let Ok(stat) = rustix::fs::fstat(&directory) else {
        return 1;
    };
    if stat.st_dev != device {
        return 1;
    }
    if stat.st_mode & 0o700 != 0o700 {
        let _ = fchmod(&directory, Mode::from_raw_mode(0o700));
    }
    let mut left = 0;
    if let Ok(names) = names(&directory) {
        for name in names {
            left += remove_below(directory.as_fd(), &name, device);
        }
    } else {
        left += 1;
    }
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => 0,
        Err(_) => left.max(1),
    }
}

/// Gives the owner every permission on a directory that cannot be opened.
fn open_up(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(rustix::io::Errno::NOTDIR);
    }
    rustix::fs::chmodat(parent, name, Mode::from_raw_mode(0o700), AtFlags::empty())
}

fn names(directory: &OwnedFd) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_os_string());
        }
    }
    Ok(names)
}

/// Whether a directory holds nothing but the given name.
pub(crate) fn holds_more_than(path: &Path, name: &str) -> io::Result<bool> {
    let directory = open_directory(path)?;
    let mut buffer = Vec::with_capacity(4096);
    let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let own = entry.file_name().to_bytes();
        if own != b"." && own != b".." && own != name.as_bytes() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes a file anew by way of a temporary one beside it.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(".new");
    std::fs::write(&temporary, bytes)?;
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn removal_follows_no_link_and_opens_closed_directories() {
        let top = tempfile::tempdir().unwrap();
        let outside = top.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("keep"), "k").unwrap();
        let tree = top.path().join("tree");
        std::fs::create_dir_all(tree.join("closed/deep")).unwrap();
        std::fs::write(tree.join("closed/deep/file"), "f").unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        let closed = tree.join("closed");
        std::fs::set_permissions(closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(remove_tree(&tree).unwrap(), 0);
        assert!(!tree.exists());
        assert!(outside.join("keep").exists());
        assert_eq!(remove_tree(&tree).unwrap(), 0);
    }

    #[test]
    fn copies_go_neither_over_something_nor_through_a_link() {
        let top = tempfile::tempdir().unwrap();
        let (from, to) = (top.path().join("from"), top.path().join("to"));
        std::fs::create_dir_all(from.join("d")).unwrap();
        std::fs::create_dir(&to).unwrap();
        std::fs::write(from.join("d/f"), "new").unwrap();
        symlink("/etc/hostname", from.join("link")).unwrap();
        let (from_fd, to_fd) = (open_directory(&from).unwrap(), open_directory(&to).unwrap());
        let copy = |path: &str| copy_beneath(from_fd.as_fd(), to_fd.as_fd(), Path::new(path));
        assert_eq!(copy("d/f").unwrap().size, 3);
        assert_eq!(
            copy("d/f").unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert!(copy("link").is_err());
        assert!(copy("../from/d/f").is_err());
        std::fs::remove_dir_all(to.join("d")).unwrap();
        symlink(top.path(), to.join("d")).unwrap();
        assert!(copy("d/f").is_err());
        assert!(!top.path().join("f").exists());
    }
}
