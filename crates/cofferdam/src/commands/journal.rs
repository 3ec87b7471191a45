//! `journal verify` and `journal head`.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_journal::{Head, Journal};
use serde::Serialize;

use crate::arguments::view::JournalCommand;
use crate::context::Context;
use crate::failure::Ending;
use crate::render::{GOOD, count, paint};

/// A head as `journal head` prints it.
#[derive(Debug, Serialize)]
struct HeadLine<'a> {
    head: &'a Head,
    /// What `journal verify --expect` takes.
    text: String,
}

/// Carries out `journal …`.
pub(crate) fn journal(context: &Context, command: JournalCommand) -> Ending {
    let journal = context.journal()?;
    match command {
        JournalCommand::Head => {
            let head = journal.head().map_err(|error| error.to_problem())?;
            let line = HeadLine {
                text: format!("{}:{}", head.pos, head.hash),
                head: &head,
            };
            context.output.result(&line, |line| line.text.clone())?;
        }
        JournalCommand::Verify { expect } => {
            let found = journal.verify().map_err(|error| error.to_problem())?;
            if let Some(fault) = &found.fault {
                return Err(Problem::new(
                    ErrorCode::JournalCorrupt,
                    format!(
                        "the journal does not hold at position {}: {}",
                        fault.pos, fault.what
                    ),
                )
                .with_hint(format!(
                    "{} before it hold; what is after it proves nothing",
                    count(found.events as usize, "event")
                ))
                .into());
            }
            if let Some(expect) = expect {
                compare(journal.as_ref(), &expect)?;
            }
            context.output.result(&found, |found| {
                format!(
                    "{}: {} from {} to {}, {} in the content store{}",
                    paint(GOOD, "good"),
                    count(found.events as usize, "event"),
                    found.first_pos,
                    found.head.pos,
                    count(found.contents as usize, "body").replace("bodys", "bodies"),
                    if found.contents_expired == 0 {
                        String::new()
                    } else {
                        format!(", {} expired", found.contents_expired)
                    }
                )
            })?;
        }
    }
    Ok(exit::SUCCESS)
}

/// Holds a head that was noted earlier against the log.
fn compare(journal: &dyn Journal, expect: &str) -> Result<(), Problem> {
    let wrong = || {
        Problem::new(
            ErrorCode::InvalidRequest,
            format!("{expect:?} is no head, POS:HASH"),
        )
        .with_field("expect")
        .with_hint("`cofferdam journal head` prints one")
    };
    let (pos, hash) = expect.trim().split_once(':').ok_or_else(wrong)?;
    let pos: u64 = pos.parse().map_err(|_| wrong())?;
    let event = journal.get(pos).map_err(|error| error.to_problem())?;
    match event {
        Some(event) if event.hash == hash => Ok(()),
        Some(_) => Err(Problem::new(
            ErrorCode::JournalCorrupt,
            format!(
                "the event at position {pos} is another one than was noted: the log was made anew"
            ),
        )),
        None if pos == 0 => Ok(()),
        None => Err(Problem::new(
            ErrorCode::JournalCorrupt,
            format!("there is no event at position {pos}: the log was cut or made anew"),
        )),
    }
}
