//! The life of one command: intent, start, the loop, the end, the outcome.

mod collect;
mod outcome;
mod pump;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{NewEvent, Severity, Subject, event_type};
use cofferdam_core::id::{CommandId, EnclosureId};
use cofferdam_core::outcome::{CommandOutcome, Isolation};
use cofferdam_core::spec::{CommandSpec, Digest, EnclosureSpec};
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::json;

use crate::backend::{Backend, Extra, Foreground, KeptTree, Stdio};
use crate::background::Shelf;
use crate::control::{Control, TerminalSize};
use crate::host::remember_made;
use crate::limits::Limiter;
use crate::output::OutputSink;
use crate::plane::Plane;
use crate::protect::{self, Snapshot};
use crate::provider::Occupancy;
use crate::standing::Place;
use outcome::Facts;
pub(crate) use outcome::Told;
pub(crate) use pump::set_nonblocking;
use pump::{Ends, Pump, Pumped, Stop, TimeLimits};

/// One command to run in an enclosure.
pub struct Run<'a> {
    /// What is started.
    pub command: CommandSpec,
    /// On whose behalf.
    pub subject: Subject,
    /// Where its streams go.
    pub io: CommandIo<'a>,
    /// By what others reach into it.
    pub control: Control,
    /// Whether a longer time limit was asked for than there is.
    pub timeout_clamped: bool,
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Run")
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// Where the streams of a command come from and go to.
pub enum CommandIo<'a> {
    /// Output is only collected; standard input is these bytes, or empty.
    Capture {
        /// What standard input gives before its end.
        input: Option<Vec<u8>>,
    },
    /// Output is collected and passed on as it comes.
    Stream {
        /// Where standard input comes from; empty without one.
        input: Option<OwnedFd>,
        /// Where output goes.
        sink: &'a mut dyn OutputSink,
    },
    /// The command has a terminal of its own, through which everything goes.
    Terminal {
        /// Where keys come from.
        input: OwnedFd,
        /// How large it is at the start.
        size: TerminalSize,
        /// Where the screen goes.
        sink: &'a mut dyn OutputSink,
    },
    /// The command has a terminal of its own, at which others type and look themselves.
    Lent {
        /// How large it is at the start.
        size: TerminalSize,
        /// Where the screen goes.
        sink: &'a mut dyn OutputSink,
        /// Who gets the master once the terminal is there.
        lend: &'a mut (dyn FnMut(LentTerminal) + Send),
    },
}

/// A terminal that was lent, see [`CommandIo::Lent`].
#[derive(Debug)]
pub struct LentTerminal {
    pub(crate) command_id: CommandId,
    pub(crate) master: OwnedFd,
    pub(crate) foreground: Option<Arc<dyn Foreground>>,
}

impl std::fmt::Debug for CommandIo<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Capture { .. } => "Capture",
            Self::Stream { .. } => "Stream",
            Self::Terminal { .. } => "Terminal",
            Self::Lent { .. } => "Lent",
        })
    }
}

/// Who takes what a command of a session leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The number of the tree, see [`Backend::kept`], with its processes.
    pub(crate) tree: Option<KeptTree>,
    /// Streams of the command that the tree may still write to.
    pub(crate) streams: Vec<OwnedFd>,
}

/// A command before its intent is written.
pub(crate) struct Prepared<'a> {
    run: Run<'a>,
    extra: Extra,
    command_id: CommandId,
    snapshot: Snapshot,
    began: Duration,
}

/// Why a command is not started, with what it was.
pub(crate) struct NotStarted<'a> {
    pub(crate) run: Run<'a>,
    pub(crate) problem: Problem,
}

