//! The plane: what enclosures, commands and the journal have in common within one process.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cofferdam_core::ambient::Ambient;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{NewEvent, Severity, Subject, event_type};
use cofferdam_core::id::{CommandId, EventId, LeaseId, TaskId};
use cofferdam_core::limits;
use cofferdam_core::mask::Masker;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel, Status};
use cofferdam_core::ports::PublishedPort;
use cofferdam_core::spec::EnclosureSpec;
use cofferdam_journal::{DataDir, Journal, JournalError, Lease, MemoryJournal, SystemAmbient};
use cofferdam_sandbox::ControlTrees;
use serde_json::{Value, json};

use crate::enclosure::Enclosure;
use crate::files::{DigestMemo, Ledgers};
use crate::host::Surroundings;
use crate::network::{NetworkOptions, NetworkState};
use crate::ports::{Lookouts, PortHook};
use crate::protect;
use crate::provider;
use crate::provider::memory::Script;
use crate::run::{Run, Told};
use crate::settle::{self, Settled};
use crate::spawner::Spawner;
use crate::standing;

/// What a plane is opened with.
#[derive(Debug)]
pub struct PlaneOptions {
    /// The data directory: leases, spill files, scratch, quarantine. Without one nothing is kept on
    /// disk, and nothing is settled after a crash.
    pub data: Option<DataDir>,
    /// Where every fact is written.
    pub journal: Arc<dyn Journal>,
    /// Clock and randomness.
    pub ambient: Arc<dyn Ambient>,
    /// Secret values that are masked in whatever is kept or served.
    pub masker: Masker,
    /// What the memory provider plays.
    pub script: Option<Script>,
}

/// The execution plane of one process. A clone is the same plane.
#[derive(Debug, Clone)]
pub struct Plane(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    data: Option<DataDir>,
    journal: Arc<dyn Journal>,
    ambient: Arc<dyn Ambient>,
    masks: Masks,
    script: Option<Script>,
    lease: Held,
    /// Facts that wait for the next step of writing.
    pending: Mutex<Vec<NewEvent>>,
    settled: Vec<Settled>,
    keeper: Arc<HeldProgram>,
    search: HeldProgram,
    spawner: OnceLock<Spawner>,
    port_hook: OnceLock<PortHook>,
    network: NetworkState,
    lookouts: Lookouts,
    digests: DigestMemo,
    ledgers: Ledgers,
    control_trees: OnceLock<ControlTrees>,
}

/// Maskers, each knowing what the one before it knows and more: who began with one keeps it.
#[derive(Debug)]
struct Masks {
    first: Mask,
    adding: Mutex<()>,
}

#[derive(Debug)]
struct Mask {
    masker: Masker,
    next: OnceLock<Box<Self>>,
}

impl Mask {
    const fn new(masker: Masker) -> Self {
        Self {
            masker,
            next: OnceLock::new(),
        }
    }
}

impl Masks {
    const fn new(masker: Masker) -> Self {
        Self {
            first: Mask::new(masker),
            adding: Mutex::new(()),
        }
    }

    fn newest(&self) -> &Mask {
        let mut mask = &self.first;
        while let Some(next) = mask.next.get() {
            mask = next;
        }
        mask
    }

    fn last(&self) -> &Masker {
        &self.newest().masker
    }

    fn add(&self, values: Vec<Vec<u8>>) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = self.newest();
        let more = Mask::new(newest.masker.and(values));
        // Nobody else adds meanwhile.
        let _ = newest.next.set(Box::new(more));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let pending = std::mem::take(
            self.pending
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        if !pending.is_empty() {
            // Without a journal there is nobody left to be told.
            let _ = self.journal.append(&pending);
        }
    }
}

/// A program that is started behind walls, or why there is none.
type HeldProgram = OnceLock<Result<OwnedFd, Problem>>;

fn another(held: &Result<OwnedFd, Problem>) -> Result<OwnedFd, Problem> {
    let held = held.as_ref().map_err(Clone::clone)?;
    held.try_clone().map_err(|error| {
        let why = format!("cannot duplicate the file of a program: {error}");
        Problem::new(ErrorCode::Io, why)
    })
}

/// The lease of a plane: a locked file where there is a data directory.
#[derive(Debug)]
enum Held {
    File(Lease),
    Nowhere(LeaseId),
}

