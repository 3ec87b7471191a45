//! Digests: what content is told and found by, and what names and requests are bound by.
//!
//! Two functions, because they are asked for different things. **Content** (a file, an output, the
//! body of an event) is many mebibytes at times, and everything that is done to it waits for its
//! digest: that is BLAKE3. **Names and requests** (a path that becomes the name of a lock or of a
//! store, a request that an answer is bound to, a plan) are short, and stand on disk from one version
//! to the next: those are SHA-256, as the hash chain of the journal is. Until version 0.1 all of them
//! were, so that content of older data directories has names of that kind: [`Digest::is_of`] knows
//! both.

use std::fmt::Write as _;
use std::thread;

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A digest of 32 bytes in hexadecimal: BLAKE3 of content, SHA-256 of names, requests and plans.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Digest(pub String);

impl Digest {
    /// Digests content.
    pub fn of(bytes: &[u8]) -> Self {
        let hash = if bytes.len() < LARGE {
            blake3::hash(bytes)
        } else {
            by_two(bytes)
        };
        Self::told(hash.as_bytes())
    }

    /// Digests a name, a request or a plan: what is compared with what an older version wrote.
    pub fn sha256(bytes: &[u8]) -> Self {
        Self::told(&Sha256::digest(bytes).into())
    }

    /// Tells whether it is the digest of these bytes, by either function.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        *self == Self::of(bytes) || *self == Self::sha256(bytes)
    }

    /// Lends the hexadecimal text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn told(bytes: &[u8; 32]) -> Self {
        let mut text = String::with_capacity(64);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }
}

/// Bytes from which a second thread pays.
const LARGE: usize = 1024 * 1024;
/// Bytes that are digested apart, and then put together as the function's own tree has them: a power
/// of two, and many chunks, which the processor takes several at a time.
const SUBTREE: usize = 256 * 1024;

/// Digests by two threads.
fn by_two(bytes: &[u8]) -> blake3::Hash {
    let parts: Vec<&[u8]> = bytes.chunks(SUBTREE).collect();
    let (first, second) = parts.split_at(parts.len() / 2);
    let values = |parts: &[&[u8]], begin: usize| -> Vec<ChainingValue> {
        let one = |(index, part): (usize, &&[u8])| {
            Hasher::new()
                .set_input_offset(((begin + index) * SUBTREE) as u64)
                .update(part)
                .finalize_non_root()
        };
        parts.iter().enumerate().map(one).collect()
    };
    let all = thread::scope(|scope| {
        let beside = thread::Builder::new().spawn_scoped(scope, || values(second, first.len()));
        let mut all = values(first, 0);
        let rest = beside.ok().and_then(|thread| thread.join().ok());
        all.extend(rest.unwrap_or_else(|| values(second, first.len())));
        all
    });
    let (left, right) = all.split_at(left_of(all.len()));
    merge_subtrees_root(&merged(left), &merged(right), Mode::Hash)
}

/// Puts the values of subtrees that follow each other together, one at least.
fn merged(values: &[ChainingValue]) -> ChainingValue {
    if let [one] = values {
        return *one;
    }
    let (left, right) = values.split_at(left_of(values.len()));
    merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
}

/// Tells how many of several lie to the left: as many as a full tree holds, and one at least to the
/// right.
const fn left_of(count: usize) -> usize {
    count.next_power_of_two() / 2
}

impl std::fmt::Display for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A [`Digest`] over content that comes little by little.
#[derive(Debug, Clone, Default)]
pub struct DigestSum {
    // Its state is 2 KiB, which is moved with every command that writes something.
    sum: Box<blake3::Hasher>,
    bytes: u64,
}

impl DigestSum {
    /// Takes the bytes that come next.
    pub fn add(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Counts the bytes so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the digest of all of them.
    pub fn digest(self) -> Digest {
        Digest::told(self.sum.finalize().as_bytes())
    }
}

/// Both digests over content that comes little by little: for content of which only the name is
/// known, which may be that of an older version.
#[derive(Debug, Clone, Default)]
pub struct EitherSum {
    newer: DigestSum,
    older: Sha256,
}

impl EitherSum {
    /// Takes the bytes that come next.
    pub fn add(&mut self, bytes: &[u8]) {
        self.newer.add(bytes);
        self.older.update(bytes);
    }

    /// Tells whether a digest is that of all of them.
    pub fn is(self, digest: &str) -> bool {
        let older: [u8; 32] = self.older.finalize().into();
        self.newer.digest().as_str() == digest || Digest::told(&older).as_str() == digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the two functions' own specifications give them for three letters.
    const OF_ABC: &str = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
    const SHA256_OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn content_and_names_have_their_own_function_and_both_are_known_again() {
        assert_eq!(Digest::of(b"abc").as_str(), OF_ABC);
        assert_eq!(Digest::sha256(b"abc").as_str(), SHA256_OF_ABC);
        for (text, is_of) in [(OF_ABC, true), (SHA256_OF_ABC, true), ("", false)] {
            assert_eq!(Digest(text.to_owned()).is_of(b"abc"), is_of, "{text}");
            let mut sum = EitherSum::default();
            sum.add(b"a");
            sum.add(b"bc");
            assert_eq!(sum.is(text), is_of, "{text}");
        }
        assert!(!Digest::of(b"abc").is_of(b"abd"));
    }

    #[test]
    fn two_threads_find_what_one_does() {
        let sizes = [0, 1, SUBTREE - 1, SUBTREE, SUBTREE + 1, 3 * SUBTREE + 5];
        for size in sizes.map(|size| LARGE + size) {
            let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            assert_eq!(by_two(&bytes), blake3::hash(&bytes), "{size}");
            assert_eq!(
                Digest::of(&bytes).as_str(),
                blake3::hash(&bytes).to_hex().as_str()
            );
        }
    }

    #[test]
    fn a_sum_is_that_of_the_whole_however_it_came() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|number| number as u8).collect();
        for piece in [1, 63, 1024, 9_999] {
            let mut sum = DigestSum::default();
            for piece in bytes.chunks(piece) {
                sum.add(piece);
            }
            assert_eq!(sum.bytes(), bytes.len() as u64);
            assert_eq!(sum.digest(), Digest::of(&bytes));
        }
    }
}
