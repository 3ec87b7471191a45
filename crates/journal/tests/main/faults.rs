//! Journals that are damaged, locked, newer, without room, or where they should not be.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use cofferdam_core::ambient::FixedAmbient;
use cofferdam_core::error::ErrorCode;
use cofferdam_journal::{Access, DataDir, Journal, JournalError, Patience, Query, SqliteJournal};
use serde_json::json;

use crate::support::{Mounted, event, open, task_event};

fn try_open(directory: &Path) -> Result<SqliteJournal, JournalError> {
    let data = DataDir::open(directory.join("data"))?;
    SqliteJournal::open(&data, Arc::new(FixedAmbient::default()))
}

fn fill(journal: &dyn Journal, events: usize) {
    let ambient = FixedAmbient::default();
    for number in 0..events {
        let mut made = task_event(&ambient, "exec.output", "conv_a", "task_1");
        made.data = json!({"text": format!("line {number:06}")});
        journal.append(&[made]).expect("room");
    }
}

/// Moves everything from the write-ahead log into the file, as a later writer would.
fn settle_file(directory: &Path) {
    let connection = rusqlite::Connection::open(directory.join("data/journal.db")).expect("open");
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .expect("moved");
}

#[test]
fn c106_a_flipped_byte_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(&open(directory.path()), 120);
    settle_file(directory.path());
    let path = directory.path().join("data/journal.db");
    let bytes = fs::read(&path).expect("readable");
    let needle = b"line 000077";
    let at = bytes
        .windows(needle.len())
        .position(|window| window == needle)
        .expect("the body");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("open");
    file.seek(SeekFrom::Start(at as u64 + 10)).expect("there");
    file.write_all(b"8").expect("written");
    drop(file);
    let journal = open(directory.path());
    let verification = journal.verify().expect("readable");
    let fault = verification.fault.expect("a fault");
    assert_eq!((fault.pos, verification.events), (78, 77));
    insta::assert_snapshot!(fault.what, @"the event is not what its hash says");
}

#[test]
fn c106_bytes_flipped_anywhere_in_the_file_do_not_pass() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(&open(directory.path()), 200);
    settle_file(directory.path());
    let path = directory.path().join("data/journal.db");
    let whole = fs::read(&path).expect("readable");
    let head = open(directory.path()).head().expect("a head");
    let mut named = 0;
    for at in (0..whole.len()).step_by(whole.len() / 120) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).expect("written");
        let found = try_open(directory.path()).and_then(|journal| journal.verify());
        match found {
            Err(error) => {
                let code = error.code();
                let told = [
                    ErrorCode::JournalCorrupt,
                    ErrorCode::JournalIo,
                    ErrorCode::JournalNewer,
                ];
                assert!(told.contains(&code), "{at}: {error}");
                named += 1;
            }
            Ok(verification) if verification.fault.is_some() => named += 1,
            // Bytes that nothing uses: then every event is still what it was.
            Ok(verification) => assert_eq!(verification.head, head, "{at}"),
        }
        for extra in ["data/journal.db-wal", "data/journal.db-shm"] {
            let _ = fs::remove_file(directory.path().join(extra));
        }
    }
    assert!(named > 60, "{named} of 120 were found");
}

#[test]
fn rows_that_were_taken_out_or_moved_are_named() {
    let faults = [
        (
            "DELETE FROM body WHERE pos = 9; DELETE FROM entry WHERE pos = 9",
            9,
        ),
        ("DELETE FROM entry WHERE pos = 9", 9),
        ("UPDATE entry SET task = NULL WHERE pos = 5", 5),
        ("UPDATE entry SET time = time + 1 WHERE pos = 5", 5),
        (
            "UPDATE name SET text = 'exec.input' WHERE text = 'exec.output'",
            1,
        ),
        ("UPDATE body SET hash = zeroblob(32) WHERE pos = 4", 4),
        ("UPDATE body SET hash = zeroblob(32) WHERE pos = 67", 67),
        ("DELETE FROM body WHERE pos = 67", 67),
        ("DELETE FROM entry", 1),
    ];
    for (change, pos) in faults {
        let directory = tempfile::tempdir().expect("a directory");
        // Enough for index entries, and a few without.
        fill(&open(directory.path()), 70);
        let connection =
            rusqlite::Connection::open(directory.path().join("data/journal.db")).expect("open");
        connection.execute_batch(change).expect("changed");
        drop(connection);
        let verification = open(directory.path()).verify().expect("readable");
        assert_eq!(
            verification.fault.map(|fault| fault.pos),
            Some(pos),
            "{change}"
        );
    }
}

