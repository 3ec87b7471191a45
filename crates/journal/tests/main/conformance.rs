//! What every journal promises, shown on each.

use std::time::{Duration, Instant};

use cofferdam_core::ambient::Ambient;
use cofferdam_core::event::{EventFilter, NewEvent};
use cofferdam_core::id::{AgentId, ConversationId, TaskId, ThreadId};
use cofferdam_core::spec::Digest;
use cofferdam_journal::{Journal, MemoryJournal, Query, export};
use serde_json::json;

use crate::support::{event, on_both, open, task_event};

/// Appends events in an order that mixes conversations, agents, tasks, types and times.
fn fill(journal: &dyn Journal, ambient: &dyn Ambient, events: usize) {
    let kinds = [
        "exec.output",
        "exec.ended",
        "task.state",
        "verifier.ended",
        "strange.new_type",
    ];
    let mut random = 7_u64;
    let mut next = move |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % bound
    };
    let made: Vec<NewEvent> = (0..events)
        .map(|number| {
            let mut made = event(ambient, kinds[next(5) as usize], json!({"number": number}));
            if next(8) > 0 {
                let id = format!("conv_{}", next(3));
                made.subject.conversation = Some(ConversationId::parse(&id).expect("an id"));
                let id = format!("agent_{}", next(4));
                made.subject.agent = Some(AgentId::parse(&id).expect("an id"));
            }
            if next(3) > 0 {
                let id = format!("task_{}", next(5));
                made.subject.task = Some(TaskId::parse(&id).expect("an id"));
            }
            if next(4) == 0 {
                let id = format!("thread_{}", next(2));
                made.subject.thread = Some(ThreadId::parse(&id).expect("an id"));
            }
            if next(10) == 0 {
                // A clock that is wrong now and then.
                made.time = made
                    .time
                    .checked_add(jiff::SignedDuration::from_secs(next(400) as i64 - 200))
                    .expect("a time");
            }
            made
        })
        .collect();
    // Most events get index entries by this, the last 48 of 3 000 have none yet.
    for batch in made.chunks(41) {
        journal.append(batch).expect("room");
    }
}

fn filters() -> Vec<EventFilter> {
    let mut filters = vec![EventFilter::default()];
    let kinds = [
        None,
        Some("exec"),
        Some("exec.ended"),
        Some("strange"),
        Some("exe"),
        Some("never.seen"),
    ];
    for kind in kinds {
        for mask in 0..32_u32 {
            let has = |bit: u32| mask & (1 << bit) != 0;
            let at = |second| jiff::Timestamp::from_second(second).expect("a time");
            filters.push(EventFilter {
                conversation: has(0).then(|| ConversationId::parse("conv_1").expect("an id")),
                agent: has(1).then(|| AgentId::parse("agent_2").expect("an id")),
                task: has(2).then(|| TaskId::parse("task_3").expect("an id")),
                thread: has(3).then(|| ThreadId::parse("thread_0").expect("an id")),
                event_type: kind.map(str::to_owned),
                from: has(4).then(|| at(2)),
                to: has(4).then(|| at(7)),
            });
        }
    }
    filters
}

fn all_pages(journal: &dyn Journal, mut query: Query) -> Vec<u64> {
    let mut positions = Vec::new();
    loop {
        let page = journal.read(&query).expect("a page");
        positions.extend(page.events.iter().map(|event| event.pos));
        match page.next() {
            Some(pos) => query.after = Some(pos),
            None => return positions,
        }
    }
}

#[test]
fn c100_pages_of_any_filter_are_the_whole_list() {
    on_both(|journal, ambient| {
        fill(journal, ambient, 3_000);
        let everything = {
            let mut events = Vec::new();
            let mut query = Query::default().limit(1_000);
            loop {
                let page = journal.read(&query).expect("a page");
                events.extend(page.events.iter().cloned());
                match page.next() {
                    Some(pos) => query.after = Some(pos),
                    None => break events,
                }
            }
        };
        assert_eq!(everything.len(), 3_000);
        let mut matched = 0;
        for filter in filters() {
            let truth: Vec<u64> = everything
                .iter()
                .filter(|event| filter.accepts(event))
                .map(|event| event.pos)
                .collect();
            matched += usize::from(!truth.is_empty());
            for limit in [7, 100] {
                let query = Query::of(filter.clone()).limit(limit);
                assert_eq!(all_pages(journal, query.clone()), truth, "{filter:?}");
                let mut backward = all_pages(journal, query.backward());
                backward.reverse();
                assert_eq!(backward, truth, "{filter:?}");
            }
        }
        assert!(matched > 60, "{matched} filters matched something");
    });
}

