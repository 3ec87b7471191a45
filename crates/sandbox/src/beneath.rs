//! Files beneath a root: opened without leaving it, without waiting, and looked at before use.
//!
//! Every path is resolved by the kernel with `RESOLVE_BENEATH`, so neither `..`, an absolute
//! symbolic link nor a rename in between leads out. A FIFO or device is never waited for and never
//! handed out. What changes something takes real paths only: no symbolic link on the way is
//! followed, so that whoever swaps one in after the path was looked at gets an error and not
//! another file.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{SandboxError, Step};

/// Says how a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenHow {
    /// For reading; directories too, for listing only.
    Read,
    /// For writing, and reading.
    Write {
        /// Whether it is made.
        create: Create,
        /// Whether what is in it goes.
        truncate: bool,
        /// Whether every write goes to its end.
        append: bool,
        /// Permission bits of a file that is made.
        mode: u32,
    },
}

/// Says whether a file is made when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Create {
    /// It has to be there.
    Never,
    /// It is made if it is not there.
    IfMissing,
    /// It must not be there.
    New,
}

/// Names what stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// Describes what stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Its size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Last change of its content, in nanoseconds since 1970.
    pub modified_nanoseconds: i64,
    /// The file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// How many names it has.
    pub links: u64,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl From<&Stat> for Metadata {
    #[expect(
        clippy::unnecessary_cast,
        reason = "widths differ between architectures"
    )]
    fn from(stat: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode).into(),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            modified_nanoseconds: (stat.st_mtime as i64)
                .saturating_mul(1_000_000_000)
                .saturating_add(i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            links: stat.st_nlink as u64,
            uid: stat.st_uid,
            gid: stat.st_gid,
        }
    }
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
}

/// Holds a directory beneath which files are reached.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
}

pub(crate) fn failed(path: &[u8]) -> impl Fn(Errno) -> SandboxError + '_ {
    move |errno| SandboxError::at(Step::File, path, errno.raw_os_error())
}

fn c_path(path: &[u8]) -> Result<CString, SandboxError> {
    CString::new(path).map_err(|_| failed(path)(Errno::INVAL))
}

