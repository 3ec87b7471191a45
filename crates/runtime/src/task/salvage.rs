//! Bringing in what a task did after its process died.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::outcome::IsolationLevel;
use cofferdam_core::policy::{PolicyDocument, ProviderChoice};
use cofferdam_core::spec::Network;
use cofferdam_exec::workspace::{TreeState, Workspaces, WorktreeRecord};

use super::ledger::Entry;
use super::place::{self, Place, Prepared, Tree, Walls};
use crate::host::PolicyRequest;
use crate::runtime::Runtime;

impl Runtime {
    /// Opens the trees to which a record belongs, and looks at the host around its repository.
    pub(crate) fn workspaces_of(
        &self,
        record: &WorktreeRecord,
    ) -> Result<(Workspaces, PolicyRequest), Problem> {
        self.workspaces_in(record, PolicyDocument::default())
    }

    fn workspaces_in(
        &self,
        record: &WorktreeRecord,
        owner: PolicyDocument,
    ) -> Result<(Workspaces, PolicyRequest), Problem> {
        let policy = PolicyRequest {
            owner,
            workspace: Some(record.top.as_path().to_owned()),
            ..PolicyRequest::default()
        };
        let resolved = self.look(&policy, Network::None, None)?;
        Ok((self.workspaces(&resolved.facts)?, policy))
    }

    /// Brings in what a task did that nobody brought in, inside walls made anew: those that the task
    /// had. Gives the tree, which is held until that is dropped.
    ///
    /// `None` where somebody else is at it.
    pub(crate) fn salvage(
        &self,
        entry: &Entry,
        record: &WorktreeRecord,
    ) -> Result<Option<Tree>, Problem> {
        let provider = entry.effective.and_then(|level| level.provider);
        let owner = PolicyDocument {
            provider: provider.map(ProviderChoice::from),
            ..PolicyDocument::default()
        };
        let (workspaces, policy) = self.workspaces_in(record, owner)?;
        let Some((record, lease)) = workspaces.adopt(record)? else {
            return Ok(None);
        };
        let path = record.tree.as_path().to_owned();
        let resolved = self.look(&policy, Network::None, Some(&path))?;
        let requested: IsolationLevel = crate::refusal::requested(&resolved.policy);
        let prepared = Prepared {
            resolved,
            place: Place::Tree(Box::new(Tree {
                workspaces,
                record,
                lease: Some(lease),
                reused: false,
            })),
        };
        let spec = prepared.spec(self, true)?;
        let Place::Tree(mut tree) = prepared.place else {
            return Err(Problem::new(ErrorCode::Internal, "a tree is no tree"));
        };
        if tree.record.state == TreeState::Ready {
            let enclosure = self.plane.enclose(spec, requested, &entry.subject)?;
            tree.record = tree.workspaces.harvest(&tree.record, &Walls(&enclosure))?;
            enclosure.close();
            self.scribe.say(place::record_line(
                &entry.subject,
                "harvested",
                &tree.record,
            )?)?;
        }
        Ok(Some(*tree))
    }
}
