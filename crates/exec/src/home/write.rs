//! Writing into a real home: whole files only, each in one step, no link followed.

use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use cofferdam_core::spec::Identity;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, ioctl_ficlone, mkdirat, openat,
    renameat_with, unlinkat,
};

use super::files::open_directory;

/// What a file is to hold.
pub(super) enum Content<'a> {
    /// What another file holds.
    File(&'a File),
    /// These bytes.
    Bytes(&'a [u8]),
}

/// A file that is to stand somewhere.
pub(super) struct NewFile<'a> {
    pub(super) content: Content<'a>,
    pub(super) mode: u32,
    pub(super) modified: Option<SystemTime>,
    /// Whether it may take the place of another one.
    pub(super) replace: bool,
    pub(super) owner: Option<&'a Identity>,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

fn give(fd: BorrowedFd<'_>, owner: Option<&Identity>) -> io::Result<()> {
    if let Some(owner) = owner {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        fchown(fd, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Opens a directory, and makes it and what leads to it where it is not there.
fn make_top(path: &Path, owner: Option<&Identity>) -> io::Result<OwnedFd> {
    match open_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            let parent = make_top(parent, owner)?;
            enter(&parent, name, owner)
        }
        other => other,
    }
}

/// Enters a directory, and makes it where it is not there.
fn enter(at: &OwnedFd, name: &OsStr, owner: Option<&Identity>) -> io::Result<OwnedFd> {
    let is_new = match mkdirat(at, name, Mode::RWXU) {
        Ok(()) => true,
        Err(rustix::io::Errno::EXIST) => false,
        Err(errno) => return Err(errno.into()),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entered = openat(at, name, flags, Mode::empty())?;
    if is_new {
        give(entered.as_fd(), owner)?;
    }
    Ok(entered)
}

/// Opens the directory in which a path below `top` stands, and gives the last part of the path.
pub(super) fn parent(
    top: &Path,
    path: &Path,
    owner: Option<&Identity>,
) -> io::Result<(OwnedFd, OsString)> {
    let plain = || io::Error::new(io::ErrorKind::InvalidInput, "not a plain path");
    let name = path.file_name().ok_or_else(plain)?;
    let mut here = make_top(top, owner)?;
    for component in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(name) = component else {
            return Err(plain());
        };
        here = enter(&here, name, owner)?;
    }
    Ok((here, name.to_owned()))
}

/// Puts a file below a directory, in one step.
pub(super) fn put(top: &Path, path: &Path, new: &NewFile<'_>) -> io::Result<()> {
    let (at, name) = parent(top, path, new.owner)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let unfinished = format!(".cofferdam-{}-{number}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(openat(&at, &unfinished, flags, Mode::RUSR | Mode::WUSR)?);
    let written = fill(&mut file, new).and_then(|()| {
        let flags = if new.replace {
            RenameFlags::empty()
        } else {
            RenameFlags::NOREPLACE
        };
        Ok(renameat_with(&at, &unfinished, &at, &name, flags)?)
    });
    if written.is_err() {
        let _ = unlinkat(&at, &unfinished, AtFlags::empty());
    }
    written
}

fn fill(file: &mut File, new: &NewFile<'_>) -> io::Result<()> {
    match new.content {
        Content::Bytes(bytes) => file.write_all(bytes)?,
        Content::File(source) => copy(source, file)?,
    }
    fchmod(&*file, Mode::from_raw_mode(new.mode & 0o777))?;
    give(file.as_fd(), new.owner)?;
    if let Some(modified) = new.modified {
        file.set_times(FileTimes::new().set_modified(modified))?;
    }
    Ok(())
}

/// Copies a whole file, sharing the blocks where the file system can.
pub(super) fn copy(source: &File, target: &mut File) -> io::Result<()> {
    if ioctl_ficlone(&*target, source).is_ok() {
        return Ok(());
    }
    let mut source = source;
    io::Seek::seek(&mut source, io::SeekFrom::Start(0))?;
    io::copy(&mut source, target).map(drop)
}

/// Removes a file below a directory; one that is not there is as good.
pub(super) fn remove(top: &Path, path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let at = match open_directory(top)
        .and_then(|top| super::files::directory_beneath(top.as_fd(), directory))
    {
        Ok(at) => at,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let name = path.file_name().unwrap_or_default();
    match unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads a file whole, up to a limit; `None` where it is larger.
pub(super) fn read_whole(file: &File, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut reader = file;
    io::Seek::seek(&mut reader, io::SeekFrom::Start(0))?;
    reader.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// Holds the lock that merges into one home take one after the other.
pub(super) fn merge_lock(homes: &Path, real: &Path) -> io::Result<File> {
    use std::os::unix::ffi::OsStrExt as _;
    let digest = cofferdam_core::spec::Digest::sha256(real.as_os_str().as_bytes());
    let path: PathBuf = homes.join(format!("{}.lock", &digest.as_str()[..16]));
    let file = match File::options().create(true).append(true).open(&path) {
        // One that somebody else made does as well.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(&path)?,
        other => other?,
    };
    file.lock()?;
    Ok(file)
}
