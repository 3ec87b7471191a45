//! Tasks from request to result.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::ErrorCode;
use cofferdam_core::operation::CommandForm;
use cofferdam_core::outcome::Status;
use cofferdam_core::spec::{Network, ProviderKind};
use cofferdam_core::task::{
    ChangeKind, CleanupPolicy, CleanupStatus, IsolationMode, MergeStatus, TaskRequest,
    VerificationStatus,
};

use cofferdam_exec::{CommandIo, Control};
use cofferdam_runtime::{FrontDoor, PolicyRequest, TaskRunRequest};

use crate::support::{Desk, events, has_walls, kinds, shell_task, task};

use crate::support::changes;

#[test]
fn c81_c1_a_task_gives_the_whole_result_and_the_checkout_is_untouched() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let before = desk.look();
    let runtime = desk.runtime();
    let mut asked = shell_task(
        "echo two >a.txt; echo n >new.txt; printf '\\0\\1' >bin.dat; rm Makefile; git mv b.txt c.txt; \
         mkdir ignored; echo x >ignored/x; echo done",
    );
    asked.verify = vec!["grep -q two a.txt".to_owned(), "test -e c.txt".to_owned()];
    asked.cleanup_policy = CleanupPolicy::Never;
    let result = task(&runtime, asked);
    assert_eq!(result.status, Status::Completed, "{result:#?}");
    assert_eq!(desk.look(), before);
    assert_eq!(
        changes(&result),
        [
            ("Makefile".to_owned(), ChangeKind::Deleted),
            ("a.txt".to_owned(), ChangeKind::Modified),
            ("bin.dat".to_owned(), ChangeKind::Added),
            ("c.txt".to_owned(), ChangeKind::Renamed),
            ("new.txt".to_owned(), ChangeKind::Added),
        ]
    );
    assert!(
        result
            .modified_files
            .iter()
            .any(|file| file.binary && file.path == "bin.dat".into())
    );
    assert!(
        result
            .modified_files
            .iter()
            .any(|file| file.untracked && file.path == "new.txt".into())
    );
    assert_eq!(result.verification.status, VerificationStatus::Passed);
    // Both are named by a check, and changed.
    assert_eq!(
        result.verification.tampered_inputs,
        [BytePath::from("a.txt"), BytePath::from("c.txt")]
    );
    assert_eq!(result.task_result.as_ref().unwrap().stdout, "done\n");
    let branch = result.isolation.branch.clone().unwrap();
    assert!(
        branch.starts_with("cofferdam/1-") && branch.ends_with("/try-it"),
        "{branch}"
    );
    assert_eq!(desk.git(&["show", &format!("{branch}:a.txt")]), "two");
    assert_eq!(result.isolation.cleanup_status, CleanupStatus::Kept);
    assert_eq!(
        result.isolation.effective.provider,
        Some(ProviderKind::Bwrap)
    );
    assert_eq!(result.isolation.effective.network, Network::Restricted);
    assert_eq!(
        result.isolation.base,
        Some(desk.git(&["rev-parse", "HEAD"]))
    );
    assert!(
        result
            .isolation
            .workspace_path
            .as_ref()
            .unwrap()
            .as_path()
            .join("new.txt")
            .exists()
    );
    assert_eq!(result.merge.status, MergeStatus::NotRequested);
    assert_eq!(result.next, ["cofferdam review 1", "cofferdam merge 1"]);
    assert_eq!(result.exit_code(), 0);
    for kind in ["command", "files_changed", "check"] {
        assert!(
            result
                .evidence
                .iter()
                .any(|one| one.kind == kind && one.pos.is_some()),
            "{kind}"
        );
    }

    let told = runtime.task("1").unwrap();
    assert_eq!(told.result.as_ref(), Some(&result));
    assert_eq!(runtime.task(result.task_id.as_str()).unwrap(), told);
    let events = events(&runtime);
    let states: Vec<_> = events
        .iter()
        .filter(|event| event.kind == "task.state")
        .map(|event| event.data["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        states,
        [
            "planned",
            "creating",
            "seeding",
            "setup",
            "running",
            "harvesting",
            "verifying",
            "settled"
        ]
    );
    let messages: Vec<_> = events
        .iter()
        .filter(|event| event.kind == "message.sent")
        .collect();
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0].data["text"], "try it");
    assert_eq!(messages[0].thread, messages[1].thread);
    assert_eq!(messages[1].data["text"], result.summary.as_str());
}

