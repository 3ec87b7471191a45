//! What is known of large files that were read before, so that a file which has not changed is not
//! digested each time that somebody looks at it.
//!
//! Whether it has changed is told by what the kernel says of it, which is not quite the truth:
//!
//! - Two changes within one tick of the file system's clock leave the same times. What changed less
//!   than [`SETTLED`] ago is therefore not remembered, so that a change which comes after the reading
//!   gets other times. git knows the same trouble as *racily clean* entries of its index.
//! - A program that writes through a shared mapping leaves the times alone, for as long as the page
//!   it writes to stays writable.
//!
//! So nothing that is *changed* rests on this memory: a change digests the bytes that it has before
//! it, and forgets what is remembered of them otherwise. Whoever was told a digest that is no longer true is
//! in conflict once, reads again, and gets the true one.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cofferdam_core::file::TextFacts;
use cofferdam_core::spec::Digest;
use jiff::{SignedDuration, Timestamp};

use super::recent::Recent;

/// Most files that are remembered.
const MOST: usize = 4_096;
/// How long a file has been left alone when it is remembered: longer than a tick of any file
/// system's clock, the coarsest of which are two seconds.
const SETTLED: SignedDuration = SignedDuration::from_secs(3);

/// What the kernel says of a file that changes when the file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Which file: its file system, and its number there.
    file: (u64, u64),
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// What is known of the bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) digest: Digest,
    pub(super) facts: TextFacts,
}

impl Known {
    /// Finds it out.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            digest: Digest::of(bytes),
            facts: TextFacts::of(bytes),
        }
    }
}

/// What is known of files, as they were read last.
#[derive(Debug)]
pub(crate) struct DigestMemo(Mutex<Recent<(u64, u64), (Stamp, Known)>>);

impl Default for DigestMemo {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(MOST)))
    }
}

impl DigestMemo {
    /// Gives what is known of a file that looks as it did then.
    pub(super) fn of(&self, stamp: &Stamp) -> Option<Known> {
        let files = self.files();
        let (then, known) = files.get(&stamp.file)?;
        (then == stamp).then(|| known.clone())
    }

    /// Remembers a file that was just read, and looked so before and after; unless it has changed too
    /// lately.
    pub(super) fn put(&self, stamp: &Stamp, known: &Known, now: Timestamp) {
        let (seconds, nanoseconds) = stamp.changed;
        let age = i32::try_from(nanoseconds)
            .ok()
            .and_then(|nanoseconds| Timestamp::new(seconds, nanoseconds).ok())
            .map(|changed| now.duration_since(changed));
        if age.is_some_and(|age| age > SETTLED) {
            self.files().put(stamp.file, (*stamp, known.clone()));
        }
    }

    /// Forgets a file of which something else is remembered than what its bytes have shown.
    pub(super) fn correct(&self, stamp: &Stamp, digest: &Digest) {
        let mut files = self.files();
        if files
            .get(&stamp.file)
            .is_some_and(|(_, known)| known.digest != *digest)
        {
            files.remove(&stamp.file);
        }
    }

    fn files(&self) -> MutexGuard<'_, Recent<(u64, u64), (Stamp, Known)>> {
        // No statement leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(changed: i64) -> Stamp {
        Stamp {
            file: (1, 2),
            size: 3,
            modified: (50, 0),
            changed: (changed, 7),
        }
    }

    #[test]
    fn a_file_is_remembered_until_anything_of_it_changes() {
        let memo = DigestMemo::default();
        let now = Timestamp::new(100, 0).expect("a time");
        memo.put(&stamp(60), &Known::of(b"one"), now);
        assert_eq!(memo.of(&stamp(60)), Some(Known::of(b"one")));
        let other_size = Stamp {
            size: 4,
            ..stamp(60)
        };
        let other_time = Stamp {
            modified: (50, 1),
            ..stamp(60)
        };
        let other_file = Stamp {
            file: (1, 3),
            ..stamp(60)
        };
        for other in [stamp(61), other_size, other_time, other_file] {
            assert_eq!(memo.of(&other), None);
        }
    }

    #[test]
    fn what_was_found_to_be_otherwise_is_forgotten() {
        let memo = DigestMemo::default();
        let now = Timestamp::new(100, 0).expect("a time");
        memo.put(&stamp(60), &Known::of(b"one"), now);
        memo.correct(&stamp(60), &Digest::of(b"one"));
        assert!(memo.of(&stamp(60)).is_some());
        memo.correct(&stamp(60), &Digest::of(b"two"));
        assert_eq!(memo.of(&stamp(60)), None);
    }

    #[test]
    fn what_changed_a_moment_ago_is_not_remembered() {
        let memo = DigestMemo::default();
        let now = Timestamp::new(100, 0).expect("a time");
        for lately in [98, 100, 1_000] {
            memo.put(&stamp(lately), &Known::of(b"two"), now);
            assert_eq!(memo.of(&stamp(lately)), None);
        }
    }
}
