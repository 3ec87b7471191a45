//! The published exit codes, as far as the command line shows them.

use serde_json::json;

use crate::scene::{Scene, has_walls};

#[test]
fn the_commands_own_code_comes_through() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    for code in [0, 1, 3, 42, 124, 125, 255] {
        scene
            .run(&["run", "--", "sh", "-c", &format!("exit {code}")])
            .expect_code(code);
    }
}

#[test]
fn a_time_limit_is_124_and_is_said() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let done = scene
        .run(&["run", "--timeout", "0.3", "--", "sleep", "30"])
        .expect_code(124);
    assert!(
        done.stderr.contains("cofferdam: time limit"),
        "{}",
        done.stderr
    );
    let done = scene
        .run(&["run", "--idle-timeout", "0.3", "--", "sleep", "30"])
        .expect_code(124);
    assert!(
        done.stderr.contains("cofferdam: time limit"),
        "{}",
        done.stderr
    );
}

#[test]
fn fc_66_a_time_limit_ends_the_whole_tree() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let done = scene.run(&[
        "run",
        "--timeout",
        "1",
        "--",
        "sh",
        "-c",
        "sleep 300 & sleep 300",
    ]);
    assert!(done.elapsed.as_secs() < 5, "{:?}", done.elapsed);
    done.expect_code(124);
}

#[test]
fn what_cannot_be_run_is_126_and_what_is_not_there_127() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.write("plain.txt", "no program\n");
    scene
        .run(&["run", "--", "/no/such/program"])
        .expect_code(127);
    scene
        .run(&["run", "--", "no-such-program"])
        .expect_code(127);
    scene.run(&["run", "--", "./plain.txt"]).expect_code(126);
}

#[test]
fn a_signal_is_128_and_its_number() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129), ("KILL", 137)] {
        let script = format!("kill -{signal} $$; sleep 30");
        scene
            .run(&["run", "--", "sh", "-c", &script])
            .expect_code(code);
    }
}

#[test]
fn direct_is_refused_where_a_level_was_asked_for() {
    let scene = Scene::new();
    let done = scene
        .run(&[
            "run",
            "--provider",
            "direct",
            "--net",
            "none",
            "--",
            "touch",
            "ran",
        ])
        .expect_code(125);
    assert!(
        done.stderr.contains("error[unenforceable]"),
        "{}",
        done.stderr
    );
    assert_eq!(scene.listing(), [""; 0]);
}

#[test]
fn a_refusal_is_an_object_for_programs() {
    let scene = Scene::new();
    let done = scene
        .run(&[
            "run",
            "--json",
            "--provider",
            "direct",
            "--net",
            "none",
            "--",
            "true",
        ])
        .expect_code(125);
    let said = done.json();
    assert_eq!(said["success"], json!(false));
    assert_eq!(said["status"], json!("error"));
    assert_eq!(said["error"]["code"], json!("unenforceable"));
}

#[test]
fn a_wrong_command_line_is_2() {
    let scene = Scene::new();
    scene
        .run(&["run", "--no-such-flag", "--", "true"])
        .expect_code(2);
    scene.run(&["run"]).expect_code(2);
    scene
        .run(&["run", "--tty", "--json", "--", "true"])
        .expect_code(2);
    scene
        .run(&["run", "--net", "some", "--", "true"])
        .expect_code(2);
}

#[test]
fn the_outcome_has_the_promised_fields() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let said = scene
        .run(&[
            "run",
            "--json",
            "--",
            "sh",
            "-c",
            "echo out; echo err >&2; exit 3",
        ])
        .expect_code(3)
        .json();
    assert_eq!(said["success"], json!(false));
    assert_eq!(said["status"], json!("failed"));
    assert_eq!(said["return_code"], json!(3));
    assert_eq!(said["stdout"], json!("out\n"));
    assert_eq!(said["stderr"], json!("err\n"));
    assert_eq!(said["isolation"]["effective"]["provider"], json!("bwrap"));
    assert_eq!(said["isolation"]["effective"]["network"], json!("none"));
    assert!(
        said["isolation"]["enforced_by"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
    );
    for field in [
        "command_id",
        "elapsed_ms",
        "denials",
        "hints",
        "truncated",
        "stdout_encoding",
    ] {
        assert!(said.get(field).is_some(), "{field} is missing: {said}");
    }
}
