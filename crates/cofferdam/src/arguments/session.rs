//! `cofferdam session`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::policy::NetworkChoice;
use super::run::TimeArguments;
use super::terminal::ServerArguments;

/// What is done with sessions of a running server.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Open a session: walls that stay up for many commands
    Open(SessionOpenArguments),
    /// Run one command in a session
    Run(SessionRunArguments),
    /// List the open sessions
    List(SessionListArguments),
    /// Print what background jobs of a session wrote
    Log(SessionLogArguments),
    /// Close a session and end everything in it
    Close(SessionCloseArguments),
}

/// What `session open` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam session open work
  cofferdam session run work -c 'cd src && export CC=clang'
  cofferdam session run work -c 'make & pwd'
  cofferdam session close work")]
pub(crate) struct SessionOpenArguments {
    /// What to call it [default: its id is its only name]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Hand nothing from one command to the next, and run several at once
    #[arg(long)]
    pub(crate) plain: bool,
    /// Take the right to write the workspace away
    #[arg(long)]
    pub(crate) read_only: bool,
    /// A narrower network level than the server's
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) net: Option<NetworkChoice>,
    /// Seconds without a command or a background job after which it ends [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) idle_limit: Option<f64>,
    /// Seconds after which it ends in any case [default: 86400]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) lifetime: Option<f64>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What `session run` takes.
#[derive(Debug, Args)]
#[command(
    override_usage = "cofferdam session run [OPTIONS] <SESSION> <-c SCRIPT|-- CMD...>",
    after_help = "\
Examples:
  cofferdam session run work -- cargo test
  cofferdam session run work -c 'cd src && export CC=clang'     both stay for the next command
  cofferdam session run work --timeout 600 --json -c 'make test' | jq .result.status

Its output is printed when it has ended, and the exit code is as that of `cofferdam run`. Leaving
before that (Ctrl-C) ends the command, and not the session."
)]
pub(crate) struct SessionRunArguments {
    /// The session, by its name or its id
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// Text for the session's shell
    #[arg(
        short = 'c',
        long,
        value_name = "SCRIPT",
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    pub(crate) script: Option<String>,
    /// Directory within the workspace [default: where the session is]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Variable for this command only; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Read standard input to its end, and give it to the command
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Beside the other commands: do not wait for one that runs, and hand nothing on
    #[arg(long)]
    pub(crate) aside: bool,
    #[command(flatten)]
    pub(crate) limits: TimeArguments,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The command and its arguments, as they are
    #[arg(last = true, value_name = "CMD", help_heading = "Command")]
    pub(crate) command: Vec<String>,
}

/// What `session list` takes.
#[derive(Debug, Args)]
pub(crate) struct SessionListArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What `session log` takes.
#[derive(Debug, Args)]
pub(crate) struct SessionLogArguments {
    /// The session, by its name or its id
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// The byte from which on; --json gives the next one as next_offset
    #[arg(long, value_name = "BYTE", default_value_t = 0)]
    pub(crate) offset: u64,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What `session close` takes.
#[derive(Debug, Args)]
pub(crate) struct SessionCloseArguments {
    /// The session, by its name or its id
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}
