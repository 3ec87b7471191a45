//! Misses that are held while somebody is asked.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::hosts::HostPort;

use crate::decision::Protocol;
use crate::limits::Limits;

/// Is handed every question that is to be put to somebody. It may answer at once, keep the question
/// and answer it from another thread, or drop it, which says that nobody can answer.
pub type Ask = Arc<dyn Fn(AskRequest) + Send + Sync>;

/// What somebody said about a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskAnswer {
    /// The connections that are held for it go on. Whoever wants more than this once replaces the
    /// policy too.
    Allow,
    /// They are refused, and for a while nobody is asked about it again.
    Deny,
}

/// A miss that is held: who wants to reach what.
///
/// All connections to the same host and port wait for one question. Deny rules, addresses and names
/// of the machine itself, of private networks and of metadata services never become questions.
pub struct AskRequest {
    /// The first connection that waits for the answer.
    pub connection: u64,
    /// The client's end of it, by which its program can be found.
    pub client: Option<SocketAddr>,
    /// How it asked.
    pub protocol: Protocol,
    /// The method of an HTTP request.
    pub method: Option<String>,
    /// What it wants to reach.
    pub target: HostPort,
    /// How long the proxy waits.
    pub limit: Duration,
    slot: Arc<Slot>,
}

impl AskRequest {
    /// Answers; too late an answer changes nothing.
    pub fn answer(self, answer: AskAnswer) {
        self.slot.settle(match answer {
            AskAnswer::Allow => Settled::Allowed,
            AskAnswer::Deny => Settled::Refused,
        });
    }

    /// Tells whether the answer is still waited for.
    pub fn is_open(&self) -> bool {
        self.slot.lock().settled.is_none()
    }
}

impl Drop for AskRequest {
    fn drop(&mut self) {
        self.slot.settle(Settled::Unanswered);
    }
}

impl fmt::Debug for AskRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AskRequest")
            .field("connection", &self.connection)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// How a miss that was to be held ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    Allowed,
    Refused,
    Unanswered,
    /// The policy was replaced and speaks of the host now.
    Decided,
    /// Too many questions are open.
    Full,
    Stopped,
}

#[derive(Debug, Default)]
struct SlotState {
    settled: Option<Settled>,
}

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<SlotState>,
    changed: Condvar,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles it; the first settlement holds.
    fn settle(&self, settled: Settled) {
        self.lock().settled.get_or_insert(settled);
        self.changed.notify_all();
    }
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<HostPort, (Arc<Slot>, Instant)>,
    quiet: HashMap<HostPort, (Instant, Settled)>,
    stopped: bool,
}

/// The questions of one proxy.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Table>);

/// What a question is made of.
pub(crate) struct Miss<'a> {
    pub(crate) connection: u64,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) protocol: Protocol,
    pub(crate) method: Option<&'a str>,
    pub(crate) target: &'a HostPort,
}

impl Holds {
    /// The most hosts that are remembered as refused.
    const MOST_QUIET: usize = 1024;

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a miss until it is settled; `is_decided` is asked again whenever the policy changes.
    pub(crate) fn hold(
        &self,
        miss: &Miss<'_>,
        ask: &Ask,
        limits: &Limits,
        is_decided: &dyn Fn() -> bool,
    ) -> Settled {
        let (slot, deadline, is_first) = match self.enter(miss.target, limits) {
            Ok(entered) => entered,
            Err(settled) => return settled,
        };
        if is_first {
            ask(AskRequest {
                connection: miss.connection,
                client: miss.client,
                protocol: miss.protocol,
                method: miss.method.map(str::to_owned),
                target: miss.target.clone(),
                limit: limits.hold_time,
                slot: Arc::clone(&slot),
            });
        }
        let settled = wait(&slot, deadline, is_decided);
        self.leave(miss.target, &slot, settled, limits);
        settled
    }

    fn enter(
        &self,
        target: &HostPort,
        limits: &Limits,
    ) -> Result<(Arc<Slot>, Instant, bool), Settled> {
        let mut table = self.lock();
        let now = Instant::now();
        if table.stopped {
            return Err(Settled::Stopped);
        }
        if let Some((until, settled)) = table.quiet.get(target)
            && now < *until
        {
            return Err(*settled);
        }
        if let Some((slot, deadline)) = table.open.get(target) {
            return Ok((Arc::clone(slot), *deadline, false));
        }
        if table.open.len() >= limits.questions {
            return Err(Settled::Full);
        }
        let slot = Arc::new(Slot::default());
        let deadline = now + limits.hold_time;
        table
            .open
            .insert(target.clone(), (Arc::clone(&slot), deadline));
        Ok((slot, deadline, true))
    }

    fn leave(&self, target: &HostPort, slot: &Arc<Slot>, settled: Settled, limits: &Limits) {
        let mut table = self.lock();
        let is_ours = table
            .open
            .get(target)
            .is_some_and(|(open, _)| Arc::ptr_eq(open, slot));
        if !is_ours {
            return;
        }
        table.open.remove(target);
        if matches!(settled, Settled::Refused | Settled::Unanswered) {
            let now = Instant::now();
            if table.quiet.len() >= Self::MOST_QUIET {
                table.quiet.retain(|_, (until, _)| now < *until);
            }
            if table.quiet.len() < Self::MOST_QUIET {
                let until = now + limits.quiet_time;
                table.quiet.insert(target.clone(), (until, settled));
            }
        }
    }

    /// Lets every held miss look at the policy again, and forgets what was refused before.
    pub(crate) fn policy_changed(&self) {
        let mut table = self.lock();
        table.quiet.clear();
        for (slot, _) in table.open.values() {
            // Taken and let go, so that nobody is between looking and waiting.
            drop(slot.lock());
            slot.changed.notify_all();
        }
    }

    /// Ends every held miss, now and later.
    pub(crate) fn stop(&self) {
        let mut table = self.lock();
        table.stopped = true;
        for (slot, _) in table.open.values() {
            slot.settle(Settled::Stopped);
        }
    }
}

fn wait(slot: &Slot, deadline: Instant, is_decided: &dyn Fn() -> bool) -> Settled {
    let mut state = slot.lock();
    loop {
        if let Some(settled) = state.settled {
            return settled;
        }
        let settled = if is_decided() {
            Settled::Decided
        } else if Instant::now() >= deadline {
            Settled::Unanswered
        } else {
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = slot.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        };
        state.settled = Some(settled);
        slot.changed.notify_all();
        return settled;
    }
}
