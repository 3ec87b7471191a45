//! Watches for the host replacing a file or a directory over which a read-only mount lies.
//!
//! A mount vanishes with what it lies on: when the host's own `git config` puts a new file in its
//! place, or somebody a new `.git/hooks`, the command could write it. A replacement therefore ends
//! the enclosure, which is then put up again with what is new under its mount.
//!
//! Which file it is gets compared before and after every command. The directories are watched only
//! while a command runs for longer than a moment: giving a watch back costs ten milliseconds and
//! more, as much as a whole short run.

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
    watched: Vec<Watched>,
    inotify: OnceLock<Option<OwnedFd>>,
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
                && matches!(
                    protection.state,
                    ProtectedState::File | ProtectedState::Directory
                )
                && mounts.iter().any(|mount| {
                    matches!(mount, Mount::Bind { source, .. } if *source == protection.path)
                })
        };
        let watched: Vec<_> = protections
            .iter()
            .filter(held)
            .map(|protection| {
                let path = protection.path.clone();
                inode(&path)
                    .map(|inode| Watched { path, inode })
                    .map_err(|error| {
                        let path = &protection.path;
                        Problem::new(ErrorCode::Io, format!("cannot look at {path}: {error}"))
                    })
            })
            .collect::<Result<_, _>>()?;
        Ok((!watched.is_empty()).then(|| Self {
            watched,
            inotify: OnceLock::new(),
            tripped: OnceLock::new(),
        }))
    }

    /// Asks the kernel to tell of replacements from now on. Where it has no watches left, they are
    /// found when the command has ended.
    pub(crate) fn arm(&self) {
        self.inotify.get_or_init(|| self.watch().ok());
    }

    fn watch(&self) -> rustix::io::Result<OwnedFd> {
        let inotify =
            inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let flags = inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MOVED_FROM
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::ONLYDIR;
        for file in &self.watched {
            if let Some(parent) = file.path.parent() {
                inotify::add_watch(&inotify, parent.as_path(), flags)?;
            }
        }
        Ok(inotify)
    }

    /// Lends what becomes readable at a replacement, once it is armed.
    pub(crate) fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.get()?.as_ref().map(AsFd::as_fd)
    }

    /// Looks whether a file was replaced; what it says stays so.
    pub(crate) fn look(&self) -> Option<Problem> {
        if let Some(inotify) = self.wake() {
            let mut buffer = [const { MaybeUninit::uninit() }; 4096];
            let mut reader = inotify::Reader::new(inotify, &mut buffer);
            while reader.next().is_ok() {}
        }
        if self.tripped.get().is_none() {
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
        guard.arm();
        let new = directory.path().join("config.lock");
        std::fs::write(&new, "c").expect("written");
        std::fs::rename(&new, &config).expect("renamed");
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            guard.wake().expect("armed"),
            rustix::event::PollFlags::IN,
        )];
        let ready = rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default()));
        assert_eq!(ready, Ok(1));
        assert_eq!(
            guard.look().map(|problem| problem.code),
            Some(ErrorCode::EnclosureLost)
        );
        assert!(guard.is_tripped());
    }

    #[test]
    fn a_replaced_directory_trips() {
        let directory = tempfile::tempdir().expect("a directory");
        let hooks = directory.path().join("hooks");
        std::fs::create_dir(&hooks).expect("made");
        let path = BytePath::from(hooks.as_path());
        let protection = Protection {
            path: path.clone(),
            state: ProtectedState::Directory,
            enforce: Enforce::Prevent,
            rule: "git hooks".to_owned(),
        };
        let mount = Mount::Bind {
            source: path.clone(),
            target: path,
            access: Access::Read,
            optional: false,
        };
        let guard = Guard::new(&[protection], &[mount])
            .expect("watched")
            .expect("a directory");
        std::fs::write(hooks.join("inside"), "a").expect("written");
        assert_eq!(guard.look(), None);
        std::fs::rename(&hooks, directory.path().join("old")).expect("renamed");
        std::fs::create_dir(&hooks).expect("made");
        assert!(guard.look().is_some());
    }
}
