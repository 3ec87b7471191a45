//! Snapshots of the user's own checkout.

use cofferdam_core::error::ErrorCode;
use cofferdam_core::task::{ChangeKind, IsolationMode, TaskRequest};
use cofferdam_runtime::PolicyRequest;

use crate::support::{Desk, events, has_walls, shell_task, task};

fn policy() -> PolicyRequest {
    PolicyRequest::default()
}

#[test]
fn files_come_back_untracked_ones_too_and_going_back_can_be_taken_back() {
    let desk = Desk::with_repository();
    desk.write("a.txt", "edited\n");
    desk.git(&["add", "a.txt"]);
    desk.write("b.txt", "edited, not staged\n");
    desk.write("new/untracked.txt", "mine\n");
    desk.write("ignored/i", "as it is\n");
    let before = desk.look();
    let runtime = desk.runtime();
    let first = runtime.take_snapshot(&policy(), "before").unwrap().unwrap();
    assert_eq!(first.name, "s1");
    assert_eq!(desk.look(), before, "taking one changes nothing");
    // Where nothing changed there is nothing new.
    let same = runtime.take_snapshot(&policy(), "again").unwrap().unwrap();
    assert_eq!(same, first);

    std::fs::remove_dir_all(desk.repo.join("new")).unwrap();
    desk.write("a.txt", "agent\n");
    desk.write("other.txt", "agent\n");
    desk.write("ignored/i", "agent\n");
    let restored = runtime.restore_snapshot(&desk.repo, "s1").unwrap();
    assert_eq!(restored.before.name, "s2");
    let changed: Vec<_> = restored
        .files
        .iter()
        .map(|file| (file.path.to_string(), file.change))
        .collect();
    assert!(changed.contains(&("other.txt".to_owned(), ChangeKind::Deleted)));
    assert_eq!(desk.look(), before);
    assert_eq!(desk.read("a.txt"), "edited\n");
    assert_eq!(desk.read("new/untracked.txt"), "mine\n");
    assert_eq!(desk.read("ignored/i"), "agent\n");
    assert!(!desk.repo.join("other.txt").exists());

    let below = desk.repo.join("new");
    runtime.restore_snapshot(&below, "s2").unwrap();
    assert_eq!(desk.read("a.txt"), "agent\n");
    assert_eq!(desk.read("other.txt"), "agent\n");
    assert!(!desk.repo.join("new").exists());

    // A file that git ignores is never written over, and then nothing is.
    runtime.restore_snapshot(&desk.repo, "s1").unwrap();
    desk.write(".git/info/exclude", "other.txt\n");
    desk.write("other.txt", "precious\n");
    runtime.restore_snapshot(&desk.repo, "s2").unwrap_err();
    assert_eq!(desk.read("other.txt"), "precious\n");
    assert_eq!(desk.read("a.txt"), "edited\n");
    runtime.restore_snapshot(&desk.repo, "s99").unwrap_err();
}

#[test]
fn the_oldest_snapshots_go() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    for number in 0..55 {
        desk.write("a.txt", format!("{number}\n"));
        runtime.take_snapshot(&policy(), "one").unwrap().unwrap();
    }
    let list = runtime.snapshots(&desk.repo).unwrap();
    let ends = (list[0].name.as_str(), list[49].name.as_str());
    assert_eq!((list.len(), ends), (50, ("s6", "s55")));
}

#[test]
fn a_task_in_the_checkout_can_be_taken_back_whole() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    desk.write("untracked", "mine\n");
    let before = desk.look();
    let runtime = desk.runtime();
    let result = task(
        &runtime,
        TaskRequest {
            isolation_mode: IsolationMode::None,
            ..shell_task("rm untracked; echo two >a.txt; echo n >n")
        },
    );
    assert_ne!(desk.look(), before);
    let kept: Vec<_> = result
        .evidence
        .iter()
        .filter(|one| one.kind == "snapshot")
        .collect();
    assert_eq!(kept.len(), 2, "{result:#?}");
    let told = events(&runtime);
    assert!(
        told.iter()
            .any(|event| event.kind == "file.snapshot" && event.task.is_some())
    );
    runtime.restore_snapshot(&desk.repo, "s1").unwrap();
    assert_eq!(desk.look(), before);
    assert_eq!(desk.read("untracked"), "mine\n");
}

#[test]
fn where_there_is_no_repository_there_is_no_snapshot() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    assert_eq!(runtime.take_snapshot(&policy(), "none").unwrap(), None);
    desk.git(&["init", "-q"]);
    assert_eq!(runtime.take_snapshot(&policy(), "unborn").unwrap(), None);
    let refused = runtime.snapshots(&desk.home).unwrap_err();
    assert!(matches!(
        refused.code,
        ErrorCode::NotARepository | ErrorCode::WorkspaceRefused
    ));
}
