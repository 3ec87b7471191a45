//! `cofferdam tool …`

use std::path::PathBuf;

use clap::Subcommand;

/// `cofferdam tool …`
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// List the tools, and what the workspace proposes
    List,
    /// Show what a tool runs and takes
    Show {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Check a tool's file
    #[command(after_help = "\
Unknown keys and wrong values are errors; the exit code is 0 only for a good file. Tools of your own
lie in ~/.config/cofferdam/tools/NAME.toml and take the place of a shipped one of that name. Run one
with `cofferdam call tool_run --name NAME --arguments JSON`; over MCP it is a tool of its own name.")]
    Check {
        /// The file, TOML
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
