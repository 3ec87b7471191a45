//! Terminals and sessions of a running server, as a person has them, and their end with it.

use crate::scene::{Scene, Server, has_walls, processes_with, until, wait};
use crate::terminal::Terminal;

/// Walls that work everywhere.
const WALLS: [&str; 4] = ["--provider", "direct", "--net", "full"];
/// Ctrl-].
const DETACH: &[u8] = b"\x1d";

#[test]
fn row_23_attach_types_and_resizes_and_sees_the_screen_again() {
    let scene = Scene::new();
    let server = Server::start(&scene, &WALLS);
    scene.run(&["terminal", "open", "build"]).expect_code(0);
    let mut terminal = Terminal::new(30, 90);
    let before = terminal.modes();

    let mut child = terminal.start(&scene, &["attach", "build"]);
    terminal.expect("Ctrl-] leaves");
    terminal.press(b"echo wo''rd; stty size\r");
    terminal.expect("word");
    terminal.expect("30 90");
    assert_ne!(terminal.modes(), before, "the terminal is not raw");
    terminal.press(b"while stty size; do sleep 0.05; done | grep -m1 '41 99' | tr 1 X\r");
    terminal.expect("while stty");
    terminal.size(41, 99);
    terminal.expect("4X 99");

    // Somebody else looks on, and cannot type.
    let mut other = Terminal::new(41, 99);
    let mut watcher = other.start(&scene, &["attach", "build", "--read-only"]);
    other.expect("word");
    other.press(b"touch typed\r");
    terminal.press(b"echo se''en\r");
    other.expect("seen");
    other.press(b"\x03");
    assert_eq!(wait(&mut watcher).code(), Some(0));
    assert!(other.is_canonical(), "the terminal was not given back");
    assert!(!scene.work().join("typed").exists());

    // What the program made of the screen is undone.
    terminal.expect("seen");
    terminal.press(b"printf '\\033[?1049hfull\\043screen'\r");
    terminal.expect("full#screen");
    terminal.press(DETACH);
    assert_eq!(wait(&mut child).code(), Some(0));
    terminal.expect("\x1b[?1049l");
    terminal.expect("left build");
    assert_eq!(terminal.modes(), before, "the terminal was not given back");

    let mut child = terminal.start(&scene, &["attach", "build"]);
    terminal.expect("full#screen");
    terminal.press(b"printf '\\033[?1049l'; echo ba''ck\r");
    terminal.expect("back");
    terminal.press(DETACH);
    assert_eq!(wait(&mut child).code(), Some(0));
    terminal.forget();
    let mut child = terminal.start(&scene, &["attach", "build"]);
    terminal.expect("word");
    // The server's end is told, and gives the terminal back as well.
    server.stop();
    terminal.expect("build:");
    assert_eq!(wait(&mut child).code(), Some(0));
    assert_eq!(terminal.modes(), before, "the terminal was not given back");
}

#[test]
fn row_24_the_verbs_of_terminals_say_what_comes_of_them() {
    let scene = Scene::new();
    let refused = scene.run(&["terminal", "list"]).expect_code(125);
    assert!(
        refused.stderr.contains("cofferdam serve"),
        "{}",
        refused.stderr
    );
    let server = Server::start(&scene, &WALLS);
    let opened = scene
        .run(&["terminal", "open", "one", "--json"])
        .expect_code(0);
    assert_eq!(opened.json()["terminal"]["name"], "one");
    let again = scene
        .run(&["terminal", "open", "one", "--json"])
        .expect_code(125);
    assert_eq!(again.json()["error"]["code"], "terminal_exists");
    let typed = scene
        .run(&["terminal", "input", "one", "echo $((40 + 2))"])
        .expect_code(0);
    assert!(typed.text().contains("42"), "{}", typed.text());
    assert!(typed.stderr.contains("completed"), "{}", typed.stderr);
    let waited = scene
        .run(&["terminal", "input", "one", "sleep 300", "--wait", "0.3"])
        .expect_code(124);
    assert!(waited.stderr.contains("timeout") || waited.stderr.contains("no_output"));
    scene
        .run(&["terminal", "input", "one", "--key", "ctrl-c"])
        .expect_code(0);
    let resized = scene.run(&["terminal", "resize", "one", "10", "40", "--json"]);
    assert_eq!(resized.expect_code(0).json()["columns"], 40);
    let list = scene.run(&["terminal", "list"]).expect_code(0);
    assert!(list.text().contains("40×10"), "{}", list.text());
    let screen = scene.run(&["terminal", "snapshot", "one"]).expect_code(0);
    assert!(screen.text().contains("42"), "{}", screen.text());
    scene.run(&["terminal", "reset", "one"]).expect_code(0);
    scene
        .run(&["terminal", "signal", "one", "NOSUCH"])
        .expect_code(125);
    scene.run(&["terminal", "close", "one"]).expect_code(0);
    let gone = scene
        .run(&["terminal", "snapshot", "one", "--json"])
        .expect_code(125);
    assert_eq!(gone.json()["error"]["code"], "terminal_unknown");
    scene.run(&["terminal", "open", "two"]).expect_code(0);
    server.stop();
}

