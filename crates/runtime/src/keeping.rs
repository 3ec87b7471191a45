//! Snapshots of the checkout after commands over a protocol, and which command changed what.
//!
//! The checkout is watched, so that a command that changed nothing costs two system calls. What is
//! changed while several commands run belongs to each of them, and it is said; what changes while
//! none does is kept apart, and is nobody's.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::id::{CommandId, SessionId};
use cofferdam_core::spec::{Access, Network};
use cofferdam_exec::workspace::{CheckoutChange, CheckoutSnapshot, KeptCheckout};
use serde_json::json;

use crate::host::{PolicyRequest, Resolved};
use crate::run::FrontDoor;
use crate::runtime::Runtime;
use crate::scribe::{Line, Scribe};
use crate::snapshots::kept_changes;

/// How long a checkout that cannot be kept is not tried again.
const TRIED: Duration = Duration::from_mins(1);

/// Which checkouts are kept after commands over a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Keep {
    None,
    WhereCheap,
    All,
}

/// The checkouts of a runtime that are kept.
#[derive(Debug)]
pub(crate) struct Keeping {
    which: AtomicU8,
    checkouts: Mutex<HashMap<BytePath, Arc<Place>>>,
}

impl Default for Keeping {
    fn default() -> Self {
        Self {
            which: AtomicU8::new(Keep::None as u8),
            checkouts: Mutex::default(),
        }
    }
}

impl Keeping {
    fn is(&self, which: Keep) -> bool {
        self.which.load(Ordering::Relaxed) == which as u8
    }
}

/// One checkout.
#[derive(Debug, Default)]
struct Place(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    kept: Option<KeptCheckout>,
    /// When it last could not be kept, by the monotonic clock.
    refused: Option<Duration>,
    /// Commands that run, with what changed since each began.
    active: BTreeMap<u64, Vec<Arc<Seen>>>,
    begun: u64,
}

/// A change, and how many commands ran while it happened.
#[derive(Debug)]
struct Seen {
    change: CheckoutChange,
    commands: usize,
}

/// What is said of a command whose changes are kept.
#[derive(Debug, Clone)]
pub(crate) struct Credit {
    pub(crate) words: String,
    pub(crate) session: Option<SessionId>,
    pub(crate) subject: Subject,
}

/// A command in a checkout that is kept. Dropping it without [`KeptCommand::end`] credits nothing.
#[derive(Debug)]
pub(crate) struct KeptCommand {
    place: Arc<Place>,
    top: BytePath,
    scribe: Scribe,
    credit: Credit,
    token: Mutex<Option<u64>>,
}

impl Runtime {
    /// Keeps the checkout that a policy makes the workspace: as it is now, and from now on as it is
    /// after each command over a protocol that changed something, in the background and in sessions
    /// as well.
    ///
    /// # Errors
    ///
    /// `not_a_repository` where there is none with a commit, and when git fails.
    pub fn keep_snapshots(&self, policy: &PolicyRequest) -> Result<CheckoutSnapshot, Problem> {
        self.keeping.which.store(Keep::All as u8, Ordering::Relaxed);
        let resolved = self.look(policy, Network::None, None)?;
        let place = self.kept_place(&resolved.facts.workspace.root);
        let mut state = lock(&place.0);
        let what = "before the server's first command";
        self.begin_keeping(&mut state, &resolved, what, &Subject::default())
            .map_err(|problem| {
                if !is_none(&problem) {
                    return problem;
                }
                Problem::new(
                    ErrorCode::NotARepository,
                    "snapshots need a git repository with a commit",
                )
                .with_field("snapshots")
                .with_hint("leave --snapshots out, or commit once")
            })?;
        let newest = state.kept.as_ref().map(|kept| kept.newest().clone());
        newest.ok_or_else(|| Problem::new(ErrorCode::Internal, "a snapshot is not there"))
    }

    /// Does the same from the first command on, in checkouts that can be watched, so that a command
    /// that changes nothing costs next to nothing. Elsewhere nothing is kept, and nothing refused.
    pub fn keep_snapshots_where_cheap(&self) {
        let which = Keep::WhereCheap as u8;
        self.keeping.which.store(which, Ordering::Relaxed);
    }

    /// Gives what keeps the files after a command that is about to be planned, where that is done.
    pub(crate) fn kept_command(
        &self,
        resolved: &Resolved,
        door: FrontDoor,
        credit: impl FnOnce() -> Credit,
    ) -> Option<KeptCommand> {
        let is_over_protocol = matches!(
            door,
            FrontDoor::Protocol | FrontDoor::ProtocolBackground | FrontDoor::Hook
        );
        if self.keeping.is(Keep::None)
            || !is_over_protocol
            || resolved.policy.workspace.value != Access::Write
        {
            return None;
        }
        let top = &resolved.facts.workspace.root;
        let place = self.kept_place(top);
        let mut state = lock(&place.0);
        if state.kept.is_none() {
            let now = self.plane.ambient().monotonic();
            let is_late = |refused| now.saturating_sub(refused) >= TRIED;
            if !state.refused.is_none_or(is_late) {
                return None;
            }
            let credit = credit();
            let what = format!("before: {}", credit.words);
            if let Err(problem) = self.begin_keeping(&mut state, resolved, &what, &credit.subject) {
                state.refused = Some(now);
                if !is_none(&problem) {
                    tell(&self.scribe, &credit.subject, &problem);
                }
                return None;
            }
            drop(state);
            return Some(KeptCommand::new(place, top, &self.scribe, credit));
        }
        drop(state);
        Some(KeptCommand::new(place, top, &self.scribe, credit()))
    }

