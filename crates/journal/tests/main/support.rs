//! Events to append, and places to keep them.

use std::path::Path;
use std::sync::Arc;

use cofferdam_core::ambient::{Ambient, FixedAmbient};
use cofferdam_core::event::{NewEvent, Severity, Subject};
use cofferdam_core::id::{ConversationId, EventId, TaskId};
use cofferdam_journal::{DataDir, Journal, MemoryJournal, SqliteJournal, SystemAmbient};
use serde_json::{Value, json};

/// Makes an event of a type.
pub(crate) fn event(ambient: &dyn Ambient, kind: &str, data: Value) -> NewEvent {
    let (milliseconds, random) = ambient.id_parts();
    NewEvent {
        id: EventId::new(milliseconds, random),
        time: ambient.now(),
        kind: kind.to_owned(),
        subject: Subject::default(),
        causation: None,
        severity: Severity::Info,
        data,
        redactions: 0,
    }
}

/// Makes an event of a conversation and a task.
pub(crate) fn task_event(
    ambient: &dyn Ambient,
    kind: &str,
    conversation: &str,
    task: &str,
) -> NewEvent {
    let mut event = event(ambient, kind, json!({"n": 1}));
    event.subject.conversation = Some(ConversationId::parse(conversation).expect("an id"));
    event.subject.task = Some(TaskId::parse(task).expect("an id"));
    event
}

/// Opens the journal of a directory below a temporary one.
pub(crate) fn open(directory: &Path) -> SqliteJournal {
    let directory = DataDir::open(directory.join("data")).expect("a data directory");
    SqliteJournal::open(&directory, Arc::new(SystemAmbient::new())).expect("a journal")
}

/// Runs a test over an empty journal of each kind.
pub(crate) fn on_both(test: impl Fn(&dyn Journal, &dyn Ambient)) {
    let ambient = FixedAmbient::default();
    test(
        &MemoryJournal::new(Arc::new(FixedAmbient::default())),
        &ambient,
    );
    let directory = tempfile::tempdir().expect("a directory");
    let ambient = FixedAmbient::default();
    test(&open(directory.path()), &ambient);
}
