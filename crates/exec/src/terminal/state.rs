//! What is known of one terminal while it runs, shared by all who look at it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::mask::{self, Masker};
use cofferdam_core::operation::TerminalEnd;

use super::record::Recorder;
use super::ring::Ring;
use super::screen::Screen;
use crate::control::TerminalSize;
use crate::output::{OutputSink, Stream};

/// How long bytes are held back that may be the beginning of a secret.
pub(super) const HOLD: Duration = Duration::from_millis(50);

type Hook = Arc<dyn Fn() + Send + Sync>;

/// One terminal, as several threads see it.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    hooks: Mutex<Hooks>,
}

#[derive(Default)]
struct Hooks {
    next: u64,
    all: BTreeMap<u64, Hook>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Hooks")
            .field("count", &self.all.len())
            .finish_non_exhaustive()
    }
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) ring: Ring,
    pub(super) screen: Screen,
    pub(super) recorder: Option<Recorder>,
    pub(super) began: Instant,
    pub(super) last_output: Option<Instant>,
    /// Up to where output has been told to the journal.
    pub(super) told: u64,
    /// The last text that was typed and shown.
    pub(super) last_input: Option<String>,
    pub(super) ended: Option<TerminalEnd>,
    /// Whether nothing will be written any more.
    pub(super) silent: bool,
    /// Whether bytes are held back that may be the beginning of a secret.
    pub(super) held: bool,
    /// Why it was closed, when somebody closed it.
    pub(super) reason: Option<String>,
}

impl Shared {
    pub(super) fn new(size: TerminalSize, recorder: Option<Recorder>) -> Self {
        Self {
            state: Mutex::new(State {
                ring: Ring::default(),
                screen: Screen::new(size),
                recorder,
                began: Instant::now(),
                last_output: None,
                told: 0,
                last_input: None,
                ended: None,
                silent: false,
                held: false,
                reason: None,
            }),
            changed: Condvar::new(),
            hooks: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Screen and ring are whole after every statement; a panicking feeder loses bytes at most.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, at most this long.
    pub(super) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> MutexGuard<'a, State> {
        self.changed
            .wait_timeout(state, limit)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Tells everybody that something changed.
    pub(super) fn tell(&self) {
        self.changed.notify_all();
        let hooks: Vec<Hook> = self.hooks().all.values().cloned().collect();
        for hook in hooks {
            hook();
        }
    }

    pub(super) fn add_hook(&self, hook: Hook) -> u64 {
        let mut hooks = self.hooks();
        hooks.next += 1;
        let id = hooks.next;
        hooks.all.insert(id, hook);
        id
    }

    pub(super) fn remove_hook(&self, id: u64) {
        self.hooks().all.remove(&id);
    }

    fn hooks(&self) -> MutexGuard<'_, Hooks> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn show(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.ring.push(bytes);
        self.screen.feed(bytes);
        let at = self.began.elapsed();
        self.recorder
            .iter_mut()
            .for_each(|recorder| recorder.output(at, bytes));
        self.last_output = Some(Instant::now());
    }

    pub(super) fn marker(&mut self, label: &str) {
        let at = self.began.elapsed();
        self.recorder
            .iter_mut()
            .for_each(|recorder| recorder.marker(at, label));
    }
}

/// Bytes of a terminal on their way to everybody: what may be the beginning of a secret waits.
#[derive(Debug)]
pub(super) struct Feed<'m> {
    shared: Arc<Shared>,
    mask: Arc<Mutex<Masked<'m>>>,
}

#[derive(Debug)]
pub(super) struct Masked<'m> {
    stream: mask::Stream<'m>,
    since: Option<Instant>,
}

impl<'m> Feed<'m> {
    pub(super) fn new(shared: Arc<Shared>, masker: &'m Masker) -> Self {
        let masked = Masked {
            stream: masker.stream(),
            since: None,
        };
        Self {
            shared,
            mask: Arc::new(Mutex::new(masked)),
        }
    }

    /// Gives what lets held bytes go.
    pub(super) fn release(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            mask: Arc::clone(&self.mask),
        }
    }

    fn masked(&self) -> MutexGuard<'_, Masked<'m>> {
        self.mask.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go what is held for too long, or all of it; tells whether something still waits.
    pub(super) fn let_go(&self, all: bool) -> bool {
        let mut masked = self.masked();
        let Some(since) = masked.since else {
            return false;
        };
        if !all && since.elapsed() < HOLD {
            return true;
        }
        let mut out = Vec::new();
        masked.stream.release(&mut out);
        masked.since = None;
        let mut state = self.shared.state();
        state.held = false;
        state.show(&out);
        drop(state);
        drop(masked);
        self.shared.tell();
        false
    }
}

impl OutputSink for Feed<'_> {
    fn write(&mut self, _stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
        let mut masked = self.masked();
        let mut out = Vec::with_capacity(bytes.len());
        masked.stream.feed(bytes, &mut out);
        masked.since =
            (masked.stream.held() > 0).then(|| masked.since.unwrap_or_else(Instant::now));
        // Under the lock of the mask, so that nothing overtakes.
        let mut state = self.shared.state();
        state.held = masked.since.is_some();
        state.show(&out);
        drop(state);
        drop(masked);
        self.shared.tell();
        Ok(())
    }
}
