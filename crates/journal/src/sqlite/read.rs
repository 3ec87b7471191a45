//! Reading: which index drives a query, and how positions of several types become one order.

use std::fmt::Write as _;

use cofferdam_core::event::{Event, EventFilter};
use cofferdam_core::id::EventId;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension as _, params, params_from_iter};

use super::SqliteJournal;
use super::index::{SPAN_EVENTS, indexed, nanoseconds};
use crate::body::{self, Hash, hex, unhex};
use crate::error::JournalError;
use crate::journal::{Bodies, Direction, Head, Page, Query, Window};

/// Tells the newest position and its hash; of the anchor when there is no event.
pub(super) fn newest(connection: &Connection) -> Result<(u64, Hash), rusqlite::Error> {
    let found = connection
        .prepare_cached("SELECT pos, hash FROM body ORDER BY pos DESC LIMIT 1")?
        .query_row([], |row| {
            Ok((row.get::<_, i64>(0)? as u64, row.get::<_, Hash>(1)?))
        })
        .optional()?;
    match found {
        Some(found) => Ok(found),
        None => first(connection).map(|(pos, anchor)| (pos.saturating_sub(1), anchor)),
    }
}

/// Tells the first position and the anchor.
pub(super) fn first(connection: &Connection) -> Result<(u64, Hash), rusqlite::Error> {
    let value = |key: &str| -> Result<String, rusqlite::Error> {
        connection
            .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
            .query_row([key], |row| row.get(0))
    };
    let pos = value("first_pos")?.parse().unwrap_or(1);
    let anchor = unhex(&value("anchor")?).unwrap_or_default();
    Ok((pos, anchor))
}

pub(super) fn epoch(connection: &Connection) -> Result<String, rusqlite::Error> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE key = 'epoch'")?
        .query_row([], |row| row.get(0))
}

/// What a query comes down to, in numbers of names.
struct Search {
    /// Column and number of each subject that is asked for, the rarest first.
    subjects: Vec<(&'static str, i64)>,
    /// The types, when they are asked for.
    kinds: Option<Vec<i64>>,
    /// Bounds of the position, both included.
    positions: (u64, u64),
    /// Bounds of the time in nanoseconds: from, and before.
    times: (Option<i64>, Option<i64>),
    direction: Direction,
    /// Most positions to find.
    wanted: usize,
}

impl SqliteJournal {
    pub(super) fn head_of(&self, connection: &Connection) -> Result<Head, JournalError> {
        let failed = self.failed("read");
        let (pos, hash) = newest(connection).map_err(&failed)?;
        Ok(Head {
            epoch: epoch(connection).map_err(&failed)?,
            pos,
            hash: hex(&hash),
        })
    }

    pub(super) fn window_of(&self, connection: &Connection) -> Result<Window, JournalError> {
        let (first_pos, anchor) = first(connection).map_err(self.failed("read"))?;
        Ok(Window {
            first_pos,
            anchor_hash: hex(&anchor),
        })
    }

    pub(super) fn read_page(
        &self,
        connection: &Connection,
        query: &Query,
    ) -> Result<Page, JournalError> {
        let failed = self.failed("read");
        let head = self.head_of(connection)?;
        let window = self.window_of(connection)?;
        let limit = query.page_events();
        let indexed = indexed(connection).map_err(&failed)?;
        let bounds = bounds(query, &window, &head);
        // One more than the page, to see whether more follow.
        let wanted = limit + 1;
        let mut events = Vec::new();
        if query.direction == Direction::Backward {
            self.read_tail(connection, query, &bounds, indexed, wanted, &mut events)?;
        }
        let left = wanted - events.len();
        if left > 0 {
            let low_and_high = (bounds.0, bounds.1.min(indexed));
            let found = search(connection, query, low_and_high, left).map_err(&failed)?;
            let positions = match found {
                Some(search) => search.positions(connection).map_err(&failed)?,
                None => Vec::new(),
            };
            for pos in positions {
                let event = self.event_at(connection, pos)?.ok_or_else(|| {
                    self.corrupt(format!("the body of position {pos} is missing"))
                })?;
                events.push(event);
            }
        }
        if query.direction == Direction::Forward {
            self.read_tail(connection, query, &bounds, indexed, wanted, &mut events)?;
        }
        let more = events.len() > limit;
        events.truncate(limit);
        if query.bodies == Bodies::Resolved {
            events = events
                .into_iter()
                .map(|event| self.resolve(event))
                .collect::<Result<_, _>>()?;
        }
        Ok(Page {
            events,
            more,
            head,
            window,
        })
    }