#[test]
fn a_good_task_leaves_only_its_branch() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let result = task(&runtime, shell_task("echo two >a.txt; git commit -qam two"));
    assert_eq!(result.status, Status::Completed, "{result:#?}");
    assert_eq!(
        result.isolation.cleanup_status,
        CleanupStatus::Removed,
        "{result:#?}"
    );
    assert!(!result.isolation.workspace_path.unwrap().as_path().exists());
    assert!(result.evidence.iter().any(|one| one.kind == "removal"));
    let references = desk.git(&["for-each-ref", "--format=%(refname)"]);
    assert_eq!(references.lines().count(), 2, "{references}");

    let idle = task(&runtime, shell_task("true"));
    assert_eq!(idle.number, 2);
    assert_eq!(idle.isolation.branch, None);
    assert_eq!(idle.merge.status, MergeStatus::Nothing);
    assert_eq!(idle.modified_files, []);
    assert_eq!(
        desk.git(&["for-each-ref", "--format=%(refname)"]),
        references
    );
}

#[test]
fn a16_setup_that_fails_never_starts_the_command() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut asked = shell_task("echo started >started");
    asked.setup = vec![
        "echo first >first".to_owned(),
        "echo why >&2; exit 3".to_owned(),
    ];
    asked.verify = vec!["true".to_owned()];
    let result = task(&runtime, asked);
    assert_eq!(result.status, Status::Error, "{result:#?}");
    let problem = result.error.clone().unwrap();
    assert_eq!(problem.code, ErrorCode::SetupFailed);
    assert!(problem.message.contains("exit code 3") && problem.message.contains("why"));
    assert_eq!(result.task_result, None);
    assert_eq!(result.verification.status, VerificationStatus::Skipped);
    assert_eq!(result.exit_code(), 125);
    let tree = result.isolation.workspace_path.clone().unwrap();
    assert_eq!(result.isolation.cleanup_status, CleanupStatus::Kept);
    assert!(tree.as_path().join("first").exists());
    assert!(!tree.as_path().join("started").exists());
    assert_eq!(
        result
            .evidence
            .iter()
            .filter(|one| one.kind == "setup")
            .count(),
        2
    );
    // It can be dropped, and what set-up did is saved before: the snapshot after the step that
    // changed something, and the branch.
    let dropped = runtime.drop_task("1").unwrap();
    assert!(!tree.as_path().exists(), "{dropped:?}");
    let mut kept: Vec<_> = dropped
        .kept_under
        .iter()
        .filter_map(|name| name.split("/try-it/").nth(1))
        .collect();
    kept.sort_unstable();
    assert_eq!(
        kept,
        ["branch", "saved/cofferdam/snapshots/1"],
        "{dropped:?}"
    );
}

#[test]
fn set_up_of_a_good_task_runs_before_it() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut asked = shell_task("cat ignored/made");
    asked.setup = vec!["mkdir ignored && echo made >ignored/made".to_owned()];
    asked.verify = vec!["test -e ignored/made".to_owned()];
    let result = task(&runtime, asked);
    assert_eq!(
        result.task_result.as_ref().unwrap().stdout,
        "made\n",
        "{result:#?}"
    );
    assert_eq!(result.verification.status, VerificationStatus::Passed);
}