/// Gives a command its id and remembers what stands at protected names.
pub(crate) fn prepare<'a>(
    plane: &Plane,
    spec: &EnclosureSpec,
    run: Run<'a>,
) -> Result<Prepared<'a>, Box<NotStarted<'a>>> {
    let ambient = plane.ambient();
    let began = ambient.monotonic();
    if run.control.is_cancelled() || run.control.is_interrupted() {
        let problem = Problem::new(ErrorCode::Cancelled, "cancelled before it started");
        return Err(Box::new(NotStarted { run, problem }));
    }
    let snapshot = match protect::take(&spec.protections) {
        Ok(snapshot) => snapshot,
        Err((path, error)) => {
            let problem = Problem::new(
                ErrorCode::Io,
                format!("cannot remember what stands at the protected name {path}: {error}"),
            );
            return Err(Box::new(NotStarted { run, problem }));
        }
    };
    let command_id = run.control.name(|| {
        let (milliseconds, random) = ambient.id_parts();
        CommandId::new(milliseconds, random)
    });
    Ok(Prepared {
        run,
        extra: Extra::default(),
        command_id,
        snapshot,
        began,
    })
}

impl<'a> Prepared<'a> {
    /// Gives the command what one of a session has beyond its streams.
    pub(crate) fn with_extra(mut self, extra: Extra) -> Self {
        self.extra = extra;
        self
    }

    /// The intent, to be written before anything starts.
    pub(crate) fn intent(&self, plane: &Plane, id: &EnclosureId, hash: &Digest) -> NewEvent {
        let command = &self.run.command;
        plane.event(
            &self.run.subject,
            event_type::EXEC_INTENDED,
            Severity::Info,
            json!({
                "command_id": self.command_id,
                "argv": command.argv,
                "cwd": command.cwd,
                "enclosure_id": id,
                "spec_hash": hash,
                "timeout_ms": command.timeout_ms,
                "lease": plane.lease(),
                "protected": self.snapshot,
            }),
        )
    }

    pub(crate) const fn subject(&self) -> &Subject {
        &self.run.subject
    }

    pub(crate) const fn command_id(&self) -> &CommandId {
        &self.command_id
    }

    pub(crate) fn control(&self) -> Control {
        self.run.control.clone()
    }

    /// Tells what a place for nothing but this command must be able to do.
    pub(crate) const fn occupancy(&self) -> Occupancy {
        match self.run.io {
            // A terminal is asked of the keeper.
            CommandIo::Terminal { .. } | CommandIo::Lent { .. } => Occupancy::Many,
            CommandIo::Capture { .. } | CommandIo::Stream { .. } => Occupancy::One,
        }
    }

    /// Gives the command back, whose intent cannot be written or whose walls do not stand.
    pub(crate) fn refuse(self, problem: Problem) -> NotStarted<'a> {
        NotStarted {
            run: self.run,
            problem,
        }
    }

    /// Runs the command to its end; gives the outcome and what goes with it into the journal.
    pub(crate) fn run(self, place: &Place, backend: &dyn Backend) -> (CommandOutcome, Vec<Told>) {
        let (outcome, told, _) = self.run_keeping(place, backend);
        (outcome, told)
    }

    /// The same, with what the command left running where that is let live.
    fn run_keeping(
        self,
        place: &Place,
        backend: &dyn Backend,
    ) -> (CommandOutcome, Vec<Told>, Kept) {
        let Self {
            run,
            extra,
            command_id,
            snapshot,
            began,
        } = self;
        let Run {
            command,
            subject,
            io,
            control,
            timeout_clamped,
        } = run;
        let plane = &place.plane;
        let data = plane.data().map(cofferdam_journal::DataDir::path);
        let shelf = Shelf::new(data, plane.spill(), &command_id);
        control.set_shelf(shelf.clone());
        control.tell_intended();
        let mut facts = Facts::new(place, &command, &command_id, timeout_clamped, shelf);
        let mut kept = Kept::default();
        let limiter = backend.limiter();
        let met = limiter.map(Limiter::look).unwrap_or_default();
        if let Some(door) = place.door() {
            door.begin(&command_id, &subject);
        }
        let what = What {
            command: &command,
            subject: &subject,
            extra,
            control: &control,
        };
        if let Some(undo) = backend.undo() {
            undo.begin(&snapshot, &command_id);
        }
        match start_and_pump(place, backend, what, io, &mut facts) {
            Ok(Pumped { ended, stop, held }) => {
                facts.holds_pipes = !held.is_empty();
                kept.tree = ended.as_ref().and_then(|ended| ended.kept.clone());
                kept.streams = held;
                facts.ended = ended;
                facts.stop = stop;
            }
            Err(problem) => facts.stop = Some(Stop::Lost(problem)),
        }
        if let Some(door) = place.door() {
            facts.refused = door.end(&command_id);
        }
        if let Some(limiter) = limiter {
            facts.limits = limiter.effective().to_vec();
            facts.reasons = limiter.met_since(met);
        }
        facts.changes = protect::restore(&snapshot, &plane.quarantine(&command_id));
        if !facts.changes.is_empty() {
            plane.expire_quarantine();
        }
        remember_made(plane.spill(), protect::taken_away(&facts.changes));
        if let Some(undo) = backend.undo() {
            undo.over(&command_id);
        }
        let (outcome, told) = facts.finish(plane.ambient().monotonic().saturating_sub(began));
        (outcome, told, kept)
    }
}

