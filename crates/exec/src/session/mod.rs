//! A session: one place that stands, and many commands in it, one after the other or at once.
//!
//! Each command is a process of its own under its own supervisor, with its own outcome, limits and
//! output; what it leaves running lives on until the session ends. In a shell session every command
//! is a fresh shell, never one that waits for lines: directory, mask and exported variables are handed
//! from one to the next by a channel beside its streams, so that whatever a command does to its shell
//! is over with it.

mod jobs;
mod script;
mod state;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::EnclosureId;
use cofferdam_core::outcome::{CommandOutcome, EndedBy, Isolation, Status};
use cofferdam_core::spec::{CommandSpec, EnclosureSpec, StreamPlan, Variable};

use crate::backend::Extra;
use crate::control::Control;
use crate::enclosure::Enclosure;
use crate::run::Run;
use jobs::Jobs;
pub use jobs::{Job, SessionLog};
use script::Shipment;
use state::{NoState, ShellState};

/// How long a shell may take to read a script that it does not run.
const CHECK: Duration = Duration::from_secs(5);
/// From how many bytes on a script goes to the shell by a descriptor, also without a state.
const LONG_SCRIPT: usize = 64 * 1024;
/// How often a command that waits for its turn looks whether it was cancelled.
const TURN: Duration = Duration::from_millis(20);

/// What commands of a session have in common beside the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionKind {
    /// Nothing: each begins in the workspace, with the environment of the place.
    Plain,
    /// Directory, mask and exported variables go from one script to the next; one runs at a time.
    Shell {
        /// The shell, by absolute path.
        shell: BytePath,
    },
}

/// One command of a session.
#[derive(Debug)]
pub struct SessionRun<'a> {
    /// What is run, as in any enclosure. Its `argv` is replaced where there is a script.
    pub run: Run<'a>,
    /// Text for the shell, word for word.
    pub script: Option<String>,
    /// The shell that reads it.
    pub shell: BytePath,
    /// Whether the command says itself where it starts; else that is where the session is.
    pub has_directory: bool,
    /// How long it waits for the command before it in a shell session; without end when `None`.
    pub patience: Option<Duration>,
    /// Whether it runs beside the commands of a shell session: without its turn, from the state of
    /// now, and without handing one on.
    pub aside: bool,
}

/// How a command of a session ended, and the session after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnd {
    /// The command.
    pub outcome: CommandOutcome,
    /// Whether the place was put up anew for it: background jobs and private files are gone, files
    /// of the workspace, directory and variables are as they were.
    pub session_reset: bool,
    /// Where the next command begins.
    pub directory: BytePath,
    /// Whether the command's own directory and exported variables were taken over. True where there
    /// is nothing to take over.
    pub state_saved: bool,
    /// Why they were not.
    pub state_reason: Option<String>,
}

/// A place that stands for many commands. Dropping it ends everything in it, and nothing else; a
/// terminal in it holds it as long as it is open.
#[derive(Debug)]
pub struct Session {
    enclosure: Arc<Enclosure>,
    kind: SessionKind,
    jobs: Jobs,
    walls: Mutex<Option<EnclosureId>>,
    turn: Turn,
}

/// The state of a shell session, and whose turn it is.
#[derive(Debug)]
struct Turn {
    state: Mutex<Slot>,
    free: Condvar,
}

#[derive(Debug)]
struct Slot {
    busy: bool,
    state: ShellState,
    /// Counts resets: a command that began before one does not write over it.
    generation: u64,
}

impl Session {
    /// Makes a session of a place.
    pub fn new(enclosure: Enclosure, kind: SessionKind) -> Self {
        let walls = Mutex::new(enclosure.id());
        let state = ShellState::at(enclosure.spec().workspace.clone());
        Self {
            jobs: Jobs::new(enclosure.plane().masker().clone()),
            enclosure: Arc::new(enclosure),
            kind,
            walls,
            turn: Turn {
                state: Mutex::new(Slot {
                    busy: false,
                    state,
                    generation: 0,
                }),
                free: Condvar::new(),
            },
        }
    }

