//! A real agent against a scripted model, where it is installed already.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::scene::{Finished, Scene, finish, has_walls};

/// What the model has the agent do, one command for each run.
const COMMANDS: [&str; 2] = [
    "echo two > a.txt; cat ~/.ssh/id_test; mkdir -p ~/.claude/hooks; echo evil > ~/.claude/hooks/x; true",
    "echo three > b.txt",
];

/// A model that speaks the Messages API.
struct Model {
    port: u16,
    /// Bodies of the requests that offered tools.
    asked: Arc<Mutex<Vec<Value>>>,
    /// Which run it is.
    run: Arc<AtomicUsize>,
}

impl Model {
    fn begin() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let run = Arc::new(AtomicUsize::new(0));
        let (kept, number) = (Arc::clone(&asked), Arc::clone(&run));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, number) = (Arc::clone(&kept), Arc::clone(&number));
                std::thread::spawn(move || answer_all(stream, &kept, &number));
            }
        });
        Self { port, asked, run }
    }
}

fn answer_all(stream: TcpStream, kept: &Mutex<Vec<Value>>, run: &AtomicUsize) {
    let Ok(mut writer) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(stream);
    while answer(&mut reader, &mut writer, kept, run).is_some() {}
}

fn answer(
    reader: &mut BufReader<TcpStream>,
    writer: &mut TcpStream,
    kept: &Mutex<Vec<Value>>,
    run: &AtomicUsize,
) -> Option<()> {
    let run = run.load(Ordering::Relaxed);
    let mut length = 0;
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_stream = body["stream"] == true;
    // Its own tool for commands where it has one, else ours.
    let shell = ["Bash", "mcp__cofferdam__run_command"]
        .into_iter()
        .find(|name| {
            let tools = body["tools"].as_array();
            tools.is_some_and(|tools| tools.iter().any(|tool| tool["name"] == *name))
        });
    let content = if let Some(shell) = shell {
        let mut asked = kept.lock().expect("whole");
        asked.push(body.clone());
        let text = body["messages"].to_string();
        if text.contains(&format!("call_{run}")) {
            json!({"type": "text", "text": "finished"})
        } else {
            let mut input = json!({"command": COMMANDS[run]});
            if shell == "Bash" {
                input["description"] = "a step".into();
            }
            json!({"type": "tool_use", "id": format!("call_{run}"), "name": shell, "input": input})
        }
    } else {
        json!({"type": "text", "text": "ok"})
    };
    let text = if is_stream {
        events(&content)
    } else {
        message(&[content]).to_string()
    };
    let kind = if is_stream {
        "text/event-stream"
    } else {
        "application/json"
    };
    let size = text.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n");
    writer.write_all(head.as_bytes()).ok()?;
    if !first.starts_with("HEAD ") {
        writer.write_all(text.as_bytes()).ok()?;
    }
    Some(())
}

fn message(content: &[Value]) -> Value {
    let calls = content.iter().any(|one| one["type"] == "tool_use");
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
        "content": content,
        "stop_reason": if calls { "tool_use" } else { "end_turn" },
        "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    })
}

fn events(content: &Value) -> String {
    let mut begun = content.clone();
    let delta = if content["type"] == "text" {
        begun["text"] = "".into();
        json!({"type": "text_delta", "text": content["text"]})
    } else {
        begun["input"] = json!({});
        json!({"type": "input_json_delta", "partial_json": content["input"].to_string()})
    };
    let whole = message(std::slice::from_ref(content));
    let mut start = whole.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    let end = json!({"stop_reason": whole["stop_reason"], "stop_sequence": null});
    [
        json!({"type": "message_start", "message": start}),
        json!({"type": "content_block_start", "index": 0, "content_block": begun}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ]
    .iter()
    .map(|event| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or("")
        )
    })
    .collect()
}

