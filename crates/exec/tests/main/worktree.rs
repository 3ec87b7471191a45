//! A real repository, real git, and a stand-in for the walls.

#![expect(
    clippy::disallowed_methods,
    clippy::unused_self,
    clippy::unwrap_used,
    reason = "helpers of tests drive git and shells as a user would, and fail where they stand"
)]

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::task::{Carry, WorkspaceStrategy};
use cofferdam_exec::workspace::{
    GitOptions, InsideCall, InsideGit, InsideOutput, WorkspaceError, WorkspaceStep, Workspaces,
    WorkspacesOptions, Worktree, WorktreePlan, WorktreeRecord, WorktreeRequest,
};

pub(crate) struct Field {
    pub(crate) top: tempfile::TempDir,
    pub(crate) repository: PathBuf,
    pub(crate) trees: PathBuf,
}

pub(crate) fn git_command(directory: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args([
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@example.com",
            "-c",
            "protocol.file.allow=always",
        ])
        .stdin(Stdio::null());
    command
}

pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = git_command(directory).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

pub(crate) fn git_fails(directory: &Path, arguments: &[&str]) -> bool {
    !git_command(directory)
        .args(arguments)
        .output()
        .unwrap()
        .status
        .success()
}

pub(crate) fn shell(directory: &Path, script: &str) {
    let mut command = Command::new("sh");
    let git = git_command(directory);
    command
        .current_dir(directory)
        .args(["-ec", script])
        .env_clear();
    for (name, value) in git.get_envs() {
        command.env(name, value.unwrap());
    }
    for person in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{person}_NAME"), "Agent");
        command.env(format!("GIT_{person}_EMAIL"), "agent@example.com");
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Field {
    pub(crate) fn new() -> Self {
        Self::named("repo")
    }

    pub(crate) fn named(name: &str) -> Self {
        let top = tempfile::tempdir().unwrap();
        let repository = top.path().join(name);
        std::fs::create_dir(&repository).unwrap();
        shell(
            &repository,
            "git init -q -b main
             git config user.name User; git config user.email user@example.com
             printf 'one\\ntwo\\nthree\\n' >a.txt; printf 'all:\\n\\ttrue\\n' >Makefile
             mkdir d; echo deep >d/deep.txt; echo 'ignored/' >.gitignore; echo .env >>.gitignore
             git add -A; git commit -qm base",
        );
        let trees = top.path().join("data/worktrees");
        Self {
            top,
            repository,
            trees,
        }
    }

    pub(crate) fn options(&self) -> WorkspacesOptions {
        let git = GitOptions {
            search_path: std::env::var_os("PATH").unwrap().into(),
            home: self.top.path().into(),
            config_global: Some("/dev/null".into()),
            config_system: Some("/dev/null".into()),
            ..GitOptions::default()
        };
        WorkspacesOptions::new(&self.trees, git)
    }

    pub(crate) fn workspaces(&self) -> Workspaces {
        Workspaces::open(self.options()).unwrap()
    }

    pub(crate) fn request(&self, worker: &str) -> WorktreeRequest {
        WorktreeRequest {
            workspace: self.repository.as_path().into(),
            record: format!("task_{worker}"),
            nonce: format!("nonce-{worker}"),
            run: "run1".to_owned(),
            worker: worker.to_owned(),
            carry: Carry::None,
            strategy: WorkspaceStrategy::Ephemeral,
            base: None,
        }
    }

    pub(crate) fn create(&self, worker: &str) -> Worktree {
        self.make(&self.request(worker)).unwrap()
    }

    pub(crate) fn make(&self, request: &WorktreeRequest) -> Result<Worktree, WorkspaceError> {
        self.workspaces().create(request, &mut |_| {})
    }

    pub(crate) fn make_told(
        &self,
        request: &WorktreeRequest,
    ) -> (Result<Worktree, WorkspaceError>, Vec<WorkspaceStep>) {
        let mut steps = Vec::new();
        let made = self
            .workspaces()
            .create(request, &mut |step| steps.push(step));
        (made, steps)
    }

    pub(crate) fn harvest(&self, record: &WorktreeRecord) -> WorktreeRecord {
        self.workspaces()
            .harvest(record, &self.walls(record))
            .unwrap()
    }

    pub(crate) fn walls(&self, record: &WorktreeRecord) -> Walls {
        Walls {
            plan: self.workspaces().plan(record),
            trees: self.trees.clone(),
        }
    }

    /// Runs a script in a task's tree.
    pub(crate) fn work(&self, worktree: &Worktree, script: &str) {
        shell(worktree.record.tree.as_path(), script);
    }

    pub(crate) fn user_git(&self, arguments: &[&str]) -> String {
        git(&self.repository, arguments)
    }

    pub(crate) fn references(&self) -> Vec<String> {
        self.user_git(&["for-each-ref", "--format=%(refname)"])
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Fails with the paths that differ from a fingerprint.
    #[track_caller]
    pub(crate) fn assert_same(&self, before: &BTreeMap<PathBuf, Vec<u8>>) {
        let now = self.fingerprint();
        let differs = |path: &&PathBuf| before.get(*path) != now.get(*path);
        let paths: Vec<&PathBuf> = before.keys().chain(now.keys()).filter(differs).collect();
        assert!(paths.is_empty(), "{paths:?}");
    }

    /// Everything in the user's repository, git directory included, but for what may change.
    pub(crate) fn fingerprint(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        walk(&self.repository, &mut found);
        found.retain(|path, _| {
            let text = path
                .strip_prefix(&self.repository)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let ours = [
                "refs/heads/cofferdam",
                "logs/refs/heads/cofferdam",
                "objects/",
            ];
            !ours
                .iter()
                .any(|own| text.starts_with(&format!(".git/{own}")))
        });
        found
    }
}

fn walk(path: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            found.insert(path.clone(), b"directory".to_vec());
            walk(&path, found);
        } else if metadata.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            found.insert(path, target.as_os_str().as_bytes().to_vec());
        } else {
            let content = std::fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
}

/// Runs helper commands with the tree at the path of the user's repository where bwrap works, and
/// at its own path where it does not.
pub(crate) struct Walls {
    pub(crate) plan: WorktreePlan,
    pub(crate) trees: PathBuf,
}

impl InsideGit for Walls {
    fn run(&self, call: &InsideCall) -> Result<InsideOutput, Problem> {
        let mut command = if bwrap_works() {
            let mut command = Command::new("bwrap");
            command.args([
                "--ro-bind",
                "/",
                "/",
                "--dev",
                "/dev",
                "--unshare-all",
                "--tmpfs",
            ]);
            // The trees are not seen inside, but for what is shown of them.
            command.arg(&self.trees).arg("--bind");
            command
                .arg(self.plan.tree.as_os_str())
                .arg(self.plan.top.as_os_str());
            for borrowed in &self.plan.borrowed {
                command.arg("--ro-bind");
                command
                    .arg(borrowed.source.as_os_str())
                    .arg(borrowed.inside.as_os_str());
            }
            command.arg("--chdir").arg(self.plan.top.as_os_str());
            command.arg(call.argv[0].as_os_str());
            command
        } else {
            let mut command = Command::new(call.argv[0].as_os_str());
            command.current_dir(self.plan.tree.as_path());
            command
        };
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", "/nonexistent");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.args(call.argv[1..].iter().map(BytePath::as_os_str));
        for variable in &call.environment {
            command.env(variable.name.as_os_str(), variable.value.as_os_str());
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = call.input.clone().unwrap_or_default();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &input));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        Ok(InsideOutput {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }
}

pub(crate) fn bwrap_works() -> bool {
    static WORKS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WORKS.get_or_init(|| {
        Command::new("bwrap")
            .args(["--ro-bind", "/", "/", "--unshare-all", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}

pub(crate) fn paths<'a>(paths: impl IntoIterator<Item = &'a BytePath>) -> Vec<String> {
    let mut paths: Vec<String> = paths.into_iter().map(ToString::to_string).collect();
    paths.sort();
    paths
}
