use std::path::{Path, PathBuf};

use crate::error::JournalError;
use crate::platform;

/// The directory that holds everything Cofferdam keeps for one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    path: PathBuf,
}

impl DataDir {
    /// Makes the directory with mode 0700 where it is not, and refuses one that belongs to somebody
    /// else, that others may enter, or that lies on a network file system.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        platform::create_private_directory(&path)
            .map_err(|source| JournalError::from_io("create", &path, source))?;
        let fault = platform::directory_fault(&path)
            .map_err(|source| JournalError::from_io("look at", &path, source))?;
        if let Some(why) = fault {
            return Err(JournalError::DataDirRefused { path, why });
        }
        if let Some(kind) = platform::network_file_system(&path) {
            return Err(JournalError::NetworkFs { path, kind });
        }
        Ok(Self { path })
    }

    /// Gives the directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file of the journal.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal.db")
    }

    /// Gives the directory of the content store.
    pub fn content(&self) -> PathBuf {
        self.path.join("content")
    }

    /// Gives the directory of leases.
    pub fn leases(&self) -> PathBuf {
        self.path.join("leases")
    }
}
