//! The journal: events appended in batches, and pages of a long log.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::ambient::Ambient as _;
use cofferdam_core::event::{EventFilter, NewEvent, Severity, Subject};
use cofferdam_core::id::{AgentId, ConversationId, EventId, TaskId};
use cofferdam_journal::{DataDir, Journal as _, Query, SqliteJournal, SystemAmbient};
use serde_json::json;

use super::report::Absolute;
use super::told;

const EVENTS: u64 = 1_000_000;
const BATCH: u64 = 500;
const KINDS: [&str; 4] = ["exec.output", "exec.ended", "task.state", "usage.recorded"];

/// Appends a long log and asks for pages of it; `quick` a tenth of it.
pub(super) fn journal(scratch: &Path, quick: bool) -> Vec<Absolute> {
    let count = if quick { EVENTS / 10 } else { EVENTS };
    let measured = told(long(&scratch.join("log"), count));
    let part = |value: &dyn Fn(&Log) -> f64| measured.as_ref().map(value).map_err(Clone::clone);
    vec![
        Absolute::at_least(
            "journal, in batches of 500",
            "events/s",
            50_000.0,
            part(&|one| one.rate),
        ),
        Absolute::at_most(
            "slowest page of 100, any filter",
            "ms",
            10.0,
            part(&|one| one.slowest),
        ),
    ]
}

struct Log {
    rate: f64,
    slowest: f64,
}

fn long(data: &Path, count: u64) -> anyhow::Result<Log> {
    let ambient = Arc::new(SystemAmbient::new());
    let journal = SqliteJournal::open(&DataDir::open(data)?, ambient.clone())?;
    let made = |number: u64| {
        let (milliseconds, random) = ambient.id_parts();
        NewEvent {
            id: EventId::new(milliseconds, random),
            time: ambient.now(),
            kind: KINDS[(number % 13 % 4) as usize].to_owned(),
            subject: Subject {
                conversation: ConversationId::parse(&format!("conv_{}", number % 7)).ok(),
                agent: AgentId::parse(&format!("agent_{}", number % 11)).ok(),
                task: TaskId::parse(&format!("task_{}", number / 1000 % 50)).ok(),
                ..Subject::default()
            },
            causation: None,
            severity: Severity::Info,
            data: json!({
                "command_id": format!("cmd_{number}"), "stream": "stdout", "text": "a line of output\n",
            }),
            redactions: 0,
        }
    };
    let mut took = Duration::ZERO;
    let mut middle = ambient.now();
    for first in (0..count).step_by(BATCH as usize) {
        let batch: Vec<NewEvent> = (first..first + BATCH).map(made).collect();
        let begin = Instant::now();
        journal.append(&batch)?;
        took += begin.elapsed();
        if first == count / 2 {
            middle = ambient.now();
        }
    }
    let mut slowest = Duration::ZERO;
    // Every combination of filters, from the beginning, from the middle, and backwards.
    for mask in 0..64_u32 {
        let has = |bit: u32| mask & (1 << bit) != 0;
        let filter = EventFilter {
            conversation: has(0)
                .then(|| ConversationId::parse("conv_3").ok())
                .flatten(),
            agent: has(1).then(|| AgentId::parse("agent_7").ok()).flatten(),
            task: has(2).then(|| TaskId::parse("task_49").ok()).flatten(),
            event_type: match (has(3), has(4)) {
                (true, true) => Some("exec".to_owned()),
                (true, false) => Some("usage.recorded".to_owned()),
                (false, true) => Some("task.ended".to_owned()),
                (false, false) => None,
            },
            from: has(5).then_some(middle),
            ..EventFilter::default()
        };
        for query in [
            Query::of(filter.clone()),
            Query::of(filter.clone()).after(count / 2),
            Query::of(filter).backward(),
        ] {
            // The better of two, so that one interruption is not taken for the page.
            let mut best = Duration::MAX;
            for _ in 0..2 {
                let begin = Instant::now();
                journal.read(&query)?;
                best = best.min(begin.elapsed());
            }
            slowest = slowest.max(best);
        }
    }
    Ok(Log {
        rate: count as f64 / took.as_secs_f64(),
        slowest: slowest.as_secs_f64() * 1000.0,
    })
}
