//! Looking at what listens inside, and telling it.
//!
//! Where ports are opened for it, the thread that serves them looks. All other enclosures of a plane
//! have one thread together, that is there as long as there is one of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use cofferdam_core::event::{Severity, event_type};
use serde_json::json;

use super::table::{Listening, Tables};
use super::{Teller, lock};
use crate::backend::InnerNetwork;

/// Time until the first look: most enclosures end before.
const FIRST: Duration = Duration::from_millis(250);
/// Time between two looks: what listens is told, and nobody waits for it.
const BETWEEN: Duration = Duration::from_secs(1);

/// What was seen to listen in one enclosure.
#[derive(Debug)]
pub(super) struct Lookout {
    pub(super) teller: Teller,
    pub(super) network: Arc<dyn InnerNetwork>,
    /// Opened at the first look.
    tables: Option<Tables>,
    pub(super) listening: Listening,
}

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Ports on which nothing listens any more.
    pub(super) gone: Vec<u16>,
    /// Ports on which something listens now.
    pub(super) new: Vec<u16>,
}

impl Lookout {
    pub(super) fn new(teller: Teller, network: Arc<dyn InnerNetwork>) -> Self {
        Self {
            teller,
            network,
            tables: None,
            listening: Listening::new(),
        }
    }

    /// Looks once. A list that cannot be read tells nothing, neither of beginnings nor of ends.
    pub(super) fn look(&mut self) -> Changed {
        if self.tables.is_none() {
            self.tables = Tables::open(self.network.as_ref()).ok();
        }
        let own = || self.network.own_listeners();
        let read = self.tables.as_mut().map(|tables| tables.read(own));
        let Some(Ok(now)) = read else {
            return Changed::default();
        };
        let missing = |from: &Listening, other: &Listening| -> Vec<u16> {
            let ports = from.keys().filter(|port| !other.contains_key(port));
            ports.copied().collect()
        };
        let changed = Changed {
            gone: missing(&self.listening, &now),
            new: missing(&now, &self.listening),
        };
        self.listening = now;
        changed
    }

    pub(super) fn tell_listening(&self, port: u16, state: &str, published: Option<String>) {
        let data = json!({
            "enclosure_id": self.teller.enclosure,
            "port": port,
            "state": state,
            "published": published,
        });
        self.tell(event_type::NET_LISTENING, data);
    }

    pub(super) fn tell(&self, kind: &str, data: serde_json::Value) {
        let Teller { plane, subject, .. } = &self.teller;
        // A journal that cannot be written refuses the next intent; this is no intent.
        let _ = plane.record(subject, kind, Severity::Info, data);
    }
}

/// The enclosures of one plane in which nothing is opened and all the same is looked what listens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lookouts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    watched: BTreeMap<u64, Watched>,
    next: u64,
    has_thread: bool,
}

#[derive(Debug)]
struct Watched {
    due: Instant,
    /// Held while it is looked.
    lookout: Arc<Mutex<Lookout>>,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(super) struct Watching {
    all: Lookouts,
    number: u64,
}

impl Lookouts {
    /// Has an enclosure be looked at.
    pub(super) fn watch(&self, lookout: Lookout) -> std::io::Result<Watching> {
        let mut state = lock(&self.0.state);
        let number = state.next;
        if !state.has_thread {
            let shared = Arc::clone(&self.0);
            std::thread::Builder::new()
                .name("cofferdam-ports".to_owned())
                .spawn(move || shared.run())?;
            state.has_thread = true;
        }
        state.next += 1;
        let watched = Watched {
            due: Instant::now() + FIRST,
            lookout: Arc::new(Mutex::new(lookout)),
        };
        state.watched.insert(number, watched);
        drop(state);
        self.0.changed.notify_all();
        Ok(Watching {
            all: self.clone(),
            number,
        })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut state = lock(&self.all.0.state);
        let gone = state.watched.remove(&self.number);
        drop(state);
        // It may hold the last hold on the plane, which is let go of without the lock.
        drop(gone);
    }
}

impl Shared {
    /// Looks at each when it is due, until there is none.
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if state.watched.is_empty() {
                // The next one often comes at once.
                let waited = self.changed.wait_timeout(state, BETWEEN);
                (state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
                if state.watched.is_empty() {
                    state.has_thread = false;
                    return;
                }
            }
            let now = Instant::now();
            let due: Vec<_> = state
                .watched
                .values_mut()
                .filter(|one| one.due <= now)
                .map(|one| {
                    one.due = now + BETWEEN;
                    Arc::clone(&one.lookout)
                })
                .collect();
            if due.is_empty() {
                let next = state.watched.values().map(|one| one.due).min();
                let left = next.map_or(BETWEEN, |next| next.saturating_duration_since(now));
                let waited = self.changed.wait_timeout(state, left);
                (state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
                continue;
            }
            drop(state);
            for lookout in due {
                let mut lookout = lock(&lookout);
                let changed = lookout.look();
                for port in changed.gone {
                    lookout.tell_listening(port, "gone", None);
                }
                for port in changed.new {
                    lookout.tell_listening(port, "listening", None);
                }
            }
            state = lock(&self.state);
        }
    }
}
