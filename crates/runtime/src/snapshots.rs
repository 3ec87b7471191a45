//! Snapshots of the user's own checkout, for what works in it and not in a tree of its own.

use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Subject, event_type};
use cofferdam_core::id::CommandId;
use cofferdam_core::spec::Network;
use cofferdam_core::task::ModifiedFile;
use cofferdam_exec::workspace::{CheckoutSnapshot, RestoredSnapshot, Workspaces};
use serde_json::json;

use crate::host::PolicyRequest;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};
use crate::task::file_changes;

impl Runtime {
    /// Takes a snapshot of the checkout that a policy makes the workspace; `what` says at which
    /// moment. `None` where the workspace is in no repository that has a commit.
    ///
    /// # Errors
    ///
    /// When git fails, or there is no such workspace.
    pub fn take_snapshot(
        &self,
        policy: &PolicyRequest,
        what: &str,
    ) -> Result<Option<CheckoutSnapshot>, Problem> {
        let (workspaces, top) = self.checkout(policy)?;
        self.take_snapshot_at(&workspaces, &top, what, &Subject::default())
    }

    pub(crate) fn take_snapshot_at(
        &self,
        workspaces: &Workspaces,
        top: &Path,
        what: &str,
        subject: &Subject,
    ) -> Result<Option<CheckoutSnapshot>, Problem> {
        let snapshot = match workspaces.take_snapshot(top, what).map_err(Problem::from) {
            Ok(snapshot) => snapshot,
            Err(problem) => {
                let is_none = matches!(
                    problem.code,
                    ErrorCode::NotARepository | ErrorCode::RepoUnborn | ErrorCode::RepoBare
                );
                return if is_none { Ok(None) } else { Err(problem) };
            }
        };
        let data = json!({"snapshot": snapshot, "top": top.display().to_string()});
        self.scribe
            .say(Line::new(event_type::FILE_SNAPSHOT, subject, data))?;
        Ok(Some(snapshot))
    }

    /// Tells what a command changed in the checkout, between two snapshots; gives how many files.
    ///
    /// # Errors
    ///
    /// When git fails, or the journal cannot be written.
    pub fn credit_snapshot(
        &self,
        policy: &PolicyRequest,
        (command, words): (&CommandId, &str),
        (before, after): (&CheckoutSnapshot, &CheckoutSnapshot),
    ) -> Result<usize, Problem> {
        if before.tree == after.tree {
            return Ok(0);
        }
        let (workspaces, top) = self.checkout(policy)?;
        let files = workspaces.snapshot_changes(&top, before, after)?;
        let data = kept_changes(&files, (command, words), &top.into(), (before, after));
        let line = Line::new(event_type::FILE_CHANGED, &Subject::default(), data);
        self.scribe.say(line)?;
        Ok(files.len())
    }

    /// Lists the snapshots of the repository around a directory, oldest first.
    ///
    /// # Errors
    ///
    /// When there is no repository, or git fails.
    pub fn snapshots(&self, directory: &Path) -> Result<Vec<CheckoutSnapshot>, Problem> {
        let (workspaces, top) = self.checkout(&at(directory))?;
        Ok(workspaces.snapshots(&top)?)
    }

    /// Makes the files of the checkout around a directory those of a snapshot; what they are now is
    /// kept as another one first.
    ///
    /// # Errors
    ///
    /// When there is no such snapshot, or a file that git ignores is in the way.
    pub fn restore_snapshot(
        &self,
        directory: &Path,
        name: &str,
    ) -> Result<RestoredSnapshot, Problem> {
        let (workspaces, top) = self.checkout(&at(directory))?;
        let restored = workspaces.restore_snapshot(&top, name)?;
        let line = Line::new(
            event_type::FILE_RESTORED,
            &Subject::default(),
            to_value(&restored)?,
        );
        self.scribe.say(line)?;
        Ok(restored)
    }

    fn checkout(
        &self,
        policy: &PolicyRequest,
    ) -> Result<(Workspaces, std::path::PathBuf), Problem> {
        let resolved = self.look(policy, Network::None, None)?;
        let top = resolved.facts.workspace.root.as_path().to_owned();
        Ok((self.workspaces(&resolved.facts)?, top))
    }
}

/// What an event says about the files that a command changed between two snapshots.
pub(crate) fn kept_changes(
    files: &[ModifiedFile],
    (command, words): (&CommandId, &str),
    top: &BytePath,
    (before, after): (&CheckoutSnapshot, &CheckoutSnapshot),
) -> serde_json::Value {
    let mut data = file_changes(files);
    data["command_id"] = command.as_str().into();
    data["command"] = words.into();
    data["top"] = top.to_text().into();
    data["before"] = before.name.as_str().into();
    data["after"] = after.name.as_str().into();
    data["after_oid"] = after.oid.as_str().into();
    data
}

fn at(directory: &Path) -> PolicyRequest {
    PolicyRequest {
        workspace: Some(directory.to_owned()),
        ..PolicyRequest::default()
    }
}
