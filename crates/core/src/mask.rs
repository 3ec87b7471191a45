//! Masking of known secret values in a stream: same length, so that offsets hold.
//!
//! Bytes are held back only while they may be the beginning of a value. Every occurrence is masked,
//! overlapping ones too, wherever the stream is cut into pieces.

use std::borrow::Cow;
use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

/// What stands in the place of each byte of a value.
pub const MASK: u8 = b'*';

/// Values shorter than this are not masked: they would be found everywhere.
pub const SHORTEST_VALUE_BYTES: usize = 4;

/// Longest beginning of a value that [`Stream::release`] lets out as it is.
const RELEASED_PLAIN_BYTES: usize = 3;

/// Gives the spellings in which a secret value shows: as it is, in a URL, in a JSON text, and within
/// base64 of any alignment, of both alphabets.
pub fn secret_forms(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![value.to_vec()];
    let mut add = |form: Vec<u8>| {
        if form.len() >= SHORTEST_VALUE_BYTES && !forms.contains(&form) {
            forms.push(form);
        }
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    for upper in [true, false] {
        let mut text = Vec::new();
        for byte in value {
            match (is_plain(*byte), upper) {
                (true, _) => text.push(*byte),
                (false, true) => text.extend_from_slice(format!("%{byte:02X}").as_bytes()),
                (false, false) => text.extend_from_slice(format!("%{byte:02x}").as_bytes()),
            }
        }
        add(text);
    }
    if let Ok(text) = std::str::from_utf8(value) {
        let quoted = Value::from(text).to_string();
        add(quoted.trim_matches('"').as_bytes().to_vec());
    }
    for before in 0..3 {
        let mut padded = vec![0; before];
        padded.extend_from_slice(value);
        // What depends on the bytes around it is left out.
        let first = (before * 8).div_ceil(6);
        let last = padded.len() * 8 / 6;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let text = engine.encode(&padded);
            add(text.as_bytes()[first..last].to_vec());
        }
    }
    forms
}

/// Finds a set of values, all at once, with one step a byte.
#[derive(Clone, Default)]
pub struct Masker {
    states: Vec<State>,
    values: Vec<Vec<u8>>,
}

/// What is known after some bytes: the longest beginning of a value with which they end.
#[derive(Clone)]
struct State {
    next: Box<[u32; 256]>,
    /// How many bytes that beginning has.
    depth: u32,
    /// Length of the longest value that ends here; 0 when none does.
    ends: u32,
}

impl State {
    fn new(depth: u32) -> Self {
        Self {
            next: Box::new([0; 256]),
            depth,
            ends: 0,
        }
    }
}

impl std::fmt::Debug for Masker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The values are secret, and the states spell them.
        formatter.debug_struct("Masker").finish_non_exhaustive()
    }
}

impl Masker {
    /// Prepares for values; those shorter than [`SHORTEST_VALUE_BYTES`] are left out.
    pub fn new<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Self {
        let mut states = vec![State::new(0)];
        let mut known: Vec<Vec<u8>> = Vec::new();
        for value in values {
            let value = value.as_ref();
            if value.len() < SHORTEST_VALUE_BYTES {
                continue;
            }
            known.push(value.to_vec());
            let mut at = 0;
            for byte in value {
                let known = states[at].next[usize::from(*byte)];
                at = if known == 0 {
                    let made = states.len();
                    let depth = states[at].depth + 1;
                    states.push(State::new(depth));
                    states[at].next[usize::from(*byte)] = made as u32;
                    made
                } else {
                    known as usize
                };
            }
            states[at].ends = value.len() as u32;
        }
        if states.len() == 1 {
            return Self::default();
        }
        link(&mut states);
        Self {
            states,
            values: known,
        }
    }

    /// Prepares for more values besides.
    #[must_use]
    pub fn and<V: AsRef<[u8]>>(&self, more: impl IntoIterator<Item = V>) -> Self {
        let mut values = self.values.clone();
        values.extend(more.into_iter().map(|value| value.as_ref().to_vec()));
        values.sort_unstable();
        values.dedup();
        Self::new(values)
    }

