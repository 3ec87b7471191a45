//! `serve`: the way from the command line to an answer, and back.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{Scene, Server, wait};

#[test]
fn it_answers_whoever_has_the_token_and_ends_when_asked() {
    let scene = Scene::new();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--json"];
    let mut child = scene
        .command(&arguments)
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a line");
    let said: serde_json::Value = serde_json::from_str(&line).expect("an object");
    let address = said["address"].as_str().expect("an address").to_owned();
    let token =
        std::fs::read_to_string(said["token_file"].as_str().expect("a path")).expect("readable");
    let ask = |token: &str| {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        write!(
            stream,
            "GET /api/agents/visibility/runtime-summary HTTP/1.1\r\nHost: {address}\r\n\
             Authorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    assert!(
        ask(token.trim()).starts_with("HTTP/1.1 200"),
        "{}",
        ask(token.trim())
    );
    assert!(ask("something-else-entirely").starts_with("HTTP/1.1 401"));
    let second = scene
        .run(&["serve", "--listen", "127.0.0.1:0"])
        .expect_code(125);
    assert!(
        second.stderr.contains("error[server_running]"),
        "{}",
        second.stderr
    );
    let pid = Pid::from_raw(child.id() as i32).expect("a pid");
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn addresses_that_are_none_or_open_to_others() {
    let scene = Scene::new();
    let done = scene
        .run(&["serve", "--listen", "nowhere"])
        .expect_code(125);
    assert!(
        done.stderr.contains("error[invalid_request]"),
        "{}",
        done.stderr
    );
    let done = scene
        .run(&["serve", "--listen", "0.0.0.0:0"])
        .expect_code(125);
    assert!(
        done.stderr.contains("error[listen_refused]"),
        "{}",
        done.stderr
    );
}

#[test]
fn c46_c47_a_changed_policy_is_a_version_and_a_broken_one_keeps_the_last() {
    let scene = Scene::new();
    let policy = scene.path("home").join(".config/cofferdam/policy.toml");
    std::fs::create_dir_all(policy.parent().expect("a directory")).expect("made");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--json"];
    let child = scene
        .command(&arguments)
        .spawn()
        .expect("the program starts");
    let mut server = Server(child);
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(server.0.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a line");
    let told = |kind: &str| -> Vec<serde_json::Value> {
        let said = scene.run(&["events", "--json", "--type", kind]).json();
        said["data"]["events"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let wait_for = |kind: &str| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while told(kind).is_empty() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        told(kind)
    };
    std::fs::write(&policy, "schema = 1\nnetwork = \"full\"\n").expect("written");
    let loaded = wait_for("policy.loaded");
    assert_eq!(loaded.len(), 1, "{loaded:?}");
    assert_eq!(loaded[0]["data"]["version"], 2);
    std::fs::write(&policy, "schema = 1\nnetwork = \"fu").expect("written");
    let refused = wait_for("policy.refused");
    assert_eq!(refused[0]["data"]["version"], 2, "the last good one stays");
    assert_eq!(told("policy.loaded").len(), 1);
    let pid = Pid::from_raw(server.0.id() as i32).expect("a pid");
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(wait(&mut server.0).code(), Some(0));
}
