//! The words of a result: names, one sentence, the next two commands.

use cofferdam_core::outcome::Status;
use cofferdam_core::task::{
    CheckResult, CleanupStatus, DiffSummary, IsolationMode, TaskResult, Verification,
    VerificationStatus,
};
use cofferdam_exec::workspace::Harvest;

/// Longest name that is made up for a worker.
const WORKER_CHARACTERS: usize = 32;

/// Makes the name of a worker from a goal.
pub fn worker_name(goal: &str) -> String {
    let mut name = String::new();
    for word in goal
        .split(|one: char| !one.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        if !name.is_empty() && name.len() + 1 + word.len() > WORKER_CHARACTERS {
            break;
        }
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&word.to_ascii_lowercase());
    }
    name.truncate(WORKER_CHARACTERS);
    if name.is_empty() {
        return "worker".to_owned();
    }
    name
}

fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{:.1} s", milliseconds as f64 / 1_000.0),
        _ => format!(
            "{} min {} s",
            milliseconds / 60_000,
            milliseconds / 1_000 % 60
        ),
    }
}

fn count(number: u64, one: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {one}s")
    }
}

fn checks(verification: &Verification) -> String {
    let of = verification.checks.len();
    let good = verification
        .checks
        .iter()
        .filter(|check| check.status == VerificationStatus::Passed)
        .count();
    match verification.status {
        VerificationStatus::Skipped => "not verified".to_owned(),
        VerificationStatus::Passed => format!("verifier passed ({good} of {of})"),
        VerificationStatus::Failed => format!("verifier failed ({good} of {of} passed)"),
        VerificationStatus::Error => format!("verifier could not run ({good} of {of} passed)"),
    }
}

/// Puts a result into one sentence.
pub(crate) fn sentence(result: &TaskResult) -> String {
    if result.task_result.is_none()
        && let Some(problem) = &result.error
    {
        return format!("the command was not started: {}", problem.message);
    }
    let mut text = match &result.task_result {
        Some(outcome) => {
            let took = duration(outcome.elapsed_ms);
            match (result.status, outcome.return_code, &outcome.signal) {
                (Status::Completed, ..) => format!("completed in {took}"),
                (Status::Failed, Some(code), _) => {
                    format!("failed with exit code {code} after {took}")
                }
                (Status::Failed, None, Some(signal)) => format!("ended by {signal} after {took}"),
                (status, ..) => format!("{status} after {took}"),
            }
        }
        None => result.status.to_string(),
    };
    let changed = match result.git_diff_summary.files {
        0 => "no file changed".to_owned(),
        files => format!("{} changed", count(files, "file")),
    };
    text.push_str(", ");
    text.push_str(&changed);
    text.push_str(", ");
    text.push_str(&checks(&result.verification));
    if let Some(problem) = &result.error {
        text.push_str("; ");
        text.push_str(&problem.message);
    }
    text
}

/// Gives the next two commands.
pub(crate) fn next(result: &TaskResult) -> Vec<String> {
    let number = result.number;
    let on = |verb: &str| format!("cofferdam {verb} {number}");
    let evidence = format!("cofferdam evidence {number}");
    let has_tree = matches!(
        result.isolation.cleanup_status,
        CleanupStatus::Kept | CleanupStatus::KeptDirty | CleanupStatus::KeptUnknown
    );
    let is_own = result.isolation.mode == IsolationMode::Worktree;
    if is_own && result.isolation.branch.is_some() {
        let is_good = result.status == Status::Completed
            && result.error.is_none()
            && matches!(
                result.verification.status,
                VerificationStatus::Passed | VerificationStatus::Skipped
            );
        return vec![on("review"), on(if is_good { "merge" } else { "drop" })];
    }
    if is_own && has_tree {
        return vec![on("review"), on("drop")];
    }
    vec![on("task show"), evidence]
}

/// Says how files were saved without the task's own git directory, where they were.
pub(crate) fn rescued(harvest: &Harvest) -> Option<String> {
    let why = harvest.rescued.as_ref()?;
    Some(format!(
        "its files are saved as one commit on the base, without what it committed itself: {why}"
    ))
}

/// Puts figures into a line for people.
pub(crate) fn figures(summary: &DiffSummary) -> String {
    format!(
        "{}, {} added, {} removed",
        count(summary.files, "file"),
        count(summary.insertions, "line"),
        count(summary.deletions, "line")
    )
}

/// Puts a check into a line.
pub(crate) fn check_line(check: &CheckResult) -> String {
    let code = check
        .return_code
        .map_or_else(String::new, |code| format!(" (exit {code})"));
    format!("{}: {}{code}", check.check, check.status.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_get_plain_names() {
        assert_eq!(worker_name("Fix the parser!"), "fix-the-parser");
        assert_eq!(worker_name("  "), "worker");
        assert_eq!(worker_name("größer"), "gr-er");
        assert_eq!(worker_name(".lock"), "lock");
        let long = worker_name("a goal that goes on and on for very many words indeed");
        assert_eq!(long, "a-goal-that-goes-on-and-on-for");
        assert!(worker_name(&"x".repeat(100)).len() <= WORKER_CHARACTERS);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(duration(12), "12 ms");
        assert_eq!(duration(1_250), "1.2 s");
        assert_eq!(duration(61_000), "1 min 1 s");
    }
}
