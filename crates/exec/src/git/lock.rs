//! One writer of ours at a time for each repository.

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_core::spec::Digest;
use rustix::fs::{FlockOperation, flock};

use super::GitError;

const PATIENCE: Duration = Duration::from_mins(1);

/// Holds the lock of a repository, by its common directory; given back when dropped.
///
/// git itself is safe against several writers of references; this keeps our own from running into
/// each other's lock files, in this process and in others.
#[derive(Debug)]
pub(crate) struct RepositoryLock {
    _file: File,
}

impl RepositoryLock {
    /// Waits for the lock, a minute at most.
    pub(crate) fn take(locks: &Path, common_dir: &Path) -> Result<Self, GitError> {
        let name = Digest::sha256(common_dir.as_os_str().as_bytes());
        let path = locks.join(&name.as_str()[..32]);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(|source| GitError::LockFile {
                path: path.clone(),
                source,
            })?;
        let begin = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    return Err(GitError::LockFile {
                        path,
                        source: errno.into(),
                    });
                }
            }
            if begin.elapsed() > PATIENCE {
                return Err(GitError::Locked {
                    path,
                    seconds: PATIENCE.as_secs(),
                });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(16));
        }
    }
}
