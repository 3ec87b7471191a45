//! `events`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, EventFilter};
use cofferdam_core::exit;
use cofferdam_core::limits;
use cofferdam_journal::{Head, Journal, Query};
use cofferdam_visibility::{Meta, parse_time};
use jiff::Timestamp;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{reference, view};
use crate::arguments::view::EventsArguments;
use crate::context::Context;
use crate::failure::{Ending, Failure};
use crate::render::events::line;

/// How long one wait for the next event may take before an interruption is looked for.
const WAIT: Duration = Duration::from_millis(200);

/// Events, oldest first.
#[derive(Debug, Serialize)]
struct Found {
    events: Vec<Event>,
    #[serde(skip)]
    head: Head,
    #[serde(skip)]
    first_pos: u64,
    /// Up to where the log was looked at.
    #[serde(skip)]
    seen: u64,
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
        let after = page
            .events
            .first()
            .map_or(page.head.pos, |event| event.pos - 1);
        let meta = Meta::of_page(&page.head.epoch, page.first_pos, page.head.pos, after);
        view::show(context, meta, page, |page| {
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
    follow(context, journal.as_ref(), &filter, page.seen)
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

/// Reads the newest events, oldest first.
fn newest(journal: &dyn Journal, filter: &EventFilter, limit: usize) -> Result<Found, Problem> {
    let mut query = Query::of(filter.clone()).backward().resolved();
    let mut found = read(journal, &mut query, limit)?;
    found.events.reverse();
    // What came while older pages were read is for whoever follows.
    found.seen = found.head.pos;
    Ok(found)
}

/// Reads the events after a position, oldest first.
fn forward(
    journal: &dyn Journal,
    filter: &EventFilter,
    after: u64,
    limit: usize,
) -> Result<Found, Problem> {
    let mut query = Query::of(filter.clone()).after(after).resolved();
    read(journal, &mut query, limit)
}

/// Reads pages until there are enough events or no more; the head is that of the first page.
fn read(journal: &dyn Journal, query: &mut Query, limit: usize) -> Result<Found, Problem> {
    let mut events: Vec<Event> = Vec::new();
    let mut first = None;
    loop {
        let wanted = (limit - events.len()).min(limits::PAGE_EVENTS_CAP);
        query.limit = wanted.max(1);
        let page = journal.read(query).map_err(|error| error.to_problem())?;
        let next = page.next();
        let last = page.head.pos;
        let (head, window) = first.get_or_insert((page.head, page.window));
        events.extend(page.events.into_iter().take(wanted));
        match next {
            Some(next) if events.len() < limit => query.after = Some(next),
            _ => {
                return Ok(Found {
                    events,
                    head: head.clone(),
                    first_pos: window.first_pos,
                    seen: next.unwrap_or(last),
                });
            }
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
        from: time("from", arguments.from.as_deref())?,
        to: time("to", arguments.to.as_deref())?,
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

fn time(field: &'static str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    text.map(|text| parse_time(field, text))
        .transpose()
        .map_err(|error| error.to_problem())
}
