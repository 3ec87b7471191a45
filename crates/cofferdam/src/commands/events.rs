//! `events`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, EventFilter};
use cofferdam_core::exit;
use cofferdam_core::limits;
use cofferdam_journal::{Journal, Query};
use jiff::Timestamp;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::reference;
use crate::arguments::view::EventsArguments;
use crate::context::Context;
use crate::failure::{Ending, Failure};
use crate::render::events::line;

/// How long one wait for the next event may take before an interruption is looked for.
const WAIT: Duration = Duration::from_millis(200);

/// Events with where the journal stood.
#[derive(Debug, Serialize)]
struct Events {
    events: Vec<Event>,
    head: cofferdam_journal::Head,
}

/// Carries out `events`.
pub(crate) fn events(context: &Context, arguments: &EventsArguments) -> Ending {
    let journal = context.journal()?;
    let filter = filter(journal.as_ref(), arguments)?;
    let page = match arguments.after {
        Some(after) => forward(journal.as_ref(), &filter, after, arguments.limit)?,
        None => newest(journal.as_ref(), &filter, arguments.limit)?,
    };
    if !arguments.follow {
        context.output.result(&page, |page| {
            if page.events.is_empty() {
                return "no events".to_owned();
            }
            page.events.iter().map(line).collect::<Vec<_>>().join("\n")
        })?;
        return Ok(exit::SUCCESS);
    }
    for event in &page.events {
        show(context, event)?;
    }
    follow(context, journal.as_ref(), &filter, page.head.pos)
}

/// Shows what comes, until somebody interrupts.
fn follow(context: &Context, journal: &dyn Journal, filter: &EventFilter, mut pos: u64) -> Ending {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| {
            Problem::new(ErrorCode::Io, format!("signals cannot be watched: {error}"))
        })?;
    }
    while !stop.load(Ordering::Relaxed) {
        let head = journal
            .wait_beyond(pos, WAIT)
            .map_err(|error| error.to_problem())?;
        while pos < head.pos {
            let query = Query::of(filter.clone())
                .after(pos)
                .limit(limits::PAGE_EVENTS_CAP)
                .resolved();
            let page = journal.read(&query).map_err(|error| error.to_problem())?;
            for event in &page.events {
                show(context, event)?;
            }
            // Past everything that the filter passed over, when nothing follows.
            pos = page.next().unwrap_or(page.head.pos);
        }
    }
    Ok(exit::SUCCESS)
}

fn show(context: &Context, event: &Event) -> Result<(), Failure> {
    if context.output.is_json() {
        context.output.line(event)
    } else {
        context.output.text(&line(event))
    }
}

fn newest(journal: &dyn Journal, filter: &EventFilter, limit: usize) -> Result<Events, Problem> {
    let mut events = Vec::new();
    let mut query = Query::of(filter.clone()).backward().resolved();
    loop {
        query.limit = (limit - events.len()).min(limits::PAGE_EVENTS_CAP);
        if query.limit == 0 {
            let head = journal.head().map_err(|error| error.to_problem())?;
            events.reverse();
            return Ok(Events { events, head });
        }
        let page = journal.read(&query).map_err(|error| error.to_problem())?;
        query.after = page.next();
        let (more, head) = (page.more, page.head.clone());
        events.extend(page.events);
        if !more {
            events.reverse();
            return Ok(Events { events, head });
        }
    }
}

fn forward(
    journal: &dyn Journal,
    filter: &EventFilter,
    after: u64,
    limit: usize,
) -> Result<Events, Problem> {
    let mut events: Vec<Event> = Vec::new();
    let mut after = after;
    loop {
        let wanted = (limit - events.len()).min(limits::PAGE_EVENTS_CAP);
        let query = Query::of(filter.clone())
            .after(after)
            .limit(wanted.max(1))
            .resolved();
        let page = journal.read(&query).map_err(|error| error.to_problem())?;
        let next = page.next();
        let head = page.head.clone();
        events.extend(page.events.into_iter().take(wanted));
        match next {
            Some(next) if events.len() < limit => after = next,
            _ => return Ok(Events { events, head }),
        }
    }
}

fn filter(journal: &dyn Journal, arguments: &EventsArguments) -> Result<EventFilter, Problem> {
    Ok(EventFilter {
        conversation: id(arguments.conversation.as_deref(), "conversation")?,
        agent: id(arguments.agent.as_deref(), "agent")?,
        thread: id(arguments.thread.as_deref(), "thread")?,
        task: arguments
            .task
            .as_deref()
            .map(|text| reference::task(journal, text))
            .transpose()?,
        event_type: arguments.event_type.clone(),
        from: time(arguments.from.as_deref(), "from")?,
        to: time(arguments.to.as_deref(), "to")?,
    })
}

fn id<Id: std::str::FromStr>(text: Option<&str>, field: &str) -> Result<Option<Id>, Problem>
where
    Id::Err: std::fmt::Display,
{
    text.map(|text| {
        text.parse().map_err(|error: Id::Err| {
            Problem::new(ErrorCode::InvalidRequest, error.to_string()).with_field(field)
        })
    })
    .transpose()
}

/// Reads a time of RFC 3339.
fn time(text: Option<&str>, field: &str) -> Result<Option<Timestamp>, Problem> {
    text.map(|text| {
        text.parse().map_err(|_| {
            Problem::new(
                ErrorCode::InvalidTime,
                format!("{text:?} is no time of RFC 3339"),
            )
            .with_field(field)
            .with_hint("write it like 2026-01-31T12:00:00Z")
        })
    })
    .transpose()
}
