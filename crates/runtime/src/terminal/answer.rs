//! From what was seen of a terminal to what is answered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::limits::OUTPUT_CHARACTERS;
use cofferdam_core::operation::{
    InputStatus, TerminalInfo, TerminalInput, TerminalOutput, TerminalScreen, TerminalSnapshot,
    TerminalState,
};
use cofferdam_exec::terminal::{Terminal, Waited, clean};

use super::registry::Entry;

/// Says what a terminal is now.
pub(super) fn info(entry: &Entry, active: bool) -> TerminalInfo {
    let terminal = entry.terminal();
    let (state, foreground) = terminal.doing();
    let size = terminal.size();
    TerminalInfo {
        name: entry.name.clone(),
        terminal_id: terminal.id().clone(),
        command_id: terminal.command_id().clone(),
        cwd: entry.fixed.command.cwd.clone(),
        command: entry.fixed.command.argv.clone(),
        rows: size.rows,
        columns: size.columns,
        write_access: entry.fixed.write_access,
        network: entry.fixed.spec.network,
        provider: entry.fixed.spec.provider,
        spec_hash: entry.spec_hash(),
        active,
        state,
        foreground,
        session: entry.fixed.session.clone(),
        written: terminal.written(),
        last_output_ms: terminal
            .since_output()
            .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        recording: terminal
            .recording()
            .map(|path| BytePath::from(path.clone())),
    }
}

/// Says what came of an input.
pub(super) fn output(
    terminal: &Terminal,
    request: &TerminalInput,
    waited: Waited,
    timeouts_in_a_row: u32,
) -> TerminalOutput {
    let most = usize::try_from(waited.to - waited.from).unwrap_or(usize::MAX);
    let chunk = terminal.read(waited.from, most);
    let (_, alternate, _) = terminal.view();
    let lines = if alternate {
        // What a program draws on the whole screen makes sense as that screen only.
        terminal.lines(None, false)
    } else {
        clean(&chunk.bytes, terminal.size())
    };
    let (output, cut) = tail(lines.lines.join("\n"), OUTPUT_CHARACTERS);
    let Waited {
        status,
        state,
        foreground,
        from,
        to,
        elapsed,
        problem,
    } = waited;
    let message = problem.map_or_else(
        || message(status, state, foreground.as_deref()),
        |problem| problem.message,
    );
    TerminalOutput {
        name: terminal.name().clone(),
        status,
        success: status.is_success(),
        output,
        raw: request.raw.then(|| STANDARD.encode(&chunk.bytes)),
        from,
        to,
        truncated: cut || chunk.gap > 0 || (lines.truncated && !alternate),
        state,
        foreground,
        elapsed_ms: elapsed.as_millis() as u64,
        output_wait: request.output_wait,
        message,
        hint: hint(status, timeouts_in_a_row),
        ended: terminal.end(),
    }
}

fn message(status: InputStatus, state: TerminalState, foreground: Option<&str>) -> String {
    let program = foreground.unwrap_or("the program");
    match status {
        InputStatus::Completed if state == TerminalState::Ended => {
            "the terminal's program has ended".to_owned()
        }
        InputStatus::Completed => "the shell waits for the next command".to_owned(),
        InputStatus::AwaitingInput => match state {
            TerminalState::AwaitingHiddenLine => {
                format!("{program} waits for a line that is not shown, a password for instance")
            }
            TerminalState::AwaitingKeys => format!("{program} waits for keys"),
            _ => format!("{program} waits for a line of input"),
        },
        InputStatus::OutputWithEcho => format!("{program} still runs, and is quiet now"),
        InputStatus::EchoLoop => {
            format!("what was typed came back and nothing else did: {program} does not read it")
        }
        InputStatus::NoOutput => format!("{program} still runs, and nothing came"),
        InputStatus::Timeout => format!("{program} still runs, and the wait is over"),
        InputStatus::Error => "it could not be typed".to_owned(),
    }
}

fn hint(status: InputStatus, timeouts_in_a_row: u32) -> Option<String> {
    let text = match status {
        InputStatus::Timeout | InputStatus::NoOutput if timeouts_in_a_row >= 2 => {
            "ask again with a longer output_wait and no text: the answer comes as soon as it is known"
        }
        InputStatus::EchoLoop => "press ctrl-c with keys, or wait until it reads",
        InputStatus::Error => "press ctrl-c with keys, or reset the terminal",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Says what a terminal shows; `wanted` lines, or all.
pub(super) fn screen(
    info: TerminalInfo,
    terminal: &Terminal,
    request: &TerminalSnapshot,
    wanted: Option<u32>,
    characters: usize,
) -> TerminalScreen {
    let lines = terminal.lines(wanted.map(|wanted| wanted as usize), request.colors);
    let (cursor, alternate_screen, title) = terminal.view();
    let (text, cut) = tail(lines.lines.join("\n"), characters);
    let raw = request.raw.then(|| terminal.read(0, usize::MAX));
    TerminalScreen {
        terminal: info,
        lines_requested: wanted.unwrap_or_default(),
        lines_returned: u32::try_from(lines.lines.len()).unwrap_or(u32::MAX),
        truncated: lines.truncated || cut,
        text,
        cursor_row: cursor.0,
        cursor_column: cursor.1,
        alternate_screen,
        title,
        last_input: terminal.last_input(),
        seconds_since_last_output: terminal.quiet_for().map(|quiet| quiet.as_secs_f64()),
        raw_from: raw.as_ref().map_or(0, |chunk| chunk.from),
        raw: raw.map(|chunk| STANDARD.encode(&chunk.bytes)),
    }
}

/// Keeps the last characters; tells whether that is less.
fn tail(text: String, characters: usize) -> (String, bool) {
    let start = text
        .char_indices()
        .rev()
        .nth(characters.saturating_sub(1))
        .map_or(0, |(index, _)| index);
    if start == 0 {
        return (text, false);
    }
    (text[start..].to_owned(), true)
}
