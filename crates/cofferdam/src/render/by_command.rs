//! Which command changed which file.

use std::fmt::Write as _;

use cofferdam_core::task::ChangeKind;
use cofferdam_runtime::{ChangedName, CommandsReview};
use jiff::Timestamp;

use super::task::next;
use super::{BAD, CAUTION, FAINT, GOOD, PLACE, STRONG, count, duration, one_line, paint};

/// Files of one command that are named.
const FILES: usize = 12;

/// Renders what commands changed, oldest first.
pub(crate) fn render(review: &CommandsReview, now: Timestamp) -> String {
    if review.commands.is_empty() {
        let mut text = format!(
            "no command over a protocol changed a file of {}\n",
            paint(PLACE, &review.top)
        );
        text.push_str(&next(&[
            "cofferdam undo --list".to_owned(),
            "cofferdam review".to_owned(),
        ]));
        return text;
    }
    let mut text = String::new();
    for one in &review.commands {
        let age = now.duration_since(one.time).as_millis();
        let age = u64::try_from(age).unwrap_or_default();
        let _ = writeln!(
            text,
            "{}  {}",
            paint(STRONG, one_line(&one.command, 90)),
            paint(
                FAINT,
                format_args!("{} ago, {} → {}", duration(age), one.before, one.after)
            )
        );
        for file in one.files.iter().take(FILES) {
            let _ = writeln!(text, "  {}", name(file));
        }
        if let Some(more) = one.files.len().checked_sub(FILES).filter(|more| *more > 0) {
            let more = count(more, "more file");
            let _ = writeln!(text, "  {}", paint(FAINT, format_args!("and {more}")));
        }
        if one.commands_at_once > 1 {
            let others = usize::try_from(one.commands_at_once - 1).unwrap_or(usize::MAX);
            let said = format!(
                "{} ran at the same time: it may be theirs",
                count(others, "other command")
            );
            let _ = writeln!(text, "  {}", paint(CAUTION, said));
        }
    }
    let _ = writeln!(
        text,
        "{} by {}",
        count(review.files.len(), "file"),
        count(review.commands.len(), "command")
    );
    text.push_str(&next(&review.next));
    text
}

fn name(file: &ChangedName) -> String {
    let (letter, style) = match file.change {
        ChangeKind::Added => ("A", GOOD),
        ChangeKind::Modified => ("M", CAUTION),
        ChangeKind::Deleted => ("D", BAD),
        ChangeKind::Renamed => ("R", CAUTION),
    };
    let from = file.from.as_ref().map_or_else(String::new, |from| {
        format!(" (from {})", one_line(from, 80))
    });
    format!(
        "{} {}{from}",
        paint(style, letter),
        one_line(&file.path, 100)
    )
}