#[test]
fn c99_positions_and_numbers_have_no_hole() {
    on_both(|journal, ambient| {
        let places = journal
            .append(&[
                task_event(ambient, "task.created", "conv_a", "task_1"),
                task_event(ambient, "task.created", "conv_b", "task_2"),
                event(ambient, "log.line", json!({})),
                task_event(ambient, "task.ended", "conv_a", "task_1"),
            ])
            .expect("room");
        let places: Vec<(u64, u64)> = places.iter().map(|place| (place.pos, place.seq)).collect();
        assert_eq!(places, [(1, 1), (2, 1), (3, 0), (4, 2)]);
        let again = journal
            .append(&[task_event(ambient, "task.state", "conv_b", "task_2")])
            .expect("room");
        assert_eq!((again[0].pos, again[0].seq), (5, 2));
        let head = journal.head().expect("a head");
        let last = journal.get(5).expect("readable").expect("there");
        assert_eq!((head.pos, &head.hash), (5, &last.hash));
        let before = journal.get(4).expect("readable").expect("there");
        assert_eq!(last.prev_hash, before.hash);
        assert_eq!(journal.get(6).expect("readable"), None);
        assert_eq!(journal.get(0).expect("readable"), None);
        assert_eq!(journal.find(&last.id).expect("readable"), Some(last));
        assert_eq!(journal.append(&[]).expect("nothing"), []);
    });
}

#[test]
fn c106_the_chain_covers_the_stored_bytes() {
    on_both(|journal, ambient| {
        fill(journal, ambient, 50);
        let verification = journal.verify().expect("readable");
        assert_eq!(verification.fault, None);
        assert_eq!(verification.events, 50);
        assert_eq!(verification.head, journal.head().expect("a head"));
        let event = journal.get(7).expect("readable").expect("there");
        let stored = journal.stored(7).expect("readable").expect("there");
        let mut covered = Vec::new();
        for pair in event.prev_hash.as_bytes().chunks(2) {
            let digits = std::str::from_utf8(pair).expect("digits");
            covered.push(u8::from_str_radix(digits, 16).expect("a number"));
        }
        covered.extend_from_slice(&stored);
        assert_eq!(Digest::sha256(&covered).as_str(), event.hash);
    });
}

#[test]
fn a_large_body_moves_to_the_content_store() {
    on_both(|journal, ambient| {
        let small = "x".repeat(8_000);
        let large = "y".repeat(9_000);
        journal
            .append(&[
                event(ambient, "exec.output", json!({"text": small})),
                event(ambient, "exec.output", json!({"text": large})),
            ])
            .expect("room");
        let page = journal.read(&Query::default()).expect("a page");
        assert_eq!(page.events[0].data, json!({"text": small}));
        let reference = &page.events[1].data;
        let digest = Digest(reference["content"].as_str().expect("a digest").to_owned());
        assert_eq!(
            reference,
            &json!({"content": digest, "bytes": large.len() + 11})
        );
        let bytes = journal.content(&digest, 0, 1 << 20).expect("readable");
        assert_eq!(
            bytes,
            Some(format!("{{\"text\":\"{large}\"}}").into_bytes())
        );
        let resolved = journal.read(&Query::default().resolved()).expect("a page");
        assert_eq!(resolved.events[1].data, json!({"text": large}));
        assert_eq!(journal.verify().expect("readable").contents, 1);
    });
}

#[test]
fn content_reads_by_offset_and_is_kept_once() {
    on_both(|journal, _| {
        let mut sink = journal.content_sink().expect("a sink");
        sink.write_all(b"hello ").expect("room");
        sink.write_all(b"\xff world").expect("room");
        let reference = sink.finish().expect("kept");
        assert_eq!(reference.bytes, 13);
        assert_eq!(reference.content, Digest::of(b"hello \xff world"));
        let again = journal.put_content(b"hello \xff world").expect("kept");
        assert_eq!(again, reference);
        let read = |offset, limit| {
            journal
                .content(&reference.content, offset, limit)
                .expect("readable")
        };
        assert_eq!(read(6, 3).as_deref(), Some(&b"\xff w"[..]));
        assert_eq!(read(100, 3).as_deref(), Some(&b""[..]));
        let absent = Digest::of(b"nobody kept this");
        assert_eq!(journal.content(&absent, 0, 10).expect("readable"), None);
        let strange = Digest("../../journal.db".to_owned());
        assert_eq!(journal.content(&strange, 0, 10).expect("readable"), None);
    });
}

