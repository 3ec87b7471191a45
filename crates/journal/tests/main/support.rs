//! Events to append, and places to keep them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use cofferdam_core::ambient::{Ambient, FixedAmbient};
use cofferdam_core::event::{NewEvent, Severity, Subject};
use cofferdam_core::id::{ConversationId, EventId, TaskId};
use cofferdam_journal::{DataDir, Journal, MemoryJournal, SqliteJournal, SystemAmbient};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
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

/// Another process that appends, see `helper_writer`.
pub(crate) struct Writer(Child);

const DIRECTORY: &str = "JOURNAL_TEST_DIRECTORY";
const CONVERSATION: &str = "JOURNAL_TEST_CONVERSATION";
const EVENTS: &str = "JOURNAL_TEST_EVENTS";

#[expect(
    clippy::disallowed_methods,
    reason = "the crate that starts processes for the project is above this one"
)]
impl Writer {
    pub(crate) fn start(directory: &Path, conversation: &str, events: u32) -> Self {
        let own = std::env::current_exe().expect("this binary");
        let child = Command::new(own)
            .args(["--exact", "processes::helper_writer", "--test-threads=1"])
            .env(DIRECTORY, directory)
            .env(CONVERSATION, conversation)
            .env(EVENTS, events.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        Self(child)
    }

    /// Tells a started writer what to do.
    pub(crate) fn told() -> Option<(PathBuf, String, u32)> {
        let directory = std::env::var_os(DIRECTORY)?;
        let conversation = std::env::var(CONVERSATION).ok()?;
        let events = std::env::var(EVENTS).ok()?.parse().ok()?;
        Some((directory.into(), conversation, events))
    }

    pub(crate) fn wait(mut self) -> bool {
        self.0.wait().expect("ended").success()
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }
}

/// A file system of a test, taken down at its end.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts two megabytes; `None` where that is not allowed.
    pub(crate) fn small(directory: &Path) -> Option<Self> {
        mount("tmpfs", directory, "tmpfs", MountFlags::empty(), c"size=2m").ok()?;
        Some(Self(directory.to_owned()))
    }

    /// Makes a directory read-only; `None` where that is not allowed.
    pub(crate) fn read_only(directory: &Path) -> Option<Self> {
        mount_bind(directory, directory).ok()?;
        let mounted = Self(directory.to_owned());
        mount_remount(directory, MountFlags::BIND | MountFlags::RDONLY, c"").ok()?;
        Some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