    /// Adds the events that match among those that have no index entries yet.
    fn read_tail(
        &self,
        connection: &Connection,
        query: &Query,
        bounds: &(u64, u64),
        indexed: u64,
        wanted: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), JournalError> {
        let mut positions = bounds.0.max(indexed + 1)..=bounds.1;
        while events.len() < wanted {
            let pos = match query.direction {
                Direction::Forward => positions.next(),
                Direction::Backward => positions.next_back(),
            };
            let Some(pos) = pos else { break };
            let event = self
                .event_at(connection, pos)?
                .ok_or_else(|| self.corrupt(format!("the body of position {pos} is missing")))?;
            if query.filter.accepts(&event) {
                events.push(event);
            }
        }
        Ok(())
    }

    pub(super) fn event_at(
        &self,
        connection: &Connection,
        pos: u64,
    ) -> Result<Option<Event>, JournalError> {
        let failed = self.failed("read");
        let found = connection
            .prepare_cached("SELECT hash, bytes FROM body WHERE pos = ?1")
            .map_err(&failed)?
            .query_row([pos as i64], |row| {
                Ok((row.get::<_, Hash>(0)?, row.get::<_, Vec<u8>>(1)?))
            })
            .optional()
            .map_err(&failed)?;
        let Some((hash, stored)) = found else {
            return Ok(None);
        };
        let previous = self.hash_before(connection, pos)?;
        body::decode(&stored, &previous, &hash)
            .map(Some)
            .map_err(|error| self.corrupt(format!("position {pos} is no event: {error}")))
    }

    /// Gives the hash on which the event at a position is chained.
    pub(super) fn hash_before(
        &self,
        connection: &Connection,
        pos: u64,
    ) -> Result<Hash, JournalError> {
        let failed = self.failed("read");
        let found = connection
            .prepare_cached("SELECT hash FROM body WHERE pos = ?1")
            .map_err(&failed)?
            .query_row([pos.saturating_sub(1) as i64], |row| row.get(0))
            .optional()
            .map_err(&failed)?;
        match found {
            Some(hash) => Ok(hash),
            None => first(connection).map(|(_, anchor)| anchor).map_err(&failed),
        }
    }

    pub(super) fn event_with_id(
        &self,
        connection: &Connection,
        id: &EventId,
    ) -> Result<Option<Event>, JournalError> {
        let failed = self.failed("read");
        let pos = connection
            .prepare_cached("SELECT pos FROM entry WHERE id = ?1 ORDER BY pos LIMIT 1")
            .map_err(&failed)?
            .query_row([id.as_str()], |row| row.get::<_, i64>(0))
            .optional()
            .map_err(&failed)?;
        if let Some(pos) = pos {
            return self.event_at(connection, pos as u64);
        }
        let (newest, _) = newest(connection).map_err(&failed)?;
        for pos in indexed(connection).map_err(&failed)? + 1..=newest {
            let event = self.event_at(connection, pos)?;
            if event.as_ref().is_some_and(|event| event.id == *id) {
                return Ok(event);
            }
        }
        Ok(None)
    }

