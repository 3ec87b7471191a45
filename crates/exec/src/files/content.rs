//! Bytes of an open file, and how they are told.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::limits;
use cofferdam_core::mask::Masker;
use cofferdam_core::operation::{Encoding, FileVersion, KeptFile};
use cofferdam_journal::Journal;

/// Reads a whole file that was opened behind the walls. It may grow while it is read: never more
/// than `most` bytes are taken.
pub(super) fn read_all(file: OwnedFd, most: u64, path: &BytePath) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let mut file = File::from(file);
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    if size <= most {
        bytes.reserve_exact(usize::try_from(size).unwrap_or(0) + 1);
        (&mut file)
            .take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| io(path, "read", &error))?;
    }
    if size > most || bytes.len() as u64 > most {
        return Err(too_large(path, size.max(bytes.len() as u64), most));
    }
    Ok(bytes)
}

/// Writes a whole file, from its beginning.
pub(super) fn write_all(file: OwnedFd, bytes: &[u8], path: &BytePath) -> Result<(), Problem> {
    let mut file = File::from(file);
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.write_all(bytes))
        .and_then(|()| file.set_len(bytes.len() as u64))
        .map_err(|error| io(path, "write", &error))
}

pub(super) fn io(path: &BytePath, what: &str, error: &std::io::Error) -> Problem {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            ErrorCode::StorageExhausted
        }
        _ => ErrorCode::Io,
    };
    Problem::new(code, format!("cannot {what} {path}: {error}")).with_field("path")
}

pub(super) fn too_large(path: &BytePath, bytes: u64, most: u64) -> Problem {
    Problem::new(
        ErrorCode::FileTooLarge,
        format!("{path} has {bytes} bytes, more than {most}"),
    )
    .with_field("path")
}

/// Tells bytes as text or base64. Text that cannot be told without loss is marked so.
pub(super) fn tell(bytes: &[u8], wanted: Encoding) -> (String, Encoding) {
    match (wanted, std::str::from_utf8(bytes)) {
        (Encoding::Base64, _) => (STANDARD.encode(bytes), Encoding::Base64),
        (_, Ok(text)) => (text.to_owned(), Encoding::Utf8),
        (_, Err(_)) => (String::from_utf8_lossy(bytes).into_owned(), Encoding::Lossy),
    }
}

/// Reads content of a request.
pub(super) fn take(content: String, encoding: Encoding) -> Result<Vec<u8>, Problem> {
    let wrong =
        |message: String| Problem::new(ErrorCode::InvalidRequest, message).with_field("content");
    match encoding {
        Encoding::Utf8 => Ok(content.into_bytes()),
        Encoding::Lossy => Err(wrong("lossy text cannot be written".to_owned())
            .with_hint("send text as utf8, or bytes as base64")),
        Encoding::Base64 => STANDARD
            .decode(content.as_bytes())
            .map_err(|error| wrong(format!("the content is no base64: {error}"))),
    }
}

/// Keeps the bytes of a file where they can be taken back from.
pub(super) fn keep(journal: &dyn Journal, bytes: &[u8], mode: u32) -> Result<KeptFile, Problem> {
    let kept = journal
        .put_content(bytes)
        .map_err(|error| error.to_problem())?;
    Ok(KeptFile {
        digest: kept.content,
        bytes: bytes.len() as u64,
        mode,
    })
}

/// Tells a state of a file; its text only where it is small and nothing in it is a known secret.
pub(super) fn version(kept: &KeptFile, bytes: &[u8], masker: &Masker) -> FileVersion {
    let text = (kept.bytes <= limits::FILE_TEXT_BYTES)
        .then(|| std::str::from_utf8(bytes).ok())
        .flatten()
        .filter(|text| masker.is_empty() || masker.mask_bytes(text.as_bytes()).1 == 0)
        .map(str::to_owned);
    FileVersion {
        digest: kept.digest.clone(),
        bytes: kept.bytes,
        text,
    }
}
