//! Snapshots of the user's own checkout.

use cofferdam_core::error::ErrorCode;
use cofferdam_core::operation::{OpenSession, RunCommand, RunInSession};
use cofferdam_core::task::{ChangeKind, IsolationMode, TaskRequest};
use cofferdam_exec::{CommandIo, Control};
use cofferdam_runtime::{FrontDoor, PolicyRequest, RunRequest};

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
    for number in 0..105 {
        desk.write("a.txt", format!("{number}\n"));
        runtime.take_snapshot(&policy(), "one").unwrap().unwrap();
    }
    let list = runtime.snapshots(&desk.repo).unwrap();
    let ends = (list[0].name.as_str(), list[99].name.as_str());
    assert_eq!((list.len(), ends), (100, ("s6", "s105")));
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
fn each_step_of_a_task_in_the_checkout_has_a_snapshot_and_its_files_are_told() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let result = task(
        &runtime,
        TaskRequest {
            isolation_mode: IsolationMode::None,
            setup: vec!["echo s >setup.txt".to_owned(), "true".to_owned()],
            ..shell_task("echo two >a.txt; echo more >>setup.txt")
        },
    );
    let list = runtime.snapshots(&desk.repo).unwrap();
    let told: Vec<_> = list
        .iter()
        .map(|one| (one.name.as_str(), one.what.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("s1", "before task 1"),
            ("s2", "task 1 after setup: echo s >setup.txt"),
            ("s3", "after task 1"),
        ]
    );
    let review = runtime.review("1", false).unwrap();
    let commands = &review.changes.commands;
    let (step, main) = (&commands[0].command_id, &commands[2].command_id);
    let by: Vec<_> = review
        .changes
        .files
        .iter()
        .map(|file| (file.file.path.to_string(), file.commands.clone()))
        .collect();
    assert_eq!(
        by,
        [
            ("a.txt".to_owned(), vec![main.clone()]),
            ("setup.txt".to_owned(), vec![step.clone(), main.clone()]),
        ],
        "{result:#?}"
    );
    runtime.restore_snapshot(&desk.repo, "s2").unwrap();
    assert_eq!(desk.read("setup.txt"), "s\n");
    assert_eq!(desk.read("a.txt"), "one\n");
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

#[test]
fn what_each_command_of_a_task_in_its_own_tree_left_can_be_gone_to() {
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
            setup: vec!["echo s >setup.txt".to_owned(), "true".to_owned()],
            ..shell_task("echo two >a.txt; rm setup.txt")
        },
    );
    let list = runtime.snapshots(&desk.repo).unwrap();
    let told: Vec<_> = list
        .iter()
        .map(|one| {
            let (run, which) = one.name.rsplit_once('.').unwrap();
            assert!(run.starts_with("t1-"), "{run}");
            (which, one.what.clone())
        })
        .collect();
    // A step that changed nothing has none of its own.
    let branch = result.isolation.branch.clone().unwrap();
    let end = format!("the end of {}", branch.trim_start_matches("cofferdam/"));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.contains(&("1", "task 1 after setup: echo s >setup.txt".to_owned())));
    assert!(told.contains(&("end", end)));
    // Nothing is said about it where it would be noise.
    let review = runtime.review("1", false).unwrap();
    assert!(review.not_brought_in.is_empty(), "{review:#?}");

    runtime.restore_snapshot(&desk.repo, "t1.1").unwrap();
    assert_eq!(desk.read("setup.txt"), "s\n");
    assert_eq!(desk.read("a.txt"), "one\n");
    // A task's own tree had nothing of what was not committed; it is in the snapshot before.
    assert!(!desk.repo.join("untracked").exists());
    runtime.restore_snapshot(&desk.repo, "t1.end").unwrap();
    assert_eq!(desk.read("a.txt"), "two\n");
    assert!(!desk.repo.join("setup.txt").exists());
    runtime.restore_snapshot(&desk.repo, "s1").unwrap();
    assert_eq!(desk.look(), before);
    assert_eq!(desk.read("untracked"), "mine\n");
    // They go with their task.
    runtime.drop_task("1").unwrap();
    let left = runtime.snapshots(&desk.repo).unwrap();
    assert!(left.iter().all(|one| one.name.starts_with('s')), "{left:?}");
}

#[test]
fn what_a_task_made_of_protected_names_does_not_come_in_by_a_snapshot() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    task(
        &runtime,
        shell_task("mkdir .claude; echo evil >.claude/settings.json"),
    );
    let refused = runtime.restore_snapshot(&desk.repo, "t1.end").unwrap_err();
    assert_eq!(refused.code, ErrorCode::Denied);
    assert!(!desk.repo.join(".claude").exists());
}

