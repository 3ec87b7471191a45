//! Watches for the host replacing a file over which a read-only mount lies.
//!
//! A mount on a single file vanishes with the file: when the host's own `git config` puts a new file
//! in its place, the command could write it. So the directory above each such file is watched; a
//! replacement ends the enclosure, which is then put up again with the new file under its mount.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::{Enforce, Mount, ProtectedState, Protection};
use rustix::fs::inotify;

/// One watched file and which file it was.
#[derive(Debug)]
struct Watched {
    path: BytePath,
    inode: (u64, u64),
}

/// Watches the protected single files of one enclosure.
#[derive(Debug)]
pub(crate) struct Guard {
    inotify: OwnedFd,
    watched: Vec<Watched>,
    tripped: OnceLock<BytePath>,
}

impl Guard {
    /// Begins to watch; `None` when no mount lies over a single protected file.
    pub(crate) fn new(
        protections: &[Protection],
        mounts: &[Mount],
    ) -> Result<Option<Self>, Problem> {
        let held = |protection: &&Protection| {
            protection.enforce == Enforce::Prevent
                && protection.state == ProtectedState::File
                && mounts.iter().any(|mount| {
                    matches!(mount, Mount::Bind { source, .. } if *source == protection.path)
                })
        };
        let files: Vec<_> = protections.iter().filter(held).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let failed = |path: &BytePath, error: rustix::io::Errno| {
            Problem::new(ErrorCode::Io, format!("cannot watch {path}: {error}"))
                .with_hint("raise fs.inotify.max_user_instances and max_user_watches")
        };
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
            .map_err(|error| failed(&files[0].path, error))?;
        let mut watched = Vec::with_capacity(files.len());
        for protection in files {
            let Some(parent) = protection.path.parent() else {
                continue;
            };
            let flags = inotify::WatchFlags::MOVED_TO
                | inotify::WatchFlags::MOVED_FROM
                | inotify::WatchFlags::CREATE
                | inotify::WatchFlags::DELETE
                | inotify::WatchFlags::ONLYDIR;
            inotify::add_watch(&inotify, parent.as_path(), flags)
                .map_err(|error| failed(&parent, error))?;
            watched.push(Watched {
                path: protection.path.clone(),
                inode: inode(&protection.path).map_err(|error| failed(&protection.path, error))?,
            });
        }
        Ok(Some(Self {
            inotify,
            watched,
            tripped: OnceLock::new(),
        }))
    }

    /// Looks whether a file was replaced since; what it says stays so.
    pub(crate) fn look(&self) -> Option<Problem> {
        let mut buffer = [const { MaybeUninit::uninit() }; 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut something = false;
        while reader.next().is_ok() {
            something = true;
        }
        if something && self.tripped.get().is_none() {
            let replaced = self
                .watched
                .iter()
                .find(|file| inode(&file.path) != Ok(file.inode));
            if let Some(file) = replaced {
                let _ = self.tripped.set(file.path.clone());
            }
        }
        self.tripped.get().map(|path| {
            Problem::new(
                ErrorCode::EnclosureLost,
                format!("{path} was replaced on the host, which takes the wall over it away"),
            )
            .with_hint("run the command again: the enclosure is put up anew")
        })
    }

    pub(crate) fn is_tripped(&self) -> bool {
        self.tripped.get().is_some()
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn inode(path: &BytePath) -> rustix::io::Result<(u64, u64)> {
    let stat = rustix::fs::lstat(path.as_path())?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::spec::Access;

    #[test]
    fn a_replaced_file_trips_and_others_do_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("config");
        std::fs::write(&config, "a").expect("written");
        let path = BytePath::from(config.as_path());
        let protection = Protection {
            path: path.clone(),
            state: ProtectedState::File,
            enforce: Enforce::Prevent,
            rule: "git config".to_owned(),
        };
        let mount = Mount::Bind {
            source: path.clone(),
            target: path,
            access: Access::Read,
            optional: false,
        };
        let guard = Guard::new(&[protection], &[mount])
            .expect("watched")
            .expect("a file");
        std::fs::write(directory.path().join("other"), "b").expect("written");
        assert_eq!(guard.look(), None);
        let new = directory.path().join("config.lock");
        std::fs::write(&new, "c").expect("written");
        std::fs::rename(&new, &config).expect("renamed");
        assert_eq!(
            guard.look().map(|problem| problem.code),
            Some(ErrorCode::EnclosureLost)
        );
        assert!(guard.is_tripped());
    }
}