    fn kept_place(&self, top: &BytePath) -> Arc<Place> {
        let mut all = lock(&self.keeping.checkouts);
        if let Some(place) = all.get(top) {
            return Arc::clone(place);
        }
        Arc::clone(all.entry(top.clone()).or_default())
    }

    fn begin_keeping(
        &self,
        state: &mut State,
        resolved: &Resolved,
        what: &str,
        subject: &Subject,
    ) -> Result<(), Problem> {
        let workspaces = self.workspaces(&resolved.facts)?;
        let top = &resolved.facts.workspace.root;
        let must_be_cheap = !self.keeping.is(Keep::All);
        let kept = KeptCheckout::begin(workspaces, top.as_path(), what, must_be_cheap)?;
        tell_snapshot(&self.scribe, subject, top, kept.newest())?;
        state.kept = Some(kept);
        Ok(())
    }
}

impl KeptCommand {
    fn new(place: Arc<Place>, top: &BytePath, scribe: &Scribe, credit: Credit) -> Self {
        Self {
            place,
            top: top.clone(),
            scribe: scribe.clone(),
            credit,
            token: Mutex::default(),
        }
    }

    /// Begins: what changed while nothing ran is nobody's.
    pub(crate) fn begin(&self) {
        let mut state = lock(&self.place.0);
        if state.active.is_empty() {
            let what = format!("before: {}", self.credit.words);
            self.look(&mut state, &what);
        }
        state.begun += 1;
        let token = state.begun;
        state.active.insert(token, Vec::new());
        *lock(&self.token) = Some(token);
    }

    /// Keeps the files as they are now, and tells what the command changed. What cannot be kept is
    /// told to the journal and changes nothing about the command.
    pub(crate) fn end(&self, command: &CommandId) {
        let Some(token) = lock(&self.token).take() else {
            return;
        };
        let mut state = lock(&self.place.0);
        let what = format!("after: {}", self.credit.words);
        self.look(&mut state, &what);
        let seen = state.active.remove(&token).unwrap_or_default();
        drop(state);
        let lines: Vec<Line> = seen
            .iter()
            .map(|seen| {
                let CheckoutChange {
                    before,
                    after,
                    files,
                } = &seen.change;
                let command = (command, self.credit.words.as_str());
                let mut data = kept_changes(files, command, &self.top, (before, after));
                data["commands_at_once"] = seen.commands.into();
                if let Some(session) = &self.credit.session {
                    data["session_id"] = session.as_str().into();
                }
                Line::new(event_type::FILE_CHANGED, &self.credit.subject, data)
            })
            .collect();
        if !lines.is_empty() {
            // What cannot be told is in the snapshots all the same.
            let _ = self.scribe.record(lines);
        }
    }

    fn look(&self, state: &mut State, what: &str) {
        let Some(kept) = &mut state.kept else { return };
        let subject = &self.credit.subject;
        let change = match kept.take(what) {
            Ok(None) => return,
            Ok(Some(change)) => change,
            Err(error) => return tell(&self.scribe, subject, &error.into()),
        };
        // As above.
        let _ = tell_snapshot(&self.scribe, subject, &self.top, &change.after);
        let seen = Arc::new(Seen {
            change,
            commands: state.active.len(),
        });
        for list in state.active.values_mut() {
            list.push(Arc::clone(&seen));
        }
    }
}

impl Drop for KeptCommand {
    fn drop(&mut self) {
        let token = lock(&self.token).take();
        if let Some(token) = token {
            lock(&self.place.0).active.remove(&token);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_none(problem: &Problem) -> bool {
    matches!(
        problem.code,
        ErrorCode::NotARepository | ErrorCode::RepoUnborn | ErrorCode::RepoBare
    )
}

fn tell(scribe: &Scribe, subject: &Subject, problem: &Problem) {
    let text = format!("the files of the checkout could not be kept: {problem}");
    let line = Line::new(event_type::LOG_LINE, subject, json!({"text": text}));
    scribe.record_later(vec![line.severity(Severity::Warning)]);
}

fn tell_snapshot(
    scribe: &Scribe,
    subject: &Subject,
    top: &BytePath,
    snapshot: &CheckoutSnapshot,
) -> Result<u64, Problem> {
    let data = json!({"snapshot": snapshot, "top": top.to_text()});
    scribe.say(Line::new(event_type::FILE_SNAPSHOT, subject, data))
}
