//! A desk: a home, a data directory and a repository that belong to one test.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests drive git as a user would, look where programs are, and say what is skipped"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use cofferdam_core::event::Event;
use cofferdam_core::operation::{CommandForm, RunCommand};
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_core::policy::{Permission, PolicyDocument, ProviderChoice};
use cofferdam_core::task::{
    Carry, ChangeKind, CleanupPolicy, IsolationMode, TaskRequest, TaskResult, VerifyFrom,
    WorkspaceStrategy,
};
use cofferdam_exec::{CommandIo, Control};
use cofferdam_journal::{Query, SystemAmbient};
use cofferdam_runtime::{
    FrontDoor, PolicyRequest, RunRequest, Runtime, RuntimeOptions, Surroundings, TaskProgress,
    TaskRunRequest,
};

pub(crate) struct Desk {
    _top: tempfile::TempDir,
    pub(crate) home: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) repo: PathBuf,
}

/// Tells whether bubblewrap is here; says so when it is not.
pub(crate) fn has_walls() -> bool {
    let found = Path::new("/usr/bin/bwrap").exists();
    if !found {
        println!("skipped: bubblewrap is not installed");
    }
    found
}

/// Says that a test cannot be carried out here.
pub(crate) fn skipped(why: &str) {
    println!("skipped: {why}");
}

impl Desk {
    pub(crate) fn new() -> Self {
        let top = tempfile::tempdir().expect("a desk");
        let base = top.path().canonicalize().expect("a desk");
        let desk = Self {
            home: base.join("home"),
            data: base.join("data"),
            repo: base.join("repo"),
            _top: top,
        };
        std::fs::create_dir(&desk.home).expect("a desk");
        std::fs::create_dir(&desk.repo).expect("a desk");
        let identity = "[user]\n\tname = T\n\temail = t@example.com\n";
        std::fs::write(desk.home.join(".gitconfig"), identity).expect("a desk");
        desk
    }

    /// A repository with one commit.
    pub(crate) fn with_repository() -> Self {
        let desk = Self::new();
        desk.git(&["init", "-q", "-b", "main"]);
        desk.write("Makefile", "all:\n\ttrue\n");
        desk.write("a.txt", "one\n");
        desk.write("b.txt", "b\nb\nb\nb\n");
        desk.write(".gitignore", "ignored/\n");
        desk.git(&["add", "-A"]);
        desk.git(&["commit", "-qm", "base"]);
        desk
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.repo.join(name);
        std::fs::create_dir_all(path.parent().expect("a desk")).expect("a desk");
        std::fs::write(path, text).expect("a desk");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.repo.join(name)).expect("a desk")
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .current_dir(&self.repo)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").expect("a desk"))
            .env("HOME", &self.home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.com"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("a desk");
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// What a user would see of the repository: status, commit, names, references but ours.
    pub(crate) fn look(&self) -> String {
        let mut names: Vec<_> = std::fs::read_dir(&self.repo)
            .expect("a desk")
            .map(|entry| entry.expect("a desk").file_name())
            .collect();
        names.sort();
        let references = self.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
        let references: Vec<_> = references
            .lines()
            .filter(|line| !line.contains("cofferdam/"))
            .collect();
        format!(
            "{}\n{}\n{names:?}\n{references:?}\n{}",
            self.git(&["status", "--porcelain"]),
            self.git(&["rev-parse", "HEAD"]),
            std::fs::read_to_string(self.repo.join(".git/config")).expect("a desk"),
        )
    }

    pub(crate) fn options(&self) -> RuntimeOptions {
        options(&self.home, &self.data, &self.repo)
    }

    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::open(self.options()).expect("a desk")
    }
}

