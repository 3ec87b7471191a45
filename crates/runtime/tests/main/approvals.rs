//! Permissions and approvals where commands run: rows 64, 65, 68, 70, 72, 76.

use std::thread;
use std::time::{Duration, Instant};

use cofferdam_core::approval::{
    Approval, ApprovalAnswer, ApprovalKind, ApprovalPreview, ApprovalState, Remember,
};
use cofferdam_core::authority::{Actor, Authority};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::decide::{Ground, Operation};
use cofferdam_core::error::ErrorCode;
use cofferdam_core::event::Subject;
use cofferdam_core::operation::{AnswerApproval, ListApprovals, RunCommand};
use cofferdam_core::outcome::{CommandOutcome, Status};
use cofferdam_core::policy::{EffectivePolicy, Layer, Permission, PolicyDocument, Sourced};
use cofferdam_core::spec::ProviderKind;
use cofferdam_exec::{CommandIo, Control};
use cofferdam_runtime::{FrontDoor, OperationQuestion, PolicyRequest, RunRequest, Runtime};

use crate::support::{Desk, events, has_walls, shell_task, task_with};

fn policy(permission: Permission) -> PolicyRequest {
    PolicyRequest {
        owner: PolicyDocument {
            permission: Some(permission),
            ..PolicyDocument::default()
        },
        ..PolicyRequest::default()
    }
}

fn run(runtime: &Runtime, permission: Permission, text: &str, control: &Control) -> CommandOutcome {
    runtime.run_command(RunRequest {
        policy: policy(permission),
        command: RunCommand::shell(text),
        front_door: FrontDoor::Protocol,
        io: CommandIo::Capture { input: None },
        control: control.clone(),
    })
}

/// Waits for the one question that is open.
fn question(runtime: &Runtime) -> Approval {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let page = runtime
            .approvals(&ListApprovals::default())
            .expect("a list");
        if let Some(first) = page.approvals.into_iter().next() {
            return first;
        }
        assert!(Instant::now() < until, "nothing was asked");
        thread::sleep(Duration::from_millis(10));
    }
}

fn answer(runtime: &Runtime, asked: &Approval, answer: ApprovalAnswer) -> bool {
    let request = AnswerApproval {
        approval_id: asked.ask.approval_id.clone(),
        answer,
        reason: Some("because".to_owned()),
        remember: Remember::Once,
        remember_days: None,
    };
    runtime
        .answer_approval(&request, FrontDoor::CommandLine)
        .expect("an answer")
        .counted
}

const APPEND: &str = "echo once >> made && echo done";

#[test]
fn row_64_readonly_runs_what_reads_and_lets_nothing_be_written() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let control = Control::new();
    let read = run(&runtime, Permission::Readonly, "cat a.txt", &control);
    assert_eq!(read.status, Status::Completed, "{:?}", read.error);
    assert_eq!(read.stdout, "one\n");
    let wrote = run(&runtime, Permission::Readonly, APPEND, &control);
    assert_eq!(wrote.status, Status::Failed);
    assert!(!desk.repo.join("made").exists());
    let list = ListApprovals {
        all: true,
        ..ListApprovals::default()
    };
    assert!(
        runtime
            .approvals(&list)
            .expect("a list")
            .approvals
            .is_empty()
    );
}

#[test]
fn row_65_a_permission_that_holds_back_puts_walls_up() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut direct = policy(Permission::AutoApproval);
    direct.owner.provider = None;
    desk_policy(&desk, "schema = 1\nprovider = \"direct\"\n");
    let outcome = |policy: PolicyRequest| {
        runtime.run_command(RunRequest {
            policy,
            command: RunCommand::shell("true"),
            front_door: FrontDoor::Embedded,
            io: CommandIo::Capture { input: None },
            control: Control::new(),
        })
    };
    let locked = outcome(direct);
    assert_eq!(locked.status, Status::Completed, "{:?}", locked.error);
    assert_eq!(
        locked.isolation.effective.provider,
        Some(ProviderKind::Bwrap)
    );
    let left = outcome(PolicyRequest::default());
    assert_eq!(
        left.isolation.effective.provider,
        Some(ProviderKind::Direct)
    );
}

fn desk_policy(desk: &Desk, text: &str) {
    let folder = desk.home.join(".config/cofferdam");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("policy.toml"), text).expect("a policy");
}

