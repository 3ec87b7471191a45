//! The plan of the place from which files are served: that of commands, without what is theirs alone.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::{PathFact, PathKind};
use cofferdam_core::policy::Sourced;
use cofferdam_core::ports::PortPlan;
use cofferdam_core::spec::{Access, Digest, EnclosureSpec, Network, ProviderKind};
use cofferdam_exec::{DeniedReads, OpenedPath};

use crate::host::Resolved;

/// A plan with what goes with it.
#[derive(Debug)]
pub(crate) struct FilePlan {
    pub(super) spec: EnclosureSpec,
    pub(super) hash: Digest,
    pub(super) denied: DeniedReads,
    /// What the policy opens besides the workspace.
    pub(super) opened: Vec<OpenedPath>,
}

impl FilePlan {
    /// Makes it of the plan of commands.
    pub(super) fn of(spec: &EnclosureSpec, resolved: &Resolved) -> Self {
        let mut spec = spec.clone();
        // Files need no network, and its ports and ways out belong to commands.
        spec.ports = PortPlan::default();
        if spec.egress.take().is_some() {
            spec.network = Network::None;
        }
        Self {
            hash: spec.hash(),
            denied: DeniedReads::of(&resolved.policy, &resolved.facts),
            opened: opened(&spec, resolved)
                .filter(|(fact, _)| {
                    // Without walls nothing but the root holds a link that stands in a file's place.
                    spec.provider != ProviderKind::Direct || fact.kind == PathKind::Directory
                })
                .map(|(fact, _)| OpenedPath {
                    path: fact.path.clone(),
                    is_folder: fact.kind == PathKind::Directory,
                })
                .collect(),
            spec,
        }
    }
}

/// Gives the files and folders outside of the workspace that the policy opens.
pub(super) fn opened<'a>(
    spec: &'a EnclosureSpec,
    resolved: &'a Resolved,
) -> impl Iterator<Item = (&'a PathFact, Access)> {
    let policy = &resolved.policy;
    resolved.facts.paths.iter().filter_map(move |fact| {
        let named = |list: &[Sourced<BytePath>]| list.iter().any(|one| one.value == fact.written);
        let access = if named(&policy.write) {
            Access::Write
        } else if named(&policy.read) {
            Access::Read
        } else {
            return None;
        };
        let is_kind = matches!(fact.kind, PathKind::File | PathKind::Directory);
        let is_outside = !fact.path.is_within(&spec.workspace)
            && !fact.path.is_within(&spec.workspace_source)
            && !spec.workspace.is_within(&fact.path);
        (is_kind && is_outside).then_some((fact, access))
    })
}
