//! `ps`, `logs` and `kill` over commands of other processes.

use std::time::Instant;

use crate::scene::{Finished, Scene, Server, collect, processes_with, until};

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

#[test]
fn a_foreground_command_of_an_idle_server_is_ended_by_its_id() {
    let scene = Scene::new();
    let server = Server::start(&scene, &["--provider", "direct", "--net", "full"]);
    let found = cofferdam_client::find_server(&scene.path("data")).expect("it lives");
    let token = found.token_file.to_string();
    let call = scene
        .command(&[
            "call",
            "--json",
            "--server",
            &found.address,
            "--token-file",
            &token,
            "run_command",
            "--command",
            "echo one; sleep 300",
        ])
        .spawn()
        .expect("the program starts");
    let id = running(&scene);
    let killed = scene.run(&["kill", "--json", &id]).expect_code(0).json();
    assert_eq!(killed["commands"][0]["ended"], true, "{killed}");
    let ended = collect(call, Instant::now());
    assert_eq!(ended.json()["status"], "cancelled", "{}", ended.stderr);
    // The server goes on, and what goes on in it ends with it.
    let mark = format!("6{}.5", std::process::id());
    let client = cofferdam_client::Client::of_data_dir(&scene.path("data"))
        .expect("a token")
        .expect("a server");
    let begun: serde_json::Value = client
        .call(
            "run_command_background",
            &serde_json::json!({"command": format!("sleep {mark}"), "wait_seconds": 0}),
        )
        .expect("begun");
    assert_eq!(begun["status"], "running");
    assert!(until(|| !processes_with(&mark).is_empty()));
    server.stop();
    assert!(processes_with(&mark).is_empty());
    let id = begun["command_id"].as_str().expect("an id");
    let told = scene.run(&["call", "command_get", "--command_id", id, "--json"]);
    let status = told.expect_code(0).json()["command"]["status"].clone();
    assert_ne!(status, "completed");
    assert_ne!(status, "running");
}
