//! Tasks from end to end.

use serde_json::json;

use crate::scene::{Scene, has_walls};

#[test]
fn a_task_gives_the_whole_result_and_leaves_the_checkout_alone() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let before = (
        scene.listing(),
        scene.git(&["status", "--porcelain"]),
        scene.git(&["rev-parse", "HEAD"]),
    );
    let script = r"echo two >a.txt; echo n >new.txt; printf '\0\1' >bin.dat; rm Makefile";
    let said = scene
        .run(&[
            "task",
            "run",
            "--goal",
            "try",
            "--verify",
            "grep -q two a.txt",
            "--json",
            "--",
            "sh",
            "-c",
            script,
        ])
        .expect_code(0)
        .json();
    let after = (
        scene.listing(),
        scene.git(&["status", "--porcelain"]),
        scene.git(&["rev-parse", "HEAD"]),
    );
    assert_eq!(before, after);
    assert_eq!(said["status"], json!("completed"));
    assert_eq!(said["verification"]["status"], json!("passed"));
    let mut files: Vec<_> = said["modified_files"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|file| file["path"].as_str().expect("a path").to_owned())
        .collect();
    files.sort();
    assert_eq!(files, ["Makefile", "a.txt", "bin.dat", "new.txt"]);
    let branch = said["isolation"]["branch"]
        .as_str()
        .expect("a branch")
        .to_owned();
    assert!(branch.starts_with("cofferdam/"), "{branch}");
    assert_eq!(scene.git(&["show", &format!("{branch}:a.txt")]), "two");
}

#[test]
fn a_task_is_listed_shown_merged_and_taken_back() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let text = scene
        .run(&[
            "task",
            "run",
            "--goal",
            "second line",
            "--",
            "sh",
            "-c",
            "echo two >>a.txt",
        ])
        .expect_code(0)
        .text();
    assert!(text.contains("next: cofferdam task"), "{text}");
    assert!(
        scene
            .run(&["task", "list"])
            .expect_code(0)
            .text()
            .contains("second line")
    );
    assert!(
        scene
            .run(&["task", "show", "1"])
            .expect_code(0)
            .text()
            .contains("second line")
    );
    assert!(
        scene
            .run(&["task", "diff", "1"])
            .expect_code(0)
            .text()
            .contains("+two")
    );
    scene.run(&["task", "merge", "1"]).expect_code(0);
    assert_eq!(
        std::fs::read_to_string(scene.work().join("a.txt")).expect("readable"),
        "one\ntwo\n"
    );
    scene.run(&["task", "undo", "1"]).expect_code(0);
    assert_eq!(
        std::fs::read_to_string(scene.work().join("a.txt")).expect("readable"),
        "one\n"
    );
    scene.run(&["task", "drop", "1"]).expect_code(0);
}

#[test]
fn a_failed_verifier_is_1_and_the_commands_code_comes_first() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    scene
        .run(&[
            "task", "run", "--goal", "g", "--verify", "false", "--", "true",
        ])
        .expect_code(1);
    scene
        .run(&[
            "task", "run", "--goal", "g", "--verify", "true", "--", "sh", "-c", "exit 9",
        ])
        .expect_code(9);
}

#[test]
fn repositories_that_cannot_be_worked_in() {
    let scene = Scene::new();
    let done = scene
        .run(&["task", "run", "--goal", "g", "--", "true"])
        .expect_code(125);
    assert!(
        done.stderr.contains("error[not_a_repository]"),
        "{}",
        done.stderr
    );
    scene.git(&["init", "-q"]);
    let done = scene
        .run(&["task", "run", "--goal", "g", "--", "true"])
        .expect_code(125);
    assert!(
        done.stderr.contains("error[repo_unborn]"),
        "{}",
        done.stderr
    );
}

#[test]
fn what_comes_later_is_refused() {
    let scene = Scene::new();
    scene.repository();
    let done = scene
        .run(&["task", "run", "--goal", "g", "--merge-back", "--", "true"])
        .expect_code(125);
    assert!(
        done.stderr.contains("error[unsupported_field]"),
        "{}",
        done.stderr
    );
}

#[test]
fn an_unknown_task_is_said() {
    let scene = Scene::new();
    let done = scene.run(&["task", "show", "99"]).expect_code(125);
    assert!(
        done.stderr.contains("error[task_unknown]"),
        "{}",
        done.stderr
    );
}

#[test]
fn the_demo_comes_out_as_told() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let text = scene.run(&["demo"]).expect_code(0).text();
    assert!(text.contains("stopped"), "{text}");
    assert_eq!(crate::scene::list(&scene.path("tmp")), [""; 0]);
    assert!(
        !scene.path("data").exists(),
        "the demo used the user's data directory"
    );
}