#[test]
fn a_server_that_is_told_to_keeps_the_files_after_each_command() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    desk.write("untracked", "mine\n");
    let runtime = desk.runtime();
    let run = |text: &str| {
        let outcome = runtime.run_command(RunRequest {
            policy: policy(),
            command: RunCommand::shell(text),
            front_door: FrontDoor::Protocol,
            io: CommandIo::Capture { input: None },
            control: Control::new(),
        });
        assert!(outcome.success, "{outcome:?}");
    };
    run("echo before >b.txt");
    assert!(runtime.snapshots(&desk.repo).unwrap().is_empty());
    assert_eq!(runtime.keep_snapshots(&policy()).unwrap().name, "s1");
    run("echo two >a.txt; rm untracked");
    run("true");
    let asked = OpenSession {
        name: Some("desk".to_owned()),
        ..OpenSession::default()
    };
    runtime
        .open_session(policy(), &asked, FrontDoor::Protocol)
        .unwrap();
    let asked = RunInSession {
        session: "desk".to_owned(),
        command: Some("echo three >a.txt".to_owned()),
        ..RunInSession::default()
    };
    let end = runtime.run_in_session(asked, &Control::new()).unwrap();
    assert!(end.result.success, "{end:?}");
    runtime.close_session("desk").unwrap();
    let list = runtime.snapshots(&desk.repo).unwrap();
    let told: Vec<_> = list
        .iter()
        .map(|one| (one.name.as_str(), one.what.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("s1", "before the server's first command"),
            ("s2", "after: echo two >a.txt; rm untracked"),
            ("s3", "after: echo three >a.txt"),
        ]
    );
    runtime.restore_snapshot(&desk.repo, "s2").unwrap();
    assert_eq!(desk.read("a.txt"), "two\n");
    runtime.restore_snapshot(&desk.repo, "s1").unwrap();
    assert_eq!(desk.read("untracked"), "mine\n");
}

/// A server that keeps the files where that is cheap, with one shell session.
fn kept() -> Option<(Desk, std::sync::Arc<cofferdam_runtime::Runtime>)> {
    if !has_walls() {
        return None;
    }
    let desk = Desk::with_repository();
    let runtime = std::sync::Arc::new(desk.runtime());
    runtime.keep_snapshots_where_cheap();
    let asked = OpenSession {
        name: Some("desk".to_owned()),
        ..OpenSession::default()
    };
    runtime
        .open_session(policy(), &asked, FrontDoor::Protocol)
        .expect("opened");
    Some((desk, runtime))
}

fn in_session(runtime: &cofferdam_runtime::Runtime, text: &str) -> String {
    let asked = RunInSession {
        session: "desk".to_owned(),
        command: Some(text.to_owned()),
        ..RunInSession::default()
    };
    let end = runtime
        .run_in_session(asked, &Control::new())
        .expect("a result");
    assert!(end.result.success, "{end:?}");
    end.result.command_id.to_string()
}

#[test]
fn each_command_that_changed_something_has_a_snapshot_and_its_files_are_told() {
    let Some((desk, runtime)) = kept() else {
        return;
    };
    desk.write("untracked", "mine\n");
    in_session(&runtime, "true");
    let first = in_session(
        &runtime,
        "mkdir -p new/deep && echo 1 >new/deep/file && rm untracked",
    );
    in_session(
        &runtime,
        "cat a.txt >/dev/null; mkdir -p ignored; echo x >ignored/x",
    );
    // What somebody else changes between two commands is not theirs.
    desk.write("b.txt", "by hand\n");
    let second = in_session(&runtime, "echo two >a.txt; echo 2 >new/deep/file");
    let outcome = runtime.run_command(RunRequest {
        policy: policy(),
        command: RunCommand::shell("echo 3 >new/deep/file; chmod +x a.txt"),
        front_door: FrontDoor::Protocol,
        io: CommandIo::Capture { input: None },
        control: Control::new(),
    });
    let list = runtime.snapshots(&desk.repo).unwrap();
    let told: Vec<_> = list
        .iter()
        .map(|one| (one.name.as_str(), one.what.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("s1", "before: true"),
            (
                "s2",
                "after: mkdir -p new/deep && echo 1 >new/deep/file && rm untracked"
            ),
            ("s3", "before: echo two >a.txt; echo 2 >new/deep/file"),
            ("s4", "after: echo two >a.txt; echo 2 >new/deep/file"),
            ("s5", "after: echo 3 >new/deep/file; chmod +x a.txt"),
        ]
    );
    let review = runtime.review_commands(&desk.repo, None).unwrap();
    let by: Vec<(&str, Vec<&str>)> = review
        .files
        .iter()
        .map(|file| {
            (
                file.path.as_str(),
                file.commands.iter().map(String::as_str).collect(),
            )
        })
        .collect();
    let third = outcome.command_id.as_str();
    assert_eq!(
        by,
        [
            ("a.txt", vec![second.as_str(), third]),
            (
                "new/deep/file",
                vec![first.as_str(), second.as_str(), third]
            ),
            ("untracked", vec![first.as_str()]),
        ]
    );
    assert!(review.commands.iter().all(|one| one.commands_at_once == 1));
    let of_session = runtime.review_commands(&desk.repo, Some("desk")).unwrap();
    assert_eq!(of_session.commands.len(), 2);
    runtime
        .review_commands(&desk.repo, Some("none"))
        .unwrap_err();
    // Each can be gone back to, and that is nobody's either.
    runtime.restore_snapshot(&desk.repo, "s1").unwrap();
    assert_eq!(desk.read("untracked"), "mine\n");
    assert!(!desk.repo.join("new").exists());
    in_session(&runtime, "true");
    let after = runtime.review_commands(&desk.repo, None).unwrap();
    assert_eq!(after.commands.len(), 3);
}