    /// Makes a session of another place that goes on where one is: same directory and variables,
    /// none of its jobs and private files.
    pub fn succeed(old: &Self, enclosure: Enclosure) -> Self {
        let new = Self::new(enclosure, old.kind.clone());
        let state = lock(&old.turn.state).state.clone();
        lock(&new.turn.state).state = state;
        new
    }

    /// Tells the time by the clock of its plane.
    pub fn monotonic(&self) -> Duration {
        self.enclosure.plane().ambient().monotonic()
    }

    /// Lends its place, for a terminal in it.
    pub const fn enclosure(&self) -> &Arc<Enclosure> {
        &self.enclosure
    }

    /// Lends the plan of the place.
    pub fn spec(&self) -> &EnclosureSpec {
        self.enclosure.spec()
    }

    /// Tells what was asked for, what holds, and by what means.
    pub fn isolation(&self) -> Isolation {
        self.enclosure.isolation()
    }

    /// Tells what its commands have in common.
    pub const fn kind(&self) -> &SessionKind {
        &self.kind
    }

    /// Tells where the next command begins.
    pub fn directory(&self) -> BytePath {
        lock(&self.turn.state).state.directory.clone()
    }

    /// Runs one command to its end. Blocks; several threads may call: commands of a plain session run
    /// at once, those of a shell session one after the other.
    ///
    /// Whatever happens is in what is given back: a command that never ran has the status `error`.
    pub fn run(&self, request: SessionRun<'_>) -> SessionEnd {
        match &self.kind {
            SessionKind::Plain => self.run_plain(request),
            SessionKind::Shell { .. } if request.aside => {
                let mut state = lock(&self.turn.state).state.clone();
                self.run_shell(request, &mut state)
            }
            SessionKind::Shell { .. } => self.run_in_turn(request),
        }
    }

    fn run_plain(&self, request: SessionRun<'_>) -> SessionEnd {
        let SessionRun {
            mut run,
            script,
            shell,
            ..
        } = request;
        let mut extra = kept();
        if let Some(script) = script {
            if let Some(problem) = self.incomplete(&shell, &script, &run.command.cwd) {
                return self.refused(run, problem);
            }
            if script.len() < LONG_SCRIPT {
                run.command.argv = vec![shell, "-c".into(), script.as_str().into()];
            } else {
                match Shipment::pack(&shell, &script, None) {
                    Ok(mut shipment) => {
                        extra.descriptors = shipment.take_descriptors();
                        run.command.argv = shipment.argv;
                    }
                    Err(error) => return self.refused(run, not_packed(&error)),
                }
            }
        }
        let (outcome, session_reset) = self.carry_out(run, extra);
        self.ended(outcome, session_reset, None)
    }

    fn run_in_turn(&self, request: SessionRun<'_>) -> SessionEnd {
        let waited = self.turn.wait(&request.run.control, request.patience);
        let (mut before, generation) = match waited {
            Ok(taken) => taken,
            Err(problem) => return self.refused(request.run, problem),
        };
        let end = self.run_shell(request, &mut before);
        self.turn.give_back(generation, before);
        SessionEnd {
            directory: self.directory(),
            ..end
        }
    }

