//! Tasks from request to result.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::ErrorCode;
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::{PolicyDocument, ProviderChoice};
use cofferdam_core::spec::{Network, ProviderKind};
use cofferdam_core::task::{
    Carry, ChangeKind, CleanupPolicy, CleanupStatus, IsolationMode, MergeStatus, TaskRequest,
    TaskResult, VerificationStatus, VerifyFrom, WorkspaceStrategy,
};
use cofferdam_exec::Control;
use cofferdam_runtime::{PolicyRequest, TaskProgress};

use crate::support::{Desk, events, has_walls, kinds, provider, shell_task, task, task_with};

fn changes(result: &TaskResult) -> Vec<(String, ChangeKind)> {
    let mut all: Vec<_> = result
        .modified_files
        .iter()
        .map(|file| (file.path.to_string(), file.change))
        .collect();
    all.sort_by(|left, right| left.0.cmp(&right.0));
    all
}

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
    assert_eq!(
        result.next,
        ["cofferdam task diff 1", "cofferdam task merge 1"]
    );
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
    // It can be dropped, and what set-up did is saved before.
    let dropped = runtime.drop_task("1").unwrap();
    assert!(!tree.as_path().exists(), "{dropped:?}");
    assert_eq!(dropped.kept_under.len(), 1, "{dropped:?}");
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
    assert_eq!(
        result.next,
        ["cofferdam task diff 1", "cofferdam task drop 1"]
    );

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

#[test]
fn a6_where_no_tree_can_be_made_no_command_starts() {
    if !has_walls() {
        return;
    }
    let desk = Desk::new();
    let runtime = desk.runtime();
    let result = task(&runtime, shell_task("echo started >started"));
    assert_eq!(result.status, Status::Error);
    assert_eq!(
        result.error.as_ref().unwrap().code,
        ErrorCode::NotARepository,
        "{result:#?}"
    );
    assert_eq!(result.isolation.effective.provider, None);
    assert!(!desk.repo.join("started").exists());
    assert!(!kinds(&events(&runtime)).contains(&"exec.intended"));
    desk.git(&["init", "-q"]);
    let unborn = task(&runtime, shell_task("true"));
    assert_eq!(unborn.error.unwrap().code, ErrorCode::RepoUnborn);
    assert_eq!(unborn.number, 2);

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
fn work_that_is_not_carried_in_is_said_with_the_flag_that_would() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    desk.write("a.txt", "mine\n");
    desk.write("new.txt", "mine\n");
    let runtime = desk.runtime();
    let mut asked = shell_task("cat a.txt; ls new.txt");
    let mut told = Vec::new();
    let result = task_with(
        &runtime,
        PolicyRequest::default(),
        asked.clone(),
        &Control::new(),
        &mut |step| {
            if let TaskProgress::WorkspaceReady { notes, .. } = step {
                told = notes;
            }
        },
    );
    assert_eq!(
        result.task_result.as_ref().unwrap().stdout,
        "one\n",
        "{result:#?}"
    );
    assert_eq!(
        result.left_behind,
        [
            "changes of a.txt (--carry tracked)",
            "the new new.txt (--carry all)"
        ]
    );
    assert_eq!(told, result.left_behind);
    assert!(result.evidence.iter().any(|one| one.kind == "left_behind"));
    asked.carry = Carry::All;
    let result = task(&runtime, asked);
    assert_eq!(
        result.task_result.as_ref().unwrap().stdout,
        "mine\nnew.txt\n",
        "{result:#?}"
    );
    assert_eq!(result.left_behind, Vec::<String>::new());
    assert_eq!(changes(&result), []);
    assert_eq!(desk.read("a.txt"), "mine\n");
}

#[test]
fn c83_each_cleanup_policy_does_as_it_says() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let of = |policy, script: &str| {
        let result = task(
            &runtime,
            TaskRequest {
                cleanup_policy: policy,
                ..shell_task(script)
            },
        );
        let there = result
            .isolation
            .workspace_path
            .as_ref()
            .unwrap()
            .as_path()
            .exists();
        (result.isolation.cleanup_status, there)
    };
    use CleanupPolicy::{Always, Never, OnSuccess};
    assert_eq!(of(OnSuccess, "echo x >x"), (CleanupStatus::Removed, false));
    assert_eq!(
        of(OnSuccess, "echo x >x; exit 1"),
        (CleanupStatus::Kept, true)
    );
    assert_eq!(
        of(Always, "echo x >x; exit 1"),
        (CleanupStatus::Removed, false)
    );
    assert_eq!(of(Never, "echo x >x"), (CleanupStatus::Kept, true));
    // D4, D5: what is not saved is no reason to be quick.
    let nested = "git init -q inner; touch inner/f; git -C inner add f";
    assert_eq!(of(Always, nested), (CleanupStatus::KeptDirty, true));
}

