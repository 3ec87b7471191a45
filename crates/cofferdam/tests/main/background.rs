//! `ps`, `logs` and `kill` over commands of other processes.

use std::time::Instant;

use crate::scene::{Finished, Scene, collect, until};

/// Finds the one command that runs, once it has written something.
fn running(scene: &Scene) -> String {
    let mut id = String::new();
    let found = until(|| {
        let listed = scene.run(&["ps", "--json"]).expect_code(0).json();
        let first = &listed["commands"][0];
        if first["last_output_ms"].is_u64() {
            first["command_id"]
                .as_str()
                .unwrap_or_default()
                .clone_into(&mut id);
        }
        !id.is_empty()
    });
    assert!(found, "a command that runs and has written");
    id
}

#[test]
fn a_command_of_another_terminal_is_listed_followed_and_ended() {
    let scene = Scene::new();
    let script = "echo one; echo two >&2; sleep 300";
    let start = Instant::now();
    let run = scene
        .command(&["run", "--provider", "direct", "--", "sh", "-c", script])
        .spawn()
        .expect("the program starts");
    let id = running(&scene);
    let shown = scene.run(&["ps"]).expect_code(0).text();
    assert!(
        shown.contains(&id) && shown.contains("LAST OUTPUT"),
        "{shown}"
    );
    let now = scene.run(&["logs", &id]).expect_code(0);
    assert_eq!((&*now.text(), &*now.stderr), ("one\n", "two\n"));
    let only = scene
        .run(&["logs", &id, "--stream", "stderr", "--json"])
        .expect_code(0);
    assert_eq!(only.json()["text"], "two\n");
    let follow = scene
        .command(&["logs", "--follow", &id])
        .spawn()
        .expect("the program starts");
    let followed = std::thread::spawn(move || collect(follow, Instant::now()));
    let killed = scene.run(&["kill", "--json", &id]).expect_code(0).json();
    assert_eq!(killed["commands"][0]["ended"], true, "{killed}");
    let ended: Finished = collect(run, start);
    assert_eq!(ended.code, Some(143), "{}", ended.stderr);
    let followed = followed.join().expect("a reader").expect_code(0);
    assert_eq!(followed.text(), "one\n");
    // After its end by its id, and by what nobody knows.
    assert_eq!(scene.run(&["logs", &id]).expect_code(0).text(), "one\n");
    let unknown = scene.run(&["logs", "cmd_nobody"]).expect_code(125);
    assert!(
        unknown.stderr.contains("error[command_unknown]"),
        "{}",
        unknown.stderr
    );
    let shown = scene.run(&["ps"]).expect_code(0).text();
    assert_eq!(shown, "nothing runs\n");
}

#[test]
fn the_output_of_a_tasks_commands_is_shown_one_after_the_other() {
    let scene = Scene::new();
    scene.repository();
    let task = [
        "task",
        "run",
        "--provider",
        "direct",
        "--verify",
        "echo checked",
        "--",
        "sh",
        "-c",
        "sleep 0.1; echo worked",
    ];
    scene.run(&task);
    let shown = scene.run(&["logs", "-f", "1"]).expect_code(0);
    assert_eq!(shown.text(), "worked\nchecked\n", "{}", shown.stderr);
}
