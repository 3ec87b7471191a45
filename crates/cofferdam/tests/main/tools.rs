//! Tools of the owner's own, and packages in the workspace's own environment.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::scene::{Finished, Scene, finish, list, skipped};

/// Walls that work everywhere.
const WALLS: [&str; 4] = ["--provider", "direct", "--net", "full"];

const SAY: &str = r#"
schema = 1
name = "say"
description = "says words, one a line"
argv = ["printf", "--", "[%s]\n", "{first}", "{words}"]
[parameters.first]
type = "integer"
description = "a number"
maximum = 9
required = true
[parameters.words]
type = "strings"
description = "words"
"#;

fn own(scene: &Scene, name: &str, text: &str) {
    let directory = scene.path("home/.config/cofferdam/tools");
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join(name), text).expect("written");
}

fn run_tool(scene: &Scene, name: &str, arguments: &Value) -> Finished {
    let arguments = arguments.to_string();
    let words = [
        "tool_run",
        "--name",
        name,
        "--arguments",
        &arguments,
        "--json",
    ];
    let line: Vec<&str> = ["call"]
        .iter()
        .chain(&WALLS)
        .chain(&words)
        .copied()
        .collect();
    scene.run(&line)
}

#[test]
fn row_122_arguments_reach_the_program_unchanged() {
    let scene = Scene::new();
    own(&scene, "say.toml", SAY);
    let nasty = "a b; touch made $(touch made) `touch made` {first} '\" \n *";
    let arguments = json!({"first": 7, "words": [nasty, "-n", ""]});
    let ran = run_tool(&scene, "say", &arguments).expect_code(0).json();
    assert_eq!(ran["stdout"], format!("[7]\n[{nasty}]\n[-n]\n[]\n"));
    assert!(scene.listing().is_empty(), "{:?}", scene.listing());
    let events = scene.run(&["events", "--json"]).expect_code(0).text();
    assert!(
        events.contains("touch made"),
        "the journal has it: {events}"
    );
}

#[test]
fn row_122_a_bad_argument_is_refused_before_anything_starts() {
    let scene = Scene::new();
    let text = SAY.replace(
        "\"printf\", \"--\", \"[%s]\\n\"",
        "\"touch\", \"--\", \"made\"",
    );
    assert_ne!(text, SAY);
    own(&scene, "say.toml", &text);
    for (arguments, field) in [
        (json!({}), "arguments.first"),
        (json!({"first": "7"}), "arguments.first"),
        (json!({"first": 10}), "arguments.first"),
        (json!({"first": 1, "words": "a"}), "arguments.words"),
        (json!({"first": 1, "more": 1}), "arguments.more"),
    ] {
        let refused = run_tool(&scene, "say", &arguments).expect_code(125).json();
        assert_eq!(refused["error"]["code"], "invalid_request", "{refused}");
        assert_eq!(refused["error"]["field"], field, "{refused}");
    }
    assert!(scene.listing().is_empty(), "{:?}", scene.listing());
}

#[test]
fn row_122_a_proposal_is_listed_and_does_not_run() {
    let scene = Scene::new();
    let proposed = scene.work().join(".cofferdam/tools");
    fs::create_dir_all(&proposed).expect("a directory");
    fs::write(proposed.join("say.toml"), SAY).expect("written");
    let listed = scene.run(&["tool", "list"]).expect_code(0).text();
    assert!(listed.contains("proposed"), "{listed}");
    let refused = run_tool(&scene, "say", &json!({"first": 1}));
    assert_eq!(refused.json()["error"]["code"], "approval_unavailable");
    own(&scene, "say.toml", SAY);
    let ran = run_tool(&scene, "say", &json!({"first": 1})).expect_code(0);
    assert_eq!(ran.json()["stdout"], "[1]\n");
    let shown = scene.run(&["tool", "show", "say"]).expect_code(0).text();
    assert!(shown.contains("maximum = 9"), "{shown}");
}

