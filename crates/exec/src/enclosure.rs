//! A place behind walls, from its set-up to its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::Subject;
use cofferdam_core::id::EnclosureId;
use cofferdam_core::outcome::{CommandOutcome, EndedBy, Isolation, IsolationLevel};
use cofferdam_core::spec::{CommandSpec, EnclosureSpec, StreamPlan, Variable};

use crate::backend::{Backend, Extra};
use crate::guard::Guard;
use crate::plane::Plane;
use crate::quiet;
use crate::run::{self, Kept, NotStarted, Run};
use crate::standing::{Standing, isolation, stand, take_down};

/// A place behind walls in which commands run, one or many, one after the other or at once.
///
/// Dropping it ends everything in it.
#[derive(Debug)]
pub struct Enclosure {
    plane: Plane,
    spec: EnclosureSpec,
    requested: IsolationLevel,
    subject: Subject,
    standing: Mutex<Option<Arc<Standing>>>,
    /// Whether it was taken down for good.
    closed: AtomicBool,
}

/// What a helper command of the plane's own gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuietOutput {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: Vec<u8>,
}

impl Enclosure {
    pub(crate) fn put_up(
        plane: &Plane,
        spec: EnclosureSpec,
        requested: IsolationLevel,
        subject: &Subject,
    ) -> Result<Self, Problem> {
        let standing = stand(plane, &spec, requested, subject)?;
        Ok(Self {
            plane: plane.clone(),
            spec,
            requested,
            subject: subject.clone(),
            standing: Mutex::new(Some(Arc::new(standing))),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) const fn plane(&self) -> &Plane {
        &self.plane
    }

    /// Lends the plan of the place.
    pub const fn spec(&self) -> &EnclosureSpec {
        &self.spec
    }

    /// Tells what was asked for, what holds, and by what means.
    pub fn isolation(&self) -> Isolation {
        isolation(&self.spec, self.requested)
    }

    /// Runs one command to its end. Blocks; several threads may run commands at once.
    ///
    /// Whatever happens is in the outcome: a command that never ran has the status `error` and says
    /// why.
    pub fn run(&self, run: Run<'_>) -> CommandOutcome {
        match self.standing() {
            Ok(standing) => run::run(&standing.place, standing.backend.as_ref(), run),
            Err(problem) => {
                run::never_ran(&self.plane, self.isolation(), NotStarted { run, problem })
            }
        }
    }

    /// Runs one command of a session; gives what it left running, and in which walls it ran, where
    /// they stood.
    pub(crate) fn run_in_session(
        &self,
        run: Run<'_>,
        extra: Extra,
    ) -> (CommandOutcome, Kept, Option<EnclosureId>) {
        match self.standing() {
            Ok(standing) => {
                let (outcome, kept) =
                    run::run_with(&standing.place, standing.backend.as_ref(), run, extra);
                (outcome, kept, Some(standing.place.id.clone()))
            }
            Err(problem) => {
                let outcome =
                    run::never_ran(&self.plane, self.isolation(), NotStarted { run, problem });
                (outcome, Kept::default(), None)
            }
        }
    }

    /// Tells of a command that is not started, for a reason that is not the place's.
    pub(crate) fn refuse(&self, run: Run<'_>, problem: Problem) -> CommandOutcome {
        run::never_ran(&self.plane, self.isolation(), NotStarted { run, problem })
    }

    /// Runs a helper as [`Enclosure::run_quiet`] does, with descriptors of its own.
    pub(crate) fn run_quiet_with(
        &self,
        command: &CommandSpec,
        extra: Extra,
    ) -> Result<QuietOutput, Problem> {
        let standing = self.standing()?;
        quiet::run(&self.plane, standing.backend.as_ref(), command, None, extra)
    }

    /// Names the walls that stand now, if they do.
    pub(crate) fn id(&self) -> Option<EnclosureId> {
        lock(&self.standing)
            .as_ref()
            .map(|standing| standing.place.id.clone())
    }

    /// Lends what stands, without putting it up anew.
    pub(crate) fn as_it_stands<T>(&self, look: impl FnOnce(&dyn Backend) -> T) -> Option<T> {
        let standing = lock(&self.standing).as_ref().map(Arc::clone)?;
        Some(look(standing.backend.as_ref()))
    }

    /// Runs a helper of the plane's own inside, without an intent in the journal: its effect is no
    /// one's but the plane's.
    ///
    /// # Errors
    ///
    /// Those of starting a command; `git_failed` never: a bad exit code is a result.
    pub fn run_quiet(
        &self,
        argv: &[BytePath],
        environment: &[Variable],
        cwd: &BytePath,
        input: Option<&[u8]>,
        timeout: Duration,
    ) -> Result<QuietOutput, Problem> {
        let standing = self.standing()?;
        let command = CommandSpec {
            argv: argv.to_vec(),
            cwd: cwd.clone(),
            environment: environment.to_vec(),
            streams: if input.is_some() {
                StreamPlan::PipesWithInput
            } else {
                StreamPlan::Pipes
            },
            timeout_ms: Some(timeout.as_millis() as u64),
            idle_timeout_ms: None,
            limits: cofferdam_core::spec::ResourceLimits::default(),
        };
        quiet::run(
            &self.plane,
            standing.backend.as_ref(),
            &command,
            input,
            Extra::default(),
        )
    }

    /// Ends everything in the place and takes the walls down.
    pub fn close(self) -> EndedBy {
        let standing = lock(&self.standing).take();
        take_down(standing, "closed", &self.subject)
    }

    /// Proves that a command would be taken, and be behind what was planned, in so much time.
    pub(crate) fn prove(&self, limit: Duration) -> bool {
        let standing = lock(&self.standing).as_ref().map(Arc::clone);
        standing.is_some_and(|standing| {
            standing.place.guard().and_then(Guard::look).is_none() && standing.backend.prove(limit)
        })
    }

    /// Takes the walls down for good, from any thread: the next command is refused.
    pub(crate) fn take_down(&self) -> EndedBy {
        self.closed.store(true, Ordering::Release);
        let standing = lock(&self.standing).take();
        take_down(standing, "closed", &self.subject)
    }

    /// Puts the walls up where they do not stand.
    pub(crate) fn put_up_again(&self) -> Result<(), Problem> {
        self.standing().map(drop)
    }

    /// Ends everything that runs in the place, now, from any thread. The next command puts the walls
    /// up again.
    pub fn end_now(&self) {
        let standing = lock(&self.standing).as_ref().map(Arc::clone);
        if let Some(standing) = standing {
            standing.place.ports.as_ref().inspect(|ports| ports.stop());
            standing.backend.end();
        }
    }

    /// Gives the walls, and puts them up anew where a part of them has gone.
    pub(crate) fn standing(&self) -> Result<Arc<Standing>, Problem> {
        let mut slot = lock(&self.standing);
        if self.closed.load(Ordering::Acquire) {
            return Err(Problem::new(
                ErrorCode::EnclosureLost,
                "the enclosure was taken down",
            ));
        }
        if let Some(standing) = slot.as_ref() {
            let replaced = standing.place.guard().and_then(Guard::look).is_some();
            if !replaced && standing.backend.is_standing() {
                return Ok(Arc::clone(standing));
            }
            let reason = if replaced {
                "protected_file_replaced"
            } else {
                "lost"
            };
            let old = slot.take();
            take_down(old, reason, &self.subject);
        }
        let standing = Arc::new(stand(
            &self.plane,
            &self.spec,
            self.requested,
            &self.subject,
        )?);
        *slot = Some(Arc::clone(&standing));
        Ok(standing)
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        let standing = lock(&self.standing).take();
        take_down(standing, "dropped", &self.subject);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The slot is empty or whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that a place needs an answer in time.
pub(crate) fn not_in_time(what: &str) -> Problem {
    Problem::new(
        ErrorCode::EnclosureLost,
        format!("{what} did not end in time"),
    )
}
