//! Several processes on one journal, and what is left when one of them is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_core::ambient::Ambient;
use cofferdam_journal::{DataDir, Journal, Lease, Query, SystemAmbient, dead_leases};

use crate::support::{Writer, open, task_event};

/// Not a test by itself: what the processes of the other tests do. They start this binary again with
/// a directory in the environment.
#[test]
fn helper_writer() {
    let Some((directory, conversation, events)) = Writer::told() else {
        return;
    };
    let ambient = SystemAmbient::new();
    let data = DataDir::open(directory.join("data")).expect("a data directory");
    let journal = open(&directory);
    let _lease = Lease::take(&data, &ambient, 0).expect("a lease");
    let mut made = task_event(&ambient, "exec.output", &conversation, "task_1");
    for number in 0..events {
        let (milliseconds, random) = ambient.id_parts();
        made.id = cofferdam_core::id::EventId::new(milliseconds, random);
        made.data = serde_json::json!({"text": "x".repeat((number % 40) as usize * 300)});
        journal.append(&[made.clone(), made.clone()]).expect("room");
    }
}

fn check_numbers(directory: &Path) -> u64 {
    let journal = open(directory);
    let verification = journal.verify().expect("readable");
    assert_eq!(verification.fault, None);
    assert_eq!(verification.contents_expired, 0);
    assert_eq!(verification.events, verification.head.pos);
    verification.events
}

#[test]
fn c99_twenty_processes_append_at_once_without_a_hole() {
    let directory = tempfile::tempdir().expect("a directory");
    let writers: Vec<Writer> = (0..20)
        .map(|number| Writer::start(directory.path(), &format!("conv_{number}"), 10))
        .collect();
    for writer in writers {
        assert!(writer.wait(), "a writer failed");
    }
    // Each wrote ten times two; verify shows that positions and numbers are contiguous.
    assert_eq!(check_numbers(directory.path()), 400);
}

#[test]
fn threads_append_at_once_without_a_hole() {
    let directory = tempfile::tempdir().expect("a directory");
    let journal = open(directory.path());
    std::thread::scope(|scope| {
        for number in 0..20 {
            let journal = &journal;
            scope.spawn(move || {
                let ambient = SystemAmbient::new();
                let conversation = format!("conv_{}", number % 3);
                for turn in 0..20 {
                    let event = || task_event(&ambient, "task.state", &conversation, "task_1");
                    let made: Vec<_> = (0..=turn % 3).map(|_| event()).collect();
                    let places = journal.append(&made).expect("room");
                    assert_eq!(places.len(), made.len());
                    // Whoever wrote them, each learns where its own went.
                    for (place, made) in places.iter().zip(&made) {
                        let found = journal.get(place.pos).expect("readable").expect("there");
                        assert_eq!((&found.id, found.seq), (&made.id, place.seq));
                    }
                }
            });
        }
    });
    assert_eq!(check_numbers(directory.path()), 20 * (7 + 2 * 7 + 3 * 6));
}

#[test]
fn a_writer_killed_at_any_moment_leaves_a_log_that_verifies() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = DataDir::open(directory.path().join("data")).expect("a data directory");
    let mut events = 0;
    let mut written = 0;
    let mut buried = 0;
    for round in 0..25_u64 {
        let writer = Writer::start(directory.path(), "conv_a", 1_000_000);
        // Every writer has begun before it is killed, or died while it began: both must be survived.
        std::thread::sleep(Duration::from_micros(3_000 + round * round * 97 % 40_000));
        writer.kill();
        let now = check_numbers(directory.path());
        assert!(now >= events, "events vanished");
        written += u64::from(now > events);
        events = now;
        for lease in dead_leases(&data).expect("readable") {
            lease.bury().expect("removed");
            buried += 1;
        }
        assert!(dead_leases(&data).expect("readable").is_empty());
    }
    assert!(written > 5, "only {written} of 25 writers came to write");
    assert!(buried >= written, "a killed writer left no lease");
    // Numbers go on where they were.
    let last = open(directory.path())
        .read(&Query::default().backward().limit(1))
        .expect("a page");
    let journal = open(directory.path());
    let made = task_event(&SystemAmbient::new(), "task.state", "conv_a", "task_1");
    let place = journal.append(&[made]).expect("room")[0];
    assert_eq!(place.pos, last.events[0].pos + 1);
    assert_eq!(place.seq, last.events[0].seq + 1);
}

#[test]
fn who_waits_sees_what_another_process_writes() {
    let directory = tempfile::tempdir().expect("a directory");
    let journal = open(directory.path());
    let writer = Writer::start(directory.path(), "conv_a", 1);
    let begun = Instant::now();
    let head = journal
        .wait_beyond(1, Duration::from_secs(30))
        .expect("a head");
    assert_eq!(head.pos, 2);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(writer.wait());
}
