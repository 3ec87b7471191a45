//! The journal, and what is shown of it.

use std::time::Instant;

use serde_json::{Value, json};

use crate::scene::{Scene, collect, finish, has_walls};

#[test]
fn twenty_runs_at_once_leave_no_hole() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let start = Instant::now();
    let children: Vec<_> = (0..20)
        .map(|number| {
            scene
                .command(&["run", "--", "echo", &number.to_string()])
                .spawn()
                .expect("the program starts")
        })
        .collect();
    for (number, child) in children.into_iter().enumerate() {
        let done = collect(child, start).expect_code(0);
        assert_eq!(done.text(), format!("{number}\n"));
    }
    scene.run(&["journal", "verify"]).expect_code(0);
    let events = scene
        .run(&["events", "--json", "--limit", "1000"])
        .expect_code(0)
        .json();
    let positions: Vec<_> = events["data"]["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| event["pos"].as_u64().expect("a position"))
        .collect();
    assert!(
        positions.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "{positions:?}"
    );
    let ended = events["data"]["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["type"] == "exec.ended")
        .count();
    assert_eq!(ended, 20);
}

#[test]
fn the_head_can_be_kept_elsewhere() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.run(&["run", "--", "true"]).expect_code(0);
    let head = scene.run(&["journal", "head"]).expect_code(0).text();
    scene.run(&["run", "--", "true"]).expect_code(0);
    scene
        .run(&["journal", "verify", "--expect", head.trim()])
        .expect_code(0);
    let (pos, hash) = head.trim().split_once(':').expect("POS:HASH");
    let other = format!("{pos}:{}", hash.chars().rev().collect::<String>());
    scene
        .run(&["journal", "verify", "--expect", &other])
        .expect_code(125);
}

#[test]
fn a_run_is_seen_in_events_and_summary() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene
        .run(&["run", "--", "sh", "-c", "exit 4"])
        .expect_code(4);
    let text = scene.run(&["events"]).expect_code(0).text();
    assert!(text.contains("exec.ended"), "{text}");
    assert!(text.contains("exit 4"), "{text}");
    let said = scene.run(&["summary", "--json"]).expect_code(0).json();
    assert_eq!(said["data"]["commands"]["total"], json!(1));
    assert!(said["meta"]["head"].as_u64() > Some(0));
    let filtered = scene
        .run(&["events", "--type", "exec", "--json"])
        .expect_code(0)
        .json();
    let only = filtered["data"]["events"].as_array().expect("events");
    assert!(!only.is_empty());
    assert!(only.iter().all(|event: &Value| {
        event["type"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("exec."))
    }));
}

#[test]
fn wrong_filters_name_the_field() {
    let scene = Scene::new();
    let said = scene
        .run(&["events", "--from", "yesterday", "--json"])
        .expect_code(125)
        .json();
    assert_eq!(said["error"]["code"], json!("invalid_time"));
    assert_eq!(said["error"]["field"], json!("from"));
}

#[test]
fn a_data_directory_that_others_may_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = Scene::new();
    let data = scene.path("data");
    std::fs::create_dir(&data).expect("a directory");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let done = scene.run(&["run", "--", "true"]).expect_code(125);
    assert!(
        done.stderr.contains("error[data_dir_refused]"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_damaged_journal_is_said() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.run(&["run", "--", "true"]).expect_code(0);
    for name in ["journal.db-wal", "journal.db-shm"] {
        let _ = std::fs::remove_file(scene.path("data").join(name));
    }
    std::fs::write(
        scene.path("data/journal.db"),
        "this is no database, but it is long enough",
    )
    .expect("ours");
    let done = scene.run(&["run", "--", "touch", "ran"]).expect_code(125);
    assert!(
        done.stderr.contains("error[journal_corrupt]"),
        "{}",
        done.stderr
    );
    assert_eq!(scene.listing(), [""; 0]);
}

#[test]
fn following_shows_what_comes_until_it_is_interrupted() {
    use std::io::BufRead as _;
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.run(&["run", "--", "true"]).expect_code(0);
    let arguments = ["events", "--follow", "--json", "--type", "exec.ended"];
    let mut child = scene
        .command(&arguments)
        .spawn()
        .expect("the program starts");
    let mut lines = std::io::BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("an object")
    };
    assert_eq!(next()["data"]["return_code"], json!(0));
    scene
        .run(&["run", "--", "sh", "-c", "exit 5"])
        .expect_code(5);
    assert_eq!(next()["data"]["return_code"], json!(5));
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(crate::scene::wait(&mut child).code(), Some(0));
}

#[test]
fn a_reader_that_goes_ends_a_listing_quietly() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.run(&["run", "--", "true"]).expect_code(0);
    let mut child = scene
        .command(&["events", "--follow"])
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    scene.run(&["run", "--", "true"]).expect_code(0);
    let done = collect(child, Instant::now());
    assert_eq!((done.code, done.stderr.as_str()), (Some(141), ""));
}

#[test]
fn looking_makes_nothing() {
    let scene = Scene::new();
    for arguments in [
        &["events"][..],
        &["topology"],
        &["summary"],
        &["journal", "head"],
    ] {
        scene.run(arguments).expect_code(0);
    }
    assert!(!scene.path("data").exists());
}

#[test]
fn a_full_disk_is_said_and_nothing_runs() {
    let scene = Scene::new();
    let data = scene.path("data");
    std::fs::create_dir(&data).expect("a directory");
    let mounted = rustix::mount::mount(
        "none",
        &data,
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        Some(c"size=64k,mode=700"),
    );
    if let Err(error) = mounted {
        crate::scene::skipped(&format!("no small file system can be mounted: {error}"));
        return;
    }
    let filled = std::fs::write(data.join("fill"), vec![1; 1 << 20]);
    assert!(filled.is_err(), "it is not small");
    let done = scene.run(&["run", "--", "touch", "ran"]);
    rustix::mount::unmount(&data, rustix::mount::UnmountFlags::DETACH).expect("mounted just now");
    let done = done.expect_code(125);
    assert!(
        done.stderr.contains("error[storage_exhausted]"),
        "{}",
        done.stderr
    );
    assert_eq!(scene.listing(), [""; 0]);
}

#[test]
fn a_limit_on_file_sizes_is_told_and_kills_nobody() {
    let scene = Scene::new();
    let program = env!("CARGO_BIN_EXE_cofferdam");
    let line = format!("ulimit -f 1; exec {program} run --json -- true");
    let done = finish(scene.program("sh".as_ref(), &["-c", &line])).expect_code(125);
    // By code, not by a signal, which is what an unhandled SIGXFSZ does.
    assert!(done.json()["error"]["code"].is_string());
}
