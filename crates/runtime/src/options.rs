//! What a runtime is opened with.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_core::ambient::Ambient;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_exec::Script;
use cofferdam_journal::Journal;

use crate::host::HostDoor;

/// The caller's environment and directory, read once by whoever owns the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    variables: Vec<(OsString, OsString)>,
    directory: PathBuf,
}

impl Surroundings {
    /// Takes variables and the current directory, which is absolute.
    pub fn new<Name: Into<OsString>, Value: Into<OsString>>(
        variables: impl IntoIterator<Item = (Name, Value)>,
        directory: impl Into<PathBuf>,
    ) -> Self {
        Self {
            variables: variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            directory: directory.into(),
        }
    }

    /// Gives a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_os_str())
    }

    /// Gives every variable.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Lends the current directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Gives the data directory: `COFFERDAM_DATA_DIR`, else that of the user.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Problem> {
        if let Some(path) = self.get("COFFERDAM_DATA_DIR") {
            return Ok(self.directory.join(path));
        }
        let absolute = |name: &str| {
            self.get(name)
                .map(Path::new)
                .filter(|path| path.is_absolute())
        };
        if let Some(path) = absolute("XDG_DATA_HOME") {
            return Ok(path.join("cofferdam"));
        }
        absolute("HOME")
            .map(|home| home.join(".local/share/cofferdam"))
            .ok_or_else(|| {
                Problem::new(
                    ErrorCode::DataDirRefused,
                    "there is no home directory to keep data in",
                )
                .with_hint("set COFFERDAM_DATA_DIR or give --data-dir")
            })
    }
}

/// What a runtime is opened with.
#[derive(Debug)]
pub struct RuntimeOptions {
    /// The data directory; where the surroundings say when there is none.
    pub data_dir: Option<PathBuf>,
    /// The caller's environment and directory.
    pub surroundings: Surroundings,
    /// Clock and randomness.
    pub ambient: Arc<dyn Ambient>,
    /// A journal in place of the one in the data directory.
    pub journal: Option<Arc<dyn Journal>>,
    /// What looks at the host in place of the plane's own eyes.
    pub host: Option<Box<dyn HostDoor>>,
    /// What the memory provider plays.
    pub script: Option<Script>,
}

impl RuntimeOptions {
    /// Makes the options of a program that runs on this machine for real.
    pub fn new(surroundings: Surroundings, ambient: Arc<dyn Ambient>) -> Self {
        Self {
            data_dir: None,
            surroundings,
            ambient,
            journal: None,
            host: None,
            script: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(pairs: &[(&str, &str)]) -> Surroundings {
        Surroundings::new(pairs.iter().copied(), "/here")
    }

    #[test]
    fn the_data_directory_follows_the_variables() {
        let of = |pairs: &[(&str, &str)]| surroundings(pairs).data_dir().map_err(|one| one.code);
        assert_eq!(
            of(&[("COFFERDAM_DATA_DIR", "d"), ("HOME", "/h")]),
            Ok("/here/d".into())
        );
        assert_eq!(
            of(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")]),
            Ok("/x/cofferdam".into())
        );
        assert_eq!(
            of(&[("XDG_DATA_HOME", "x"), ("HOME", "/h")]),
            Ok("/h/.local/share/cofferdam".into())
        );
        assert_eq!(of(&[("HOME", "")]), Err(ErrorCode::DataDirRefused));
    }
}
