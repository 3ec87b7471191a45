//! Appending: position, number and hash in one immediate transaction.

use std::collections::HashMap;
use std::io::BufRead;

use cofferdam_core::event::NewEvent;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::SqliteJournal;
use super::index::{self, Indexer, Numbered, TAIL_EVENTS};
use crate::body::{self, Hash, Prepared, hex};
use crate::error::JournalError;
use crate::exchange::{Line, Lines};
use crate::journal::{Appended, Head, Journal as _};

/// The connection that writes, and what it knows of the log.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) version: u32,
    known: Known,
    expects_many: bool,
}

/// What a writer remembers from one transaction to the next, as long as they succeed.
#[derive(Debug, Default)]
struct Known {
    /// Numbers of names.
    names: HashMap<String, i64>,
    /// The epoch, once the log has an event: then it never changes.
    epoch: Option<String>,
    /// The newest position that this writer has seen, and how far the index reached then.
    newest: Option<(u64, u64)>,
    /// Newest numbers of conversations, those of every event that has no index entry among them.
    seqs: HashMap<String, u64>,
    /// Up to which position `seqs` tells.
    seen: u64,
}

/// Names beyond which the memory of them is begun anew.
const NAMES_KEPT: usize = 20_000;

impl Writer {
    pub(super) fn new(connection: Connection, version: u32) -> Self {
        Self {
            connection,
            version,
            known: Known::default(),
            expects_many: false,
        }
    }

    /// Prepares for many events at a time.
    fn expect_many(&mut self) -> Result<(), rusqlite::Error> {
        if !self.expects_many {
            self.expects_many = true;
            self.connection.pragma_update(
                None,
                "wal_autocheckpoint",
                super::open::CHECKPOINT_PAGES_OF_MANY,
            )?;
        }
        Ok(())
    }

    /// Works within one immediate transaction, which is rolled back when the work fails.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Batch<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, rusqlite::Error> {
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
            self.known = Known::default();
        }
        if self.known.names.len() > NAMES_KEPT {
            self.known.names.clear();
        }
        if self.known.seqs.len() > NAMES_KEPT {
            self.known.forget_numbers();
        }
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        let mut batch = Batch {
            connection: &self.connection,
            known: &mut self.known,
        };
        let result = work(&mut batch).and_then(|value| {
            self.connection.prepare_cached("COMMIT")?.execute([])?;
            Ok(value)
        });
        if result.is_err() {
            // What was learnt in this transaction is forgotten with it.
            self.known = Known::default();
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        result
    }
}

impl Known {
    fn forget_numbers(&mut self) {
        self.seqs.clear();
        self.seen = 0;
    }
}

/// One transaction in which events are added.
pub(super) struct Batch<'a> {
    pub(super) connection: &'a Connection,
    known: &'a mut Known,
}

impl Batch<'_> {
    fn epoch(&mut self, newest: u64) -> Result<String, rusqlite::Error> {
        if let Some(epoch) = &self.known.epoch {
            return Ok(epoch.clone());
        }
        let epoch = super::read::epoch(self.connection)?;
        let (first, _) = super::read::first(self.connection)?;
        if newest >= first {
            // An import gives an empty log another one.
            self.known.epoch = Some(epoch.clone());
        }
        Ok(epoch)
    }

    /// Tells the newest position and its hash.
    pub(super) fn newest(&self) -> Result<(u64, Hash), rusqlite::Error> {
        super::read::newest(self.connection)
    }

    /// Tells how far the index reaches, the newest position being known.
    fn indexed(&self, newest: u64) -> Result<u64, rusqlite::Error> {
        match self.known.newest {
            // Whoever makes index entries adds an event, too.
            Some((seen, indexed)) if seen == newest => Ok(indexed),
            _ => index::indexed(self.connection),
        }
    }

    /// Learns the numbers that the newest events have, up to the last one before this transaction.
    fn learn_numbers(&mut self, newest: u64, indexed: u64) -> Result<(), rusqlite::Error> {
        let known = &mut *self.known;
        if known.seen < indexed {
            // What others wrote meanwhile is in the index: what is remembered may be old.
            known.seqs.clear();
            known.seen = indexed;
        }
        if known.seen < newest {
            index::each_stored(self.connection, known.seen + 1, newest, |_, stored| {
                let numbered = Numbered::of_stored(stored)?;
                if let Some(conversation) = numbered.conversation {
                    known.seqs.insert(conversation.into_owned(), numbered.seq);
                }
                Ok(())
            })?;
            known.seen = newest;
        }
        Ok(())
    }

    /// Gives the next number of a conversation, when the newest ones are learnt.
    fn next_seq(&mut self, conversation: &str) -> Result<u64, rusqlite::Error> {
        if let Some(seq) = self.known.seqs.get_mut(conversation) {
            *seq += 1;
            return Ok(*seq);
        }
        let before: Option<i64> = self
            .connection
            .prepare_cached("SELECT uses FROM name WHERE text = ?1")?
            .query_row([conversation], |row| row.get(0))
            .optional()?;
        let seq = before.unwrap_or_default() as u64 + 1;
        self.known.seqs.insert(conversation.to_owned(), seq);
        Ok(seq)
    }

    fn insert(&self, pos: u64, hash: &Hash, stored: &[u8]) -> Result<(), rusqlite::Error> {
        self.connection
            .prepare_cached("INSERT INTO body VALUES (?1, ?2, ?3)")?
            .execute(params![pos as i64, hash, stored])?;
        Ok(())
    }

    fn note_contents(&self, pos: u64, digests: &[String]) -> Result<(), rusqlite::Error> {
        for digest in digests {
            self.connection
                .prepare_cached(
                    "INSERT INTO content VALUES (?1, ?2) ON CONFLICT (digest) DO UPDATE SET \
                     last_pos = excluded.last_pos",
                )?
                .execute(params![digest, pos as i64])?;
        }
        Ok(())
    }

    /// Adds prepared events at the end.
    pub(super) fn append(
        &mut self,
        events: &[NewEvent],
        prepared: &[Prepared],
    ) -> Result<Vec<Appended>, rusqlite::Error> {
        let (before, mut hash) = self.newest()?;
        let indexed = self.indexed(before)?;
        let epoch = self.epoch(before)?;
        if events.iter().any(|one| one.subject.conversation.is_some()) {
            self.learn_numbers(before, indexed)?;
        }
        let mut places = Vec::with_capacity(events.len());
        for (event, prepared) in events.iter().zip(prepared) {
            let pos = before + 1 + places.len() as u64;
            let seq = match &event.subject.conversation {
                Some(conversation) => self.next_seq(conversation.as_str())?,
                None => 0,
            };
            let stored = prepared.finish(pos, &epoch, seq);
            hash = body::chain(&hash, &stored);
            self.insert(pos, &hash, &stored)?;
            self.note_contents(pos, &prepared.uses)?;
            places.push(Appended { pos, seq });
        }
        let newest = before + places.len() as u64;
        if self.known.seen == before {
            self.known.seen = newest;
        }
        self.known.newest = Some((newest, indexed));
        if newest - indexed >= TAIL_EVENTS {
            self.index()?;
        }
        Ok(places)
    }

    /// Makes the index entries of every event that has none yet.
    pub(super) fn index(&mut self) -> Result<(), rusqlite::Error> {
        let (newest, _) = self.newest()?;
        let indexed = self.indexed(newest)?;
        Indexer::new(self.connection, &mut self.known.names).index_stored(indexed + 1, newest)?;
        self.known.newest = Some((newest, newest));
        Ok(())
    }
}