#[test]
fn what_changes_while_two_commands_run_is_of_both_and_that_is_said() {
    let Some((desk, runtime)) = kept() else {
        return;
    };
    in_session(&runtime, "true");
    let long = {
        let runtime = std::sync::Arc::clone(&runtime);
        std::thread::spawn(move || {
            let outcome = runtime.run_command(RunRequest {
                policy: policy(),
                command: RunCommand::shell(
                    "echo 1 >begun; until test -e ignored/go; do sleep 0.01; done",
                ),
                front_door: FrontDoor::Protocol,
                io: CommandIo::Capture { input: None },
                control: Control::new(),
            });
            outcome.command_id.to_string()
        })
    };
    while !desk.repo.join("begun").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let short = in_session(
        &runtime,
        "echo 2 >a.txt; mkdir -p ignored; echo >ignored/go",
    );
    let long = long.join().unwrap();
    let review = runtime.review_commands(&desk.repo, None).unwrap();
    for file in &review.files {
        let mut by = file.commands.clone();
        by.sort();
        let mut both = vec![short.clone(), long.clone()];
        both.sort();
        assert_eq!(by, both, "{}", file.path);
    }
    assert!(review.commands.iter().all(|one| one.commands_at_once == 2));
}

#[test]
fn a_file_that_is_too_large_is_not_kept_and_stays_when_one_goes_back() {
    let Some((desk, runtime)) = kept() else {
        return;
    };
    in_session(&runtime, "true");
    in_session(&runtime, "truncate -s 65M large; echo 2 >a.txt");
    let list = runtime.snapshots(&desk.repo).unwrap();
    let what = &list[1].what;
    assert!(
        what.ends_with("(without large, which is too large)"),
        "{what}"
    );
    runtime.restore_snapshot(&desk.repo, "s1").unwrap();
    assert_eq!(desk.read("a.txt"), "one\n");
    assert_eq!(desk.repo.join("large").metadata().unwrap().len(), 65 << 20);
    let held = desk.git(&["count-objects", "-v"]);
    let packed: u64 = held
        .lines()
        .find_map(|line| line.strip_prefix("size: "))
        .unwrap()
        .parse()
        .unwrap();
    assert!(packed < 1_000, "{held}");
}

#[test]
fn nothing_is_kept_unless_it_was_asked_for_or_where_nothing_can_be_written() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let run = |door, write_access| {
        let outcome = runtime.run_command(RunRequest {
            policy: policy(),
            command: RunCommand {
                write_access,
                ..RunCommand::shell("date +%N >a.txt; true")
            },
            front_door: door,
            io: CommandIo::Capture { input: None },
            control: Control::new(),
        });
        assert!(outcome.success, "{outcome:?}");
        runtime.snapshots(&desk.repo).unwrap().len()
    };
    assert_eq!(run(FrontDoor::Protocol, None), 0);
    runtime.keep_snapshots_where_cheap();
    assert_eq!(run(FrontDoor::CommandLine, None), 0);
    let read = Some(cofferdam_core::spec::Access::Read);
    assert_eq!(run(FrontDoor::Protocol, read), 0);
    assert_eq!(run(FrontDoor::Protocol, None), 2);
}
