//! The machine itself as the host that is looked at.

use cofferdam_core::error::{ErrorCode, Problem};

use crate::host::{HostDoor, LookRequest, Resolved};
use crate::options::Surroundings;

/// Looks with the plane's own eyes.
#[derive(Debug)]
pub(crate) struct SystemHost {
    pub(crate) surroundings: Surroundings,
}

impl HostDoor for SystemHost {
    fn look(&self, request: LookRequest<'_>) -> Result<Resolved, Problem> {
        let _ = (request, &self.surroundings);
        Err(Problem::new(
            ErrorCode::ProviderUnavailable,
            "the host cannot be looked at yet",
        ))
    }
}
