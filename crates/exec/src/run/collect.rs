//! Both streams of a command, and what they were in order of arrival.

use std::io;
use std::path::Path;

use cofferdam_core::limits;
use cofferdam_core::mask::{self, Masker};

use crate::output::{Collected, Stream, keep_tail};

/// Collects the output of one command; known secrets are masked before anything is kept.
#[derive(Debug)]
pub(super) struct Collection<'m> {
    pub(super) stdout: Collected,
    pub(super) stderr: Collected,
    masks: Option<[mask::Stream<'m>; 2]>,
    masked: Vec<u8>,
    arrival: Vec<u8>,
    arrived: u64,
    /// The first failure of the spill file: the command goes on, the outcome says it.
    pub(super) failure: Option<io::Error>,
}

impl<'m> Collection<'m> {
    pub(super) fn new(cap: Option<u64>, masker: &'m Masker) -> Self {
        Self {
            stdout: Collected::new(cap),
            stderr: Collected::new(cap),
            masks: (!masker.is_empty()).then(|| [masker.stream(), masker.stream()]),
            masked: Vec::new(),
            arrival: Vec::new(),
            arrived: 0,
            failure: None,
        }
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8], spill: &Path) {
        let Some([stdout, stderr]) = &mut self.masks else {
            return self.keep(stream, bytes, spill);
        };
        let mut masked = std::mem::take(&mut self.masked);
        masked.clear();
        let mask = if stream == Stream::Stdout {
            stdout
        } else {
            stderr
        };
        mask.feed(bytes, &mut masked);
        self.keep(stream, &masked, spill);
        self.masked = masked;
    }

    /// Takes what was held back because it might have been the beginning of a secret.
    pub(super) fn finish(&mut self, spill: &Path) {
        let Some(masks) = self.masks.take() else {
            return;
        };
        for (mask, stream) in masks.into_iter().zip([Stream::Stdout, Stream::Stderr]) {
            let mut rest = Vec::new();
            mask.finish(&mut rest);
            self.keep(stream, &rest, spill);
        }
    }

    fn keep(&mut self, stream: Stream, bytes: &[u8], spill: &Path) {
        let collected = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        if let Err(error) = collected.push(bytes, spill) {
            self.failure.get_or_insert(error);
        }
        self.arrived += bytes.len() as u64;
        keep_tail(&mut self.arrival, bytes, limits::OUTPUT_RING_BYTES);
    }

    /// Gives the tail in order of arrival, and whether it is everything.
    pub(super) fn arrival(&self) -> (&[u8], bool) {
        (&self.arrival, self.arrived == self.arrival.len() as u64)
    }
}
