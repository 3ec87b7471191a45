//! Export and import: one JSON object a line, the stored bytes untouched.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use cofferdam_core::event::Event;
use cofferdam_core::limits;

use crate::body::{self, Hash};
use crate::error::JournalError;
use crate::journal::{Head, Journal, Query};

/// Writes the whole journal: each event as one line, with `prev_hash` and `hash` at its end, and
/// before an event whose body is in the content store a line `{"content": digest, "body": …}`.
///
/// Bodies that have expired, and outputs of commands, are not part of it.
pub fn export(journal: &dyn Journal, out: &mut dyn Write) -> Result<Head, JournalError> {
    let failed = |source| JournalError::from_io("write", "export".as_ref(), source);
    let mut query = Query::default().limit(limits::PAGE_EVENTS_CAP);
    loop {
        let page = journal.read(&query)?;
        for event in &page.events {
            if let Some(digest) = body::moved_body(&event.data)
                && let Some(bytes) = journal.content(&digest, 0, usize::MAX)?
            {
                write!(out, "{{\"content\":\"{digest}\",\"body\":").map_err(failed)?;
                out.write_all(&bytes).map_err(failed)?;
                out.write_all(b"}\n").map_err(failed)?;
            }
            let (Some(stored), Some(previous), Some(hash)) = (
                journal.stored(event.pos)?,
                body::unhex(&event.prev_hash),
                body::unhex(&event.hash),
            ) else {
                // Retention took it meanwhile.
                continue;
            };
            out.write_all(&body::line(&stored, &previous, &hash))
                .map_err(failed)?;
            out.write_all(b"\n").map_err(failed)?;
        }
        if let Some(pos) = page.next() {
            query.after = Some(pos);
        } else {
            out.flush().map_err(failed)?;
            return Ok(page.head);
        }
    }
}

/// One event of an import.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) event: Event,
    pub(crate) stored: Vec<u8>,
    pub(crate) previous: Hash,
    pub(crate) hash: Hash,
}

/// An import that was read and holds.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) events: Vec<Line>,
    pub(crate) contents: BTreeMap<String, Vec<u8>>,
}

impl Lines {
    pub(crate) fn read(input: &mut dyn BufRead) -> Result<Self, JournalError> {
        let mut lines = Self::default();
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let read = input
                .read_until(b'\n', &mut text)
                .map_err(|source| JournalError::from_io("read", "import".as_ref(), source))?;
            if read == 0 {
                break;
            }
            let trimmed = text.trim_ascii_end();
            if !trimmed.is_empty() {
                lines.take(trimmed).map_err(|why| JournalError::Import {
                    line,
                    why: why.to_owned(),
                })?;
            }
        }
        Ok(lines)
    }

    fn take(&mut self, line: &[u8]) -> Result<(), &'static str> {
        if let Some(rest) = line.strip_prefix(b"{\"content\":\"") {
            let (digest, rest) = rest.split_at_checked(64).ok_or("it is cut short")?;
            let bytes = rest
                .strip_prefix(b"\",\"body\":")
                .and_then(|rest| rest.strip_suffix(b"}"))
                .ok_or("it is no body of the content store")?;
            let named = std::str::from_utf8(digest).map_err(|_| "its digest is none")?;
            if !cofferdam_core::spec::Digest(named.to_owned()).is_of(bytes) {
                return Err("the body is not what its digest says");
            }
            self.contents.insert(named.to_owned(), bytes.to_owned());
            return Ok(());
        }
        let (stored, previous, hash) =
            body::split_line(line).ok_or("it is no event with its two hashes at the end")?;
        let event = body::decode(&stored, &previous, &hash).map_err(|_| "it is no event")?;
        if body::chain(&previous, &stored) != hash {
            return Err("the event is not what its hash says");
        }
        if let Some(last) = self.events.last() {
            if last.hash != previous || last.event.pos + 1 != event.pos {
                return Err("it does not follow the event before");
            }
            if last.event.epoch != event.epoch {
                return Err("it is of another log than the event before");
            }
        }
        self.events.push(Line {
            event,
            stored,
            previous,
            hash,
        });
        Ok(())
    }
}
