//! Checks that decide about a task, in walls of their own and on the tree as it was brought in.
//!
//! The checks run where the task's files are, ignored ones included, because a build needs what
//! set-up made. What they change is not part of the branch, which stands already; a tree that stays
//! is put back afterwards.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::operation::RunCommand;
use cofferdam_core::outcome::{CommandOutcome, Status};
use cofferdam_core::task::{
    CheckResult, ModifiedFile, TaskRequest, Verification, VerificationStatus, VerifyFrom,
};
use cofferdam_exec::{CommandIo, Enclosure};
use serde_json::json;

use super::course::Course;
use super::inputs;
use super::place::{HELPER_TIMEOUT, Place, Prepared, Tree};
use super::request::TaskProgress;
use super::words;

/// Seconds that a check may take where nobody says.
const CHECK_SECONDS: f64 = 1_800.0;
/// Characters of a check's output that a result carries; the tail is kept.
const OUTPUT_CHARACTERS: usize = 4_000;

/// Exit codes by which a shell says that a program is missing or cannot be run.
const CANNOT_RUN: [i32; 2] = [126, 127];

/// Says that nothing was verified.
pub(crate) fn skipped(asked: &TaskRequest) -> Verification {
    Verification {
        status: VerificationStatus::Skipped,
        checks: Vec::new(),
        tampered_inputs: Vec::new(),
        verify_from: asked.verify_from,
        tree: None,
    }
}

/// Runs every check in a fresh enclosure and gives the verdict.
pub(crate) fn verify(
    course: &mut Course<'_>,
    prepared: &Prepared,
    asked: &TaskRequest,
    changes: &[ModifiedFile],
    tree: Option<String>,
) -> Verification {
    let checks = &asked.verify;
    course.say(
        event_type::VERIFIER_STARTED,
        Severity::Info,
        json!({"checks": checks, "tree": tree}),
    );
    let mut verification = Verification {
        tree,
        ..skipped(asked)
    };
    let outcome = enclosed(course, prepared, asked, changes, &mut verification);
    verification.status = match &outcome {
        Err(_) => VerificationStatus::Error,
        Ok(()) => verdict(&verification.checks),
    };
    if let Err(problem) = &outcome {
        for check in checks.iter().skip(verification.checks.len()) {
            verification.checks.push(not_run(check, problem));
        }
    }
    let severity = if verification.status == VerificationStatus::Passed {
        Severity::Info
    } else {
        Severity::Warning
    };
    course.say(
        event_type::VERIFIER_ENDED,
        severity,
        json!({
            "status": verification.status,
            "checks": verification.checks,
            "tampered_inputs": verification.tampered_inputs,
            "verify_from": verification.verify_from,
            "tree": verification.tree,
        }),
    );
    verification
}

fn enclosed(
    course: &mut Course<'_>,
    prepared: &Prepared,
    asked: &TaskRequest,
    changes: &[ModifiedFile],
    verification: &mut Verification,
) -> Result<(), Problem> {
    let spec = prepared.spec(course.runtime, false)?;
    let requested = crate::refusal::requested(&prepared.resolved.policy);
    let cwd = prepared.directory(&spec, asked.cwd.as_ref());
    let below = cwd.below(&spec.workspace).unwrap_or_default();
    verification.tampered_inputs =
        inputs::tampered(&asked.verify, changes, &BytePath::from_bytes(below));
    let enclosure = course
        .runtime
        .plane
        .enclose(spec, requested, &course.subject)?;
    if asked.verify_from == VerifyFrom::Base
        && let Place::Tree(tree) = &prepared.place
    {
        for path in &verification.tampered_inputs {
            put_base_file(tree, &enclosure, path)?;
        }
    }
    let of = asked.verify.len();
    for (index, check) in asked.verify.iter().enumerate() {
        course.tell(TaskProgress::Verifying {
            step: index + 1,
            of,
            check: check.clone(),
        });
        let result = if course.control.is_cancelled() {
            not_run(check, &crate::run::cancelled())
        } else {
            let request = RunCommand {
                cwd: Some(cwd.clone()),
                timeout: Some(asked.verify_timeout.unwrap_or(CHECK_SECONDS)),
                ..RunCommand::shell(check.as_str())
            };
            let io = CommandIo::Capture { input: None };
            let mut outcome = course.run_in(&prepared.resolved, &enclosure, &request, io)?;
            course.keep_command("check", check, &mut outcome);
            check_result(check, &outcome, course.control.is_interrupted())
        };
        course.say(
            event_type::VERIFIER_CHECK,
            Severity::Info,
            json!({
                "check": result.check,
                "status": result.status,
                "return_code": result.return_code,
                "elapsed_ms": result.elapsed_ms,
                "command_id": result.command_id,
                "line": words::check_line(&result),
            }),
        );
        course.tell(TaskProgress::Verified {
            check: check.clone(),
            status: result.status,
        });
        verification.checks.push(result);
    }
    if let Place::Tree(tree) = &prepared.place {
        put_back(tree, &enclosure);
    }
    enclosure.close();
    Ok(())
}