#[test]
fn c83_a_persistent_tree_is_used_again() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut asked =
        shell_task("mkdir -p ignored; echo x >>ignored/log; cat ignored/log; echo y >>a.txt");
    asked.workspace_strategy = WorkspaceStrategy::Persistent;
    asked.worker = Some("steady".to_owned());
    let first = task(&runtime, asked.clone());
    assert_eq!(
        first.isolation.cleanup_status,
        CleanupStatus::Kept,
        "{first:#?}"
    );
    let second = task(&runtime, asked);
    assert_eq!(second.status, Status::Completed, "{second:#?}");
    assert_eq!(
        second.isolation.workspace_path,
        first.isolation.workspace_path
    );
    assert_eq!(second.task_result.as_ref().unwrap().stdout, "x\nx\n");
    assert_eq!(second.modified_files[0].added_lines, 1);
    assert_ne!(second.isolation.branch, first.isolation.branch);
}

#[test]
fn cancelled_at_each_stage_nothing_unrecorded_is_left() {
    if !has_walls() {
        return;
    }
    let stages: [fn(&TaskProgress) -> bool; 5] = [
        |step| matches!(step, TaskProgress::Planned { .. }),
        |step| matches!(step, TaskProgress::WorkspaceReady { .. }),
        |step| matches!(step, TaskProgress::Setup { .. }),
        |step| matches!(step, TaskProgress::Running { .. }),
        |step| matches!(step, TaskProgress::Verifying { .. }),
    ];
    for (number, stage) in stages.into_iter().enumerate() {
        let desk = Desk::with_repository();
        let runtime = desk.runtime();
        let control = Control::new();
        let mut asked = shell_task("echo two >a.txt");
        asked.setup = vec!["true".to_owned()];
        asked.verify = vec!["true".to_owned()];
        let handle = control.clone();
        let result = task_with(
            &runtime,
            PolicyRequest::default(),
            asked,
            &control,
            &mut |step| {
                if stage(&step) {
                    handle.cancel();
                }
            },
        );
        let started = result.task_result.is_some();
        assert_eq!(started, number == 4, "stage {number}: {result:#?}");
        if number == 4 {
            assert_eq!(result.verification.status, VerificationStatus::Error);
            assert!(result.isolation.branch.is_some());
        } else {
            assert_eq!(
                result.status,
                Status::Cancelled,
                "stage {number}: {result:#?}"
            );
        }
        assert_ne!(result.exit_code(), 0);
        let tree = result.isolation.workspace_path.as_ref();
        let is_there = tree.is_some_and(|tree| tree.as_path().exists());
        let is_told = result.isolation.cleanup_status == CleanupStatus::Kept;
        assert_eq!(is_there, is_told, "stage {number}: {result:#?}");
        assert_eq!(desk.read("a.txt"), "one\n");
        if number < 2 {
            let references = desk.git(&["for-each-ref", "--format=%(refname)"]);
            assert_eq!(references, "refs/heads/main", "stage {number}");
        }
        assert_eq!(runtime.tasks().unwrap()[0].status, result.status);
    }
}

#[test]
fn c78_none_and_sandbox_work_in_the_checkout_itself() {
    if !has_walls() {
        return;
    }
    for mode in [IsolationMode::None, IsolationMode::Sandbox] {
        let desk = Desk::with_repository();
        let objects = || desk.git(&["count-objects"]);
        let before = objects();
        let runtime = desk.runtime();
        let mut asked = shell_task("echo two >a.txt; rm b.txt; echo n >new.txt");
        asked.isolation_mode = mode;
        asked.verify = vec!["grep -q two a.txt".to_owned()];
        let result = task(&runtime, asked);
        assert_eq!(result.status, Status::Completed, "{result:#?}");
        assert_eq!(desk.read("a.txt"), "two\n");
        assert_eq!(
            changes(&result),
            [
                ("a.txt".to_owned(), ChangeKind::Modified),
                ("b.txt".to_owned(), ChangeKind::Deleted),
                ("new.txt".to_owned(), ChangeKind::Added),
            ]
        );
        assert_eq!(result.verification.status, VerificationStatus::Passed);
        assert_eq!(result.isolation.mode, mode);
        assert_eq!(
            result.isolation.workspace_path,
            Some(desk.repo.as_path().into())
        );
        assert_eq!(result.isolation.cleanup_status, CleanupStatus::NotNeeded);
        assert_eq!(objects(), before);
        assert_eq!(
            runtime.drop_task("1").unwrap_err().code,
            ErrorCode::TaskState
        );
    }
}

#[test]
fn c79_a_session_reads_the_workspace_and_gives_back_words() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let before = desk.look();
    let runtime = desk.runtime();
    let mut asked = shell_task(
        "cat a.txt; echo x >\"$TMPDIR/scratch\" && cat \"$TMPDIR/scratch\"; echo no >a.txt",
    );
    asked.isolation_mode = IsolationMode::Session;
    let result = task(&runtime, asked);
    assert_eq!(
        result.task_result.as_ref().unwrap().stdout,
        "one\nx\n",
        "{result:#?}"
    );
    assert_eq!(result.status, Status::Failed);
    assert_eq!(desk.look(), before);
    assert_eq!(result.modified_files, []);
    assert_eq!(result.isolation.workspace_path, None);
    let scratch = desk.data.join("scratch");
    assert!(std::fs::read_dir(scratch).map_or(true, |mut all| all.next().is_none()));
}

