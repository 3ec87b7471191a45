//! The providers: who puts the walls up, and by which hand the keeper inside is reached.

mod bwrap;
mod container;
mod host;
mod inner;
mod keeper;
pub(crate) mod memory;
mod memory_files;
mod passing;
mod scratch;
mod stage;
mod supervised;

use std::os::fd::OwnedFd;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::{EnclosureSpec, ProviderKind};
use cofferdam_sandbox::GroupPlan;

use crate::backend::Backend;
use crate::limits::Limiter;
use crate::plane::Plane;
pub(crate) use scratch::{Scratch, needs_scratch, remove_tree};

/// The keeper, as built for this target.
static KEEPER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cofferdam-keeper"));

/// The search, in the same way.
static SEARCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cofferdam-search"));

/// For how many commands a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occupancy {
    /// Exactly one, without a terminal and without requests to the keeper: its first process can
    /// supervise the command itself, and nobody waits for it before the command is sent.
    One,
    /// Any number.
    Many,
}

/// Puts the walls of a spec up.
///
/// # Errors
///
/// The provider's typed reason; nothing of the place is left then. A place for one command may tell
/// it only when the command is waited for.
pub(crate) fn enclose(
    plane: &Plane,
    spec: &EnclosureSpec,
    occupancy: Occupancy,
    group: Option<&GroupPlan>,
) -> Result<Box<dyn Backend>, Problem> {
    let limiter = Limiter::set_up(group, spec);
    match spec.provider {
        ProviderKind::Direct | ProviderKind::Landlock => host::enclose(plane, spec, limiter),
        ProviderKind::Bwrap => bwrap::enclose(plane, spec, occupancy, limiter),
        ProviderKind::Memory => match plane.script() {
            Some(script) => Ok(Box::new(memory::MemoryBackend::new(script.clone()))),
            None => Err(Problem::new(
                ErrorCode::ProviderUnavailable,
                "the memory provider needs a script, which only an embedding program gives",
            )),
        },
        ProviderKind::Container => container::enclose(plane, spec, limiter),
        ProviderKind::Microvm => Err(Problem::new(
            ErrorCode::ProviderUnavailable,
            format!("this version has no {} provider", spec.provider),
        )
        .with_hint("use bwrap or landlock")),
    }
}

/// Puts the keeper into memory that nobody can change.
pub(crate) fn keeper_program() -> Result<OwnedFd, Problem> {
    hold("cofferdam-keeper", KEEPER)
}

/// Puts the search into a sealed memory file.
pub(crate) fn search_program() -> Result<OwnedFd, Problem> {
    hold("cofferdam-search", SEARCH)
}

fn hold(name: &str, program: &[u8]) -> Result<OwnedFd, Problem> {
    cofferdam_sandbox::sealed_program(name, program).map_err(|error| {
        Problem::new(
            ErrorCode::ProviderUnavailable,
            format!("cannot hold {name}: {error}"),
        )
        .with_hint("sysctl vm.memfd_noexec must not be 2")
    })
}
