//! What is open, and the thread that ends what was forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::event_type;
use cofferdam_core::id::SessionId;
use cofferdam_core::operation::{SessionClosed, SessionMode};
use cofferdam_core::outcome::Status;
use cofferdam_exec::{Control, Session};
use jiff::Timestamp;
use serde_json::json;

use super::Walls;
use super::stamp::Stamp;
use crate::host::{PolicyRequest, Resolved};
use crate::participants::Participants;
use crate::run::{FrontDoor, Opening};
use crate::scribe::{Line, Scribe};

/// Sessions that can be open at once.
const MOST: usize = 1024;
/// Ended sessions of which the jobs' output can still be read.
const REMEMBERED: usize = 16;
/// The longest that the thread sleeps, so that a job that ended is noticed.
const LOOK: Duration = Duration::from_secs(30);

/// What was agreed on when a session was opened.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) id: SessionId,
    pub(crate) name: Option<String>,
    pub(crate) mode: SessionMode,
    pub(crate) door: FrontDoor,
    pub(crate) policy: PolicyRequest,
    pub(crate) who: Participants,
    pub(crate) opened: Timestamp,
    pub(crate) began: Duration,
    pub(crate) idle_limit: Duration,
    pub(crate) lifetime: Duration,
}

/// One session that is open.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) terms: Terms,
    walls: Mutex<Walls>,
    progress: Mutex<Progress>,
    closed: AtomicBool,
    /// Whether it got other walls while none of its commands asked; the next one says so.
    reset: AtomicBool,
    /// Held while it is compared with the policy: two at once would put up two places.
    following: Mutex<()>,
}

/// What has been run in a session.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) commands: u64,
    pub(crate) running: u64,
    /// When the last command ended, by the monotonic clock.
    pub(crate) last_end: Duration,
    controls: BTreeMap<u64, Control>,
}

impl Entry {
    pub(crate) fn new(terms: Terms, walls: Walls) -> Self {
        let progress = Progress {
            last_end: terms.began,
            ..Progress::default()
        };
        Self {
            terms,
            walls: Mutex::new(walls),
            progress: Mutex::new(progress),
            closed: AtomicBool::new(false),
            reset: AtomicBool::new(false),
            following: Mutex::default(),
        }
    }

    pub(crate) fn walls(&self) -> (Arc<Session>, Arc<Resolved>) {
        let walls = lock(&self.walls);
        (Arc::clone(&walls.session), Arc::clone(&walls.resolved))
    }

    pub(crate) fn has_stamp(&self, stamp: &Stamp) -> bool {
        lock(&self.walls).stamp == *stamp
    }

    pub(crate) fn replace_policy(&self, resolved: Resolved, stamp: Stamp) {
        let mut walls = lock(&self.walls);
        walls.resolved = Arc::new(resolved);
        walls.stamp = stamp;
    }

    pub(crate) fn replace_walls(&self, walls: Walls) {
        *lock(&self.walls) = walls;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until nobody else compares it with the policy.
    pub(crate) fn following(&self) -> MutexGuard<'_, ()> {
        lock(&self.following)
    }

    /// Notes that it got other walls.
    pub(crate) fn note_reset(&self) {
        self.reset.store(true, Ordering::Release);
    }

    /// Tells whether it got other walls since somebody was told.
    pub(crate) fn take_reset(&self) -> bool {
        self.reset.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// Counts a command that begins, until what is given back is dropped.
    pub(crate) fn begin(self: &Arc<Self>, control: &Control) -> Begun {
        let mut progress = self.progress();
        progress.commands += 1;
        progress.running += 1;
        let number = progress.commands;
        progress.controls.insert(number, control.clone());
        Begun {
            entry: Arc::clone(self),
            number,
        }
    }

    /// Keeps it from ending for want of commands, until what is given back is dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> Begun {
        self.progress().running += 1;
        Begun {
            entry: Arc::clone(self),
            // No command has this number.
            number: 0,
        }
    }

