//! Worktrees of tasks against git's own, and many requests for them on one repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use cofferdam_core::task::{Carry, WorkspaceStrategy};
use cofferdam_exec::workspace::{GitOptions, Workspaces, WorkspacesOptions, WorktreeRequest};

use super::report::Absolute;
use super::{Run, Subject, Yardstick, told};

const PLAIN: &str = "git worktree add";
/// Files of the repository.
const FILES: usize = 500;
const AT_ONCE: usize = 60;
/// Rounds that are measured for real.
const ROUNDS: usize = 30;

struct Field {
    top: PathBuf,
    repository: PathBuf,
    count: AtomicUsize,
}

impl Field {
    fn new(top: PathBuf) -> anyhow::Result<Self> {
        let repository = top.join("repository");
        for number in 0..FILES {
            let place = repository.join(format!("d{}", number % 20));
            std::fs::create_dir_all(&place)?;
            std::fs::write(place.join(format!("f{number}")), format!("file {number}\n"))?;
        }
        let field = Self {
            top,
            repository,
            count: AtomicUsize::new(0),
        };
        field.git(&["init", "-q", "-b", "main"])?;
        field.git(&["add", "-A"])?;
        field.git(&["commit", "-qm", "base"])?;
        Ok(field)
    }

    fn git(&self, words: &[&str]) -> anyhow::Result<()> {
        let status = Command::new("git")
            .args(["-c", "user.name=B", "-c", "user.email=b@example.org"])
            .args(words)
            .current_dir(&self.repository)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("cannot run git")?;
        ensure!(status.success(), "git {words:?}: {status}");
        Ok(())
    }

    fn number(&self) -> usize {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    fn workspaces(&self) -> anyhow::Result<Workspaces> {
        let git = GitOptions {
            search_path: std::env::var_os("PATH").context("no PATH")?.into(),
            home: self.top.as_path().into(),
            config_global: Some("/dev/null".into()),
            config_system: Some("/dev/null".into()),
            ..GitOptions::default()
        };
        let options = WorkspacesOptions::new(self.top.join("trees"), git);
        Ok(Workspaces::open(options)?)
    }

    fn create(&self, workspaces: &Workspaces) -> anyhow::Result<Duration> {
        let number = self.number();
        let request = WorktreeRequest {
            workspace: self.repository.as_path().into(),
            record: format!("task_{number}"),
            nonce: format!("nonce-{number}"),
            run: "bench".to_owned(),
            worker: format!("w{number}"),
            carry: Carry::None,
            strategy: WorkspaceStrategy::Ephemeral,
            base: None,
        };
        let begin = Instant::now();
        let made = workspaces.create(&request, &mut |_| {})?;
        let time = begin.elapsed();
        let last = made.record.tree.join("d19").join("f499");
        ensure!(last.as_path().exists(), "the tree is not whole");
        Ok(time)
    }
}

/// What is compared round by round.
pub(super) fn subjects(scratch: &Path) -> Vec<Subject> {
    let field = told(Field::new(scratch.join("worktrees")).map(Arc::new));
    let plain = field.clone().map(|field| -> Run {
        Box::new(move || {
            let number = field.number();
            let tree = field.top.join(format!("plain{number}"));
            let tree = tree.to_str().context("a path")?;
            let begin = Instant::now();
            field.git(&[
                "worktree",
                "add",
                "-q",
                "--no-track",
                "-b",
                &format!("p{number}"),
                tree,
            ])?;
            Ok(begin.elapsed())
        })
    });
    let ours = field.and_then(|field| {
        let workspaces = told(field.workspaces())?;
        let run: Run = Box::new(move || field.create(&workspaces));
        Ok(run)
    });
    vec![
        Subject {
            name: PLAIN,
            yardstick: Yardstick::Itself,
            bar: None,
            run: plain.map(|run| super::few(run, ROUNDS)),
        },
        Subject {
            name: "worktree of a task",
            yardstick: Yardstick::Over(PLAIN),
            bar: Some(10.0),
            run: ours.map(|run| super::few(run, ROUNDS)),
        },
    ]
}

/// Asks for many at once.
pub(super) fn at_once(scratch: &Path) -> Vec<Absolute> {
    let failed = told(sixty(scratch.join("sixty")));
    vec![Absolute::at_most(
        "60 worktrees at once, failed",
        "",
        0.0,
        failed,
    )]
}

fn sixty(top: PathBuf) -> anyhow::Result<f64> {
    let field = Field::new(top)?;
    let workspaces = field.workspaces()?;
    let made = std::thread::scope(|threads| {
        let running: Vec<_> = (0..AT_ONCE)
            .map(|_| threads.spawn(|| field.create(&workspaces)))
            .collect();
        running
            .into_iter()
            .filter_map(|one| one.join().ok()?.ok())
            .count()
    });
    Ok((AT_ONCE - made) as f64)
}
