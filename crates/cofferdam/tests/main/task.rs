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
    assert!(text.contains("next: cofferdam review 1"), "{text}");
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
    scene.git(&["init", "-q", "--bare", "bare.git"]);
    let mut command = scene.command(&["task", "run", "--goal", "g", "--", "true"]);
    command.current_dir(scene.work().join("bare.git"));
    let done = crate::scene::finish(command).expect_code(125);
    assert!(done.stderr.contains("error[repo_bare]"), "{}", done.stderr);
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

#[test]
fn none_and_sandbox_work_in_the_checkout_itself() {
    if !has_walls() {
        return;
    }
    for mode in ["none", "sandbox"] {
        let scene = Scene::new();
        scene.repository();
        let flags = [
            "task",
            "run",
            "--isolation",
            mode,
            "--goal",
            "g",
            "--verify",
            "test -e made",
        ];
        let rest = ["--json", "--", "touch", "made"];
        let said = scene
            .run(&[&flags[..], &rest].concat())
            .expect_code(0)
            .json();
        assert_eq!(said["isolation"]["mode"], json!(mode));
        assert!(scene.work().join("made").exists(), "{mode}");
    }
}

#[test]
fn a_session_writes_its_scratch_and_only_reads_the_workspace() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let script = "cat a.txt; echo x >\"$TMPDIR/scratch\" && echo kept; touch made 2>&1";
    let flags = [
        "task",
        "run",
        "--isolation",
        "session",
        "--goal",
        "g",
        "--json",
    ];
    let done = scene.run(&[&flags[..], &["--", "sh", "-c", script]].concat());
    let output = done.json()["task_result"]["output"]
        .as_str()
        .expect("text")
        .to_owned();
    assert!(output.starts_with("one\nkept\n"), "{output}");
    assert!(!scene.work().join("made").exists());
}

#[test]
fn what_is_not_carried_in_is_said_with_the_flag_that_would() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    scene.write("a.txt", "dirty\n");
    let done = scene
        .run(&["task", "run", "--goal", "g", "--", "cat", "a.txt"])
        .expect_code(0);
    assert!(done.text().starts_with("one\n"), "{}", done.text());
    assert!(done.stderr.contains("--carry tracked"), "{}", done.stderr);
    let carried = [
        "task", "run", "--carry", "tracked", "--goal", "g", "--", "cat", "a.txt",
    ];
    let done = scene.run(&carried).expect_code(0);
    assert!(done.text().starts_with("dirty\n"), "{}", done.text());
}

#[test]
fn a_failing_set_up_ends_the_task_before_its_command() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let done = scene
        .run(&[
            "task", "run", "--goal", "g", "--setup", "exit 3", "--json", "--", "echo", "ran",
        ])
        .expect_code(125);
    let said = done.json();
    assert_eq!(said["error"]["code"], json!("setup_failed"));
    assert_eq!(said["task_result"], json!(null));
}

#[test]
fn a_dirty_checkout_is_not_merged_into() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    scene
        .run(&[
            "task",
            "run",
            "--goal",
            "g",
            "--",
            "sh",
            "-c",
            "echo two >>a.txt",
        ])
        .expect_code(0);
    scene.write("a.txt", "mine\n");
    let done = scene.run(&["task", "merge", "1"]).expect_code(125);
    assert!(
        done.stderr.contains("error[checkout_dirty]"),
        "{}",
        done.stderr
    );
    assert_eq!(
        std::fs::read_to_string(scene.work().join("a.txt")).expect("readable"),
        "mine\n"
    );
}

#[test]
fn variables_reach_every_step_of_a_task() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let mut command = scene.command(&[
        "task",
        "run",
        "--goal",
        "g",
        "--env",
        "WORD=given",
        "--env",
        "TAKEN",
        "--setup",
        "test $WORD = given",
        "--verify",
        "test $TAKEN = from-here",
        "--",
        "sh",
        "-c",
        "echo $WORD $TAKEN",
    ]);
    command.env("TAKEN", "from-here");
    let done = crate::scene::finish(command).expect_code(0);
    assert!(
        done.text().starts_with("given from-here\n"),
        "{}",
        done.text()
    );
}

#[test]
fn evidence_and_verifier_tell_of_the_task() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    scene
        .run(&[
            "task", "run", "--goal", "seen", "--verify", "true", "--", "touch", "new",
        ])
        .expect_code(0);
    let said = scene
        .run(&["evidence", "1", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(said["data"]["goal"], json!("seen"));
    assert!(
        said["data"]["facts"]
            .as_array()
            .is_some_and(|facts| !facts.is_empty()),
        "{said}"
    );
    let said = scene.run(&["verifier", "--json"]).expect_code(0).json();
    assert_eq!(said["data"]["counts"]["passed"], json!(1));
    let text = scene.run(&["topology"]).expect_code(0).text();
    assert!(
        text.contains("task seen completed, verifier passed"),
        "{text}"
    );
    let text = scene.run(&["events", "--task", "1"]).expect_code(0).text();
    assert!(text.contains("task.ended"), "{text}");
    let text = scene.run(&["threads"]).expect_code(0).text();
    assert!(text.contains("thread_"), "{text}");
}

#[test]
fn a_detached_head_works_and_merges_where_it_is_told() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    scene.git(&["checkout", "-q", "--detach"]);
    scene
        .run(&[
            "task",
            "run",
            "--goal",
            "g",
            "--",
            "sh",
            "-c",
            "echo two >>a.txt",
        ])
        .expect_code(0);
    let refused = scene.run(&["task", "merge", "1"]).expect_code(125);
    assert!(refused.stderr.contains("--into"), "{}", refused.stderr);
    scene
        .run(&["task", "merge", "1", "--into", "main"])
        .expect_code(0);
    assert_eq!(scene.git(&["show", "main:a.txt"]), "one\ntwo");
}
