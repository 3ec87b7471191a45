//! Appending: position, number, hash and index entries in one immediate transaction.

use std::collections::HashMap;
use std::io::BufRead;

use cofferdam_core::event::{Event, NewEvent};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::SqliteJournal;
use crate::body::{self, Hash, Prepared, hex};
use crate::error::JournalError;
use crate::exchange::{Line, Lines};
use crate::journal::{Appended, Head, Journal as _};

/// Positions of one row of `span`.
pub(super) const SPAN_EVENTS: u64 = 1024;

/// The connection that writes, and the numbers of names that it has seen.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) version: u32,
    names: HashMap<String, i64>,
}

/// Names beyond which the memory of numbers is begun anew.
const NAMES_KEPT: usize = 20_000;

impl Writer {
    pub(super) fn new(connection: Connection, version: u32) -> Self {
        Self {
            connection,
            version,
            names: HashMap::new(),
        }
    }

    /// Works within one immediate transaction, which is rolled back when the work fails.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Batch<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, rusqlite::Error> {
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
            self.names.clear();
        }
        if self.names.len() > NAMES_KEPT {
            self.names.clear();
        }
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        let mut batch = Batch {
            connection: &self.connection,
            names: &mut self.names,
            uses: HashMap::new(),
        };
        let result = work(&mut batch)
            .and_then(|value| batch.count_uses().map(|()| value))
            .and_then(|value| {
                self.connection.prepare_cached("COMMIT")?.execute([])?;
                Ok(value)
            });
        if result.is_err() {
            // What was numbered in this transaction is forgotten with it.
            self.names.clear();
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        result
    }
}

/// One transaction in which events are added.
pub(super) struct Batch<'a> {
    pub(super) connection: &'a Connection,
    names: &'a mut HashMap<String, i64>,
    /// Events of this transaction that named a name.
    uses: HashMap<i64, i64>,
}

/// What the index tables hold of an event.
pub(super) struct Columns<'a> {
    pub(super) id: &'a str,
    pub(super) time: i64,
    pub(super) kind: &'a str,
    pub(super) conversation: Option<&'a str>,
    pub(super) agent: Option<&'a str>,
    pub(super) thread: Option<&'a str>,
    pub(super) task: Option<&'a str>,
}

impl<'a> Columns<'a> {
    fn of_new(event: &'a NewEvent) -> Self {
        let subject = &event.subject;
        Self {
            id: event.id.as_str(),
            time: nanoseconds(event.time),
            kind: &event.kind,
            conversation: subject
                .conversation
                .as_ref()
                .map(cofferdam_core::id::ConversationId::as_str),
            agent: subject
                .agent
                .as_ref()
                .map(cofferdam_core::id::AgentId::as_str),
            thread: subject
                .thread
                .as_ref()
                .map(cofferdam_core::id::ThreadId::as_str),
            task: subject
                .task
                .as_ref()
                .map(cofferdam_core::id::TaskId::as_str),
        }
    }

    pub(super) fn of(event: &'a Event) -> Self {
        Self {
            id: event.id.as_str(),
            time: nanoseconds(event.time),
            kind: &event.kind,
            conversation: event
                .conversation
                .as_ref()
                .map(cofferdam_core::id::ConversationId::as_str),
            agent: event
                .agent
                .as_ref()
                .map(cofferdam_core::id::AgentId::as_str),
            thread: event
                .thread
                .as_ref()
                .map(cofferdam_core::id::ThreadId::as_str),
            task: event.task.as_ref().map(cofferdam_core::id::TaskId::as_str),
        }
    }
}

/// Nanoseconds since 1970, at the bounds of 64 bits where a time lies beyond them (1677 to 2262).
pub(super) fn nanoseconds(time: jiff::Timestamp) -> i64 {
    let nanoseconds = time.as_nanosecond();
    i64::try_from(nanoseconds).unwrap_or(if nanoseconds < 0 { i64::MIN } else { i64::MAX })
}

