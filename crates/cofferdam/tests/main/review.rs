//! Looking at tasks, deciding about several, and what runs.

use std::process::Child;
use std::time::Instant;

use serde_json::{Value, json};

use crate::scene::{Finished, Scene, collect, has_walls, until};

fn task(scene: &Scene, flags: &[&str], script: &str) -> Finished {
    let all = [
        &["task", "run", "--goal", "g"],
        flags,
        &["--", "sh", "-c", script],
    ]
    .concat();
    scene.run(&all)
}

fn ps(scene: &Scene) -> Value {
    scene.run(&["ps", "--json"]).expect_code(0).json()
}

/// Starts a task that says when it runs and then waits, and waits for its command.
fn running(scene: &Scene, flags: &[&str], tasks: usize) -> Child {
    let script = "echo half >half.txt; sleep 600";
    let all = [
        &["task", "run", "--goal", "wait"],
        flags,
        &["--", "sh", "-c", script],
    ]
    .concat();
    let child = scene.command(&all).spawn().expect("the program starts");
    let runs = until(|| {
        let seen = ps(scene);
        let list = seen["tasks"].as_array().expect("a list").clone();
        list.len() == tasks && list.iter().all(|one| one["commands"] != json!([]))
    });
    assert!(runs, "{}", ps(scene));
    child
}

#[test]
fn a_review_shows_changes_checks_and_what_was_put_back_or_held() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let script = "echo two >>a.txt; git add -A; git -c user.name=a -c user.email=a@b commit -qm 'step one'; \
                  mkdir .claude; echo '{}' >.claude/settings.json; echo x >new.txt";
    let flags = [
        "--setup",
        "echo ready",
        "--verify",
        "grep -q three a.txt",
        "--verify",
        "true",
    ];
    task(&scene, &flags, script).expect_code(1);

    let said = scene.run(&["review", "1", "--json"]).expect_code(0).json();
    let one = &said["tasks"][0];
    assert_eq!(one["number"], json!(1));
    assert_eq!(one["status"], json!("completed"));
    assert_eq!(one["open"], json!(true));
    let paths: Vec<_> = one["changes"]["files"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|file| (file["file"]["path"].as_str(), file["protected"].as_bool()))
        .collect();
    assert_eq!(
        paths,
        [
            (Some(".claude/settings.json"), Some(true)),
            (Some("a.txt"), Some(false)),
            (Some("new.txt"), Some(false)),
        ]
    );
    assert_eq!(one["changes"]["commits"][0]["subject"], json!("step one"));
    assert_eq!(one["changes"]["commits"][0]["files"], json!(["a.txt"]));
    assert_eq!(one["changes"]["commits"].as_array().map(Vec::len), Some(1));
    let kinds: Vec<_> = one["changes"]["commands"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|command| command["kind"].as_str().expect("a word"))
        .collect();
    assert_eq!(kinds, ["setup", "command", "check", "check"]);
    assert!(
        one["changes"]["patch"]
            .as_str()
            .is_some_and(|patch| patch.contains("+two"))
    );
    assert_eq!(one["checks"]["status"], json!("failed"));
    assert_eq!(one["checks"]["checks"][0]["status"], json!("failed"));
    assert_eq!(one["checks"]["freshness"]["verdict"], json!("fresh"));
    assert_eq!(one["protected"][0]["outcome"], json!("in_changes"));
    for list in ["hosts", "denials", "agent_state", "left_behind", "notes"] {
        assert!(one[list].is_array(), "{list}");
    }
    assert_eq!(one["next"][0], json!("cofferdam drop 1"));

    let text = scene.run(&["review"]).expect_code(0).text();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("task 1 completed"), "{text}");
    assert!(lines[0].contains("verifier failed"), "{text}");
    let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word}: {text}"));
    assert!(at("next: cofferdam drop 1") < at("diff --git"), "{text}");
    assert!(
        text.contains("failed  grep -q three a.txt (exit 1)"),
        "{text}"
    );
    assert!(text.contains("only with --allow-protected"), "{text}");
    let short = scene.run(&["review", "--stat"]).expect_code(0).text();
    assert!(!short.contains("diff --git"), "{short}");
    assert!(short.lines().count() <= 24, "{short}");
}

