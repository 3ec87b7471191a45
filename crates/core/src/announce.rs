//! How a server is found by whoever shares its data directory.
//!
//! A server holds the lock on [`LOCK_FILE`], whose text is its process, for as long as it lives,
//! and keeps [`ANNOUNCEMENT_FILE`] meanwhile. Only both together, of one process, are a server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;

/// The file in the data directory that a server keeps locked; its text is the server's process.
pub const LOCK_FILE: &str = "server.lock";
/// The file in the data directory that tells where the server listens.
pub const ANNOUNCEMENT_FILE: &str = "server.json";

/// Where a server listens, and what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Announcement {
    /// The server's process.
    pub pid: u32,
    /// Address and port.
    pub address: String,
    /// The file that holds its token.
    pub token_file: BytePath,
    /// The workspace on which it carries out operations; nothing where it only shows what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<BytePath>,
}
