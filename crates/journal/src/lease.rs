use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use cofferdam_core::ambient::Ambient;
use cofferdam_core::event::{Event, EventFilter, IntentRule};
use cofferdam_core::id::LeaseId;
use cofferdam_core::limits;
use serde::{Deserialize, Serialize};

use crate::data_dir::DataDir;
use crate::error::JournalError;
use crate::journal::{Journal, Query};
use crate::platform;

/// Says whose a lease is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRecord {
    /// The lease, as intents name it.
    pub lease: LeaseId,
    /// The process that took it.
    pub pid: u32,
    /// The boot of the machine in which it did; empty where there is no such name.
    pub boot: String,
    /// When the process started, in ticks of the kernel since boot; 0 where that is not told.
    pub start: u64,
    /// Newest position of the journal when it was taken: its intents come later.
    pub since_pos: u64,
}

/// Shows to other processes that a plane lives: a file that is locked as long as it does.
///
/// The kernel lets go of the lock when the process dies, however it dies. What is written in the file
/// is for people.
#[derive(Debug)]
pub struct Lease {
    record: LeaseRecord,
    path: PathBuf,
    _lock: File,
}

impl Lease {
    /// Takes a lease; `since_pos` is the newest position of the journal now.
    pub fn take(
        directory: &DataDir,
        ambient: &dyn Ambient,
        since_pos: u64,
    ) -> Result<Self, JournalError> {
        let (milliseconds, random) = ambient.id_parts();
        let record = LeaseRecord {
            lease: LeaseId::new(milliseconds, random),
            pid: std::process::id(),
            boot: platform::boot_id(),
            start: platform::start_ticks(),
            since_pos,
        };
        let leases = directory.leases();
        let path = leases.join(record.lease.as_str());
        let make = || {
            platform::create_private_directory(&leases)?;
            let (mut file, unfinished) = platform::create_unnamed(&leases)?;
            // Locked before it has a name, so that nobody ever sees it without its lock.
            file.lock()?;
            file.write_all(&serde_json::to_vec(&record)?)?;
            let named = platform::give_name(&file, unfinished.as_deref(), &path);
            if let Some(unfinished) = unfinished {
                let _ = fs::remove_file(unfinished);
            }
            named.map(|()| file)
        };
        let lock = make().map_err(|source| JournalError::from_io("create", &path, source))?;
        Ok(Self {
            record,
            path,
            _lock: lock,
        })
    }

    /// Gives the id that intents name.
    pub fn id(&self) -> &LeaseId {
        &self.record.lease
    }

    /// Tells whose it is.
    pub fn record(&self) -> &LeaseRecord {
        &self.record
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // While the lock is still held: nobody can take it for dead meanwhile.
        let _ = fs::remove_file(&self.path);
    }
}

/// The lease of a plane that died, held by whoever settles what it left.
///
/// Nobody else gets it meanwhile. Dropped without [`DeadLease::bury`], it is found again.
#[derive(Debug)]
pub struct DeadLease {
    record: LeaseRecord,
    path: PathBuf,
    _lock: File,
}

impl DeadLease {
    /// Tells whose it was.
    pub fn record(&self) -> &LeaseRecord {
        &self.record
    }

    /// Removes it, after everything that it left is settled.
    pub fn bury(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path)
            .map_err(|source| JournalError::from_io("remove", &self.path, source))
    }
}

/// Finds the leases of planes that died, and holds each.
pub fn dead_leases(directory: &DataDir) -> Result<Vec<DeadLease>, JournalError> {
    let leases = directory.leases();
    let entries = match fs::read_dir(&leases) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(JournalError::from_io("read", &leases, error)),
    };
    let mut dead = Vec::new();
    for entry in entries.flatten() {
        if let Some(lease) = dead_lease(entry.path()) {
            dead.push(lease);
        }
    }
    dead.sort_by(|one, other| one.record.lease.cmp(&other.record.lease));
    Ok(dead)
}

/// Holds the lease when nobody else does; anything that cannot be read counts as alive.
fn dead_lease(path: PathBuf) -> Option<DeadLease> {
    let named = path.file_name()?.to_str()?.to_owned();
    let mut lock = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .ok()?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
    }
    // It may have been buried between opening and locking: then it is nobody's any more.
    if !path.exists() {
        return None;
    }
    let Ok(lease) = LeaseId::parse(&named) else {
        sweep_unfinished(&path, &named);
        return None;
    };
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    let record = serde_json::from_str::<LeaseRecord>(&text)
        .ok()
        .filter(|record| record.lease == lease)
        // Somebody wrote into it: the name is enough, and its intents are looked for everywhere.
        .unwrap_or(LeaseRecord {
            lease,
            pid: 0,
            boot: String::new(),
            start: 0,
            since_pos: 0,
        });
    Some(DeadLease {
        record,
        path,
        _lock: lock,
    })
}

/// Removes a file that never became a lease, where files cannot be without a name.
fn sweep_unfinished(path: &Path, name: &str) {
    if name.starts_with(".unfinished-") {
        let _ = fs::remove_file(path);
    }
}

/// Finds the intents of a lease that have no outcome, oldest first, with their bodies.
pub fn unsettled(
    journal: &dyn Journal,
    lease: &LeaseRecord,
    rules: &[IntentRule],
) -> Result<Vec<Event>, JournalError> {
    let mut open = Vec::new();
    for rule in rules {
        let key = |event: &Event| {
            event
                .data
                .get(rule.key)
                .and_then(|value| value.as_str())
                .map(str::to_owned)
        };
        let mut intents = Vec::new();
        each(journal, rule.intent, lease.since_pos, |event| {
            if event.data.get("lease").and_then(|value| value.as_str())
                == Some(lease.lease.as_str())
            {
                intents.push(event);
            }
        })?;
        let Some(first) = intents.first().map(|event| event.pos) else {
            continue;
        };
        let mut closed = BTreeSet::new();
        for outcome in rule.outcomes {
            each(journal, outcome, first, |event| closed.extend(key(&event)))?;
        }
        open.extend(
            intents
                .into_iter()
                .filter(|event| key(event).is_none_or(|key| !closed.contains(&key))),
        );
    }
    open.sort_by_key(|event| event.pos);
    Ok(open)
}

/// Calls `with` for every event of a type after a position.
fn each(
    journal: &dyn Journal,
    kind: &str,
    after: u64,
    mut with: impl FnMut(Event),
) -> Result<(), JournalError> {
    let filter = EventFilter {
        event_type: Some(kind.to_owned()),
        ..EventFilter::default()
    };
    let mut query = Query::of(filter)
        .after(after)
        .limit(limits::PAGE_EVENTS_CAP)
        .resolved();
    loop {
        let page = journal.read(&query)?;
        let next = page.next();
        page.events.into_iter().for_each(&mut with);
        match next {
            Some(pos) => query.after = Some(pos),
            None => return Ok(()),
        }
    }
}