#[test]
fn row_130_a_session_keeps_its_directory_and_ends_with_its_server() {
    let scene = Scene::new();
    let server = Server::start(&scene, &WALLS);
    std::fs::create_dir(scene.work().join("below")).expect("made");
    scene.run(&["session", "open", "work"]).expect_code(0);
    let run = |words: &[&str]| {
        let line: Vec<&str> = ["session", "run", "work"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        scene.run(&line)
    };
    run(&["-c", "cd below && export A=kept; echo said >&2"]).expect_code(0);
    let there = run(&["-c", "pwd; echo $A"]).expect_code(0);
    assert_eq!(
        there.text(),
        format!("{}\nkept\n", scene.work().join("below").display())
    );
    run(&["--", "sh", "-c", "exit 7"]).expect_code(7);
    run(&["--timeout", "0.2", "-c", "sleep 300"]).expect_code(124);
    let answer = run(&["--json", "-c", "echo $A"]).expect_code(0).json();
    assert_eq!(answer["result"]["stdout"], "kept\n");
    assert_eq!(answer["session_reset"], false);
    // A job, a command, and what runs in a terminal: the server's end takes all along.
    let mark = format!("3{}.5", std::process::id());
    run(&["-c", &format!("sleep {mark} & echo begun")]).expect_code(0);
    let list = scene.run(&["session", "list"]).expect_code(0);
    assert!(list.text().contains("work"), "{}", list.text());
    let refused = scene.run(&["attach", "nothing"]);
    assert_eq!(refused.code, Some(125), "{}", refused.stderr);
    // Words behind -- are no text for a shell, and the hint says so.
    let word = run(&["--", "echo two words"]).expect_code(127);
    assert!(
        word.stderr.contains("-c 'echo two words'"),
        "{}",
        word.stderr
    );
    scene
        .run(&["session", "open", "other", "--plain"])
        .expect_code(0);
    scene.run(&["session", "close", "other"]).expect_code(0);
    let gone = scene
        .run(&["session", "run", "other", "--json", "--", "true"])
        .expect_code(125);
    assert_eq!(gone.json()["error"]["code"], "session_unknown");
    let mut waiting = scene
        .command(&["session", "run", "work", "-c", &format!("sleep 1{mark}")])
        .spawn()
        .expect("the program starts");
    scene.run(&["terminal", "open", "desk"]).expect_code(0);
    scene
        .run(&[
            "terminal",
            "input",
            "desk",
            &format!("sleep 2{mark}"),
            "--wait",
            "0.2",
        ])
        .expect_code(124);
    assert!(
        until(|| processes_with(&mark).len() >= 3),
        "all of them run"
    );
    server.stop();
    let _ = wait(&mut waiting);
    assert!(processes_with(&mark).is_empty(), "something is left");
    let told = scene
        .run(&["events", "--json", "--type", "session.ended"])
        .json();
    let reasons: Vec<_> = told["data"]["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| event["data"]["reason"].clone())
        .collect();
    assert_eq!(reasons, ["closed", "server_stopped"]);
}

#[test]
fn row_27_a_changed_policy_closes_what_crosses_it_at_once() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.write("b.txt", "b");
    let server = Server::start(&scene, &["--provider", "bwrap"]);
    scene.run(&["terminal", "open", "desk"]).expect_code(0);
    scene.run(&["session", "open", "work"]).expect_code(0);
    let mark = format!("4{}.5", std::process::id());
    let job = format!("sleep {mark} & cd /; export A=kept");
    scene
        .run(&["session", "run", "work", "-c", &job])
        .expect_code(0);
    assert_eq!(processes_with(&mark).len(), 1);
    let policy = scene.path("home").join(".config/cofferdam");
    std::fs::create_dir_all(&policy).expect("made");
    std::fs::write(policy.join("new"), "schema = 1\ndeny_read = [\"b.txt\"]\n").expect("written");
    std::fs::rename(policy.join("new"), policy.join("policy.toml")).expect("renamed");
    // Nobody asks for anything: they end by themselves.
    assert!(until(|| {
        let list = scene.run(&["terminal", "list", "--json"]).json();
        list["terminals"].as_array().is_some_and(Vec::is_empty)
    }));
    assert!(until(|| processes_with(&mark).is_empty()));
    let answer = scene.run(&["session", "run", "work", "--json", "-c", "echo $A; pwd"]);
    let answer = answer.expect_code(0).json();
    assert_eq!(answer["session_reset"], true);
    assert_eq!(answer["result"]["stdout"], "kept\n/\n");
    let again = scene
        .run(&["session", "run", "work", "--json", "--", "true"])
        .json();
    assert_eq!(again["session_reset"], false);
    server.stop();
}

#[test]
fn attach_opens_a_shell_in_the_place_of_a_session() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    std::fs::create_dir(scene.work().join("below")).expect("made");
    let server = Server::start(&scene, &["--provider", "bwrap"]);
    scene.run(&["session", "open", "work"]).expect_code(0);
    let mark = format!("5{}.5", std::process::id());
    let job = format!("cd below; echo private >/tmp/x; sleep {mark} & echo $! >/tmp/pid");
    scene
        .run(&["session", "run", "work", "-c", &job])
        .expect_code(0);
    let mut terminal = Terminal::new(30, 90);
    let before = terminal.modes();
    let mut child = terminal.start(&scene, &["attach", "work"]);
    terminal.expect("Ctrl-] leaves");
    // Same directory, same private files, same processes.
    terminal.press(b"cat /tmp/x; basename $PWD; test -d /proc/$(cat /tmp/pid) && echo li''ves\r");
    terminal.expect("private");
    terminal.expect("below");
    terminal.expect("lives");
    terminal.press(DETACH);
    assert_eq!(wait(&mut child).code(), Some(0));
    assert_eq!(terminal.modes(), before, "the terminal was not given back");
    // It goes on, and is listed as what it is, with the session.
    let listed = scene.run(&["ps", "--json"]).expect_code(0).json();
    assert_eq!(listed["terminals"][0]["name"], "work");
    assert_eq!(
        listed["terminals"][0]["session"],
        listed["sessions"][0]["session_id"]
    );
    assert!(
        listed["terminals"][0]["last_output_ms"].is_u64(),
        "{listed}"
    );
    assert_eq!(listed["commands"], serde_json::json!([]));
    let shown = scene.run(&["ps"]).expect_code(0).text();
    assert!(
        shown.contains("SESSION") && shown.contains("LAST OUTPUT"),
        "{shown}"
    );
    let mut child = terminal.start(&scene, &["attach", "work"]);
    terminal.expect("lives");
    // The shell's end is not the session's.
    terminal.press(b"exit\r");
    assert_eq!(wait(&mut child).code(), Some(0));
    let list = scene.run(&["terminal", "list", "--json"]).json();
    assert_eq!(list["terminals"], serde_json::json!([]));
    scene
        .run(&[
            "session",
            "run",
            "work",
            "-c",
            "test -d /proc/$(cat /tmp/pid)",
        ])
        .expect_code(0);
    server.stop();
    assert!(processes_with(&mark).is_empty());
}

