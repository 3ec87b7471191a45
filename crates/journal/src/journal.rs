use std::fmt::Debug;
use std::io::Write;
use std::time::Duration;

use cofferdam_core::event::{Event, EventFilter, NewEvent};
use cofferdam_core::id::EventId;
use cofferdam_core::limits;
use cofferdam_core::spec::{Digest, DigestSum};
use serde::{Deserialize, Serialize};

use crate::error::JournalError;

/// The newest event of a journal: what somebody keeps elsewhere to prove later that nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Changes only when the log is made anew.
    pub epoch: String,
    /// Position of the newest event; one less than the first position when there is none.
    pub pos: u64,
    /// Its hash; the anchor's when there is none.
    pub hash: String,
}

/// Where a journal begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Position of the oldest event that is kept, from 1.
    pub first_pos: u64,
    /// The hash on which that event is chained.
    pub anchor_hash: String,
}

/// Where an event was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Position in the whole log.
    pub pos: u64,
    /// Number within its conversation; 0 where there is none.
    pub seq: u64,
}

/// In which order a page is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direction {
    /// Oldest first.
    #[default]
    Forward,
    /// Newest first.
    Backward,
}

/// Whether bodies in the content store are put back into the events that are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Bodies {
    /// They stay references: `{"content": digest, "bytes": n}`.
    #[default]
    Referenced,
    /// They are put back; one that has expired stays a reference.
    Resolved,
}

/// Asks for one page of events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Which events.
    pub filter: EventFilter,
    /// Position beyond which the page begins (above it forward, below it backward), not included.
    pub after: Option<u64>,
    /// In which order.
    pub direction: Direction,
    /// Most events of the page, 1 to [`limits::PAGE_EVENTS_CAP`]; 0 means [`limits::PAGE_EVENTS`].
    pub limit: usize,
    /// Whether large bodies are put back.
    pub bodies: Bodies,
}

impl Query {
    /// Asks for events of a filter from the oldest on.
    pub fn of(filter: EventFilter) -> Self {
        Self {
            filter,
            ..Self::default()
        }
    }

    /// Goes on after a position.
    #[must_use]
    pub const fn after(mut self, pos: u64) -> Self {
        self.after = Some(pos);
        self
    }

    /// Bounds the page.
    #[must_use]
    pub const fn limit(mut self, events: usize) -> Self {
        self.limit = events;
        self
    }

    /// Reads the newest first.
    #[must_use]
    pub const fn backward(mut self) -> Self {
        self.direction = Direction::Backward;
        self
    }

    /// Puts large bodies back.
    #[must_use]
    pub const fn resolved(mut self) -> Self {
        self.bodies = Bodies::Resolved;
        self
    }

    pub(crate) fn page_events(&self) -> usize {
        if self.limit == 0 {
            limits::PAGE_EVENTS
        } else {
            self.limit.min(limits::PAGE_EVENTS_CAP)
        }
    }
}

/// One page of events, with what the journal was at that moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The events, in the order that was asked for.
    pub events: Vec<Event>,
    /// Whether more of them follow.
    pub more: bool,
    /// The newest event of the journal in the same moment.
    pub head: Head,
    /// Where the journal began in the same moment.
    pub window: Window,
}

impl Page {
    /// Gives the position to go on from: of the last event, when more follow.
    pub fn next(&self) -> Option<u64> {
        self.events
            .last()
            .filter(|_| self.more)
            .map(|event| event.pos)
    }
}

/// Whether a journal can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and written.
    ReadWrite,
    /// Read only, because it was asked for or the file system has it so.
    ReadOnly,
    /// Read only, because a newer version wrote it: appending fails with `journal_newer`.
    Newer,
}

/// Names bytes in the content store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentReference {
    /// The digest of the bytes.
    pub content: Digest,
    /// How many there are.
    pub bytes: u64,
}

/// Takes bytes for the content store; what was not finished leaves nothing behind.
pub trait ContentSink: Write + Debug + Send {
    /// Keeps the bytes under their digest.
    fn finish(self: Box<Self>) -> Result<ContentReference, JournalError>;
}

/// What a check of the whole log found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// Events that hold.
    pub events: u64,
    /// Position of the first event that was checked.
    pub first_pos: u64,
    /// The newest event that holds.
    pub head: Head,
    /// Bodies of the content store that hold.
    pub contents: u64,
    /// Bodies that are no longer there: expired, which is no fault.
    pub contents_expired: u64,
    /// The first fault, when there is one.
    pub fault: Option<Fault>,
}

