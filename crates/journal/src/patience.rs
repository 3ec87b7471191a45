//! Waiting for locks that other programs hold: for how long, and who is told of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest time for which a lock of another program is waited for.
const LIMIT: Duration = Duration::from_secs(10);

/// Longest time when one has been waited for in vain and nothing went well since.
const LIMIT_AFTER_VAIN: Duration = Duration::from_millis(100);

/// How long a wait is nobody's business.
const SILENCE: Duration = Duration::from_secs(1);

/// Is told of a wait for a file.
type Notice = Arc<dyn Fn(&Path) + Send + Sync>;

/// Says how long locks of other programs are waited for, and who is told of a long wait.
#[derive(Clone)]
pub struct Patience {
    limit: Duration,
    notice: Option<Notice>,
}

impl Default for Patience {
    fn default() -> Self {
        Self::at_most(LIMIT)
    }
}

impl Patience {
    /// Waits no longer than this; then the operation fails with `journal_locked`.
    pub const fn at_most(limit: Duration) -> Self {
        Self {
            limit,
            notice: None,
        }
    }

    /// Tells of a wait for a file that has taken a second, once each time.
    #[must_use]
    pub fn telling(mut self, notice: impl Fn(&Path) + Send + Sync + 'static) -> Self {
        self.notice = Some(Arc::new(notice));
        self
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Patience")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// The patience of one opened journal. All its connections share what they learnt.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    path: PathBuf,
    patience: Patience,
    in_vain: Arc<AtomicBool>,
}

impl Waiting {
    pub(crate) fn new(path: PathBuf, patience: Patience) -> Self {
        Self {
            path,
            patience,
            in_vain: Arc::default(),
        }
    }

    /// Begins a wait.
    pub(crate) fn begin(&self) -> Wait {
        Wait {
            waiting: self.clone(),
            since: Instant::now(),
            told: false,
        }
    }

    /// Says that a lock was got.
    pub(crate) fn succeeded(&self) {
        self.in_vain.store(false, Ordering::Relaxed);
    }
}

/// One wait, or one after the other.
#[derive(Debug)]
pub(crate) struct Wait {
    waiting: Waiting,
    since: Instant,
    told: bool,
}

impl Wait {
    /// Waits a short while before the next try, and tells whether there is to be one.
    pub(crate) fn go_on(&mut self, tries: i32) -> bool {
        if tries == 0 {
            self.since = Instant::now();
            self.told = false;
        }
        let Waiting {
            path,
            patience,
            in_vain,
        } = &self.waiting;
        let limit = if in_vain.load(Ordering::Relaxed) {
            patience.limit.min(LIMIT_AFTER_VAIN)
        } else {
            patience.limit
        };
        let waited = self.since.elapsed();
        if tries > 0 && waited >= limit {
            in_vain.store(true, Ordering::Relaxed);
            return false;
        }
        if waited >= SILENCE && !self.told {
            self.told = true;
            if let Some(notice) = &patience.notice {
                notice(path);
            }
        }
        // Short at first, because an append takes a tenth of a millisecond. What the process and the
        // try add makes two that began together part.
        let half = (100_u64 << tries.clamp(0, 6)).min(5_000);
        let spread =
            u64::from(std::process::id()) * 7_919 + u64::from(tries.unsigned_abs()) * 104_729;
        std::thread::sleep(Duration::from_micros(half + spread % half));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_second_wait_after_one_in_vain_is_short_until_something_went_well() {
        let waiting = Waiting::new("x".into(), Patience::at_most(Duration::from_millis(400)));
        let mut wait = waiting.begin();
        let mut whole = || {
            let begun = Instant::now();
            let mut tries = 0;
            while wait.go_on(tries) {
                tries += 1;
            }
            begun.elapsed()
        };
        assert!(whole() >= Duration::from_millis(400));
        assert!(whole() < Duration::from_millis(400));
        waiting.succeeded();
        assert!(whole() >= Duration::from_millis(400));
    }

    #[test]
    fn a_long_wait_is_told_once() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hear = Arc::clone(&told);
        let patience = Patience::default()
            .telling(move |path| hear.lock().expect("no panic").push(path.to_owned()));
        let mut wait = Waiting::new("x".into(), patience).begin();
        assert!(wait.go_on(0));
        assert!(told.lock().expect("no panic").is_empty());
        wait.since = wait
            .since
            .checked_sub(SILENCE)
            .expect("the machine runs for longer");
        assert!(wait.go_on(1) && wait.go_on(2));
        assert_eq!(*told.lock().expect("no panic"), [PathBuf::from("x")]);
    }
}
