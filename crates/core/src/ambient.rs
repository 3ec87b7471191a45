//! Clock and randomness, brought from outside so that every rule can be shown at a fixed time.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

/// Gives the time of day, a clock for durations, and random bytes.
///
/// Whoever makes ids or events gets one from its caller. The real one belongs to a crate that may do
/// I/O; [`FixedAmbient`] is for tests.
pub trait Ambient: Debug + Send + Sync {
    /// Tells the time of day.
    fn now(&self) -> Timestamp;

    /// Tells how long it is since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;

    /// Fills the buffer with random bytes.
    fn fill_random(&self, buffer: &mut [u8]);

    /// Gives what an id is made of: milliseconds since 1970, and ten random bytes.
    fn id_parts(&self) -> (u64, [u8; 10]) {
        let mut random = [0; 10];
        self.fill_random(&mut random);
        let milliseconds = self.now().as_millisecond();
        (u64::try_from(milliseconds).unwrap_or_default(), random)
    }
}

/// Counts instead of looking: each call to the clock is one millisecond later, random bytes count up.
#[derive(Debug)]
pub struct FixedAmbient {
    start: Timestamp,
    ticks: AtomicU64,
    random: AtomicU64,
}

impl FixedAmbient {
    /// Begins at a time.
    pub const fn new(start: Timestamp) -> Self {
        Self {
            start,
            ticks: AtomicU64::new(0),
            random: AtomicU64::new(0),
        }
    }
}

impl Default for FixedAmbient {
    fn default() -> Self {
        Self::new(Timestamp::UNIX_EPOCH)
    }
}

impl Ambient for FixedAmbient {
    fn now(&self) -> Timestamp {
        self.start + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.ticks.fetch_add(1, Ordering::Relaxed))
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        let number = self.random.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        buffer.fill(0);
        for (byte, digit) in buffer.iter_mut().rev().zip(number.iter().rev()) {
            *byte = *digit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::EventId;

    #[test]
    fn ids_of_a_fixed_ambient_differ_and_are_the_same_each_time() {
        let make = || {
            let ambient = FixedAmbient::default();
            [0, 1].map(|_| {
                let (time, random) = ambient.id_parts();
                EventId::new(time, random)
            })
        };
        let [first, second] = make();
        assert_ne!(first, second);
        assert_eq!(make(), [first, second]);
    }
}