#[test]
fn a_changed_body_of_the_content_store_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let journal = open(directory.path());
    let ambient = FixedAmbient::default();
    fill(&journal, 3);
    let large = "x".repeat(10_000);
    journal
        .append(&[event(&ambient, "exec.output", json!({"text": large}))])
        .expect("room");
    let page = journal.read(&Query::default()).expect("a page");
    let digest = page.events[3].data["content"].as_str().expect("a digest");
    let file = directory
        .path()
        .join("data/content")
        .join(&digest[..2])
        .join(digest);
    let mode = fs::metadata(&file).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::write(&file, b"something else").expect("written");
    let verification = journal.verify().expect("readable");
    assert_eq!(verification.fault.map(|fault| fault.pos), Some(4));
    fs::remove_file(&file).expect("removed");
    let verification = journal.verify().expect("readable");
    assert_eq!(
        (verification.fault, verification.contents_expired),
        (None, 1)
    );
    let resolved = journal.read(&Query::default().resolved()).expect("a page");
    assert_eq!(resolved.events[3].data["content"], digest);
}

#[test]
fn a_newer_journal_is_read_and_not_written() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(&open(directory.path()), 3);
    let path = directory.path().join("data/journal.db");
    let connection = rusqlite::Connection::open(&path).expect("open");
    connection
        .pragma_update(None, "user_version", 9)
        .expect("set");
    drop(connection);
    let journal = try_open(directory.path()).expect("opened");
    assert_eq!(journal.access(), Access::Newer);
    assert_eq!(
        journal
            .read(&Query::default())
            .expect("a page")
            .events
            .len(),
        3
    );
    let made = event(&FixedAmbient::default(), "log.line", json!({}));
    let refused = journal.append(&[made]).expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::JournalNewer);
    assert!(
        refused
            .to_string()
            .ends_with("has format 9, this version knows up to 3")
    );
    assert_eq!(journal.head().expect("a head").pos, 3);
}

#[test]
fn a_journal_of_the_first_format_goes_on_and_its_programs_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    // As many as make the index complete, as it always was then.
    fill(&open(directory.path()), 64);
    let old = rusqlite::Connection::open(directory.path().join("data/journal.db")).expect("open");
    old.execute_batch("ALTER TABLE entry RENAME TO event; PRAGMA user_version = 1")
        .expect("as it was");
    let mut append = old
        .prepare("INSERT INTO event VALUES (65, 0, 1, NULL, NULL, NULL, NULL, 'evt_x')")
        .expect("a statement of an older version");
    let journal = open(directory.path());
    assert_eq!(journal.access(), Access::ReadWrite);
    append.execute([]).expect_err("it knows another table");
    let made = task_event(&FixedAmbient::default(), "exec.output", "conv_a", "task_1");
    let place = journal.append(&[made]).expect("room")[0];
    assert_eq!((place.pos, place.seq), (65, 65));
    assert_eq!(journal.verify().expect("readable").fault, None);
    let format: i64 = old
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("a number");
    assert_eq!(format, 3);
}

