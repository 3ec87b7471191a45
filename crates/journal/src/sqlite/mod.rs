//! The journal in a SQLite file: many processes append at once, readers see a prefix.

mod index;
mod open;
mod read;
mod retain;
mod verify;
mod write;

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::ambient::Ambient;
use cofferdam_core::event::{Event, NewEvent};
use cofferdam_core::id::EventId;
use cofferdam_core::spec::{Digest, DigestSum};
use rusqlite::{Connection, OptionalExtension as _};

use crate::content::ContentStore;
use crate::error::JournalError;
use crate::journal::{
    Access, Appended, ContentReference, ContentSink, Head, Journal, Page, Query, Retained,
    Verification, Window,
};
use crate::patience::Waiting;
use crate::signal::Signal;
pub(crate) use retain::retained_event;
use write::{Turn, Writer};

/// How long a reader sleeps before it looks whether another process has written.
const POLL: Duration = Duration::from_millis(10);

/// Connections for reading that are kept open.
const READERS_KEPT: usize = 4;

/// A journal in a SQLite file.
#[derive(Debug)]
pub struct SqliteJournal {
    path: PathBuf,
    access: Access,
    waiting: Waiting,
    content: ContentStore,
    ambient: Arc<dyn Ambient>,
    writer: Mutex<Writer>,
    /// Those who wait for the writer.
    turns: Mutex<VecDeque<Arc<Turn>>>,
    readers: Mutex<Vec<Connection>>,
    signal: Signal,
}

impl SqliteJournal {
    /// Gives the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, step: &'static str) -> impl Fn(rusqlite::Error) -> JournalError + '_ {
        move |error| JournalError::from_sqlite(step, &self.path, &error)
    }

    fn corrupt(&self, detail: impl Into<String>) -> JournalError {
        JournalError::Corrupt {
            path: self.path.clone(),
            detail: detail.into(),
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic while the lock was held left a transaction that the next one rolls back first.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writable(&self) -> Result<(), JournalError> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(JournalError::ReadOnly {
                path: self.path.clone(),
            }),
            Access::Newer => Err(JournalError::Newer {
                path: self.path.clone(),
                found: self.writer().version,
                known: open::VERSION,
            }),
        }
    }

    /// Reads something small in one moment of the journal: on the connection that writes when nobody
    /// writes just now, so that a short run opens only one.
    fn glance<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        if let Ok(writer) = self.writer.try_lock()
            && writer.connection.is_autocommit()
        {
            let connection = &writer.connection;
            connection
                .execute_batch("BEGIN DEFERRED")
                .map_err(self.failed("read"))?;
            let result = work(connection);
            // Nothing was written; should this fail, the next transaction rolls back first.
            let _ = connection.execute_batch("COMMIT");
            return result;
        }
        self.snapshot(work)
    }

    /// Reads in one moment of the journal, on a connection of its own.
    fn snapshot<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let kept = self
            .readers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = match kept {
            Some(connection) => connection,
            None => self.open_reader()?,
        };
        connection
            .execute_batch("BEGIN DEFERRED")
            .map_err(self.failed("read"))?;
        let result = work(&connection);
        let ended = connection.execute_batch("COMMIT");
        if ended.is_ok() {
            let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if readers.len() < READERS_KEPT {
                readers.push(connection);
            }
        }
        result
    }
}

impl Journal for SqliteJournal {
    fn append(&self, events: &[NewEvent]) -> Result<Vec<Appended>, JournalError> {
        self.append_events(events)
    }

    fn read(&self, query: &Query) -> Result<Page, JournalError> {
        self.snapshot(|connection| self.read_page(connection, query))
    }

    fn get(&self, pos: u64) -> Result<Option<Event>, JournalError> {
        self.glance(|connection| self.event_at(connection, pos))
    }

    fn find(&self, id: &EventId) -> Result<Option<Event>, JournalError> {
        self.glance(|connection| self.event_with_id(connection, id))
    }

    fn stored(&self, pos: u64) -> Result<Option<Vec<u8>>, JournalError> {
        self.glance(|connection| self.stored_at(connection, pos))
    }

    fn head(&self) -> Result<Head, JournalError> {
        self.glance(|connection| self.head_of(connection))
    }

    fn window(&self) -> Result<Window, JournalError> {
        self.glance(|connection| self.window_of(connection))
    }

    fn access(&self) -> Access {
        self.access
    }

    fn content_sink(&self) -> Result<Box<dyn ContentSink>, JournalError> {
        Ok(Box::new(self.content.sink()?))
    }

    fn content(
        &self,
        digest: &Digest,
        offset: u64,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, JournalError> {
        if crate::body::unhex(digest.as_str()).is_none() {
            return Ok(None);
        }
        self.content.read(digest.as_str(), offset, limit)
    }

    fn adopt_content(
        &self,
        file: &mut File,
        written: Option<DigestSum>,
    ) -> Result<ContentReference, JournalError> {
        self.content.adopt(file, written)
    }

    fn put_content(&self, bytes: &[u8]) -> Result<ContentReference, JournalError> {
        let content = Digest::of(bytes);
        self.content.put(content.as_str(), bytes)?;
        Ok(ContentReference {
            content,
            bytes: bytes.len() as u64,
        })
    }

    fn keep_content(&self, digest: &Digest, bytes: &[u8]) -> Result<(), JournalError> {
        self.content.put(digest.as_str(), bytes)
    }

    fn remove_content(&self, digest: &Digest, beyond: u64) -> Result<bool, JournalError> {
        if crate::body::unhex(digest.as_str()).is_none() {
            return Ok(false);
        }
        // Under the writer's lock: no event of this process names it meanwhile.
        let writer = self.writer();
        let last: Option<i64> = writer
            .connection
            .query_row(
                "SELECT last_pos FROM content WHERE digest = ?1",
                [digest.as_str()],
                |row| row.get(0),
            )
            .optional()
            .map_err(self.failed("read"))?;
        let is_free = last.is_none_or(|pos| pos as u64 <= beyond);
        Ok(is_free && self.content.remove(digest.as_str()))
    }

    fn verify(&self) -> Result<Verification, JournalError> {
        self.snapshot(|connection| self.verify_all(connection))
    }

    fn wait_beyond(&self, pos: u64, limit: Duration) -> Result<Head, JournalError> {
        let until = Instant::now() + limit;
        loop {
            let seen = self.signal.generation();
            let head = self.head()?;
            let left = until.saturating_duration_since(Instant::now());
            if head.pos > pos || left.is_zero() {
                return Ok(head);
            }
            self.signal.wait(seen, left.min(POLL));
        }
    }

    fn retain_from(&self, first_pos: u64) -> Result<Retained, JournalError> {
        self.retain_events(first_pos)
    }

    fn import(&self, lines: &mut dyn BufRead) -> Result<Head, JournalError> {
        self.import_lines(lines)
    }
}
