//! The result of a task as a person likes to read it.

use std::fmt::Write as _;

use cofferdam_core::task::{
    ChangeKind, CheckResult, CleanupStatus, MergeStatus, ModifiedFile, TaskResult,
    VerificationStatus,
};

use super::outcome::{notes, status_style, walls};
use super::{BAD, CAUTION, FAINT, GOOD, PLACE, STRONG, count, duration, harmless, one_line, paint};

/// Files that are listed before the rest is only counted.
const FILES_SHOWN: usize = 20;
/// Lines of a failed check that are shown.
const LINES_SHOWN: usize = 12;

/// Gives the colour of a verdict.
pub(crate) const fn verdict_style(status: VerificationStatus) -> anstyle::Style {
    match status {
        VerificationStatus::Passed => GOOD,
        VerificationStatus::Failed | VerificationStatus::Error => BAD,
        VerificationStatus::Skipped => FAINT,
    }
}

/// Gives the first characters of an object id.
pub(crate) fn short(oid: &str) -> &str {
    oid.get(..10).unwrap_or(oid)
}

/// Renders the whole result, with what went wrong.
pub(crate) fn result(result: &TaskResult) -> String {
    let mut text = body(result);
    if let Some(problem) = &result.error {
        text.push('\n');
        text.push_str(&super::problem(problem));
    }
    text.push_str(&next(&result.next));
    text
}

/// Renders the result without what went wrong, which is said on standard error.
pub(crate) fn ended(result: &TaskResult) -> String {
    let mut text = body(result);
    text.push_str(&next(&result.next));
    text
}

fn body(result: &TaskResult) -> String {
    let mut text = head(result);
    let mut field = |name: &str, value: String| {
        let _ = writeln!(
            text,
            "  {}  {value}",
            paint(FAINT, format_args!("{name:<8}"))
        );
    };
    if !result.goal.is_empty() {
        field("goal", one_line(&result.goal, 100));
    }
    if let Some(branch) = &result.isolation.branch {
        let base = result
            .isolation
            .base
            .as_deref()
            .map_or_else(String::new, |base| format!(" from {}", short(base)));
        field("branch", format!("{}{base}", paint(PLACE, branch)));
    }
    field(
        "walls",
        format!(
            "{} · {}",
            result.isolation.mode.as_str(),
            walls(
                result.isolation.effective.provider,
                result.isolation.effective.network.as_str()
            )
        ),
    );
    field("changes", changes(result));
    for file in result.modified_files.iter().take(FILES_SHOWN) {
        field("", changed(file));
    }
    if let Some(more) = result.modified_files.len().checked_sub(FILES_SHOWN + 1) {
        field("", format!("and {} more", more + 1));
    }
    for (index, check) in result.verification.checks.iter().enumerate() {
        field(if index == 0 { "checks" } else { "" }, checked(check));
        if check.status != VerificationStatus::Passed {
            for line in tail(&check.output) {
                field("", paint(FAINT, format_args!("│ {line}")));
            }
        }
    }
    if !result.verification.tampered_inputs.is_empty() {
        let names: Vec<_> = result
            .verification
            .tampered_inputs
            .iter()
            .map(ToString::to_string)
            .collect();
        field(
            "caution",
            format!(
                "{} {} (--verify-from base takes them from the base)",
                paint(CAUTION, "the task changed what the checks read:"),
                names.join(", ")
            ),
        );
    }
    if let Some(outcome) = &result.task_result {
        for (index, line) in notes(outcome).into_iter().enumerate() {
            field(if index == 0 { "notes" } else { "" }, line);
        }
    }
    for (index, line) in result.left_behind.iter().enumerate() {
        field(if index == 0 { "not in" } else { "" }, one_line(line, 120));
    }
    if let Some(tree) = tree(result) {
        field("tree", tree);
    }
    if let Some(merge) = merge(result) {
        field("merge", merge);
    }
    text
}

fn head(result: &TaskResult) -> String {
    let elapsed = result
        .task_result
        .as_ref()
        .map_or_else(String::new, |outcome| {
            format!(" in {}", duration(outcome.elapsed_ms))
        });
    let how = result
        .task_result
        .as_ref()
        .map_or_else(String::new, |outcome| {
            match (outcome.return_code, outcome.signal.as_deref()) {
                (_, Some(signal)) => format!(" ({signal})"),
                (Some(code), None) if code != 0 => format!(" (exit {code})"),
                _ => String::new(),
            }
        });
    let verdict = match result.verification.status {
        VerificationStatus::Skipped if result.verification.checks.is_empty() => {
            paint(FAINT, "not verified")
        }
        status => paint(
            verdict_style(status),
            format_args!("verifier {}", status.as_str()),
        ),
    };
    format!(
        "{} {}{how}{elapsed} · {verdict}\n",
        paint(STRONG, format_args!("task {}", result.number)),
        paint(status_style(result.status), result.status),
    )
}

