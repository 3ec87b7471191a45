//! `cofferdam run`.

use std::ffi::OsString;

use clap::Args;

use super::policy::WallArguments;

/// What `run` takes.
#[derive(Debug, Args)]
#[command(
    override_usage = "cofferdam run [OPTIONS] -- <CMD>...",
    after_help = "\
Examples:
  cofferdam run -- cargo test
  cofferdam run --net full -- npm install
  cofferdam run --ro ~/datasets --timeout 600 -- python3 train.py
  generate | cofferdam run --json -- ./convert > outcome.json

The command may write the workspace and private temporary places, reads system directories and
toolchains, and has no network but its own loopback. `cofferdam policy explain -- CMD` shows the
whole plan and which layer asks for each part of it.

Its streams are yours: bytes come out as they are written, and standard input is passed on where it
is a pipe or a file. On a terminal it gets a terminal of its own; Ctrl-C, Ctrl-Z and `fg` work as
usual; a second SIGINT, SIGTERM or SIGHUP to cofferdam ends it. (Only a SIGKILL of cofferdam itself
leaves the terminal raw: type `reset`.)"
)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) walls: WallArguments,
    #[command(flatten)]
    pub(crate) limits: TimeArguments,
    #[command(flatten)]
    pub(crate) terminal: TerminalArguments,
    /// Keep the files of the checkout as they are before and after the command, untracked ones
    /// included; an agent under a profile has this always. `cofferdam undo --list` shows them
    #[arg(long)]
    pub(crate) snapshot: bool,
    /// The command and its arguments, as they are
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "CMD",
        help_heading = "Command"
    )]
    pub(crate) command: Vec<OsString>,
}

/// Time limits.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Time")]
pub(crate) struct TimeArguments {
    /// Seconds after which the command and all that it started are ended
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) timeout: Option<f64>,
    /// Seconds without output after which they are ended
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) idle_timeout: Option<f64>,
}

/// Whether the command has a terminal.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Terminal")]
pub(crate) struct TerminalArguments {
    /// Give the command a terminal of its own [default: when standard input and output are one]
    #[arg(long, overrides_with = "no_tty", conflicts_with = "json")]
    pub(crate) tty: bool,
    /// Give it pipes, also on a terminal
    #[arg(long, overrides_with = "tty")]
    pub(crate) no_tty: bool,
}