impl SqliteJournal {
    pub(super) fn append_events(&self, events: &[NewEvent]) -> Result<Vec<Appended>, JournalError> {
        self.writable()?;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let prepared: Vec<Prepared> = events.iter().map(Prepared::new).collect();
        let put_contents = || {
            prepared
                .iter()
                .filter_map(|event| event.content.as_ref().zip(event.uses.first()))
                .try_for_each(|(bytes, digest)| self.content.put(digest, bytes))
        };
        put_contents()?;
        let mut writer = self.writer();
        if events.len() as u64 >= TAIL_EVENTS {
            writer.expect_many().map_err(self.failed("append to"))?;
        }
        let places = writer
            .transaction(|batch| batch.append(events, &prepared))
            .map_err(self.failed("append to"))?;
        drop(writer);
        self.waiting.succeeded();
        // Retention may have taken an equal body away just before this event came to name it.
        put_contents()?;
        self.signal.raise();
        Ok(places)
    }

    pub(super) fn import_lines(&self, lines: &mut dyn BufRead) -> Result<Head, JournalError> {
        self.writable()?;
        let lines = Lines::read(lines)?;
        for (digest, bytes) in &lines.contents {
            self.content.put(digest, bytes)?;
        }
        let mut writer = self.writer();
        let empty: bool = writer
            .connection
            .query_row("SELECT NOT EXISTS (SELECT 1 FROM body)", [], |row| {
                row.get(0)
            })
            .map_err(self.failed("import into"))?;
        if !empty {
            return Err(JournalError::Import {
                line: 1,
                why: "the journal has events already".to_owned(),
            });
        }
        writer
            .transaction(|batch| import_all(batch, &lines))
            .map_err(self.failed("import into"))?;
        drop(writer);
        self.signal.raise();
        self.head()
    }
}

fn import_all(batch: &mut Batch<'_>, lines: &Lines) -> Result<(), rusqlite::Error> {
    let Some(first) = lines.events.first() else {
        return Ok(());
    };
    for (key, value) in [
        ("epoch", first.event.epoch.clone()),
        ("first_pos", first.event.pos.to_string()),
        ("anchor", hex(&first.previous)),
    ] {
        batch
            .connection
            .execute("UPDATE meta SET value = ?2 WHERE key = ?1", [key, &value])?;
    }
    // A conversation goes on with the number after its newest one, not with a count of what is here.
    let mut newest_seq: HashMap<&str, u64> = HashMap::new();
    for Line {
        event,
        stored,
        hash,
        ..
    } in &lines.events
    {
        batch.insert(event.pos, hash, stored)?;
        let mut digests = Vec::new();
        body::collect_digests(&event.data, &mut digests);
        batch.note_contents(event.pos, &digests)?;
        if let Some(conversation) = &event.conversation {
            newest_seq.insert(conversation.as_str(), event.seq);
        }
    }
    let newest = first.event.pos + lines.events.len() as u64 - 1;
    Indexer::new(batch.connection, &mut batch.known.names).index_stored(first.event.pos, newest)?;
    for (conversation, seq) in newest_seq {
        batch.connection.execute(
            "UPDATE name SET uses = ?2 WHERE text = ?1",
            params![conversation, seq as i64],
        )?;
    }
    batch.known.epoch = None;
    batch.known.newest = None;
    batch.known.forget_numbers();
    Ok(())
}