impl Plane {
    /// Gives this process's places in the hierarchies of control groups; looked up once.
    pub(crate) fn control_trees(&self) -> ControlTrees {
        self.0.control_trees.get_or_init(ControlTrees::find).clone()
    }

    /// Opens a plane, takes its lease, and settles what planes that died have left.
    ///
    /// # Errors
    ///
    /// When the journal or the data directory cannot be written.
    pub fn open(options: PlaneOptions) -> Result<Self, Problem> {
        let PlaneOptions {
            data,
            journal,
            ambient,
            masker,
            script,
        } = options;
        let (lease, settled) = match &data {
            None => {
                let (milliseconds, random) = ambient.id_parts();
                (
                    Held::Nowhere(LeaseId::new(milliseconds, random)),
                    Vec::new(),
                )
            }
            Some(data) => {
                let told = |error: JournalError| error.to_problem();
                let since = journal.head().map_err(told)?.pos;
                let lease = Lease::take(data, ambient.as_ref(), since).map_err(told)?;
                (
                    Held::File(lease),
                    settle::dead_planes(data, journal.as_ref(), ambient.as_ref())?,
                )
            }
        };
        let ledgers = Ledgers::new(data.as_ref().map(DataDir::path));
        Ok(Self(Arc::new(Inner {
            data,
            journal,
            ambient,
            masks: Masks::new(masker),
            script,
            lease,
            pending: Mutex::default(),
            settled,
            keeper: Arc::default(),
            search: OnceLock::new(),
            spawner: OnceLock::new(),
            port_hook: OnceLock::new(),
            network: NetworkState::default(),
            lookouts: Lookouts::default(),
            digests: DigestMemo::default(),
            ledgers,
            control_trees: OnceLock::new(),
        })))
    }

    /// Opens a plane that touches neither disk nor processes: the memory provider plays a script.
    ///
    /// ```
    /// use cofferdam_exec::{Plane, Script};
    ///
    /// let plane = Plane::in_memory(Script::everyday()).expect("nothing can be missing");
    /// assert!(plane.settled().is_empty());
    /// ```
    ///
    /// # Errors
    ///
    /// None that is known; the signature is that of [`Plane::open`].
    pub fn in_memory(script: Script) -> Result<Self, Problem> {
        let ambient = Arc::new(SystemAmbient::new());
        Self::open(PlaneOptions {
            data: None,
            journal: Arc::new(MemoryJournal::new(ambient.clone())),
            ambient,
            masker: Masker::default(),
            script: Some(script),
        })
    }

    /// Lists what planes that died had left, and what became of it.
    pub fn settled(&self) -> &[Settled] {
        &self.0.settled
    }

    /// Puts up the walls of a plan.
    ///
    /// # Errors
    ///
    /// The provider's typed reason; nothing of the place is left then, and no command ran.
    pub fn enclose(
        &self,
        spec: EnclosureSpec,
        requested: IsolationLevel,
        subject: &Subject,
    ) -> Result<Enclosure, Problem> {
        Enclosure::put_up(self, spec, requested, subject)
    }

    /// Says what only a program that embeds the plane can say about the network, before the first
    /// enclosure; what was said before stays.
    pub fn set_network(&self, options: NetworkOptions) {
        self.0.network.set(options);
    }

    /// Gives who looks at what listens inside.
    pub(crate) fn lookouts(&self) -> &Lookouts {
        &self.0.lookouts
    }

    /// Gives the digests of files that were read.
    pub(crate) fn digests(&self) -> &DigestMemo {
        &self.0.digests
    }

    /// Gives what the file door has done to workspaces.
    pub(crate) fn ledgers(&self) -> &Ledgers {
        &self.0.ledgers
    }

    /// Says whose variables and programs give secrets, before the first enclosure; what was said
    /// before stays.
    pub fn set_caller(&self, surroundings: Surroundings) {
        self.0.network.set_caller(surroundings);
    }

    pub(crate) fn network(&self) -> &NetworkState {
        &self.0.network
    }

