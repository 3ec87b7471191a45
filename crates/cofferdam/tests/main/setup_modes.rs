//! The modes hook and mcp: what is written for each agent, and that nothing of it is left.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::scene::{Finished, Scene, finish, has_walls, wait};
use crate::terminal::Terminal;

/// Each agent, its modes, and a configuration as people have it.
const AGENTS: [(&str, &[&str], &str, &str); 4] = [
    (
        "claude",
        &["hook", "mcp"],
        ".claude/settings.json",
        "{\n  \"permissions\": { \"deny\": [\"WebFetch\", \"Bash\"] },\n  \"hooks\": {\"PreToolUse\": []}\n}",
    ),
    (
        "gemini",
        &["hook", "mcp"],
        ".gemini/settings.json",
        "{\n\t// what I like\n\t\"ui\": {\"theme\": \"x\"}, /* more */\n\t\"tools\": {\"exclude\": [\"glob\"]}\n}\n",
    ),
    (
        "opencode",
        &["hook", "mcp"],
        ".config/opencode/opencode.jsonc",
        "{\n  // mine\n  \"permission\": \"allow\",\n  \"model\": \"m\",\n}\n",
    ),
    (
        "codex",
        &["hook", "mcp"],
        ".codex/config.toml",
        "# mine\nmodel = \"m\" # for now\n\n[features]\nshell_tool = true\n",
    ),
];

fn setup(scene: &Scene, words: &[&str]) -> Finished {
    scene.run(&[&["setup"], words].concat())
}

/// Everything in the home directory, with its content.
fn home(scene: &Scene) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![scene.path("home")];
    while let Some(place) = left.pop() {
        for entry in fs::read_dir(place).expect("readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path.clone());
                found.push((path, Vec::new()));
            } else {
                found.push((path.clone(), fs::read(path).expect("readable")));
            }
        }
    }
    found.sort();
    found
}

fn write(scene: &Scene, name: &str, text: &str) {
    let path = scene.path("home").join(name);
    fs::create_dir_all(path.parent().expect("below the home")).expect("made");
    fs::write(path, text).expect("written");
}

fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.path("home").join(name)).expect("there")
}

#[test]
fn what_a_mode_writes_is_taken_away_to_the_byte() {
    for (agent, modes, file, text) in AGENTS {
        for mode in modes {
            for configured in [true, false] {
                let scene = Scene::new();
                if configured {
                    write(&scene, file, text);
                }
                let before = home(&scene);
                let done = setup(&scene, &[agent, "--mode", mode]).expect_code(0);
                assert!(done.text().contains("Not covered:"), "{}", done.text());
                let with = home(&scene);
                assert_ne!(with, before, "{agent} {mode}");
                // Each change was said.
                assert!(done.stderr.contains("cofferdam"), "{}", done.stderr);
                // Twice is once.
                let again = setup(&scene, &[agent, "--mode", mode, "--json"]).expect_code(0);
                assert_eq!(again.json()["changes"], json!([]), "{agent} {mode}");
                assert_eq!(home(&scene), with);
                let undone = setup(&scene, &[agent, "--undo", "--json"]).expect_code(0);
                assert_eq!(undone.json()["changed_meanwhile"], json!([]));
                assert_eq!(home(&scene), before, "{agent} {mode}");
                let nothing = setup(&scene, &[agent, "--undo", "--mode", mode]).expect_code(0);
                assert!(nothing.text().contains("nothing to take away"));
                assert!(!scene.path("data/setup").exists());
            }
        }
    }
}

#[test]
fn what_others_wrote_meanwhile_stays() {
    let scene = Scene::new();
    let (.., file, text) = AGENTS[1];
    write(&scene, file, text);
    setup(&scene, &["gemini", "--mode", "mcp"]).expect_code(0);
    let with = read(&scene, file);
    let more = with.replace("\"theme\": \"x\"", "\"theme\": \"y\"");
    assert_ne!(with, more);
    write(&scene, file, &more);
    let undone = setup(&scene, &["gemini", "--undo", "--json"]).expect_code(0);
    assert!(undone.json()["changed_meanwhile"][0].as_str().is_some());
    let left = read(&scene, file);
    assert!(
        left.contains("// what I like") && left.contains("\"y\""),
        "{left}"
    );
    assert!(
        !left.contains("cofferdam") && left.contains("\"glob\""),
        "{left}"
    );
    assert!(!left.contains("run_shell_command"), "{left}");
}

