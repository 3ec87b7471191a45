//! Small files and directories of the owner's in the data directory, which nothing inside reaches.

use std::io;
use std::path::Path;

use cofferdam_core::error::{ErrorCode, Problem};

use crate::workspace::replace_file;

fn failed(path: &Path, error: &io::Error) -> Problem {
    Problem::new(
        ErrorCode::Io,
        format!("{} cannot be written: {error}", path.display()),
    )
}

/// Writes a file anew, with the directory above it; it is there before or after, never half.
///
/// # Errors
///
/// `io`.
pub fn keep_own_file(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let above = path.parent().unwrap_or(path);
    std::fs::create_dir_all(above)
        .and_then(|()| replace_file(path, bytes))
        .map_err(|error| failed(path, &error))
}

/// Removes a file; one that is not there is gone already.
///
/// # Errors
///
/// `io`.
pub fn drop_own_file(path: &Path) -> Result<(), Problem> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, &error)),
        _ => Ok(()),
    }
}

/// An empty directory for as long as it lives.
#[derive(Debug)]
pub struct OwnDirectory<'a>(&'a Path);

impl<'a> OwnDirectory<'a> {
    /// Makes it.
    ///
    /// # Errors
    ///
    /// `io`.
    pub fn make(path: &'a Path) -> Result<Self, Problem> {
        std::fs::create_dir_all(path).map_err(|error| failed(path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for OwnDirectory<'_> {
    fn drop(&mut self) {
        // What is left is swept with the other scratch directories.
        let _ = std::fs::remove_dir_all(self.0);
    }
}
