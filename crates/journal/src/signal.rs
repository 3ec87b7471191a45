//! Wakes those who wait for events of this process.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    raised: Condvar,
}

#[derive(Debug, Default)]
struct State {
    generation: u64,
    /// Who waits: without anybody nobody has to be woken, which is a system call.
    waiting: usize,
}

impl Signal {
    pub(crate) fn generation(&self) -> u64 {
        self.state().generation
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole after every statement that changes it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn raise(&self) {
        let mut state = self.state();
        state.generation += 1;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.raised.notify_all();
        }
    }

    /// Waits until the signal was raised after `seen`, and no longer than `limit`.
    pub(crate) fn wait(&self, seen: u64, limit: Duration) {
        let mut state = self.state();
        state.waiting += 1;
        let (mut state, _) = self
            .raised
            .wait_timeout_while(state, limit, |state| state.generation == seen)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
    }
}
