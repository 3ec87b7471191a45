//! A place behind walls, from its set-up to its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{NewEvent, Severity, Subject, event_type};
use cofferdam_core::id::EnclosureId;
use cofferdam_core::outcome::{CommandOutcome, EndedBy, Isolation, IsolationLevel};
use cofferdam_core::ports::PublishedPort;
use cofferdam_core::spec::{CommandSpec, Digest, EnclosureSpec, Mechanism, StreamPlan, Variable};
use cofferdam_sandbox::GroupPlan;
use serde_json::json;

use crate::backend::{Backend, Extra};
use crate::files::Workers;
use crate::guard::Guard;
use crate::limits::{self, Limiter};
use crate::network::Door;
use crate::plane::Plane;
use crate::ports::Ports;
use crate::provider::{self, Occupancy, Scratch};
use crate::quiet;
use crate::run::{self, Kept, NotStarted, Run};

/// What commands of one enclosure have in common.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) plane: Plane,
    pub(crate) id: EnclosureId,
    pub(crate) hash: Digest,
    pub(crate) spec: EnclosureSpec,
    pub(crate) isolation: Isolation,
    pub(crate) output_limit: Option<u64>,
    guard: Option<Guard>,
    ports: Option<Ports>,
    door: Option<Door>,
}

impl Place {
    /// Lends the way out, where the network is restricted.
    pub(crate) const fn door(&self) -> Option<&Door> {
        self.door.as_ref()
    }

    pub(crate) const fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// The event that says that the walls are down.
    fn ended(&self, reason: &str, by: EndedBy, subject: &Subject) -> NewEvent {
        self.plane.event(
            subject,
            event_type::ISOLATION_ENDED,
            Severity::Debug,
            json!({"enclosure_id": self.id, "reason": reason, "ended_by": by}),
        )
    }

    /// Lists the ports of the place that were opened outside.
    pub(crate) fn published(&self) -> Vec<PublishedPort> {
        self.ports
            .as_ref()
            .map(Ports::published)
            .unwrap_or_default()
    }
}

/// The walls as they stand now; put up anew when the host took a part of them away.
#[derive(Debug)]
pub(crate) struct Standing {
    place: Place,
    // Before the backend, so that they leave before the walls come down.
    workers: Workers,
    backend: Box<dyn Backend>,
    _scratch: Option<Scratch>,
}

impl Standing {
    /// Lends the plan of the place.
    pub(crate) const fn spec(&self) -> &EnclosureSpec {
        &self.place.spec
    }

    /// Lends those who serve files in it.
    pub(crate) const fn workers(&self) -> &Workers {
        &self.workers
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }
}

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

/// A place before its walls are put up.
struct Planned {
    id: EnclosureId,
    hash: Digest,
    spec: EnclosureSpec,
    isolation: Isolation,
    /// The control group that bounds it, to be made.
    group: Option<GroupPlan>,
}

impl Planned {
    fn new(plane: &Plane, spec: &EnclosureSpec, requested: IsolationLevel) -> Self {
        let (milliseconds, random) = plane.ambient().id_parts();
        let id = EnclosureId::new(milliseconds, random);
        Self {
            group: limits::plan(|| plane.control_trees(), spec, id.as_str()),
            id,
            hash: spec.hash(),
            spec: spec.clone(),
            isolation: isolation(spec, requested),
        }
    }

    fn intent(&self, plane: &Plane, subject: &Subject) -> NewEvent {
        let mut data = json!({
            "enclosure_id": self.id,
            "spec_hash": self.hash,
            "provider": self.spec.provider,
            "scratch": self.spec.scratch,
            "lease": plane.lease(),
        });
        if let Some(group) = &self.group {
            let paths: Vec<BytePath> = group.paths().map(BytePath::from).collect();
            data["control_groups"] = json!(paths);
        }
        plane.event(
            subject,
            event_type::ISOLATION_INTENDED,
            Severity::Debug,
            data,
        )
    }

    /// Puts the walls up and tells of it with the next step of the journal.
    fn stand(
        self,
        plane: &Plane,
        subject: &Subject,
        occupancy: Occupancy,
    ) -> Result<Standing, Problem> {
        let Self {
            id,
            hash,
            spec,
            mut isolation,
            group,
        } = self;
        let about = About {
            plane,
            subject,
            id: &id,
        };
        let raised = raise(&about, &spec, occupancy, group.as_ref()).map_err(|problem| {
            let data = json!({"enclosure_id": id, "reason": "failed", "problem": problem});
            plane.record_later(subject, event_type::ISOLATION_ENDED, Severity::Error, data);
            problem
        });
        let Raised {
            scratch,
            guard,
            ports,
            door,
            backend,
        } = raised?;
        if backend.limiter().is_some_and(Limiter::has_group) {
            isolation.enforced_by.push(Mechanism::Cgroup);
            isolation.enforced_by.sort_unstable();
        }
        plane.record_later(
            subject,
            event_type::ISOLATION_ENCLOSED,
            Severity::Info,
            json!({
                "enclosure_id": id,
                "spec_hash": hash,
                "requested": isolation.requested,
                "effective": isolation.effective,
                "enforced_by": isolation.enforced_by,
                "gaps": isolation.gaps,
            }),
        );
        let output_limit = spec.limits.output_bytes;
        let place = Place {
            plane: plane.clone(),
            id,
            hash,
            spec,
            isolation,
            output_limit,
            guard,
            ports,
            door,
        };
        Ok(Standing {
            place,
            workers: Workers::default(),
            backend,
            _scratch: scratch,
        })
    }
}