fn changes(result: &TaskResult) -> String {
    let summary = &result.git_diff_summary;
    if result.modified_files.is_empty() {
        return "none".to_owned();
    }
    format!(
        "{}, {} {}",
        count(result.modified_files.len(), "file"),
        paint(GOOD, format_args!("+{}", summary.insertions)),
        paint(BAD, format_args!("−{}", summary.deletions)),
    )
}

/// Renders one changed file.
pub(crate) fn changed(file: &ModifiedFile) -> String {
    let (letter, style) = match file.change {
        ChangeKind::Added => ("A", GOOD),
        ChangeKind::Modified => ("M", CAUTION),
        ChangeKind::Deleted => ("D", BAD),
        ChangeKind::Renamed => ("R", CAUTION),
    };
    let from = file
        .from
        .as_ref()
        .map_or_else(String::new, |from| format!(" (from {from})"));
    let figures = if file.binary {
        " binary".to_owned()
    } else {
        match (file.added_lines, file.removed_lines) {
            (0, 0) => String::new(),
            (added, 0) => format!(" +{added}"),
            (0, removed) => format!(" −{removed}"),
            (added, removed) => format!(" +{added} −{removed}"),
        }
    };
    format!(
        "{} {}{from}{}",
        paint(style, letter),
        one_line(&file.path.to_string(), 100),
        paint(FAINT, figures)
    )
}

/// Renders one check.
pub(crate) fn checked(check: &CheckResult) -> String {
    let how = match (check.status, check.return_code) {
        (VerificationStatus::Failed, Some(code)) => format!(" (exit {code})"),
        _ => String::new(),
    };
    format!(
        "{} {}{how} {}",
        paint(
            verdict_style(check.status),
            format_args!("{:<7}", check.status.as_str())
        ),
        one_line(&check.check, 80),
        paint(FAINT, duration(check.elapsed_ms))
    )
}

/// Gives the last lines of output, without what could move the cursor.
pub(crate) fn tail(output: &str) -> Vec<String> {
    let clean = harmless(output);
    let lines: Vec<_> = clean.lines().collect();
    lines
        .iter()
        .skip(lines.len().saturating_sub(LINES_SHOWN))
        .map(|line| one_line(line, 110))
        .collect()
}

fn tree(result: &TaskResult) -> Option<String> {
    let path = result
        .isolation
        .workspace_path
        .as_ref()
        .map(|path| paint(PLACE, path))?;
    match result.isolation.cleanup_status {
        CleanupStatus::NotNeeded | CleanupStatus::Removed => None,
        CleanupStatus::Kept => Some(format!("kept at {path}")),
        CleanupStatus::KeptDirty => Some(format!("kept, something in it is not saved: {path}")),
        CleanupStatus::KeptLive => Some(format!("kept, something in it still lives: {path}")),
        CleanupStatus::KeptUnknown => Some(format!("kept, its state is not known: {path}")),
        CleanupStatus::Pending => Some(format!("not removed yet: {path}")),
    }
}

/// Gives the word for what became of the changes.
pub(crate) const fn merge_word(status: MergeStatus) -> &'static str {
    match status {
        MergeStatus::NotRequested => "open",
        MergeStatus::Nothing => "nothing",
        MergeStatus::Merged => "merged",
        MergeStatus::Conflict => "conflict",
        MergeStatus::Refused => "refused",
        MergeStatus::Dropped => "dropped",
        MergeStatus::Undone => "undone",
    }
}

fn merge(result: &TaskResult) -> Option<String> {
    let merge = &result.merge;
    let oid = merge
        .oid
        .as_deref()
        .map_or_else(String::new, |oid| format!(" as {}", short(oid)));
    match merge.status {
        MergeStatus::NotRequested | MergeStatus::Nothing => None,
        MergeStatus::Merged => Some(format!("{}{oid}", paint(GOOD, "merged"))),
        MergeStatus::Conflict => {
            let names: Vec<_> = merge.conflicts.iter().map(ToString::to_string).collect();
            Some(format!(
                "{} in {}; nothing was touched",
                paint(BAD, "conflict"),
                names.join(", ")
            ))
        }
        status => Some(paint(CAUTION, merge_word(status))),
    }
}

