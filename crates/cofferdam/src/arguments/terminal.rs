//! `cofferdam terminal`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What is done with recordings of terminals.
#[derive(Debug, Subcommand)]
pub(crate) enum TerminalCommand {
    /// Play a recording as it happened
    Replay(ReplayArguments),
    /// Print a recording (asciicast v2), with what the journal knows of it as markers
    Export(ExportArguments),
}

/// What `terminal replay` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam terminal replay build              the newest recording of the terminal `build`
  cofferdam terminal replay term_… --speed 4   four times as fast
  cofferdam terminal replay session.cast --idle-limit 0.5")]
pub(crate) struct ReplayArguments {
    /// File, id or name of the terminal; of several of a name the newest
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: PathBuf,
    /// How many times as fast as it happened
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) speed: f64,
    /// Longest pause, in seconds of the recording
    #[arg(long, value_name = "SECONDS")]
    pub(crate) idle_limit: Option<f64>,
}

/// What `terminal export` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam terminal export build > build.cast
  asciinema play build.cast                    the markers are stops there")]
pub(crate) struct ExportArguments {
    /// File, id or name of the terminal; of several of a name the newest
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: PathBuf,
}
