//! The keeper as a real process on the host and inside of bubblewrap, spoken to over its channel.

#[path = "main/bwrap.rs"]
mod bwrap;
#[path = "main/commands.rs"]
mod commands;
#[path = "main/files.rs"]
mod files;
#[path = "main/harness.rs"]
mod harness;
#[path = "main/terminals.rs"]
mod terminals;
#[path = "main/walls.rs"]
mod walls;
