//! The keeper as a real process on the host, spoken to over its channel.

#[path = "main/commands.rs"]
mod commands;
#[path = "main/harness.rs"]
mod harness;
