//! Terminals of one runtime: by their names, with the rights that they were opened with.

mod answer;
mod expire;
mod open;
mod registry;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::event_type;
use cofferdam_core::limits::{
    TERMINAL_COLUMNS_CAP, TERMINAL_INPUT_BYTES, TERMINAL_ROWS_CAP, TERMINAL_SNAPSHOT_CHARACTERS,
    TERMINAL_SNAPSHOT_LINES, TERMINAL_SNAPSHOT_LINES_CAP, TERMINAL_WAIT_CAP_SECONDS,
};
use cofferdam_core::operation::{
    InputStatus, TerminalChoice, TerminalClosed, TerminalInfo, TerminalInput, TerminalList,
    TerminalName, TerminalOpened, TerminalOutput, TerminalReset, TerminalResize, TerminalScreen,
    TerminalSignal, TerminalSnapshot, TerminalWrite, TerminalWritten,
};
use cofferdam_core::outcome::signal_number;
use cofferdam_exec::terminal::{Terminal, Typed};
use cofferdam_exec::{Control, TerminalSize};
use serde_json::json;

use crate::runtime::Runtime;
use crate::scribe::Line;
pub use open::TerminalRequest;
use registry::Entry;
pub(crate) use registry::Registry;

impl Runtime {
    /// Types into a terminal, and waits for what comes of it: no longer than until it is known.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`, `terminal_ended`, `invalid_timeout`, `invalid_request`.
    pub fn terminal_input(
        &self,
        request: &TerminalInput,
        control: &Control,
    ) -> Result<TerminalOutput, Problem> {
        let wait = wait_of(request.output_wait)?;
        let text = request.text.as_deref().unwrap_or_default();
        if text.len() > TERMINAL_INPUT_BYTES {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!(
                    "the text has {} bytes, {TERMINAL_INPUT_BYTES} are typed at once",
                    text.len()
                ),
            )
            .with_field("text")
            .with_hint("write it to a file, or type it in parts"));
        }
        let entry = self.terminals.find(request.name.as_ref())?;
        self.check_crossing(&entry)?;
        let terminal = entry.terminal();
        let typed = Typed {
            text,
            enter: request
                .enter
                .unwrap_or(request.text.is_some() && request.keys.is_empty()),
            keys: &request.keys,
        };
        let waited = terminal.type_and_wait(typed, wait, control)?;
        let in_a_row = entry.count_timeouts(matches!(
            waited.status,
            InputStatus::Timeout | InputStatus::NoOutput | InputStatus::EchoLoop
        ));
        Ok(answer::output(&terminal, request, waited, in_a_row))
    }

    /// Types bytes into a terminal, without waiting.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`, `terminal_ended`, `invalid_request` for what is no base64.
    pub fn terminal_write(&self, request: &TerminalWrite) -> Result<TerminalWritten, Problem> {
        let bytes = STANDARD.decode(&request.bytes).map_err(|error| {
            Problem::new(
                ErrorCode::InvalidRequest,
                format!("bytes is no base64: {error}"),
            )
            .with_field("bytes")
        })?;
        let entry = self.terminals.find(request.name.as_ref())?;
        self.check_crossing(&entry)?;
        let typed = entry.terminal().type_bytes(&bytes)?;
        Ok(TerminalWritten { typed })
    }

    /// Gives what a terminal shows.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`.
    pub fn terminal_snapshot(&self, request: &TerminalSnapshot) -> Result<TerminalScreen, Problem> {
        let entry = self.terminals.find(request.name.as_ref())?;
        let wanted = match request.lines {
            None => Some(TERMINAL_SNAPSHOT_LINES),
            Some(lines) => u32::try_from(lines)
                .ok()
                .filter(|lines| *lines > 0)
                .map(|lines| lines.min(TERMINAL_SNAPSHOT_LINES_CAP)),
        };
        Ok(answer::screen(
            self.terminal_info(&entry),
            &entry.terminal(),
            request,
            wanted,
            TERMINAL_SNAPSHOT_CHARACTERS,
        ))
    }

    /// Gives a terminal another size.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`, `invalid_request`.
    pub fn terminal_resize(&self, request: &TerminalResize) -> Result<TerminalInfo, Problem> {
        let size = size_of(Some(request.rows), Some(request.columns))?;
        let entry = self.terminals.find(request.name.as_ref())?;
        entry.terminal().resize(size);
        Ok(self.terminal_info(&entry))
    }

    /// Sends a signal to what runs in the foreground of a terminal, or to all of it.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`, `terminal_ended`, `invalid_request` for a word that is no signal.
    pub fn terminal_signal(&self, request: &TerminalSignal) -> Result<TerminalInfo, Problem> {
        let word = request.signal.to_ascii_uppercase();
        let number = signal_number(&word)
            .or_else(|| signal_number(&format!("SIG{word}")))
            .filter(|number| (1..=64).contains(number))
            .ok_or_else(|| {
                Problem::new(
                    ErrorCode::InvalidRequest,
                    format!("{:?} is no signal", request.signal),
                )
                .with_field("signal")
                .with_hint("SIGINT, SIGTERM or SIGKILL, for instance")
            })?;
        let entry = self.terminals.find(request.name.as_ref())?;
        entry.terminal().signal(number.into(), request.target)?;
        Ok(self.terminal_info(&entry))
    }

    /// Makes a terminal the one that requests without a name mean.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`.
    pub fn terminal_switch(&self, request: &TerminalChoice) -> Result<TerminalList, Problem> {
        let entry = self.terminals.find(request.name.as_ref())?;
        let previous = self.terminals.activate(&entry.name);
        if previous.as_ref() != Some(&entry.name) {
            self.scribe.record(vec![Line::new(
                event_type::TERMINAL_SWITCHED,
                &entry.subject,
                json!({"previous": previous, "current": entry.name}),
            )])?;
        }
        Ok(self.terminal_list())
    }

    /// Closes a terminal and waits until nothing is left of it.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`.
    pub fn terminal_close(&self, request: &TerminalChoice) -> Result<TerminalClosed, Problem> {
        let entry = self.terminals.find(request.name.as_ref())?;
        Ok(self.close_entry(&entry, "closed"))
    }

    fn close_entry(&self, entry: &Arc<Entry>, reason: &str) -> TerminalClosed {
        let terminal = self.terminal_info(entry);
        let end = entry.terminal().close(reason);
        let (active, total) = self.terminals.remove(entry);
        self.scribe.record_later(entry.ending());
        TerminalClosed {
            terminal,
            end,
            active,
            total,
        }
    }

    /// Opens a terminal anew: the same name, rights, directory and size.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`, and those of opening.
    pub fn terminal_reset(&self, request: &TerminalReset) -> Result<TerminalOpened, Problem> {
        let entry = self.terminals.find(request.name.as_ref())?;
        self.check_crossing(&entry)?;
        let old = entry.terminal();
        self.scribe.record(vec![Line::new(
            event_type::TERMINAL_RESET,
            &entry.subject,
            json!({
                "terminal_id": old.id(),
                "name": entry.name,
                "spec_hash": entry.spec_hash(),
            }),
        )])?;
        let size = old.size();
        old.close("reset");
        drop(old);
        let opened = self.start_terminal(&entry.fixed, size, &entry.subject);
        match opened {
            Ok(terminal) => entry.replace(terminal),
            Err(problem) => {
                self.terminals.remove(&entry);
                return Err(problem);
            }
        }
        Ok(self.opened(&entry))
    }

    /// Lists every terminal.
    pub fn terminal_list(&self) -> TerminalList {
        let (entries, active) = self.terminals.all();
        TerminalList {
            terminals: entries
                .iter()
                .map(|entry| self.terminal_info(entry))
                .collect(),
            active,
            limit: self.terminals.limit(),
        }
    }

    /// Lends a terminal, to be watched and typed at by a person.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`.
    pub fn terminal(&self, name: &TerminalName) -> Result<Arc<Terminal>, Problem> {
        Ok(self.terminals.find(Some(name))?.terminal())
    }

    /// Closes every terminal that the policy in effect would not open like this any more; gives
    /// their names.
    pub fn close_crossed_terminals(&self) -> Vec<TerminalName> {
        let (entries, _) = self.terminals.all();
        entries
            .iter()
            .filter(|entry| self.check_crossing(entry).is_err())
            .map(|entry| entry.name.clone())
            .collect()
    }

    /// Closes every terminal.
    pub fn close_terminals(&self, reason: &str) {
        let (entries, _) = self.terminals.all();
        // All at once: each may take a moment to leave.
        std::thread::scope(|scope| {
            for entry in &entries {
                scope.spawn(|| self.close_entry(entry, reason));
            }
        });
    }

    /// Says how many terminals there may be at once.
    pub fn set_terminal_limit(&self, limit: usize) {
        self.terminals.set_limit(limit);
    }

    fn opened(&self, entry: &Entry) -> TerminalOpened {
        TerminalOpened {
            terminal: self.terminal_info(entry),
            total: self.terminals.all().0.len(),
            limit: self.terminals.limit(),
        }
    }

    fn terminal_info(&self, entry: &Entry) -> TerminalInfo {
        let active = self.terminals.all().1.as_ref() == Some(&entry.name);
        answer::info(entry, active)
    }
}

/// Reads the size of a screen.
fn size_of(rows: Option<u16>, columns: Option<u16>) -> Result<TerminalSize, Problem> {
    let check = |value: u16, cap: u16, field: &str| {
        if (1..=cap).contains(&value) {
            Ok(value)
        } else {
            Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("{field} must be between 1 and {cap}, it is {value}"),
            )
            .with_field(field))
        }
    };
    Ok(TerminalSize {
        rows: check(rows.unwrap_or(24), TERMINAL_ROWS_CAP, "rows")?,
        columns: check(columns.unwrap_or(80), TERMINAL_COLUMNS_CAP, "columns")?,
    })
}

fn wait_of(seconds: f64) -> Result<Duration, Problem> {
    if seconds > 0.0 && seconds <= TERMINAL_WAIT_CAP_SECONDS {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(Problem::new(
        ErrorCode::InvalidTimeout,
        format!(
            "output_wait must be above 0 and not above {TERMINAL_WAIT_CAP_SECONDS}, it is {seconds}"
        ),
    )
    .with_field("output_wait")
    .with_hint("the answer comes as soon as it is known: a generous value costs nothing"))
}
