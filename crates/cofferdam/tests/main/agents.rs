//! Real agents against a scripted model, where they are installed already.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::model::{Model, mark, tools};
use crate::scene::{Finished, Scene, finish, finish_slow, has_walls, processes_with, until};

/// An agent, and how it is had to work.
struct Agent {
    name: &'static str,
    /// Tells it where its model is.
    configure: fn(&Path, u16),
    run: &'static [&'static str],
    /// How its newest session goes on.
    resume: &'static [&'static str],
    /// State of its own that nobody is to change unseen.
    planted: &'static str,
}

const CLAUDE: Agent = Agent {
    name: "claude",
    configure: |home, port| {
        let settings = json!({"env": {
            "ANTHROPIC_BASE_URL": format!("http://127.0.0.1:{port}"),
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }});
        write(home, ".claude/settings.json", &settings.to_string());
    },
    run: &["-p", "edit"],
    resume: &["-p", "--continue", "go on"],
    planted: ".claude/hooks/x",
};

const CODEX: Agent = Agent {
    name: "codex",
    configure: |home, port| {
        let text = format!(
            "model = \"m\"\nmodel_provider = \"x\"\nsandbox_mode = \"workspace-write\"\n[model_providers.x]\nname = \"x\"\n\
             base_url = \"http://127.0.0.1:{port}/v1\"\nwire_api = \"responses\"\n"
        );
        write(home, ".codex/config.toml", &text);
    },
    run: &["exec", "edit"],
    resume: &["exec", "resume", "--last", "go on"],
    planted: ".codex/prompts/x.md",
};

const OPENCODE: Agent = Agent {
    name: "opencode",
    configure: |home, port| {
        let options = json!({"baseURL": format!("http://127.0.0.1:{port}/v1"), "apiKey": "dummy"});
        let provider =
            json!({"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}});
        let text = json!({
            "model": "x/m", "small_model": "x/m", "share": "disabled", "provider": {"x": provider},
        });
        write(home, ".config/opencode/opencode.json", &text.to_string());
    },
    run: &["run", "edit"],
    resume: &["run", "--continue", "go on"],
    planted: ".config/opencode/plugin/x.js",
};

const GEMINI: Agent = Agent {
    name: "gemini",
    configure: |home, _| {
        let text = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
            "privacy": {"usageStatisticsEnabled": false},
        });
        write(home, ".gemini/settings.json", &text.to_string());
    },
    run: &["--yolo", "-p", "edit"],
    resume: &["--yolo", "--resume", "latest", "-p", "go on"],
    planted: ".gemini/extensions/x/gemini-extension.json",
};