fn stand(
    plane: &Plane,
    spec: &EnclosureSpec,
    requested: IsolationLevel,
    subject: &Subject,
) -> Result<Standing, Problem> {
    let planned = Planned::new(plane, spec, requested);
    plane.append(vec![planned.intent(plane, subject)])?;
    planned.stand(plane, subject, Occupancy::Many)
}

/// Runs one command in a place of its own: both intents in one step, then the walls and the
/// command, then everything that came of it in one step.
pub(crate) fn run_once(
    plane: &Plane,
    spec: EnclosureSpec,
    requested: IsolationLevel,
    run: Run<'_>,
    last: &mut dyn FnMut(&CommandOutcome) -> Vec<NewEvent>,
) -> CommandOutcome {
    let planned = Planned::new(plane, &spec, requested);
    let isolation = planned.isolation.clone();
    let prepared = match run::prepare(plane, &spec, run) {
        Ok(prepared) => prepared,
        Err(not) => return run::never_ran(plane, isolation, *not),
    };
    let subject = prepared.subject().clone();
    let intents = vec![
        planned.intent(plane, &subject),
        prepared.intent(plane, &planned.id, &planned.hash),
    ];
    if let Err(problem) = plane.append(intents) {
        return run::never_ran(plane, isolation, prepared.refuse(problem));
    }
    let occupancy = prepared.occupancy();
    let control = prepared.control();
    let command_id = prepared.command_id().clone();
    let standing = match planned.stand(plane, &subject, occupancy) {
        Ok(standing) => standing,
        Err(problem) => {
            return run::never_ran_as(plane, command_id, isolation, prepared.refuse(problem));
        }
    };
    let (mut outcome, told) = prepared.run(&standing.place, standing.backend.as_ref());
    let by = standing.end();
    let mut after = vec![standing.place.ended("closed", by, &subject)];
    after.extend(last(&outcome));
    if let Err(problem) = plane.record_all(&subject, told, &outcome, after) {
        outcome.error.get_or_insert(problem);
    }
    run::forget(&control);
    outcome
}

/// On whose behalf a place is put up.
struct About<'a> {
    plane: &'a Plane,
    subject: &'a Subject,
    id: &'a EnclosureId,
}

struct Raised {
    scratch: Option<Scratch>,
    guard: Option<Guard>,
    ports: Option<Ports>,
    door: Option<Door>,
    backend: Box<dyn Backend>,
}

fn raise(
    about: &About<'_>,
    spec: &EnclosureSpec,
    occupancy: Occupancy,
    group: Option<&GroupPlan>,
) -> Result<Raised, Problem> {
    // Ports are asked of the keeper while commands run, and so is the listener of a way out.
    let occupancy = if spec.ports.is_empty() && spec.egress.is_none() {
        occupancy
    } else {
        Occupancy::Many
    };
    let plane = about.plane;
    let scratch = if provider::needs_scratch(spec) {
        Some(Scratch::make(spec)?)
    } else {
        None
    };
    let guard = Guard::new(&spec.protections, &spec.mounts)?;
    let backend = provider::enclose(plane, spec, occupancy, group)?;
    // A file that was replaced while the walls went up would lie bare behind them.
    if let Some(problem) = guard.as_ref().and_then(Guard::look) {
        return Err(problem);
    }
    let ports = match backend.network() {
        // Where the keeper itself becomes the supervisor of a single command, nobody is left to ask.
        Some(network) if occupancy == Occupancy::Many => Some(Ports::open(
            plane,
            about.subject,
            about.id,
            &spec.ports,
            network,
        )?),
        _ => None,
    };
    let door = match &spec.egress {
        Some(egress) => {
            let of = (about.id, about.subject);
            Some(Door::open(
                plane,
                of,
                egress,
                &spec.workspace,
                backend.network(),
            )?)
        }
        None => None,
    };
    Ok(Raised {
        scratch,
        guard,
        ports,
        door,
        backend,
    })
}

fn take_down(standing: Option<Arc<Standing>>, reason: &str, subject: &Subject) -> EndedBy {
    let Some(standing) = standing else {
        return EndedBy::Itself;
    };
    let by = standing.end();
    let place = &standing.place;
    place
        .plane
        .append_later(vec![place.ended(reason, by, subject)]);
    by
}

impl Standing {
    /// Ends everything in the place and takes the walls down.
    fn end(&self) -> EndedBy {
        let ports = self.place.ports.as_ref();
        ports.inspect(|ports| ports.stop());
        let by = self.backend.end();
        ports.inspect(|ports| ports.end());
        if let Some(door) = self.place.door() {
            door.close();
        }
        by
    }
}

fn isolation(spec: &EnclosureSpec, requested: IsolationLevel) -> Isolation {
    Isolation {
        requested,
        effective: IsolationLevel {
            provider: Some(spec.provider),
            network: spec.network,
        },
        enforced_by: spec.enforced_by.clone(),
        gaps: spec.gaps.clone(),
        uid: spec.identity.uid,
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
