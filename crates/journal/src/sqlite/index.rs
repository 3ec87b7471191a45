//! Indexing: the tables beside `body`, made for many events in one go.
//!
//! An append writes the bodies of its events and nothing else, which touches a page or two. The
//! index entries of the newest events are made once there are [`TAIL_EVENTS`] of them, in the
//! transaction of the append that brings their number up to it; until then a reader looks through
//! their bodies. How far the entries reach is told by the newest row of `entry`, so there is no
//! second place that could say otherwise.

use std::borrow::Cow;
use std::collections::HashMap;

use cofferdam_core::event::Event;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Deserialize;

use super::read;

/// Newest events that may be without index entries, after an append fewer than this.
pub(super) const TAIL_EVENTS: u64 = 64;

/// Positions of one row of `span`.
pub(super) const SPAN_EVENTS: u64 = 1024;

/// What the index tables hold of an event.
#[derive(Debug, Deserialize)]
pub(super) struct Columns<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(deserialize_with = "deserialize_time")]
    pub(super) time: i64,
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) conversation: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) agent: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) thread: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) task: Option<Cow<'a, str>>,
}

fn deserialize_time<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Timestamp::deserialize(deserializer).map(nanoseconds)
}

impl<'a> Columns<'a> {
    /// Of an event as it was read.
    pub(super) fn of(event: &'a Event) -> Self {
        Self {
            id: event.id.as_str().into(),
            time: nanoseconds(event.time),
            kind: event.kind.as_str().into(),
            conversation: event.conversation.as_ref().map(|id| id.as_str().into()),
            agent: event.agent.as_ref().map(|id| id.as_str().into()),
            thread: event.thread.as_ref().map(|id| id.as_str().into()),
            task: event.task.as_ref().map(|id| id.as_str().into()),
        }
    }

    /// Of stored bytes.
    fn of_stored(stored: &'a [u8]) -> Result<Self, rusqlite::Error> {
        serde_json::from_slice(stored).map_err(not_readable)
    }
}

/// Nanoseconds since 1970, at the bounds of 64 bits where a time lies beyond them (1677 to 2262).
pub(super) fn nanoseconds(time: Timestamp) -> i64 {
    let nanoseconds = time.as_nanosecond();
    i64::try_from(nanoseconds).unwrap_or(if nanoseconds < 0 { i64::MIN } else { i64::MAX })
}

/// The conversation of an event and its number in it.
#[derive(Debug, Deserialize)]
pub(super) struct Numbered<'a> {
    #[serde(default, borrow)]
    pub(super) conversation: Option<Cow<'a, str>>,
    pub(super) seq: u64,
}

impl<'a> Numbered<'a> {
    pub(super) fn of_stored(stored: &'a [u8]) -> Result<Self, rusqlite::Error> {
        serde_json::from_slice(stored).map_err(not_readable)
    }
}

/// Says that stored bytes, which nobody but us writes, are no event.
fn not_readable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        0,
        rusqlite::types::Type::Blob,
        format!("a stored event is no event: {error}").into(),
    )
}

/// Tells the newest position that has index entries; one less than the first when there is none.
pub(super) fn indexed(connection: &Connection) -> Result<u64, rusqlite::Error> {
    let found = connection
        .prepare_cached("SELECT pos FROM entry ORDER BY pos DESC LIMIT 1")?
        .query_row([], |row| row.get::<_, i64>(0))
        .optional()?;
    match found {
        Some(pos) => Ok(pos as u64),
        None => read::first(connection).map(|(pos, _)| pos.saturating_sub(1)),
    }
}

/// Gives every stored event of a range of positions to a function, both ends included.
pub(super) fn each_stored(
    connection: &Connection,
    from: u64,
    to: u64,
    mut with: impl FnMut(u64, &[u8]) -> Result<(), rusqlite::Error>,
) -> Result<(), rusqlite::Error> {
    let mut statement = connection
        .prepare_cached("SELECT pos, bytes FROM body WHERE pos >= ?1 AND pos <= ?2 ORDER BY pos")?;
    let mut rows = statement.query([from as i64, to as i64])?;
    while let Some(row) = rows.next()? {
        with(row.get::<_, i64>(0)? as u64, row.get_ref(1)?.as_blob()?)?;
    }
    Ok(())
}

/// Makes index entries within one transaction.
pub(super) struct Indexer<'a> {
    connection: &'a Connection,
    names: &'a mut HashMap<String, i64>,
    /// Events of this transaction that named a name.
    uses: HashMap<i64, i64>,
    /// Earliest and latest time of the blocks that were touched.
    spans: HashMap<u64, (i64, i64)>,
}

impl<'a> Indexer<'a> {
    pub(super) fn new(connection: &'a Connection, names: &'a mut HashMap<String, i64>) -> Self {
        Self {
            connection,
            names,
            uses: HashMap::new(),
            spans: HashMap::new(),
        }
    }

    /// Makes the entries of stored events.
    pub(super) fn index_stored(mut self, from: u64, to: u64) -> Result<(), rusqlite::Error> {
        each_stored(self.connection, from, to, |pos, stored| {
            self.insert(pos, &Columns::of_stored(stored)?)
        })?;
        self.finish()
    }

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

    fn optional_number(
        &mut self,
        text: Option<&Cow<'_, str>>,
    ) -> Result<Option<i64>, rusqlite::Error> {
        text.map(|text| self.number(text)).transpose()
    }

    /// Makes the entry of one event.
    pub(super) fn insert(
        &mut self,
        pos: u64,
        columns: &Columns<'_>,
    ) -> Result<(), rusqlite::Error> {
        let kind = self.number(&columns.kind)?;
        let conversation = self.optional_number(columns.conversation.as_ref())?;
        let agent = self.optional_number(columns.agent.as_ref())?;
        let thread = self.optional_number(columns.thread.as_ref())?;
        let task = self.optional_number(columns.task.as_ref())?;
        self.connection
            .prepare_cached("INSERT INTO entry VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
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
        let time = columns.time;
        let (earliest, latest) = self.spans.entry(pos / SPAN_EVENTS).or_insert((time, time));
        (*earliest, *latest) = (time.min(*earliest), time.max(*latest));
        Ok(())
    }

    /// Writes what was counted over all events.
    pub(super) fn finish(self) -> Result<(), rusqlite::Error> {
        for (number, count) in self.uses {
            self.connection
                .prepare_cached("UPDATE name SET uses = uses + ?2 WHERE id = ?1")?
                .execute([number, count])?;
        }
        for (block, (earliest, latest)) in self.spans {
            self.connection
                .prepare_cached(
                    "INSERT INTO span VALUES (?1, ?2, ?3) ON CONFLICT (block) DO UPDATE SET \
                     earliest = min(earliest, excluded.earliest), \
                     latest = max(latest, excluded.latest)",
                )?
                .execute(params![block as i64, earliest, latest])?;
        }
        Ok(())
    }
}