fn write(home: &Path, path: &str, text: &str) {
    let path = home.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
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

/// A repository, the agent as somebody has it, and a secret beside it.
struct Desk {
    scene: Scene,
    model: Model,
    path: String,
}

impl Desk {
    fn new(agent: &Agent, commands: &[&str]) -> Option<Self> {
        let bin = installed(agent.name)?;
        let scene = Scene::new();
        scene.write("check.sh", "grep -qx two a.txt && echo 'the tests pass'\n");
        scene.write(
            "ask.py",
            "import urllib.request as r, urllib.error as e\n\
             try: print(r.urlopen('http://forbidden.example/').read())\n\
             except e.HTTPError as refused: print(refused.code, refused.read().decode())\n",
        );
        scene.repository();
        let model = Model::begin(commands);
        let home = scene.path("home");
        write(&home, ".ssh/id_test", "planted-secret");
        (agent.configure)(&home, model.port);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
        Some(Self { scene, model, path })
    }

    /// Prepares a task in which the agent works.
    fn task(&self, agent: &Agent, more: &[&str], words: &[&str]) -> Command {
        let reach = format!("127.0.0.1:{}", self.model.port);
        let mut arguments = vec!["task", "run", "--reach", &reach, "--json"];
        arguments.extend(more);
        arguments.extend(["--", agent.name]);
        arguments.extend(words);
        let mut command = self.scene.command(&arguments);
        command
            .env("PATH", &self.path)
            .env("GEMINI_API_KEY", "dummy")
            .env(
                "GOOGLE_GEMINI_BASE_URL",
                format!("http://127.0.0.1:{}", self.model.port),
            );
        command
    }

    fn checkout(&self) -> String {
        let status = self.scene.git(&["status", "--porcelain", "--ignored"]);
        let head = self.scene.git(&["rev-parse", "HEAD"]);
        let text = fs::read_to_string(self.scene.work().join("a.txt")).expect("there");
        format!("{status}|{head}|{text}")
    }
}

/// What a task is for, with the agent itself: it edits, runs the tests, tries a host and a file that
/// are not for it, is told, and ends; all of it is shown; it goes on where it was; and when it is killed
/// in the middle nothing of it is left but its work.
fn works_behind_the_default_walls(agent: &Agent) {
    let plant = format!(
        "python3 ask.py; cat ~/.ssh/id_test; mkdir -p ~/{}; echo evil > ~/{}; true",
        Path::new(agent.planted)
            .parent()
            .expect("a directory")
            .display(),
        agent.planted
    );
    let Some(desk) = Desk::new(agent, &["echo two > a.txt; sh check.sh", &plant]) else {
        return;
    };
    let before = desk.checkout();
    let run = |more: &[&str], words: &[&str]| -> Finished {
        finish_slow(desk.task(agent, more, words)).expect_code(0)
    };
    let first = run(&["--verify", "sh check.sh"], agent.run).json();
    assert!(
        first["modified_files"].to_string().contains("a.txt"),
        "{first:#}"
    );
    assert_eq!(first["verification"]["status"], "passed", "{first:#}");
    assert_eq!(desk.checkout(), before);
    // It was told: of its tests, of the host with the line that would allow it, of the file.
    let told = desk.model.told();
    for word in ["the tests pass", "forbidden.example", "--allow", "id_test"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(!told.contains("planted-secret"), "{told}");
    // And so is its owner.
    assert!(!desk.scene.path("home").join(agent.planted).exists());
    let review = desk.scene.run(&["review", "1", "--json"]).expect_code(0);
    let review = review.json()["tasks"][0].take();
    let shown = |part: &str| review[part].to_string();
    assert!(shown("changes").contains("a.txt"), "{review:#}");
    assert!(shown("denials").contains("forbidden.example"), "{review:#}");
    assert!(shown("checks").contains("check.sh"), "{review:#}");
    let state = review.to_string();
    assert!(state.contains(agent.planted), "{review:#}");

    let asked = desk.model.next_run(&["echo three > b.txt"]);
    let second = run(&[], agent.resume).json();
    assert!(
        second["modified_files"].to_string().contains("b.txt"),
        "{second:#}"
    );
    let history = desk.model.asked()[asked].to_string();
    assert!(
        history.contains(&mark(0, 0)) && history.contains(&mark(0, 1)),
        "it does not know its own session"
    );

    let long = format!("4{}.25", std::process::id());
    let sleep = format!("sleep {long}");
    desk.model.next_run(&["echo four > c.txt", &sleep]);
    let mut child = desk.task(agent, &[], agent.run).spawn().expect("begun");
    assert!(
        until(|| !processes_with(&long).is_empty()),
        "it does not come so far"
    );
    child.kill().expect("it runs");
    let _ = child.wait();
    assert!(
        until(|| processes_with(&long).is_empty() && processes_with(&desk.path).is_empty()),
        "something lives on"
    );
    let review = desk.scene.run(&["review", "3", "--json"]).expect_code(0);
    let review = review.json()["tasks"][0].take();
    assert_eq!(review["status"], "interrupted", "{review:#}");
    let branch = review.pointer("/isolation/branch").and_then(Value::as_str);
    let branch = branch.unwrap_or_else(|| panic!("no branch: {review:#}"));
    assert_eq!(
        desk.scene.git(&["show", &format!("{branch}:c.txt")]),
        "four"
    );
    assert_eq!(desk.checkout(), before);
    // Nothing of its home is left: a lock is nobody's.
    let homes = crate::scene::list(&desk.scene.path("data/homes"));
    assert!(
        homes
            .iter()
            .all(|name| name.rsplit_once('.').is_some_and(|(_, end)| end == "lock")),
        "{homes:?}"
    );
}

#[test]
fn b151_claude_edits_and_resumes_behind_the_default_walls() {
    works_behind_the_default_walls(&CLAUDE);
}

#[test]
fn b151_codex_edits_and_resumes_behind_the_default_walls() {
    works_behind_the_default_walls(&CODEX);
}

#[test]
fn b151_opencode_edits_and_resumes_behind_the_default_walls() {
    works_behind_the_default_walls(&OPENCODE);
}

#[test]
fn b151_gemini_edits_and_resumes_behind_the_default_walls() {
    works_behind_the_default_walls(&GEMINI);
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

/// Has an agent work as somebody has it, set up in a mode, and gives what its model was told in the end.
fn set_up(agent: &Agent, mode: &str) -> Option<(Desk, Value)> {
    let plant = format!(
        "echo two > a.txt; cat ~/.ssh/id_test; mkdir -p ~/.x; echo evil > ~/.x/{}; true",
        agent.name
    );
    let desk = Desk::new(agent, &[&plant])?;
    let home = desk.scene.path("home");
    // Opencode would ask the registry of npm for a package before it begins.
    write(&home, ".npmrc", "offline=true\nfetch-retries=0\n");
    let setup = ["setup", agent.name, "--mode", mode, "--yes"];
    desk.scene.run(&setup).expect_code(0);
    let mut command = desk.scene.program(agent.name.as_ref(), agent.run);
    command
        .env("PATH", &desk.path)
        // What it asks of others than its model fails at once.
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("NO_PROXY", "127.0.0.1,localhost")
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("GEMINI_API_KEY", "dummy")
        .env(
            "GOOGLE_GEMINI_BASE_URL",
            format!("http://127.0.0.1:{}", desk.model.port),
        );
    let done = finish_slow(command).expect_code(0);
    let told = desk.model.asked().pop().expect("asked");
    let text = told.to_string();
    assert_eq!(
        fs::read_to_string(desk.scene.work().join("a.txt")).expect("there"),
        "two\n",
        "the command did not run, or not in the workspace: {} {}",
        done.text(),
        done.stderr
    );
    assert!(!home.join(".x").exists());
    assert!(
        text.contains("id_test: No such file") && !text.contains("planted-secret"),
        "{text}"
    );
    Some((desk, told))
}

/// What is held by a hook: the session was that of the agent, and nothing of it is left.
fn goes_through_a_session(agent: &Agent) -> Option<Desk> {
    let (desk, _) = set_up(agent, "hook")?;
    let of = |kind: &str| {
        let words = ["events", "--type", kind, "--json"];
        desk.scene.run(&words).json()["data"]["events"].take()
    };
    assert_eq!(of("session.opened").as_array().map(Vec::len), Some(1));
    // Codex kills the servers that it held; the others wait for them.
    if agent.name != "codex" {
        let ended = || of("session.ended").to_string().contains("server_stopped");
        assert!(until(ended), "the session goes on");
        let hosts = desk.scene.path("data/hooks");
        assert!(until(|| crate::scene::list(&hosts).is_empty()));
    }
    let place = desk.scene.path("data").display().to_string();
    assert!(
        until(|| processes_with(&place).is_empty()),
        "something lives on"
    );
    let listed = desk.scene.run(&["ps", "--json"]).expect_code(0).json();
    assert_eq!(listed["sessions"], json!([]), "{listed:#}");
    Some(desk)
}

/// Takes it out again: its own state was rewritten by it meanwhile, and only ours goes.
fn takes_ours_out_of_claude(desk: &Desk) {
    let home = desk.scene.path("home");
    let before = fs::read_to_string(home.join(".claude/settings.json")).expect("there");
    assert!(before.contains("cofferdam") || before.contains("\"Bash\""));
    desk.scene
        .run(&["setup", "claude", "--undo"])
        .expect_code(0);
    let after = fs::read_to_string(home.join(".claude/settings.json")).expect("there");
    let after: Value = serde_json::from_str(&after).expect("JSON");
    assert_eq!(after.as_object().map(serde_json::Map::len), Some(1));
    assert!(after["env"].is_object(), "{after}");
    let state = fs::read_to_string(home.join(".claude.json")).expect("there");
    let state: Value = serde_json::from_str(&state).expect("JSON");
    assert_eq!(state.pointer("/mcpServers/cofferdam"), None);
    assert_eq!(state.pointer("/mcpServers/cofferdam-session"), None);
}

#[test]
fn the_commands_of_a_real_claude_go_through_a_session() {
    if let Some(desk) = goes_through_a_session(&CLAUDE) {
        takes_ours_out_of_claude(&desk);
    }
}

/// Codex runs a hook only that it trusts: setting it up says so in its own words.
#[test]
fn the_commands_of_a_real_codex_go_through_a_session() {
    let Some(desk) = goes_through_a_session(&CODEX) else {
        return;
    };
    desk.scene.run(&["setup", "codex", "--undo"]).expect_code(0);
    let home = desk.scene.path("home/.codex");
    assert!(!home.join("hooks.json").exists());
    let config = fs::read_to_string(home.join("config.toml")).expect("there");
    assert!(
        !config.contains("cofferdam") && !config.contains("hooks"),
        "{config}"
    );
}

#[test]
fn the_commands_of_a_real_opencode_go_through_a_session() {
    goes_through_a_session(&OPENCODE);
}

#[test]
fn the_commands_of_a_real_gemini_go_through_a_session() {
    goes_through_a_session(&GEMINI);
}

#[test]
fn the_tools_of_a_real_claude_are_off_and_ours_are_offered() {
    let Some((desk, told)) = set_up(&CLAUDE, "mcp") else {
        return;
    };
    let offered = tools(&told);
    for gone in [
        "Bash",
        "Edit",
        "Write",
        "Read",
        "NotebookEdit",
        "Glob",
        "Grep",
    ] {
        assert!(!offered.contains(&gone), "{offered:?}");
    }
    assert!(
        offered.contains(&"mcp__cofferdam__read_file"),
        "{offered:?}"
    );
    takes_ours_out_of_claude(&desk);
}
