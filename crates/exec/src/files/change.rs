//! A change of files as the journal tells it: intended before, ended after, settled when the plane
//! died in between.

use cofferdam_core::ambient::Ambient;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::event::{Event, NewEvent, Severity, event_type};
use cofferdam_core::id::ChangeId;
use cofferdam_core::operation::{FilesChanged, PathChange};
use cofferdam_core::outcome::Status;
use serde_json::{Value, json};

use super::{FileDoor, FileIntent};
use crate::plane::new_event;

/// Which operation changes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    WriteFile,
    EditFile,
    CreateFile,
    DeleteFile,
    RenameFile,
    CreateFolder,
    DeleteFolder,
    RestoreFile,
}

impl ChangeKind {
    /// Gives the name of the operation.
    const fn as_str(self) -> &'static str {
        match self {
            Self::WriteFile => "write_file",
            Self::EditFile => "edit_file",
            Self::CreateFile => "create_file",
            Self::DeleteFile => "delete_file",
            Self::RenameFile => "rename_file",
            Self::CreateFolder => "create_folder",
            Self::DeleteFolder => "delete_folder",
            Self::RestoreFile => "restore_file",
        }
    }
}

/// What is known of a change before it is made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct About<'a> {
    /// Its paths.
    pub(super) paths: &'a [BytePath],
    /// The bytes of one file before and after.
    pub(super) bytes: Option<(&'a [u8], &'a [u8])>,
    /// How many bytes it adds at most.
    pub(super) growth: u64,
}

impl FileDoor<'_> {
    /// Asks whoever stands in the door, tells the journal what is to be done, does it, and tells what
    /// came of it. Nothing changes a file but through here.
    ///
    /// `change` gets what has happened so far, so that a change of several paths that fails midway
    /// is told as it is.
    pub(super) fn tell<T>(
        &self,
        kind: ChangeKind,
        path: &BytePath,
        about: About<'_>,
        change: impl FnOnce(&mut Vec<PathChange>) -> Result<T, Problem>,
    ) -> Result<(T, FilesChanged), Problem> {
        let reserved = self.reserve(about.growth)?;
        let change_id = self.intend(kind, path, about).inspect_err(|_| {
            self.release(&reserved);
        })?;
        let mut changes = Vec::new();
        let outcome = change(&mut changes);
        let (status, severity) = match &outcome {
            Ok(_) => (Status::Completed, Severity::Info),
            Err(_) => (Status::Error, Severity::Warning),
        };
        let ended = json!({
            "change_id": change_id,
            "operation": kind.as_str(),
            "path": path,
            "status": status,
            "changes": changes,
            "problem": outcome.as_ref().err(),
        });
        let pos = self.record(event_type::FILE_ENDED, severity, ended)?;
        let quota = self.enter(&reserved, &changes, pos);
        let changed = FilesChanged {
            change_id: change_id.to_string(),
            changes,
            quota,
        };
        outcome.map(|value| (value, changed))
    }

    fn intend(
        &self,
        kind: ChangeKind,
        path: &BytePath,
        about: About<'_>,
    ) -> Result<ChangeId, Problem> {
        if let Some(gate) = self.gate {
            gate.pass(FileIntent {
                operation: kind.as_str(),
                paths: about.paths,
                bytes: about.bytes,
            })?;
        }
        let (milliseconds, random) = self.plane.ambient().id_parts();
        let change_id = ChangeId::new(milliseconds, random);
        let intent = json!({
            "change_id": change_id,
            "lease": self.plane.lease(),
            "operation": kind.as_str(),
            "path": path,
        });
        self.record(event_type::FILE_INTENDED, Severity::Debug, intent)?;
        Ok(change_id)
    }

    fn record(&self, kind: &str, severity: Severity, data: Value) -> Result<u64, Problem> {
        self.plane.record(&self.subject, kind, severity, data)
    }
}

/// Settles an intent of a plane that died: the change is there whole or not at all, and nobody knows
/// which but the file.
pub(crate) fn settle(ambient: &dyn Ambient, intent: &Event) -> NewEvent {
    let of = |name: &str| intent.data.get(name).cloned().unwrap_or(Value::Null);
    let data = json!({
        "change_id": of("change_id"),
        "operation": of("operation"),
        "path": of("path"),
        "status": Status::Interrupted,
        "changes": [],
        "problem": Value::Null,
    });
    new_event(
        ambient,
        &intent.subject(),
        event_type::FILE_ENDED,
        Severity::Warning,
        data,
    )
}
