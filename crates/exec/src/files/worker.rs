//! Workers that serve files behind the walls: one per root, started when it is first needed, ended
//! and replaced when it does not answer in time.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_keeper::{FileReply, FileRequest};
use cofferdam_sandbox::SandboxError;
use rustix::io::Errno;

use crate::backend::Backend;

/// Why a worker did not do what it was asked.
#[derive(Debug)]
pub(crate) enum FileFault {
    /// It tried, and the kernel refused.
    Refused(SandboxError),
    /// It is gone, or said something that makes no sense.
    Lost(String),
    /// It did not answer in time, and was ended.
    TooLate,
}

/// Something that serves files beneath one root.
pub(crate) trait FileWorker: Debug + Send {
    /// Asks, waits for the answer at most so long, and gives it with the file that comes with it.
    ///
    /// # Errors
    ///
    /// `Refused` leaves the worker as it was; after any other it is of no use any more.
    fn call(
        &mut self,
        request: &FileRequest,
        limit: Duration,
    ) -> Result<(FileReply, Option<OwnedFd>), FileFault>;
}

impl FileFault {
    /// Tells it, about a path, to whoever asked.
    pub(crate) fn to_problem(&self, path: &BytePath) -> Problem {
        match self {
            Self::Refused(error) => refused(path, error.errno),
            Self::Lost(why) => Problem::new(
                ErrorCode::EnclosureLost,
                format!("nobody behind the walls serves {path}: {why}"),
            )
            .with_hint("ask again: a new worker is started"),
            Self::TooLate => Problem::new(
                ErrorCode::FileTimeout,
                format!("{path} did not answer in time"),
            )
            .with_hint("the disk or a mounted file system hangs; what was asked for was not done"),
        }
    }

    /// Tells whether the kernel refused with this number.
    pub(crate) fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Refused(error) if error.errno == errno.raw_os_error())
    }
}

/// Gives the code and the words for what the kernel said about a path.
pub(crate) fn refused(path: &BytePath, errno: i32) -> Problem {
    let error = Errno::from_raw_os_error(errno);
    let said = std::io::Error::from(error);
    let problem = |code, text: String| Problem::new(code, text).with_field("path");
    match error {
        Errno::NOENT => problem(ErrorCode::FileMissing, format!("{path} does not exist")),
        Errno::XDEV | Errno::LOOP => problem(
            ErrorCode::PathOutside,
            format!("{path} leads out of the workspace, or over a link that does"),
        ),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => problem(
            ErrorCode::Denied,
            format!("the walls do not allow this with {path}: {said}"),
        ),
        Errno::EXIST => problem(ErrorCode::FileExists, format!("{path} exists already")),
        Errno::ISDIR => problem(ErrorCode::NotAFile, format!("{path} is a folder")),
        Errno::NODEV => problem(
            ErrorCode::NotAFile,
            format!("{path} is neither a file nor a folder"),
        ),
        Errno::NOTDIR => problem(
            ErrorCode::NotAFolder,
            format!("something on the way of {path} is no folder"),
        ),
        Errno::NOTEMPTY => problem(ErrorCode::FolderNotEmpty, format!("{path} is not empty"))
            .with_hint("`recursive` takes what is in it along"),
        Errno::NOSPC | Errno::DQUOT => problem(
            ErrorCode::StorageExhausted,
            format!("no room is left for {path}"),
        ),
        Errno::NAMETOOLONG | Errno::INVAL => problem(
            ErrorCode::InvalidRequest,
            format!("{path} is no path that can be used: {said}"),
        ),
        _ => problem(ErrorCode::Io, format!("{path}: {said}")),
    }
}

pub(super) fn odd(reply: &FileReply) -> Problem {
    Problem::new(
        ErrorCode::Internal,
        format!("a file worker gave an answer to another question: {reply:?}"),
    )
}

type Slot = Arc<Mutex<Option<Box<dyn FileWorker>>>>;

/// The workers of one enclosure, by their roots.
#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<BTreeMap<BytePath, Slot>>);

impl Workers {
    /// Gives the worker of a root, and starts it where there is none.
    pub(super) fn of_root(
        &self,
        backend: &dyn Backend,
        root: &BytePath,
    ) -> Result<Worker, Problem> {
        let slot = Arc::clone(lock(&self.0).entry(root.clone()).or_default());
        {
            let mut held = lock(&slot);
            if held.is_none() {
                *held = Some(backend.file_worker(root)?);
            }
        }
        Ok(Worker(slot))
    }
}

/// A worker of an enclosure; requests of several threads take turns.
#[derive(Debug)]
pub(super) struct Worker(Slot);

impl Worker {
    pub(super) fn call(
        &self,
        request: &FileRequest,
        limit: Duration,
    ) -> Result<(FileReply, Option<OwnedFd>), FileFault> {
        let mut held = lock(&self.0);
        let Some(worker) = held.as_mut() else {
            return Err(FileFault::Lost("it has just ended".to_owned()));
        };
        let outcome = worker.call(request, limit);
        if matches!(outcome, Err(FileFault::Lost(_) | FileFault::TooLate)) {
            *held = None;
        }
        outcome
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