#[test]
fn row_122_a_tool_is_checked_and_shadows_no_operation() {
    let scene = Scene::new();
    scene.write("say.toml", SAY);
    scene.run(&["tool", "check", "say.toml"]).expect_code(0);
    scene.write("say.toml", &SAY.replace("maximum", "maximun"));
    let wrong = scene.run(&["tool", "check", "say.toml"]).expect_code(125);
    assert!(wrong.stderr.contains("did you mean"), "{}", wrong.stderr);
    scene.write(
        "run_command.toml",
        &SAY.replace("\"say\"", "\"run_command\""),
    );
    let wrong = scene
        .run(&["tool", "check", "run_command.toml"])
        .expect_code(125);
    assert!(wrong.stderr.contains("operation"), "{}", wrong.stderr);
}

#[test]
fn row_122_a_tool_is_one_of_mcp_under_its_own_name() {
    let scene = Scene::new();
    scene.unasked();
    own(&scene, "say.toml", SAY);
    own(
        &scene,
        "run_command.toml",
        &SAY.replace("\"say\"", "\"run_command\""),
    );
    let line: Vec<&str> = ["mcp"].iter().chain(&WALLS).copied().collect();
    let mut command = scene.command(&line);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"0"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"say","arguments":{"first":3,"words":["$HOME"]}}}"#,
    ] {
        writeln!(stdin, "{message}").expect("sent");
    }
    let mut told = |is_it: &dyn Fn(&Value) -> bool| loop {
        let mut line = String::new();
        let read = std::io::BufRead::read_line(&mut stdout, &mut line).expect("a line");
        assert!(read > 0, "the stream ended");
        let value: Value = serde_json::from_str(&line).expect("JSON");
        if is_it(&value) {
            break value;
        }
    };
    let mut answer = |id: u64| told(&|value| value["id"] == id)["result"].clone();
    let capabilities = answer(1)["capabilities"].clone();
    assert_eq!(capabilities["tools"]["listChanged"], true, "{capabilities}");
    let tools = answer(2);
    let named = |name: &str| -> Vec<&Value> {
        let tools = tools["tools"].as_array().expect("a list");
        tools.iter().filter(|one| one["name"] == name).collect()
    };
    assert_eq!(named("say")[0]["inputSchema"]["required"], json!(["first"]));
    assert_eq!(named("run_command").len(), 1);
    assert!(named("run_command")[0]["inputSchema"]["properties"]["argv"].is_object());
    assert_eq!(named("install_package").len(), 1);
    let ran = answer(3);
    assert_eq!(
        ran["structuredContent"]["stdout"], "[3]\n[$HOME]\n",
        "{ran}"
    );
    // Another one is told of, and is there when the client asks again.
    own(&scene, "tell.toml", &SAY.replace("\"say\"", "\"tell\""));
    told(&|value| value["method"] == "notifications/tools/list_changed");
    writeln!(stdin, r#"{{"jsonrpc":"2.0","id":4,"method":"tools/list"}}"#).expect("sent");
    let tools = told(&|value| value["id"] == 4)["result"]["tools"].clone();
    let tools = tools.as_array().expect("a list");
    assert!(tools.iter().any(|one| one["name"] == "tell"));
    drop(stdin);
    crate::scene::wait(&mut child);
}

/// Tells whether a program does its part here; prints why a test is skipped where not.
fn works(scene: &Scene, words: &[&str]) -> bool {
    let done = std::panic::catch_unwind(|| finish(scene.program(words[0].as_ref(), &words[1..])));
    let works = done.is_ok_and(|done| done.code == Some(0));
    if !works {
        skipped(&format!("{words:?} does not work here"));
    }
    works
}

fn install(scene: &Scene, manager: &str, package: &str) {
    let arguments = json!({"manager": manager, "packages": [package]});
    run_tool(scene, "install_package", &arguments).expect_code(0);
}

