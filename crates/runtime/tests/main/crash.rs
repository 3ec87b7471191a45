//! SIGKILL of the process that runs a task, at each stage.

use std::path::PathBuf;

use cofferdam_core::outcome::Status;
use cofferdam_core::task::{CleanupStatus, TaskRequest};
use cofferdam_exec::{CommandIo, Control, OutputSink, Stream};
use cofferdam_runtime::{
    DiffForm, FrontDoor, MergeOptions, PolicyRequest, Runtime, TaskProgress, TaskRunRequest,
};
use rustix::process::{Signal, getpid, kill_process};

use crate::support::{Desk, has_walls, options, rerun, shell_task, task, told};

const STAGES: [&str; 6] = [
    "planned",
    "ready",
    "setup",
    "command",
    "harvesting",
    "verifying",
];

pub(crate) fn die() -> ! {
    kill_process(getpid(), Signal::KILL).expect("a signal to itself");
    unreachable!("nobody outlives that signal");
}

/// Dies when a command says something.
struct Deadly;

impl OutputSink for Deadly {
    fn write(&mut self, _stream: Stream, _bytes: &[u8]) -> std::io::Result<()> {
        die();
    }
}

/// Runs in a process of its own, see [`rerun`], and dies at the stage that it was told.
#[test]
#[ignore = "the child of another test"]
fn child() {
    let (Some(desk), Some(stage)) = (told("COFFERDAM_TEST_DESK"), told("COFFERDAM_TEST_STAGE"))
    else {
        return;
    };
    let desk = PathBuf::from(desk);
    let options = options(&desk.join("home"), &desk.join("data"), &desk.join("repo"));
    let runtime = Runtime::open(options).unwrap();
    let script = if stage == "command" {
        "echo two >a.txt; echo now; sleep 300"
    } else {
        "echo two >a.txt"
    };
    let mut progress = |step: TaskProgress| {
        let here = match step {
            TaskProgress::Planned { .. } => "planned",
            TaskProgress::WorkspaceReady { .. } => "ready",
            TaskProgress::Setup { .. } => "setup",
            TaskProgress::Harvesting => "harvesting",
            TaskProgress::Verifying { .. } => "verifying",
            _ => return,
        };
        if here == stage {
            die();
        }
    };
    let _ = runtime.run_task(TaskRunRequest {
        policy: PolicyRequest::default(),
        task: TaskRequest {
            setup: vec!["true".to_owned()],
            verify: vec!["true".to_owned()],
            ..shell_task(script)
        },
        front_door: FrontDoor::Embedded,
        io: CommandIo::Stream {
            input: None,
            sink: &mut Deadly,
        },
        progress: &mut progress,
        control: Control::new(),
    });
}

#[test]
fn a17_c92_whatever_dies_is_found_settled_and_can_be_dropped() {
    if !has_walls() {
        return;
    }
    for stage in STAGES {
        let desk = Desk::with_repository();
        let before = desk.look();
        let status = rerun(&desk, "crash::child", stage);
        assert_eq!(status.code(), None, "{stage}: it was to die");
        assert_eq!(desk.look(), before, "{stage}");

        let runtime = desk.runtime();
        let unsettled = runtime.task("1").unwrap();
        assert_eq!(unsettled.status, Status::Running);
        let settled = runtime.reconcile().unwrap();
        assert_eq!(settled.len(), 1, "{stage}");
        assert_eq!(settled[0].status, Status::Interrupted);
        assert_eq!(runtime.reconcile().unwrap(), [], "{stage}: once is enough");
        let told = runtime.task("1").unwrap();
        let result = told.result.unwrap();
        assert_eq!(result.status, Status::Interrupted, "{stage}");
        assert_ne!(result.exit_code(), 0);
        let tree = result.isolation.workspace_path.clone();
        let is_there = tree.as_ref().is_some_and(|tree| tree.as_path().exists());
        let kept = matches!(
            result.isolation.cleanup_status,
            CleanupStatus::Kept | CleanupStatus::KeptDirty
        );
        assert_eq!(is_there, kept, "{stage}: {result:#?}");
        // A tree in which nothing was done is no use to anybody.
        let worked = matches!(stage, "command" | "harvesting" | "verifying");
        assert_eq!(is_there, worked, "{stage}: {result:#?}");
        assert_eq!(result.isolation.branch.is_some(), worked, "{stage}");
        if worked {
            let review = runtime.review("1", true).unwrap();
            assert_eq!(review.changes.files.len(), 1, "{stage}");
            let patch = review.changes.patch.unwrap_or_default();
            assert!(patch.contains("+two"), "{stage}: {patch}");
            assert!(review.open, "{stage}: somebody has to decide about it");
            let branch = result.isolation.branch.clone().expect(stage);
            assert_eq!(
                desk.git(&["show", &format!("{branch}:a.txt")]),
                "two",
                "{stage}: saved without being dropped"
            );
        }
        if is_there {
            // Work that nobody brought in is saved before its tree goes.
            let dropped = runtime.drop_task("1").unwrap();
            assert!(!tree.unwrap().as_path().exists(), "{stage}: {dropped:?}");
            let kept = dropped.kept_under.first().expect(stage);
            assert_eq!(
                desk.git(&["show", &format!("{kept}:a.txt")]),
                "two",
                "{stage}"
            );
            runtime.undo("1", None).unwrap();
            let back = runtime.task("1").unwrap();
            assert_eq!((back.files, back.branch.is_some()), (1, true), "{stage}");
            assert!(
                !runtime.diff("1", DiffForm::Patch).unwrap().patch.is_empty(),
                "{stage}"
            );
            assert_eq!(
                runtime
                    .merge("1", &MergeOptions::default())
                    .unwrap()
                    .problem,
                None
            );
            assert_eq!(desk.read("a.txt"), "two\n");
        } else {
            assert_eq!(desk.look(), before, "{stage}");
        }
        // The next task has the next number, and nothing is in its way.
        let next = task(&runtime, shell_task("echo three >a.txt"));
        assert_eq!(
            (next.number, next.status),
            (2, Status::Completed),
            "{stage}: {next:#?}"
        );
    }
}

#[test]
fn a_task_whose_plane_lives_is_left_alone() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut seen = None;
    let result = crate::support::task_with(
        &runtime,
        PolicyRequest::default(),
        shell_task("true"),
        &Control::new(),
        &mut |step| {
            if matches!(step, TaskProgress::Running { .. }) {
                let other = desk.runtime();
                assert_eq!(other.reconcile().unwrap(), []);
                let code = other.drop_task("1").unwrap_err().code;
                seen = Some((code, other.task("1").unwrap().status));
            }
        },
    );
    assert_eq!(
        seen,
        Some((cofferdam_core::error::ErrorCode::TaskState, Status::Running))
    );
    assert_eq!(result.status, Status::Completed);
}