    /// Lends the journal.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.0.journal
    }

    /// Lends clock and randomness.
    pub fn ambient(&self) -> &dyn Ambient {
        self.0.ambient.as_ref()
    }

    /// Lends the data directory.
    pub fn data(&self) -> Option<&DataDir> {
        self.0.data.as_ref()
    }

    /// Gives the directory for files without a name.
    pub(crate) fn spill(&self) -> &Path {
        self.0
            .data
            .as_ref()
            .map_or(Path::new("/tmp"), DataDir::path)
    }

    /// Lends what masks the secret values that are known by now.
    pub fn masker(&self) -> &Masker {
        self.0.masks.last()
    }

    /// Masks further values in whatever begins from now on.
    pub(crate) fn mask_also(&self, values: Vec<Vec<u8>>) {
        self.0.masks.add(values);
    }

    /// Names the task to which everything belongs that is done in a checkout outside of tasks: one
    /// for each life of a plane, by the same number.
    pub fn work(&self) -> TaskId {
        let lease = self.lease().as_str();
        let number = lease.strip_prefix(LeaseId::PREFIX).unwrap_or(lease);
        TaskId::parse(&format!("{}{number}", TaskId::PREFIX)).unwrap_or_else(|_| {
            let (time, random) = self.ambient().id_parts();
            TaskId::new(time, random)
        })
    }

    /// Names this life of a plane: what its intents belong to.
    pub fn lease(&self) -> &LeaseId {
        match &self.0.lease {
            Held::File(lease) => lease.id(),
            Held::Nowhere(id) => id,
        }
    }

    /// Writes one event; gives its position.
    ///
    /// # Errors
    ///
    /// When the journal cannot be written.
    pub fn record(
        &self,
        subject: &Subject,
        kind: &str,
        severity: Severity,
        data: Value,
    ) -> Result<u64, Problem> {
        let event = self.event(subject, kind, severity, data);
        self.append(vec![event])?.first().copied().ok_or_else(|| {
            Problem::new(
                ErrorCode::Internal,
                "the journal gave no position for an event",
            )
        })
    }

    /// Takes one event to be written in the next step, see [`Plane::append_later`].
    pub(crate) fn record_later(
        &self,
        subject: &Subject,
        kind: &str,
        severity: Severity,
        data: Value,
    ) {
        self.append_later(vec![self.event(subject, kind, severity, data)]);
    }

    /// Writes events in one step; gives the position of each.
    ///
    /// # Errors
    ///
    /// When the journal cannot be written; then none of them is.
    pub fn append(&self, events: Vec<NewEvent>) -> Result<Vec<u64>, Problem> {
        let mut batch = std::mem::take(&mut *self.pending());
        let waiting = batch.len();
        batch.extend(events);
        match self.0.journal.append(&batch) {
            Ok(appended) => Ok(appended.iter().skip(waiting).map(|one| one.pos).collect()),
            Err(error) => {
                batch.truncate(waiting);
                self.pending().splice(0..0, batch);
                Err(error.to_problem())
            }
        }
    }

    /// Takes events to be written in the next step, at the latest at the end of the plane: facts
    /// that nothing depends on, never intents and never outcomes of commands.
    pub fn append_later(&self, events: Vec<NewEvent>) {
        self.pending().extend(events);
    }

    fn pending(&self) -> MutexGuard<'_, Vec<NewEvent>> {
        // The list is whole after every statement that changes it.
        self.0
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one command behind walls that are put up for it and taken down after it.
    ///
    /// As [`Plane::enclose`] and [`Enclosure::run`], with fewer steps of the journal and fewer
    /// processes. Whatever happens is in the outcome, also that the walls could not be put up. What
    /// `last` says of the outcome is written in one step with it.
    pub fn run_once(
        &self,
        spec: EnclosureSpec,
        requested: IsolationLevel,
        run: Run<'_>,
        last: impl FnOnce(&CommandOutcome) -> Vec<NewEvent>,
    ) -> CommandOutcome {
        let mut last = Some(last);
        let outcome = standing::run_once(self, spec, requested, run, &mut |outcome| {
            last.take().map(|last| last(outcome)).unwrap_or_default()
        });
        if let Some(last) = last {
            self.append_later(last(&outcome));
        }
        outcome
    }

    /// Writes what waits, what goes with an outcome, the outcome, and what comes after it, in one
    /// step.
    pub(crate) fn record_all(
        &self,
        subject: &Subject,
        told: Vec<Told>,
        outcome: &CommandOutcome,
        after: Vec<NewEvent>,
    ) -> Result<(), Problem> {
        let severity = match outcome.status {
            Status::Completed | Status::Running => Severity::Info,
            Status::Failed | Status::Timeout | Status::Cancelled => Severity::Warning,
            Status::Denied | Status::Error | Status::Interrupted => Severity::Error,
        };
        let data = serde_json::to_value(outcome).map_err(|error| {
            Problem::new(
                ErrorCode::Internal,
                format!("the outcome cannot be written: {error}"),
            )
        })?;
        let mut events: Vec<NewEvent> = told
            .into_iter()
            .map(|one| self.event(subject, one.kind, one.severity, one.data))
            .collect();
        events.push(self.event(subject, event_type::EXEC_ENDED, severity, data));
        events.extend(after);
        self.append(events).map(drop)
    }

    pub(crate) fn event(
        &self,
        subject: &Subject,
        kind: &str,
        severity: Severity,
        mut data: Value,
    ) -> NewEvent {
        let masker = self.masker();
        let redactions = if masker.is_empty() {
            0
        } else {
            masker.mask_json(&mut data)
        };
        NewEvent {
            redactions,
            ..new_event(self.ambient(), subject, kind, severity, data)
        }
    }

    pub(crate) fn script(&self) -> Option<&Script> {
        self.0.script.as_ref()
    }

    /// Begins, beside whatever the caller does next, with what the first place will need.
    ///
    /// For a caller that will put one up: a command line finds out about the machine meanwhile.
    pub fn get_ready(&self) {
        if self.script().is_some() || self.0.keeper.get().is_some() {
            return;
        }
        // What fails here fails again, and is told, when a place is put up.
        let Ok(spawner) = self.spawner() else { return };
        let keeper = Arc::clone(&self.0.keeper);
        spawner.begin(move || {
            let _ = keeper.get_or_init(provider::keeper_program);
        });
    }

    /// Gives the keeper's program, held once per plane.
    pub(crate) fn keeper(&self) -> Result<OwnedFd, Problem> {
        another(self.0.keeper.get_or_init(provider::keeper_program))
    }

    /// Gives the program that searches files, held from the first search on.
    pub(crate) fn search_program(&self) -> Result<OwnedFd, Problem> {
        another(self.0.search.get_or_init(provider::search_program))
    }

    /// Says who is told of each port of an enclosure that is opened outside, at once and from another
    /// thread. Only the first who asks is told.
    pub fn on_published_port(&self, hook: impl Fn(&PublishedPort) + Send + Sync + 'static) {
        let _ = self.0.port_hook.set(PortHook::new(hook));
    }

    pub(crate) fn tell_port(&self, port: &PublishedPort) {
        if let Some(hook) = self.0.port_hook.get() {
            hook.tell(port);
        }
    }

    /// Gives the thread that starts keepers; planes that start none have none.
    pub(crate) fn spawner(&self) -> Result<&Spawner, Problem> {
        if self.0.spawner.get().is_none() {
            let made = Spawner::new()?;
            let _ = self.0.spawner.set(made);
        }
        self.0
            .spawner
            .get()
            .ok_or_else(|| Problem::new(ErrorCode::Internal, "the spawner thread is not there"))
    }

    /// Gives the directory for what a command put at protected names.
    pub(crate) fn quarantine(&self, command: &CommandId) -> PathBuf {
        quarantine(self.spill(), command)
    }

    /// Lets the oldest go of what was taken away at protected names, where there is more than is kept,
    /// and says so.
    pub(crate) fn expire_quarantine(&self) {
        let (most, room) = (limits::QUARANTINE_COMMANDS, limits::QUARANTINE_BYTES);
        let expired = protect::expire(self.spill(), most, room);
        if expired.removed.is_empty() {
            return;
        }
        let data = json!({
            "removed": expired.removed,
            "kept": expired.kept,
            "kept_bytes": expired.kept_bytes,
        });
        let kind = event_type::QUARANTINE_EXPIRED;
        // A receipt that cannot be written now would be the journal's failure, which the command's
        // own outcome tells.
        let _ = self.record(&Subject::default(), kind, Severity::Info, data);
    }
}

pub(crate) fn quarantine(data: &Path, command: &CommandId) -> PathBuf {
    data.join("quarantine").join(command.as_str())
}

/// Makes an event of now.
pub(crate) fn new_event(
    ambient: &dyn Ambient,
    subject: &Subject,
    kind: &str,
    severity: Severity,
    data: Value,
) -> NewEvent {
    let (milliseconds, random) = ambient.id_parts();
    NewEvent {
        id: EventId::new(milliseconds, random),
        time: ambient.now(),
        kind: kind.to_owned(),
        subject: subject.clone(),
        causation: None,
        severity,
        data,
        redactions: 0,
    }
}
