//! Listening for what other processes ask of the commands of this one.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cofferdam_core::error::Problem;
use cofferdam_core::event::{EventFilter, Subject, event_type};
use cofferdam_core::id::CommandId;
use cofferdam_core::limits;
use cofferdam_journal::{Direction, Query};
use serde_json::{Value, json};

use super::lock;
use crate::runtime::Runtime;
use crate::scribe::Line;

/// How long the listener sleeps before it looks whether its runtime is still there.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The least time between two looks; a request to end a command waits no longer than that.
const GATHER: Duration = Duration::from_millis(10);
/// How often output is looked for that has been kept for its time.
const SWEEP_EVERY: Duration = Duration::from_hours(1);

impl Runtime {
    /// Listens from now on for requests of other processes to end commands of this one, for as long
    /// as the runtime is there, and removes output and recordings that have been kept for their time.
    /// Starting a background command does this too.
    pub fn attend(self: &Arc<Self>) {
        let mut listens = lock(&self.attendance.listens);
        if *listens {
            return;
        }
        let said = Line::new(
            event_type::EXEC_ATTENDED,
            &Subject::default(),
            json!({"lease": self.plane.lease()}),
        );
        // Where it cannot be said, nobody will ask; the next command tries again.
        let Ok(after) = self.scribe.say(said) else {
            return;
        };
        let runtime = Arc::downgrade(self);
        let spawned = std::thread::Builder::new()
            .name("attendant".to_owned())
            .spawn(move || listen(&runtime, after));
        *listens = spawned.is_ok();
    }

    /// Tells whether the plane of a lease listens.
    pub(super) fn is_attended(&self, lease: &str) -> Result<bool, Problem> {
        let mut query = Query::of(EventFilter {
            event_type: Some(event_type::EXEC_ATTENDED.to_owned()),
            ..EventFilter::default()
        })
        .limit(limits::PAGE_EVENTS_CAP);
        query.direction = Direction::Backward;
        let page = self
            .journal()
            .read(&query)
            .map_err(|error| error.to_problem())?;
        Ok(page
            .events
            .iter()
            .any(|event| event.data.get("lease").and_then(Value::as_str) == Some(lease)))
    }

    /// Carries out what was asked for after a position; gives the position to go on from.
    fn hear(&self, after: u64) -> Result<u64, Problem> {
        let query = Query::of(EventFilter {
            event_type: Some(event_type::EXEC_CANCEL_REQUESTED.to_owned()),
            ..EventFilter::default()
        })
        .after(after)
        .limit(limits::PAGE_EVENTS_CAP);
        let page = self
            .journal()
            .read(&query)
            .map_err(|error| error.to_problem())?;
        for event in &page.events {
            let id = event.data.get("command_id").and_then(Value::as_str);
            let force = event.data.get("force") == Some(&Value::Bool(true));
            if let Some(id) = id.and_then(|id| CommandId::parse(id).ok()) {
                self.obey(&id, force);
            }
        }
        // All up to the head has been looked through: it is not looked at a second time.
        Ok(page.next().unwrap_or(page.head.pos))
    }
}

/// Listens until the runtime is gone.
fn listen(runtime: &Weak<Runtime>, mut after: u64) {
    let mut swept: Option<Instant> = None;
    while let Some(runtime) = runtime.upgrade() {
        // A journal that cannot be read now may be later: until then nothing is heard.
        if let Ok(next) = runtime.hear(after) {
            after = next;
        }
        if swept.is_none_or(|swept| swept.elapsed() >= SWEEP_EVERY) {
            swept = Some(Instant::now());
            let kept = Duration::from_secs(limits::OUTPUT_KEPT_SECONDS);
            let _ = runtime.expire_output(kept);
            let kept = Duration::from_secs(limits::TERMINAL_RECORDINGS_SECONDS);
            let _ = runtime.expire_recordings(kept, limits::TERMINAL_RECORDINGS_BYTES);
        }
        let journal = Arc::clone(runtime.journal());
        drop(runtime);
        // Many commands write many events: they are looked through together.
        std::thread::sleep(GATHER);
        if journal.wait_beyond(after, LOOK_AGAIN).is_err() {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}
