//! `cofferdam mode …`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::policy::PermissionChoice;

/// What `mode` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam mode                       the mode of this workspace
  cofferdam mode permission readonly   from now on nothing is changed
  cofferdam mode plan plans            only the folder plans can be written, until a plan is approved
  cofferdam mode leave                 as the policy says")]
pub(crate) struct ModeArguments {
    /// Workspace [default: the git top level of the current directory, or that directory]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) workspace: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<ModeCommand>,
}

/// `cofferdam mode …`
#[derive(Debug, Subcommand)]
pub(crate) enum ModeCommand {
    /// Tell the mode and the permission in effect
    Show,
    /// Let work go on with another permission than the policy's
    Permission {
        /// What may be changed before you are asked
        permission: PermissionChoice,
    },
    /// Let a plan be made: only one folder can be written
    Plan {
        /// The folder, below the top of the workspace
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Go back to what the policy says
    Leave,
}
