//! What is done with a task after it has ended, and after its process died.

use cofferdam_core::error::ErrorCode;
use cofferdam_core::outcome::Status;
use cofferdam_core::task::{CleanupPolicy, MergeStatus, TaskRequest};
use cofferdam_runtime::{DiffForm, MergeOptions};

use crate::support::{Desk, has_walls, shell_task, task};

fn plain() -> MergeOptions {
    MergeOptions::default()
}

#[test]
fn merge_goes_forward_and_undo_takes_it_back() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let base = desk.git(&["rev-parse", "HEAD"]);
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt; echo n >new.txt"));
    let diff = runtime.diff("1", DiffForm::Patch).unwrap();
    assert_eq!(diff.files.len(), 2);
    assert!(String::from_utf8_lossy(&diff.patch).contains("+two"));
    assert!(runtime.diff("1", DiffForm::Stat).unwrap().patch.is_empty());
    let merged = runtime.merge("1", &plain()).unwrap();
    assert_eq!(merged.merge.status, MergeStatus::Merged, "{merged:?}");
    assert_eq!(merged.into.as_deref(), Some("main"));
    assert_eq!(desk.read("a.txt"), "two\n");
    assert_eq!(desk.git(&["status", "--porcelain"]), "");
    assert_eq!(runtime.task("1").unwrap().merge, MergeStatus::Merged);
    // Once more: it is said that it was merged, and as what; the list says so too.
    let again = runtime.merge("1", &plain()).unwrap();
    assert!(again.already, "{again:?}");
    assert_eq!(again.merge, merged.merge);
    assert_eq!(runtime.task("1").unwrap().merge, MergeStatus::Merged);
    runtime.undo("1", None).unwrap();
    assert_eq!(desk.git(&["rev-parse", "HEAD"]), base);
    assert_eq!(desk.read("a.txt"), "one\n");
    assert!(!desk.repo.join("new.txt").exists());
    assert_eq!(runtime.task("1").unwrap().merge, MergeStatus::Undone);
    assert_eq!(
        runtime.undo("1", None).unwrap_err().code,
        ErrorCode::TaskState
    );
}

#[test]
fn c82_a_conflict_leaves_both_sides_as_they_are() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let result = task(&runtime, shell_task("echo two >a.txt"));
    desk.write("a.txt", "other\n");
    // C3: changes of the user's own are never touched.
    let dirty = runtime.merge("1", &plain()).unwrap();
    assert_eq!(dirty.merge.status, MergeStatus::Refused);
    assert_eq!(dirty.problem.unwrap().code, ErrorCode::CheckoutDirty);
    assert_eq!(desk.read("a.txt"), "other\n");
    desk.git(&["commit", "-qam", "other"]);
    let before = desk.look();
    let merged = runtime.merge("1", &plain()).unwrap();
    assert_eq!(merged.merge.status, MergeStatus::Conflict);
    assert_eq!(merged.merge.conflicts, ["a.txt".into()]);
    assert_eq!(merged.problem.unwrap().code, ErrorCode::MergeConflict);
    assert_eq!(desk.look(), before);
    let branch = result.isolation.branch.unwrap();
    assert_eq!(desk.git(&["show", &format!("{branch}:a.txt")]), "two");
    let told = runtime.task("1").unwrap();
    assert_eq!(told.merge, MergeStatus::Conflict);
    assert_eq!(told.result.unwrap().merge.conflicts, ["a.txt".into()]);
}

#[test]
fn names_that_the_hosts_tools_obey_are_not_merged_unasked() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo 'export X=1' >.envrc"));
    let refused = runtime.merge("1", &plain()).unwrap();
    assert_eq!(refused.merge.status, MergeStatus::Refused, "{refused:?}");
    assert_eq!(refused.problem.unwrap().code, ErrorCode::Denied);
    assert!(!desk.repo.join(".envrc").exists());
    let allowed = MergeOptions {
        allow_protected: true,
        ..plain()
    };
    assert_eq!(
        runtime.merge("1", &allowed).unwrap().merge.status,
        MergeStatus::Merged
    );
    assert!(desk.repo.join(".envrc").exists());
}