#[test]
fn row_68_76_it_writes_once_and_only_after_another_process_has_approved() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    // As another process would: its own runtime over the same data directory.
    let other = desk.runtime();
    let outcome = thread::scope(|scope| {
        let waits = scope.spawn(|| run(&runtime, Permission::Approval, APPEND, &Control::new()));
        let asked = question(&other);
        assert!(
            !desk.repo.join("made").exists(),
            "written before the answer"
        );
        assert_eq!(asked.ask.kind, ApprovalKind::Command);
        assert_eq!(asked.ask.preview.command.as_deref(), Some(APPEND));
        assert!(
            asked.ask.why.contains("read-only file system"),
            "{}",
            asked.ask.why
        );
        assert_eq!(
            asked.ask.preview.writes,
            [BytePath::from(desk.repo.clone())]
        );
        assert!(answer(&other, &asked, ApprovalAnswer::Approve));
        // Decided once: the second answer gets what stands.
        assert!(!answer(&other, &asked, ApprovalAnswer::Reject));
        waits.join().expect("an outcome")
    });
    assert_eq!(outcome.status, Status::Completed, "{:?}", outcome.error);
    assert_eq!(outcome.stdout, "done\n");
    assert_eq!(desk.read("made"), "once\n");
    assert!(
        outcome
            .hints
            .iter()
            .any(|hint| hint.text.contains("second run"))
    );
    let told = events(&runtime);
    let count = |kind: &str| told.iter().filter(|event| event.kind == kind).count();
    assert_eq!(count("exec.ended"), 2);
    assert_eq!(count("conversation.ended"), 1);
    assert_eq!(count("approval.used"), 1);
    let of_approval: Vec<_> = told
        .iter()
        .filter(|event| event.area() == "approval")
        .map(|event| (event.kind.as_str(), event.op.is_some()))
        .collect();
    assert_eq!(
        of_approval,
        [
            ("approval.requested", true),
            ("approval.answered", true),
            ("approval.resolved", true),
            ("approval.used", true),
        ]
    );
}

#[test]
fn row_68_what_reads_only_is_not_asked_about_and_a_no_leaves_everything_as_it_was() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let read = run(&runtime, Permission::Approval, "cat a.txt", &Control::new());
    assert_eq!(read.status, Status::Completed);
    let fails = run(&runtime, Permission::Approval, "exit 3", &Control::new());
    assert_eq!((fails.status, fails.return_code), (Status::Failed, Some(3)));
    let rejected = thread::scope(|scope| {
        let waits = scope.spawn(|| run(&runtime, Permission::Approval, APPEND, &Control::new()));
        let asked = question(&runtime);
        answer(&runtime, &asked, ApprovalAnswer::Reject);
        waits.join().expect("an outcome")
    });
    assert_eq!(rejected.status, Status::Denied);
    let problem = rejected.error.expect("a reason");
    assert_eq!(problem.code, ErrorCode::ApprovalRejected);
    assert!(problem.message.contains("because"), "{}", problem.message);
    assert!(!desk.repo.join("made").exists());
}

#[test]
fn row_70_whoever_stops_waiting_cancels_and_an_answer_is_a_conflict_then() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let control = Control::new();
    let (outcome, asked) = thread::scope(|scope| {
        let waits = scope.spawn(|| run(&runtime, Permission::Approval, APPEND, &control));
        let asked = question(&runtime);
        control.cancel();
        (waits.join().expect("an outcome"), asked)
    });
    assert_eq!(outcome.status, Status::Cancelled);
    let id = &asked.ask.approval_id;
    let now = runtime.approval(id).expect("it is kept");
    assert_eq!(now.state, ApprovalState::Cancelled);
    let late = AnswerApproval {
        approval_id: id.clone(),
        answer: ApprovalAnswer::Approve,
        reason: None,
        remember: Remember::Once,
        remember_days: None,
    };
    let problem = runtime
        .answer_approval(&late, FrontDoor::CommandLine)
        .expect_err("too late");
    assert_eq!(problem.code, ErrorCode::ApprovalClosed);
    assert!(!desk.repo.join("made").exists());
}

#[test]
fn inside_a_worktree_of_its_own_nothing_asks() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let result = task_with(
        &runtime,
        policy(Permission::Approval),
        shell_task("echo new > made"),
        &Control::new(),
        &mut |_| {},
    );
    assert_eq!(result.modified_files.len(), 1, "{result:?}");
    assert!(
        events(&runtime)
            .iter()
            .all(|event| event.area() != "approval")
    );
}

#[test]
fn row_69_74_an_operation_of_the_file_door_asks_with_its_diff_and_full_access_needs_two() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let root = BytePath::from(desk.repo.clone());
    let policy = EffectivePolicy {
        permission: Sourced::new(Permission::Approval, Layer::User),
        ..EffectivePolicy::built_in()
    };
    let authority = Authority::new(Actor::Protocol, root.clone());
    let path = root.join(b"a.txt");
    let control = Control::new();
    let permit = |operation: &Operation, preview| {
        runtime.permit_operation(OperationQuestion {
            policy: &policy,
            authority: &authority,
            ground: Ground::Checkout,
            operation,
            request: b"the whole request",
            summary: "write a.txt",
            preview,
            subject: Subject::default(),
            control: &control,
        })
    };
    let change = Operation::ChangeFile { path: path.clone() };
    let said = thread::scope(|scope| {
        let preview = ApprovalPreview::default().with_change(path.clone(), b"one\n", b"two\n");
        let waits = scope.spawn(|| permit(&change, preview));
        let asked = question(&runtime);
        assert_eq!(asked.ask.kind, ApprovalKind::FileChange);
        assert_eq!(asked.ask.preview.diff.len(), 2);
        answer(&runtime, &asked, ApprovalAnswer::Approve);
        waits.join().expect("a decision")
    });
    assert!(said.expect("approved").rule.starts_with("approval (appr_"));
    let full = Operation::FullAccess {
        argv: vec![BytePath::from("true")],
    };
    let problem = permit(&full, ApprovalPreview::default()).expect_err("nobody reviews");
    assert_eq!(problem.code, ErrorCode::ApprovalUnavailable);
}
