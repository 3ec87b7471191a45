//! What a command writes: the tail in memory, the whole in a file when it is more than that.
//!
//! Memory stays bounded however much comes; a command is never slowed down by a full buffer, and
//! every byte is counted, also those that a limit drops.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use cofferdam_core::limits;
use cofferdam_core::outcome::StreamEncoding;
use rustix::fs::{Mode, OFlags};

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or everything of a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes output as it comes, before it is collected.
pub trait OutputSink {
    /// Passes bytes on. An error closes the stream, as a closed pipe would.
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()>;
}

/// Bytes of one stream that the spill file takes before more is dropped: 256 MiB.
const SPILL_BYTES: u64 = 256 * 1024 * 1024;

/// Collects one stream.
#[derive(Debug)]
pub(crate) struct Collected {
    tail: Vec<u8>,
    total: u64,
    spill: Option<File>,
    spilled: u64,
    cap: u64,
}

impl Collected {
    pub(crate) const fn new(cap: Option<u64>) -> Self {
        let cap = match cap {
            Some(cap) if cap < SPILL_BYTES => cap,
            _ => SPILL_BYTES,
        };
        Self {
            tail: Vec::new(),
            total: 0,
            spill: None,
            spilled: 0,
            cap,
        }
    }

    /// Takes bytes; `place` is the directory for a spill file, which never gets a name.
    pub(crate) fn push(&mut self, bytes: &[u8], place: &Path) -> io::Result<()> {
        let before = self.total;
        self.total += bytes.len() as u64;
        if self.spill.is_none() && self.total > limits::OUTPUT_RING_BYTES as u64 {
            let mut file = open_spill(place)?;
            // Nothing was trimmed yet: the tail is still everything.
            file.write_all(&self.tail)?;
            self.spilled = before;
            self.spill = Some(file);
        }
        if let Some(file) = &mut self.spill {
            let room = self.cap.saturating_sub(self.spilled) as usize;
            let taken = bytes.len().min(room);
            file.write_all(&bytes[..taken])?;
            self.spilled += taken as u64;
        }
        keep_tail(&mut self.tail, bytes, limits::OUTPUT_RING_BYTES);
        Ok(())
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Counts bytes that are in neither memory nor file.
    pub(crate) const fn dropped(&self) -> u64 {
        if self.spill.is_some() {
            self.total - self.spilled
        } else {
            0
        }
    }

    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Tells whether memory holds less than the whole.
    pub(crate) const fn is_spilled(&self) -> bool {
        self.spill.is_some()
    }

    /// Gives the spill file, to be read from its beginning.
    pub(crate) fn take_spill(&mut self) -> io::Result<Option<File>> {
        use std::io::Seek as _;
        let Some(mut file) = self.spill.take() else {
            return Ok(None);
        };
        file.rewind()?;
        Ok(Some(file))
    }
}

/// Appends and forgets the front beyond `keep` bytes, moving memory only now and then.
pub(crate) fn keep_tail(tail: &mut Vec<u8>, bytes: &[u8], keep: usize) {
    if bytes.len() >= keep {
        tail.clear();
        tail.extend_from_slice(&bytes[bytes.len() - keep..]);
        return;
    }
    if tail.len() + bytes.len() > 2 * keep {
        tail.drain(..tail.len() + bytes.len() - keep);
    }
    tail.extend_from_slice(bytes);
}

fn open_spill(place: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(place, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(File::from(file)),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
            // A file system without nameless files: a name for a moment.
            let path = place.join(format!("spill-{}", std::process::id()));
            let file = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

/// Text of the last [`limits::OUTPUT_CHARACTERS`] characters, how it was made, and whether it is
/// less than the whole.
pub(crate) fn text_tail(bytes: &[u8], whole: bool) -> (String, StreamEncoding, bool) {
    let (text, encoding) = if let Ok(text) = std::str::from_utf8(bytes) {
        (text.to_owned(), StreamEncoding::Utf8)
    } else {
        let cut = if whole {
            bytes
        } else {
            skip_continuation(bytes)
        };
        match std::str::from_utf8(cut) {
            Ok(text) => (text.to_owned(), StreamEncoding::Utf8),
            Err(_) => (
                String::from_utf8_lossy(cut).into_owned(),
                StreamEncoding::Utf8Replaced,
            ),
        }
    };
    let start = text
        .char_indices()
        .rev()
        .nth(limits::OUTPUT_CHARACTERS.saturating_sub(1))
        .map_or(0, |(index, _)| index);
    let truncated = start > 0 || !whole;
    (
        if start > 0 {
            text[start..].to_owned()
        } else {
            text
        },
        encoding,
        truncated,
    )
}

/// Leaves out the rest of a character whose beginning was cut off.
fn skip_continuation(bytes: &[u8]) -> &[u8] {
    let skip = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xc0 == 0x80)
        .count();
    &bytes[skip..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_bounded_and_every_byte_is_counted() {
        let place = tempfile::tempdir().expect("a directory");
        let mut collected = Collected::new(Some(1_000_000));
        let chunk = vec![b'x'; 70_000];
        for _ in 0..20 {
            collected.push(&chunk, place.path()).expect("room");
        }
        assert_eq!(collected.total(), 1_400_000);
        assert_eq!(collected.dropped(), 400_000);
        assert!(collected.tail().len() <= 2 * limits::OUTPUT_RING_BYTES);
        let mut file = collected
            .take_spill()
            .expect("a file")
            .expect("more than the ring");
        assert_eq!(
            io::copy(&mut file, &mut io::sink()).expect("readable"),
            1_000_000
        );
        assert_eq!(
            std::fs::read_dir(place.path()).expect("readable").count(),
            0
        );
    }

    #[test]
    fn fc_75_a_cut_never_splits_a_character() {
        let bytes = "€€€".as_bytes();
        let (text, encoding, truncated) = text_tail(&bytes[1..], false);
        assert_eq!(
            (text.as_str(), encoding, truncated),
            ("€€", StreamEncoding::Utf8, true)
        );
        let (text, encoding, _) = text_tail(b"a\xffb", true);
        assert_eq!(
            (text.as_str(), encoding),
            ("a\u{fffd}b", StreamEncoding::Utf8Replaced)
        );
    }

    #[test]
    fn the_last_characters_are_kept() {
        let long = "é".repeat(limits::OUTPUT_CHARACTERS + 1);
        let (text, _, truncated) = text_tail(long.as_bytes(), true);
        assert_eq!(text.chars().count(), limits::OUTPUT_CHARACTERS);
        assert!(truncated);
    }
}
