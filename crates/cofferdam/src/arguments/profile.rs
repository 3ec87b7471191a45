//! `cofferdam profile …`, and the short forms that name an agent.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `cofferdam profile …`
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the profiles that can be named
    List,
    /// Show what a profile says
    #[command(after_help = "\
Examples:
  cofferdam profile show claude
  cofferdam profile show claude > ~/.config/cofferdam/profiles/mine.toml")]
    Show {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Check a profile's file
    #[command(after_help = "\
Unknown keys and wrong values are errors; the exit code is 0 only for a good file. Profiles of your
own lie in ~/.config/cofferdam/profiles/NAME.toml and take the place of a shipped one of that name.")]
    Check {
        /// The file, TOML
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// What a short form takes: everything goes to the agent.
///
/// `cofferdam claude ARGS…` is `cofferdam task run --profile claude -- claude ARGS…`; it is put so
/// before it is parsed, and stands here for the help.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct AgentArguments {
    /// The agent's own arguments, as they are
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    pub(crate) _arguments: Vec<OsString>,
}
