//! What a stream promises: nothing lost, nothing twice, nothing held back without end.

use std::time::{Duration, Instant};

use cofferdam_journal::Journal as _;
use serde_json::json;

use crate::client::{Frames, Running, event, fill};

fn positions(frames: &mut Frames, until: u64) -> Vec<u64> {
    let mut positions = Vec::new();
    while positions.last() != Some(&until) {
        let frame = frames.named().expect("more frames");
        let pos = frame.data["pos"].as_u64().expect("an event");
        assert!(frame.id.expect("an id").ends_with(&format!(":{pos}")));
        positions.push(pos);
    }
    positions
}

#[test]
fn c103_events_come_as_they_are_written_and_resume() {
    let server = Running::start();
    fill(server.journal.as_ref(), 150);
    let mut frames = server.stream("", None);
    assert!(frames.head.contains("text/event-stream"));
    assert_eq!(positions(&mut frames, 150), (1..=150).collect::<Vec<_>>());
    fill(server.journal.as_ref(), 2);
    assert_eq!(positions(&mut frames, 152), [151, 152]);
    drop(frames);
    fill(server.journal.as_ref(), 3);
    let epoch = server.journal.head().expect("a head").epoch;
    let mut frames = server.stream("", Some(&format!("{epoch}:152")));
    assert_eq!(positions(&mut frames, 155), [153, 154, 155]);
    // The header is newer than the address from which the stream once began.
    let mut frames = server.stream(&format!("?cursor={epoch}:3"), Some(&format!("{epoch}:154")));
    assert_eq!(positions(&mut frames, 155), [155]);
}

#[test]
fn c103_cut_anywhere_a_stream_is_whole_again() {
    let server = Running::start();
    fill(server.journal.as_ref(), 400);
    let mut seen = Vec::new();
    let mut last: Option<String> = None;
    let mut cut = 1;
    while seen.len() < 400 {
        let mut frames = server.stream("", last.as_deref());
        for _ in 0..cut {
            if seen.len() == 400 {
                break;
            }
            let frame = frames.named().expect("a frame");
            seen.push(frame.data["pos"].as_u64().expect("an event"));
            last = frame.id;
        }
        cut = cut * 7 % 31 + 1;
    }
    assert_eq!(seen, (1..=400).collect::<Vec<_>>());
}

#[test]
fn a_snapshot_and_the_stream_from_there_miss_nothing() {
    let server = Running::start();
    fill(server.journal.as_ref(), 10);
    let snapshot = server.view("runtime-summary").json();
    let as_of = snapshot["meta"]["as_of"].as_str().expect("a cursor");
    fill(server.journal.as_ref(), 5);
    let mut frames = server.stream(&format!("?cursor={as_of}"), None);
    assert_eq!(positions(&mut frames, 15), [11, 12, 13, 14, 15]);
}

#[test]
fn a_quiet_stream_lives_and_moves_on() {
    let server = Running::start();
    let mut frames = server.stream("", None);
    let first = frames.next().expect("the beginning");
    assert_eq!(first.event, "");
    let beat = frames.next().expect("a heartbeat");
    assert_eq!(beat.comment.as_deref(), Some("heartbeat"));
    // Nothing passes this filter, and yet the place to resume from moves.
    fill(server.journal.as_ref(), 9);
    let mut frames = server.stream("?event_type=task", None);
    let watermark = frames.named().expect("a frame");
    assert_eq!(watermark.event, "watermark");
    assert_eq!(watermark.data["head"], 9);
    assert!(watermark.id.expect("an id").ends_with(":9"));
    server
        .journal
        .append(&[event("task.state", "task_1", json!({}))])
        .expect("room");
    let frame = frames.named().expect("a frame");
    assert_eq!(
        (frame.event.as_str(), &frame.data["pos"]),
        ("task.state", &json!(10))
    );
}

