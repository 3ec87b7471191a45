//! The in-memory double: a scripted place with no process and no disk.
//!
//! It is a product, not a mock: programs that embed the plane test against it, and it passes the
//! same conformance suite as the real providers. Every command is looked up in a [`Script`], its
//! output goes through the same pipes and the same loop, and every call is logged.

use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::outcome::{EndedBy, Usage};
use cofferdam_core::spec::CommandSpec;
use rustix::event::{EventfdFlags, eventfd};

use super::memory_files::MemoryFiles;
use super::stage::{self, Stage};
use crate::backend::{Backend, Ended, Exit, Extra, Recipient, RunningCommand, Started, Stdio};
use crate::files::FileWorker;

/// What a scripted command does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptedCommand {
    /// What it writes to standard output.
    pub stdout: Vec<u8>,
    /// What it writes to standard error.
    pub stderr: Vec<u8>,
    /// How long it takes after that.
    pub takes: Duration,
    /// The code with which it leaves.
    pub exit_code: i32,
}

impl Default for ScriptedCommand {
    fn default() -> Self {
        Self {
            stdout: Vec::new(),
            stderr: Vec::new(),
            takes: Duration::ZERO,
            exit_code: 0,
        }
    }
}

type Play = dyn Fn(&CommandSpec) -> Option<ScriptedCommand> + Send + Sync;

/// Says what each command does; `None` is a program that does not exist.
#[derive(Clone)]
pub struct Script {
    play: Arc<Play>,
    calls: Arc<Mutex<Vec<CommandSpec>>>,
    files: MemoryFiles,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Script")
            .field("calls", &lock(&self.calls).len())
            .finish_non_exhaustive()
    }
}

impl Script {
    /// Makes a script from a function.
    pub fn new(
        play: impl Fn(&CommandSpec) -> Option<ScriptedCommand> + Send + Sync + 'static,
    ) -> Self {
        Self {
            play: Arc::new(play),
            calls: Arc::default(),
            files: MemoryFiles::default(),
        }
    }

    /// Knows a few programs of every system: `true`, `false`, `echo`, `sleep`, `cat`, and `sh -c`
    /// with `exit N`. Everything else does not exist.
    pub fn everyday() -> Self {
        Self::new(everyday)
    }

    /// Plays a command, and remembers that it was asked for.
    pub(super) fn play(&self, command: &CommandSpec) -> Option<ScriptedCommand> {
        lock(&self.calls).push(command.clone());
        (self.play)(command)
    }

    /// Lists every command that was asked for, in order.
    pub fn calls(&self) -> Vec<CommandSpec> {
        lock(&self.calls).clone()
    }
}

fn everyday(command: &CommandSpec) -> Option<ScriptedCommand> {
    let words: Vec<_> = command
        .argv
        .iter()
        .map(|word| word.to_text().into_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let program = words.first()?.rsplit('/').next()?;
    let quiet = ScriptedCommand::default();
    match (program, &words[1..]) {
        ("true" | "cat", _) => Some(quiet),
        ("false", _) => Some(ScriptedCommand {
            exit_code: 1,
            ..quiet
        }),
        ("echo", rest) => Some(ScriptedCommand {
            stdout: format!("{}\n", rest.join(" ")).into_bytes(),
            ..quiet
        }),
        ("sleep", [seconds]) => {
            let takes = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
            Some(ScriptedCommand { takes, ..quiet })
        }
        ("sh" | "bash", ["-c", text]) => {
            let code = text.trim().strip_prefix("exit ")?.trim().parse().ok()?;
            Some(ScriptedCommand {
                exit_code: code,
                ..quiet
            })
        }
        _ => None,
    }
}

/// The place itself.
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    script: Script,
    open: Mutex<Vec<Arc<Performance>>>,
    stages: Mutex<Vec<Weak<Stage>>>,
    standing: Mutex<bool>,
}

impl MemoryBackend {
    pub(crate) const fn new(script: Script) -> Self {
        Self {
            script,
            open: Mutex::new(Vec::new()),
            stages: Mutex::new(Vec::new()),
            standing: Mutex::new(true),
        }
    }
}

