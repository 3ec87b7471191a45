//! Both streams of a command, and what they were in order of arrival.

use std::io;
use std::path::Path;

use cofferdam_core::limits;

use crate::output::{Collected, Stream, keep_tail};

/// Collects the output of one command.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) stdout: Collected,
    pub(super) stderr: Collected,
    arrival: Vec<u8>,
    arrived: u64,
    /// The first failure of the spill file: the command goes on, the outcome says it.
    pub(super) failure: Option<io::Error>,
}

impl Collection {
    pub(super) const fn new(cap: Option<u64>) -> Self {
        Self {
            stdout: Collected::new(cap),
            stderr: Collected::new(cap),
            arrival: Vec::new(),
            arrived: 0,
            failure: None,
        }
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8], spill: &Path) {
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