/// Finds an agent that somebody installed; nothing is fetched for a test.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the test says why it is skipped"
)]
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let place = cache.join("cofferdam-accept/agents").join(name).join("bin");
    let found = place.join(name).exists() && Path::new("/usr/bin/bwrap").exists();
    if !found {
        println!(
            "skipped: {name} is not installed in {}, or bubblewrap is not",
            place.display()
        );
    }
    found.then_some(place)
}

#[test]
fn b151_claude_edits_and_resumes_behind_the_default_walls() {
    let Some(bin) = installed("claude") else {
        return;
    };
    let scene = Scene::new();
    scene.repository();
    let model = Model::begin();
    let home = scene.path("home");
    fs::create_dir_all(home.join(".ssh")).expect("made");
    fs::write(home.join(".ssh/id_test"), "planted-secret").expect("written");
    fs::create_dir_all(home.join(".claude")).expect("made");
    let settings = json!({"env": {
        "ANTHROPIC_BASE_URL": format!("http://127.0.0.1:{}", model.port),
        "ANTHROPIC_API_KEY": "dummy",
    }});
    fs::write(home.join(".claude/settings.json"), settings.to_string()).expect("written");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
    let reach = format!("127.0.0.1:{}", model.port);
    let run = |words: &[&str]| -> Finished {
        let mut arguments = vec!["task", "run", "--reach", &reach, "--json", "--", "claude"];
        arguments.extend(words);
        let mut command = scene.command(&arguments);
        command.env("PATH", &path);
        finish(command).expect_code(0)
    };
    let first = run(&["-p", "edit"]).json();
    let files = first["modified_files"].to_string();
    assert!(files.contains("a.txt"), "{first}");
    assert_eq!(
        fs::read_to_string(scene.work().join("a.txt")).expect("there"),
        "one\n"
    );
    let told = model
        .asked
        .lock()
        .expect("whole")
        .last()
        .expect("asked")
        .to_string();
    assert!(
        told.contains("id_test") && !told.contains("planted-secret"),
        "{told}"
    );
    assert!(!home.join(".claude/hooks").exists());
    let review = scene.run(&["review", "1", "--json"]).expect_code(0);
    assert!(
        review.text().contains(".claude/hooks/x"),
        "{}",
        review.text()
    );
    let before = model.asked.lock().expect("whole").len();
    model.run.store(1, Ordering::Relaxed);
    let second = run(&["-p", "--continue", "and b.txt"]).json();
    assert!(
        second["modified_files"].to_string().contains("b.txt"),
        "{second}"
    );
    let asked = model.asked.lock().expect("whole");
    assert!(
        asked[before].to_string().contains("call_0"),
        "the history is not there"
    );
}

/// Where the data directory and the repository lie in the home directory, as they do for most people,
/// they hide nothing of the agent's state beside them.
#[test]
fn state_beside_the_data_directory_and_the_repository_is_there_and_comes_back() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let home = scene.path("home");
    let app = home.join("code/app");
    let write = |path: &str, text: &str| {
        let path = home.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    };
    write(
        ".config/cofferdam/profiles/tried.toml",
        "schema = 1\nname = \"tried\"\nprograms = [\"tried\"]\n[home]\n\
         state = [\".local/share/tried\", \"code/tried\"]\n\
         transcripts = [\".local/share/tried/*.jsonl\", \"code/tried/*.jsonl\"]\n",
    );
    write(".local/share/tried/a.json", "one");
    write("code/tried/b.json", "two");
    write("code/app/a.txt", "a");
    let run = |words: &[&str]| {
        let mut command = scene.program(words[0].as_ref(), &words[1..]);
        command.current_dir(&app).env_remove("COFFERDAM_DATA_DIR");
        finish(command).expect_code(0)
    };
    run(&["git", "init", "-q"]);
    run(&["git", "add", "-A"]);
    let name = ["-c", "user.name=T", "-c", "user.email=t@localhost"];
    run(&[&["git"][..], &name, &["commit", "-q", "-m", "base"]].concat());
    let script = "cat ~/.local/share/tried/a.json ~/code/tried/b.json; \
                  echo s >~/.local/share/tried/s.jsonl; echo t >~/code/tried/t.jsonl; ls ~/code";
    let own = env!("CARGO_BIN_EXE_cofferdam");
    let words = [
        own,
        "task",
        "run",
        "--net",
        "none",
        "--profile",
        "tried",
        "--json",
        "--",
        "sh",
        "-c",
        script,
    ];
    let done = run(&words).json();
    assert_eq!(
        done["task_result"]["stdout"], "onetwoapp\ntried\n",
        "{done}"
    );
    let read = |path: &str| fs::read_to_string(home.join(path)).unwrap_or_default();
    assert_eq!(read(".local/share/tried/s.jsonl"), "s\n");
    assert_eq!(read("code/tried/t.jsonl"), "t\n");
}