/// Puts a file as it was at the base into the verifier's tree, or takes it out of it.
///
/// What it holds is read outside, from the user's own repository; git inside would obey whatever the
/// task left in its configuration.
fn put_base_file(tree: &Tree, enclosure: &Enclosure, path: &BytePath) -> Result<(), Problem> {
    let content = tree.workspaces.file_at_base(&tree.record, path)?;
    let script = match &content {
        None => r#"rm -rf -- "./$1""#,
        Some(_) => {
            r#"rm -rf -- "./$1" && mkdir -p -- "./$(dirname -- "$1")" && cat >"./$1" && { test "$2" = plain || chmod +x -- "./$1"; }"#
        }
    };
    let kind = match &content {
        Some(content) if content.starts_with(b"#!") => "program",
        _ => "plain",
    };
    let argv: Vec<BytePath> = ["/bin/sh", "-c", script, "sh"]
        .into_iter()
        .map(BytePath::from)
        .chain([path.clone(), BytePath::from(kind)])
        .collect();
    let top = &enclosure.spec().workspace;
    let output = enclosure.run_quiet(&argv, &[], top, content.as_deref(), HELPER_TIMEOUT)?;
    if output.code == Some(0) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Problem::new(
        cofferdam_core::error::ErrorCode::Io,
        format!("cannot take {path} from the base: {said}"),
    ))
}

/// Puts a tree back to what was brought in, as far as git inside can: what the checks changed is
/// nobody's work.
fn put_back(tree: &Tree, enclosure: &Enclosure) {
    let Some(harvest) = &tree.record.harvest else {
        return;
    };
    let git = tree.workspaces.git_program();
    let calls: [&[&str]; 2] = [
        &["read-tree", "--reset", "-u", &harvest.commit],
        &["clean", "-ffdq"],
    ];
    for arguments in calls {
        let argv: Vec<BytePath> = std::iter::once(git.clone())
            .chain(
                [
                    "-c",
                    "core.hooksPath=/dev/null",
                    "-c",
                    "core.fsmonitor=false",
                ]
                .iter()
                .chain(arguments)
                .map(|word| BytePath::from(*word)),
            )
            .collect();
        let top = &enclosure.spec().workspace;
        // A tree that cannot be put back is only less tidy: its work is brought in.
        let _ = enclosure.run_quiet(&argv, &[], top, None, HELPER_TIMEOUT);
    }
}

fn not_run(check: &str, problem: &Problem) -> CheckResult {
    CheckResult {
        check: check.to_owned(),
        status: VerificationStatus::Error,
        return_code: None,
        elapsed_ms: 0,
        output: problem.message.clone(),
        command_id: None,
    }
}

fn check_result(check: &str, outcome: &CommandOutcome, interrupted: bool) -> CheckResult {
    let status = match (outcome.status, outcome.return_code) {
        (Status::Completed, _) => VerificationStatus::Passed,
        // Whoever ended it from outside has made no judgement.
        _ if interrupted => VerificationStatus::Error,
        (Status::Failed, Some(code)) if CANNOT_RUN.contains(&code) => VerificationStatus::Error,
        (Status::Failed | Status::Timeout, _) => VerificationStatus::Failed,
        // A check that was cancelled has not passed.
        _ => VerificationStatus::Error,
    };
    let mut output = outcome.output.clone();
    if let Some(problem) = &outcome.error {
        output.push_str(&problem.message);
    }
    if outcome.status == Status::Timeout {
        output.push_str("(ended at its time limit)");
    }
    CheckResult {
        check: check.to_owned(),
        status,
        return_code: outcome.return_code,
        elapsed_ms: outcome.elapsed_ms,
        output: tail(&output, OUTPUT_CHARACTERS),
        command_id: Some(outcome.command_id.clone()),
    }
}

/// Gives the end of a text, in whole characters.
pub(crate) fn tail(text: &str, characters: usize) -> String {
    let start = text
        .char_indices()
        .rev()
        .nth(characters.saturating_sub(1))
        .map_or(0, |(at, _)| at);
    text[start..].to_owned()
}

fn verdict(checks: &[CheckResult]) -> VerificationStatus {
    let has = |status| checks.iter().any(|check| check.status == status);
    if has(VerificationStatus::Error) {
        VerificationStatus::Error
    } else if has(VerificationStatus::Failed) {
        VerificationStatus::Failed
    } else if checks.is_empty() {
        VerificationStatus::Skipped
    } else {
        VerificationStatus::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use VerificationStatus::{Error, Failed, Passed, Skipped};

    #[test]
    fn c107_the_worst_check_decides() {
        let check = |status| CheckResult {
            check: "c".to_owned(),
            status,
            return_code: None,
            elapsed_ms: 0,
            output: String::new(),
            command_id: None,
        };
        let of = |statuses: &[VerificationStatus]| {
            verdict(
                &statuses
                    .iter()
                    .map(|status| check(*status))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&[Passed, Passed]), Passed);
        assert_eq!(of(&[Passed, Failed]), Failed);
        assert_eq!(of(&[Failed, Error]), Error);
        assert_eq!(of(&[]), Skipped);
    }

    #[test]
    fn tails_end_at_characters() {
        assert_eq!(tail("größe", 3), "öße");
        assert_eq!(tail("ab", 3), "ab");
        assert_eq!(tail("", 3), "");
    }
}