impl Root {
    /// Opens a directory as root.
    pub fn open(path: &[u8]) -> Result<Self, SandboxError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::openat(CWD, c_path(path)?, flags, Mode::empty()).map_err(failed(path))?;
        Ok(Self { directory })
    }

    /// Resolves a path beneath the root. An empty path is the root itself.
    fn resolve(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, SandboxError> {
        self.resolve_with(path, flags, mode, ResolveFlags::NO_MAGICLINKS)
    }

    /// Resolves a path on which no symbolic link stands.
    ///
    /// # Errors
    ///
    /// `ELOOP` when one does.
    pub(crate) fn resolve_real(
        &self,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, SandboxError> {
        self.resolve_with(path, flags, mode, ResolveFlags::NO_SYMLINKS)
    }

    fn resolve_with(
        &self,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
        links: ResolveFlags,
    ) -> Result<OwnedFd, SandboxError> {
        let named = c_path(if path.is_empty() { b"." } else { path })?;
        let how = ResolveFlags::BENEATH | links;
        let mut tries = 0;
        loop {
            let flags = flags | OFlags::CLOEXEC;
            match rustix::fs::openat2(&self.directory, &named, flags, mode, how) {
                // Something was renamed while the kernel was looking; a few tries are enough unless
                // somebody does it on purpose.
                Err(Errno::AGAIN) if tries < 32 => tries += 1,
                Err(Errno::INTR) => {}
                other => return other.map_err(failed(path)),
            }
        }
    }

    /// Opens a regular file, or a directory for listing.
    ///
    /// # Errors
    ///
    /// `EXDEV` when the path leads out of the root, `ENODEV` when it is neither file nor directory.
    pub fn open_file(
        &self,
        path: &[u8],
        how: OpenHow,
    ) -> Result<(OwnedFd, Metadata), SandboxError> {
        let (flags, mode, truncate) = match how {
            OpenHow::Read => (OFlags::RDONLY, Mode::empty(), false),
            OpenHow::Write {
                create,
                truncate,
                append,
                mode,
            } => {
                let mut flags = OFlags::RDWR;
                flags.set(OFlags::CREATE, create != Create::Never);
                flags.set(OFlags::EXCL, create == Create::New);
                flags.set(OFlags::APPEND, append);
                let made = create != Create::Never;
                (
                    flags,
                    if made {
                        Mode::from_raw_mode(mode & 0o777)
                    } else {
                        Mode::empty()
                    },
                    truncate,
                )
            }
        };
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match how {
            OpenHow::Read => self.resolve(path, flags, mode)?,
            OpenHow::Write { .. } => self.resolve_real(path, flags, mode)?,
        };
        let failed = failed(path);
        let stat = rustix::fs::fstat(&file).map_err(&failed)?;
        let mut metadata = Metadata::from(&stat);
        if !matches!(metadata.kind, FileKind::File | FileKind::Directory) {
            return Err(failed(Errno::NODEV));
        }
        if truncate {
            rustix::fs::ftruncate(&file, 0).map_err(&failed)?;
            metadata.size = 0;
        }
        let status = rustix::fs::fcntl_getfl(&file).map_err(&failed)?;
        rustix::fs::fcntl_setfl(&file, status - OFlags::NONBLOCK).map_err(&failed)?;
        Ok((file, metadata))
    }

    /// Looks at what stands at a path; with `follow` at what a symbolic link there leads to.
    pub fn metadata(&self, path: &[u8], follow: bool) -> Result<Metadata, SandboxError> {
        let mut flags = OFlags::PATH;
        flags.set(OFlags::NOFOLLOW, !follow);
        let file = self.resolve(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file).map_err(failed(path))?;
        Ok(Metadata::from(&stat))
    }

    /// Lists a directory in no order, at most `limit` names; tells whether there were more.
    pub fn list(&self, path: &[u8], limit: usize) -> Result<(Vec<Entry>, bool), SandboxError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let directory = self.resolve(path, flags, Mode::empty())?;
        let failed = failed(path);
        let mut entries = Vec::new();
        for entry in Dir::new(directory).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if entries.len() == limit {
                return Ok((entries, true));
            }
            entries.push(Entry {
                name: name.to_vec(),
                kind: entry.file_type().into(),
            });
        }
        Ok((entries, false))
    }

    /// Opens the directory above a path and gives the last name.
    fn parent(&self, path: &[u8]) -> Result<(OwnedFd, CString), SandboxError> {
        let mut trimmed = path;
        while let [rest @ .., b'/'] = trimmed {
            trimmed = rest;
        }
        let cut = trimmed.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match cut {
            None => (&b"."[..], trimmed),
            // An absolute path stays one, and is refused by the kernel.
            Some(0) => (&b"/"[..], &trimmed[1..]),
            Some(cut) => (&trimmed[..cut], &trimmed[cut + 1..]),
        };
        if matches!(name, b"" | b"." | b"..") {
            return Err(failed(path)(Errno::INVAL));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok((
            self.resolve_real(above, flags, Mode::empty())?,
            c_path(name)?,
        ))
    }

    /// Makes a directory, with those above it where `parents` says so. True when it was not there.
    pub fn make_directory(
        &self,
        path: &[u8],
        mode: u32,
        parents: bool,
    ) -> Result<bool, SandboxError> {
        let make = |path: &[u8]| {
            let (above, name) = self.parent(path)?;
            rustix::fs::mkdirat(above, name, Mode::from_raw_mode(mode & 0o777))
                .map_err(failed(path))
        };
        if parents {
            for (cut, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                if cut > 0 && path[cut - 1] != b'/' {
                    match make(&path[..cut]) {
                        Err(error) if error.errno != libc::EEXIST => return Err(error),
                        _ => {}
                    }
                }
            }
        }
        match make(path) {
            Ok(()) => Ok(true),
            Err(error) if parents && error.errno == libc::EEXIST => {
                match self.metadata(path, true)?.kind {
                    FileKind::Directory => Ok(false),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a name: of a file or link, or of an empty directory where `directory` says so.
    pub fn remove(&self, path: &[u8], directory: bool) -> Result<(), SandboxError> {
        let (above, name) = self.parent(path)?;
        let flags = if directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        rustix::fs::unlinkat(above, name, flags).map_err(failed(path))
    }

    /// Renames; what has the new name already is only replaced where `replace` says so.
    pub fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<(), SandboxError> {
        let (old, old_name) = self.parent(from)?;
        let (new, new_name) = self.parent(to)?;
        let flags = if replace {
            RenameFlags::empty()
        } else {
            RenameFlags::NOREPLACE
        };
        rustix::fs::renameat_with(old, old_name, new, new_name, flags).map_err(failed(to))
    }

    /// Asks whether what stands at a path may be written, or else read. No symbolic link is followed.
    ///
    /// Permission bits and mounts decide; Landlock has no say before something is opened.
    pub fn access(&self, path: &[u8], write: bool) -> Result<(), SandboxError> {
        let file = self.resolve_real(path, OFlags::PATH, Mode::empty())?;
        let wanted = if write {
            Access::WRITE_OK
        } else {
            Access::READ_OK
        };
        let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::accessat(CWD, through, wanted, AtFlags::EACCESS).map_err(failed(path))
    }

    /// Reads where a symbolic link points.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, SandboxError> {
        let (above, name) = self.parent(path)?;
        rustix::fs::readlinkat(above, name, Vec::new())
            .map(CString::into_bytes)
            .map_err(failed(path))
    }

    /// Makes a symbolic link where nothing stands. What it says is its own affair: nothing here follows
    /// a link out of the root.
    pub fn make_link(&self, path: &[u8], target: &[u8]) -> Result<(), SandboxError> {
        let (above, name) = self.parent(path)?;
        rustix::fs::symlinkat(target, above, name).map_err(failed(path))
    }

    /// Makes a file without a name in a directory, to be filled and then given one.
    pub fn temporary(&self, directory: &[u8], mode: u32) -> Result<Temporary, SandboxError> {
        let mode = Mode::from_raw_mode(mode & 0o777);
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        match self.resolve_real(directory, flags, mode) {
            Ok(file) => Ok(Temporary { file, named: None }),
            Err(error) if matches!(error.errno, libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT) => {
                // This file system needs a name; nobody else makes one of this form.
                let mut path = directory.to_vec();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(temporary_name()?.to_bytes());
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
                let file = self.resolve_real(&path, flags, mode)?;
                Ok(Temporary {
                    file,
                    named: Some(path),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a temporary file its name, in one step for whoever looks. Gives what was replaced, whose
    /// room on the disk is free once that is dropped.
    ///
    /// # Errors
    ///
    /// `EEXIST` when the name is taken and `replace` does not allow to take it over. The temporary
    /// file is gone then.
    pub fn commit(
        &self,
        temporary: Temporary,
        path: &[u8],
        replace: bool,
    ) -> Result<Replaced, SandboxError> {
        let place = self.parent(path).map(|(above, name)| {
            let replaced = Replaced::hold(above.as_fd(), &name, replace);
            (above, name, replaced)
        });
        if let Some(named) = &temporary.named {
            let outcome = place
                .and_then(|(_, _, replaced)| self.rename(named, path, replace).map(|()| replaced));
            if outcome.is_err() {
                let _ = self.remove(named, false);
            }
            return outcome;
        }
        let (above, name, replaced) = place?;
        if !replace {
            link(&temporary.file, above.as_fd(), &name).map_err(failed(path))?;
            return Ok(replaced);
        }
        // A link cannot replace, a rename can.
        let passing = temporary_name()?;
        link(&temporary.file, above.as_fd(), &passing).map_err(failed(path))?;
        rustix::fs::renameat(&above, &passing, &above, &name).map_err(|errno| {
            let _ = rustix::fs::unlinkat(&above, &passing, AtFlags::empty());
            failed(path)(errno)
        })?;
        Ok(replaced)
    }

    /// Brings the names in a directory to the disk.
    pub fn sync(&self, directory: &[u8]) -> Result<(), SandboxError> {
        let directory = if directory.is_empty() {
            b"."
        } else {
            directory
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let file = self.resolve_real(directory, flags, Mode::empty())?;
        rustix::fs::fsync(file).map_err(failed(directory))
    }

    /// Gives a temporary file up.
    pub fn discard(&self, temporary: Temporary) {
        if let Some(named) = &temporary.named {
            // It is ours; when it is gone already, that is what is wanted.
            let _ = self.remove(named, false);
        }
    }
}

/// Bytes from which freeing a file may take longer than to start a thread.
const LARGE: i64 = 1024 * 1024;

/// Holds a file that has lost its name to another.
///
/// A file system gives the room of a file back when nobody holds it any more, and some are slow at
/// it: ext4 without a journal waits until the disk has discarded the blocks. Whoever drops this after
/// the answer does not let anybody wait for that.
#[derive(Debug)]
#[must_use = "dropping it may take as long as the disk does"]
pub struct Replaced {
    file: Option<OwnedFd>,
}

impl Replaced {
    /// Holds what stands at a name, where it is to be replaced. A file that cannot be held is freed
    /// at once, which is only slower.
    fn hold(above: BorrowedFd<'_>, name: &CString, replace: bool) -> Self {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let hold = || rustix::fs::openat(above, name, flags, Mode::empty()).ok();
        Self {
            file: replace.then(hold).flatten(),
        }
    }

    /// Whether there is so much to be freed that it may take its time.
    #[must_use]
    pub fn is_large(&self) -> bool {
        let size = |file| rustix::fs::fstat(file).map_or(0, |stat| stat.st_size);
        self.file.as_ref().is_some_and(|file| size(file) >= LARGE)
    }
}

/// Holds a file that has no name yet. Give it to [`Root::commit`] or [`Root::discard`].
#[derive(Debug)]
pub struct Temporary {
    file: OwnedFd,
    named: Option<Vec<u8>>,
}

impl AsFd for Temporary {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn link(file: &OwnedFd, above: BorrowedFd<'_>, name: &CString) -> Result<(), Errno> {
    match rustix::fs::linkat(file, c"", above, name, AtFlags::EMPTY_PATH) {
        // Older kernels want a capability for this form.
        Err(Errno::NOENT | Errno::PERM) => {
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
            rustix::fs::linkat(CWD, path, above, name, AtFlags::SYMLINK_FOLLOW)
        }
        other => other,
    }
}

fn temporary_name() -> Result<CString, SandboxError> {
    let mut random = [0u8; 12];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| SandboxError::new(Step::File, errno.raw_os_error()))?;
    let mut name = b".cofferdam-".to_vec();
    for byte in random {
        name.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    c_path(&name)
}
