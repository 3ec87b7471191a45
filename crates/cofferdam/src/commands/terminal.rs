//! `terminal …`: terminals of a running server, and recordings with what the journal knows of them.

pub(super) mod live;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, EventFilter, event_type};
use cofferdam_core::exit;
use cofferdam_journal::{Journal, Query};
use serde_json::{Value, json};

use crate::arguments::terminal::{ExportArguments, ReplayArguments, TerminalCommand};
use crate::context::Context;
use crate::failure::Ending;

/// Leaves the other screen, and lets mouse, keys, colours and cursor be as they are in a shell.
const PLAIN_TERMINAL: &[u8] =
    b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[m\r\n";

/// Carries out `terminal …`.
pub(crate) fn terminal(context: &Context, command: &TerminalCommand) -> Ending {
    match command {
        TerminalCommand::Open(arguments) => live::open(context, arguments),
        TerminalCommand::List(arguments) => live::list(context, arguments),
        TerminalCommand::Input(arguments) => live::input(context, arguments),
        TerminalCommand::Snapshot(arguments) => live::snapshot(context, arguments),
        TerminalCommand::Resize(arguments) => live::resize(context, arguments),
        TerminalCommand::Signal(arguments) => live::signal(context, arguments),
        TerminalCommand::Reset(arguments) => live::reset(context, arguments),
        TerminalCommand::Close(arguments) => live::close(context, arguments),
        TerminalCommand::Replay(arguments) => replay(context, arguments),
        TerminalCommand::Export(arguments) => export(context, arguments),
    }
}

/// A recording in memory: at most as large as one may become.
struct Recording {
    header: Value,
    /// Seconds since the beginning, kind, and text of each event.
    events: Vec<(f64, String, String)>,
}

fn replay(context: &Context, arguments: &ReplayArguments) -> Ending {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !positive(arguments.speed) || !arguments.idle_limit.is_none_or(positive) {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            "speed and idle limit are numbers above zero",
        )
        .with_field("speed")
        .into());
    }
    let recording = read(&find(context, &arguments.recording)?)?;
    let mut output = std::io::stdout().lock();
    let began = Instant::now();
    let (mut before, mut due) = (0.0, 0.0);
    for (at, kind, text) in &recording.events {
        let pause = (at - before).max(0.0);
        before = *at;
        due += arguments.idle_limit.map_or(pause, |limit| pause.min(limit)) / arguments.speed;
        if kind != "o" {
            continue;
        }
        let due = Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        output.write_all(text.as_bytes())?;
        output.flush()?;
    }
    output.write_all(PLAIN_TERMINAL)?;
    output.flush()?;
    Ok(exit::SUCCESS)
}

fn export(context: &Context, arguments: &ExportArguments) -> Ending {
    let path = find(context, &arguments.recording)?;
    let mut recording = read(&path)?;
    let id = path.file_stem().unwrap_or_default().to_string_lossy();
    let journal = context.journal()?;
    recording.events.extend(markers(journal.as_ref(), &id)?);
    recording
        .events
        .sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", recording.header)?;
    for (at, kind, text) in &recording.events {
        writeln!(output, "{}", json!([at, kind, text]))?;
    }
    output.flush()?;
    Ok(exit::SUCCESS)
}

/// Finds a recording: a file, the id of a terminal, or its name.
fn find(context: &Context, wanted: &Path) -> Result<PathBuf, Problem> {
    let here = context.absolute(wanted)?;
    if here.is_file() {
        return Ok(here);
    }
    let kept = context.data_dir()?.join("terminals");
    let name = wanted.to_string_lossy();
    if !name.contains('/') {
        let by_id = kept.join(format!("{name}.cast"));
        if by_id.is_file() {
            return Ok(by_id);
        }
        let mut all: Vec<PathBuf> = std::fs::read_dir(&kept)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "cast"))
            .collect();
        // Ids sort by time.
        all.sort();
        let found = all.into_iter().rev().find(|path| {
            header(path).is_ok_and(|header| header["title"].as_str() == Some(name.as_ref()))
        });
        if let Some(found) = found {
            return Ok(found);
        }
    }
    Err(Problem::new(
        ErrorCode::TerminalUnknown,
        format!("there is no recording {name}"),
    )
    .with_hint(format!("recordings lie in {}", kept.display())))
}

fn unreadable(path: &Path, why: impl std::fmt::Display) -> Problem {
    Problem::new(
        ErrorCode::Io,
        format!("the recording {} cannot be read: {why}", path.display()),
    )
}

fn header(path: &Path) -> Result<Value, Problem> {
    use std::io::BufRead as _;
    let file = std::fs::File::open(path).map_err(|error| unreadable(path, error))?;
    let mut line = String::new();
    std::io::BufReader::new(file)
        .read_line(&mut line)
        .map_err(|error| unreadable(path, error))?;
    serde_json::from_str(&line).map_err(|error| unreadable(path, error))
}

fn read(path: &Path) -> Result<Recording, Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let header: Value = serde_json::from_str(first).map_err(|error| unreadable(path, error))?;
    if header["version"] != 2 {
        return Err(unreadable(path, "it is no asciicast of version 2"));
    }
    let mut events = Vec::new();
    for line in lines {
        // The last line of a recording whose plane was killed may be half a line.
        let Ok((at, kind, text)) = serde_json::from_str(line) else {
            continue;
        };
        events.push((at, kind, text));
    }
    Ok(Recording { header, events })
}

/// Gives what the journal knows of the time of a terminal: denials, and what was put back.
fn markers(journal: &dyn Journal, id: &str) -> Result<Vec<(f64, String, String)>, Problem> {
    let of_type = |kind: &str| EventFilter {
        event_type: Some(kind.to_owned()),
        ..EventFilter::default()
    };
    let started = each(journal, &of_type(event_type::TERMINAL_STARTED))?
        .into_iter()
        .find(|event| event.data["terminal_id"] == id);
    let Some(started) = started else {
        return Ok(Vec::new());
    };
    let filter = EventFilter {
        conversation: started.conversation.clone(),
        ..EventFilter::default()
    };
    let told = each(journal, &filter)?;
    Ok(told
        .iter()
        .filter(|event| event.pos > started.pos)
        .filter_map(|event| {
            let label = label(event)?;
            let seconds = event.time.duration_since(started.time).as_secs_f64();
            Some((seconds.max(0.0), "m".to_owned(), label))
        })
        .collect())
}

fn label(event: &Event) -> Option<String> {
    let word = |key: &str| event.data[key].as_str().unwrap_or_default().to_owned();
    match event.kind.as_str() {
        event_type::NET_DECIDED if event.data["verdict"] == "deny" => {
            Some(format!("denied {}:{}", word("host"), event.data["port"]))
        }
        event_type::POLICY_DENIED => Some(format!("denied {}", word("operation"))),
        event_type::FILE_UNDONE => Some(format!("put back {}", word("path"))),
        _ => None,
    }
}

fn each(journal: &dyn Journal, filter: &EventFilter) -> Result<Vec<Event>, Problem> {
    let mut all = Vec::new();
    let mut after = 0;
    loop {
        let query = Query::of(filter.clone()).after(after).limit(1000);
        let page = journal.read(&query).map_err(|error| error.to_problem())?;
        let next = page.next();
        all.extend(page.events);
        match next {
            Some(pos) if page.more => after = pos,
            _ => return Ok(all),
        }
    }
}
