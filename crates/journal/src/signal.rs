//! Wakes those who wait for events of this process.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Signal {
    generation: Mutex<u64>,
    raised: Condvar,
}

impl Signal {
    pub(crate) fn generation(&self) -> u64 {
        *self
            .generation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn raise(&self) {
        *self
            .generation
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
        self.raised.notify_all();
    }

    /// Waits until the signal was raised after `seen`, and no longer than `limit`.
    pub(crate) fn wait(&self, seen: u64, limit: Duration) {
        let generation = self
            .generation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        drop(
            self.raised
                .wait_timeout_while(generation, limit, |now| *now == seen),
        );
    }
}
