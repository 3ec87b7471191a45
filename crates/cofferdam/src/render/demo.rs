//! How the demonstration came out.

use std::fmt::Write as _;

use super::outcome::{status_style, walls};
use super::table::Table;
use super::tasks::verdict;
use super::{BAD, GOOD, STRONG, count, paint};
use crate::demo::Told;

/// Renders the table of results, and what the second task tried.
pub(crate) fn told(told: &Told) -> String {
    let mut table = Table::new(&["TASK", "STATUS", "VERIFIER", "CHANGES", "WALLS"]);
    for task in &told.tasks {
        let verifier = if task.verification.checks.is_empty() {
            String::from("none")
        } else {
            verdict(task.verification.status)
        };
        table.row([
            paint(STRONG, &task.goal),
            paint(status_style(task.status), task.status),
            verifier,
            count(task.modified_files.len(), "file"),
            walls(
                task.isolation.effective.provider,
                task.isolation.effective.network.as_str(),
            ),
        ]);
    }
    let mut text = table.render();
    let _ = write!(
        text,
        "\n{}\n",
        paint(STRONG, "What the second task tried, seen from outside")
    );
    let mut table = Table::new(&["RESULT", "ATTEMPT", "SEEN"]);
    for attempt in &told.attempts {
        let (word, seen) = if attempt.stopped {
            (paint(GOOD, "stopped"), attempt.seen)
        } else {
            (paint(BAD, "got out"), "")
        };
        table.row([word, attempt.what.to_owned(), seen.to_owned()]);
    }
    text.push_str(&table.render());
    let line = if told.came_out_right {
        paint(GOOD, "Everything came out as it should.")
    } else {
        paint(BAD, "This is not as it should be.")
    };
    let _ = write!(text, "\n{line}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::Attempt;
    use crate::render::fixtures::task;
    use crate::render::plain;

    #[test]
    fn what_got_out_is_not_said_to_be_well() {
        let attempt = |what, stopped| Attempt {
            what,
            stopped,
            seen: "nothing is there",
        };
        let shown = Told {
            tasks: vec![task()],
            attempts: vec![
                attempt("read a secret", true),
                attempt("write outside", false),
            ],
            came_out_right: false,
        };
        insta::assert_snapshot!(plain(&told(&shown)), @r"
        TASK            STATUS     VERIFIER  CHANGES  WALLS
        fix the parser  completed  passed    2 files  bwrap, network none

        What the second task tried, seen from outside
        RESULT   ATTEMPT        SEEN
        stopped  read a secret  nothing is there
        got out  write outside

        This is not as it should be.
        ");
    }
}
