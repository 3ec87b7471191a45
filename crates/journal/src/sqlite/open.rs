//! Opening: a new file is made under a lock, an old one is brought up to date, a newer one is read.

use std::fmt::Write as _;
use std::fs::TryLockError;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cofferdam_core::ambient::Ambient;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::SqliteJournal;
use super::write::Writer;
use crate::body::{genesis, hex};
use crate::content::ContentStore;
use crate::data_dir::DataDir;
use crate::error::JournalError;
use crate::journal::Access;
use crate::patience::{Patience, Waiting};
use crate::platform;
use crate::signal::Signal;

/// Marks the file as a journal of ours: "cfdm".
const APPLICATION_ID: i32 = 0x6366_646D;

/// Each step makes the format of its number plus one; `user_version` says how many were taken.
const MIGRATIONS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
];

/// The newest format.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Pages of the write-ahead log from which a writer moves them into the file. A start reads what is
/// in the log, so that a long one would make every short run slow.
const CHECKPOINT_PAGES: u32 = 128;

/// The same once somebody writes many events at a time, whom each move would hold up.
pub(super) const CHECKPOINT_PAGES_OF_MANY: u32 = 512;

impl SqliteJournal {
    /// Opens the journal of a data directory, and makes it where there is none.
    ///
    /// A journal of a newer version is opened for reading only: [`Access::Newer`].
    pub fn open(directory: &DataDir, ambient: Arc<dyn Ambient>) -> Result<Self, JournalError> {
        Self::open_with_patience(directory, ambient, Patience::default())
    }

    /// Opens as [`SqliteJournal::open`] does, and says how long locks of other programs are waited
    /// for; then an operation fails with `journal_locked`.
    pub fn open_with_patience(
        directory: &DataDir,
        ambient: Arc<dyn Ambient>,
        patience: Patience,
    ) -> Result<Self, JournalError> {
        let path = directory.journal();
        let waiting = Waiting::new(path.clone(), patience);
        let failed = |error| JournalError::from_sqlite("open", &path, &error);
        let mut connection = if path.exists() {
            connect(&path, &waiting)?
        } else {
            make(directory, ambient.as_ref(), &waiting)?
        };
        let mut version = inspect(&connection, &path)?;
        if version < VERSION {
            drop(connection);
            connection = make(directory, ambient.as_ref(), &waiting)?;
            version = inspect(&connection, &path)?;
        }
        let access = if version > VERSION {
            Access::Newer
        } else if connection.is_readonly("main").map_err(failed)? {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        Ok(Self {
            access,
            waiting,
            content: ContentStore::new(directory.content()),
            ambient,
            writer: Mutex::new(Writer::new(connection, version)),
            turns: Mutex::default(),
            readers: Mutex::new(Vec::new()),
            signal: Signal::default(),
            path,
        })
    }

    pub(super) fn open_reader(&self) -> Result<Connection, JournalError> {
        connect(&self.path, &self.waiting)
    }
}

fn connect(path: &Path, waiting: &Waiting) -> Result<Connection, JournalError> {
    let failed = |error| JournalError::from_sqlite("open", path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    let mut wait = waiting.begin();
    connection
        .busy_handler(Some(move |tries| wait.go_on(tries)))
        .map_err(failed)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(failed)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)
        .map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; \
             PRAGMA cache_size = -8000; PRAGMA trusted_schema = OFF"
        ))
        .map_err(failed)?;
    Ok(connection)
}

/// Tells the format of the file; 0 when it is empty.
fn inspect(connection: &Connection, path: &Path) -> Result<u32, JournalError> {
    let failed = |error| JournalError::from_sqlite("open", path, &error);
    // One view for all three questions: another process may make the file right now.
    let view = connection.unchecked_transaction().map_err(failed)?;
    let number = |pragma| view.pragma_query_value::<i32, _>(None, pragma, |row| row.get(0));
    let version = number("user_version").map_err(failed)?;
    let application = number("application_id").map_err(failed)?;
    let empty = version == 0 && application == 0;
    if empty
        && view
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
                row.get::<_, i64>(0)
            })
            .map_err(failed)?
            == 0
    {
        return Ok(0);
    }
    if application != APPLICATION_ID || version < 1 {
        return Err(JournalError::Corrupt {
            path: path.to_owned(),
            detail: "it is a database of another program".to_owned(),
        });
    }
    Ok(version.unsigned_abs())
}

/// Makes the file, or brings it up to date, alone.
fn make(
    directory: &DataDir,
    ambient: &dyn Ambient,
    waiting: &Waiting,
) -> Result<Connection, JournalError> {
    let path = directory.journal();
    let lock_path = directory.path().join("journal.lock");
    let lock = platform::open_private(&lock_path)
        .map_err(|source| JournalError::from_io("create", &lock_path, source))?;
    let mut wait = waiting.begin();
    let mut tries = 0;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if wait.go_on(tries) => tries += 1,
            Err(TryLockError::WouldBlock) => return Err(JournalError::Locked { path: lock_path }),
            Err(TryLockError::Error(source)) => {
                return Err(JournalError::from_io("lock", &lock_path, source));
            }
        }
    }
    platform::open_private(&path)
        .map_err(|source| JournalError::from_io("create", &path, source))?;
    let connection = connect(&path, waiting)?;
    let failed = |error| JournalError::from_sqlite("create", &path, &error);
    let version = inspect(&connection, &path)?;
    if version >= VERSION {
        return Ok(connection);
    }
    if version == 0 {
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .map_err(failed)?;
    }
    let mut steps = String::from("BEGIN IMMEDIATE;\n");
    for migration in &MIGRATIONS[version as usize..] {
        steps.push_str(migration);
    }
    if version == 0 {
        let mut random = [0; 8];
        ambient.fill_random(&mut random);
        let epoch = hex(&random);
        let anchor = hex(&genesis(&epoch));
        let _ = writeln!(
            steps,
            "INSERT INTO meta VALUES ('epoch', '{epoch}'), ('first_pos', '1'), ('anchor', '{anchor}');"
        );
    }
    let _ = writeln!(
        steps,
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
    );
    connection.execute_batch(&steps).map_err(failed)?;
    Ok(connection)
}
