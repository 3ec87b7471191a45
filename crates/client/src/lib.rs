//! A typed client of a Cofferdam server.
//!
//! Small and blocking: one HTTP request for each call, connections kept between them. A failure of
//! the server and one of the way to it are told alike, as a [`Problem`].
//!
//! ```no_run
//! use cofferdam_client::Client;
//! use cofferdam_core::operation::CommandRequest;
//!
//! # fn main() -> Result<(), cofferdam_core::error::Problem> {
//! let data_dir = std::path::Path::new("/home/me/.local/share/cofferdam");
//! let client = Client::of_data_dir(data_dir)?.expect("a server runs");
//! let outcome = client.run_command(&CommandRequest::shell("make test"))?;
//! assert!(outcome.success);
//! # Ok(())
//! # }
//! ```

mod client;
mod find;
mod post;
mod terminal;

pub use client::Client;
pub use find::find_server;
pub use post::post_json;
pub use terminal::{TerminalEvent, TerminalStream};
