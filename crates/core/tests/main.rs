//! Rules of the core as others use them: policies, layers, plans.

#[path = "main/commands.rs"]
mod commands;
#[path = "main/fixture.rs"]
mod fixture;
#[path = "main/hosts.rs"]
mod hosts;
#[path = "main/layers.rs"]
mod layers;
#[path = "main/plans.rs"]
mod plans;
#[path = "main/policy.rs"]
mod policy;
#[path = "main/ports.rs"]
mod ports;
#[path = "main/requests.rs"]
mod requests;
