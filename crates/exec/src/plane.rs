//! The plane: what enclosures, commands and the journal have in common within one process.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cofferdam_core::ambient::Ambient;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{NewEvent, Severity, Subject, event_type};
use cofferdam_core::id::{CommandId, EventId, LeaseId};
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel, Status};
use cofferdam_core::spec::EnclosureSpec;
use cofferdam_journal::Journal;
use serde_json::Value;

use crate::enclosure::Enclosure;
use crate::provider;
use crate::provider::memory::Script;
use crate::run::Told;
use crate::spawner::Spawner;

/// What a plane is opened with.
#[derive(Debug)]
pub struct PlaneOptions {
    /// The data directory: spill files, scratch, quarantine. Has to exist.
    pub data_dir: PathBuf,
    /// Where every fact is written.
    pub journal: Arc<dyn Journal>,
    /// Clock and randomness.
    pub ambient: Arc<dyn Ambient>,
    /// What the memory provider plays.
    pub script: Option<Script>,
}

/// The execution plane of one process. A clone is the same plane.
#[derive(Debug, Clone)]
pub struct Plane(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    data_dir: PathBuf,
    journal: Arc<dyn Journal>,
    ambient: Arc<dyn Ambient>,
    script: Option<Script>,
    lease: LeaseId,
    keeper: OnceLock<OwnedFd>,
    spawner: OnceLock<Spawner>,
}

impl Plane {
    /// Opens a plane.
    ///
    /// # Errors
    ///
    /// When the journal cannot be written.
    pub fn open(options: PlaneOptions) -> Result<Self, Problem> {
        let PlaneOptions {
            data_dir,
            journal,
            ambient,
            script,
        } = options;
        let (milliseconds, random) = ambient.id_parts();
        let lease = LeaseId::new(milliseconds, random);
        Ok(Self(Arc::new(Inner {
            data_dir,
            journal,
            ambient,
            script,
            lease,
            keeper: OnceLock::new(),
            spawner: OnceLock::new(),
        })))
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

    /// Lends the journal.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.0.journal
    }

    /// Lends clock and randomness.
    pub fn ambient(&self) -> &dyn Ambient {
        self.0.ambient.as_ref()
    }

    /// Lends the data directory.
    pub fn data_dir(&self) -> &Path {
        &self.0.data_dir
    }

    /// Names this life of a plane: what its intents belong to.
    pub fn lease(&self) -> &LeaseId {
        &self.0.lease
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
        let appended = self
            .0
            .journal
            .append(&[event])
            .map_err(|error| error.to_problem())?;
        appended.first().map(|one| one.pos).ok_or_else(|| {
            Problem::new(
                ErrorCode::Internal,
                "the journal gave no position for an event",
            )
        })
    }

    /// Writes what goes with an outcome, and the outcome, in one step.
    pub(crate) fn record_all(
        &self,
        subject: &Subject,
        told: Vec<Told>,
        outcome: &CommandOutcome,
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
        self.0
            .journal
            .append(&events)
            .map_err(|error| error.to_problem())?;
        Ok(())
    }

    fn event(&self, subject: &Subject, kind: &str, severity: Severity, data: Value) -> NewEvent {
        let (milliseconds, random) = self.ambient().id_parts();
        NewEvent {
            id: EventId::new(milliseconds, random),
            time: self.ambient().now(),
            kind: kind.to_owned(),
            subject: subject.clone(),
            causation: None,
            severity,
            data,
            redactions: 0,
        }
    }

    pub(crate) fn script(&self) -> Option<&Script> {
        self.0.script.as_ref()
    }

    /// Gives the keeper's program, held once per plane.
    pub(crate) fn keeper(&self) -> Result<OwnedFd, Problem> {
        if self.0.keeper.get().is_none() {
            let made = provider::keeper_program()?;
            // Another thread may have been faster: then ours is dropped.
            let _ = self.0.keeper.set(made);
        }
        let held = self.0.keeper.get().ok_or_else(|| {
            Problem::new(ErrorCode::Internal, "the keeper's program is not there")
        })?;
        held.try_clone().map_err(|error| {
            Problem::new(
                ErrorCode::Io,
                format!("cannot duplicate the keeper's file: {error}"),
            )
        })
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
        self.0.data_dir.join("quarantine").join(command.as_str())
    }
}