impl Batch<'_> {
    fn number(&mut self, text: &str) -> Result<i64, rusqlite::Error> {
        let number = if let Some(number) = self.names.get(text) {
            *number
        } else {
            let known = self
                .connection
                .prepare_cached("SELECT id FROM name WHERE text = ?1")?
                .query_row([text], |row| row.get(0))
                .optional()?;
            let number = if let Some(number) = known {
                number
            } else {
                self.connection
                    .prepare_cached("INSERT INTO name (text) VALUES (?1)")?
                    .execute([text])?;
                self.connection.last_insert_rowid()
            };
            self.names.insert(text.to_owned(), number);
            number
        };
        *self.uses.entry(number).or_default() += 1;
        Ok(number)
    }

    fn optional_number(&mut self, text: Option<&str>) -> Result<Option<i64>, rusqlite::Error> {
        text.map(|text| self.number(text)).transpose()
    }

    /// Tells the number that the next event of a conversation gets.
    fn next_seq(&mut self, conversation: Option<&str>) -> Result<u64, rusqlite::Error> {
        let Some(conversation) = conversation else {
            return Ok(0);
        };
        let number = match self.names.get(conversation) {
            Some(number) => Some(*number),
            None => self
                .connection
                .prepare_cached("SELECT id FROM name WHERE text = ?1")?
                .query_row([conversation], |row| row.get(0))
                .optional()?,
        };
        let Some(number) = number else {
            return Ok(1);
        };
        let before: i64 = self
            .connection
            .prepare_cached("SELECT uses FROM name WHERE id = ?1")?
            .query_row([number], |row| row.get(0))?;
        let now = self.uses.get(&number).copied().unwrap_or_default();
        Ok((before + now) as u64 + 1)
    }

    /// Tells the newest position and its hash.
    pub(super) fn newest(&self) -> Result<(u64, Hash), rusqlite::Error> {
        super::read::newest(self.connection)
    }

    /// Adds one event.
    pub(super) fn insert(
        &mut self,
        pos: u64,
        columns: &Columns<'_>,
        hash: &Hash,
        stored: &[u8],
    ) -> Result<(), rusqlite::Error> {
        let kind = self.number(columns.kind)?;
        let conversation = self.optional_number(columns.conversation)?;
        let agent = self.optional_number(columns.agent)?;
        let thread = self.optional_number(columns.thread)?;
        let task = self.optional_number(columns.task)?;
        self.connection
            .prepare_cached("INSERT INTO event VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
            .execute(params![
                pos as i64,
                columns.time,
                kind,
                conversation,
                agent,
                thread,
                task,
                columns.id
            ])?;
        self.connection
            .prepare_cached("INSERT INTO body VALUES (?1, ?2, ?3)")?
            .execute(params![pos as i64, hash, stored])?;
        Ok(())
    }

    fn widen_span(&self, block: u64, earliest: i64, latest: i64) -> Result<(), rusqlite::Error> {
        self.connection
            .prepare_cached(
                "INSERT INTO span VALUES (?1, ?2, ?3) ON CONFLICT (block) DO UPDATE SET \
                 earliest = min(earliest, excluded.earliest), latest = max(latest, excluded.latest)",
            )?
            .execute(params![block as i64, earliest, latest])?;
        Ok(())
    }

    /// Widens the rows of `span` for events at contiguous positions.
    fn widen_spans(&self, first_pos: u64, times: &[i64]) -> Result<(), rusqlite::Error> {
        let mut pos = first_pos;
        let mut times = times;
        while !times.is_empty() {
            let block = pos / SPAN_EVENTS;
            let here = ((block + 1) * SPAN_EVENTS - pos).min(times.len() as u64) as usize;
            let (now, later) = times.split_at(here);
            if let (Some(earliest), Some(latest)) = (now.iter().min(), now.iter().max()) {
                self.widen_span(block, *earliest, *latest)?;
            }
            times = later;
            pos += here as u64;
        }
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

    fn count_uses(&mut self) -> Result<(), rusqlite::Error> {
        for (number, count) in self.uses.drain() {
            self.connection
                .prepare_cached("UPDATE name SET uses = uses + ?2 WHERE id = ?1")?
                .execute([number, count])?;
        }
        Ok(())
    }

    /// Adds prepared events at the end.
    pub(super) fn append(
        &mut self,
        epoch: &str,
        events: &[NewEvent],
        prepared: &[Prepared],
    ) -> Result<Vec<Appended>, rusqlite::Error> {
        let (newest, mut hash) = self.newest()?;
        let mut places = Vec::with_capacity(events.len());
        let mut times = Vec::with_capacity(events.len());
        for (event, prepared) in events.iter().zip(prepared) {
            let pos = newest + 1 + places.len() as u64;
            let columns = Columns::of_new(event);
            let seq = self.next_seq(columns.conversation)?;
            let stored = prepared.finish(pos, epoch, seq);
            hash = body::chain(&hash, &stored);
            self.insert(pos, &columns, &hash, &stored)?;
            self.note_contents(pos, &prepared.uses)?;
            times.push(columns.time);
            places.push(Appended { pos, seq });
        }
        self.widen_spans(newest + 1, &times)?;
        Ok(places)
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
        let places = self
            .writer()
            .transaction(|batch| {
                let epoch = super::read::epoch(batch.connection)?;
                batch.append(&epoch, events, &prepared)
            })
            .map_err(self.failed("append to"))?;
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
    let mut times = Vec::with_capacity(lines.events.len());
    // A conversation goes on with the number after its newest one, not with a count of what is here.
    let mut newest_seq: HashMap<&str, u64> = HashMap::new();
    for Line {
        event,
        stored,
        hash,
        ..
    } in &lines.events
    {
        let columns = Columns::of(event);
        batch.insert(event.pos, &columns, hash, stored)?;
        let mut digests = Vec::new();
        body::collect_digests(&event.data, &mut digests);
        batch.note_contents(event.pos, &digests)?;
        times.push(columns.time);
        if let Some(conversation) = &event.conversation {
            newest_seq.insert(conversation.as_str(), event.seq);
        }
    }
    batch.widen_spans(first.event.pos, &times)?;
    batch.count_uses()?;
    for (conversation, seq) in newest_seq {
        batch.connection.execute(
            "UPDATE name SET uses = ?2 WHERE text = ?1",
            params![conversation, seq as i64],
        )?;
    }
    Ok(())
}
