//! Checks that decide about a task.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::outcome::Status;
use cofferdam_core::task::{CleanupPolicy, CleanupStatus, VerificationStatus, VerifyFrom};

use crate::support::{Desk, has_walls, shell_task, task};

use crate::support::changes;

#[test]
fn c107_a_check_that_fails_decides() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut asked = shell_task("echo two >a.txt");
    asked.verify = vec!["echo no; exit 1".to_owned(), "true".to_owned()];
    let result = task(&runtime, asked.clone());
    assert_eq!(result.status, Status::Completed, "{result:#?}");
    assert_eq!(result.verification.status, VerificationStatus::Failed);
    assert_eq!(result.verification.checks[0].output, "no\n");
    assert_eq!(
        result.verification.checks[1].status,
        VerificationStatus::Passed
    );
    assert_eq!(result.exit_code(), 1);
    assert_eq!(result.isolation.cleanup_status, CleanupStatus::Kept);
    assert_eq!(result.next, ["cofferdam review 1", "cofferdam drop 1"]);

    asked.verify = vec!["no-such-program --x".to_owned()];
    let missing = task(&runtime, asked.clone());
    assert_eq!(
        missing.verification.status,
        VerificationStatus::Error,
        "{missing:#?}"
    );
    assert_eq!(missing.exit_code(), 1);

    asked.verify = vec!["sleep 60".to_owned()];
    asked.verify_timeout = Some(0.2);
    let late = task(&runtime, asked.clone());
    assert_eq!(
        late.verification.status,
        VerificationStatus::Failed,
        "{late:#?}"
    );

    // A command that failed is not verified.
    asked.command = shell_task("exit 7").command;
    let failed = task(&runtime, asked);
    assert_eq!(failed.verification.status, VerificationStatus::Skipped);
    assert_eq!(failed.exit_code(), 7);
}

#[test]
fn c107_a_task_that_changes_its_own_checks_is_found_out() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    desk.write("check.sh", "#!/bin/sh\ngrep -q right a.txt\n");
    desk.git(&["add", "-A"]);
    desk.git(&["commit", "-qm", "check"]);
    let runtime = desk.runtime();
    // git of the task's own would leave the file alone; the base comes from outside.
    let cheat = "printf '#!/bin/sh\\nexit 0\\n' >check.sh; chmod +x check.sh; echo wrong >a.txt; \
                 git config filter.x.smudge false; echo '* filter=x' >.git/info/attributes; \
                 git update-index --skip-worktree a.txt";
    let mut asked = shell_task(cheat);
    asked.verify = vec!["./check.sh".to_owned()];
    asked.cleanup_policy = CleanupPolicy::Never;
    let cheated = task(&runtime, asked.clone());
    assert_eq!(
        cheated.verification.status,
        VerificationStatus::Passed,
        "{cheated:#?}"
    );
    assert_eq!(
        cheated.verification.tampered_inputs,
        [BytePath::from("check.sh")]
    );
    asked.verify_from = VerifyFrom::Base;
    let found_out = task(&runtime, asked);
    assert_eq!(
        found_out.verification.status,
        VerificationStatus::Failed,
        "{found_out:#?}"
    );
    assert_eq!(found_out.verification.verify_from, VerifyFrom::Base);
    // Only the verifier's tree had the old file; the branch has what the task left.
    let branch = found_out.isolation.branch.unwrap();
    assert!(
        desk.git(&["show", &format!("{branch}:check.sh")])
            .contains("exit 0")
    );
}

#[test]
fn what_a_check_changes_is_not_in_the_branch() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut asked = shell_task("echo two >a.txt");
    asked.verify = vec!["echo check >a.txt; echo new >by-check".to_owned()];
    asked.cleanup_policy = CleanupPolicy::Never;
    let result = task(&runtime, asked);
    let branch = result.isolation.branch.clone().unwrap();
    assert_eq!(desk.git(&["show", &format!("{branch}:a.txt")]), "two");
    assert_eq!(changes(&result).len(), 1);
    let tree = result.isolation.workspace_path.unwrap();
    assert_eq!(
        std::fs::read_to_string(tree.as_path().join("a.txt")).unwrap(),
        "two\n"
    );
    assert!(!tree.as_path().join("by-check").exists());
}