fn command(scene: &Scene, text: &str) -> Finished {
    let line: Vec<&str> = ["call"]
        .iter()
        .chain(&WALLS)
        .chain(&["run_command", "--command", text])
        .copied()
        .collect();
    scene.run(&line)
}

/// Writes a wheel with one module: what a package index would give.
const WHEEL: &str = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('cofferdam_demo.py', 'WORD = \"inside\"\\n')
    info = 'cofferdam_demo-1.0.dist-info/'
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: cofferdam-demo\\nVersion: 1.0\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'RECORD', '')
";

#[test]
fn row_123_pip_installs_into_the_workspace() {
    let scene = Scene::new();
    let wheel = "cofferdam_demo-1.0-py3-none-any.whl";
    let probe = scene.path("tmp/venv").display().to_string();
    if !works(&scene, &["python3", "-c", WHEEL, wheel])
        || !works(&scene, &["python3", "-m", "venv", &probe])
    {
        return;
    }
    let home = list(&scene.path("home"));
    install(&scene, "pip", &format!("./{wheel}"));
    let used = command(
        &scene,
        ".venv/bin/python -c 'import cofferdam_demo; print(cofferdam_demo.WORD)'",
    );
    assert!(used.expect_code(0).text().starts_with("inside\n"));
    let outside = finish(scene.program("python3".as_ref(), &["-c", "import cofferdam_demo"]));
    assert_ne!(outside.code, Some(0), "the host has the package");
    assert_eq!(list(&scene.path("home")), home);
}

#[test]
fn row_123_npm_installs_into_the_workspace() {
    let scene = Scene::new();
    let package = scene.work().join("demo");
    fs::create_dir(&package).expect("a directory");
    fs::write(
        package.join("package.json"),
        r#"{"name": "cofferdam-demo", "version": "1.0.0", "main": "main.js"}"#,
    )
    .expect("written");
    fs::write(package.join("main.js"), "module.exports = 'inside';\n").expect("written");
    scene.write("package.json", r#"{"name": "work", "version": "1.0.0"}"#);
    if !works(&scene, &["npm", "pack", "./demo"]) {
        return;
    }
    let outside = Path::new("/usr/lib/node_modules/cofferdam-demo");
    install(&scene, "npm", "./cofferdam-demo-1.0.0.tgz");
    let used = command(&scene, "node -p 'require(\"cofferdam-demo\")'");
    assert!(used.expect_code(0).text().starts_with("inside\n"));
    assert!(!outside.exists());
}

#[test]
fn row_123_cargo_adds_to_the_workspace() {
    let scene = Scene::new();
    for (name, directory) in [("work", "."), ("cofferdam-demo", "demo")] {
        let source = scene.work().join(directory).join("src");
        fs::create_dir_all(&source).expect("a directory");
        fs::write(source.join("lib.rs"), "").expect("written");
        let text =
            format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2021\"\n");
        fs::write(scene.work().join(directory).join("Cargo.toml"), text).expect("written");
    }
    // The program itself: what stands for it in PATH may be a proxy that needs its own home.
    let cargo = std::path::Path::new(env!("CARGO"));
    let program = cargo.display().to_string();
    if !works(&scene, &[&program, "--version"]) {
        return;
    }
    let place = cargo.parent().expect("a directory").display();
    let path = format!("{place}:/usr/local/bin:/usr/bin:/bin");
    let call = |words: &[&str]| {
        let mut command = scene.command(&[&["call"], &WALLS[..], words].concat());
        command.env("PATH", &path);
        finish(command).expect_code(0)
    };
    let arguments = json!({"manager": "cargo", "packages": ["./demo"]}).to_string();
    call(&[
        "tool_run",
        "--name",
        "install_package",
        "--arguments",
        &arguments,
    ]);
    let used = "cargo metadata --offline --format-version 1 | grep -o 'demo#[^\"]*'";
    let used = call(&["run_command", "--command", used]);
    assert!(used.text().contains("demo"), "{}", used.text());
}