/// Renders the next commands.
pub(crate) fn next(commands: &[String]) -> String {
    let mut text = String::new();
    for (index, command) in commands.iter().enumerate() {
        if index == 0 {
            text.push('\n');
        }
        let label = if index == 0 { "next:" } else { "     " };
        let _ = writeln!(text, "{label} {}", paint(PLACE, command));
    }
    text
}

#[cfg(test)]
mod tests {
    use cofferdam_core::error::{ErrorCode, Problem};
    use cofferdam_core::outcome::Status;

    use super::*;
    use crate::render::fixtures::{check, file, outcome, task};
    use crate::render::plain;

    #[test]
    fn a_good_task_is_short_and_ends_with_what_to_do_next() {
        insta::assert_snapshot!(plain(&result(&task())), @r"
        task 3 completed in 1.2 s · verifier passed
          goal      fix the parser
          branch    cofferdam/run/worker from 0123456789
          walls     worktree · bwrap, network none
          changes   2 files, +2 −1
                    M a.txt +1 −1
                    A new.txt +1
          checks    passed  make check 210 ms

        next: cofferdam review 3
              cofferdam merge 3
        ");
    }

    #[test]
    fn a_failed_verifier_shows_the_end_of_its_output() {
        let mut failed = task();
        failed.verification.status = VerificationStatus::Failed;
        failed.verification.checks = vec![
            check("make", VerificationStatus::Passed, "ok\n"),
            check(
                "make check",
                VerificationStatus::Failed,
                "one\ntw\x1b[31mo\nthree\n",
            ),
        ];
        failed.verification.tampered_inputs = vec!["Makefile".into()];
        failed.isolation.cleanup_status = CleanupStatus::Kept;
        failed.left_behind = vec!["2 uncommitted files (--carry all takes them)".to_owned()];
        failed.modified_files = vec![
            file("gone.txt", ChangeKind::Deleted, 0, 3),
            ModifiedFile {
                from: Some("old.bin".into()),
                binary: true,
                ..file("new.bin", ChangeKind::Renamed, 0, 0)
            },
        ];
        insta::assert_snapshot!(plain(&result(&failed)), @r"
        task 3 completed in 1.2 s · verifier failed
          goal      fix the parser
          branch    cofferdam/run/worker from 0123456789
          walls     worktree · bwrap, network none
          changes   2 files, +2 −1
                    D gone.txt −3
                    R new.bin (from old.bin) binary
          checks    passed  make 210 ms
                    failed  make check (exit 1) 210 ms
                    │ one
                    │ tw[31mo
                    │ three
          caution   the task changed what the checks read: Makefile (--verify-from base takes them from the base)
          not in    2 uncommitted files (--carry all takes them)
          tree      kept at /data/worktrees/repo/run/worker

        next: cofferdam review 3
              cofferdam merge 3
        ");
    }

    #[test]
    fn a_task_that_never_began_says_why() {
        let mut refused = task();
        refused.status = Status::Error;
        refused.task_result = None;
        refused.modified_files.clear();
        refused.verification.status = VerificationStatus::Skipped;
        refused.verification.checks.clear();
        refused.error = Some(
            Problem::new(
                ErrorCode::SetupFailed,
                "the set-up command `npm ci` failed with exit 1",
            )
            .with_hint("run it by hand in the tree"),
        );
        insta::assert_snapshot!(plain(&result(&refused)), @r"
        task 3 error · not verified
          goal      fix the parser
          branch    cofferdam/run/worker from 0123456789
          walls     worktree · bwrap, network none
          changes   none

        error[setup_failed]: the set-up command `npm ci` failed with exit 1

        hint: run it by hand in the tree

        next: cofferdam review 3
              cofferdam merge 3
        ");
    }

    #[test]
    fn a_long_list_of_files_is_cut_and_counted() {
        let mut many = task();
        many.task_result = Some(outcome(Status::Completed));
        many.modified_files = (0..FILES_SHOWN + 5)
            .map(|number| file(&format!("f{number}"), ChangeKind::Added, 1, 0))
            .collect();
        let text = plain(&result(&many));
        assert!(text.contains("and 5 more"), "{text}");
        assert!(!text.contains("f20 "), "{text}");
    }
}
