//! Results as text that people like to read.
//!
//! Colours have fixed meanings: green is success, red an error, yellow a warning, cyan a path or
//! what to do next. Every line says the same without them.

pub(crate) mod approvals;
pub(crate) mod by_command;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod explain;
#[cfg(test)]
pub(crate) mod fixtures;
pub(crate) mod outbox;
pub(crate) mod outcome;
pub(crate) mod ps;
pub(crate) mod review;
pub(crate) mod sessions;
pub(crate) mod snapshots;
pub(crate) mod table;
pub(crate) mod task;
pub(crate) mod tasks;
pub(crate) mod terminals;
pub(crate) mod view;

use std::fmt::{Display, Write as _};

use anstyle::{AnsiColor, Style};
use cofferdam_core::error::Problem;
use cofferdam_core::ports::PublishedPort;

/// Success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// An error.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// A warning.
pub(crate) const CAUTION: Style = AnsiColor::Yellow.on_default();
/// A path, or what to do next.
pub(crate) const PLACE: Style = AnsiColor::Cyan.on_default();
/// What leads the eye.
pub(crate) const STRONG: Style = Style::new().bold();
/// What may be passed over.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Puts a style around text.
pub(crate) fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Renders a line that the program says on its own account.
pub(crate) fn note(text: &str) -> String {
    format!("{} {text}", paint(FAINT, "cofferdam:"))
}

/// Renders where a port of the inside is found.
pub(crate) fn published(port: &PublishedPort) -> String {
    let place = format_args!("http://{}", port.address);
    format!("port {} is open at {}", port.port, paint(PLACE, place))
}

/// Renders a problem with what to do about it.
pub(crate) fn problem(problem: &Problem) -> String {
    let mut text = format!(
        "{}: {}\n",
        paint(BAD.bold(), format_args!("error[{}]", problem.code)),
        problem.message.trim_end()
    );
    if let Some(hint) = &problem.hint {
        text.push('\n');
        let label = paint(PLACE, "hint:");
        for (index, line) in hint.lines().enumerate() {
            if index == 0 {
                let _ = writeln!(text, "{label} {line}");
            } else {
                let _ = writeln!(text, "      {line}");
            }
        }
    }
    text
}

/// Renders milliseconds as people say them.
pub(crate) fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        60_000..3_600_000 => format!(
            "{} min {} s",
            milliseconds / 60_000,
            milliseconds / 1_000 % 60
        ),
        _ => format!(
            "{} h {} min",
            milliseconds / 3_600_000,
            milliseconds / 60_000 % 60
        ),
    }
}

/// Renders bytes as people say them.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes / 1_048_576),
        _ => format!(
            "{}.{} GiB",
            bytes / 1_073_741_824,
            bytes % 1_073_741_824 / 107_374_183
        ),
    }
}

/// Renders a count with its noun.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// Cuts text to a number of characters, on one line, and takes control characters out: what an
/// agent wrote must not move the cursor of whoever reads it.
pub(crate) fn one_line(text: &str, characters: usize) -> String {
    let clean: String = text
        .trim()
        .chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect();
    if clean.chars().count() <= characters {
        return clean;
    }
    let mut cut: String = clean.chars().take(characters.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Takes control characters but line ends and tabs out of text that an agent wrote.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_control() || matches!(character, '\n' | '\t'))
        .collect()
}

/// Takes the styles out, for tests.
#[cfg(test)]
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::error::ErrorCode;

    #[test]
    fn a_problem_says_code_message_and_what_to_do() {
        let text = problem(
            &Problem::new(ErrorCode::BwrapMissing, "bubblewrap is not installed")
                .with_hint("apt-get install bubblewrap,\nor `cofferdam doctor --fix`"),
        );
        insta::assert_snapshot!(plain(&text), @r"
        error[bwrap_missing]: bubblewrap is not installed

        hint: apt-get install bubblewrap,
              or `cofferdam doctor --fix`
        ");
    }

    #[test]
    fn durations_and_sizes_are_short() {
        let said: Vec<_> = [0, 999, 1_000, 59_999, 60_000, 3_600_000]
            .map(duration)
            .into();
        insta::assert_snapshot!(said.join(", "), @"0 ms, 999 ms, 1.0 s, 59.9 s, 1 min 0 s, 1 h 0 min");
        insta::assert_snapshot!(
            [12, 4_096, 5 << 20, 3 << 30].map(size).join(", "),
            @"12 B, 4 KiB, 5 MiB, 3.0 GiB"
        );
    }

    #[test]
    fn an_agent_cannot_move_the_cursor() {
        assert_eq!(one_line("a\x1b[2Jb\rc\n", 20), "a [2Jb c");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(harmless("a\x1b[31m\nb\tc"), "a[31m\nb\tc");
    }
}
