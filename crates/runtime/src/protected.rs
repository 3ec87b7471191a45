//! Protected names of a workspace: who answers for each, what was taken away there, and what the
//! owner releases of it.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::event::{Subject, event_type};
use cofferdam_core::facts::WorkspaceFacts;
use cofferdam_core::operation::{
    ProtectedPage, ProtectedReleased, QuarantinePage, Quarantined, ReleaseProtected,
    RestoreQuarantined,
};
use cofferdam_core::spec::Network;
use cofferdam_exec::host::{protected_lines, release_name};
use cofferdam_exec::{quarantined, restore_quarantined};
use serde_json::json;

use crate::host::PolicyRequest;
use crate::runtime::Runtime;
use crate::scribe::Line;

impl Runtime {
    /// Lists the protected names of a workspace.
    ///
    /// # Errors
    ///
    /// Those of finding the workspace and laying the policy.
    pub fn protected(&self, policy: &PolicyRequest) -> Result<ProtectedPage, Problem> {
        let resolved = self.look(policy, Network::None, None)?;
        Ok(ProtectedPage {
            names: protected_lines(self.data_dir(), &resolved.facts.workspace),
        })
    }

    /// Lets git decide about a name from now on, in the owner's name.
    ///
    /// # Errors
    ///
    /// `invalid_request` for what git does not hold, or what is not withheld; `io`.
    pub fn release_protected(
        &self,
        policy: &PolicyRequest,
        request: &ReleaseProtected,
    ) -> Result<ProtectedReleased, Problem> {
        let resolved = self.look(policy, Network::None, None)?;
        let workspace = &resolved.facts.workspace;
        let path = workspace.root.join(request.path.as_bytes());
        release_name(self.data_dir(), workspace.git.as_ref(), path.as_path())?;
        self.tell_released(json!({"path": path}))?;
        Ok(ProtectedReleased { path })
    }

    /// Lists what was taken away at protected names of a workspace.
    ///
    /// # Errors
    ///
    /// Those of finding the workspace and laying the policy.
    pub fn quarantine(&self, policy: &PolicyRequest) -> Result<QuarantinePage, Problem> {
        let resolved = self.look(policy, Network::None, None)?;
        let places = places(&resolved.facts.workspace);
        Ok(QuarantinePage {
            quarantined: quarantined(self.data_dir(), &places),
        })
    }

    /// Puts something back that was taken away, in the owner's name.
    ///
    /// # Errors
    ///
    /// `invalid_request` for an id that nothing of this workspace has; `file_exists`; `io`.
    pub fn restore_quarantined(
        &self,
        policy: &PolicyRequest,
        request: &RestoreQuarantined,
    ) -> Result<Quarantined, Problem> {
        let resolved = self.look(policy, Network::None, None)?;
        let places = places(&resolved.facts.workspace);
        let id = &request.quarantine_id;
        let found = restore_quarantined(self.data_dir(), &places, id)?;
        self.tell_released(json!({"path": found.path, "quarantine_id": id}))?;
        Ok(found)
    }

    fn tell_released(&self, data: serde_json::Value) -> Result<(), Problem> {
        let subject = Subject::default();
        self.scribe
            .say(Line::new(event_type::FILE_RELEASED, &subject, data))
            .map(drop)
    }
}

/// Where protected names of a workspace lie: in it, and in the git directories that it obeys.
fn places(workspace: &WorkspaceFacts) -> Vec<BytePath> {
    let mut places = vec![workspace.root.clone()];
    if let Some(git) = &workspace.git {
        places.extend([git.git_dir.clone(), git.common_dir.clone()]);
        places.push(git.top_level.join(".git"));
    }
    places
}