#[test]
fn denials_and_protected_names_of_a_live_checkout_are_shown() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let script = "mkdir .cursor && echo x >.cursor/rules; echo two >>a.txt";
    task(&scene, &["--isolation", "sandbox"], script);
    let said = scene.run(&["review", "1", "--json"]).expect_code(0).json();
    let one = &said["tasks"][0];
    let undone = &one["protected"][0];
    assert_eq!(undone["outcome"], json!("undone"), "{one}");
    let denied = one["denials"].as_array().expect("a list");
    assert!(!denied.is_empty(), "{one}");
    assert_eq!(denied[0]["times"], json!(1));
    assert_eq!(denied[0]["commands"].as_array().map(Vec::len), Some(1));
    assert!(denied[0]["denial"]["instead"].is_string());
    let text = scene.run(&["review", "1"]).expect_code(0).text();
    assert!(text.contains("1 denial"), "{text}");
    assert!(text.contains("put back"), "{text}");
}

#[test]
fn a_host_that_a_task_reached_is_evidence_of_its_own() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut client, b"hello\n");
        }
    });
    let reach = address.to_string();
    let ask = format!("cat </dev/tcp/127.0.0.1/{}", address.port());
    let words = [
        "task", "run", "--goal", "g", "--reach", &reach, "--json", "--",
    ];
    let words = [&words[..], &["bash", "-c", &ask]].concat();
    let done = scene.run(&words).expect_code(0).json();
    let list = done["evidence"].as_array().expect("a list");
    let hosts: Vec<_> = list.iter().filter(|one| one["kind"] == "hosts").collect();
    assert_eq!(hosts.len(), 1, "{done}");
    assert_eq!(hosts[0]["summary"], json!(format!("reached {reach}")));
    // One that reached nothing has none.
    let done = scene
        .run(&["task", "run", "--goal", "g", "--json", "--", "true"])
        .expect_code(0)
        .json();
    let list = done["evidence"].as_array().expect("a list");
    assert!(list.iter().all(|one| one["kind"] != "hosts"), "{done}");
    let told = scene.run(&["evidence", "1"]).expect_code(0).text();
    assert!(told.contains(&reach), "{told}");
}

#[test]
fn files_are_told_with_the_command_that_changed_them() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let flags = ["--setup", "echo s >made.txt", "--verify", "true"];
    task(&scene, &flags, "echo two >a.txt").expect_code(0);
    let said = scene.run(&["review", "1", "--json"]).expect_code(0).json();
    let changes = &said["tasks"][0]["changes"];
    let command = |kind: &str| {
        let list = changes["commands"].as_array().expect("a list");
        let found = list.iter().find(|one| one["kind"] == kind).expect(kind);
        found["command_id"].clone()
    };
    let by = |path: &str| {
        let list = changes["files"].as_array().expect("a list");
        let found = list.iter().find(|one| one["file"]["path"] == path);
        found.expect(path)["commands"].clone()
    };
    assert_eq!(by("made.txt"), json!([command("setup")]));
    assert_eq!(by("a.txt"), json!([command("command")]));
    let text = scene.run(&["review", "1", "--stat"]).expect_code(0).text();
    assert!(text.contains("-c echo s >made.txt"), "{text}");
}

#[test]
fn nothing_to_review_names_the_last_task() {
    let scene = Scene::new();
    let text = scene.run(&["review"]).expect_code(0).text();
    assert_eq!(text, "nothing waits for you\n");
    let done = scene.run(&["review", "7"]).expect_code(125);
    assert!(
        done.stderr.contains("error[task_unknown]"),
        "{}",
        done.stderr
    );
}

#[test]
fn several_merges_end_at_the_first_refusal() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    task(&scene, &[], "echo two >a.txt").expect_code(0);
    task(&scene, &[], "echo other >a.txt").expect_code(0);
    task(&scene, &[], "echo new >new.txt").expect_code(0);
    let done = scene.run(&["merge", "1", "2", "3", "--json"]);
    assert_eq!(done.code, Some(125), "{}", done.stderr);
    let said = done.json();
    assert_eq!(said["tasks"][0]["merge"]["status"], json!("merged"));
    assert_eq!(said["tasks"][1]["merge"]["status"], json!("conflict"));
    assert_eq!(said["not_done"], json!(["3"]));
    assert!(
        done.stderr.contains("not merged after that: 3"),
        "{}",
        done.stderr
    );
    let content = || std::fs::read_to_string(scene.work().join("a.txt")).expect("readable");
    assert_eq!(content(), "two\n");
    assert!(!scene.work().join("new.txt").exists());

    // What is merged waits no more; what is refused does.
    let open = scene
        .run(&["review", "--stat", "--json"])
        .expect_code(0)
        .json();
    let numbers: Vec<_> = open["tasks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|task| task["number"].as_u64())
        .collect();
    assert_eq!(numbers, [Some(2), Some(3)]);

    scene.run(&["undo", "1"]).expect_code(0);
    assert_eq!(content(), "one\n");
    scene.run(&["drop", "2", "3"]).expect_code(0);
    scene.run(&["undo", "2", "3"]).expect_code(0);
    let text = scene.run(&["merge", "3"]).expect_code(0).text();
    assert!(text.contains("merged task 3 into main"), "{text}");
}

