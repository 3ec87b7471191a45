use std::time::{Duration, Instant};

use cofferdam_core::ambient::Ambient;
use jiff::Timestamp;

/// The clocks and the randomness of the machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemAmbient {
    start: Instant,
}

impl SystemAmbient {
    /// Begins to count from now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemAmbient {
    fn default() -> Self {
        Self::new()
    }
}

impl Ambient for SystemAmbient {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        getrandom::fill(buffer).expect("a machine that gives no randomness cannot make ids");
    }
}
