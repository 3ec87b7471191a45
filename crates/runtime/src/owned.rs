//! Files of the owner's own, in the configuration directory.

use std::path::{Path, PathBuf};

use cofferdam_exec::host::Surroundings;

/// Gives the owner's directory of files of a kind, such as `profiles`.
pub(crate) fn directory(surroundings: &Surroundings, kind: &str) -> Option<PathBuf> {
    let config = surroundings
        .path("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| surroundings.path("HOME").map(|home| home.join(".config")))?;
    Some(config.join("cofferdam").join(kind))
}

/// Lists the TOML files of a directory with their names, by name.
pub(crate) fn files(directory: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(directory).ok();
    let mut found: Vec<(String, PathBuf)> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path)))
        .collect();
    found.sort();
    found
}
