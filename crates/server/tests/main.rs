//! The surface over real connections: what it shows, what it refuses, and what a stream promises.

#[path = "main/client.rs"]
mod client;
#[path = "main/files.rs"]
mod files;
#[path = "main/gate.rs"]
mod gate;
#[path = "main/modes.rs"]
mod modes;
#[path = "main/operations.rs"]
mod operations;
#[path = "main/questions.rs"]
mod questions;
#[path = "main/start.rs"]
mod start;
#[path = "main/streams.rs"]
mod streams;
#[path = "main/terminals.rs"]
mod terminals;
#[path = "main/tools.rs"]
mod tools;
#[path = "main/views.rs"]
mod views;