/// Runs a command in a standing place to its end, and tells the journal before and after.
pub(crate) fn run(place: &Place, backend: &dyn Backend, run: Run<'_>) -> CommandOutcome {
    run_with(place, backend, run, Extra::default()).0
}

/// The same for a command of a session; gives what it left running.
pub(crate) fn run_with(
    place: &Place,
    backend: &dyn Backend,
    run: Run<'_>,
    extra: Extra,
) -> (CommandOutcome, Kept) {
    let plane = &place.plane;
    let never = |not| {
        (
            never_ran(plane, place.isolation.clone(), not),
            Kept::default(),
        )
    };
    let prepared = match prepare(plane, &place.spec, run) {
        Ok(prepared) => prepared.with_extra(extra),
        Err(not) => return never(*not),
    };
    let intent = prepared.intent(plane, &place.id, &place.hash);
    let control = prepared.run.control.clone();
    // Nothing happens that the journal does not know of.
    if let Err(problem) = plane.append(vec![intent]) {
        return never(prepared.refuse(problem));
    }
    let subject = prepared.run.subject.clone();
    let (mut outcome, told, kept) = prepared.run_keeping(place, backend);
    if let Err(problem) = plane.record_all(&subject, told, &outcome, Vec::new()) {
        // The effect happened and the journal does not hold it: said, never passed over.
        outcome.error.get_or_insert(problem);
    }
    forget(&control);
    (outcome, kept)
}

/// Takes the names of output files away, now that the journal says where the output is.
pub(crate) fn forget(control: &Control) {
    if let Some(shelf) = control.shelf() {
        shelf.remove();
    }
}

/// Tells of a command that was never started.
pub(crate) fn never_ran(
    plane: &Plane,
    isolation: Isolation,
    not: NotStarted<'_>,
) -> CommandOutcome {
    let command_id = not.run.control.name(|| {
        let (milliseconds, random) = plane.ambient().id_parts();
        CommandId::new(milliseconds, random)
    });
    never_ran_as(plane, command_id, isolation, not)
}

/// The same of a command that has its id already.
pub(crate) fn never_ran_as(
    plane: &Plane,
    command_id: CommandId,
    isolation: Isolation,
    not: NotStarted<'_>,
) -> CommandOutcome {
    let mut outcome = CommandOutcome::never_ran(command_id, isolation, not.problem, 0);
    outcome.timeout_ms = not.run.command.timeout_ms;
    if let Err(problem) = plane.record_all(&not.run.subject, Vec::new(), &outcome, Vec::new()) {
        outcome.error.get_or_insert(problem);
    }
    outcome
}

/// One command, with what it is started with.
struct What<'a> {
    command: &'a CommandSpec,
    subject: &'a Subject,
    extra: Extra,
    control: &'a Control,
}

