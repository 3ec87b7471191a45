//! Lists of tasks, their progress, and what was done with them afterwards.

use std::fmt::Write as _;
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::outcome::Status;
use cofferdam_core::task::{MergeStatus, TaskResult, VerificationStatus};
use cofferdam_runtime::{TaskDiff, TaskDropped, TaskMerge, TaskOverview, TaskProgress, TaskUndone};

use super::outcome::status_style;
use super::table::Table;
use super::task::{changed, merge_word, next, short, verdict_style};
use super::{BAD, CAUTION, FAINT, GOOD, PLACE, STRONG, count, harmless, one_line, paint};

/// Renders the table of tasks, the newest last.
pub(crate) fn list(tasks: &[TaskOverview], hidden: usize) -> String {
    if tasks.is_empty() {
        let try_it = paint(PLACE, "cofferdam task run --goal TEXT -- CMD");
        return format!("no tasks yet\n\nnext: {try_it}\n");
    }
    let mut table = Table::new(&[
        "#", "STATUS", "VERIFIER", "FILES", "MERGE", "GOAL", "BRANCH",
    ]);
    for task in tasks {
        table.row([
            paint(STRONG, task.number),
            state(task),
            task.verification.map_or_else(String::new, verdict),
            if task.status == Status::Running {
                String::new()
            } else {
                task.files.to_string()
            },
            merge(task.merge),
            one_line(&task.goal, 44),
            task.branch
                .as_ref()
                .map_or_else(String::new, |branch| paint(PLACE, branch)),
        ]);
    }
    let mut text = table.render();
    if hidden > 0 {
        text.push_str(&paint(
            FAINT,
            format_args!("{} not shown, see --limit\n", count(hidden, "older task")),
        ));
    }
    if let Some(last) = tasks.last() {
        text.push_str(&next(&[
            "cofferdam review".to_owned(),
            format!("cofferdam task show {}", last.number),
        ]));
    }
    text
}

fn state(task: &TaskOverview) -> String {
    if task.status == Status::Running {
        return paint(status_style(task.status), task.state.as_str());
    }
    paint(status_style(task.status), task.status)
}

pub(crate) fn verdict(status: VerificationStatus) -> String {
    paint(verdict_style(status), status.as_str())
}

fn merge(status: MergeStatus) -> String {
    let style = match status {
        MergeStatus::Merged => GOOD,
        MergeStatus::Conflict | MergeStatus::Refused => BAD,
        MergeStatus::Dropped | MergeStatus::Undone => CAUTION,
        MergeStatus::NotRequested | MergeStatus::Nothing => FAINT,
    };
    paint(style, merge_word(status))
}

/// Renders a task that has no result yet.
pub(crate) fn running(task: &TaskOverview) -> String {
    format!(
        "{} {} · {}\n  {}\n{}",
        paint(STRONG, format_args!("task {}", task.number)),
        state(task),
        one_line(&task.goal, 100),
        paint(FAINT, one_line(&task.command, 100)),
        next(&[
            format!("cofferdam events --follow --task {}", task.number),
            format!("cofferdam task show {}", task.number),
        ])
    )
}

/// Renders the results of tasks that ran side by side.
pub(crate) fn side_by_side(tasks: &[TaskResult]) -> String {
    let mut table = Table::new(&[
        "#", "STATUS", "VERIFIER", "FILES", "LINES", "TOOK", "BRANCH",
    ]);
    for task in tasks {
        let outcome = task.task_result.as_ref();
        let code = outcome.and_then(|outcome| outcome.return_code);
        let how = code
            .filter(|code| *code != 0)
            .map_or_else(String::new, |code| format!(" (exit {code})"));
        let figures = &task.git_diff_summary;
        let branch = task.isolation.branch.as_ref();
        table.row([
            paint(STRONG, task.number),
            format!("{}{how}", paint(status_style(task.status), task.status)),
            verdict(task.verification.status),
            task.modified_files.len().to_string(),
            format!("+{} −{}", figures.insertions, figures.deletions),
            outcome.map_or_else(String::new, |one| super::duration(one.elapsed_ms)),
            branch.map_or_else(
                || {
                    let problem = task.error.as_ref();
                    problem.map_or_else(String::new, |one| paint(BAD, one_line(&one.message, 80)))
                },
                |branch| paint(PLACE, branch),
            ),
        ]);
    }
    let mut text = table.render();
    let numbers: Vec<_> = tasks.iter().map(|task| task.number.to_string()).collect();
    if !numbers.is_empty() {
        let numbers = numbers.join(" ");
        text.push_str(&next(&[
            format!("cofferdam review {numbers}"),
            format!("cofferdam drop {numbers}"),
        ]));
    }
    text
}

/// Renders the figures of a diff.
pub(crate) fn stat(diff: &TaskDiff) -> String {
    let mut text = String::new();
    for file in &diff.files {
        text.push_str(&changed(file));
        text.push('\n');
    }
    text.push_str(&diff.summary.text);
    text
}