    /// Tells whether there is nothing to mask.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Begins a stream.
    pub fn stream(&self) -> Stream<'_> {
        Stream {
            masker: self,
            held: Held::default(),
        }
    }

    /// Masks a whole; gives how many times a value was found.
    pub fn mask_bytes<'a>(&self, bytes: &'a [u8]) -> (Cow<'a, [u8]>, u32) {
        if self.is_empty() {
            return (Cow::Borrowed(bytes), 0);
        }
        let mut stream = self.stream();
        let mut masked = Vec::with_capacity(bytes.len());
        stream.feed(bytes, &mut masked);
        let found = stream.finish(&mut masked);
        if found == 0 {
            (Cow::Borrowed(bytes), 0)
        } else {
            (Cow::Owned(masked), found)
        }
    }

    /// Masks every text of a JSON value, keys included; gives how many times a value was found.
    pub fn mask_json(&self, value: &mut Value) -> u32 {
        if self.is_empty() {
            return 0;
        }
        match value {
            Value::String(text) => self.mask_text(text),
            Value::Array(items) => items.iter_mut().map(|item| self.mask_json(item)).sum(),
            Value::Object(fields) => {
                let mut found = 0;
                let secret_keys = fields
                    .keys()
                    .any(|key| self.mask_bytes(key.as_bytes()).1 > 0);
                if secret_keys {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(mut key, value)| {
                            found += self.mask_text(&mut key);
                            (key, value)
                        })
                        .collect();
                }
                found
                    + fields
                        .values_mut()
                        .map(|item| self.mask_json(item))
                        .sum::<u32>()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }

    /// Masks a text in place; gives how many times a value was found.
    pub fn mask_text(&self, text: &mut String) -> u32 {
        let (masked, found) = self.mask_bytes(text.as_bytes());
        if found > 0 {
            // A value that is no UTF-8 may end within a character; what is left of it is replaced.
            *text = String::from_utf8_lossy(&masked).into_owned();
        }
        found
    }
}

/// Completes the steps: where a beginning does not go on, the next shorter one may.
fn link(states: &mut [State]) {
    let mut shorter = vec![0_u32; states.len()];
    let mut queue: VecDeque<usize> = states[0]
        .next
        .iter()
        .filter(|next| **next != 0)
        .map(|next| *next as usize)
        .collect();
    while let Some(at) = queue.pop_front() {
        let fallback = shorter[at] as usize;
        states[at].ends = states[at].ends.max(states[fallback].ends);
        for byte in 0..256 {
            let there = states[at].next[byte];
            let instead = states[fallback].next[byte];
            if there == 0 {
                states[at].next[byte] = instead;
            } else {
                shorter[there as usize] = instead;
                queue.push_back(there as usize);
            }
        }
    }
}

/// The bytes that were not let out yet, and how far the machine is.
#[derive(Debug, Clone, Default)]
struct Held {
    bytes: VecDeque<u8>,
    state: u32,
    found: u32,
}

impl Held {
    fn feed(&mut self, masker: &Masker, bytes: &[u8], out: &mut Vec<u8>) {
        if masker.is_empty() {
            out.extend_from_slice(bytes);
            return;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.state == 0 {
                // Nothing is held: everything up to the first byte that may begin a value goes out.
                let start = &masker.states[0].next;
                let plain = rest
                    .iter()
                    .position(|byte| start[usize::from(*byte)] != 0)
                    .unwrap_or(rest.len());
                out.extend_from_slice(&rest[..plain]);
                rest = &rest[plain..];
            }
            let Some((byte, later)) = rest.split_first() else {
                break;
            };
            rest = later;
            self.step(masker, *byte, out);
        }
    }

    fn step(&mut self, masker: &Masker, byte: u8, out: &mut Vec<u8>) {
        self.state = masker.states[self.state as usize].next[usize::from(byte)];
        self.bytes.push_back(byte);
        let known = &masker.states[self.state as usize];
        if known.ends > 0 {
            self.found += 1;
            let first = self.bytes.len().saturating_sub(known.ends as usize);
            self.bytes.range_mut(first..).for_each(|byte| *byte = MASK);
        }
        // Only what may still become part of a value stays.
        while self.bytes.len() > known.depth as usize {
            out.extend(self.bytes.pop_front());
        }
    }

    fn release(&mut self, masker: &Masker, out: &mut Vec<u8>) {
        let Some(state) = masker.states.get(self.state as usize) else {
            return;
        };
        let mask = state.depth as usize > RELEASED_PLAIN_BYTES;
        out.extend(
            self.bytes
                .drain(..)
                .map(|byte| if mask { MASK } else { byte }),
        );
    }
}

/// A stream that is masked while it flows.
#[derive(Debug, Clone)]
pub struct Stream<'a> {
    masker: &'a Masker,
    held: Held,
}

