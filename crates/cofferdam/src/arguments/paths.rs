//! `cofferdam paths …`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use cofferdam_core::id::RuleId;

/// What `paths` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam paths                              what is open besides this workspace
  cofferdam paths authorise ~/data             commands and files may read it, for 30 days
  cofferdam paths authorise /srv/out --write   and write it
  cofferdam paths revoke rule_…                from now on it is closed")]
pub(crate) struct PathsArguments {
    /// Workspace [default: the git top level of the current directory, or that directory]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) workspace: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<PathsCommand>,
}

/// `cofferdam paths …`
#[derive(Debug, Subcommand)]
pub(crate) enum PathsCommand {
    /// List what is open
    List,
    /// Open a path outside of the workspace
    Authorise {
        /// The path
        path: PathBuf,
        /// It may be written, too
        #[arg(long)]
        write: bool,
        /// For how many days [default: 30]
        #[arg(long, value_name = "DAYS")]
        days: Option<u32>,
    },
    /// Close a path again
    Revoke {
        /// Its id, as the list gives it
        id: RuleId,
    },
}