    /// Cancels every command that runs; gives how many.
    pub(crate) fn cancel_commands(&self) -> u64 {
        let progress = self.progress();
        for control in progress.controls.values() {
            control.cancel();
        }
        progress.controls.len() as u64
    }
}

/// A command that runs in a session.
#[derive(Debug)]
pub(crate) struct Begun {
    entry: Arc<Entry>,
    number: u64,
}

impl Drop for Begun {
    fn drop(&mut self) {
        let (session, _) = self.entry.walls();
        let now = session.monotonic();
        let mut progress = self.entry.progress();
        progress.running -= 1;
        progress.last_end = now;
        progress.controls.remove(&self.number);
    }
}

/// Ends a session, and tells of it.
pub(crate) fn close(entry: &Entry, reason: &str, scribe: &Scribe) -> SessionClosed {
    entry.closed.store(true, Ordering::Release);
    let cancelled = entry.cancel_commands();
    let (session, _) = entry.walls();
    let ended_by = session.end();
    let subject = entry.terms.who.subject();
    let mut lines = vec![Line::new(
        event_type::SESSION_ENDED,
        &subject,
        json!({
            "session_id": entry.terms.id,
            "reason": reason,
            "ended_by": ended_by,
            "cancelled": cancelled,
        }),
    )];
    let opening = Opening {
        who: &entry.terms.who,
        words: "",
        door: entry.terms.door,
    };
    lines.extend(opening.ending(Status::Completed));
    // The session has ended whether or not the journal takes it.
    let _ = scribe.record(lines);
    SessionClosed {
        session_id: entry.terms.id.clone(),
        cancelled,
        ended_by,
    }
}

/// Every session of a runtime. Dropping it ends them.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By id, and so by age. One without an entry is being opened.
    open: BTreeMap<SessionId, Slot>,
    /// The last ones that ended: whoever follows what their jobs write has not read all of it yet.
    ended: VecDeque<Arc<Entry>>,
    /// Whether no more are opened: the server ends.
    stopped: bool,
    closed: bool,
}

#[derive(Debug)]
struct Slot {
    name: Option<String>,
    entry: Option<Arc<Entry>>,
}

/// A place in the list for a session that is being opened; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    sessions: &'a Sessions,
    id: SessionId,
    filled: bool,
}

impl Reserved<'_> {
    pub(crate) fn fill(mut self, entry: Arc<Entry>, scribe: &Scribe) {
        self.filled = true;
        if let Some(slot) = lock(&self.sessions.shared.state).open.get_mut(&self.id) {
            slot.entry = Some(entry);
        }
        self.sessions.watch(scribe);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.filled {
            lock(&self.sessions.shared.state).open.remove(&self.id);
        }
    }
}