    /// Runs a command that has its turn, and changes the state to what the next one begins with.
    fn run_shell(&self, request: SessionRun<'_>, state: &mut ShellState) -> SessionEnd {
        let SessionRun {
            mut run,
            script,
            shell,
            has_directory,
            ..
        } = request;
        let place = &self.spec().environment;
        let given: Vec<Variable> = run
            .command
            .environment
            .iter()
            .filter(|one| one.name.as_bytes() != b"PWD")
            .cloned()
            .collect();
        let begins = ShellState {
            directory: if has_directory {
                run.command.cwd.clone()
            } else {
                state.directory.clone()
            },
            ..state.clone()
        };
        run.command.cwd = begins.directory.clone();
        run.command.environment = begins.environment(place, &given);
        let mut extra = kept();
        extra.own_environment_only = true;
        let mut shipment = None;
        if let Some(script) = script {
            if let Some(problem) = self.incomplete(&shell, &script, &begins.directory) {
                return self.refused(run, problem);
            }
            let told = Some((self.mark(), begins.mask.as_deref()));
            match Shipment::pack(&shell, &script, told) {
                Ok(mut packed) => {
                    extra.descriptors = packed.take_descriptors();
                    run.command.argv.clone_from(&packed.argv);
                    shipment = Some(packed);
                }
                Err(error) => return self.refused(run, not_packed(&error)),
            }
        }
        let (mut outcome, session_reset) = self.carry_out(run, extra);
        if !has_directory
            && let Some(problem) = &mut outcome.error
            && problem.code == ErrorCode::CwdMissing
        {
            problem.hint =
                Some("nothing ran; the session is back at the top of the workspace".to_owned());
            // Said once; the next command must not meet it again.
            *state = ShellState {
                directory: self.spec().workspace.clone(),
                previous_directory: None,
                ..state.clone()
            };
        }
        let Some(shipment) = shipment else {
            return self.ended(outcome, session_reset, None);
        };
        // Whoever was ended from outside was in the middle of something.
        let left_by_itself = matches!(outcome.status, Status::Completed | Status::Failed)
            && outcome.return_code.is_some();
        let told = if left_by_itself {
            shipment.told().map_or(Err(NoState::Nothing), |told| {
                ShellState::read(&told.bytes, &told.mark)
            })
        } else {
            Err(NoState::Nothing)
        };
        let reason = match told {
            Ok(mut next) => {
                next.without(&given, state, place);
                *state = next;
                None
            }
            Err(why) => Some(if left_by_itself {
                why.as_str().to_owned()
            } else {
                format!("the command is {}", outcome.status)
            }),
        };
        self.ended(outcome, session_reset, reason)
    }

    /// Runs a command in the walls, which are put up anew where they have gone.
    fn carry_out(&self, run: Run<'_>, extra: Extra) -> (CommandOutcome, bool) {
        let (outcome, kept, walls) = self.enclosure.run_in_session(run, extra);
        let mut own = lock(&self.walls);
        let is_new = walls.is_some() && *own != walls;
        if is_new {
            // The jobs of this command are not here yet, and all others went with their place.
            self.jobs.clear();
            own.clone_from(&walls);
        }
        self.jobs.take(&outcome.command_id, kept);
        drop(own);
        (outcome, is_new)
    }

    /// Looks whether a script is whole, by the shell that would run it, where that is not sure.
    fn incomplete(&self, shell: &BytePath, script: &str, directory: &BytePath) -> Option<Problem> {
        if script.contains('\0') {
            let problem = Problem::new(ErrorCode::InvalidRequest, "the script holds a zero byte");
            return Some(problem.with_field("command"));
        }
        if script::is_surely_whole(script) {
            return None;
        }
        let mut shipment = Shipment::pack_for_check(shell, script).ok()?;
        let command = CommandSpec {
            argv: shipment.argv.clone(),
            cwd: if directory.is_within(&self.spec().workspace) {
                self.spec().workspace.clone()
            } else {
                "/".into()
            },
            environment: vec![Variable {
                name: "LC_ALL".into(),
                value: "C".into(),
            }],
            streams: StreamPlan::Pipes,
            timeout_ms: Some(CHECK.as_millis() as u64),
            idle_timeout_ms: None,
            limits: cofferdam_core::spec::ResourceLimits::default(),
        };
        let extra = Extra {
            descriptors: shipment.take_descriptors(),
            own_environment_only: true,
            ..Extra::default()
        };
        // Where nobody can look, the command itself says what is wrong.
        let seen = self.enclosure.run_quiet_with(&command, extra).ok()?;
        let said = String::from_utf8_lossy(&seen.stderr);
        let what = script::unfinished(seen.code, &said)?;
        Some(
            Problem::new(
                ErrorCode::SyntaxIncomplete,
                format!("the script is not whole: {what}"),
            )
            .with_field("command")
            .with_hint("close it and send all of it again; nothing of it ran"),
        )
    }

    fn refused(&self, run: Run<'_>, problem: Problem) -> SessionEnd {
        let outcome = self.enclosure.refuse(run, problem);
        self.ended(outcome, false, None)
    }