#[test]
fn what_contradicts_itself_is_refused_before_anything_is_made() {
    let desk = Desk::with_repository();
    let before = desk.look();
    let runtime = desk.runtime();
    let refuse = |policy: PolicyRequest, asked: TaskRequest| {
        let result = task_with(&runtime, policy, asked, &Control::new(), &mut |_| {});
        assert_eq!(result.status, Status::Error, "{result:#?}");
        assert_eq!(result.task_result, None);
        result.error.unwrap().code
    };
    let with = |mode| TaskRequest {
        isolation_mode: mode,
        ..shell_task("true")
    };
    let direct = || provider(ProviderChoice::Direct);
    assert_eq!(
        refuse(direct(), with(IsolationMode::Sandbox)),
        ErrorCode::PolicyContradiction
    );
    assert_eq!(
        refuse(direct(), with(IsolationMode::Session)),
        ErrorCode::Unenforceable
    );
    let persistent = TaskRequest {
        workspace_strategy: WorkspaceStrategy::Persistent,
        ..with(IsolationMode::Sandbox)
    };
    assert_eq!(
        refuse(PolicyRequest::default(), persistent),
        ErrorCode::InvalidRequest
    );
    let base = TaskRequest {
        verify_from: VerifyFrom::Base,
        ..with(IsolationMode::None)
    };
    assert_eq!(
        refuse(PolicyRequest::default(), base),
        ErrorCode::InvalidRequest
    );
    let timeout = TaskRequest {
        verify_timeout: Some(-1.0),
        ..shell_task("true")
    };
    assert_eq!(
        refuse(PolicyRequest::default(), timeout),
        ErrorCode::InvalidTimeout
    );
    let hosts = PolicyRequest {
        owner: PolicyDocument {
            network_allow: Some(vec!["example.com".to_owned()]),
            ..PolicyDocument::default()
        },
        ..PolicyRequest::default()
    };
    assert_eq!(
        refuse(hosts, shell_task("true")),
        ErrorCode::UnsupportedField
    );
    let outside = TaskRequest {
        cwd: Some("/usr".into()),
        ..shell_task("true")
    };
    assert_eq!(refuse(direct(), outside), ErrorCode::CwdOutside);
    assert_eq!(desk.look(), before);
    assert_eq!(
        desk.git(&["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main"
    );
}

#[test]
fn tasks_run_on_direct_and_landlock_too() {
    for choice in [ProviderChoice::Direct, ProviderChoice::Landlock] {
        let desk = Desk::with_repository();
        let before = desk.look();
        let runtime = desk.runtime();
        let mut asked = shell_task("pwd; echo two >a.txt");
        asked.verify = vec!["grep -q two a.txt".to_owned()];
        asked.cleanup_policy = CleanupPolicy::Never;
        let result = task_with(
            &runtime,
            provider(choice),
            asked,
            &Control::new(),
            &mut |_| {},
        );
        let unavailable = result
            .error
            .as_ref()
            .is_some_and(|problem| problem.code == ErrorCode::LandlockUnavailable);
        if unavailable {
            println!("skipped: no Landlock here");
            continue;
        }
        assert_eq!(result.status, Status::Completed, "{result:#?}");
        let tree = result.isolation.workspace_path.as_ref().unwrap();
        assert_eq!(
            result.task_result.as_ref().unwrap().stdout,
            format!("{tree}\n")
        );
        assert_eq!(
            result.verification.status,
            VerificationStatus::Passed,
            "{result:#?}"
        );
        assert_eq!(changes(&result).len(), 1);
        assert_eq!(desk.look(), before);
    }
}

#[test]
fn a_command_starts_where_the_caller_stands() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    desk.write("sub/f", "x");
    desk.git(&["add", "-A"]);
    desk.git(&["commit", "-qm", "sub"]);
    desk.write("sub/made/f", "x");
    let runtime = desk.runtime();
    let with = |cwd: &str| TaskRequest {
        cwd: Some(cwd.into()),
        ..shell_task("pwd")
    };
    let result = task(&runtime, with("sub"));
    let expected = format!("{}/sub\n", desk.repo.display());
    assert_eq!(
        result.task_result.as_ref().unwrap().stdout,
        expected,
        "{result:#?}"
    );
    let absolute = desk.repo.join("sub");
    let result = task(&runtime, with(absolute.to_str().unwrap()));
    assert_eq!(
        result.task_result.as_ref().unwrap().stdout,
        expected,
        "{result:#?}"
    );
    // It is in the checkout, and not in a fresh tree.
    let result = task(&runtime, with("sub/made"));
    assert_eq!(result.error.unwrap().code, ErrorCode::CwdMissing);
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
