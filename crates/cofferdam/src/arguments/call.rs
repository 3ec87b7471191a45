//! `cofferdam mcp` and `cofferdam call`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::policy::WallArguments;
use super::view::ServedWalls;

/// What `mcp` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  claude mcp add cofferdam -- cofferdam mcp --workspace ~/src/app
  cofferdam mcp --net restricted --allow @dev

One client speaks the Model Context Protocol on standard input and output; each operation is a tool.
Workspace and walls are fixed here: what a tool is asked for may only narrow them. When the client
closes the stream, everything that it had started is ended.")]
pub(crate) struct McpArguments {
    #[command(flatten)]
    pub(crate) walls: ServedWalls,
}

/// What `call` takes.
#[derive(Debug, Args)]
#[command(
    override_usage = "cofferdam call [OPTIONS] <OPERATION> [--FIELD VALUE]... [--request JSON] [-- ARGV]",
    after_help = "\
Examples:
  cofferdam call --list                          every operation
  cofferdam call run_command --help              what one takes and gives
  cofferdam call run_command --command 'make test' --timeout 600
  cofferdam call run_command --env RUST_LOG=debug -- cargo test
  cofferdam call run_command --request '{\"argv\": [\"make\"]}' --json
  cofferdam call describe_environment

What is given behind the operation's name are fields of its request. Operations about something that
outlives a call, such as a session, go to the server of this data directory (`cofferdam serve`); all
others are carried out here, behind walls that the flags before the name shape, or by the server that
--server names."
)]
pub(crate) struct CallArguments {
    /// List the operations
    #[arg(long)]
    pub(crate) list: bool,
    /// Server to call, as http://HOST:PORT [default: the one of this data directory where the
    /// operation needs one]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// File with the token of that server
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print the OpenAPI document
    #[arg(long, hide = true)]
    pub(crate) openapi: bool,
    /// Print the reference page
    #[arg(long, hide = true)]
    pub(crate) reference: bool,
    #[command(flatten)]
    pub(crate) walls: WallArguments,
    /// The operation, and fields of its request
    #[arg(
        value_name = "OPERATION",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        help_heading = "Operation"
    )]
    pub(crate) words: Vec<OsString>,
}
