use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::ambient::Ambient;
use cofferdam_core::event::{Event, NewEvent};
use cofferdam_core::id::EventId;
use cofferdam_core::spec::Digest;

use crate::body::{self, Hash, Prepared, genesis, hex};
use crate::error::JournalError;
use crate::exchange::{Line, Lines};
use crate::journal::{
    Access, Appended, Bodies, ContentReference, ContentSink, Direction, Fault, Head, Journal, Page,
    Query, Retained, Verification, Window,
};
use crate::signal::Signal;
use crate::sqlite::retained_event;

/// A journal that ends with the program.
#[derive(Debug)]
pub struct MemoryJournal {
    ambient: Arc<dyn Ambient>,
    log: Mutex<Log>,
    contents: Arc<Mutex<Contents>>,
    signal: Signal,
}

type Contents = BTreeMap<String, Vec<u8>>;

#[derive(Debug)]
struct Log {
    epoch: String,
    first_pos: u64,
    anchor: Hash,
    lines: Vec<Line>,
    /// The newest number of each conversation, those removed by retention included.
    seqs: HashMap<String, u64>,
}

impl MemoryJournal {
    /// Begins an empty log.
    pub fn new(ambient: Arc<dyn Ambient>) -> Self {
        let mut random = [0; 8];
        ambient.fill_random(&mut random);
        let epoch = hex(&random);
        Self {
            ambient,
            log: Mutex::new(Log {
                first_pos: 1,
                anchor: genesis(&epoch),
                epoch,
                lines: Vec::new(),
                seqs: HashMap::new(),
            }),
            contents: Arc::default(),
            signal: Signal::default(),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolve(&self, mut event: Event) -> Event {
        if let Some(digest) = body::moved_body(&event.data)
            && let Some(bytes) = self.contents().get(digest.as_str())
            && let Ok(data) = serde_json::from_slice(bytes)
        {
            event.data = data;
        }
        event
    }
}

impl Log {
    fn head(&self) -> Head {
        Head {
            epoch: self.epoch.clone(),
            pos: self.newest().0,
            hash: hex(&self.newest().1),
        }
    }

    fn window(&self) -> Window {
        Window {
            first_pos: self.first_pos,
            anchor_hash: hex(&self.anchor),
        }
    }

    fn newest(&self) -> (u64, Hash) {
        self.lines
            .last()
            .map_or((self.first_pos - 1, self.anchor), |line| {
                (line.event.pos, line.hash)
            })
    }

    fn at(&self, pos: u64) -> Option<&Line> {
        let index = pos.checked_sub(self.first_pos)?;
        self.lines.get(usize::try_from(index).ok()?)
    }

    fn append(&mut self, event: &NewEvent, prepared: &Prepared) -> Appended {
        let (newest, previous) = self.newest();
        let pos = newest + 1;
        let seq = event.subject.conversation.as_ref().map_or(0, |id| {
            let seq = self.seqs.entry(id.to_string()).or_default();
            *seq += 1;
            *seq
        });
        let stored = prepared.finish(pos, &self.epoch, seq);
        let hash = body::chain(&previous, &stored);
        let event = body::decode(&stored, &previous, &hash)
            .expect("what was just serialised from an event is an event");
        self.lines.push(Line {
            event,
            stored,
            previous,
            hash,
        });
        Appended { pos, seq }
    }
}

impl Journal for MemoryJournal {
    fn append(&self, events: &[NewEvent]) -> Result<Vec<Appended>, JournalError> {
        let prepared: Vec<Prepared> = events.iter().map(Prepared::new).collect();
        for event in &prepared {
            if let (Some(bytes), Some(digest)) = (&event.content, event.uses.first()) {
                self.contents().insert(digest.clone(), bytes.clone());
            }
        }
        let mut log = self.log();
        let places = events
            .iter()
            .zip(&prepared)
            .map(|(event, prepared)| log.append(event, prepared))
            .collect();
        drop(log);
        self.signal.raise();
        Ok(places)
    }

    fn read(&self, query: &Query) -> Result<Page, JournalError> {
        let log = self.log();
        let limit = query.page_events();
        let accepted = |event: &&Event| {
            let beyond = match (query.direction, query.after) {
                (_, None) => true,
                (Direction::Forward, Some(after)) => event.pos > after,
                (Direction::Backward, Some(before)) => event.pos < before,
            };
            beyond && query.filter.accepts(event)
        };
        let events = log.lines.iter().map(|line| &line.event);
        let mut events: Vec<Event> = match query.direction {
            Direction::Forward => events.filter(accepted).take(limit + 1).cloned().collect(),
            Direction::Backward => events
                .rev()
                .filter(accepted)
                .take(limit + 1)
                .cloned()
                .collect(),
        };
        let more = events.len() > limit;
        events.truncate(limit);
        if query.bodies == Bodies::Resolved {
            events = events
                .into_iter()
                .map(|event| self.resolve(event))
                .collect();
        }
        Ok(Page {
            events,
            more,
            head: log.head(),
            window: log.window(),
        })
    }

    fn get(&self, pos: u64) -> Result<Option<Event>, JournalError> {
        Ok(self.log().at(pos).map(|line| line.event.clone()))
    }

    fn find(&self, id: &EventId) -> Result<Option<Event>, JournalError> {
        let log = self.log();
        let mut events = log.lines.iter().map(|line| &line.event);
        Ok(events.find(|event| event.id == *id).cloned())
    }

    fn stored(&self, pos: u64) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(self.log().at(pos).map(|line| line.stored.clone()))
    }

    fn head(&self) -> Result<Head, JournalError> {
        Ok(self.log().head())
    }

    fn window(&self) -> Result<Window, JournalError> {
        Ok(self.log().window())
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn content_sink(&self) -> Result<Box<dyn ContentSink>, JournalError> {
        Ok(Box::new(MemorySink {
            contents: Arc::clone(&self.contents),
            bytes: Vec::new(),
        }))
    }

    fn content(
        &self,
        digest: &Digest,
        offset: u64,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(self.contents().get(digest.as_str()).map(|bytes| {
            let start = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let end = start.saturating_add(limit).min(bytes.len());
            bytes[start..end].to_vec()
        }))
    }

    fn remove_content(&self, digest: &Digest, beyond: u64) -> Result<bool, JournalError> {
        let log = self.log();
        let mut named = Vec::new();
        for line in log.lines.iter().filter(|line| line.event.pos > beyond) {
            body::collect_digests(&line.event.data, &mut named);
        }
        if named.iter().any(|one| one == digest.as_str()) {
            return Ok(false);
        }
        Ok(self.contents().remove(digest.as_str()).is_some())
    }

    fn verify(&self) -> Result<Verification, JournalError> {
        let log = self.log();
        let mut previous = log.anchor;
        let mut fault = None;
        let mut digests = BTreeSet::new();
        for line in &log.lines {
            if line.previous != previous || body::chain(&previous, &line.stored) != line.hash {
                fault = Some(Fault {
                    pos: line.event.pos,
                    what: "the event is not what its hash says".to_owned(),
                });
                break;
            }
            let mut named = Vec::new();
            body::collect_digests(&line.event.data, &mut named);
            digests.extend(named);
            previous = line.hash;
        }
        let there = digests
            .iter()
            .filter(|digest| self.contents().contains_key(*digest))
            .count() as u64;
        Ok(Verification {
            events: log.lines.len() as u64,
            first_pos: log.first_pos,
            head: log.head(),
            contents: there,
            contents_expired: digests.len() as u64 - there,
            fault,
        })
    }

    fn wait_beyond(&self, pos: u64, limit: Duration) -> Result<Head, JournalError> {
        let until = Instant::now() + limit;
        loop {
            let seen = self.signal.generation();
            let head = self.log().head();
            let left = until.saturating_duration_since(Instant::now());
            if head.pos > pos || left.is_zero() {
                return Ok(head);
            }
            self.signal.wait(seen, left);
        }
    }

    fn retain_from(&self, first_pos: u64) -> Result<Retained, JournalError> {
        let mut log = self.log();
        let first_pos = first_pos.clamp(log.first_pos, log.newest().0 + 1);
        let removed = first_pos - log.first_pos;
        let mut contents_removed = 0;
        if removed > 0 {
            let anchor = log.at(first_pos - 1).map_or(log.anchor, |line| line.hash);
            let event = retained_event(self.ambient.as_ref(), first_pos, &anchor);
            log.append(&event, &Prepared::new(&event));
            let mut gone = Vec::new();
            for line in log
                .lines
                .drain(..usize::try_from(removed).unwrap_or(usize::MAX))
            {
                body::collect_digests(&line.event.data, &mut gone);
            }
            let mut kept = Vec::new();
            for line in &log.lines {
                body::collect_digests(&line.event.data, &mut kept);
            }
            gone.retain(|digest| !kept.contains(digest));
            let mut contents = self.contents();
            for digest in gone {
                contents_removed += u64::from(contents.remove(&digest).is_some());
            }
            log.first_pos = first_pos;
            log.anchor = anchor;
        }
        let window = log.window();
        drop(log);
        self.signal.raise();
        Ok(Retained {
            removed,
            contents_removed,
            window,
        })
    }

    fn import(&self, lines: &mut dyn BufRead) -> Result<Head, JournalError> {
        let lines = Lines::read(lines)?;
        let mut log = self.log();
        if !log.lines.is_empty() {
            return Err(JournalError::Import {
                line: 1,
                why: "the journal has events already".to_owned(),
            });
        }
        self.contents().extend(lines.contents);
        if let Some(first) = lines.events.first() {
            log.epoch.clone_from(&first.event.epoch);
            log.first_pos = first.event.pos;
            log.anchor = first.previous;
        }
        for line in &lines.events {
            if let Some(conversation) = &line.event.conversation {
                log.seqs.insert(conversation.to_string(), line.event.seq);
            }
        }
        log.lines = lines.events;
        let head = log.head();
        drop(log);
        self.signal.raise();
        Ok(head)
    }
}

#[derive(Debug)]
struct MemorySink {
    contents: Arc<Mutex<Contents>>,
    bytes: Vec<u8>,
}

impl Write for MemorySink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ContentSink for MemorySink {
    fn finish(self: Box<Self>) -> Result<ContentReference, JournalError> {
        let content = Digest::of(&self.bytes);
        let bytes = self.bytes.len() as u64;
        self.contents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(content.0.clone(), self.bytes);
        Ok(ContentReference { content, bytes })
    }
}
