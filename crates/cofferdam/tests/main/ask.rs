//! Questions about hosts that nothing allows, put to whoever sits at the terminal.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_client::{Client, find_server};
use serde_json::{Value, json};

use crate::scene::{Scene, Server, has_walls, skipped, until, wait};
use crate::terminal::Terminal;

/// A name that nobody has, so that nothing of this leaves the machine.
const HOST: &str = "nobody-has-this-name.invalid";

fn can_ask() -> bool {
    if !Path::new("/usr/bin/curl").exists() {
        skipped("there is no curl");
        return false;
    }
    has_walls()
}

fn curl() -> String {
    format!("curl -sS -o /dev/null -w 'code=%{{http_code}}\\n' http://{HOST}/")
}

#[test]
fn an_unknown_host_is_a_question_on_the_terminal_and_no_refuses_it() {
    if !can_ask() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let mut terminal = Terminal::new(40, 120);
    let script = curl();
    let words = [
        "run",
        "--net",
        "restricted",
        "--ask",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut child = terminal.start(&scene, &words);
    terminal.expect(&format!("reach {HOST}:80, which nothing allows?"));
    terminal.expect("ne[v]er?");
    terminal.press(b"n");
    terminal.expect("code=403");
    wait(&mut child);
}

#[test]
fn tasks_side_by_side_ask_one_after_the_other() {
    if !can_ask() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let mut terminal = Terminal::new(40, 120);
    let script = curl();
    let words = [
        "task", "run", "--fork", "2", "--ask", "--goal", "g", "--", "sh", "-c", &script,
    ];
    let mut child = terminal.start(&scene, &words);
    for _ in 0..2 {
        terminal.expect(&format!("reach {HOST}:80, which nothing allows?"));
        terminal.expect("ne[v]er?");
        terminal.press(b"n");
    }
    wait(&mut child);
    let said = scene.run(&["review", "1", "2", "--json"]).json();
    for number in 0..2 {
        let one = &said["tasks"][number];
        let hosts: Vec<(&Value, &Value)> = one["hosts"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|host| (&host["host"], &host["verdict"]))
            .collect();
        assert_eq!(hosts, [(&json!(HOST), &json!("refused"))], "{one}");
        let denied = one["denials"][0]["denial"]["instead"].to_string();
        assert!(denied.contains("the owner was asked and refused"), "{one}");
    }
}

fn client(scene: &Scene) -> Client {
    let found = Client::of_data_dir(&scene.path("data"));
    found.expect("readable").expect("a server")
}

/// Has a server run a client that wants to reach a host of its own name.
fn reach(client: &Client, host: &str) -> Value {
    let text = curl().replace(HOST, &format!("{host}.{HOST}"));
    client
        .call("run_command", &json!({"command": text}))
        .expect("an outcome")
}

fn pending(client: &Client) -> Vec<Value> {
    let page: Value = client
        .call("approval_list", &json!({}))
        .expect("a list of approvals");
    page["approvals"].as_array().expect("a list").clone()
}

/// Answers the question that comes, by HTTP.
fn answer(client: &Client, host: &str, answer: &str, lasts: &str) {
    let mut asked = Vec::new();
    assert!(
        until(|| {
            asked = pending(client);
            !asked.is_empty()
        }),
        "nothing was asked about {host}"
    );
    let ask = &asked[0]["ask"];
    assert_eq!(ask["kind"], "host");
    assert_eq!(
        ask["preview"]["hosts"],
        json!([format!("{host}.{HOST}:80")])
    );
    let said = json!({"approval_id": ask["approval_id"], "answer": answer, "remember": lasts});
    let decided: Value = client
        .call("approval_answer", &said)
        .expect("it is in time");
    assert_eq!(decided["counted"], true, "{decided}");
}

#[test]
fn a_servers_miss_is_held_while_somebody_watches_and_else_refused_at_once() {
    if !can_ask() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let server = Server::start(&scene, &["--provider", "bwrap", "--ask"]);
    let client = client(&scene);
    // Longer than it takes to be refused, shorter than a question waits.
    let at_once = Duration::from_secs(12);
    let begun = Instant::now();
    let alone = reach(&client, "alone");
    assert_eq!(alone["stdout"], "code=403\n", "{alone}");
    assert!(begun.elapsed() < at_once, "{:?}", begun.elapsed());
    let told = scene.run(&["approvals", "list", "--all", "--json"]).json();
    assert_eq!(told["approvals"], json!([]), "nobody was asked: {told}");

    // Whoever looks on with the owner's token is somebody; the command line answers.
    let found = find_server(&scene.path("data")).expect("it lives");
    let token = std::fs::read_to_string(scene.path("data").join("server.token")).expect("a token");
    let mut stream = TcpStream::connect(&found.address).expect("it listens");
    let address = &found.address;
    let token = token.trim();
    write!(
        stream,
        "GET /api/agents/visibility/stream?event_type=approval HTTP/1.1\r\nHost: {address}\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    )
    .expect("it reads");
    let mut lines = BufReader::new(&stream).lines();
    assert!(lines.next().expect("a line").expect("text").contains("200"));
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| reach(&client, "stream"));
        let seen = lines
            .map_while(Result::ok)
            .any(|line| line.contains("approval.requested"));
        assert!(seen, "the stream ended");
        let told = scene.run(&["approvals", "--json"]).json();
        let id = told["approvals"][0]["ask"]["approval_id"].clone();
        let id = id.as_str().expect("an id");
        let line = ["approvals", "deny", id, "--reason", "not that"];
        scene.run(&line).expect_code(0);
        let outcome = looking.join().expect("an outcome");
        assert_eq!(outcome["stdout"], "code=403\n", "{outcome}");
        let denied = outcome["denials"][0]["instead"].to_string();
        assert!(denied.contains("was asked and refused"), "{denied}");
        let late = scene.run(&["approvals", "approve", id]).expect_code(0);
        assert!(
            late.text().contains("was rejected already"),
            "{}",
            late.text()
        );
    });
    drop(stream);

    // So is whoever has listed what waits: for the repository, and never.
    let _ = pending(&client);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| reach(&client, "yes"));
        answer(&client, "yes", "approve", "repository");
        let outcome = waiting.join().expect("an outcome");
        assert_ne!(outcome["stdout"], "code=403\n", "nobody has it: {outcome}");
        let waiting = scope.spawn(|| reach(&client, "no"));
        answer(&client, "no", "reject", "repository");
        let outcome = waiting.join().expect("an outcome");
        assert_eq!(outcome["stdout"], "code=403\n", "{outcome}");
    });
    let begun = Instant::now();
    let (yes, no) = (reach(&client, "yes"), reach(&client, "no"));
    assert_ne!(yes["stdout"], "code=403\n", "{yes}");
    // By the rule, or by the plan that is a second older by what was answered.
    assert_eq!(no["denials"][0]["askable"], false, "{no}");
    assert!(begun.elapsed() < at_once, "{:?}", begun.elapsed());
    assert_eq!(pending(&client), [Value::Null; 0], "nobody is asked again");
    drop(server);
}

#[test]
fn who_watches_on_a_terminal_is_asked_for_a_server() {
    if !can_ask() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let server = Server::start(&scene, &["--provider", "bwrap", "--ask"]);
    let client = client(&scene);
    let mut terminal = Terminal::new(40, 120);
    let mut child = terminal.start(&scene, &["approvals", "watch"]);
    terminal.expect("watching");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| reach(&client, "terminal"));
        terminal.expect(&format!("reach terminal.{HOST}:80"));
        terminal.expect("ne[v]er?");
        terminal.press(b"o");
        let outcome = waiting.join().expect("an outcome");
        assert_ne!(outcome["stdout"], "code=403\n", "{outcome}");
    });
    terminal.press(&[3]);
    assert_eq!(wait(&mut child).code(), Some(0));
    drop(server);
}