/// Renders a patch with colours, without what could move the cursor.
pub(crate) fn coloured(patch: &[u8]) -> String {
    let text = harmless(&String::from_utf8_lossy(patch));
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for line in text.lines() {
        let style = match line.as_bytes() {
            line if is_head(line) => STRONG,
            [b'+', ..] => GOOD,
            [b'-', ..] => BAD,
            [b'@', b'@', ..] => PLACE,
            _ => anstyle::Style::new(),
        };
        out.push_str(&paint(style, line));
        out.push('\n');
    }
    out
}

/// Tells the lines of a patch that name files.
fn is_head(line: &[u8]) -> bool {
    let heads: [&[u8]; 4] = [b"+++ ", b"--- ", b"diff ", b"index "];
    heads.iter().any(|head| line.starts_with(head))
}

/// Names a repository where a person is not in it.
fn elsewhere(repository: Option<&BytePath>, here: &Path) -> String {
    repository
        .filter(|top| !here.starts_with(top.as_path()))
        .map_or_else(String::new, |top| {
            format!(" in {}", paint(PLACE, one_line(&top.to_string(), 120)))
        })
}

/// Renders what a merge came to.
pub(crate) fn merged(merge: &TaskMerge, here: &Path) -> String {
    let into = merge.into.as_deref().unwrap_or("the checkout");
    let mut text = match merge.merge.status {
        MergeStatus::Merged => {
            let oid = merge
                .merge
                .oid
                .as_deref()
                .map_or_else(String::new, |oid| format!(" as {}", short(oid)));
            let place = elsewhere(merge.repository.as_ref(), here);
            let into = paint(PLACE, into);
            let (number, word) = (merge.number, paint(GOOD, "merged"));
            if merge.already {
                format!("task {number} was {word} already, into {into}{oid}{place}\n")
            } else {
                format!("{word} task {number} into {into}{oid}{place}\n")
            }
        }
        MergeStatus::Nothing => format!(
            "task {} changed nothing: there is nothing to merge\n",
            merge.number
        ),
        MergeStatus::Conflict => {
            let mut text = format!("{}: nothing was touched\n", paint(BAD, "conflict"));
            for path in &merge.merge.conflicts {
                let _ = writeln!(text, "  {}", paint(PLACE, one_line(&path.to_string(), 120)));
            }
            text
        }
        status => format!(
            "task {}: {}\n",
            merge.number,
            paint(CAUTION, merge_word(status))
        ),
    };
    if let Some(held) = &merge.pushed {
        let _ = writeln!(
            text,
            "{}: {}",
            super::outbox::state(held.state),
            one_line(&held.proposal.summary, 120)
        );
    }
    text.push_str(&next(&merge.next));
    text
}

/// Renders what dropping came to.
pub(crate) fn dropped(dropped: &TaskDropped, here: &Path) -> String {
    let mut text = format!(
        "{} task {}{}: {}\n",
        paint(CAUTION, "dropped"),
        dropped.number,
        elsewhere(Some(&dropped.repository), here),
        dropped.place
    );
    for reference in &dropped.kept_under {
        let _ = writeln!(text, "  kept as {}", paint(PLACE, reference));
    }
    text.push_str(&next(&dropped.next));
    text
}

/// Renders what was taken back.
pub(crate) fn undone(undone: &TaskUndone, here: &Path) -> String {
    format!(
        "{} {}{}\n{}",
        paint(GOOD, "taken back:"),
        undone.what,
        elsewhere(Some(&undone.repository), here),
        next(&undone.next)
    )
}

/// Gives the line for a step of a task, where it is worth one.
pub(crate) fn progress(step: &TaskProgress) -> Option<String> {
    match step {
        TaskProgress::Planned { number, .. } => Some(format!("task {number}")),
        TaskProgress::WorkspaceReady { branch, notes, .. } => {
            let mut lines: Vec<String> = branch
                .iter()
                .map(|branch| format!("works on branch {}", paint(PLACE, branch)))
                .collect();
            lines.extend(notes.iter().map(|note| {
                let what = if note.contains("--carry") {
                    "not in its tree: "
                } else {
                    ""
                };
                paint(CAUTION, format_args!("{what}{}", one_line(note, 120)))
            }));
            (!lines.is_empty()).then(|| lines.join("\n"))
        }
        TaskProgress::Setup { step, of, command } => {
            Some(format!("set-up {step} of {of}: {}", one_line(command, 100)))
        }
        TaskProgress::Verifying { step, of, check } => {
            Some(format!("check {step} of {of}: {}", one_line(check, 100)))
        }
        TaskProgress::Noted { text } => Some(text.clone()),
        TaskProgress::Running { .. }
        | TaskProgress::Harvesting
        | TaskProgress::Verified { .. }
        | TaskProgress::Done => None,
    }
}
