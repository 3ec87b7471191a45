//! Sessions of a server as people look at them.

use cofferdam_core::operation::{SessionClosed, SessionList, SessionMode, SessionView};

use super::table::Table;
use super::{CAUTION, GOOD, PLACE, count, paint};

/// Renders a session that was opened.
pub(crate) fn opened(view: &SessionView) -> String {
    format!(
        "{} {} in {}\n\nnext: {}",
        paint(GOOD, "opened session"),
        name(view),
        paint(PLACE, &view.cwd),
        paint(
            PLACE,
            format_args!("cofferdam session run {} -- CMD", name(view))
        )
    )
}

/// Renders all sessions.
pub(crate) fn list(list: &SessionList) -> String {
    if list.sessions.is_empty() {
        return "no session is open; next: cofferdam session open NAME".to_owned();
    }
    let mut table = Table::new(&["SESSION", "MODE", "STATE", "COMMANDS", "JOBS", "DIRECTORY"]);
    for view in &list.sessions {
        let state = if !view.standing {
            paint(CAUTION, "walls lost")
        } else if view.running > 0 {
            paint(PLACE, format_args!("running {}", view.running))
        } else {
            paint(GOOD, "ready")
        };
        table.row([
            name(view).to_owned(),
            match view.mode {
                SessionMode::Shell => "shell".to_owned(),
                SessionMode::Plain => "plain".to_owned(),
            },
            state,
            view.commands.to_string(),
            view.jobs.len().to_string(),
            view.cwd.to_string(),
        ]);
    }
    table.render()
}

/// Renders sessions among all that runs.
pub(super) fn running(sessions: &[SessionView]) -> String {
    if sessions.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["SESSION", "QUIET FOR", "COMMANDS", "JOBS", "DIRECTORY"]);
    for view in sessions {
        let quiet = if view.running > 0 {
            paint(PLACE, format_args!("running {}", view.running))
        } else {
            super::duration((view.idle * 1000.0) as u64)
        };
        table.row([
            paint(super::STRONG, name(view)),
            quiet,
            view.commands.to_string(),
            view.jobs.len().to_string(),
            paint(PLACE, &view.cwd),
        ]);
    }
    table.render()
}

/// Renders a session that was closed.
pub(crate) fn closed(closed: &SessionClosed) -> String {
    let cancelled = if closed.cancelled == 0 {
        String::new()
    } else {
        let commands = usize::try_from(closed.cancelled).unwrap_or(usize::MAX);
        format!(", {} cancelled", count(commands, "command"))
    };
    format!("closed {}{cancelled}", closed.session_id)
}

/// Gives the name by which people find it.
pub(super) fn name(view: &SessionView) -> &str {
    view.name.as_deref().unwrap_or(view.session_id.as_str())
}