    pub(super) fn stored_at(
        &self,
        connection: &Connection,
        pos: u64,
    ) -> Result<Option<Vec<u8>>, JournalError> {
        let failed = self.failed("read");
        connection
            .prepare_cached("SELECT bytes FROM body WHERE pos = ?1")
            .map_err(&failed)?
            .query_row([pos as i64], |row| row.get(0))
            .optional()
            .map_err(&failed)
    }

    /// Puts a body from the content store back, when it is there.
    fn resolve(&self, mut event: Event) -> Result<Event, JournalError> {
        if let Some(digest) = body::moved_body(&event.data)
            && let Some(bytes) = self.content.read(digest.as_str(), 0, usize::MAX)?
        {
            event.data = serde_json::from_slice(&bytes).map_err(|_| {
                self.corrupt(format!("the content {digest} is not what its name says"))
            })?;
        }
        Ok(event)
    }
}

/// Gives the first and the last position that a query may find.
fn bounds(query: &Query, window: &Window, head: &Head) -> (u64, u64) {
    let (low, high) = (window.first_pos, head.pos);
    match (query.direction, query.after) {
        (_, None) => (low, high),
        (Direction::Forward, Some(after)) => (low.max(after.saturating_add(1)), high),
        (Direction::Backward, Some(before)) => (low, high.min(before.saturating_sub(1))),
    }
}

/// Turns names and times into numbers; `None` when nothing that is indexed can match.
fn search(
    connection: &Connection,
    query: &Query,
    (mut low, mut high): (u64, u64),
    wanted: usize,
) -> Result<Option<Search>, rusqlite::Error> {
    let filter = &query.filter;
    let mut subjects = Vec::new();
    for (column, text) in subject_columns(filter) {
        let found = connection
            .prepare_cached("SELECT id, uses FROM name WHERE text = ?1")?
            .query_row([text], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })
            .optional()?;
        match found {
            Some((number, uses)) => subjects.push((uses, column, number)),
            None => return Ok(None),
        }
    }
    subjects.sort_unstable();
    let kinds = match &filter.event_type {
        None => None,
        Some(wanted) => {
            let kinds = kinds_of(connection, wanted)?;
            if kinds.is_empty() {
                return Ok(None);
            }
            Some(kinds)
        }
    };
    if low > high {
        return Ok(None);
    }
    let times = (filter.from.map(nanoseconds), filter.to.map(nanoseconds));
    if times != (None, None) {
        let bounds = connection
            .prepare_cached(
                "SELECT min(block), max(block) FROM span WHERE latest >= ?1 AND earliest < ?2",
            )?
            .query_row(
                [times.0.unwrap_or(i64::MIN), times.1.unwrap_or(i64::MAX)],
                |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)),
            )?;
        let (Some(first), Some(last)) = bounds else {
            return Ok(None);
        };
        low = low.max(first as u64 * SPAN_EVENTS);
        high = high.min((last as u64 + 1) * SPAN_EVENTS - 1);
    }
    Ok((low <= high).then(|| Search {
        subjects: subjects
            .into_iter()
            .map(|(_, column, number)| (column, number))
            .collect(),
        kinds,
        positions: (low, high),
        times,
        direction: query.direction,
        wanted,
    }))
}

fn subject_columns(filter: &EventFilter) -> impl Iterator<Item = (&'static str, &str)> {
    [
        (
            "conversation",
            filter
                .conversation
                .as_ref()
                .map(cofferdam_core::id::ConversationId::as_str),
        ),
        (
            "agent",
            filter
                .agent
                .as_ref()
                .map(cofferdam_core::id::AgentId::as_str),
        ),
        (
            "thread",
            filter
                .thread
                .as_ref()
                .map(cofferdam_core::id::ThreadId::as_str),
        ),
        (
            "task",
            filter.task.as_ref().map(cofferdam_core::id::TaskId::as_str),
        ),
    ]
    .into_iter()
    .filter_map(|(column, text)| text.map(|text| (column, text)))
}