impl Sessions {
    pub(crate) fn reserve(
        &self,
        id: &SessionId,
        name: Option<&str>,
    ) -> Result<Reserved<'_>, Problem> {
        let mut state = lock(&self.shared.state);
        if state.stopped {
            return Err(crate::refusal::stopping());
        }
        if state.open.len() >= MOST {
            return Err(Problem::new(
                ErrorCode::SessionLimit,
                format!("{MOST} sessions are open already"),
            )
            .with_hint("close some of them"));
        }
        if let Some(name) = name
            && state
                .open
                .values()
                .any(|slot| slot.name.as_deref() == Some(name))
        {
            return Err(Problem::new(
                ErrorCode::SessionTaken,
                format!("a session named {name} is open already"),
            )
            .with_field("name")
            .with_hint("use that one, or take another name"));
        }
        state.open.insert(
            id.clone(),
            Slot {
                name: name.map(str::to_owned),
                entry: None,
            },
        );
        Ok(Reserved {
            sessions: self,
            id: id.clone(),
            filled: false,
        })
    }

    /// Finds a session by id or name.
    pub(crate) fn find(&self, reference: &str) -> Result<Arc<Entry>, Problem> {
        let state = lock(&self.shared.state);
        state
            .open
            .iter()
            .find(|(id, slot)| id.as_str() == reference || slot.name.as_deref() == Some(reference))
            .and_then(|(_, slot)| slot.entry.clone())
            .ok_or_else(|| {
                Problem::new(
                    ErrorCode::SessionUnknown,
                    format!("there is no session {reference}, or it has ended"),
                )
                .with_field("session")
                .with_hint("session_list tells which are open; session_open opens one")
            })
    }

    /// Finds one of the last sessions that ended, by its id.
    pub(crate) fn find_ended(&self, id: &str) -> Option<Arc<Entry>> {
        let state = lock(&self.shared.state);
        let mut ended = state.ended.iter();
        ended.find(|entry| entry.terms.id.as_str() == id).cloned()
    }

    /// Takes a session out of the list.
    pub(crate) fn take(&self, reference: &str) -> Result<Arc<Entry>, Problem> {
        let entry = self.find(reference)?;
        let removed = lock(&self.shared.state).remove(&entry.terms.id);
        // Somebody else may have been faster.
        removed.ok_or_else(|| {
            Problem::new(
                ErrorCode::SessionUnknown,
                format!("the session {reference} has ended"),
            )
        })
    }

    /// Has no more opened.
    pub(crate) fn stop_opening(&self) {
        lock(&self.shared.state).stopped = true;
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        let state = lock(&self.shared.state);
        state
            .open
            .values()
            .filter_map(|slot| slot.entry.clone())
            .collect()
    }

    /// Starts the thread that ends what is over, or wakes it: there is something new to watch.
    fn watch(&self, scribe: &Scribe) {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let scribe = scribe.clone();
            // Without it sessions end when they are closed, or with the runtime.
            *thread = std::thread::Builder::new()
                .name("cofferdam-sessions".to_owned())
                .spawn(move || shared.watch(&scribe))
                .ok();
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.shared.state);
            state.closed = true;
            state.open.clear();
            state.ended.clear();
        }
        self.shared.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // It has nothing to tell any more.
            let _ = thread.join();
        }
    }
}

impl State {
    /// Takes a session out of the list, and remembers it for a while.
    fn remove(&mut self, id: &SessionId) -> Option<Arc<Entry>> {
        let entry = self.open.remove(id)?.entry?;
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(Arc::clone(&entry));
        Some(entry)
    }
}

impl Shared {
    fn watch(&self, scribe: &Scribe) {
        let mut state = lock(&self.state);
        while !state.closed {
            let entries: Vec<Arc<Entry>> = state
                .open
                .values()
                .filter_map(|slot| slot.entry.clone())
                .collect();
            drop(state);
            let mut nap = LOOK;
            for entry in entries {
                match left(&entry) {
                    Ok(left) => nap = nap.min(left),
                    Err(reason) => {
                        let removed = lock(&self.state).remove(&entry.terms.id);
                        if removed.is_some() {
                            close(&entry, reason, scribe);
                        }
                    }
                }
            }
            state = lock(&self.state);
            if state.closed {
                return;
            }
            state = self
                .changed
                .wait_timeout(state, nap)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Tells how long a session has at least, or why it is over.
fn left(entry: &Entry) -> Result<Duration, &'static str> {
    let (session, _) = entry.walls();
    let now = session.monotonic();
    let terms = &entry.terms;
    let of_life = (terms.began + terms.lifetime).saturating_sub(now);
    if of_life.is_zero() {
        return Err("lifetime");
    }
    let has_jobs = !session.jobs().is_empty();
    let mut progress = entry.progress();
    if progress.running > 0 || has_jobs {
        progress.last_end = now;
        return Ok(of_life.min(terms.idle_limit));
    }
    let idle = (progress.last_end + terms.idle_limit).saturating_sub(now);
    if idle.is_zero() {
        return Err("idle_limit");
    }
    Ok(of_life.min(idle))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
