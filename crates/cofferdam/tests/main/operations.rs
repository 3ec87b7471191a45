//! `call` and `mcp`: the operations from the command line and from a client of the protocol.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cofferdam_client::{Client, find_server};
use cofferdam_core::operation::{CommandRequest, DescribeEnvironment};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{Scene, collect, finish, wait};

/// Walls that work everywhere.
const WALLS: [&str; 4] = ["--provider", "direct", "--net", "full"];

#[test]
fn call_carries_operations_out_here() {
    let scene = Scene::new();
    let call = |words: &[&str]| {
        let line: Vec<&str> = ["call"]
            .iter()
            .chain(&WALLS)
            .chain(words)
            .copied()
            .collect();
        scene.run(&line)
    };
    let ran = call(&["run_command", "--command", "echo hi; exit 3"]).expect_code(3);
    assert!(
        ran.text().starts_with("hi\n[failed, exit code 3"),
        "{}",
        ran.text()
    );
    let ran = call(&[
        "run_command",
        "--json",
        "--env",
        "A=b c",
        "--",
        "sh",
        "-c",
        "echo $A",
    ]);
    assert_eq!(ran.expect_code(0).json()["stdout"], "b c\n");
    let refused = call(&[
        "run_command",
        "--command",
        "true",
        "--timeout",
        "0",
        "--json",
    ]);
    assert_eq!(
        refused.expect_code(125).json()["error"]["code"],
        "invalid_timeout"
    );
    let refused = call(&["run_command", "--grants", "all"]).expect_code(125);
    assert!(
        refused.stderr.contains("no field grants"),
        "{}",
        refused.stderr
    );
    let help = scene.run(&["call", "run_command", "--help"]).expect_code(0);
    assert!(
        help.text().contains("--idle-timeout <number>"),
        "{}",
        help.text()
    );
    let list = scene.run(&["call", "--list"]).expect_code(0);
    assert!(
        list.text().contains("describe_environment"),
        "{}",
        list.text()
    );
}

#[test]
fn a_server_is_found_by_its_data_directory_and_gone_when_it_ends() {
    let scene = Scene::new();
    scene.unasked();
    let data = scene.path("data");
    assert_eq!(find_server(&data), None);
    let line: Vec<&str> = ["serve", "--listen", "127.0.0.1:0", "--json"]
        .iter()
        .chain(&WALLS)
        .copied()
        .collect();
    let mut child = scene.command(&line).spawn().expect("the program starts");
    let mut said = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut stdout, &mut said).expect("a line");
    let found = find_server(&data).expect("it lives");
    assert_eq!(
        found.workspace.expect("a workspace").as_path(),
        scene.work()
    );
    let client = Client::of_data_dir(&data)
        .expect("a token")
        .expect("a server");
    let outcome = client
        .run_command(&CommandRequest::shell("echo hi"))
        .expect("an outcome");
    assert_eq!(outcome.stdout, "hi\n");
    let described = client.describe_environment(&DescribeEnvironment::default());
    assert!(described.expect("a description").text.contains("direct"));
    let problem = client
        .run_command(&CommandRequest::default())
        .expect_err("nothing to run");
    assert_eq!(
        problem.code,
        cofferdam_core::error::ErrorCode::InvalidRequest
    );
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is there");
    assert!(wait(&mut child).success());
    assert_eq!(find_server(&data), None);
    assert!(!data.join("server.json").exists());
}

#[test]
fn mcp_ends_with_its_client_and_takes_everything_with_it() {
    let scene = Scene::new();
    scene.unasked();
    let line: Vec<&str> = ["mcp"].iter().chain(&WALLS).copied().collect();
    let mut command = scene.command(&line);
    command.stdin(Stdio::piped());
    let start = std::time::Instant::now();
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"0"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"echo $$ > pid.new; mv pid.new pid; sleep 300"}}}"#,
    ] {
        writeln!(stdin, "{message}").expect("sent");
    }
    let file = scene.work().join("pid");
    let until = std::time::Instant::now() + crate::scene::LIMIT;
    while !file.exists() {
        assert!(std::time::Instant::now() < until, "the command never began");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = std::fs::read_to_string(&file).expect("a pid");
    drop(stdin);
    collect(child, start).expect_code(0);
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid}");
}

/// Talks to an MCP server line by line.
struct Talk {
    child: std::process::Child,
    input: std::process::ChildStdin,
    output: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Talk {
    fn start(scene: &Scene, words: &[&str], capabilities: &str) -> Self {
        use std::io::BufRead as _;
        let mut command = scene.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let input = child.stdin.take().expect("a pipe");
        let output = child.stdout.take().expect("a pipe");
        let mut talk = Self {
            child,
            input,
            output: std::io::BufReader::new(output).lines(),
        };
        talk.say(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"clientInfo":{{"name":"test","version":"0"}}}}}}"#
        ));
        talk.hear();
        talk.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        talk
    }

    fn say(&mut self, message: &str) {
        writeln!(self.input, "{message}").expect("sent");
    }

    fn hear(&mut self) -> serde_json::Value {
        let line = self.output.next().expect("an answer").expect("text");
        serde_json::from_str(&line).expect("JSON")
    }

    fn end(mut self) {
        drop(self.input);
        let _ = self.child.wait();
    }
}

