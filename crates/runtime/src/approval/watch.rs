//! Whether anybody watches who could answer within seconds.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::limits;

use crate::runtime::Runtime;

/// Held by whoever watches the questions of a data directory; it ends with its process at the latest.
#[derive(Debug)]
pub struct Watching(#[expect(dead_code, reason = "its lock says that somebody watches")] File);

/// Who watches: other processes by a lock that the kernel takes back, callers by the time of their
/// last look.
#[derive(Debug)]
pub(crate) struct Watchers {
    path: PathBuf,
    looked: Mutex<Option<Instant>>,
}

impl Watchers {
    pub(crate) fn new(data_dir: &std::path::Path) -> Self {
        Self {
            path: data_dir.join("watching"),
            looked: Mutex::default(),
        }
    }

    fn open(&self) -> std::io::Result<File> {
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.path)
    }

    pub(crate) fn anybody(&self) -> bool {
        let looked = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = Duration::from_secs(limits::WATCHED_SECONDS);
        looked.is_some_and(|at| at.elapsed() < recent)
            || self
                .open()
                .is_ok_and(|file| matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)))
    }
}

impl Runtime {
    /// Says that somebody watches who can answer, for as long as what is given is kept: only then
    /// questions that wait some seconds are asked.
    ///
    /// # Errors
    ///
    /// `io`.
    pub fn watch_approvals(&self) -> Result<Watching, Problem> {
        let locked = self.watchers.open().and_then(|file| {
            file.lock_shared()?;
            Ok(file)
        });
        locked.map(Watching).map_err(|error| {
            Problem::new(
                ErrorCode::Io,
                format!("it cannot be said that somebody watches: {error}"),
            )
        })
    }

    /// Tells whether somebody who can answer watches, or has looked within the last half minute.
    pub fn approvals_are_watched(&self) -> bool {
        self.watchers.anybody()
    }

    /// Says that somebody who can answer has looked at the questions just now.
    pub fn looked_at_approvals(&self) {
        *self
            .watchers
            .looked
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}
