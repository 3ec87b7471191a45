//! Cofferdam's front doors for programs: HTTP and MCP, over one table of operations.
//!
//! A [`Server`] listens on a loopback address, asks for a bearer token, and answers from the journal:
//! everything that it shows is a projection of events, nothing is kept here but a state that can be
//! folded again. With an [`OperationHost`] it also carries out the operations of the
//! [`OperationTable`], `POST /api/v1/<operation>`; an [`McpServer`] offers the same as tools.
//! Workspace and walls are fixed when a host is opened: what a request says only narrows them.
//!
//! Addresses, problem codes and shapes are told by `/api/openapi.json`, which is made from the same
//! table as the routes. The design is told in `ARCHITECTURE.md`, the attackers in
//! `docs/threat-model.md`.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use cofferdam_journal::{DataDir, SqliteJournal, SystemAmbient};
//! use cofferdam_server::{Server, ServerOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let data = DataDir::open("/home/me/.local/share/cofferdam")?;
//! let ambient = Arc::new(SystemAmbient::new());
//! let journal = Arc::new(SqliteJournal::open(&data, ambient.clone())?);
//! let listen = "127.0.0.1:7411".parse()?;
//! let server = Server::bind(ServerOptions::new(listen, data, journal, ambient))?;
//! let stop = server.stop_handle();
//! // stop.stop() from anywhere ends it.
//! server.run_blocking()?;
//! # Ok(())
//! # }
//! ```

mod calls;
mod connection;
mod error;
mod gate;
mod mcp;
mod openapi;
mod operations;
mod problem;
mod projection;
mod routes;
mod server;
mod stream;
mod terminals;
mod token;

pub use error::ServerError;
pub use mcp::{McpServer, McpStop, result_text};
pub use openapi::document as openapi_document;
pub use operations::{
    Annotations, Field, FieldKind, Operation, OperationContext, OperationHost, OperationTable,
    Scope, fields, reference_page,
};
pub use routes::{EventsPage, MessagesPage, View};
pub use server::{Server, ServerOptions, StopHandle};
