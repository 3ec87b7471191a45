//! The data directory: whose it is, and who else may look into it.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};

use super::surroundings::Surroundings;

/// Finds the data directory, makes it where it is missing, and checks that it is the caller's alone.
///
/// It is `COFFERDAM_DATA_DIR`, else `cofferdam` in `XDG_DATA_HOME`, else in `~/.local/share`.
///
/// # Errors
///
/// `data_dir_refused` when it belongs to somebody else, is open to others, is a link or no directory;
/// `storage_exhausted` and `io` when it cannot be made.
pub fn data_dir(surroundings: &Surroundings) -> Result<PathBuf, Problem> {
    let path = locate(surroundings)?;
    match std::fs::symlink_metadata(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make(&path)?,
        Err(error) => {
            return Err(refused(&path, &format!("it cannot be looked at: {error}")));
        }
    }
    check(&path)?;
    std::fs::canonicalize(&path)
        .map_err(|error| refused(&path, &format!("it cannot be looked at: {error}")))
}

fn locate(surroundings: &Surroundings) -> Result<PathBuf, Problem> {
    if let Some(named) = surroundings.get("COFFERDAM_DATA_DIR") {
        // A relative one is meant from where the caller stands.
        return Ok(surroundings.directory().join(named));
    }
    if let Some(data) = surroundings.path("XDG_DATA_HOME") {
        return Ok(data.join("cofferdam"));
    }
    surroundings
        .path("HOME")
        .map(|home| home.join(".local/share/cofferdam"))
        .ok_or_else(|| {
            Problem::new(
                ErrorCode::DataDirRefused,
                "there is no place for the data directory: HOME is not set",
            )
            .with_hint("set COFFERDAM_DATA_DIR to a directory of your own")
        })
}

fn make(path: &Path) -> Result<(), Problem> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| {
            let code = if error.kind() == std::io::ErrorKind::StorageFull {
                ErrorCode::StorageExhausted
            } else {
                ErrorCode::Io
            };
            Problem::new(
                code,
                format!("cannot make the data directory {}: {error}", path.display()),
            )
            .with_hint("set COFFERDAM_DATA_DIR to a directory that you can write")
        })
}

fn refused(path: &Path, why: &str) -> Problem {
    Problem::new(
        ErrorCode::DataDirRefused,
        format!("the data directory {} is refused: {why}", path.display()),
    )
}

fn check(path: &Path) -> Result<(), Problem> {
    let found = std::fs::symlink_metadata(path)
        .map_err(|error| refused(path, &format!("it cannot be looked at: {error}")))?;
    if !found.is_dir() {
        return Err(refused(path, "it is no directory")
            .with_hint("set COFFERDAM_DATA_DIR to the directory itself, not to a link"));
    }
    let uid = rustix::process::geteuid().as_raw();
    if found.uid() != uid {
        return Err(refused(
            path,
            &format!("it belongs to uid {}, the caller is {uid}", found.uid()),
        )
        .with_hint("set COFFERDAM_DATA_DIR to a directory of your own"));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(
            refused(path, &format!("its mode is {mode:o}, others can get in"))
                .with_hint(format!("chmod 700 {}", path.display())),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn surroundings(path: &Path) -> Surroundings {
        Surroundings::new([("COFFERDAM_DATA_DIR", path.as_os_str())], "/")
    }

    #[test]
    fn a_missing_one_is_made_for_the_caller_alone() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a/b");
        let found = data_dir(&surroundings(&path)).expect("made");
        let mode = std::fs::metadata(found)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn one_that_is_open_to_others_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("open");
        std::fs::create_dir(&path).expect("made");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
        let problem = data_dir(&surroundings(&path)).expect_err("refused");
        assert_eq!(problem.code, ErrorCode::DataDirRefused);
        let link = place.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).expect("made");
        assert!(data_dir(&surroundings(&link)).is_err());
    }

    #[test]
    fn the_order_of_places_is_kept() {
        let both = Surroundings::new([("XDG_DATA_HOME", "/x"), ("HOME", "/h")], "/");
        assert_eq!(locate(&both).expect("a place"), Path::new("/x/cofferdam"));
        let home = Surroundings::new([("HOME", "/h")], "/");
        let expected = Path::new("/h/.local/share/cofferdam");
        assert_eq!(locate(&home).expect("a place"), expected);
        assert!(locate(&Surroundings::default()).is_err());
    }
}