pub(crate) fn shell_task(script: &str) -> TaskRequest {
    TaskRequest {
        goal: "try it".to_owned(),
        command: CommandForm::Argv(
            ["sh", "-c", script]
                .iter()
                .map(|one| (*one).into())
                .collect(),
        ),
        cwd: None,
        verify: Vec::new(),
        verify_from: VerifyFrom::Task,
        setup: Vec::new(),
        isolation_mode: IsolationMode::Worktree,
        workspace_strategy: WorkspaceStrategy::Ephemeral,
        cleanup_policy: CleanupPolicy::OnSuccess,
        carry: Carry::None,
        worker: None,
        timeout: Some(60.0),
        idle_timeout: None,
        verify_timeout: Some(60.0),
    }
}

pub(crate) fn task(runtime: &Runtime, task: TaskRequest) -> TaskResult {
    task_with(
        runtime,
        PolicyRequest::default(),
        task,
        &Control::new(),
        &mut |_| {},
    )
}

pub(crate) fn task_with(
    runtime: &Runtime,
    policy: PolicyRequest,
    task: TaskRequest,
    control: &Control,
    progress: &mut dyn FnMut(TaskProgress),
) -> TaskResult {
    runtime
        .run_task(TaskRunRequest {
            policy,
            task,
            front_door: FrontDoor::Embedded,
            io: CommandIo::Capture { input: None },
            progress,
            control: control.clone(),
        })
        .expect("a desk")
}

pub(crate) fn provider(choice: ProviderChoice) -> PolicyRequest {
    PolicyRequest {
        owner: PolicyDocument {
            provider: Some(choice),
            // Without walls what a protocol asks for would be asked about.
            permission: (choice == ProviderChoice::Direct).then_some(Permission::Unrestricted),
            ..PolicyDocument::default()
        },
        ..PolicyRequest::default()
    }
}

pub(crate) fn run(runtime: &Runtime, policy: PolicyRequest, command: RunCommand) -> CommandOutcome {
    runtime.run_command(RunRequest {
        policy,
        command,
        front_door: FrontDoor::Embedded,
        io: CommandIo::Capture { input: None },
        control: Control::new(),
    })
}

pub(crate) fn events(runtime: &Runtime) -> Vec<Event> {
    let mut all = Vec::new();
    let mut after = Some(0);
    while let Some(pos) = after {
        let query = Query::default().after(pos).limit(1000).resolved();
        let page = runtime.journal().read(&query).expect("a desk");
        after = page.next();
        all.extend(page.events);
    }
    all
}

pub(crate) fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

pub(crate) fn options(home: &Path, data: &Path, repo: &Path) -> RuntimeOptions {
    let mut path = std::env::var_os("PATH").expect("a desk");
    let bin = home.join("bin");
    if bin.is_dir() {
        let found = std::env::split_paths(&path).collect::<Vec<_>>();
        path = std::env::join_paths(std::iter::once(bin).chain(found)).expect("a desk");
    }
    let surroundings = Surroundings::new(
        [
            ("PATH", path),
            ("HOME", home.as_os_str().to_owned()),
            ("COFFERDAM_DATA_DIR", data.as_os_str().to_owned()),
            ("API_TOKEN", "s3cret-value".into()),
        ],
        repo,
    );
    RuntimeOptions::new(surroundings, Arc::new(SystemAmbient::new()))
}

/// Runs one test of this very program in a process of its own, at a desk, and waits for its end.
pub(crate) fn rerun(desk: &Desk, test: &str, stage: &str) -> std::process::ExitStatus {
    Command::new(std::env::current_exe().expect("a desk"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("COFFERDAM_TEST_DESK", desk.home.parent().expect("a desk"))
        .env("COFFERDAM_TEST_STAGE", stage)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("a desk")
}

/// What the process that runs a test was told.
pub(crate) fn told(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What changed, in order of the names.
pub(crate) fn changes(result: &TaskResult) -> Vec<(String, ChangeKind)> {
    let mut all: Vec<_> = result
        .modified_files
        .iter()
        .map(|file| (file.path.to_string(), file.change))
        .collect();
    all.sort_by(|left, right| left.0.cmp(&right.0));
    all
}