#[test]
fn a_running_task_is_seen_and_stopped_with_its_work_on_a_branch() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    assert_eq!(
        ps(&scene),
        json!({"tasks": [], "commands": [], "sessions": [], "terminals": []})
    );
    let start = Instant::now();
    let child = running(&scene, &[], 1);
    let pid = child.id();
    let seen = ps(&scene);
    let task = &seen["tasks"][0];
    assert_eq!(task["number"], json!(1));
    assert_eq!(task["state"], json!("running"));
    assert_eq!(task["pid"], json!(pid));
    assert_eq!(task["workspace"], json!(scene.work()));
    assert!(task["doubt"].is_null(), "{task}");
    let text = scene.run(&["ps"]).expect_code(0).text();
    assert!(text.contains("cofferdam stop 1"), "{text}");
    let text = scene.run(&["review"]).expect_code(0).text();
    assert!(text.starts_with("task 1 running"), "{text}");

    let said = scene.run(&["stop", "1", "--json"]).expect_code(0).json();
    assert_eq!(said["tasks"][0]["end"], json!("stopped"));
    let branch = said["tasks"][0]["branch"].as_str().expect("a branch");
    assert_eq!(scene.git(&["show", &format!("{branch}:half.txt")]), "half");
    let done = collect(child, start);
    assert_eq!(done.code, Some(143), "{}", done.stderr);
    assert_eq!(ps(&scene)["tasks"], json!([]));
    let again = scene.run(&["stop", "1", "--json"]).expect_code(0).json();
    assert_eq!(again["tasks"][0]["end"], json!("not_running"));
}

#[test]
fn a_lease_that_names_another_process_is_never_signalled() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let start = Instant::now();
    let mut child = running(&scene, &[], 1);
    let leases = scene.path("data/leases");
    let name = &crate::scene::list(&leases)[0];
    let path = leases.join(name);
    let text = std::fs::read_to_string(&path).expect("readable");
    let mut record: Value = serde_json::from_str(&text).expect("a record");
    record["start"] = json!(record["start"].as_u64().expect("ticks") + 1);
    std::fs::write(&path, record.to_string()).expect("writable");
    let done = scene.run(&["stop", "1", "--json"]).expect_code(125);
    assert_eq!(done.json()["tasks"][0]["end"], json!("refused"));
    assert!(child.try_wait().expect("a child of ours").is_none());
    std::fs::write(&path, text).expect("writable");
    scene.run(&["stop", "--all"]).expect_code(0);
    collect(child, start);
}

#[test]
fn stopping_all_ends_bare_commands_and_leaves_servers() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let start = Instant::now();
    let child = running(&scene, &[], 1);
    let alone = scene.command(&["run", "--", "sleep", "600"]);
    let alone = { alone }.spawn().expect("the program starts");
    assert!(until(
        || ps(&scene)["commands"][0]["pid"] == json!(alone.id())
    ));
    let said = scene
        .run(&["stop", "--all", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(said["tasks"][0]["end"], json!("stopped"), "{said}");
    assert_eq!(said["commands"][0]["end"], json!("stopped"), "{said}");
    assert_eq!(said["commands"][0]["pid"], json!(alone.id()));
    assert_eq!(collect(alone, start).code, Some(143));
    assert_eq!(collect(child, start).code, Some(143));
    assert_eq!(
        ps(&scene),
        json!({"tasks": [], "commands": [], "sessions": [], "terminals": []})
    );
    let text = scene.run(&["stop", "--all"]).expect_code(0).text();
    assert_eq!(text, "nothing runs\n");
}

#[test]
fn the_same_task_runs_several_times_side_by_side() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let script = "pwd >where; echo \"$$\" >own.txt; git branch --show-current";
    let done = task(&scene, &["--fork", "3", "--worker", "w", "--json"], script).expect_code(0);
    let said = done.json();
    let tasks = said["tasks"].as_array().expect("a list");
    let mut branches: Vec<_> = tasks
        .iter()
        .map(|task| {
            assert_eq!(task["status"], json!("completed"));
            let branch = task["isolation"]["branch"].as_str().expect("a branch");
            branch.rsplit('/').next().expect("a name").to_owned()
        })
        .collect();
    branches.sort();
    assert_eq!(branches, ["w-1", "w-2", "w-3"]);

    // The worst code of all.
    let one_fails = "case $(git branch --show-current) in *-2) exit 7;; esac; echo >made";
    let done = task(&scene, &["--fork", "3", "--worker", "v"], one_fails).expect_code(7);
    let text = done.text();
    assert_eq!(text.matches("completed").count(), 2, "{text}");
    assert!(text.contains("failed (exit 7)"), "{text}");
    assert!(text.contains("cofferdam review 4 5 6"), "{text}");
}

