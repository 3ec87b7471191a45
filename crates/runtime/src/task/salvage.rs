//! Bringing in what a task did after its process died.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::outcome::IsolationLevel;
use cofferdam_core::spec::Network;
use cofferdam_exec::workspace::{Workspaces, WorktreeRecord};

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
        let policy = PolicyRequest {
            workspace: Some(record.top.as_path().to_owned()),
            ..PolicyRequest::default()
        };
        let resolved = self.look(&policy, Network::None, None)?;
        Ok((self.workspaces(&resolved.facts)?, policy))
    }

    /// Brings in what a task did that nobody brought in, inside walls made anew.
    pub(crate) fn salvage(
        &self,
        entry: &Entry,
        record: WorktreeRecord,
        policy: PolicyRequest,
    ) -> Result<WorktreeRecord, Problem> {
        let path = record.tree.as_path().to_owned();
        let resolved = self.look(&policy, Network::None, Some(&path))?;
        let requested: IsolationLevel = crate::refusal::requested(&resolved.policy);
        let workspaces = self.workspaces(&resolved.facts)?;
        let prepared = Prepared {
            resolved,
            place: Place::Tree(Box::new(Tree {
                workspaces,
                record,
                lease: None,
                reused: false,
            })),
        };
        let spec = prepared.spec(self, true)?;
        let enclosure = self.plane.enclose(spec, requested, &entry.subject)?;
        let Place::Tree(tree) = prepared.place else {
            return Err(Problem::new(ErrorCode::Internal, "a tree is no tree"));
        };
        let harvested = tree.workspaces.harvest(&tree.record, &Walls(&enclosure))?;
        enclosure.close();
        self.scribe
            .say(place::record_line(&entry.subject, "harvested", &harvested)?)?;
        Ok(harvested)
    }
}
