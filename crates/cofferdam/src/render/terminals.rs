//! Terminals of a server as people look at them.

use cofferdam_core::operation::{
    InputStatus, TerminalClosed, TerminalEnd, TerminalInfo, TerminalList, TerminalOpened,
    TerminalOutput, TerminalState,
};
use cofferdam_core::spec::Access;

use super::table::Table;
use super::{BAD, CAUTION, GOOD, PLACE, STRONG, one_line, paint, size};

/// Renders a terminal that was opened.
pub(crate) fn opened(opened: &TerminalOpened) -> String {
    format!(
        "{}\n\nnext: {}",
        one(&opened.terminal),
        paint(
            PLACE,
            format_args!("cofferdam attach {}", opened.terminal.name)
        )
    )
}

/// Renders one terminal in a line.
pub(crate) fn one(info: &TerminalInfo) -> String {
    format!(
        "{}  {}  {} × {}  {}",
        paint(STRONG, &info.name),
        state(info),
        info.columns,
        info.rows,
        walls(info)
    )
}

/// Renders all terminals.
pub(crate) fn list(list: &TerminalList) -> String {
    if list.terminals.is_empty() {
        return "no terminal is open; next: cofferdam terminal open NAME".to_owned();
    }
    let mut table = Table::new(&["NAME", "STATE", "SIZE", "WALLS", "WRITTEN", "COMMAND"]);
    for info in &list.terminals {
        let mark = if info.active { "*" } else { "" };
        let words: Vec<String> = info.command.iter().map(ToString::to_string).collect();
        table.row([
            format!("{}{mark}", info.name),
            state(info),
            format!("{}×{}", info.columns, info.rows),
            walls(info),
            size(info.written),
            one_line(&words.join(" "), 40),
        ]);
    }
    table.render()
}

/// Renders terminals among all that runs.
pub(super) fn running(terminals: &[TerminalInfo]) -> String {
    if terminals.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["TERMINAL", "STATE", "LAST OUTPUT", "COMMAND", "DIRECTORY"]);
    for info in terminals {
        let words: Vec<String> = info.command.iter().map(ToString::to_string).collect();
        table.row([
            paint(STRONG, &info.name),
            state(info),
            info.last_output_ms
                .map_or_else(String::new, |age| format!("{} ago", super::duration(age))),
            one_line(&words.join(" "), 60),
            paint(PLACE, &info.cwd),
        ]);
    }
    table.render()
}

/// Renders what came of an input.
pub(crate) fn output(answer: &TerminalOutput) -> String {
    answer.output.clone()
}

/// Says how the wait ended.
pub(crate) fn status(answer: &TerminalOutput) -> String {
    let style = match answer.status {
        InputStatus::Completed => GOOD,
        InputStatus::AwaitingInput | InputStatus::OutputWithEcho => PLACE,
        InputStatus::Timeout | InputStatus::NoOutput | InputStatus::EchoLoop => CAUTION,
        InputStatus::Error => BAD,
    };
    let hint = answer
        .hint
        .as_ref()
        .map_or_else(String::new, |hint| format!("; {hint}"));
    format!(
        "{}: {}{hint}",
        paint(style, answer.status.as_str()),
        one_line(&answer.message, 200)
    )
}

/// Renders a terminal that was closed.
pub(crate) fn closed(closed: &TerminalClosed) -> String {
    format!("closed {}: {}", closed.terminal.name, end(&closed.end))
}

/// Says how the program of a terminal ended.
pub(crate) fn end(end: &TerminalEnd) -> String {
    match (&end.problem, &end.signal, end.return_code) {
        (Some(problem), _, _) => one_line(&problem.message, 200),
        (_, Some(signal), _) => format!("ended by {signal}"),
        (_, _, Some(0)) => "its program has ended".to_owned(),
        (_, _, Some(code)) => format!("its program has ended with exit code {code}"),
        (None, None, None) => "ended".to_owned(),
    }
}

fn walls(info: &TerminalInfo) -> String {
    let access = match info.write_access {
        Access::Read => ", read only",
        Access::Write => "",
    };
    super::outcome::walls(Some(info.provider), info.network.as_str()) + access
}

fn state(info: &TerminalInfo) -> String {
    let program = info
        .foreground
        .as_deref()
        .map_or_else(String::new, |name| format!(" {}", one_line(name, 24)));
    match info.state {
        TerminalState::Ready => paint(GOOD, "ready"),
        TerminalState::Running => paint(PLACE, format_args!("running{program}")),
        TerminalState::AwaitingLine
        | TerminalState::AwaitingHiddenLine
        | TerminalState::AwaitingKeys => paint(CAUTION, format_args!("awaiting input{program}")),
        TerminalState::Ended => paint(BAD, "ended"),
    }
}
