//! Which files were read, and as what: so that nobody changes a file that he has not seen.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::spec::Digest;

use super::recent::Recent;

/// Most files that are remembered; the one that was seen first gives way.
const MOST: usize = 20_000;

/// Files that were read through a door, with what they held then.
#[derive(Debug)]
pub struct FileVisits(Mutex<Recent<BytePath, Digest>>);

impl Default for FileVisits {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(MOST)))
    }
}

impl FileVisits {
    /// Tells what a file held when it was last seen.
    pub(super) fn of(&self, path: &BytePath) -> Option<Digest> {
        self.seen().get(path).cloned()
    }

    /// Remembers what a file holds.
    pub(super) fn see(&self, path: BytePath, digest: Digest) {
        self.seen().put(path, digest);
    }

    /// Forgets a file, and everything below it; gives what was forgotten.
    pub(super) fn forget(&self, path: &BytePath) -> Vec<(BytePath, Digest)> {
        let mut seen = self.seen();
        let gone: Vec<BytePath> = seen
            .keys_from(path.clone())
            // Names that only begin alike lie in between.
            .take_while(|name| name.as_bytes().starts_with(path.as_bytes()))
            .filter(|name| name.is_within(path))
            .cloned()
            .collect();
        gone.into_iter()
            .filter_map(|name| {
                let digest = seen.remove(&name)?;
                Some((name, digest))
            })
            .collect()
    }

    /// Knows a file, or what is below it, by another name.
    pub(super) fn rename(&self, from: &BytePath, to: &BytePath) {
        for (name, digest) in self.forget(from) {
            let below = name.below(from).unwrap_or_default();
            let name = if below.is_empty() {
                to.clone()
            } else {
                to.join(below)
            };
            self.see(name, digest);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Recent<BytePath, Digest>> {
        // No statement leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_34_what_was_seen_follows_names_and_stays_bounded() {
        let visits = FileVisits::default();
        let path = |text: &str| BytePath::from(text);
        let digest = |text: &str| Digest::of(text.as_bytes());
        visits.see(path("/w/a/x"), digest("1"));
        visits.see(path("/w/a-b"), digest("2"));
        visits.see(path("/w/a/x"), digest("3"));
        visits.rename(&path("/w/a"), &path("/w/c"));
        assert_eq!(visits.of(&path("/w/a/x")), None);
        assert_eq!(visits.of(&path("/w/c/x")), Some(digest("3")));
        assert_eq!(visits.of(&path("/w/a-b")), Some(digest("2")));
        for number in 0..MOST {
            visits.see(path(&format!("/w/many/{number}")), digest("n"));
        }
        assert_eq!(visits.seen().keys_from(BytePath::default()).count(), MOST);
        assert_eq!(visits.of(&path("/w/a-b")), None);
    }
}