#[test]
fn what_lasts_is_followed_and_ended_by_its_name() {
    let scene = Scene::new();
    let server = Server::start(&scene, &WALLS);
    scene.run(&["session", "open", "work"]).expect_code(0);
    scene.run(&["terminal", "open", "desk"]).expect_code(0);
    let job = "(sleep 0.3; echo from the job) & true";
    scene
        .run(&["session", "run", "work", "-c", job])
        .expect_code(0);
    scene
        .run(&["terminal", "input", "desk", "echo $((40 + 2))"])
        .expect_code(0);
    let desk = scene.run(&["logs", "desk"]).expect_code(0);
    assert!(desk.text().contains("\n42"), "{}", desk.text());
    let follow = |name: &'static str| {
        let child = scene
            .command(&["logs", "-f", name])
            .spawn()
            .expect("the program starts");
        std::thread::spawn(move || crate::scene::collect(child, std::time::Instant::now()))
    };
    let (job, screen) = (follow("work"), follow("desk"));
    assert!(until(|| {
        let log = scene.run(&["logs", "work"]).expect_code(0);
        log.text() == "from the job\n"
    }));
    scene
        .run(&["terminal", "input", "desk", "echo $((60 + 1))"])
        .expect_code(0);
    let killed = scene
        .run(&["kill", "work", "desk", "--json"])
        .expect_code(0);
    let closed = killed.json()["closed"].clone();
    assert!(closed[0]["session"]["session_id"].is_string(), "{closed}");
    assert_eq!(closed[1]["terminal"]["terminal"]["name"], "desk");
    let job = job.join().expect("a reader").expect_code(0);
    assert_eq!(job.text(), "from the job\n");
    let screen = screen.join().expect("a reader").expect_code(0);
    assert!(screen.text().contains("61"), "{}", screen.text());
    let gone = scene.run(&["kill", "desk"]).expect_code(125);
    assert!(gone.stderr.contains("error["), "{}", gone.stderr);
    scene.run(&["session", "open", "again"]).expect_code(0);
    server.stop();
}
