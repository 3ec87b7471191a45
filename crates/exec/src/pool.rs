//! Ready places: walls that stand already when a command comes for them.
//!
//! A place is known by the hash of its plan. It is handed to one command at a time, and only after
//! whoever would start the command has answered; it is used again only when the command left nothing
//! in it: no process, no file in a private place, no System V object. What is not so is taken down,
//! so that two commands that are no session never meet each other's leavings.
//!
//! Ports that are opened outside and ways out to hosts belong to one command: places with them are
//! put up for it.

mod standing;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::event::Subject;
use cofferdam_core::id::EnclosureId;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel};
use cofferdam_core::spec::{Digest, EnclosureSpec, Mount, ProviderKind};

use crate::enclosure::Enclosure;
use crate::plane::Plane;
use crate::run::Run;

/// How long a place may take to show that it is ready; one that is stopped never does.
const PROOF: Duration = Duration::from_millis(250);
/// How long its keeper may look for what was left.
const LOOK: Duration = Duration::from_millis(250);

/// How many places are kept ready, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct PoolOptions {
    /// Places of one plan that are put up beforehand, once a command has asked for that plan.
    pub ahead: usize,
    /// Places that stand ready at once, of all plans together.
    pub most: usize,
    /// How long a place stands without being used.
    pub idle: Duration,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            ahead: 1,
            most: 64,
            idle: Duration::from_mins(2),
        }
    }
}

/// What a pool has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Commands that found a place ready.
    pub hits: u64,
    /// Commands for which one was put up.
    pub misses: u64,
    /// Places that were taken down because something was left in them, or they did not answer.
    pub discarded: u64,
    /// Places that are ready now.
    pub ready: u64,
}

/// Ready places of one plane. Dropping it takes all of them down.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    caretaker: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    plane: Plane,
    options: PoolOptions,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The last one used is the last one.
    ready: Vec<Ready>,
    /// Plans of which places are to be put up, with how many.
    wanted: Vec<(EnclosureSpec, Key, usize)>,
    /// Places that callers share.
    standing: Vec<standing::Standing>,
    /// Places that are to be taken down.
    refuse: Vec<Enclosure>,
    counts: PoolCounts,
    closed: bool,
}

/// By what a place is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    hash: Digest,
    requested: IsolationLevel,
}

/// A place that nobody uses.
#[derive(Debug)]
struct Ready {
    key: Key,
    enclosure: Enclosure,
    /// What its private places and what it shows of the host were like when it was new.
    clean: Option<u64>,
    sources: u64,
    since: Instant,
}

