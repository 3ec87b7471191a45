//! The figures that the design holds. Debug builds are slow: there they are only printed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::ambient::{Ambient, FixedAmbient};
use cofferdam_core::event::{EventFilter, NewEvent};
use cofferdam_core::id::{AgentId, ConversationId, TaskId};
use cofferdam_journal::{DataDir, Journal, Query, SqliteJournal, SystemAmbient};
use serde_json::json;

use crate::support::{event, open, task_event};

fn output(ambient: &dyn Ambient, number: u64) -> NewEvent {
    let kinds = ["exec.output", "exec.ended", "task.state", "usage.recorded"];
    let mut made = event(
        ambient,
        kinds[(number % 13 % 4) as usize],
        json!({"command_id": format!("cmd_{number}"), "stream": "stdout", "text": "a line of output\n"}),
    );
    let subject = &mut made.subject;
    subject.conversation = ConversationId::parse(&format!("conv_{}", number % 7)).ok();
    subject.agent = AgentId::parse(&format!("agent_{}", number % 11)).ok();
    subject.task = TaskId::parse(&format!("task_{}", number / 1_000 % 50)).ok();
    made
}

#[expect(
    clippy::print_stdout,
    reason = "the figures are for whoever runs the tests"
)]
fn hold(what: &str, measured: Duration, bar: Duration) {
    println!("{what}: {measured:?}, bar {bar:?}");
    if !cfg!(debug_assertions) {
        assert!(measured <= bar, "{what}: {measured:?} is more than {bar:?}");
    }
}

#[test]
fn e13_a_page_of_a_long_log_is_quick_with_any_filter() {
    let events: u64 = if cfg!(debug_assertions) {
        20_000
    } else {
        1_000_000
    };
    let directory = tempfile::tempdir().expect("a directory");
    let journal = open(directory.path());
    let ambient = FixedAmbient::default();
    let mut took = Duration::ZERO;
    for first in (0..events).step_by(500) {
        let batch: Vec<NewEvent> = (first..first + 500)
            .map(|number| output(&ambient, number))
            .collect();
        let begun = Instant::now();
        journal.append(&batch).expect("room");
        took += begun.elapsed();
    }
    println!(
        "{events} events in batches of 500: {} a second",
        events * 1_000 / (took.as_millis() as u64).max(1)
    );
    hold(
        "1000 events appended",
        took * 1_000 / events as u32,
        Duration::from_millis(20),
    );
    let at = |millisecond: u64| jiff::Timestamp::from_millisecond(millisecond as i64).ok();
    let mut slowest = Duration::ZERO;
    for mask in 0..64_u32 {
        let has = |bit: u32| mask & (1 << bit) != 0;
        let filter = EventFilter {
            conversation: has(0).then(|| ConversationId::parse("conv_3").expect("an id")),
            agent: has(1).then(|| AgentId::parse("agent_7").expect("an id")),
            task: has(2).then(|| TaskId::parse("task_49").expect("an id")),
            event_type: match (has(3), has(4)) {
                (true, true) => Some("exec".to_owned()),
                (true, false) => Some("usage.recorded".to_owned()),
                (false, true) => Some("task.ended".to_owned()),
                (false, false) => None,
            },
            from: if has(5) { at(events) } else { None },
            to: if has(5) {
                at(events + events / 2)
            } else {
                None
            },
            ..EventFilter::default()
        };
        for query in [
            Query::of(filter.clone()),
            Query::of(filter.clone()).after(events / 2),
            Query::of(filter.clone()).backward(),
        ] {
            let begun = Instant::now();
            let page = journal.read(&query).expect("a page");
            let took = begun.elapsed();
            if took > slowest {
                slowest = took;
                println!("{took:?} for {} events of {query:?}", page.events.len());
            }
        }
    }
    hold("slowest page", slowest, Duration::from_millis(10));
}

#[test]
fn a_short_run_pays_little_for_the_journal() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(open(directory.path()));
    let data = DataDir::open(directory.path().join("data")).expect("a data directory");
    let ambient = Arc::new(SystemAmbient::new());
    let mut runs: Vec<Duration> = (0..200)
        .map(|number| {
            let conversation = format!("conv_{number}");
            let made: Vec<NewEvent> = (0..3)
                .map(|_| task_event(ambient.as_ref(), "exec.intended", &conversation, "task_1"))
                .collect();
            let begun = Instant::now();
            let journal = SqliteJournal::open(&data, ambient.clone()).expect("a journal");
            journal.append(&made).expect("room");
            journal.append(&made).expect("room");
            drop(journal);
            begun.elapsed()
        })
        .collect();
    runs.sort_unstable();
    println!(
        "median {:?}, p95 {:?}, worst {:?}",
        runs[100], runs[190], runs[199]
    );
    hold(
        "open, two appends, close (median)",
        runs[100],
        Duration::from_micros(1_500),
    );
}

#[test]
fn intent_and_outcome_cost_little() {
    let directory = tempfile::tempdir().expect("a directory");
    let journal = open(directory.path());
    let ambient = SystemAmbient::new();
    let mut pairs: Vec<Duration> = (0..3_000)
        .map(|_| {
            let mut made = event(&ambient, "exec.intended", json!({"argv": "x".repeat(300)}));
            let begun = Instant::now();
            journal.append(std::slice::from_ref(&made)).expect("room");
            made.kind = "exec.ended".to_owned();
            made.data = json!({"output": "x".repeat(900)});
            journal.append(&[made]).expect("room");
            begun.elapsed()
        })
        .collect();
    pairs.sort_unstable();
    println!(
        "median {:?}, p95 {:?}, worst {:?}",
        pairs[1_500], pairs[2_850], pairs[2_999]
    );
    hold(
        "an intent and an outcome (median)",
        pairs[1_500],
        Duration::from_micros(200),
    );
}
