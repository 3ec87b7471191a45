//! `cofferdam protected …`

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What `protected` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam protected                  the protected names of this workspace
  cofferdam protected release .envrc   you committed it: from now on changes stand in the diff
  cofferdam protected quarantine       what commands had put there, and what was taken away
  cofferdam protected restore ID       put one of them back")]
pub(crate) struct ProtectedArguments {
    /// Workspace [default: the git top level of the current directory, or that directory]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) workspace: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<ProtectedCommand>,
}

/// `cofferdam protected …`
#[derive(Debug, Subcommand)]
pub(crate) enum ProtectedCommand {
    /// List the names, and who answers for each
    List,
    /// Let git decide about a name that it did not hold when it was first seen
    Release {
        /// The name
        path: PathBuf,
    },
    /// List what was taken away
    Quarantine,
    /// Put back what was taken away
    Restore {
        /// Its id
        id: String,
    },
}
