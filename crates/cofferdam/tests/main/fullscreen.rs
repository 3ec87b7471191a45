//! The agents that people use, full screen, where they are installed already: size, resizing,
//! Ctrl-Z and `fg`, Ctrl-C, and the terminal as it was, also after SIGKILL.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::agents::installed;
use crate::scene::{LIMIT, Scene, wait};
use crate::terminal::{Terminal, child_of, kill};

/// An agent as it is seen from a terminal.
struct FullScreen {
    name: &'static str,
    /// Written once it waits for words.
    ready: &'static str,
    /// Written when it asks whether the directory is trusted.
    question: Option<&'static str>,
    configure: fn(&Path),
}

/// Nothing listens there: none of them needs its model before the first words.
const NOWHERE: &str = "http://127.0.0.1:9";

const CLAUDE: FullScreen = FullScreen {
    name: "claude",
    ready: "bypass",
    question: Some("trust"),
    configure: |home| {
        let settings =
            json!({"env": {"ANTHROPIC_BASE_URL": NOWHERE, "ANTHROPIC_AUTH_TOKEN": "dummy"}});
        write(home, ".claude/settings.json", &settings.to_string());
        write(
            home,
            ".claude.json",
            r#"{"hasCompletedOnboarding":true,"theme":"dark"}"#,
        );
    },
};

const CODEX: FullScreen = FullScreen {
    name: "codex",
    ready: "YOLO",
    question: Some("Do you trust"),
    configure: |home| {
        let text = format!(
            "model = \"m\"\nmodel_provider = \"x\"\n[model_providers.x]\nname = \"x\"\nbase_url = \"{NOWHERE}/v1\"\nwire_api = \"responses\"\n"
        );
        write(home, ".codex/config.toml", &text);
    },
};

const OPENCODE: FullScreen = FullScreen {
    name: "opencode",
    ready: "Ask anything",
    question: None,
    configure: |home| {
        let options = json!({"baseURL": format!("{NOWHERE}/v1"), "apiKey": "dummy"});
        let provider =
            json!({"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}});
        let text = json!({"model": "x/m", "small_model": "x/m", "share": "disabled", "provider": {"x": provider}});
        write(home, ".config/opencode/opencode.json", &text.to_string());
    },
};

const GEMINI: FullScreen = FullScreen {
    name: "gemini",
    ready: "Type your message",
    question: Some("Do you trust"),
    configure: |home| {
        let text = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": false},
        });
        write(home, ".gemini/settings.json", &text.to_string());
    },
};

fn write(home: &Path, path: &str, text: &str) {
    let path = home.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
}

/// A shell on a terminal, in which the agent is a job.
struct Stand {
    _scene: Scene,
    terminal: Terminal,
    shell: Child,
}

fn begin(agent: &FullScreen) -> Option<Stand> {
    let bin = installed(agent.name)?;
    let scene = Scene::new();
    scene.repository();
    (agent.configure)(&scene.path("home"));
    let mut terminal = Terminal::new(40, 120);
    terminal.answers = true;
    let mut shell = terminal.shell(&scene, &|command| {
        command
            .env(
                "PATH",
                format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()),
            )
            .env("TERM", "xterm-256color")
            .env("GEMINI_API_KEY", "dummy")
            .env("GOOGLE_GEMINI_BASE_URL", NOWHERE);
    });
    terminal.expect("prompt> ");
    start(&mut terminal, agent);
    assert!(shell.try_wait().expect("a child").is_none());
    Some(Stand {
        _scene: scene,
        terminal,
        shell,
    })
}

fn start(terminal: &mut Terminal, agent: &FullScreen) {
    let line = format!("{} {}\n", env!("CARGO_BIN_EXE_cofferdam"), agent.name);
    terminal.forget();
    terminal.press(line.as_bytes());
    let before = terminal.expect(agent.ready);
    if let Some(question) = agent.question {
        assert!(!before.contains(question), "it asks: {before}");
    }
    assert!(!terminal.is_canonical(), "the terminal is not raw");
}

/// Presses Ctrl-C as people do: until it is over.
fn leave(terminal: &mut Terminal) {
    let end = Instant::now() + LIMIT;
    while !terminal.appears("prompt> ", Duration::from_millis(700)) {
        assert!(Instant::now() < end, "it does not take Ctrl-C");
        terminal.press(b"\x03");
    }
    // A Ctrl-C that came too late for the agent stands on the shell's line.
    terminal.press(b"\necho le''ft\n");
    terminal.expect("left");
    assert!(terminal.is_canonical(), "the terminal was not given back");
}

fn works_full_screen(agent: &FullScreen) {
    let Some(mut stand) = begin(agent) else {
        return;
    };
    let terminal = &mut stand.terminal;
    terminal.size(30, 90);
    terminal.expect_something();
    terminal.press(b"\x1a");
    terminal.expect("Stopped");
    terminal.expect("prompt> ");
    assert!(terminal.is_canonical(), "the terminal was not given back");
    terminal.press(b"fg\n");
    terminal.expect(agent.name);
    terminal.expect_something();
    leave(terminal);
    // Once more, and killed in the middle.
    start(terminal, agent);
    kill(child_of(stand.shell.id()));
    terminal.expect("Killed");
    terminal.wait_until_canonical();
    terminal.press(b"exit\n");
    wait(&mut stand.shell);
}

#[test]
fn claude_works_full_screen() {
    works_full_screen(&CLAUDE);
}

#[test]
fn codex_works_full_screen() {
    works_full_screen(&CODEX);
}

#[test]
fn opencode_works_full_screen() {
    works_full_screen(&OPENCODE);
}

#[test]
fn gemini_works_full_screen() {
    works_full_screen(&GEMINI);
}

/// The counterpart of the above: what is answered by the profile is asked without it.
#[test]
fn claude_asks_about_the_directory_where_the_profile_does_not_answer() {
    let Some(bin) = installed(CLAUDE.name) else {
        return;
    };
    let scene = Scene::new();
    scene.repository();
    (CLAUDE.configure)(&scene.path("home"));
    let shown = scene.run(&["profile", "show", "claude"]).expect_code(0);
    let text = shown.text();
    let (without, answers) = text.split_once("[[home.answers]]").expect("answers");
    assert!(answers.contains("hasTrustDialogAccepted"), "{answers}");
    write(
        &scene.path("home"),
        ".config/cofferdam/profiles/claude.toml",
        without,
    );
    let mut terminal = Terminal::new(40, 120);
    terminal.answers = true;
    let mut shell = terminal.shell(&scene, &|command| {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
        command.env("PATH", path).env("TERM", "xterm-256color");
    });
    terminal.expect("prompt> ");
    let line = format!("{} claude\n", env!("CARGO_BIN_EXE_cofferdam"));
    terminal.press(line.as_bytes());
    terminal.expect(CLAUDE.question.expect("one"));
    leave(&mut terminal);
    terminal.press(b"exit\n");
    wait(&mut shell);
}

#[test]
fn claude_draws_for_the_size_that_the_terminal_has() {
    let Some(mut stand) = begin(&CLAUDE) else {
        return;
    };
    let terminal = &mut stand.terminal;
    terminal.press(b"\x0c");
    terminal.expect(&"─".repeat(120));
    terminal.size(30, 77);
    terminal.expect(&"─".repeat(77));
    leave(terminal);
    terminal.press(b"exit\n");
    wait(&mut stand.shell);
}
