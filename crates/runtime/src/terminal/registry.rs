//! Which terminals there are, and what each was opened with.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::Subject;
use cofferdam_core::limits::TERMINALS;
use cofferdam_core::operation::TerminalName;
use cofferdam_core::outcome::Status;
use cofferdam_exec::Enclosure;
use cofferdam_exec::terminal::Terminal;

use super::open::Fixed;
use crate::participants::Participants;
use crate::run::{FrontDoor, Opening};
use crate::scribe::Line;
use crate::session::Begun;

/// One terminal by its name. What it may is fixed; what it is changes by a reset.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: TerminalName,
    pub(crate) fixed: Fixed,
    pub(crate) subject: Subject,
    pub(crate) who: Participants,
    pub(crate) door: FrontDoor,
    terminal: Mutex<Arc<Terminal>>,
    timeouts: AtomicU32,
    /// Keeps the session from ending for want of commands.
    _session: Option<Begun>,
}

impl Entry {
    pub(super) fn new(
        name: TerminalName,
        fixed: Fixed,
        who: Participants,
        door: FrontDoor,
        terminal: Terminal,
        session: Option<Begun>,
    ) -> Self {
        Self {
            name,
            fixed,
            subject: who.subject(),
            who,
            door,
            terminal: Mutex::new(Arc::new(terminal)),
            timeouts: AtomicU32::new(0),
            _session: session,
        }
    }

    pub(super) fn terminal(&self) -> Arc<Terminal> {
        Arc::clone(&lock(&self.terminal))
    }

    pub(super) fn replace(&self, terminal: Terminal) {
        *lock(&self.terminal) = Arc::new(terminal);
        self.count_timeouts(false);
    }

    pub(super) fn spec_hash(&self) -> String {
        self.fixed.spec.hash().to_string()
    }

    /// Counts waits in a row that were over before the program was.
    pub(super) fn count_timeouts(&self, one_more: bool) -> u32 {
        if one_more {
            self.timeouts.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            self.timeouts.store(0, Ordering::Relaxed);
            0
        }
    }

    pub(super) fn ending(&self) -> Vec<Line> {
        let opening = Opening {
            who: &self.who,
            words: self.name.as_str(),
            door: self.door,
        };
        opening.ending(Status::Completed)
    }
}

/// Every terminal of a runtime, in the order in which they were opened.
#[derive(Debug)]
pub(crate) struct Registry {
    limit: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Arc<Entry>>,
    /// Names of those that are being opened.
    opening: Vec<TerminalName>,
    active: Option<TerminalName>,
    /// Whether no more are opened: the server ends.
    stopped: bool,
    /// Enclosures that stand, by the hash of their plan: terminals of the same walls share them, so
    /// that a server in one is reached from another.
    enclosures: BTreeMap<String, Weak<Enclosure>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            limit: AtomicUsize::new(TERMINALS),
            state: Mutex::default(),
        }
    }
}

/// A name that is taken until its terminal is open, or is not going to be.
#[derive(Debug)]
pub(super) struct Reserved<'a> {
    registry: &'a Registry,
    name: TerminalName,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut state = self.registry.state();
        state.opening.retain(|name| *name != self.name);
    }
}

impl Registry {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Has no more opened.
    pub(crate) fn stop_opening(&self) {
        self.state().stopped = true;
    }

    pub(super) fn reserve(&self, name: &TerminalName) -> Result<Reserved<'_>, Problem> {
        let mut state = self.state();
        if state.stopped {
            return Err(crate::refusal::stopping());
        }
        let there = names(&state);
        let is_there =
            state.opening.contains(name) || state.entries.iter().any(|entry| entry.name == *name);
        if is_there {
            return Err(Problem::new(
                ErrorCode::TerminalExists,
                format!("there is a terminal {name} already; open are: {there}"),
            )
            .with_field("name")
            .with_hint(format!(
                "type into it with terminal_input, begin it anew with terminal_reset, or take \
                 another name than {name}"
            ))
            .with_details(existing(&state)));
        }
        let limit = self.limit();
        if state.entries.len() + state.opening.len() >= limit {
            return Err(Problem::new(
                ErrorCode::TerminalLimit,
                format!("{limit} terminals are open, which is as many as there may be: {there}"),
            )
            .with_hint("use one of them, or close one with terminal_close")
            .with_details(existing(&state)));
        }
        state.opening.push(name.clone());
        Ok(Reserved {
            registry: self,
            name: name.clone(),
        })
    }

    pub(super) fn add(&self, entry: Arc<Entry>) {
        let mut state = self.state();
        state.active.get_or_insert_with(|| entry.name.clone());
        state.entries.push(entry);
    }

    pub(super) fn find(&self, name: Option<&TerminalName>) -> Result<Arc<Entry>, Problem> {
        let state = self.state();
        let there = names(&state);
        let hint = if state.entries.is_empty() {
            "open one with terminal_open"
        } else {
            "name one of them"
        };
        let Some(name) = name.or(state.active.as_ref()) else {
            return Err(
                Problem::new(ErrorCode::TerminalUnknown, "no terminal is open").with_hint(hint),
            );
        };
        state
            .entries
            .iter()
            .find(|entry| entry.name == *name)
            .cloned()
            .ok_or_else(|| {
                Problem::new(
                    ErrorCode::TerminalUnknown,
                    format!("there is no terminal {name}; open are: {there}"),
                )
                .with_field("name")
                .with_hint(hint)
                .with_details(existing(&state))
            })
    }

    /// Takes one out; gives the active one and how many are left.
    pub(super) fn remove(&self, entry: &Arc<Entry>) -> (Option<TerminalName>, usize) {
        let mut state = self.state();
        state.entries.retain(|one| !Arc::ptr_eq(one, entry));
        if state.active.as_ref() == Some(&entry.name) {
            state.active = state.entries.first().map(|one| one.name.clone());
        }
        (state.active.clone(), state.entries.len())
    }

    pub(super) fn activate(&self, name: &TerminalName) -> Option<TerminalName> {
        self.state().active.replace(name.clone())
    }

    pub(super) fn all(&self) -> (Vec<Arc<Entry>>, Option<TerminalName>) {
        let state = self.state();
        (state.entries.clone(), state.active.clone())
    }

    /// Gives the enclosure of a plan: one that stands, or a new one.
    pub(super) fn enclosure(
        &self,
        hash: &str,
        put_up: impl FnOnce() -> Result<Enclosure, Problem>,
    ) -> Result<Arc<Enclosure>, Problem> {
        if let Some(standing) = self.state().enclosures.get(hash).and_then(Weak::upgrade) {
            return Ok(standing);
        }
        let made = Arc::new(put_up()?);
        let mut state = self.state();
        state.enclosures.retain(|_, one| one.strong_count() > 0);
        // Another one may have been faster: then ours is taken down again.
        let faster = state.enclosures.get(hash).and_then(Weak::upgrade);
        if faster.is_none() {
            state
                .enclosures
                .insert(hash.to_owned(), Arc::downgrade(&made));
        }
        drop(state);
        Ok(faster.unwrap_or(made))
    }
}

fn existing(state: &State) -> serde_json::Value {
    let names: Vec<&TerminalName> = state.entries.iter().map(|entry| &entry.name).collect();
    serde_json::json!({"existing_terminals": names, "active": state.active})
}

fn names(state: &State) -> String {
    if state.entries.is_empty() {
        return "none".to_owned();
    }
    state
        .entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
