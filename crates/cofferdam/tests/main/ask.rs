//! Questions about hosts that nothing allows, put to whoever sits at the terminal.

use std::path::Path;

use serde_json::{Value, json};

use crate::scene::{Scene, has_walls, skipped, wait};
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
    terminal.expect(&format!("wants to reach {HOST}:80"));
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
        terminal.expect(&format!("of this task wants to reach {HOST}:80"));
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