/// Runs Claude as somebody has it, set up in a mode, and gives what the model was told of it.
fn set_up(bin: &Path, mode: &str) -> (Scene, Value) {
    let scene = Scene::new();
    scene.repository();
    let model = Model::begin();
    let home = scene.path("home");
    fs::create_dir_all(home.join(".ssh")).expect("made");
    fs::write(home.join(".ssh/id_test"), "planted-secret").expect("written");
    fs::create_dir_all(home.join(".claude")).expect("made");
    let settings = home.join(".claude/settings.json");
    let before = json!({"env": {
        "ANTHROPIC_BASE_URL": format!("http://127.0.0.1:{}", model.port),
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }});
    fs::write(&settings, before.to_string()).expect("written");
    scene
        .run(&["setup", "claude", "--mode", mode, "--yes"])
        .expect_code(0);
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
    let mut command = scene.program("claude".as_ref(), &["-p", "edit"]);
    command.env("PATH", &path);
    finish(command).expect_code(0);
    assert_eq!(
        fs::read_to_string(scene.work().join("a.txt")).expect("there"),
        "two\n",
        "the command did not run, or not in the workspace"
    );
    assert!(!home.join(".claude/hooks").exists());
    let told = model
        .asked
        .lock()
        .expect("whole")
        .last()
        .expect("asked")
        .clone();
    let results = told["messages"].to_string();
    assert!(
        results.contains("id_test") && !results.contains("planted-secret"),
        "{results}"
    );
    // Its own state was rewritten by it meanwhile: only ours is taken out.
    scene.run(&["setup", "claude", "--undo"]).expect_code(0);
    assert_eq!(
        fs::read_to_string(&settings).expect("there"),
        before.to_string()
    );
    let state = fs::read_to_string(home.join(".claude.json")).expect("there");
    let state: Value = serde_json::from_str(&state).expect("JSON");
    assert_eq!(state.pointer("/mcpServers/cofferdam"), None);
    assert_eq!(state.pointer("/mcpServers/cofferdam-session"), None);
    (scene, told)
}

#[test]
fn the_commands_of_a_real_claude_go_through_a_session() {
    let Some(bin) = installed("claude") else {
        return;
    };
    let (scene, _) = set_up(&bin, "hook");
    let opened = scene.run(&["events", "--type", "session.ended", "--json"]);
    assert!(
        opened.text().contains("server_stopped"),
        "{}",
        opened.text()
    );
    // Nothing is left of the server that it held.
    let hosts = scene.path("data/hooks");
    assert_eq!(crate::scene::list(&hosts), [""; 0]);
}

#[test]
fn the_tools_of_a_real_claude_are_off_and_ours_are_offered() {
    let Some(bin) = installed("claude") else {
        return;
    };
    let (_scene, told) = set_up(&bin, "mcp");
    let tools: Vec<&str> = told["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    for gone in [
        "Bash",
        "Edit",
        "Write",
        "Read",
        "NotebookEdit",
        "Glob",
        "Grep",
    ] {
        assert!(!tools.contains(&gone), "{tools:?}");
    }
    assert!(tools.contains(&"mcp__cofferdam__read_file"), "{tools:?}");
}