#[test]
fn d3_a_dropped_task_is_kept_and_comes_back() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let result = task(
        &runtime,
        TaskRequest {
            cleanup_policy: CleanupPolicy::Never,
            ..shell_task("echo two >a.txt")
        },
    );
    let branch = result.isolation.branch.unwrap();
    let oid = desk.git(&["rev-parse", &branch]);
    let dropped = runtime.drop_task("1").unwrap();
    assert!(
        !result.isolation.workspace_path.unwrap().as_path().exists(),
        "{dropped:?}"
    );
    assert_eq!(desk.git(&["branch", "--list", "cofferdam/*"]), "");
    assert_eq!(desk.git(&["rev-parse", &dropped.kept_under[0]]), oid);
    assert_eq!(runtime.task("1").unwrap().merge, MergeStatus::Dropped);
    assert_eq!(
        runtime.drop_task("1").unwrap_err().code,
        ErrorCode::TaskState
    );
    assert_eq!(
        runtime.merge("1", &plain()).unwrap_err().code,
        ErrorCode::TaskState
    );
    runtime.undo("1", None).unwrap();
    assert_eq!(desk.git(&["rev-parse", &branch]), oid);
    assert_eq!(
        runtime.merge("1", &plain()).unwrap().merge.status,
        MergeStatus::Merged
    );
}

#[test]
fn tasks_are_found_by_number_and_id_and_survive_the_process() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let first = task(&desk.runtime(), shell_task("true"));
    let runtime = desk.runtime();
    let second = task(&runtime, shell_task("true"));
    let numbers: Vec<_> = runtime
        .tasks()
        .unwrap()
        .iter()
        .map(|one| one.number)
        .collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(runtime.task("#2").unwrap().task_id, second.task_id);
    assert_eq!(runtime.task(first.task_id.as_str()).unwrap().number, 1);
    for unknown in ["3", "", "task_", "no"] {
        assert_eq!(
            runtime.task(unknown).unwrap_err().code,
            ErrorCode::TaskUnknown,
            "{unknown}"
        );
    }
    assert_eq!(runtime.tasks().unwrap()[0].status, Status::Completed);
    assert_eq!(runtime.reconcile().unwrap(), []);
}

#[test]
fn what_belongs_to_another_repository_is_not_merged_by_accident() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt"));
    let other = desk.home.join("other");
    std::fs::create_dir(&other).unwrap();
    let from = |directory: &std::path::Path| MergeOptions {
        from: Some(directory.to_owned()),
        ..plain()
    };
    // Neither from a directory without a repository, nor from a repository inside of the task's.
    let inner = desk.repo.join("inner");
    std::fs::create_dir(&inner).unwrap();
    desk.git(&["init", "-q", "inner"]);
    for elsewhere in [&other, &inner] {
        let refused = runtime.merge("1", &from(elsewhere)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::OtherRepository, "{refused}");
        let top = desk.repo.display().to_string();
        assert!(refused.message.contains(&top), "{refused}");
        assert!(refused.hint.unwrap().contains("--repository"), "{top}");
        assert_eq!(desk.read("a.txt"), "one\n");
    }
    let below = desk.repo.join("below");
    std::fs::create_dir(&below).unwrap();
    let merged = runtime.merge("1", &from(&below)).unwrap();
    assert_eq!(merged.merge.status, MergeStatus::Merged);
    assert_eq!(merged.repository, Some(desk.repo.clone().into()));
    let refused = runtime.undo("1", Some(&other)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::OtherRepository);
    // A linked tree is in it too.
    let linked = desk.home.join("linked");
    desk.git(&[
        "worktree",
        "add",
        "-q",
        "--detach",
        linked.to_str().unwrap(),
    ]);
    runtime.undo("1", Some(&linked)).unwrap();
    assert_eq!(desk.read("a.txt"), "one\n");
}

#[test]
fn what_was_merged_on_top_is_to_be_undone_first() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let base = desk.git(&["rev-parse", "HEAD"]);
    let runtime = desk.runtime();
    for name in ["one", "two", "three"] {
        task(&runtime, shell_task(&format!("echo x >{name}.txt")));
    }
    for number in ["1", "2", "3"] {
        runtime.merge(number, &plain()).unwrap();
    }
    let refused = runtime.undo("1", None).unwrap_err();
    assert_eq!(refused.code, ErrorCode::TargetMoved);
    assert!(refused.message.contains("undo 3 first"), "{refused}");
    assert_eq!(refused.hint.as_deref(), Some("cofferdam undo 3 2 1"));
    for number in ["3", "2", "1"] {
        runtime.undo(number, None).unwrap();
    }
    assert_eq!(desk.git(&["rev-parse", "HEAD"]), base);
    // A drop that is taken back leaves the merge before it what it was.
    runtime.merge("1", &plain()).unwrap();
    runtime.drop_task("1").unwrap();
    runtime.undo("1", None).unwrap();
    assert_eq!(runtime.task("1").unwrap().merge, MergeStatus::Merged);
    runtime.undo("1", None).unwrap();
    assert_eq!(desk.git(&["rev-parse", "HEAD"]), base);
}