#[test]
fn what_is_no_journal_is_corrupt() {
    let directory = tempfile::tempdir().expect("a directory");
    DataDir::open(directory.path().join("data")).expect("a data directory");
    let path = directory.path().join("data/journal.db");
    fs::write(
        &path,
        b"this is a shopping list, and a long one at that".repeat(90),
    )
    .expect("written");
    let refused = try_open(directory.path()).expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::JournalCorrupt);
    fs::remove_file(&path).expect("removed");
    let other = rusqlite::Connection::open(&path).expect("open");
    other
        .execute_batch("CREATE TABLE songs (name TEXT)")
        .expect("made");
    drop(other);
    let refused = try_open(directory.path()).expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::JournalCorrupt);
    assert!(
        refused
            .to_string()
            .ends_with("it is a database of another program")
    );
}

#[test]
fn an_empty_file_becomes_a_journal() {
    let directory = tempfile::tempdir().expect("a directory");
    DataDir::open(directory.path().join("data")).expect("a data directory");
    fs::write(directory.path().join("data/journal.db"), b"").expect("written");
    fill(&open(directory.path()), 1);
}

#[test]
fn a_journal_that_stays_locked_is_said_to_be() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = DataDir::open(directory.path().join("data")).expect("a data directory");
    let journal = SqliteJournal::open_with_patience(
        &data,
        Arc::new(FixedAmbient::default()),
        Patience::at_most(std::time::Duration::from_millis(60)),
    )
    .expect("opened");
    let holder = rusqlite::Connection::open(data.journal()).expect("open");
    holder.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let made = event(&FixedAmbient::default(), "log.line", json!({}));
    let refused = journal
        .append(std::slice::from_ref(&made))
        .expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::JournalLocked);
    assert_eq!(journal.head().expect("reading goes on").pos, 0);
    // Each of those who waited together is refused, and nothing of theirs is written later.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let refused = journal.append(std::slice::from_ref(&made));
                let refused = refused.expect_err("refused");
                assert_eq!(refused.code(), ErrorCode::JournalLocked);
            });
        }
    });
    holder.execute_batch("ROLLBACK").expect("let go");
    assert_eq!(journal.append(&[made]).expect("room")[0].pos, 1);
    assert_eq!(journal.head().expect("readable").pos, 1);
}

#[test]
fn the_data_directory_must_be_private() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    let data = DataDir::open(&path).expect("made");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(data.path()), 0o700);
    fill(&open(directory.path()), 1);
    assert_eq!(mode(&data.journal()), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).expect("set");
    let refused = DataDir::open(&path).expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::DataDirRefused);
    assert!(
        refused
            .to_string()
            .ends_with("its mode is 0750, others may enter")
    );
}

#[test]
fn a_full_disk_is_said_and_nothing_is_half_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(_mounted) = Mounted::small(directory.path()) else {
        println!("skipped: a small file system can only be mounted by root");
        return;
    };
    let journal = open(directory.path());
    let ambient = FixedAmbient::default();
    let append = |text: String| {
        let mut made = task_event(&ambient, "exec.output", "conv_a", "task_1");
        made.data = json!({"text": text});
        journal.append(&[made])
    };
    let mut kept = 0;
    let refused = loop {
        match append("x".repeat(8_000)) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 10_000, "the disk never was full");
    };
    assert_eq!(refused.code(), ErrorCode::StorageExhausted);
    assert_eq!(journal.head().expect("a head").pos, kept);
    let refused = append("y".repeat(2_000_000)).expect_err("no room for a content");
    assert_eq!(refused.code(), ErrorCode::StorageExhausted);
    let verification = journal.verify().expect("readable");
    assert_eq!((verification.events, verification.fault), (kept, None));
}

#[test]
fn a_read_only_file_system_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(&open(directory.path()), 5);
    let Some(_mounted) = Mounted::read_only(directory.path()) else {
        println!("skipped: only root can mount a directory read-only");
        return;
    };
    let journal = open(directory.path());
    assert_eq!(journal.access(), Access::ReadOnly);
    assert_eq!(
        journal
            .read(&Query::default())
            .expect("a page")
            .events
            .len(),
        5
    );
    let made = event(&FixedAmbient::default(), "log.line", json!({}));
    let refused = journal.append(&[made]).expect_err("refused");
    assert!(matches!(refused, JournalError::ReadOnly { .. }));
}