#[test]
fn what_was_put_in_and_changed_by_others_is_refused() {
    let scene = Scene::new();
    setup(&scene, &["claude", "--mode", "mcp"]).expect_code(0);
    let state = read(&scene, ".claude.json");
    let other = state.replace("\"mcp\"", "\"mcp\", \"--net\", \"full\"");
    assert_ne!(state, other);
    write(&scene, ".claude.json", &other);
    let before = home(&scene);
    let refused = setup(&scene, &["claude", "--undo", "--json"]).expect_code(125);
    let error = refused.json()["error"].clone();
    assert_eq!(error["code"], "file_conflict");
    let said = error["message"].as_str().expect("text");
    assert!(
        said.contains("mcpServers.cofferdam") && said.contains("full"),
        "{said}"
    );
    assert_eq!(home(&scene), before, "something was changed all the same");
}

#[test]
fn what_is_not_understood_is_refused_and_nothing_is_lost() {
    for (agent, modes, file, text) in AGENTS {
        let scene = Scene::new();
        write(&scene, file, &format!("{text}\n}} ="));
        let before = home(&scene);
        for mode in modes {
            let refused = setup(&scene, &[agent, "--mode", mode, "--json"]).expect_code(125);
            assert_eq!(
                refused.json()["error"]["code"],
                "invalid_request",
                "{agent}"
            );
            assert_eq!(home(&scene), before, "{agent} {mode}");
        }
        assert!(!scene.path("data/setup").exists());
    }
    // What somebody has under our name is theirs.
    let scene = Scene::new();
    write(
        &scene,
        ".claude.json",
        "{\"mcpServers\": {\"cofferdam\": {}}}",
    );
    let before = home(&scene);
    let refused = setup(&scene, &["claude", "--mode", "mcp", "--json"]).expect_code(125);
    assert_eq!(refused.json()["error"]["code"], "file_conflict");
    assert_eq!(home(&scene), before);
}

#[test]
fn a_mode_that_an_agent_cannot_do_is_refused_by_name() {
    let scene = Scene::new();
    for (agent, mode) in [("cursor", "hook"), ("cursor", "mcp")] {
        let refused = setup(&scene, &[agent, "--mode", mode, "--json"]).expect_code(125);
        let error = refused.json()["error"].clone();
        assert_eq!(error["code"], "mode_unsupported", "{agent} {mode}");
        assert!(
            error["hint"]
                .as_str()
                .is_some_and(|hint| hint.contains("--mode"))
        );
    }
    let refused = setup(
        &scene,
        &["claude", "--mode", "mcp", "--json", "--", "--nett", "x"],
    );
    assert_eq!(refused.expect_code(125).json()["error"]["field"], "walls");
    assert_eq!(home(&scene), []);
    // One after the other: the second would take the first for what was there before.
    setup(&scene, &["claude", "--mode", "hook"]).expect_code(0);
    let refused = setup(&scene, &["claude", "--mode", "mcp", "--json"]).expect_code(125);
    assert_eq!(refused.json()["error"]["code"], "file_conflict");
    setup(&scene, &["claude", "--undo"]).expect_code(0);
    assert_eq!(crate::scene::list(&scene.path("home")), [""; 0]);
}