fn start_and_pump(
    place: &Place,
    backend: &dyn Backend,
    what: What<'_>,
    io: CommandIo<'_>,
    facts: &mut Facts<'_>,
) -> Result<Pumped, Problem> {
    let What {
        command,
        subject,
        extra,
        control,
    } = what;
    let (stdio, mut ends, sink, lend) = streams(io).map_err(|error| {
        Problem::new(
            ErrorCode::SpawnFailed,
            format!("cannot make the command's streams: {error}"),
        )
    })?;
    let mut started = backend.start_with(command, stdio, extra)?;
    if let Some(master) = started.master.take() {
        if let Some(lend) = lend {
            lend(LentTerminal {
                command_id: facts.command_id.clone(),
                master: master.try_clone().map_err(unusable_terminal)?,
                foreground: started.foreground.take(),
            });
        }
        attach_terminal(&mut ends, master)?;
    }
    let plane = &place.plane;
    let command_id = facts.command_id.clone();
    let mut announce = || {
        let data = json!({"command_id": command_id, "pid": started.pid});
        // An event that is missed here is made up for by the outcome.
        let _ = plane.record(subject, event_type::EXEC_STARTED, Severity::Debug, data);
    };
    let tell_id = facts.command_id.clone();
    let mut tell = |[stdout, stderr]: [u64; 2]| {
        let data = json!({"command_id": tell_id, "stdout": stdout, "stderr": stderr});
        // One that is missed is made up for by the next, and by the outcome.
        let _ = plane.record(subject, event_type::EXEC_OUTPUT, Severity::Debug, data);
    };
    let pump = Pump {
        ambient: plane.ambient(),
        control,
        guard: place.guard(),
        limits: TimeLimits {
            wall: command.timeout_ms.map(Duration::from_millis),
            idle: command.idle_timeout_ms.map(Duration::from_millis),
        },
        sink,
        collection: &mut facts.collection,
        announce: &mut announce,
        tell: &mut tell,
    };
    Ok(pump.run(started.command.as_mut(), ends))
}

type Lend<'a> = &'a mut (dyn FnMut(LentTerminal) + Send);
type Streams<'a> = (
    Stdio,
    Ends,
    Option<&'a mut dyn OutputSink>,
    Option<Lend<'a>>,
);

fn streams(io: CommandIo<'_>) -> std::io::Result<Streams<'_>> {
    let mut ends = Ends::default();
    let (input, sink) = match io {
        CommandIo::Terminal { input, size, sink } => {
            ends.terminal = true;
            ends.source = Some(input);
            return Ok((Stdio::Terminal(size), ends, Some(sink), None));
        }
        CommandIo::Lent { size, sink, lend } => {
            ends.terminal = true;
            return Ok((Stdio::Terminal(size), ends, Some(sink), Some(lend)));
        }
        CommandIo::Capture { input: None } => (None, None),
        CommandIo::Capture { input: Some(bytes) } => {
            ends.pending = bytes;
            (Some(None), None)
        }
        CommandIo::Stream { input, sink } => (input.map(Some), Some(sink)),
    };
    let stdin = match input {
        None => pump::null_input()?,
        Some(source) => {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            pump::set_nonblocking(&writer)?;
            ends.source = source;
            // Without anything to come the pipe is at its end at once.
            ends.stdin = (!ends.pending.is_empty() || ends.source.is_some()).then_some(writer);
            reader
        }
    };
    let (stdout, stdout_writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, stderr_writer) = pipe_with(PipeFlags::CLOEXEC)?;
    pump::set_nonblocking_reader(&stdout)?;
    pump::set_nonblocking_reader(&stderr)?;
    ends.stdout = Some(stdout);
    ends.stderr = Some(stderr);
    Ok((
        Stdio::Three([stdin, stdout_writer, stderr_writer]),
        ends,
        sink,
        None,
    ))
}

fn attach_terminal(ends: &mut Ends, master: OwnedFd) -> Result<(), Problem> {
    pump::set_nonblocking(&master).map_err(unusable_terminal)?;
    ends.stdin = Some(master.try_clone().map_err(unusable_terminal)?);
    ends.stdout = Some(master);
    Ok(())
}

fn unusable_terminal(error: std::io::Error) -> Problem {
    Problem::new(
        ErrorCode::SpawnFailed,
        format!("cannot use the command's terminal: {error}"),
    )
}