impl Stream<'_> {
    /// Takes bytes, and adds to `out` what can be let out.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.held.feed(self.masker, bytes, out);
    }

    /// Tells how many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.bytes.len()
    }

    /// Lets out what was held back too long. More than three bytes of a beginning are masked, because
    /// they may be part of a value; should the value go on, what follows is masked too.
    pub fn release(&mut self, out: &mut Vec<u8>) {
        self.held.release(self.masker, out);
    }

    /// Ends the stream; gives how many times a value was found.
    pub fn finish(self, out: &mut Vec<u8>) -> u32 {
        // What is held is only a beginning, and the end of the stream says that it stays one.
        out.extend(self.held.bytes);
        self.held.found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(values: &[&str], pieces: &[&[u8]]) -> Vec<u8> {
        let masker = Masker::new(values);
        let mut stream = masker.stream();
        let mut out = Vec::new();
        for piece in pieces {
            stream.feed(piece, &mut out);
        }
        stream.finish(&mut out);
        out
    }

    #[test]
    fn a_value_is_found_wherever_the_stream_is_cut() {
        let text = b"key=s3cr3t-s3cr3t! s3cr3";
        for cut in 0..=text.len() {
            let (one, other) = text.split_at(cut);
            assert_eq!(
                masked(&["s3cr3t"], &[one, other]),
                b"key=******-******! s3cr3"
            );
        }
    }

    #[test]
    fn overlapping_and_nested_values_are_masked_whole() {
        assert_eq!(masked(&["abcd", "cdef"], &[b"xabcdefx"]), b"x******x");
        assert_eq!(masked(&["abcdefgh", "cdef"], &[b"abcdefg."]), b"ab****g.");
        assert_eq!(masked(&["aaaa"], &[b"aaaaaab"]), b"******b");
    }

    #[test]
    fn only_a_beginning_is_held_back() {
        let masker = Masker::new(["s3cr3t"]);
        let mut stream = masker.stream();
        let mut out = Vec::new();
        stream.feed(b"prompt> s3c", &mut out);
        assert_eq!((out.as_slice(), stream.held()), (&b"prompt> "[..], 3));
        stream.release(&mut out);
        assert_eq!((out.as_slice(), stream.held()), (&b"prompt> s3c"[..], 0));
        stream.feed(b"r3t!", &mut out);
        assert_eq!(out, b"prompt> s3c***!");
    }

    #[test]
    fn a_long_beginning_is_released_masked() {
        let masker = Masker::new(["s3cr3t"]);
        let mut stream = masker.stream();
        let mut out = Vec::new();
        stream.feed(b"s3cr3", &mut out);
        stream.release(&mut out);
        stream.feed(b"t and s3cr3t and s3", &mut out);
        stream.finish(&mut out);
        assert_eq!(out, b"****** and ****** and s3");
    }

    #[test]
    fn json_is_masked_in_keys_and_values() {
        let masker = Masker::new(["s3cr3t"]);
        let mut value = serde_json::json!({"a": ["xs3cr3t", 1], "s3cr3t": {"b": "é s3cr3t"}});
        assert_eq!(masker.mask_json(&mut value), 3);
        assert_eq!(
            value,
            serde_json::json!({"a": ["x******", 1], "******": {"b": "é ******"}})
        );
    }

    #[test]
    fn a_value_is_known_in_every_spelling() {
        let value = "p/ss+w?rd \"1\"";
        let masker = Masker::new(secret_forms(value.as_bytes()));
        for front in ["", "a", "ab", "abc", "user:"] {
            for back in ["", "x", "xy"] {
                let whole = format!("{front}{value}{back}");
                for shown in [
                    whole.clone(),
                    STANDARD_NO_PAD.encode(&whole),
                    URL_SAFE_NO_PAD.encode(&whole),
                    Value::from(whole.as_str()).to_string(),
                ] {
                    assert!(masker.mask_bytes(shown.as_bytes()).1 > 0, "{shown}");
                }
            }
        }
        assert!(masker.mask_bytes(b"p%2Fss%2Bw%3Frd%20%221%22").1 > 0);
    }

    #[test]
    fn short_values_are_left_out() {
        assert!(Masker::new(["", "abc"]).is_empty());
        assert_eq!(masked(&["", "abc"], &[b"abc"]), b"abc");
    }

    proptest! {
        #[test]
        fn the_same_as_looking_at_the_whole(
            values in prop::collection::vec("[ab]{4,7}", 1..4),
            pieces in prop::collection::vec("[abc]{0,9}", 0..8),
        ) {
            let whole = pieces.concat().into_bytes();
            let mut expected = whole.clone();
            for value in &values {
                for start in 0..whole.len().saturating_sub(value.len() - 1) {
                    if whole[start..].starts_with(value.as_bytes()) {
                        expected[start..start + value.len()].fill(MASK);
                    }
                }
            }
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
            prop_assert_eq!(masked(&values, &pieces), expected);
        }

        #[test]
        fn releases_keep_the_length_and_never_show_a_value(
            pieces in prop::collection::vec("[abc]{0,9}", 0..12),
        ) {
            let masker = Masker::new(["abab", "bcbca"]);
            let mut stream = masker.stream();
            let mut out = Vec::new();
            for piece in &pieces {
                stream.feed(piece.as_bytes(), &mut out);
                stream.release(&mut out);
                prop_assert_eq!(stream.held(), 0);
            }
            stream.finish(&mut out);
            let whole = pieces.concat().into_bytes();
            prop_assert_eq!(out.len(), whole.len());
            for value in ["abab", "bcbca"] {
                prop_assert!(!out.windows(value.len()).any(|window| window == value.as_bytes()));
            }
        }
    }
}
