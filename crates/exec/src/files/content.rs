//! Bytes of an open file, and how they are told.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::file::TextFacts;
use cofferdam_core::limits;
use cofferdam_core::mask::Masker;
use cofferdam_core::operation::{Encoding, FileVersion, KeptFile};
use cofferdam_core::spec::{Digest, DigestSum};
use cofferdam_journal::Journal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::digests::Stamp;

/// Bytes from which a second thread pays.
const LARGE: usize = 2 * 1024 * 1024;

/// All of a file.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) bytes: Vec<u8>,
    /// What it looked like before and after it was read, where it is large enough to be remembered
    /// and was left alone meanwhile.
    pub(super) stamp: Option<Stamp>,
}

/// Reads a whole file that was opened behind the walls. It may grow while it is read: never more
/// than `most` bytes are taken.
pub(super) fn read_all(file: OwnedFd, most: u64, path: &BytePath) -> Result<Whole, Problem> {
    let failed = |error| io(path, "read", &error);
    let mut file = File::from(file);
    let before = file.metadata().map_err(failed)?;
    let mut bytes = Vec::new();
    if before.len() <= most {
        bytes.reserve_exact(usize::try_from(before.len()).unwrap_or(0) + 1);
        (&mut file)
            .take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
    }
    let size = before.len().max(bytes.len() as u64);
    if size > most {
        return Err(too_large(path, size, most));
    }
    let before = Stamp::from(&before);
    let after = Stamp::from(&file.metadata().map_err(failed)?);
    Ok(Whole {
        bytes,
        stamp: (before == after).then_some(after),
    })
}

/// Digests pieces that follow each other while something else is done with them, where they are many
/// enough for that.
pub(super) fn digest_beside<T: Send>(
    pieces: &[&[u8]],
    act: impl FnOnce() -> T + Send,
) -> (Digest, T) {
    let digest = || {
        let mut sum = DigestSum::default();
        for piece in pieces {
            sum.add(piece);
        }
        sum.digest()
    };
    if length_of(pieces) < LARGE as u64 {
        let done = act();
        return (digest(), done);
    }
    let act = Mutex::new(Some(act));
    let once = || {
        let act = act.lock().unwrap_or_else(PoisonError::into_inner).take();
        act.map(|act| act())
    };
    let here = sched_getcpu();
    let (found, done) = thread::scope(|scope| {
        let acting = thread::Builder::new()
            .name("cofferdam-files".to_owned())
            .spawn_scoped(scope, || {
                leave(here);
                once()
            });
        // So that it can leave, where it was put behind this thread.
        thread::yield_now();
        let found = digest();
        let done = acting.ok().and_then(|acting| {
            (acting.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        (found, done)
    });
    // Where there is no thread to be had it is still to be done.
    let done = done.or_else(once).expect("one of the two has done it");
    (found, done)
}

/// Keeps this thread away from a processor, where it may use another one.
///
/// A guest of KVM takes a processor that idles for one that its host has taken away, and wakes and
/// starts threads where others are at work already: two that are to work side by side then take turns.
fn leave(processor: usize) {
    let Ok(mut allowed) = sched_getaffinity(None) else {
        return;
    };
    if processor >= CpuSet::MAX_CPU {
        return;
    }
    allowed.unset(processor);
    if allowed.count() > 0 {
        // Without it the work takes longer, and is done.
        let _ = sched_setaffinity(None, &allowed);
    }
}

/// Counts the bytes of pieces.
pub(super) fn length_of(pieces: &[&[u8]]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// Writes a whole file, from its beginning.
pub(super) fn write_all(
    file: OwnedFd,
    pieces: &[&[u8]],
    is_durable: bool,
    path: &BytePath,
) -> Result<(), Problem> {
    let mut file = File::from(file);
    file.seek(SeekFrom::Start(0))
        .and_then(|_| pieces.iter().try_for_each(|piece| file.write_all(piece)))
        .and_then(|()| file.set_len(length_of(pieces)))
        .and_then(|()| if is_durable { file.sync_all() } else { Ok(()) })
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

/// Tells a whole file, without a copy of it where it is text; gives the characters, too.
pub(super) fn tell_all(
    bytes: Vec<u8>,
    facts: TextFacts,
    wanted: Encoding,
) -> (String, Encoding, u64) {
    if wanted == Encoding::Base64 {
        let (text, encoding) = tell(&bytes, wanted);
        let characters = text.len() as u64;
        return (text, encoding, characters);
    }
    let (text, encoding) = match String::from_utf8(bytes) {
        Ok(text) => (text, Encoding::Utf8),
        Err(error) => (
            String::from_utf8_lossy(error.as_bytes()).into_owned(),
            Encoding::Lossy,
        ),
    };
    let characters = if facts.is_ascii {
        text.len()
    } else {
        text.chars().count()
    };
    (text, encoding, characters as u64)
}

/// Reads content of a request.
pub(crate) fn take(content: String, encoding: Encoding) -> Result<Vec<u8>, Problem> {
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

/// Keeps the bytes of a file, of which this is the digest, where they can be taken back from.
pub(super) fn keep(
    journal: &dyn Journal,
    digest: Digest,
    bytes: &[u8],
    mode: u32,
) -> Result<KeptFile, Problem> {
    journal
        .keep_content(&digest, bytes)
        .map_err(|error| error.to_problem())?;
    Ok(KeptFile {
        digest,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_and_no_larger_one() {
        let path = BytePath::from("x");
        let place = tempfile::tempdir().expect("a directory");
        let name = place.path().join("file");
        std::fs::write(&name, "text").expect("written");
        let open = || OwnedFd::from(File::open(&name).expect("opened"));
        let whole = read_all(open(), 4, &path).expect("read");
        assert_eq!(whole.bytes, b"text");
        assert!(whole.stamp.is_some());
        let problem = read_all(open(), 3, &path).expect_err("too large");
        assert_eq!(problem.code, ErrorCode::FileTooLarge);
        // One that does not tell its size.
        let file = File::open("/proc/self/status").expect("opened");
        let whole = read_all(file.into(), 1 << 20, &path).expect("read");
        assert!(whole.bytes.starts_with(b"Name:"));
    }

    #[test]
    fn a_digest_beside_is_that_of_the_bytes() {
        for size in [0, 1, LARGE] {
            let bytes = vec![b'x'; size];
            let (first, second) = bytes.split_at(size / 2);
            let made = digest_beside(&[first, b"", second], || 7);
            assert_eq!(made, (Digest::of(&bytes), 7));
        }
    }
}
