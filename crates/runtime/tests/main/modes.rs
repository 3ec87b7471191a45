//! Isolation modes, cleanup, carrying and cancelling.

use cofferdam_core::error::ErrorCode;
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::{PolicyDocument, ProviderChoice};
use cofferdam_core::spec::Network;
use cofferdam_core::task::{
    Carry, ChangeKind, CleanupPolicy, CleanupStatus, IsolationMode, TaskRequest,
    VerificationStatus, VerifyFrom, WorkspaceStrategy,
};
use cofferdam_exec::Control;
use cofferdam_runtime::{PolicyRequest, TaskProgress};

use crate::support::{Desk, has_walls, provider, shell_task, task, task_with};

use crate::support::changes;

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
    assert_eq!(
        of(CleanupPolicy::OnSuccess, "echo x >x"),
        (CleanupStatus::Removed, false)
    );
    assert_eq!(
        of(CleanupPolicy::OnSuccess, "echo x >x; exit 1"),
        (CleanupStatus::Kept, true)
    );
    assert_eq!(
        of(CleanupPolicy::Always, "echo x >x; exit 1"),
        (CleanupStatus::Removed, false)
    );
    assert_eq!(
        of(CleanupPolicy::Never, "echo x >x"),
        (CleanupStatus::Kept, true)
    );
    // D4, D5: what is not saved is no reason to be quick.
    let nested = "git init -q inner; touch inner/f; git -C inner add f";
    assert_eq!(
        of(CleanupPolicy::Always, nested),
        (CleanupStatus::KeptDirty, true)
    );
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
        let references = || {
            let all = desk.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
            let is_snapshot = |line: &&str| line.starts_with("refs/cofferdam/snapshots/");
            let others: Vec<_> = all.lines().filter(|line| !is_snapshot(line)).collect();
            others.join("\n")
        };
        let before = references();
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
        assert_eq!(references(), before);
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
            network: Some(Network::Full),
            network_deny: Some(vec!["example.com".to_owned()]),
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
    // It is in the checkout, and not in a fresh tree, unless set-up makes it.
    let mut made = with("sub/made");
    made.setup = vec!["pwd; mkdir sub/made".to_owned()];
    let result = task(&runtime, made);
    let below = format!("{}/sub/made\n", desk.repo.display());
    assert_eq!(
        result.task_result.as_ref().map(|one| &one.stdout),
        Some(&below),
        "{result:#?}"
    );
    let result = task(&runtime, with("sub/made"));
    assert_eq!(result.error.unwrap().code, ErrorCode::CwdMissing);
}