#[test]
fn c101_gap_and_reset_are_said() {
    let server = Running::start();
    fill(server.journal.as_ref(), 20);
    let epoch = server.journal.head().expect("a head").epoch;
    server.journal.retain_from(11).expect("trimmed");
    let mut frames = server.stream("", Some(&format!("{epoch}:4")));
    let gap = frames.named().expect("a frame");
    assert_eq!(
        (gap.event.as_str(), gap.data),
        ("gap", json!({"from": 5, "to": 10}))
    );
    assert_eq!(gap.id, Some(format!("{epoch}:10")));
    assert_eq!(positions(&mut frames, 21), (11..=21).collect::<Vec<_>>());
    let mut frames = server.stream("", Some("0123abcd:4"));
    let reset = frames.named().expect("a frame");
    assert_eq!(reset.event, "reset");
    assert_eq!(
        reset.data,
        json!({"epoch": epoch, "window_start": 11, "head": 21})
    );
    assert_eq!(positions(&mut frames, 21), (11..=21).collect::<Vec<_>>());
    // From the future: somebody mixed something up.
    let answer = server.view(&format!("stream?cursor={epoch}:99"));
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (409, &json!("invalid_cursor"))
    );
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a line");
    line.split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a number")
}

/// Counts the sockets that this process holds, the server's and those of its readers.
fn sockets() -> usize {
    let all = std::fs::read_dir("/proc/self/fd")
        .expect("readable")
        .flatten();
    all.filter(|entry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        target.to_string_lossy().starts_with("socket:")
    })
    .count()
}

#[test]
fn c11_a_reader_that_does_not_read_is_cut_off_and_costs_nothing() {
    // Long enough for one that reads on a busy machine.
    let server = Running::start_as(|options, _| {
        options.stall = Duration::from_secs(4);
        options.cut = Duration::from_secs(6);
    });
    let line = "x".repeat(7_500);
    for _ in 0..25 {
        let made: Vec<_> = (0..100)
            .map(|_| event("log.line", "task_1", json!({"text": line})))
            .collect();
        server.journal.append(&made).expect("room");
    }
    let before = resident_kib();
    let others = sockets();
    let mut slow: Vec<Frames> = (0..2).map(|_| server.stream("", None)).collect();
    // Another reader is not held up, and sees everything.
    let mut quick = server.stream("", None);
    assert_eq!(positions(&mut quick, 2_500).len(), 2_500);
    // Until the server has let go of them: its end of the quick one is left, and the three of ours.
    let end = Instant::now() + Duration::from_secs(100);
    while sockets() > others + 4 {
        assert!(Instant::now() < end, "they are never cut off");
        quick.next().expect("a heartbeat");
    }
    let grown = resident_kib().saturating_sub(before);
    println!("2 readers that do not read: {grown} KiB more");
    assert!(grown < 24 * 1024, "{grown} KiB more");
    for frames in &mut slow {
        let mut last = None;
        while let Some(frame) = frames.named() {
            assert_ne!(frame.data["pos"], 2_500, "everything was buffered");
            assert_ne!(frame.event, "lagged", "the connection was not cut");
            last = frame.id.or(last);
        }
        let last = last.expect("it got something");
        let mut again = server.stream("", Some(&last));
        let (_, pos) = last.split_once(':').expect("a cursor");
        let pos: u64 = pos.parse().expect("a number");
        assert_eq!(
            positions(&mut again, 2_500),
            (pos + 1..=2_500).collect::<Vec<_>>()
        );
    }
}

/// Waits, then reads a stream to its end; tells whether it ended with the word that it lagged.
fn lags_after(server: &Running, wait: Duration) -> bool {
    let mut frames = server.stream("", None);
    std::thread::sleep(wait);
    let mut last = json!(0);
    loop {
        match frames.named() {
            Some(frame) if frame.event == "lagged" => {
                assert_eq!(frame.data["read_up_to"], last);
                assert!(frames.named().is_none(), "it is the last word");
                return true;
            }
            Some(frame) if frame.data["pos"] == 2_500 => return false,
            Some(frame) => last = frame.data["pos"].clone(),
            None => panic!("the stream ended after {last} without a word"),
        }
    }
}

#[test]
fn a_reader_that_comes_back_late_is_told_that_it_lagged() {
    let server = Running::start_with(Duration::from_mins(10));
    let line = "x".repeat(7_500);
    for _ in 0..25 {
        let made: Vec<_> = (0..100)
            .map(|_| event("log.line", "task_1", json!({"text": line})))
            .collect();
        server.journal.append(&made).expect("room");
    }
    // On a busy machine it takes a while until everything in between is full.
    let waits = [500, 1_000, 2_000, 4_000, 8_000, 16_000];
    let lagged = waits
        .into_iter()
        .any(|wait| lags_after(&server, Duration::from_millis(wait)));
    assert!(lagged, "it was never too slow");
}
