//! Checking the whole log: chain, numbers, index entries and bodies.

use std::collections::{BTreeSet, HashMap};

use rusqlite::Connection;

use super::SqliteJournal;
use super::index::{Columns, TAIL_EVENTS, indexed};
use super::read::{epoch, first};
use crate::body::{self, Hash, hex};
use crate::error::JournalError;
use crate::journal::{Fault, Head, Verification};

/// One row of everything that is kept of an event.
struct Row {
    pos: u64,
    hash: Hash,
    stored: Vec<u8>,
    time: Option<i64>,
    id: Option<String>,
    kind: Option<String>,
    conversation: Option<String>,
    agent: Option<String>,
    thread: Option<String>,
    task: Option<String>,
}

const ROWS: &str = "SELECT body.pos, body.hash, body.bytes, entry.time, entry.id, kind.text, \
     conversation.text, agent.text, thread.text, task.text FROM body \
     LEFT JOIN entry ON entry.pos = body.pos \
     LEFT JOIN name AS kind ON kind.id = entry.kind \
     LEFT JOIN name AS conversation ON conversation.id = entry.conversation \
     LEFT JOIN name AS agent ON agent.id = entry.agent \
     LEFT JOIN name AS thread ON thread.id = entry.thread \
     LEFT JOIN name AS task ON task.id = entry.task \
     ORDER BY body.pos";

impl SqliteJournal {
    pub(super) fn verify_all(&self, connection: &Connection) -> Result<Verification, JournalError> {
        let failed = self.failed("verify");
        let (first_pos, anchor) = first(connection).map_err(&failed)?;
        let epoch = epoch(connection).map_err(&failed)?;
        let indexed = indexed(connection).map_err(&failed)?;
        let mut walk = Walk {
            epoch: &epoch,
            indexed,
            next: first_pos,
            previous: anchor,
            seqs: HashMap::new(),
            digests: BTreeSet::new(),
        };
        let mut events = 0;
        let mut fault = None;
        {
            let mut statement = connection.prepare(ROWS).map_err(&failed)?;
            let mut rows = statement.query([]).map_err(&failed)?;
            loop {
                let row = match rows.next() {
                    Ok(Some(row)) => row_of(row),
                    Ok(None) => break,
                    Err(error) => Err(error),
                };
                let what = match row {
                    Ok(row) => walk.step(&row).err(),
                    Err(error) => Some(format!("the event cannot be read: {error}")),
                };
                if let Some(what) = what {
                    fault = Some(Fault {
                        pos: walk.next,
                        what,
                    });
                    break;
                }
                events += 1;
            }
        }
        let mut verification = Verification {
            events,
            first_pos,
            head: Head {
                epoch: epoch.clone(),
                pos: walk.next - 1,
                hash: hex(&walk.previous),
            },
            contents: 0,
            contents_expired: 0,
            fault,
        };
        for (digest, pos) in &walk.digests_by_pos() {
            match self.content.check(digest)? {
                Some(true) => verification.contents += 1,
                None => verification.contents_expired += 1,
                Some(false) if verification.fault.is_none() => {
                    verification.fault = Some(Fault {
                        pos: *pos,
                        what: format!("the content {digest} is not what its name says"),
                    });
                }
                Some(false) => {}
            }
        }
        if verification.fault.is_none() && walk.next > indexed + TAIL_EVENTS {
            verification.fault = Some(Fault {
                pos: indexed + 1,
                what: "the index entries of the newest events are missing".to_owned(),
            });
        }
        if verification.fault.is_none() {
            verification.fault = index_fault(connection, walk.next);
        }
        Ok(verification)
    }
}

/// Looks at what no event shows: entries of indexes, rows too many.
fn index_fault(connection: &Connection, end: u64) -> Option<Fault> {
    let fault = |what| Some(Fault { pos: end, what });
    let strays = connection.query_row(
        "SELECT count(*) FROM entry WHERE pos NOT IN (SELECT pos FROM body)",
        [],
        |row| row.get::<_, i64>(0),
    );
    match strays {
        Ok(0) => {}
        Ok(number) => return fault(format!("{number} index entries belong to no event")),
        Err(error) => return fault(format!("the indexes cannot be read: {error}")),
    }
    let checked = connection.query_row("PRAGMA integrity_check(1)", [], |row| {
        row.get::<_, String>(0)
    });
    match checked {
        Ok(word) if word == "ok" => None,
        Ok(what) => fault(format!("the indexes do not hold: {what}")),
        Err(error) => fault(format!("the indexes cannot be read: {error}")),
    }
}

fn row_of(row: &rusqlite::Row<'_>) -> Result<Row, rusqlite::Error> {
    Ok(Row {
        pos: row.get::<_, i64>(0)? as u64,
        hash: row.get(1)?,
        stored: row.get(2)?,
        time: row.get(3)?,
        id: row.get(4)?,
        kind: row.get(5)?,
        conversation: row.get(6)?,
        agent: row.get(7)?,
        thread: row.get(8)?,
        task: row.get(9)?,
    })
}

/// What the next event must follow.
struct Walk<'a> {
    epoch: &'a str,
    /// The newest position that has an index entry.
    indexed: u64,
    next: u64,
    previous: Hash,
    seqs: HashMap<String, u64>,
    digests: BTreeSet<(u64, String)>,
}

impl Row {
    fn has_columns(&self, columns: &Columns<'_>) -> bool {
        self.time == Some(columns.time)
            && self.id.as_deref() == Some(&columns.id)
            && self.kind.as_deref() == Some(&columns.kind)
            && self.conversation.as_deref() == columns.conversation.as_deref()
            && self.agent.as_deref() == columns.agent.as_deref()
            && self.thread.as_deref() == columns.thread.as_deref()
            && self.task.as_deref() == columns.task.as_deref()
    }
}

impl Walk<'_> {
    fn step(&mut self, row: &Row) -> Result<(), String> {
        if row.pos != self.next {
            return Err(format!("the event is missing, {} follows", row.pos));
        }
        if body::chain(&self.previous, &row.stored) != row.hash {
            return Err("the event is not what its hash says".to_owned());
        }
        let event = body::decode(&row.stored, &self.previous, &row.hash)
            .map_err(|error| format!("it is no event: {error}"))?;
        if event.pos != row.pos || event.epoch != self.epoch {
            return Err("the event says another position or epoch".to_owned());
        }
        if let Some(conversation) = &event.conversation {
            let last = self.seqs.insert(conversation.to_string(), event.seq);
            if last.is_some_and(|last| last + 1 != event.seq) || event.seq == 0 {
                return Err(format!("the number {} breaks its conversation", event.seq));
            }
        }
        if event.pos <= self.indexed && !row.has_columns(&Columns::of(&event)) {
            return Err("the index entry says something else than the event".to_owned());
        }
        let mut digests = Vec::new();
        body::collect_digests(&event.data, &mut digests);
        self.digests
            .extend(digests.into_iter().map(|digest| (row.pos, digest)));
        self.previous = row.hash;
        self.next += 1;
        Ok(())
    }

    /// Gives each body once, with the first event that names it.
    fn digests_by_pos(&self) -> HashMap<&str, u64> {
        let mut first = HashMap::new();
        for (pos, digest) in &self.digests {
            first.entry(digest.as_str()).or_insert(*pos);
        }
        first
    }
}
