//! What shows the journal: `events`, `evidence`, `threads`, `journal`, `serve`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::policy::WallArguments;

/// What `events` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam events                               the newest 50
  cofferdam events --follow                      and what comes, until Ctrl-C
  cofferdam events --task 1 --type exec          one area of one task
  cofferdam events --type policy.denied --from 2026-01-01T00:00:00Z
  cofferdam events --follow --json | jq -c .     one object a line

A type is `area.verb`; the area alone means all of it. Areas: conversation, agent, task, message,
exec, file, terminal, isolation, policy, approval, net, mcp, verifier, evidence, usage, log.")]
pub(crate) struct EventsArguments {
    /// Go on with what comes, until interrupted
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Show this many of the newest; with --after, of the oldest
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Begin after this position of the log
    #[arg(long, value_name = "POS")]
    pub(crate) after: Option<u64>,
    /// Of this type or area
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Of this task: number, id or beginning of it
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// Of this conversation
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Of this agent
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Of this thread
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
    /// Not before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
}

/// What `evidence` takes.
#[derive(Debug, Args)]
pub(crate) struct EvidenceArguments {
    /// Number of the task, its id, or the beginning of it
    #[arg(value_name = "TASK")]
    pub(crate) task: String,
}

/// What `threads` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam threads
  cofferdam threads thread_0193d2a6b7c87e0f9d1a2b3c4d5e6f70")]
pub(crate) struct ThreadsArguments {
    /// The thread whose messages are shown
    #[arg(value_name = "THREAD")]
    pub(crate) thread: Option<String>,
}

/// `cofferdam journal …`
#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Verify the hash chain and the content store
    #[command(after_help = "\
A chain without a key proves nothing against whoever owns the file. Keep the line that
`cofferdam journal head` prints somewhere else from time to time; compare it with --expect.

Examples:
  cofferdam journal verify
  cofferdam journal verify --expect 1042:9f86d081…")]
    Verify {
        /// A head that was noted earlier, POS:HASH
        #[arg(long, value_name = "HEAD")]
        expect: Option<String>,
    },
    /// Print position and hash of the newest event
    #[command(
        after_help = "Example:\n  cofferdam journal head >> /media/elsewhere/cofferdam-heads"
    )]
    Head,
}

/// What `serve` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam serve                                operations on this workspace, and all that happened
  cofferdam serve --workspace ~/src/app --net restricted --allow @dev
  cofferdam call run_command --command 'make test'
  curl -H \"Authorization: Bearer $(cat ~/.local/share/cofferdam/server.token)\" \\
      -H 'Content-Type: application/json' -d '{\"command\": \"make test\"}' \\
      http://127.0.0.1:7411/api/v1/run_command

Workspace and walls are fixed here, for as long as it serves: a request may only narrow them.

Without --token-file the token of the data directory is taken, and made where there is none. Other
addresses than loopback are only listened on with a token file of your own.")]
pub(crate) struct ServeArguments {
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7411")]
    pub(crate) listen: String,
    /// File whose first line is the token that every request must bring
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with a second token, for whoever may look and change nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) read_token_file: Option<PathBuf>,
    /// File with a token for an agent: it may do everything but answer questions in your name
    #[arg(long, value_name = "FILE")]
    pub(crate) work_token_file: Option<PathBuf>,
    /// Web page that may ask from a browser, by its origin such as https://example.org; it needs a
    /// token as everybody; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    #[command(flatten)]
    pub(crate) walls: ServedWalls,
}

/// The walls of what a server does.
#[derive(Debug, Args)]
pub(crate) struct ServedWalls {
    /// Refuse to begin where the files of the checkout cannot be kept after each command that changed
    /// something; without it they are kept where the checkout can be watched
    #[arg(long, conflicts_with = "no_snapshots")]
    pub(crate) snapshots: bool,
    /// Do not keep the files of the checkout after commands
    #[arg(long)]
    pub(crate) no_snapshots: bool,
    #[command(flatten)]
    pub(crate) walls: WallArguments,
}