#[test]
fn a6_where_no_tree_can_be_made_no_command_starts() {
    if !has_walls() {
        return;
    }
    let desk = Desk::new();
    let runtime = desk.runtime();
    // What is refused before there is a task uses up no number.
    let refused = |policy: PolicyRequest| {
        let request = TaskRunRequest {
            policy,
            task: shell_task("echo started >started"),
            front_door: FrontDoor::Embedded,
            io: CommandIo::Capture { input: None },
            progress: &mut |_| {},
            control: Control::new(),
        };
        runtime.run_task(request).unwrap_err().code
    };
    assert_eq!(refused(PolicyRequest::default()), ErrorCode::NotARepository);
    assert!(!desk.repo.join("started").exists());
    assert!(!kinds(&events(&runtime)).contains(&"exec.intended"));
    desk.git(&["init", "-q"]);
    let unborn = task(&runtime, shell_task("true"));
    assert_eq!(unborn.error.unwrap().code, ErrorCode::RepoUnborn);
    assert_eq!(unborn.number, 1);
    let mut unknown = PolicyRequest::default();
    unknown.owner.profile = Some("nobody".to_owned());
    refused(unknown);
    assert_eq!(runtime.tasks().unwrap().len(), 1);

    let desk = Desk::with_repository();
    desk.git(&["branch", "cofferdam"]);
    let runtime = desk.runtime();
    let taken = task(&runtime, shell_task("echo started >started"));
    assert_eq!(taken.error.unwrap().code, ErrorCode::BranchTaken);
    assert!(!kinds(&events(&runtime)).contains(&"exec.intended"));
}

#[test]
fn b1_the_users_checkout_is_out_of_reach() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let before = desk.look();
    let runtime = desk.runtime();
    let script = format!(
        "pwd; git rev-parse --show-toplevel; echo two >{0}/a.txt; git config user.name x; git stash -q; \
         git stash pop -q; GIT_DIR={0}/.git git config core.bare true",
        desk.repo.display()
    );
    let result = task(&runtime, shell_task(&script));
    let outcome = result.task_result.as_ref().unwrap();
    let repo = desk.repo.display();
    assert!(
        outcome.stdout.starts_with(&format!("{repo}\n{repo}\n")),
        "{outcome:#?}"
    );
    assert_eq!(desk.look(), before);
    assert_eq!(
        changes(&result),
        [("a.txt".to_owned(), ChangeKind::Modified)]
    );
}

#[test]
fn c81_a_change_of_equal_size_in_the_second_of_the_checkout_is_seen() {
    if !has_walls() {
        return;
    }
    for mode in [IsolationMode::Worktree, IsolationMode::Sandbox] {
        let desk = Desk::with_repository();
        let runtime = desk.runtime();
        let asked = TaskRequest {
            isolation_mode: mode,
            ..shell_task("echo two >a.txt; sleep 1.1")
        };
        let result = task(&runtime, asked);
        assert_eq!(
            changes(&result),
            [("a.txt".to_owned(), ChangeKind::Modified)],
            "{result:#?}"
        );
    }
}

#[test]
fn a_program_that_is_not_there_leaves_nothing() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let asked = TaskRequest {
        command: CommandForm::Argv(vec!["no-such-program".into()]),
        ..shell_task("")
    };
    let result = task(&runtime, asked);
    assert_eq!(result.status, Status::Error, "{result:#?}");
    assert_eq!(result.exit_code(), 127);
    assert_eq!(result.isolation.cleanup_status, CleanupStatus::Removed);
    assert!(!result.isolation.workspace_path.unwrap().as_path().exists());
    let references = desk.git(&["for-each-ref", "--format=%(refname)"]);
    assert_eq!(references, "refs/heads/main");
}

#[test]
fn files_are_credited_to_the_command_that_changed_them() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut asked = shell_task("echo main >b.txt; echo n >new.txt");
    asked.setup = vec!["echo set up >a.txt".to_owned(), "true".to_owned()];
    task(&runtime, asked);
    let review = runtime.review("1", false).unwrap();
    let kind_of = |id: &String| {
        let commands = &review.changes.commands;
        let found = commands.iter().find(|one| one.command_id == *id);
        found.map(|one| one.kind.clone()).unwrap_or_default()
    };
    let credited: Vec<_> = review
        .changes
        .files
        .iter()
        .map(|file| {
            let kinds: Vec<_> = file.commands.iter().map(kind_of).collect();
            format!("{}: {}", file.file.path, kinds.join(", "))
        })
        .collect();
    assert_eq!(
        credited,
        ["a.txt: setup", "b.txt: command", "new.txt: command"]
    );
}