/// Gives the numbers of a type, or of every type of an area that the journal has.
fn kinds_of(connection: &Connection, wanted: &str) -> Result<Vec<i64>, rusqlite::Error> {
    if wanted.contains('.') {
        return connection
            .prepare_cached("SELECT id FROM name WHERE text = ?1")?
            .query_map([wanted], |row| row.get(0))?
            .collect();
    }
    // "/" is the sign after "."; a type without a dot is its own area.
    connection
        .prepare_cached(
            "SELECT id FROM name WHERE text = ?1 OR (text >= ?1 || '.' AND text < ?1 || '/')",
        )?
        .query_map([wanted], |row| row.get(0))?
        .collect()
}

impl Search {
    /// Gives the first positions that match, in order.
    fn positions(&self, connection: &Connection) -> Result<Vec<u64>, rusqlite::Error> {
        let driver = self.subjects.first().copied();
        let kinds = match (&self.kinds, driver) {
            (Some(kinds), _) => Some(kinds.clone()),
            (None, Some((column, number))) => Some(kinds_under(connection, column, number)?),
            (None, None) => None,
        };
        let mut positions = Vec::new();
        match kinds {
            None => self.collect(connection, None, &mut positions)?,
            Some(kinds) => {
                for kind in kinds {
                    self.collect(connection, Some(kind), &mut positions)?;
                }
            }
        }
        match self.direction {
            Direction::Forward => positions.sort_unstable(),
            Direction::Backward => positions.sort_unstable_by(|one, other| other.cmp(one)),
        }
        positions.truncate(self.wanted);
        Ok(positions)
    }

    /// Adds the first positions of one type, or of all.
    fn collect(
        &self,
        connection: &Connection,
        kind: Option<i64>,
        into: &mut Vec<u64>,
    ) -> Result<(), rusqlite::Error> {
        let index = match (self.subjects.first(), kind) {
            (Some((column, _)), _) => format!("INDEXED BY event_{column}"),
            (None, Some(_)) => "INDEXED BY event_kind".to_owned(),
            (None, None) => "NOT INDEXED".to_owned(),
        };
        let mut text = format!("SELECT pos FROM entry {index} WHERE pos >= ? AND pos <= ?");
        let mut values = vec![
            SqlValue::Integer(self.positions.0 as i64),
            SqlValue::Integer(self.positions.1 as i64),
        ];
        for (column, number) in &self.subjects {
            let _ = write!(text, " AND {column} = ?");
            values.push(SqlValue::Integer(*number));
        }
        let bounds = [
            ("kind = ?", kind),
            ("time >= ?", self.times.0),
            ("time < ?", self.times.1),
        ];
        for (condition, value) in bounds {
            if let Some(value) = value {
                let _ = write!(text, " AND {condition}");
                values.push(SqlValue::Integer(value));
            }
        }
        let order = match self.direction {
            Direction::Forward => "ASC",
            Direction::Backward => "DESC",
        };
        let _ = write!(text, " ORDER BY pos {order} LIMIT {}", self.wanted);
        let mut statement = connection.prepare_cached(&text)?;
        let rows = statement.query_map(params_from_iter(values), |row| row.get::<_, i64>(0))?;
        for pos in rows {
            into.push(pos? as u64);
        }
        Ok(())
    }
}

/// Gives the types that a subject has, by leaps over the index.
fn kinds_under(
    connection: &Connection,
    column: &str,
    number: i64,
) -> Result<Vec<i64>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT min(kind) FROM entry INDEXED BY event_{column} WHERE {column} = ?1 AND kind > ?2"
    ))?;
    let mut kinds = Vec::new();
    let mut last = i64::MIN;
    while let Some(kind) =
        statement.query_row(params![number, last], |row| row.get::<_, Option<i64>>(0))?
    {
        kinds.push(kind);
        last = kind;
    }
    Ok(kinds)
}
