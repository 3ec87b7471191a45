//! The sum over what is written to a file, made while it is written.
//!
//! A short file is added up at once. Of a long one a thread beside the writer reads what was written
//! and adds it up: adding costs more than writing, and a command should not wait for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use cofferdam_core::spec::DigestSum;

/// Bytes up to which the writer adds up by itself.
const SHORT: u64 = 4 * 1024 * 1024;
/// Bytes that the thread reads at once: few enough to stay in a processor's cache.
const CHUNK: usize = 256 * 1024;

/// Adds up what its owner writes to one file.
#[derive(Debug)]
pub(crate) enum FileSum {
    Short(DigestSum),
    Long(Beside),
    /// There is none: whoever needs it reads the file.
    Unknown,
}

impl Default for FileSum {
    fn default() -> Self {
        Self::Short(DigestSum::default())
    }
}

impl FileSum {
    /// Takes bytes that were just written to the end of a file.
    pub(crate) fn add(&mut self, bytes: &[u8], file: &File) {
        match self {
            Self::Short(sum) if sum.bytes() + bytes.len() as u64 <= SHORT => sum.add(bytes),
            Self::Short(sum) => {
                let end = sum.bytes() + bytes.len() as u64;
                *self =
                    Beside::start(file, std::mem::take(sum), end).map_or(Self::Unknown, Self::Long);
            }
            Self::Long(beside) => beside.shared.grow(bytes.len() as u64),
            Self::Unknown => {}
        }
    }

    /// Gives the sum of all of them, where there is one.
    pub(crate) fn take(&mut self) -> Option<DigestSum> {
        match std::mem::replace(self, Self::Unknown) {
            Self::Short(sum) => Some(sum),
            Self::Long(beside) => beside.finish(),
            Self::Unknown => None,
        }
    }
}

/// The thread, and how far the file has come.
#[derive(Debug)]
pub(crate) struct Beside {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<DigestSum>>>,
}

#[derive(Debug, Default)]
struct Shared {
    progress: Mutex<Progress>,
    more: Condvar,
}

#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    written: u64,
    is_over: bool,
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Two plain values, whole after every statement.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grow(&self, bytes: u64) {
        self.progress().written += bytes;
        self.more.notify_one();
    }

    fn end(&self) {
        self.progress().is_over = true;
        self.more.notify_one();
    }

    /// Waits until there is more than was added up, or nothing more to come.
    fn beyond(&self, added: u64) -> u64 {
        let progress = self.progress();
        self.more
            .wait_while(progress, |progress| {
                progress.written == added && !progress.is_over
            })
            .unwrap_or_else(PoisonError::into_inner)
            .written
    }
}

impl Beside {
    fn start(file: &File, sum: DigestSum, written: u64) -> io::Result<Self> {
        let file = file.try_clone()?;
        let shared = Arc::new(Shared::default());
        shared.grow(written);
        let thread = thread::Builder::new()
            .name("cofferdam-sum".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || add_up(&file, sum, &shared)
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    fn finish(mut self) -> Option<DigestSum> {
        self.shared.end();
        self.thread.take()?.join().ok()?.ok()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // The thread ends by itself; it has no more to read than what is written.
        self.shared.end();
    }
}

fn add_up(file: &File, mut sum: DigestSum, shared: &Shared) -> io::Result<DigestSum> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let written = shared.beyond(sum.bytes());
        if written == sum.bytes() {
            return Ok(sum);
        }
        while sum.bytes() < written {
            let left = usize::try_from(written - sum.bytes()).unwrap_or(CHUNK);
            let chunk = &mut buffer[..left.min(CHUNK)];
            file.read_exact_at(chunk, sum.bytes())?;
            sum.add(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use cofferdam_core::spec::Digest;

    use super::*;

    fn summed(pieces: &[usize]) -> (Option<DigestSum>, Vec<u8>, bool) {
        let mut file = tempfile::tempfile().expect("a file");
        let mut sum = FileSum::default();
        let mut all = Vec::new();
        for (number, length) in pieces.iter().enumerate() {
            let piece = vec![b'a' + number as u8; *length];
            file.write_all(&piece).expect("room");
            sum.add(&piece, &file);
            all.extend_from_slice(&piece);
        }
        let is_long = matches!(sum, FileSum::Long(_));
        (sum.take(), all, is_long)
    }

    #[test]
    fn the_sum_is_that_of_the_whole_file_however_long_it_is() {
        const MIB: usize = 1024 * 1024;
        for (pieces, long) in [
            (&[][..], false),
            (&[10, 20], false),
            (&[4 * MIB], false),
            (&[4 * MIB, 1], true),
            (&[5 * MIB, 300_000, 1, 7 * MIB], true),
        ] {
            let (sum, all, is_long) = summed(pieces);
            let sum = sum.expect("a sum");
            assert_eq!(is_long, long, "{pieces:?}");
            assert_eq!(sum.bytes(), all.len() as u64);
            assert_eq!(sum.digest(), Digest::of(&all), "{pieces:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_has_no_sum() {
        let place = tempfile::tempdir().expect("a directory");
        let mut file = File::create(place.path().join("one")).expect("a file");
        let piece = vec![b'x'; SHORT as usize + 1];
        file.write_all(&piece).expect("room");
        let mut sum = FileSum::default();
        sum.add(&piece, &file);
        assert!(sum.take().is_none());
    }
}