    fn ended(
        &self,
        outcome: CommandOutcome,
        session_reset: bool,
        state_reason: Option<String>,
    ) -> SessionEnd {
        let is_plain = self.kind == SessionKind::Plain;
        SessionEnd {
            outcome,
            session_reset,
            directory: if is_plain {
                self.spec().workspace.clone()
            } else {
                self.directory()
            },
            state_saved: state_reason.is_none(),
            state_reason,
        }
    }

    /// Lists what its commands left running.
    pub fn jobs(&self) -> Vec<Job> {
        let running = self.enclosure.as_it_stands(|backend| backend.kept());
        self.jobs.list(&running.unwrap_or_default())
    }

    /// Ends what one command left running; false when nothing of it runs.
    pub fn end_job(&self, job: &Job) -> bool {
        let is_there = self.jobs().iter().any(|one| one.number == job.number);
        if is_there {
            self.enclosure
                .as_it_stands(|backend| backend.end_kept(job.number));
        }
        is_there
    }

    /// Gives what jobs wrote after their commands had ended, from an offset on; the last 256 KiB of
    /// it are kept.
    pub fn log(&self, offset: u64) -> SessionLog {
        self.jobs.log(offset)
    }

    /// Tells whether its walls stand; where they do not, the next command has them put up anew.
    pub fn is_standing(&self) -> bool {
        self.enclosure
            .as_it_stands(|backend| backend.is_standing())
            .unwrap_or(false)
    }

    /// Ends everything in it and begins anew: walls, directory, variables.
    ///
    /// # Errors
    ///
    /// Those of putting walls up.
    pub fn reset(&self) -> Result<(), Problem> {
        self.enclosure.end_now();
        {
            let mut slot = lock(&self.turn.state);
            slot.state = ShellState::at(self.spec().workspace.clone());
            slot.generation += 1;
        }
        self.jobs.clear();
        self.enclosure.put_up_again()?;
        *lock(&self.walls) = self.enclosure.id();
        Ok(())
    }

    /// Ends everything in it and takes the walls down, from any thread.
    pub fn end(&self) -> EndedBy {
        self.jobs.clear();
        self.enclosure.take_down()
    }

    /// Names one command, for nobody but its shell and us.
    fn mark(&self) -> String {
        let (time, random) = self.enclosure.plane().ambient().id_parts();
        let id = cofferdam_core::id::OperationId::new(time, random);
        id.as_str().to_owned()
    }
}

impl Turn {
    /// Waits until no other command runs; gives the state, and the number of resets before.
    fn wait(
        &self,
        control: &Control,
        patience: Option<Duration>,
    ) -> Result<(ShellState, u64), Problem> {
        let began = std::time::Instant::now();
        let mut slot = lock(&self.state);
        while slot.busy {
            if control.is_cancelled() || control.is_interrupted() {
                return Err(Problem::new(
                    ErrorCode::Cancelled,
                    "cancelled before it started",
                ));
            }
            let left = patience.map(|patience| patience.saturating_sub(began.elapsed()));
            if left == Some(Duration::ZERO) {
                return Err(Problem::new(
                    ErrorCode::SessionBusy,
                    "another command of the shell session is running",
                )
                .with_hint("wait for it, cancel it, or open another session"));
            }
            let nap = left.map_or(TURN, |left| left.min(TURN));
            slot = self
                .free
                .wait_timeout(slot, nap)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        slot.busy = true;
        Ok((slot.state.clone(), slot.generation))
    }

    fn give_back(&self, generation: u64, state: ShellState) {
        {
            let mut slot = lock(&self.state);
            slot.busy = false;
            if slot.generation == generation {
                slot.state = state;
            }
        }
        self.free.notify_one();
    }
}

fn kept() -> Extra {
    Extra {
        keep_rest: true,
        ..Extra::default()
    }
}

fn not_packed(error: &std::io::Error) -> Problem {
    Problem::new(
        ErrorCode::SpawnFailed,
        format!("cannot hand the script to the shell: {error}"),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
