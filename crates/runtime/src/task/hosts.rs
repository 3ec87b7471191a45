//! The hosts that a task reached, as a piece of evidence of their own.

use std::collections::BTreeMap;

use cofferdam_core::error::Problem;
use cofferdam_core::event::{Event, EventFilter, event_type};
use cofferdam_core::limits;
use cofferdam_journal::Query;
use serde_json::{Value, json};

use super::course::Course;

/// Hosts that are named in the sentence.
const NAMED: usize = 8;

/// What was reached at one port of one host.
#[derive(Debug, Default)]
struct Reached {
    times: u64,
    commands: Vec<String>,
    /// The decision that came first.
    pos: u64,
}

/// Keeps which hosts were reached, where any was: the connections that were let through, by host and
/// port, with the commands of which that is known.
pub(crate) fn keep_hosts(course: &mut Course<'_>) -> Result<(), Problem> {
    let mut hosts: BTreeMap<(String, u64), Reached> = BTreeMap::new();
    let filter = EventFilter {
        task: Some(course.task.clone()),
        event_type: Some(event_type::NET_DECIDED.to_owned()),
        ..EventFilter::default()
    };
    let mut query = Query::of(filter).limit(limits::PAGE_EVENTS_CAP).resolved();
    loop {
        let journal = course.runtime.journal();
        let page = journal.read(&query).map_err(|error| error.to_problem())?;
        page.events.iter().for_each(|event| take(&mut hosts, event));
        match page.next() {
            Some(pos) => query.after = Some(pos),
            None => break,
        }
    }
    if hosts.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = hosts
        .keys()
        .take(NAMED)
        .map(|(host, port)| format!("{host}:{port}"))
        .collect();
    let more = hosts.len().saturating_sub(names.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let summary = format!("reached {}{more}", names.join(", "));
    let shown = hosts.values().map(|one| one.pos).min();
    let list: Vec<Value> = hosts
        .into_iter()
        .map(|((host, port), one)| {
            json!({"host": host, "port": port, "times": one.times, "commands": one.commands})
        })
        .collect();
    course.keep("hosts", summary, None, shown, json!({"hosts": list}));
    Ok(())
}

fn take(hosts: &mut BTreeMap<(String, u64), Reached>, event: &Event) {
    let data = &event.data;
    let verdict = data.get("verdict").and_then(Value::as_str);
    if !matches!(verdict, Some("allow" | "allowed")) {
        return;
    }
    let host = data.get("host").and_then(Value::as_str);
    let port = data.get("port").and_then(Value::as_u64);
    let (Some(host), Some(port)) = (host, port) else {
        return;
    };
    let one = hosts.entry((host.to_owned(), port)).or_default();
    one.times += 1;
    if one.times == 1 {
        one.pos = event.pos;
    }
    if let Some(command) = data.get("command_id").and_then(Value::as_str)
        && !one.commands.iter().any(|known| known == command)
    {
        one.commands.push(command.to_owned());
    }
}
