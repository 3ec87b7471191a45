//! The bearer token: where it lies, and how it is compared.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cofferdam_core::ambient::Ambient;
use cofferdam_journal::DataDir;

use crate::error::ServerError;

/// Shortest token that is taken, in characters.
const SHORTEST: usize = 16;

/// A secret that whoever asks must show.
pub(crate) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token")
    }
}

impl Token {
    /// Reads the owner's own token.
    pub(crate) fn read(path: &Path) -> Result<Self, ServerError> {
        let refused = |why: String| ServerError::Token {
            path: path.to_owned(),
            why,
        };
        let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        if let Some(why) = open_to_others(path).map_err(|error| refused(error.to_string()))? {
            return Err(refused(why));
        }
        let token = text.trim();
        let good = token.len() >= SHORTEST && token.bytes().all(|byte| byte.is_ascii_graphic());
        if good {
            Ok(Self(token.to_owned()))
        } else {
            Err(refused(format!(
                "it has less than {SHORTEST} characters, or others than letters, digits and signs"
            )))
        }
    }

    /// Takes the token of the data directory, and makes it where there is none that can be used.
    pub(crate) fn of_data_directory(
        data: &DataDir,
        ambient: &dyn Ambient,
    ) -> Result<(Self, PathBuf), ServerError> {
        let path = data.path().join("server.token");
        if let Ok(token) = Self::read(&path) {
            return Ok((token, path));
        }
        let mut random = [0; 32];
        ambient.fill_random(&mut random);
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        write_private(&path, format!("{token}\n").as_bytes()).map_err(|source| {
            ServerError::Io {
                step: "write",
                subject: path.display().to_string(),
                source,
            }
        })?;
        Ok((Self(token), path))
    }

    /// Compares without telling by the time it takes where the first difference is.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let mut difference = own.len() ^ shown.len();
        for (place, byte) in own.iter().enumerate() {
            let other = shown.get(place).copied().unwrap_or_default();
            difference |= usize::from(byte ^ other);
        }
        std::hint::black_box(difference) == 0
    }
}

/// Puts the file in its place whole, never readable by others.
pub(crate) fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension(format!("new-{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
        .open(&unfinished)
        .and_then(|mut file| file.write_all(text))
        .and_then(|()| fs::rename(&unfinished, path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        })
}

fn open_to_others(path: &Path) -> io::Result<Option<String>> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(path)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Ok(Some(format!("its mode is {mode:04o}, others may read it")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_it() {
        let token = Token("0123456789abcdef".to_owned());
        assert!(token.is(b"0123456789abcdef"));
        for other in [
            "",
            "0123456789abcdeF",
            "0123456789abcde",
            "0123456789abcdef0",
        ] {
            assert!(!token.is(other.as_bytes()));
        }
    }
}
