//! Plans: `policy + workspace + command + HostFacts → LaunchSpec`, a pure function.
//!
//! [`prepare`] gives the enclosure, [`plan_command`] one command in it. What a policy asks for and
//! the provider cannot hold is refused here, before anything starts.

mod choose;
mod command;
mod egress;
mod environment;
mod mounts;
mod prepare;
mod protect;
mod reach;
mod rules;
mod view;

pub use choose::{ProviderDecision, choose_provider};
pub use command::{Clamp, CommandOptions, PlannedCommand, plan_command, plan_timeout};
pub use egress::EGRESS_PORT;
pub use environment::{is_inheritable, looks_secret};
pub use prepare::prepare;
pub use protect::{GIT_NAMES, NameKind, ProtectedEntry, TOP_LEVEL_NAMES};
pub use view::{ViewBind, WorkspaceKind, WorkspaceView};