/// Reads a file of the home as JSON, with the path of the program made short.
fn document(scene: &Scene, name: &str) -> Value {
    let data = scene.path("data").display().to_string();
    let text = read(scene, name)
        .replace(env!("CARGO_BIN_EXE_cofferdam"), "COFFERDAM")
        .replace(&data, "DATA");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn what_is_written_for_gemini_and_opencode_is_what_they_read() {
    let with = |agent: &str, mode: &str| {
        let scene = Scene::new();
        let words = [agent, "--mode", mode, "--yes", "--", "--net", "none"];
        setup(&scene, &words).expect_code(0);
        scene
    };
    let gemini = ".gemini/settings.json";
    let opencode = ".config/opencode/opencode.json";
    let hooked = document(&with("gemini", "hook"), gemini);
    assert_eq!(
        hooked,
        json!({
            "hooks": {"BeforeTool": [{
                "matcher": "^run_shell_command$",
                "hooks": [{
                    "name": "cofferdam",
                    "type": "command",
                    "command": "'COFFERDAM' --data-dir 'DATA' hook rewrite gemini --allow || exit 2",
                }],
            }]},
            "mcpServers": {"cofferdam-session": {
                "command": "COFFERDAM",
                "args": ["--data-dir", "DATA", "hook", "host", "--net", "none"],
            }},
        })
    );
    let offered = document(&with("gemini", "mcp"), gemini);
    assert_eq!(
        offered["mcpServers"]["cofferdam"],
        json!({"command": "COFFERDAM", "args": ["--data-dir", "DATA", "mcp", "--net", "none"], "trust": true})
    );
    let off = offered["tools"]["exclude"].as_array().expect("a list");
    for tool in ["run_shell_command", "write_file", "replace", "read_file"] {
        assert!(off.contains(&json!(tool)), "{tool}: {off:?}");
    }
    let scene = with("opencode", "hook");
    assert_eq!(
        document(&scene, opencode),
        json!({"mcp": {"cofferdam-session": {
            "type": "local",
            "command": ["COFFERDAM", "--data-dir", "DATA", "hook", "host", "--net", "none"],
            "enabled": true,
        }}})
    );
    let plugin = read(&scene, ".config/opencode/plugin/cofferdam.js");
    assert!(plugin.contains("hook run opencode -- "), "{plugin}");
    assert!(plugin.contains("\"tool.execute.before\""), "{plugin}");
    let offered = document(&with("opencode", "mcp"), opencode);
    assert_eq!(
        offered["mcp"]["cofferdam"],
        json!({
            "type": "local",
            "command": ["COFFERDAM", "--data-dir", "DATA", "mcp", "--net", "none"],
            "enabled": true,
        })
    );
    for tool in ["bash", "edit", "write", "read"] {
        assert_eq!(offered["permission"][tool], "deny", "{tool}");
    }
    assert_eq!(offered["permission"]["cofferdam_*"], "allow");
}

/// Asks the hook of an agent what is run instead of a command.
fn rewritten(scene: &Scene, agent: &str, input: &Value) -> Value {
    let mut command = scene.command(&["hook", "rewrite", agent, "--allow"]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    write!(stdin, "{}", json!({"tool_name": "x", "tool_input": input})).expect("asked");
    drop(stdin);
    let done = crate::scene::collect(child, std::time::Instant::now());
    done.expect_code(0).json()["hookSpecificOutput"].clone()
}

/// Holds a session as an agent does: this process is the agent.
fn held(scene: &Scene, walls: &[&str]) -> Child {
    let mut command = scene.command(&[&["hook", "host"], walls].concat());
    command.stdin(Stdio::piped());
    command.spawn().expect("the program starts")
}

fn run(scene: &Scene, line: &str) -> Finished {
    finish(scene.program("/bin/bash".as_ref(), &["-c", line]))
}

#[test]
fn commands_of_an_agent_go_through_the_session_that_it_holds() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    fs::create_dir(scene.work().join("sub")).expect("made");
    let mut host = held(&scene, &["--net", "none"]);
    let claude = |text: &str| {
        let said = rewritten(&scene, "claude", &json!({"command": text, "timeout": 5}));
        assert_eq!(said["updatedInput"]["timeout"], 5);
        assert_eq!(said["permissionDecision"], "allow");
        said["updatedInput"]["command"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    // Word for word, with its end.
    let text = "cat <<'X'\nit's $(not) `run`\nX\ncd sub; export A=kept; exit 3";
    let first = run(&scene, &claude(text)).expect_code(3);
    assert_eq!(first.text(), "it's $(not) `run`\n", "{}", first.stderr);
    // Directory and variables are those of the session.
    let next = run(&scene, &claude("basename $PWD; echo $A; ls -A ~")).expect_code(0);
    assert!(next.text().starts_with("sub\nkept\n"), "{}", next.text());
    // It is inside: the data directory and what reaches the server are not there.
    let data = scene.path("data");
    let look = format!(
        "ls {}; cat {}/hooks/*/server.token",
        data.display(),
        data.display()
    );
    let nothing = run(&scene, &claude(&look));
    assert_ne!(nothing.code, Some(0));
    assert_eq!(nothing.text(), "");
    // What goes on beside does not hold up the next one.
    let said = rewritten(
        &scene,
        "gemini",
        &json!({"command": "echo begun; sleep 300", "is_background": true}),
    );
    let aside = said["tool_input"]["command"]
        .as_str()
        .expect("text")
        .to_owned();
    assert!(aside.contains("--aside"), "{aside}");
    let mut beside = scene
        .program("/bin/bash".as_ref(), &["-c", &aside])
        .spawn()
        .expect("it starts");
    let next = run(&scene, &claude("echo next")).expect_code(0);
    assert_eq!(next.text(), "next\n");
    // It may not be told more than it was set up with: what is asked for is a protocol's word.
    let decided = scene.run(&["events", "--type", "policy.decided", "--json", "-n", "1000"]);
    assert!(decided.text().contains("session_run"), "{}", decided.text());
    // The agent's end is the session's.
    drop(host.stdin.take());
    assert_eq!(wait(&mut host).code(), Some(0));
    let ended = wait(&mut beside);
    assert!(!ended.success());
    assert_eq!(crate::scene::list(&data.join("hooks")), [""; 0]);
}

#[test]
fn the_session_of_an_agent_is_shown_and_its_files_are_told_by_command() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    fs::write(
        scene.work().join("limits.toml"),
        "schema = 1\n[limits]\nwall = 2\n",
    )
    .expect("written");
    let mut host = held(&scene, &["--policy", "limits.toml"]);
    let claude = |text: &str| {
        let said = rewritten(&scene, "claude", &json!({"command": text}));
        let line = said["updatedInput"]["command"].as_str().expect("text");
        run(&scene, line)
    };
    claude("echo 1 >by-agent; export KEPT=1").expect_code(0);
    claude("true").expect_code(0);
    let all = scene.run(&["ps", "--json"]).expect_code(0).json();
    let session = &all["sessions"][0];
    assert_eq!(session["name"], "agent", "{all:#}");
    assert_eq!(session["commands"], 2);
    // It can be looked into from outside, by its name.
    let inside = scene.run(&["session", "run", "agent", "-c", "echo $KEPT"]);
    assert_eq!(inside.expect_code(0).text(), "1\n");
    // And a shell of one's own in its place.
    let mut terminal = Terminal::new(30, 90);
    let mut attached = terminal.start(&scene, &["attach", "agent"]);
    terminal.expect("Ctrl-] leaves");
    terminal.press(b"cat by-agent; echo li''ves\r");
    terminal.expect("lives");
    terminal.press(b"\x1d");
    assert_eq!(wait(&mut attached).code(), Some(0));
    let seen = scene.run(&["terminal", "snapshot", "agent"]).expect_code(0);
    assert!(seen.text().contains("lives"), "{}", seen.text());
    scene.run(&["terminal", "close", "agent"]).expect_code(0);
    // The policy's limit holds, and is told; there is no other.
    let late = claude("sleep 60").expect_code(124);
    assert!(late.stderr.contains("time limit"), "{}", late.stderr);
    let review = scene
        .run(&["review", "--commands", "--json"])
        .expect_code(0);
    let review = review.json();
    assert_eq!(review["files"][0]["path"], "by-agent", "{review:#}");
    let of_session = ["review", "--commands", "--session", "agent"];
    let text = scene.run(&of_session).expect_code(0);
    assert!(
        text.text().contains("echo 1 >by-agent") && text.text().contains("A by-agent"),
        "{}",
        text.text()
    );
    scene.run(&["undo", "s1"]).expect_code(0);
    assert!(!scene.work().join("by-agent").exists());
    scene.run(&["kill", "agent"]).expect_code(0);
    let all = scene.run(&["ps", "--json"]).expect_code(0).json();
    assert_eq!(all["sessions"], json!([]));
    drop(host.stdin.take());
    assert_eq!(wait(&mut host).code(), Some(0));
}

#[test]
fn a_hook_that_is_told_not_to_keeps_no_files() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let mut host = held(&scene, &["--no-snapshots"]);
    let said = rewritten(&scene, "claude", &json!({"command": "echo 1 >by-agent"}));
    let line = said["updatedInput"]["command"].as_str().expect("text");
    run(&scene, line).expect_code(0);
    let list = scene.run(&["undo", "--list", "--json"]).expect_code(0);
    assert_eq!(list.json()["snapshots"], json!([]));
    drop(host.stdin.take());
    assert_eq!(wait(&mut host).code(), Some(0));
}

#[test]
fn without_a_session_a_command_of_an_agent_does_not_run() {
    let scene = Scene::new();
    let said = rewritten(&scene, "claude", &json!({"command": "touch made"}));
    let line = said["updatedInput"]["command"]
        .as_str()
        .expect("text")
        .to_owned();
    let refused = run(&scene, &line).expect_code(125);
    assert!(
        refused.stderr.contains("error[server_unreachable]"),
        "{}",
        refused.stderr
    );
    assert!(!scene.work().join("made").exists());
    // What is no question of a hook stops the command: exit code 2 says that.
    let mut command = scene.command(&["hook", "rewrite", "claude"]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    write!(child.stdin.take().expect("a pipe"), "{{}}").expect("asked");
    assert_eq!(wait(&mut child).code(), Some(2));
}
