//! Appending: position, number and hash in one immediate transaction.

use std::collections::{HashMap, VecDeque};
use std::io::BufRead;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

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
    /// Transactions so far.
    transactions: u32,
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

/// Transactions after which more are to be expected: those of a short run are fewer.
const TRANSACTIONS_OF_MANY: u32 = 64;

/// Callers whose events go into one transaction at most, so that none waits for long.
const CALLERS_AT_ONCE: usize = 32;

impl Writer {
    pub(super) fn new(connection: Connection, version: u32) -> Self {
        Self {
            connection,
            version,
            known: Known::default(),
            expects_many: false,
            transactions: 0,
        }
    }

    /// Prepares for many events.
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
        self.transactions = self.transactions.saturating_add(1);
        if self.transactions == TRANSACTIONS_OF_MANY {
            // A log of the shorter kind is only moved more often.
            let _ = self.expect_many();
        }
        result
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.expects_many {
            // The next start is spared a long log; it reads one where this fails.
            let _ = self
                .connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }
}

impl Known {
    fn forget_numbers(&mut self) {
        self.seqs.clear();
        self.seen = 0;
    }
}

/// Events of one caller that wait to be written.
#[derive(Debug)]
pub(super) struct Turn {
    events: Arc<[Prepared]>,
    /// Where they went, once they are written.
    places: OnceLock<Vec<Appended>>,
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
    pub(super) fn append<'p>(
        &mut self,
        events: impl Iterator<Item = &'p Prepared> + Clone,
    ) -> Result<Vec<Appended>, rusqlite::Error> {
        let (before, mut hash) = self.newest()?;
        let indexed = self.indexed(before)?;
        let epoch = self.epoch(before)?;
        if events.clone().any(|one| one.conversation.is_some()) {
            self.learn_numbers(before, indexed)?;
        }
        let mut places = Vec::with_capacity(events.size_hint().0);
        for prepared in events {
            let pos = before + 1 + places.len() as u64;
            let seq = match &prepared.conversation {
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
        let prepared: Arc<[Prepared]> = events.iter().map(Prepared::new).collect();
        let put_contents = || {
            prepared
                .iter()
                .filter_map(|event| event.content.as_ref().zip(event.uses.first()))
                .try_for_each(|(bytes, digest)| self.content.put(digest, bytes))
        };
        put_contents()?;
        let places = self.take_turn(&prepared)?;
        self.waiting.succeeded();
        // Retention may have taken an equal body away just before this event came to name it.
        put_contents()?;
        self.signal.raise();
        Ok(places)
    }

    /// Writes events once the writer is free, or learns that whoever had it before wrote them, too:
    /// those who wait at the same time share a transaction.
    fn take_turn(&self, prepared: &Arc<[Prepared]>) -> Result<Vec<Appended>, JournalError> {
        let turn = Arc::new(Turn {
            events: Arc::clone(prepared),
            places: OnceLock::new(),
        });
        self.turns().push_back(Arc::clone(&turn));
        let mut writer = self.writer();
        if let Some(places) = turn.places.get() {
            return Ok(places.clone());
        }
        let with: Vec<Arc<Turn>> = {
            let mut turns = self.turns();
            // Nobody but who holds the writer takes turns away, so this one is still there.
            turns.retain(|other| !Arc::ptr_eq(other, &turn));
            let others = turns.len().min(CALLERS_AT_ONCE - 1);
            std::iter::once(Arc::clone(&turn))
                .chain(turns.drain(..others))
                .collect()
        };
        let count: usize = with.iter().map(|turn| turn.events.len()).sum();
        if count as u64 >= TAIL_EVENTS {
            writer.expect_many().map_err(self.failed("append to"))?;
        }
        let together = writer
            .transaction(|batch| batch.append(with.iter().flat_map(|turn| turn.events.iter())));
        let places = match together {
            Ok(places) => places,
            Err(error) => {
                // The others try it themselves, and learn their own fate.
                self.turns().extend(with.into_iter().skip(1));
                return Err(self.failed("append to")(error));
            }
        };
        let mut rest = places.into_iter();
        let own = rest.by_ref().take(turn.events.len()).collect();
        for other in &with[1..] {
            let theirs = rest.by_ref().take(other.events.len()).collect();
            // Only who holds the writer fills it, and only once.
            let _ = other.places.set(theirs);
        }
        Ok(own)
    }

    fn turns(&self) -> MutexGuard<'_, VecDeque<Arc<Turn>>> {
        // Whole after every statement that changes it.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
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
