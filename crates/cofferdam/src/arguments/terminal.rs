//! `cofferdam terminal` and `cofferdam attach`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::policy::NetworkChoice;

/// Which server is meant.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArguments {
    /// Server to call, as http://HOST:PORT [default: the one of this data directory]
    #[arg(long, value_name = "URL", requires = "token_file")]
    pub(crate) server: Option<String>,
    /// File with the token of that server
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
}

/// What is done with terminals of a running server, and with recordings.
#[derive(Debug, Subcommand)]
pub(crate) enum TerminalCommand {
    /// Open a terminal that stays, with a shell in it
    Open(TerminalOpenArguments),
    /// List the terminals that are open
    List(TerminalListArguments),
    /// Type into a terminal and print what comes of it
    Input(TerminalInputArguments),
    /// Print what a terminal shows
    Snapshot(TerminalSnapshotArguments),
    /// Give a terminal another size
    Resize(TerminalResizeArguments),
    /// Send a signal to what runs in a terminal
    Signal(TerminalSignalArguments),
    /// Begin a terminal anew, with the same rights, directory and size
    Reset(TerminalNameArguments),
    /// Close a terminal and end what runs in it
    Close(TerminalNameArguments),
    /// Play a recording as it happened
    Replay(ReplayArguments),
    /// Print a recording (asciicast v2), with what the journal knows of it as markers
    Export(ExportArguments),
}

/// What `terminal open` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam terminal open build
  cofferdam terminal open look --read-only --net none
  cofferdam terminal open top -- htop

What it may is fixed now, and is never more than the server's own walls. `cofferdam attach NAME` puts
it on your own terminal.")]
pub(crate) struct TerminalOpenArguments {
    /// What to call it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Directory within the workspace in which it begins [default: the top of the workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Take the right to write the workspace away
    #[arg(long)]
    pub(crate) read_only: bool,
    /// A narrower network level than the server's
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) net: Option<NetworkChoice>,
    /// Session in whose place it stands
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["read_only", "net"])]
    pub(crate) session: Option<String>,
    /// Height in characters
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub(crate) rows: u16,
    /// Width in characters
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub(crate) columns: u16,
    /// Keep no recording
    #[arg(long)]
    pub(crate) no_record: bool,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The program in it and its arguments [default: an interactive shell]
    #[arg(trailing_var_arg = true, value_name = "CMD", help_heading = "Command")]
    pub(crate) command: Vec<String>,
}

/// What `terminal list` takes.
#[derive(Debug, Args)]
pub(crate) struct TerminalListArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What `terminal input` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam terminal input build 'make test' --wait 300
  cofferdam terminal input build --key ctrl-c
  cofferdam terminal input build --wait 60          nothing is typed: wait on

The answer comes as soon as it is known that nothing more comes by itself. Exit code 0 when the shell
waits for the next command or a program waits for input, 124 when it still runs.")]
pub(crate) struct TerminalInputArguments {
    /// The terminal
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What is typed, as it is
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: Option<String>,
    /// Key pressed after the text: enter, ctrl-c, up, tab, escape, …; may be given several times
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Vec<String>,
    /// Do not press Enter after the text
    #[arg(long)]
    pub(crate) no_enter: bool,
    /// Seconds to wait at most
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub(crate) wait: f64,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What `terminal snapshot` takes.
#[derive(Debug, Args)]
pub(crate) struct TerminalSnapshotArguments {
    /// The terminal
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// How many of the last lines, screen and history together; 0 is all that is kept
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) lines: i32,
    /// Keep colours
    #[arg(long)]
    pub(crate) colors: bool,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What `terminal resize` takes.
#[derive(Debug, Args)]
pub(crate) struct TerminalResizeArguments {
    /// The terminal
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Height in characters, 1 to 500
    #[arg(value_name = "ROWS")]
    pub(crate) rows: u16,
    /// Width in characters, 1 to 1000
    #[arg(value_name = "COLUMNS")]
    pub(crate) columns: u16,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What `terminal signal` takes.
#[derive(Debug, Args)]
pub(crate) struct TerminalSignalArguments {
    /// The terminal
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The signal, TERM or SIGTERM for instance
    #[arg(value_name = "SIGNAL")]
    pub(crate) signal: String,
    /// Send it to every process of the terminal, not only to what runs in the foreground
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What is said of a terminal and no more.
#[derive(Debug, Args)]
pub(crate) struct TerminalNameArguments {
    /// The terminal
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What `attach` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam terminal open build && cofferdam attach build
  cofferdam attach build --read-only            look on; nothing that you type goes in
  cofferdam session open work && cofferdam attach work

To a session it opens a shell in its place: same walls, same files and processes, where the session
is. What is exported there is not handed on to the session's commands. When that shell ends, the
session goes on.

Ctrl-] leaves, and the terminal goes on. Several may be attached at once; the size is that of whoever
came or changed last.")]
pub(crate) struct AttachArguments {
    /// The terminal or the session
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Look on: nothing is typed, and its size stays
    #[arg(long)]
    pub(crate) read_only: bool,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
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
