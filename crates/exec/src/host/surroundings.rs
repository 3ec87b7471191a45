//! Where the program was started: environment and directory, taken once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The environment and the current directory of whoever calls.
///
/// Everything that looks at them takes this value, so that a test brings its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    variables: BTreeMap<OsString, OsString>,
    directory: PathBuf,
}

impl Surroundings {
    /// Takes those of this process.
    ///
    /// # Errors
    ///
    /// When the current directory is gone.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that looks, at the word of the binary; everybody else is told"
    )]
    pub fn of_process() -> std::io::Result<Self> {
        Ok(Self {
            variables: std::env::vars_os().collect(),
            directory: std::env::current_dir()?,
        })
    }

    /// Makes some up.
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
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// Gives a variable that holds an absolute path.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.get(name)
            .map(Path::new)
            .filter(|path| path.is_absolute())
    }

    /// Lends every variable, sorted by name.
    pub const fn variables(&self) -> &BTreeMap<OsString, OsString> {
        &self.variables
    }

    /// Lends the current directory, by its real path.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}
