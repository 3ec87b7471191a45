use std::io;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};

/// Says why a journal could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file is no journal, or its bytes were changed.
    #[error("the journal {} is damaged: {detail}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found, with the position where it is known.
        detail: String,
    },
    /// Another program holds the journal and does not let go.
    #[error("the journal {} is locked by another program", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A newer version wrote the journal; it can be read and not written.
    #[error("the journal {} has format {found}, this version knows up to {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: u32,
        /// The newest format that this version writes.
        known: u32,
    },
    /// The data directory lies on a file system where locks cannot be trusted.
    #[error("the data directory {} lies on a network file system ({kind})", path.display())]
    NetworkFs {
        /// The directory.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// No room is left.
    #[error("no room is left at {}", path.display())]
    StorageExhausted {
        /// The file or directory.
        path: PathBuf,
    },
    /// The journal was opened for reading, or cannot be written here.
    #[error("the journal {} is open for reading only", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The data directory belongs to somebody else, or is open to others.
    #[error("the data directory {} is refused: {why}", path.display())]
    DataDirRefused {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A line of an import is wrong; nothing was imported.
    #[error("line {line} of the import is wrong: {why}")]
    Import {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A body that the content store should hold is not there.
    #[error("the content {digest} is not there")]
    ContentMissing {
        /// The digest, in hexadecimal.
        digest: String,
    },
    /// An operation of the system failed.
    #[error("could not {step} {}: {source}", path.display())]
    Io {
        /// What was tried, a verb.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database refused an operation.
    #[error("could not {step} {}: {detail}", path.display())]
    Database {
        /// What was tried, a verb.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// What the database said.
        detail: String,
    },
}

impl JournalError {
    /// Gives the stable code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Corrupt { .. } => ErrorCode::JournalCorrupt,
            Self::Locked { .. } => ErrorCode::JournalLocked,
            Self::Newer { .. } => ErrorCode::JournalNewer,
            Self::NetworkFs { .. } => ErrorCode::JournalNetworkFs,
            Self::StorageExhausted { .. } => ErrorCode::StorageExhausted,
            Self::DataDirRefused { .. } => ErrorCode::DataDirRefused,
            Self::Import { .. } => ErrorCode::InvalidRequest,
            Self::ContentMissing { .. } => ErrorCode::NoSuchResource,
            Self::ReadOnly { .. } | Self::Io { .. } | Self::Database { .. } => ErrorCode::JournalIo,
        }
    }

    /// Gives what to do about it, where there is something.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Corrupt { .. } => Some(
                "see `cofferdam journal verify`; move the data directory away to begin a new journal",
            ),
            Self::Locked { .. } => {
                Some("end the program that holds it; `fuser` on the file names it")
            }
            Self::Newer { .. } => Some(
                "use the version of cofferdam that wrote it, or another data directory (COFFERDAM_DATA_DIR)",
            ),
            Self::NetworkFs { .. } => Some("set COFFERDAM_DATA_DIR to a directory on a local disk"),
            Self::StorageExhausted { .. } => Some("make room, or set COFFERDAM_DATA_DIR elsewhere"),
            Self::DataDirRefused { .. } => {
                Some("the data directory must belong to you and have mode 0700")
            }
            _ => None,
        }
    }

    /// Tells the failure in the common shape.
    pub fn to_problem(&self) -> Problem {
        let problem = Problem::new(self.code(), self.to_string());
        match self.hint() {
            Some(hint) => problem.with_hint(hint),
            None => problem,
        }
    }

    /// Sorts a failure of the system by what it means.
    pub(crate) fn from_io(step: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        ) {
            return Self::StorageExhausted { path };
        }
        Self::Io { step, path, source }
    }

    /// Sorts a failure of the database by what it means.
    pub(crate) fn from_sqlite(step: &'static str, path: &Path, error: &rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        let path = path.to_owned();
        let detail = error.to_string();
        match error.sqlite_error_code() {
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => Self::Corrupt { path, detail },
            Some(Code::DatabaseBusy | Code::DatabaseLocked | Code::FileLockingProtocolFailed) => {
                Self::Locked { path }
            }
            Some(Code::DiskFull) => Self::StorageExhausted { path },
            Some(Code::ReadOnly) => Self::ReadOnly { path },
            _ => Self::Database { step, path, detail },
        }
    }
}
