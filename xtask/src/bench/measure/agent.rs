//! The start of an agent: its own `--version`, by itself and as a task under its profile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::{Run, Subject, Yardstick, few, plain, told};
use crate::target;

const BARE: &str = "agent --version";
/// So many starts say enough. Hundreds in a row would tell of something else: an ext4 without a journal
/// passes over each file that was removed in the last minute when it makes one.
const ROUNDS: usize = 25;
/// Agents that are looked for, each known by a shipped profile.
const AGENTS: [&str; 4] = ["claude", "codex", "opencode", "gemini"];

/// The start of the first agent that is installed, or of a script of that name.
pub(super) fn subjects(scratch: &Path) -> Vec<Subject> {
    let made = told(Scene::make(scratch));
    let bare = made.clone().map(|scene| -> Run {
        Box::new(move || plain::once(scene.command(&scene.program, &["--version"])))
    });
    let wrapped = made.and_then(|scene| told(wrapped(scene)));
    vec![
        Subject {
            name: BARE,
            yardstick: Yardstick::Itself,
            bar: None,
            run: bare,
        },
        Subject {
            name: "agent --version, as a task",
            yardstick: Yardstick::Over(BARE),
            bar: Some(100.0),
            run: wrapped,
        },
    ]
}

#[derive(Clone)]
struct Scene {
    program: PathBuf,
    name: &'static str,
    home: PathBuf,
    repository: PathBuf,
}

impl Scene {
    fn make(scratch: &Path) -> anyhow::Result<Self> {
        let home = scratch.join("agent-home");
        let repository = home.join("repository");
        fs::create_dir_all(&repository)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = AGENTS.iter().find_map(|name| {
            let mut places = std::env::split_paths(&path).map(|place| place.join(name));
            Some((*name, places.find(|place| place.is_file())?))
        });
        let (name, program) = match installed {
            Some(found) => found,
            None => (AGENTS[0], stand_in(&home)?),
        };
        let scene = Self {
            program,
            name,
            home,
            repository,
        };
        for words in [
            &["init", "-q"][..],
            &[
                "-c",
                "user.name=b",
                "-c",
                "user.email=b@localhost",
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                "b",
            ],
        ] {
            let status = scene.command(Path::new("git"), words).status()?;
            ensure!(status.success(), "git {words:?} failed");
        }
        Ok(scene)
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.repository)
            .env("HOME", &self.home)
            .env("COFFERDAM_DATA_DIR", self.home.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

/// Writes a script that starts as fast as any program can, so that what is added is ours alone.
fn stand_in(home: &Path) -> anyhow::Result<PathBuf> {
    let path = home.join(".local/bin").join(AGENTS[0]);
    fs::create_dir_all(path.parent().context("no directory")?)?;
    fs::write(&path, "#!/bin/sh\necho stand-in\n")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

fn wrapped(scene: Scene) -> anyhow::Result<Run> {
    let own = target().join("release/cofferdam");
    let program = scene.program.to_string_lossy().into_owned();
    let words = [
        "task",
        "run",
        "--profile",
        scene.name,
        "--",
        &program,
        "--version",
    ]
    .map(str::to_owned);
    let command = move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        scene.command(&own, &words)
    };
    let output = command()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .context("cannot run cofferdam")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.lines().last().unwrap_or("no word on stderr");
    ensure!(output.status.success(), "{}: {complaint}", output.status);
    Ok(few(Box::new(move || plain::once(command())), ROUNDS))
}