#[test]
fn c110_retention_leaves_an_anchor_and_says_so() {
    on_both(|journal, ambient| {
        for number in 0..10 {
            let mut made = task_event(ambient, "exec.output", "conv_a", "task_1");
            made.data = json!({"text": format!("{number}").repeat(9_000)});
            journal.append(&[made]).expect("room");
        }
        let last_gone = journal.get(6).expect("readable").expect("there");
        let retained = journal.retain_from(7).expect("trimmed");
        assert_eq!((retained.removed, retained.contents_removed), (6, 6));
        assert_eq!(retained.window.first_pos, 7);
        assert_eq!(retained.window.anchor_hash, last_gone.hash);
        assert_eq!(journal.window().expect("a window"), retained.window);
        let page = journal.read(&Query::default()).expect("a page");
        let positions: Vec<u64> = page.events.iter().map(|event| event.pos).collect();
        assert_eq!(positions, [7, 8, 9, 10, 11]);
        assert_eq!(page.events[4].kind, "log.retained");
        assert_eq!(page.events[4].data["anchor_hash"], last_gone.hash);
        let verification = journal.verify().expect("readable");
        assert_eq!((verification.events, verification.fault), (5, None));
        assert_eq!(journal.get(6).expect("readable"), None);
        let next = journal
            .append(&[task_event(ambient, "task.ended", "conv_a", "task_1")])
            .expect("room");
        assert_eq!((next[0].pos, next[0].seq), (12, 11));
        // Everything may go; the log is never empty, and goes on.
        journal.retain_from(1_000).expect("trimmed");
        assert_eq!(journal.verify().expect("readable").fault, None);
        let next = journal
            .append(&[task_event(ambient, "task.ended", "conv_a", "task_1")])
            .expect("room");
        assert_eq!((next[0].pos, next[0].seq), (14, 12));
        assert_eq!(journal.retain_from(3).expect("nothing").removed, 0);
    });
}

#[test]
fn an_export_comes_in_elsewhere_as_it_was() {
    on_both(|journal, ambient| {
        fill(journal, ambient, 200);
        let mut made = task_event(ambient, "exec.ended", "conv_1", "task_1");
        made.data = json!({"stdout": "é".repeat(9_000)});
        journal.append(&[made]).expect("room");
        journal.retain_from(20).expect("trimmed");
        let mut lines = Vec::new();
        let head = export(journal, &mut lines).expect("written");
        let directory = tempfile::tempdir().expect("a directory");
        let others: [Box<dyn Journal>; 2] = [
            Box::new(MemoryJournal::new(std::sync::Arc::new(
                cofferdam_core::ambient::FixedAmbient::default(),
            ))),
            Box::new(open(directory.path())),
        ];
        for other in others {
            let imported = other.import(&mut lines.as_slice()).expect("taken");
            assert_eq!(imported, head);
            assert_eq!(other.verify().expect("readable").fault, None);
            assert_eq!(other.window().ok(), journal.window().ok());
            let whole = Query::default().limit(1_000).resolved();
            assert_eq!(other.read(&whole).ok(), journal.read(&whole).ok());
            let mut again = Vec::new();
            export(other.as_ref(), &mut again).expect("written");
            assert!(lines == again, "the second export differs");
            let newest = journal.read(&Query::default().backward()).expect("a page");
            let newest = newest
                .events
                .iter()
                .find(|event| event.seq > 0)
                .expect("one");
            let mut made = event(ambient, "task.state", json!({}));
            made.subject = newest.subject();
            let place = other.append(&[made]).expect("room")[0];
            assert_eq!(place.seq, newest.seq + 1);
            let refused = other.import(&mut lines.as_slice()).expect_err("not empty");
            assert_eq!(refused.code().as_str(), "invalid_request");
        }
    });
}

#[test]
fn a_changed_line_is_not_imported() {
    on_both(|journal, ambient| {
        fill(journal, ambient, 20);
        let mut lines = Vec::new();
        export(journal, &mut lines).expect("written");
        let text = String::from_utf8(lines).expect("text");
        let changed = text.replacen("\"number\":11", "\"number\":12", 1);
        assert_ne!(text, changed);
        let directory = tempfile::tempdir().expect("a directory");
        let other = open(directory.path());
        let refused = other.import(&mut changed.as_bytes()).expect_err("refused");
        assert_eq!(
            refused.to_string(),
            "line 12 of the import is wrong: the event is not what its hash says"
        );
        assert_eq!(other.head().expect("a head").pos, 0);
    });
}

#[test]
fn c109_who_waits_is_woken_by_an_append() {
    on_both(|journal, ambient| {
        let begun = Instant::now();
        let head = journal
            .wait_beyond(0, Duration::from_millis(30))
            .expect("a head");
        assert_eq!(head.pos, 0);
        assert!(begun.elapsed() >= Duration::from_millis(30));
        let made = event(ambient, "log.line", json!({}));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| journal.wait_beyond(0, Duration::from_secs(20)));
            journal.append(&[made]).expect("room");
            assert_eq!(waiter.join().expect("no panic").expect("a head").pos, 1);
        });
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
}
