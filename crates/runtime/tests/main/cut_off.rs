//! SIGKILL between what is done with a task and the word of it.

use std::path::PathBuf;
use std::time::Duration;

use cofferdam_core::event::{Event, NewEvent, event_type};
use cofferdam_core::id::EventId;
use cofferdam_core::spec::Digest;
use cofferdam_core::task::MergeStatus;
use cofferdam_journal::{
    Access, Appended, ContentSink, DataDir, Head, Journal, JournalError, Page, Query, Retained,
    SqliteJournal, Verification, Window,
};
use cofferdam_runtime::{MergeOptions, Runtime};

use crate::crash::die;
use crate::support::{Desk, has_walls, options, rerun, shell_task, task, told};

/// A journal in which a process dies when it is to write down how an action ended.
#[derive(Debug)]
struct DeadlyJournal(SqliteJournal);

impl Journal for DeadlyJournal {
    fn append(&self, events: &[NewEvent]) -> Result<Vec<Appended>, JournalError> {
        let is_end = |event: &NewEvent| event.kind == event_type::TASK_ACTION_ENDED;
        if events.iter().any(is_end) {
            die();
        }
        self.0.append(events)
    }

    fn read(&self, query: &Query) -> Result<Page, JournalError> {
        self.0.read(query)
    }

    fn get(&self, pos: u64) -> Result<Option<Event>, JournalError> {
        self.0.get(pos)
    }

    fn find(&self, id: &EventId) -> Result<Option<Event>, JournalError> {
        self.0.find(id)
    }

    fn stored(&self, pos: u64) -> Result<Option<Vec<u8>>, JournalError> {
        self.0.stored(pos)
    }

    fn head(&self) -> Result<Head, JournalError> {
        self.0.head()
    }

    fn window(&self) -> Result<Window, JournalError> {
        self.0.window()
    }

    fn access(&self) -> Access {
        self.0.access()
    }

    fn content_sink(&self) -> Result<Box<dyn ContentSink>, JournalError> {
        self.0.content_sink()
    }

    fn content(
        &self,
        digest: &Digest,
        offset: u64,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, JournalError> {
        self.0.content(digest, offset, limit)
    }

    fn remove_content(&self, digest: &Digest, beyond: u64) -> Result<bool, JournalError> {
        self.0.remove_content(digest, beyond)
    }

    fn verify(&self) -> Result<Verification, JournalError> {
        self.0.verify()
    }

    fn wait_beyond(&self, pos: u64, limit: Duration) -> Result<Head, JournalError> {
        self.0.wait_beyond(pos, limit)
    }

    fn retain_from(&self, first_pos: u64) -> Result<Retained, JournalError> {
        self.0.retain_from(first_pos)
    }

    fn import(&self, lines: &mut dyn std::io::BufRead) -> Result<Head, JournalError> {
        self.0.import(lines)
    }
}

/// Dies between what it does and the word of it.
#[test]
#[ignore = "the child of another test"]
fn actor() {
    let (Some(desk), Some(stage)) = (told("COFFERDAM_TEST_DESK"), told("COFFERDAM_TEST_STAGE"))
    else {
        return;
    };
    let desk = PathBuf::from(desk);
    let data = desk.join("data");
    let mut options = options(&desk.join("home"), &data, &desk.join("repo"));
    let ambient = options.ambient.clone();
    let directory = DataDir::open(&data).unwrap();
    let journal = SqliteJournal::open(&directory, ambient).unwrap();
    options.journal = Some(std::sync::Arc::new(DeadlyJournal(journal)));
    let runtime = Runtime::open(options).unwrap();
    match stage.as_str() {
        "merge" => drop(runtime.merge("1", &MergeOptions::default())),
        "drop" => drop(runtime.drop_task("1")),
        _ => drop(runtime.undo("1", None)),
    }
}

#[test]
fn what_was_done_and_not_written_down_can_be_taken_back() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let base = desk.git(&["rev-parse", "HEAD"]);
    let branch = {
        let runtime = desk.runtime();
        let result = task(&runtime, shell_task("echo two >a.txt"));
        result.isolation.branch.unwrap()
    };
    let die_in = |action: &str, meanwhile: &dyn Fn()| {
        let status = rerun(&desk, "cut_off::actor", action);
        assert_eq!(status.code(), None, "{action}: it was to die");
        meanwhile();
        let runtime = desk.runtime();
        runtime.reconcile().unwrap();
        let said = runtime.take_notes().concat();
        assert!(said.contains("cut off after it was done"), "{said}");
        runtime.reconcile().unwrap();
        assert_eq!(runtime.take_notes(), Vec::<String>::new(), "{action}");
        runtime
    };
    let runtime = die_in("merge", &|| {
        // As if it had been cut off between the branch and its checkout, which is brought along.
        desk.git(&["read-tree", "-u", "--reset", &base]);
        assert_eq!(desk.read("a.txt"), "one\n");
    });
    assert_eq!(runtime.task("1").unwrap().merge, MergeStatus::Merged);
    assert_eq!(desk.read("a.txt"), "two\n");
    runtime.undo("1", None).unwrap();
    assert_eq!(desk.git(&["rev-parse", "HEAD"]), base);

    runtime.merge("1", &MergeOptions::default()).unwrap();
    let runtime = die_in("undo", &|| {});
    assert_eq!(runtime.task("1").unwrap().merge, MergeStatus::Undone);
    assert_eq!(desk.read("a.txt"), "one\n");

    let runtime = die_in("drop", &|| {});
    assert_eq!(runtime.task("1").unwrap().merge, MergeStatus::Dropped);
    assert_eq!(desk.git(&["branch", "--list", "cofferdam/*"]), "");
    runtime.undo("1", None).unwrap();
    desk.git(&["rev-parse", &branch]);
    runtime.drop_task("1").unwrap();
    let runtime = die_in("undo", &|| {});
    assert_eq!(runtime.task("1").unwrap().merge, MergeStatus::Undone);
    desk.git(&["rev-parse", &branch]);
}
