//! What reaches commands of any process: `logs` and `kill`.

use clap::{Args, ValueEnum};

/// What `logs` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Standard output of the command goes to standard output, its standard error to standard error; known
secrets are masked. Of a task it is the output of each of its commands, one after the other; of a
session what its background jobs wrote; of a terminal what it shows, and with -f what it writes.

Examples:
  cofferdam logs 3                 what the commands of task 3 wrote
  cofferdam logs -f 3              and what they write, until the task's commands have ended
  cofferdam logs -f cmd_0193d2a6b7c87e0f9d1a2b3c4d5e6f70
  cofferdam logs 3 --stream stderr")]
pub(crate) struct LogsArguments {
    /// Id of a command or the beginning of one, number or id of a task, or name of a session or a
    /// terminal of the server of this data directory
    #[arg(value_name = "COMMAND|TASK|NAME")]
    pub(crate) name: String,
    /// Go on with what comes, until the end or until interrupted
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only one of the streams
    #[arg(long, value_enum, value_name = "STREAM")]
    pub(crate) stream: Option<StreamChoice>,
}

/// One of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamChoice {
    /// Standard output, or everything of a terminal
    Stdout,
    /// Standard error
    Stderr,
}

/// What `kill` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
A command and everything that it started get SIGTERM, and are ended by force after two seconds. The
process that runs it does that itself; one that does not listen, such as `cofferdam run` in another
terminal, is asked to end. A task is stopped as by `cofferdam stop`; a session or a
terminal is closed, with all that runs in it.

Examples:
  cofferdam kill cmd_0193d2a6b7c87e0f9d1a2b3c4d5e6f70
  cofferdam kill --force 3")]
pub(crate) struct KillArguments {
    /// Ids of commands or beginnings of them, numbers or ids of tasks, or names of sessions and
    /// terminals of the server of this data directory
    #[arg(value_name = "COMMAND|TASK|NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// End commands at once, without a signal first
    #[arg(long)]
    pub(crate) force: bool,
}