impl Backend for MemoryBackend {
    fn start_with(
        &self,
        command: &CommandSpec,
        stdio: Stdio,
        _extra: Extra,
    ) -> Result<Started, Problem> {
        if !self.is_standing() {
            return Err(Problem::new(
                ErrorCode::EnclosureLost,
                "the enclosure was taken down",
            ));
        }
        let stdio = match stdio {
            Stdio::Terminal(size) => {
                let (started, stage) = stage::begin(&self.script, command, size)?;
                let mut stages = lock(&self.stages);
                stages.retain(|one| one.strong_count() > 0);
                stages.push(Arc::downgrade(&stage));
                return Ok(started);
            }
            Stdio::Three(ends) => ends,
        };
        let Some(scripted) = self.script.play(command) else {
            let program = command.argv.first().cloned().unwrap_or_default();
            return Err(Problem::new(
                ErrorCode::NotFound,
                format!("{program}: the script has no such program"),
            ));
        };
        let [_, stdout, stderr] = stdio;
        let done = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Problem::new(ErrorCode::SpawnFailed, format!("eventfd: {error}")))?;
        let play = Arc::new(Performance {
            done,
            state: Mutex::default(),
            turn: Condvar::new(),
        });
        lock(&self.open).push(Arc::clone(&play));
        let actor = Arc::clone(&play);
        std::thread::spawn(move || actor.act(&scripted, stdout, stderr));
        Ok(Started {
            pid: None,
            command: Box::new(MemoryCommand(play)),
            master: None,
            foreground: None,
        })
    }

    fn end(&self) -> EndedBy {
        *lock(&self.standing) = false;
        for play in lock(&self.open).drain(..) {
            play.strike(9);
        }
        for stage in lock(&self.stages).drain(..) {
            stage.upgrade().inspect(|stage| stage.strike(9));
        }
        EndedBy::Itself
    }

    fn file_worker(&self, _root: &BytePath) -> Result<Box<dyn FileWorker>, Problem> {
        Ok(self.script.files.worker())
    }

    fn is_standing(&self) -> bool {
        *lock(&self.standing)
    }
}

/// One command on the stage.
#[derive(Debug)]
struct Performance {
    done: OwnedFd,
    state: Mutex<PlayState>,
    turn: Condvar,
}

#[derive(Debug, Default)]
struct PlayState {
    struck: Option<u8>,
    ended: Option<Exit>,
}

impl Performance {
    fn act(&self, scripted: &ScriptedCommand, stdout: OwnedFd, stderr: OwnedFd) {
        // A reader that went away is no reason to stop: the script has no SIGPIPE.
        let _ = std::fs::File::from(stdout).write_all(&scripted.stdout);
        let _ = std::fs::File::from(stderr).write_all(&scripted.stderr);
        let until = Instant::now().checked_add(scripted.takes);
        let mut state = lock(&self.state);
        while state.struck.is_none() {
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                break;
            }
            state = self
                .turn
                .wait_timeout(state, left.min(Duration::from_hours(1)))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.ended = Some(
            state
                .struck
                .map_or(Exit::Code(scripted.exit_code), Exit::Signal),
        );
        drop(state);
        let _ = rustix::io::write(&self.done, &1_u64.to_ne_bytes());
    }

    fn strike(&self, signal: u8) {
        lock(&self.state).struck = Some(signal);
        self.turn.notify_all();
    }
}

#[derive(Debug)]
struct MemoryCommand(Arc<Performance>);

impl RunningCommand for MemoryCommand {
    fn channel(&self) -> BorrowedFd<'_> {
        self.0.done.as_fd()
    }

    fn take_end(&mut self) -> Result<Option<Ended>, Problem> {
        Ok(lock(&self.0.state).ended.map(|exit| Ended {
            exit,
            usage: Usage::default(),
            leftovers: Vec::new(),
            kept: None,
            by: EndedBy::Itself,
        }))
    }

    fn signal(&mut self, _recipient: Recipient, number: i32) {
        if let Ok(number) = u8::try_from(number) {
            self.0.strike(number);
        }
    }

    fn end_tree(&mut self) {
        self.0.strike(9);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change of these values is one assignment, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
