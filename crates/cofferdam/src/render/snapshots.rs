//! Snapshots of a checkout, and what going back to one came to.

use std::fmt::Write as _;

use cofferdam_runtime::{CheckoutSnapshot, RestoredSnapshot};

use super::table::Table;
use super::task::{changed, next};
use super::{FAINT, GOOD, STRONG, count, duration, one_line, paint};

/// Files that are named when one goes back.
const FILES: usize = 20;

/// Renders the snapshots of a repository, the newest last; `now` is in seconds since 1970.
pub(crate) fn list(snapshots: &[CheckoutSnapshot], now: i64) -> String {
    let Some(newest) = snapshots.last() else {
        return "no snapshots of this repository yet\n\n\
                cofferdam run --snapshot keeps the files before and after a command\n"
            .to_owned();
    };
    let mut table = Table::new(&["SNAPSHOT", "TAKEN", "WHAT"]);
    for one in snapshots {
        let age = u64::try_from(now - one.taken_at).unwrap_or_default();
        table.row([
            paint(STRONG, &one.name),
            format!("{} ago", duration(age * 1000)),
            one_line(&one.what, 80),
        ]);
    }
    let mut text = table.render();
    text.push_str(&next(&[format!("cofferdam undo {}", newest.name)]));
    text
}

/// Renders what going back came to.
pub(crate) fn restored(restored: &RestoredSnapshot) -> String {
    let name = &restored.snapshot.name;
    let mut text = format!(
        "{} {}: {}\n",
        paint(GOOD, "files are as in"),
        paint(STRONG, name),
        one_line(&restored.snapshot.what, 80)
    );
    for file in restored.files.iter().take(FILES) {
        let _ = writeln!(text, "  {}", changed(file));
    }
    if restored.files.is_empty() {
        text.push_str("  nothing was different\n");
    }
    if let Some(more) = restored
        .files
        .len()
        .checked_sub(FILES)
        .filter(|more| *more > 0)
    {
        let _ = writeln!(
            text,
            "  {}",
            paint(FAINT, format_args!("and {}", count(more, "more file")))
        );
    }
    text.push_str(&paint(
        FAINT,
        "branches and the index are left as they are\n",
    ));
    text.push_str(&next(&[
        format!("cofferdam undo {}", restored.before.name),
        "git status".to_owned(),
    ]));
    text
}