/// The first place where a log does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The position.
    pub pos: u64,
    /// What is wrong.
    pub what: String,
}

/// What retention did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retained {
    /// Events that were removed.
    pub removed: u64,
    /// Bodies of the content store that were removed.
    pub contents_removed: u64,
    /// Where the journal begins now.
    pub window: Window,
}

/// An append-only log of events, and a store of what is too large for it.
///
/// Positions are contiguous, and so are the numbers within a conversation; both, and the hash that
/// chains each event to the one before, are given in the moment of appending. A reader sees a prefix
/// of the log, always. Every method may be called from several threads at once; each one returns
/// without waiting for anybody but the disk and other writers, [`Journal::wait_beyond`] excepted.
pub trait Journal: Debug + Send + Sync {
    /// Appends events, all or none, in the order given.
    fn append(&self, events: &[NewEvent]) -> Result<Vec<Appended>, JournalError>;

    /// Reads one page.
    fn read(&self, query: &Query) -> Result<Page, JournalError>;

    /// Reads the event at a position.
    fn get(&self, pos: u64) -> Result<Option<Event>, JournalError>;

    /// Finds an event by its id.
    fn find(&self, id: &EventId) -> Result<Option<Event>, JournalError>;

    /// Gives the stored bytes of an event, which the hash covers, with fields that nobody knows.
    fn stored(&self, pos: u64) -> Result<Option<Vec<u8>>, JournalError>;

    /// Tells the newest event.
    fn head(&self) -> Result<Head, JournalError>;

    /// Tells where the journal begins.
    fn window(&self) -> Result<Window, JournalError>;

    /// Tells whether the journal can be written.
    fn access(&self) -> Access;

    /// Opens a way into the content store for bytes that come little by little.
    fn content_sink(&self) -> Result<Box<dyn ContentSink>, JournalError>;

    /// Reads at most `limit` bytes of a content from `offset` on; `None` when it is not there.
    fn content(
        &self,
        digest: &Digest,
        offset: u64,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, JournalError>;

    /// Removes a content, unless an event beyond a position names it; tells whether it was there and
    /// is gone. Events that name it keep its digest: what has expired is no fault.
    fn remove_content(&self, digest: &Digest, beyond: u64) -> Result<bool, JournalError>;

    /// Keeps the whole of a file, which must not change afterwards: a store on the same file system
    /// takes the file itself, and does not read it where its only writer gives the sum of what it
    /// wrote.
    fn adopt_content(
        &self,
        file: &mut std::fs::File,
        _written: Option<DigestSum>,
    ) -> Result<ContentReference, JournalError> {
        use std::io::Seek as _;
        let failed = |source| JournalError::from_io("keep", "content".as_ref(), source);
        file.rewind().map_err(failed)?;
        let mut sink = self.content_sink()?;
        std::io::copy(file, &mut sink).map_err(failed)?;
        sink.finish()
    }

    /// Checks the whole log and every body that is there; a fault is a result, not an error.
    fn verify(&self) -> Result<Verification, JournalError>;

    /// Waits until there is an event beyond a position, whoever wrote it, and no longer than `limit`.
    fn wait_beyond(&self, pos: u64, limit: Duration) -> Result<Head, JournalError>;

    /// Removes every event below a position and the bodies that only they name; the hash of the last
    /// one removed becomes the anchor. An event says so.
    fn retain_from(&self, first_pos: u64) -> Result<Retained, JournalError>;

    /// Takes lines that [`crate::export`] wrote, into a journal without events.
    fn import(&self, lines: &mut dyn std::io::BufRead) -> Result<Head, JournalError>;

    /// Keeps bytes in the content store.
    fn put_content(&self, bytes: &[u8]) -> Result<ContentReference, JournalError> {
        let mut sink = self.content_sink()?;
        sink.write_all(bytes)
            .map_err(|source| JournalError::from_io("write", "content".as_ref(), source))?;
        sink.finish()
    }

    /// Keeps bytes of which the caller has made the digest, which is believed: nothing is written
    /// where the store has them.
    fn keep_content(&self, _digest: &Digest, bytes: &[u8]) -> Result<(), JournalError> {
        self.put_content(bytes).map(drop)
    }
}
