//! Directories opened component by component, never through a link.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

use cofferdam_core::bytes::BytePath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::kept::note_origin;

/// How far a path could be followed.
pub(super) struct Walked {
    /// The directory reached.
    pub(super) directory: Rc<OwnedFd>,
    /// The component below it that is the last one, or the one that stopped the walk.
    pub(super) name: Vec<u8>,
    /// Number of components that were directories.
    pub(super) depth: usize,
    /// Whether `name` is the last component.
    pub(super) complete: bool,
}

fn directory_flags() -> OFlags {
    OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC
}

/// Walks down absolute paths; remembers the directories on the way to the last one, since protected
/// names stand close to each other.
#[derive(Default)]
pub(super) struct Walker {
    /// The components of the last path, each with its directory.
    way: Vec<(Vec<u8>, Rc<OwnedFd>)>,
    root: Option<Rc<OwnedFd>>,
}

impl Walker {
    /// Walks down a path; stops at what is no directory.
    pub(super) fn walk(&mut self, path: &BytePath) -> Result<Walked, Errno> {
        let components: Vec<&[u8]> = path
            .as_bytes()
            .split(|byte| *byte == b'/')
            .filter(|piece| !piece.is_empty())
            .collect();
        let Some((last, above)) = components.split_last() else {
            return Err(Errno::INVAL);
        };
        let known = self
            .way
            .iter()
            .zip(above)
            .take_while(|((name, _), wanted)| name == *wanted)
            .count();
        self.way.truncate(known);
        let mut directory = match (self.way.last(), &self.root) {
            (Some((_, directory)), _) | (None, Some(directory)) => Rc::clone(directory),
            (None, None) => {
                let root = rustix::fs::openat(CWD, "/", directory_flags(), Mode::empty())?;
                Rc::clone(self.root.insert(Rc::new(root)))
            }
        };
        for (depth, component) in above.iter().enumerate().skip(known) {
            match rustix::fs::openat(&*directory, *component, directory_flags(), Mode::empty()) {
                Ok(next) => {
                    directory = Rc::new(next);
                    self.way.push((component.to_vec(), Rc::clone(&directory)));
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    let name = component.to_vec();
                    return Ok(Walked {
                        directory,
                        name,
                        depth,
                        complete: false,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Walked {
            directory,
            name: last.to_vec(),
            depth: above.len(),
            complete: true,
        })
    }

    /// Forgets the way: something on it was changed.
    pub(super) fn forget(&mut self) {
        self.way.clear();
    }
}

/// Opens a directory below another, not through a link.
pub(super) fn open_directory(at: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, name, directory_flags(), Mode::empty())
}

/// Lists the names of an open directory, sorted, at most `limit` of them.
pub(super) fn names(directory: impl AsFd, limit: usize) -> Result<Vec<Vec<u8>>, Errno> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            if found.len() == limit {
                return Err(Errno::OVERFLOW);
            }
            found.push(name.to_vec());
        }
    }
    found.sort();
    Ok(found)
}

/// Moves something into a quarantine directory under a name of its own; on another file system it
/// is copied as far as that is sensible, then removed.
pub(super) fn quarantine(
    from: impl AsFd,
    name: &[u8],
    quarantine: &std::path::Path,
    number: usize,
) -> Result<(), Errno> {
    std::fs::create_dir_all(quarantine).map_err(|error| errno(&error))?;
    let target = rustix::fs::openat(
        CWD,
        quarantine,
        OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut to = format!("{number}-").into_bytes();
    to.extend_from_slice(name);
    let stood = std::fs::read_link(format!("/proc/self/fd/{}", from.as_fd().as_raw_fd()));
    if let Ok(stood) = stood {
        let path = stood.join(std::ffi::OsStr::from_bytes(name));
        note_origin(quarantine, &number.to_string(), path.as_os_str().as_bytes());
    }
    match rustix::fs::renameat_with(&from, name, &target, &*to, RenameFlags::NOREPLACE) {
        Err(Errno::XDEV | Errno::INVAL | Errno::ACCESS | Errno::PERM) => {
            let _ = copy_file(from.as_fd(), name, target.as_fd(), &to);
            remove(from, name)
        }
        other => other,
    }
}

fn copy_file(from: impl AsFd, name: &[u8], target: impl AsFd, to: &[u8]) -> Result<(), Errno> {
    use std::io::Read as _;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let source = rustix::fs::openat(from, name, flags, Mode::empty())?;
    if !rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode).is_file() {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let copy = rustix::fs::openat(target, to, flags, Mode::RUSR | Mode::WUSR)?;
    let mut source = std::fs::File::from(source).take(super::FILE_BYTES);
    std::io::copy(&mut source, &mut std::fs::File::from(copy))
        .map(|_| ())
        .map_err(|error| errno(&error))
}

/// Removes a file, link or whole directory without following anything.
pub(super) fn remove(at: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(&at, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other,
    }
    let directory = open_directory(&at, name)?;
    for inner in names(&directory, usize::MAX)? {
        remove(&directory, &inner)?;
    }
    rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR)
}

pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Reads where a link points.
pub(super) fn read_link(at: impl AsFd, name: &[u8]) -> Result<BytePath, Errno> {
    rustix::fs::readlinkat(at, name, Vec::new())
        .map(|target| BytePath::from(std::ffi::OsStr::from_bytes(target.to_bytes())))
}
