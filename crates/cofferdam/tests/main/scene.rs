//! A place of its own for each test: home, data directory and workspace, and nothing of the caller.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest time that anything may take before the test gives up.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// Directories that only one test knows.
#[derive(Debug)]
pub(crate) struct Scene {
    directory: tempfile::TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
}

impl Finished {
    /// Gives standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Reads standard output as one JSON object.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| {
            panic!(
                "not one JSON object ({error}): {}\n{}",
                self.text(),
                self.stderr
            )
        })
    }

    /// Demands an exit code.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout: {}\nstderr: {}",
            self.text(),
            self.stderr
        );
        self
    }
}

impl Scene {
    /// Makes the directories.
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("cofferdam-test-")
            .tempdir()
            .expect("a temporary directory");
        let scene = Self { directory };
        for name in ["home", "work", "tmp"] {
            fs::create_dir(scene.path(name)).expect("a directory");
        }
        scene
    }

    /// Gives a place in the scene.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        // The real path: a temporary directory may lie behind a link.
        fs::canonicalize(self.directory.path())
            .expect("the directory is there")
            .join(name)
    }

    /// Says as the owner, once for all, that nobody is asked about what a protocol runs without
    /// walls.
    pub(crate) fn unasked(&self) {
        let place = self.path("home/.config/cofferdam");
        fs::create_dir_all(&place).expect("made");
        let text = "schema = 1\npermission = \"unrestricted\"\n";
        fs::write(place.join("policy.toml"), text).expect("written");
    }

    /// Gives the workspace.
    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// Prepares the binary, in the workspace, with an environment of its own.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_cofferdam").as_ref(), arguments)
    }

    /// Prepares any program in the same environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary is what these tests are about"
    )]
    pub(crate) fn program(&self, program: &OsStr, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.work())
            .env_clear()
            .env(
                "PATH",
                std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
            )
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .env("COFFERDAM_DATA_DIR", self.path("data"))
            .env("GIT_CONFIG_GLOBAL", self.path("home/.gitconfig"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the binary to its end.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        finish(self.command(arguments))
    }

    /// Runs git on the host, in the workspace.
    #[track_caller]
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"];
        let all: Vec<&str> = identity.iter().chain(arguments).copied().collect();
        let done = finish(self.program("git".as_ref(), &all)).expect_code(0);
        done.text().trim_end().to_owned()
    }

    /// Makes the workspace a repository with one commit.
    pub(crate) fn repository(&self) {
        self.write("a.txt", "one\n");
        self.write("Makefile", "all:\n\ttrue\n");
        self.git(&["init", "-q", "-b", "main"]);
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", "base"]);
    }

    /// Writes a file of the workspace.
    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::write(self.work().join(name), content).expect("writable");
    }

    /// Lists the workspace, sorted.
    pub(crate) fn listing(&self) -> Vec<String> {
        list(&self.work())
    }
}

/// A server that does not outlive its test, also when that fails.
#[derive(Debug)]
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts `serve` and waits until it listens.
    #[track_caller]
    pub(crate) fn start(scene: &Scene, walls: &[&str]) -> Self {
        if walls.contains(&"direct") {
            scene.unasked();
        }
        let line: Vec<&str> = ["serve", "--listen", "127.0.0.1:0", "--json"]
            .iter()
            .chain(walls)
            .copied()
            .collect();
        let mut child = scene.command(&line).spawn().expect("the program starts");
        let mut said = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
        std::io::BufRead::read_line(&mut stdout, &mut said).expect("a line");
        assert!(said.contains("address"), "{said}");
        Self(child)
    }

    /// Has it end, and demands that nothing of what it had started is left.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        let started = descendants(self.0.id());
        assert!(!started.is_empty(), "it had started something");
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
        assert_eq!(wait(&mut self.0).code(), Some(0));
        assert!(
            until(|| !started.iter().any(|pid| lives(*pid))),
            "something is left: {:?}",
            started
                .iter()
                .filter(|pid| lives(**pid))
                .map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")))
                .collect::<Vec<_>>()
        );
    }
}

/// Gives every process that descends from one.
pub(crate) fn descendants(process: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut look_at = vec![process];
    while let Some(parent) = look_at.pop() {
        let threads = fs::read_dir(format!("/proc/{parent}/task"));
        let children = threads.into_iter().flatten().flatten().flat_map(|thread| {
            let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        });
        let children: Vec<u32> = children.collect();
        found.extend(&children);
        look_at.extend(children);
    }
    found
}

fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        !state.starts_with('Z') && !state.starts_with('X')
    })
}

/// Lists a directory, sorted.
pub(crate) fn list(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .expect("readable")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// Runs a command to its end, reading both streams until the program itself has ended.
#[track_caller]
pub(crate) fn finish(mut command: Command) -> Finished {
    let start = Instant::now();
    let child = command.spawn().expect("the program starts");
    collect(child, start)
}

/// Runs one that takes its time.
#[track_caller]
pub(crate) fn finish_slow(mut command: Command) -> Finished {
    let start = Instant::now();
    let child = command.spawn().expect("the program starts");
    collect_within(child, start, 3 * LIMIT)
}

/// Collects what a started program writes, and its end.
#[track_caller]
pub(crate) fn collect(child: Child, start: Instant) -> Finished {
    collect_within(child, start, LIMIT)
}

#[track_caller]
fn collect_within(mut child: Child, start: Instant, limit: Duration) -> Finished {
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take().expect("a pipe");
    let output = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stdout) = &mut stdout {
            let _ = stdout.read_to_end(&mut bytes);
        }
        bytes
    });
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stderr.read_to_end(&mut bytes);
        bytes
    });
    let status = wait_within(&mut child, limit);
    let elapsed = start.elapsed();
    Finished {
        code: status.code(),
        stdout: output.join().expect("a reader"),
        stderr: String::from_utf8_lossy(&errors.join().expect("a reader")).into_owned(),
        elapsed,
    }
}

/// Waits for the end of a program, no longer than the limit.
#[track_caller]
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    wait_within(child, LIMIT)
}

/// The same with a limit of its own.
#[track_caller]
fn wait_within(child: &mut Child, limit: Duration) -> ExitStatus {
    let mut ended = None;
    if !until_within(limit, || {
        ended = child.try_wait().expect("a child of ours");
        ended.is_some()
    }) {
        let _ = child.kill();
        panic!("the program did not end within {limit:?}");
    }
    ended.expect("just seen")
}

/// Looks again and again until something holds; tells whether it did within the limit.
pub(crate) fn until(holds: impl FnMut() -> bool) -> bool {
    until_within(LIMIT, holds)
}

fn until_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if holds() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    false
}

/// Finds the processes whose arguments contain a word; zombies have none.
pub(crate) fn processes_with(word: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                // The binary itself names the word in its own arguments; it is not what is meant.
                !line.starts_with(env!("CARGO_BIN_EXE_cofferdam").as_bytes())
                    && line
                        .windows(word.len())
                        .any(|window| window == word.as_bytes())
            })
        })
        .collect()
}

/// Tells whether the default walls work on this host; prints why a test is skipped where not.
pub(crate) fn has_walls() -> bool {
    let scene = Scene::new();
    let done = scene.run(&["run", "--provider", "bwrap", "--", "true"]);
    if done.code == Some(0) {
        return true;
    }
    skipped(&format!("bwrap does not work here: {}", done.stderr.trim()));
    false
}

/// Prints why a test is not carried out.
pub(crate) fn skipped(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(
        std::io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .map(fs::File::from)
            .expect("open"),
        "skipped: {why}"
    );
}
