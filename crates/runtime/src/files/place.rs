//! The plan of the place from which files are served: that of commands, without what is theirs alone.

use cofferdam_core::ports::PortPlan;
use cofferdam_core::spec::{Digest, EnclosureSpec, Network};
use cofferdam_exec::DeniedReads;

use crate::host::Resolved;

/// A plan with what goes with it.
#[derive(Debug)]
pub(crate) struct FilePlan {
    pub(super) spec: EnclosureSpec,
    pub(super) hash: Digest,
    pub(super) denied: DeniedReads,
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
            spec,
        }
    }
}