impl Pool {
    /// Makes a pool without any place.
    pub fn new(plane: Plane, options: PoolOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                plane,
                options,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
            caretaker: Mutex::new(None),
        }
    }

    /// Tells what it has done.
    pub fn counts(&self) -> PoolCounts {
        let state = self.shared.lock();
        PoolCounts {
            ready: state.ready.len() as u64,
            ..state.counts
        }
    }

    /// Runs one command as [`Plane::run_once`] does, in a place that stands where there is one.
    pub fn run(
        &self,
        spec: EnclosureSpec,
        requested: IsolationLevel,
        run: Run<'_>,
    ) -> CommandOutcome {
        self.run_known(&spec, &spec.hash(), requested, run)
    }

    /// The same by a plan that several commands share, whose hash is known: what is put up for one of
    /// them has private places of its own.
    pub fn run_known(
        &self,
        spec: &EnclosureSpec,
        hash: &Digest,
        requested: IsolationLevel,
        run: Run<'_>,
    ) -> CommandOutcome {
        let shared = &self.shared;
        let own = || spec.relocated(&shared.another_scratch(spec));
        if !can_stand_ready(spec) {
            return shared.plane.run_once(own(), requested, run, |_| Vec::new());
        }
        let key = Key {
            hash: hash.clone(),
            requested,
        };
        let found = shared.take(&key);
        let is_hit = found.is_some();
        let place = found.or_else(|| Ready::put_up(&shared.plane, &own(), &key));
        // What cannot stand says so, as it does where nothing is kept ready.
        let Some(place) = place else {
            return shared.plane.run_once(own(), requested, run, |_| Vec::new());
        };
        let outcome = place.enclosure.run(run);
        let left_nothing = outcome.error.is_none()
            && outcome.ended_by.is_some()
            && place.clean.is_some()
            && place.clean == place.traces();
        self.give_back(place, spec, left_nothing, is_hit);
        outcome
    }

    fn give_back(&self, place: Ready, spec: &EnclosureSpec, left_nothing: bool, is_hit: bool) {
        let shared = &self.shared;
        let ahead = shared.options.ahead;
        {
            let mut state = shared.lock();
            if is_hit {
                state.counts.hits += 1;
            } else {
                state.counts.misses += 1;
            }
            let key = place.key.clone();
            if left_nothing && !state.closed && state.ready.len() < shared.options.most {
                state.ready.push(Ready {
                    since: Instant::now(),
                    ..place
                });
            } else {
                state.counts.discarded += u64::from(!left_nothing);
                state.refuse.push(place.enclosure);
            }
            let there = state.ready.iter().filter(|one| one.key == key).count();
            let asked = state.wanted.iter().any(|(_, wanted, _)| *wanted == key);
            if there < ahead && !asked {
                state.wanted.push((spec.clone(), key, ahead - there));
            }
            if state.refuse.is_empty() && state.wanted.is_empty() && is_hit {
                return;
            }
        }
        self.wake();
    }

    /// Wakes the thread that puts places up and takes them down, or starts it.
    fn wake(&self) {
        let mut caretaker = self
            .caretaker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if caretaker.is_none() {
            let shared = Arc::clone(&self.shared);
            // Without it nothing is ready beforehand, and what is refused stands until the end.
            *caretaker = std::thread::Builder::new()
                .name("cofferdam-pool".to_owned())
                .spawn(move || shared.care())
                .ok();
        }
        self.shared.changed.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        let caretaker = self
            .caretaker
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = caretaker {
            // It has nothing to tell any more.
            let _ = thread.join();
        }
        let mut state = self.shared.lock();
        let ready = std::mem::take(&mut state.ready);
        let refuse = std::mem::take(&mut state.refuse);
        let standing = std::mem::take(&mut state.standing);
        drop(state);
        drop((ready, refuse, standing));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The lists are whole after every statement that changes them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place that is proven to be ready.
    fn take(&self, key: &Key) -> Option<Ready> {
        loop {
            let found = {
                let mut state = self.lock();
                let index = state.ready.iter().rposition(|one| one.key == *key)?;
                state.ready.remove(index)
            };
            if found.sources == sources(found.enclosure.spec()) && found.enclosure.prove(PROOF) {
                return Some(found);
            }
            let mut state = self.lock();
            state.counts.discarded += 1;
            state.refuse.push(found.enclosure);
        }
    }

    /// Names a private place beside the one of a plan.
    fn another_scratch(&self, spec: &EnclosureSpec) -> BytePath {
        let (time, random) = self.plane.ambient().id_parts();
        let name = EnclosureId::new(time, random);
        let beside = spec.scratch.parent().unwrap_or_default();
        beside.join(name.as_str())
    }

    /// Puts up what is wanted and takes down what is over, until the pool is closed.
    fn care(&self) {
        let mut state = self.lock();
        while !state.closed {
            let idle = self.options.idle;
            let mut over = std::mem::take(&mut state.refuse);
            let mut index = 0;
            while index < state.ready.len() {
                if state.ready[index].since.elapsed() >= idle {
                    over.push(state.ready.remove(index).enclosure);
                } else {
                    index += 1;
                }
            }
            let unused: Vec<_> = state
                .standing
                .extract_if(.., |one| one.idle() >= idle)
                .collect();
            let wanted = state.wanted.pop();
            let has_room = state.ready.len() < self.options.most;
            if wanted.is_none() && over.is_empty() && unused.is_empty() {
                let ready = state.ready.iter().map(|one| one.since.elapsed());
                let oldest = ready
                    .chain(state.standing.iter().map(standing::Standing::idle))
                    .max();
                let nap = oldest.map_or(idle, |age| idle.saturating_sub(age));
                state = self
                    .changed
                    .wait_timeout(state, nap.max(Duration::from_millis(1)))
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
                continue;
            }
            drop(state);
            drop((over, unused));
            if let Some((spec, key, number)) = wanted.filter(|_| has_room) {
                for _ in 0..number {
                    let spec = spec.relocated(&self.another_scratch(&spec));
                    // What cannot stand now may later: the next command asks again.
                    let Some(place) = Ready::put_up(&self.plane, &spec, &key) else {
                        break;
                    };
                    self.lock().ready.push(place);
                }
            }
            state = self.lock();
        }
    }
}

impl Ready {
    /// Puts a place up, and remembers what it is like when nothing was done in it.
    fn put_up(plane: &Plane, spec: &EnclosureSpec, key: &Key) -> Option<Self> {
        let sources = sources(spec);
        let enclosure = plane
            .enclose(spec.clone(), key.requested, &Subject::default())
            .ok()?;
        let mut place = Self {
            key: key.clone(),
            enclosure,
            clean: None,
            sources,
            since: Instant::now(),
        };
        place.clean = place.traces();
        (place.clean.is_some() && place.enclosure.prove(PROOF)).then_some(place)
    }

    fn traces(&self) -> Option<u64> {
        self.enclosure
            .as_it_stands(|backend| backend.traces(LOOK))
            .flatten()
    }
}

/// Tells whether a place of this plan may stand before anybody needs it.
fn can_stand_ready(spec: &EnclosureSpec) -> bool {
    spec.provider != ProviderKind::Memory && spec.ports.is_empty() && spec.egress.is_none()
}

/// Gives one number for what a plan shows of the host: a directory that was replaced since is another
/// one, and only a new place shows it.
fn sources(spec: &EnclosureSpec) -> u64 {
    let mut hasher = DefaultHasher::new();
    let binds = spec.mounts.iter().filter_map(|mount| match mount {
        Mount::Bind { source, .. } => Some(source),
        _ => None,
    });
    for source in binds.chain([&spec.workspace_source]) {
        let found = std::fs::metadata(source.as_path());
        found
            .map(|found| (found.dev(), found.ino()))
            .ok()
            .hash(&mut hasher);
    }
    hasher.finish()
}
