//! Retention: old events go, the chain goes on from the anchor, an event says so.

use cofferdam_core::event::{NewEvent, Severity, Subject, event_type};
use cofferdam_core::id::EventId;
use rusqlite::{OptionalExtension as _, params};

use super::SqliteJournal;
use super::index::SPAN_EVENTS;
use super::read::first;
use crate::body::{Hash, Prepared, hex};
use crate::error::JournalError;
use crate::journal::{Retained, Window};

impl SqliteJournal {
    pub(super) fn retain_events(&self, first_pos: u64) -> Result<Retained, JournalError> {
        self.writable()?;
        let mut writer = self.writer();
        let (retained, gone) = writer
            .transaction(|batch| {
                let connection = batch.connection;
                let (old_first, _) = first(connection)?;
                let (newest, _) = batch.newest()?;
                let first_pos = first_pos.clamp(old_first, newest + 1);
                if first_pos == old_first {
                    return Ok((None, Vec::new()));
                }
                let anchor: Hash = connection.query_row(
                    "SELECT hash FROM body WHERE pos = ?1",
                    [first_pos as i64 - 1],
                    |row| row.get(0),
                )?;
                for (key, value) in [
                    ("first_pos", first_pos.to_string()),
                    ("anchor", hex(&anchor)),
                ] {
                    connection
                        .execute("UPDATE meta SET value = ?2 WHERE key = ?1", [key, &value])?;
                }
                // The event that says so is added first, so that the log is never empty.
                let event = retained_event(self.ambient.as_ref(), first_pos, &anchor);
                let prepared = Prepared::new(&event);
                batch.append(std::iter::once(&prepared))?;
                // What is counted in names has to be counted before it goes.
                batch.index()?;
                connection.execute("DELETE FROM entry WHERE pos < ?1", [first_pos as i64])?;
                connection.execute("DELETE FROM body WHERE pos < ?1", [first_pos as i64])?;
                connection.execute(
                    "DELETE FROM span WHERE block < ?1",
                    [(first_pos / SPAN_EVENTS) as i64],
                )?;
                let gone = connection
                    .prepare("DELETE FROM content WHERE last_pos < ?1 RETURNING digest")?
                    .query_map(params![first_pos as i64], |row| row.get(0))?
                    .collect::<Result<Vec<String>, _>>()?;
                let retained = Retained {
                    removed: first_pos - old_first,
                    contents_removed: gone.len() as u64,
                    window: Window {
                        first_pos,
                        anchor_hash: hex(&anchor),
                    },
                };
                Ok((Some(retained), gone))
            })
            .map_err(self.failed("trim"))?;
        for digest in &gone {
            self.content.remove(digest);
        }
        let known = |digest: &str| {
            // When in doubt it is kept.
            writer
                .connection
                .query_row("SELECT 1 FROM content WHERE digest = ?1", [digest], |_| {
                    Ok(())
                })
                .optional()
                .map_or(true, |found| found.is_some())
        };
        let swept = self.content.sweep(known);
        drop(writer);
        self.signal.raise();
        match retained {
            Some(mut retained) => {
                retained.contents_removed += swept;
                Ok(retained)
            }
            None => Ok(Retained {
                removed: 0,
                contents_removed: swept,
                window: self.snapshot(|connection| self.window_of(connection))?,
            }),
        }
    }
}

/// Makes the event that explains why a log does not begin at 1.
pub(crate) fn retained_event(
    ambient: &dyn cofferdam_core::ambient::Ambient,
    first_pos: u64,
    anchor: &Hash,
) -> NewEvent {
    let (milliseconds, random) = ambient.id_parts();
    NewEvent {
        id: EventId::new(milliseconds, random),
        time: ambient.now(),
        kind: event_type::LOG_RETAINED.to_owned(),
        subject: Subject::default(),
        causation: None,
        severity: Severity::Info,
        data: serde_json::json!({"first_pos": first_pos, "anchor_hash": hex(anchor)}),
        redactions: 0,
    }
}