#[test]
fn one_of_several_is_stopped_and_then_all_of_them() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let start = Instant::now();
    let child = running(&scene, &["--fork", "3"], 3);
    let said = scene.run(&["stop", "2", "--json"]).expect_code(0).json();
    assert_eq!(said["tasks"][0]["end"], json!("stopped"));
    let left: Vec<_> = ps(&scene)["tasks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|task| task["number"].as_u64())
        .collect();
    assert_eq!(left, [Some(1), Some(3)]);
    // A signal ends all of them, and their work is there.
    let pid = i32::try_from(child.id()).expect("a pid");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("ours");
    let done = collect(child, start);
    assert_ne!(done.code, Some(0), "{}", done.stderr);
    let branches = scene.git(&["branch", "--list", "cofferdam/*"]);
    assert_eq!(branches.lines().count(), 3, "{branches}");
}

#[test]
fn a_task_that_changed_its_own_state_only_waits_for_somebody() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let script = "mkdir -p ~/.codex/hooks && echo planted >~/.codex/hooks/a";
    task(&scene, &["--profile", "codex"], script).expect_code(0);
    let open = || {
        let said = scene.run(&["review", "--json"]).expect_code(0).json();
        said["tasks"].as_array().expect("a list").len()
    };
    assert_eq!(open(), 1);
    let text = scene.run(&["review"]).expect_code(0).text();
    assert!(text.contains("--apply-state .codex/hooks/a"), "{text}");
    assert!(text.contains("cofferdam drop 1"), "{text}");
    scene.run(&["drop", "1"]).expect_code(0);
    assert_eq!(open(), 0);
    // Applied is decided, too.
    task(&scene, &["--profile", "codex"], script).expect_code(0);
    assert_eq!(open(), 1);
    let apply = ["review", "2", "--apply-state", ".codex/hooks/a"];
    scene.run(&apply).expect_code(0);
    assert_eq!(open(), 0);
}

#[test]
fn what_a_run_says_about_its_agent_comes_before_the_command() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    std::fs::create_dir(scene.path("home/.codex")).expect("writable");
    std::fs::write(scene.path("home/.codex/auth.json"), "{}").expect("writable");
    let done = scene
        .run(&[
            "run",
            "--profile",
            "codex",
            "--",
            "sh",
            "-c",
            "echo it runs >&2; mkdir ~/.codex/hooks; echo planted >~/.codex/hooks/a",
        ])
        .expect_code(0);
    let at = |word: &str| {
        done.stderr
            .find(word)
            .unwrap_or_else(|| panic!("{}", done.stderr))
    };
    assert!(
        at("credentials of its own") < at("it runs"),
        "{}",
        done.stderr
    );
    assert!(
        at("it runs") < at("changed its own configuration"),
        "{}",
        done.stderr
    );
}

#[test]
fn what_an_agent_changed_of_its_own_state_is_shown_and_applied_by_the_owner_only() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let home = scene.path("home/.codex");
    std::fs::create_dir(&home).expect("writable");
    std::fs::write(home.join("config.toml"), "model = \"y\"\n").expect("writable");
    let script = "mkdir -p \"$HOME/.codex/hooks\" && echo planted >\"$HOME/.codex/hooks/a\"; echo two >a.txt";
    task(&scene, &["--profile", "codex"], script).expect_code(0);
    let hook = home.join("hooks/a");
    assert!(!hook.exists());
    let state = || {
        let said = scene.run(&["review", "1", "--json"]).expect_code(0).json();
        let list = said["tasks"][0]["agent_state"].as_array().expect("a list");
        list.iter()
            .map(|one| (one["path"].clone(), one["applied"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(state(), [(json!(".codex/hooks/a"), json!(false))]);
    let text = scene.run(&["review", "1"]).expect_code(0).text();
    assert!(text.contains("held back"), "{text}");
    assert!(text.contains("+planted"), "{text}");
    let apply = |path: &str| scene.run(&["review", "1", "--apply-state", path]);
    apply(".codex/other").expect_code(125);
    apply(".codex/hooks/a").expect_code(0);
    assert_eq!(
        std::fs::read_to_string(&hook).expect("applied"),
        "planted\n"
    );
    assert_eq!(state(), [(json!(".codex/hooks/a"), json!(true))]);
}