#[test]
fn a_client_that_can_ask_its_user_is_asked_and_its_answer_is_the_owners() {
    if !crate::scene::has_walls() {
        return;
    }
    let scene = Scene::new();
    let words = ["mcp", "--permission", "approval"];
    let mut talk = Talk::start(&scene, &words, r#"{"elicitation":{}}"#);
    let made = scene.work().join("made");
    for (answer, is_made) in [
        (r#"{"action":"decline"}"#, false),
        (r#"{"action":"accept","content":{"answer":"deny"}}"#, false),
        (r#"{"action":"accept","content":{"grant":true}}"#, false),
        (
            r#"{"action":"accept","content":{"answer":"approve once"}}"#,
            true,
        ),
    ] {
        talk.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"create_file","arguments":{"path":"made"}}}"#);
        let asked = talk.hear();
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        let message = asked["params"]["message"].as_str().expect("text");
        assert!(message.contains("create_file"), "{message}");
        assert!(message.contains("Writes: "), "{message}");
        assert!(!made.exists());
        talk.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{answer}}}"#,
            asked["id"]
        ));
        let result = talk.hear();
        assert_eq!(result["id"], 2, "{result}");
        assert_eq!(result["result"]["isError"] == true, !is_made, "{result}");
        assert_eq!(made.exists(), is_made, "{answer}");
    }
    talk.end();
}

#[test]
fn row_76_a_client_that_cannot_ask_waits_for_an_answer_from_the_command_line() {
    if !crate::scene::has_walls() {
        return;
    }
    let scene = Scene::new();
    let words = ["mcp", "--permission", "approval"];
    let mut talk = Talk::start(&scene, &words, "{}");
    talk.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"echo x > made"}}}"#);
    let until = std::time::Instant::now() + crate::scene::LIMIT;
    let id = loop {
        assert!(std::time::Instant::now() < until, "nothing was asked");
        let list = scene.run(&["approvals", "--json"]).expect_code(0).json();
        if let Some(id) = list["approvals"][0]["ask"]["approval_id"].as_str() {
            break id.to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let shown = scene.run(&["approvals", "show", &id]).expect_code(0);
    let text = shown.text();
    assert!(text.contains("echo x > made"), "{text}");
    assert!(text.contains("to remember: allow command"), "{text}");
    scene
        .run(&["approvals", "approve", &id, "--for", "repository"])
        .expect_code(0);
    let result = talk.hear();
    assert_eq!(
        result["result"]["structuredContent"]["status"], "completed",
        "{result}"
    );
    assert!(scene.work().join("made").exists());
    // The same again asks nobody.
    talk.say(r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"echo x > made"}}}"#);
    let result = talk.hear();
    assert_eq!(
        result["result"]["structuredContent"]["status"], "completed",
        "{result}"
    );
    let rules = scene
        .run(&["approvals", "remembered", "--json"])
        .expect_code(0)
        .json();
    let rule = rules["remembered"][0]["remembered"]["rule_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    scene.run(&["approvals", "forget", &rule]).expect_code(0);
    let again = scene.run(&["approvals", "deny", &id]).expect_code(0);
    assert!(again.text().contains("already"), "{}", again.text());
    talk.end();
}

/// Finds the Python that has the protocol's official client.
fn python() -> Option<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = top.join("target/test-venv/bin/python");
    python.exists().then_some(python)
}

#[test]
fn row_114_the_official_client_drives_mcp() {
    let Some(python) = python() else {
        println!(
            "skipped: there is no target/test-venv; scripts/setup --tests makes it where a package index is reachable"
        );
        return;
    };
    let scene = Scene::new();
    scene.unasked();
    let script = scene.path("client.py");
    std::fs::write(&script, include_str!("mcp_client.py")).expect("written");
    let script = script.display().to_string();
    let workspace = scene.work().display().to_string();
    let arguments = [
        script.as_str(),
        env!("CARGO_BIN_EXE_cofferdam"),
        workspace.as_str(),
    ];
    let done = finish(scene.program(python.as_os_str(), &arguments));
    let done = done.expect_code(0);
    assert!(done.text().starts_with("good: "), "{}", done.text());
}

#[test]
fn files_are_written_read_and_edited_from_the_command_line() {
    let scene = Scene::new();
    let call = |words: &[&str]| {
        let line: Vec<&str> = ["call"]
            .iter()
            .chain(&WALLS)
            .chain(words)
            .copied()
            .collect();
        scene.run(&[&line[..], &["--json"]].concat())
    };
    let written = call(&["write_file", "--path", "a.txt", "--content", "one\ntwo\n"]);
    assert_eq!(written.expect_code(0).json()["bytes"], 8);
    let read = call(&["read_file", "--path", "a.txt"])
        .expect_code(0)
        .json();
    assert_eq!(read["content"], "one\ntwo\n");
    let replacement = r#"[{"old_string": "two", "new_string": "2"}]"#;
    let edited = call(&[
        "edit_file",
        "--path",
        "a.txt",
        "--replacements",
        replacement,
    ]);
    edited.expect_code(0);
    let now = std::fs::read_to_string(scene.work().join("a.txt")).expect("there");
    assert_eq!(now, "one\n2\n");
    let outside = call(&["read_file", "--path", "/etc/shadow"]);
    assert_ne!(outside.code, Some(0));
    let code = outside.json()["error"]["code"].clone();
    assert!(code.is_string(), "{}", outside.text());
}
