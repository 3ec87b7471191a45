//! Watching the policy files while a server runs: every change becomes a version and an event, and
//! what stands behind walls that it would not put up any more is ended.
//!
//! A file that cannot be used keeps the last good version in force, and is said once.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use cofferdam_core::ambient::Ambient;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{NewEvent, Severity, Subject, event_type};
use cofferdam_core::id::EventId;
use cofferdam_core::policy::{EffectivePolicy, PolicyChange, PolicyStore, merge};
use cofferdam_exec::host::{Surroundings, read_policy_layers};
use cofferdam_journal::Journal;
use cofferdam_runtime::{PolicyRequest, Runtime};
use serde_json::json;

/// How often the files are looked at. They are two and small, and nobody waits for them.
const LOOK: Duration = Duration::from_millis(250);

/// Watches until it is dropped.
#[derive(Debug)]
pub(super) struct PolicyWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PolicyWatch {
    /// Looks again and again.
    pub(super) fn start(mut look: impl FnMut() + Send + 'static) -> Result<Self, Problem> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name("policy".to_owned())
            .spawn(move || {
                loop {
                    look();
                    if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            })
            .map_err(|error| {
                Problem::new(
                    ErrorCode::Io,
                    format!("the policy cannot be watched: {error}"),
                )
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// Tells which version of the files of the machine and of the user is in force.
pub(super) fn telling(
    surroundings: Surroundings,
    journal: Arc<dyn Journal>,
    ambient: Arc<dyn Ambient>,
) -> impl FnMut() + Send + 'static {
    let mut store = PolicyStore::new(EffectivePolicy::built_in());
    move || {
        let read = read_policy_layers(&surroundings, None)
            .and_then(|layers| merge(EffectivePolicy::built_in(), &layers));
        if let Some(change) = store.reload(read) {
            // A journal that cannot be written is told by every request.
            let _ = journal.append(&[event(ambient.as_ref(), &change)]);
        }
    }
}

/// Holds what stands to the policy that is in effect: see [`Runtime::follow_policy_files`].
pub(super) fn following(runtime: Arc<Runtime>, policy: PolicyRequest) -> impl FnMut() + Send {
    // Nothing is open yet that could cross it.
    let _ = runtime.follow_policy_files(&policy);
    move || {
        // What it ended is in the journal.
        let _ = runtime.follow_policy_files(&policy);
    }
}

impl Drop for PolicyWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn event(ambient: &dyn Ambient, change: &PolicyChange) -> NewEvent {
    let (kind, severity, data) = match change {
        PolicyChange::Published {
            version,
            digest,
            fields,
        } => (
            event_type::POLICY_LOADED,
            Severity::Info,
            json!({"version": version, "hash": digest, "fields": fields}),
        ),
        PolicyChange::KeptLastGood { version, problem } => (
            event_type::POLICY_REFUSED,
            Severity::Warning,
            json!({"version": version, "problem": problem}),
        ),
    };
    let (milliseconds, random) = ambient.id_parts();
    NewEvent {
        id: EventId::new(milliseconds, random),
        time: ambient.now(),
        kind: kind.to_owned(),
        subject: Subject::default(),
        causation: None,
        severity,
        data,
        redactions: 0,
    }
}
