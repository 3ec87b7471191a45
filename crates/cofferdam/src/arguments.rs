//! The command line as types; their doc comments are the help.

pub(crate) mod approvals;
pub(crate) mod call;
pub(crate) mod logs;
pub(crate) mod mode;
pub(crate) mod outbox;
pub(crate) mod paths;
pub(crate) mod policy;
pub(crate) mod profile;
pub(crate) mod protected;
pub(crate) mod review;
pub(crate) mod run;
pub(crate) mod session;
pub(crate) mod setup;
pub(crate) mod task;
pub(crate) mod terminal;
pub(crate) mod tool;
pub(crate) mod view;

use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use clap::builder::Styles;
use clap::{Args, Parser, Subcommand};

use approvals::ApprovalsArguments;
use call::{CallArguments, McpArguments};
use logs::{KillArguments, LogsArguments};
use mode::ModeArguments;
use outbox::{OutboxArguments, PushArguments};
use paths::PathsArguments;
use policy::PolicyCommand;
use profile::{AgentArguments, ProfileCommand};
use protected::ProtectedArguments;
use review::{MergeArguments, ReviewArguments, StopArguments, TasksArguments, UndoArguments};
use run::RunArguments;
use session::SessionCommand;
use setup::{HookCommand, SetupArguments};
use task::TaskCommand;
use terminal::{AttachArguments, TerminalCommand};
use tool::ToolCommand;
use view::{EventsArguments, EvidenceArguments, JournalCommand, ServeArguments, ThreadsArguments};

const STYLES: Styles = Styles::styled()
    .header(Style::new().bold())
    .usage(Style::new().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(Style::new())
    .error(AnsiColor::Red.on_default().bold())
    .valid(AnsiColor::Green.on_default())
    .invalid(AnsiColor::Yellow.on_default());

/// Let AI agents work behind walls, in full view
///
/// Cofferdam stands between an agent, or any command, and this machine. A command sees the
/// workspace and what the policy shows it, nothing else; a task works in a working tree and on a
/// branch of its own; everything that happens is written to a journal before it is shown.
#[derive(Debug, Parser)]
#[command(
    name = "cofferdam",
    version,
    styles = STYLES,
    max_term_width = 100,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "\
Start here:
  cofferdam doctor                        what this machine can enforce
  cofferdam demo                          three tasks at work in a throwaway repository
  cofferdam run -- npm test               one command behind walls
  cofferdam task run --goal 'fix the parser' --verify 'make check' -- CMD
                                          one task on a branch of its own
  cofferdam claude                        the agent you use, on a branch of its own
  cofferdam review                        what it did; then `cofferdam merge 1` or `drop 1`

Exit codes: 0 good, 1 only the verifier failed, 2 wrong usage, 124 time limit, 125 Cofferdam itself
failed or refused, 126 denied or not executable, 127 not found, 128+N ended by signal N; every other
code is the command's own."
)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(subcommand)]
    pub(crate) command: TopCommand,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct CommonArguments {
    /// Print one JSON object on standard output instead of text
    #[arg(long, global = true, display_order = 900)]
    pub(crate) json: bool,
    /// Directory of the journal and of the tasks' trees [default: $COFFERDAM_DATA_DIR,
    /// $XDG_DATA_HOME/cofferdam or ~/.local/share/cofferdam]
    #[arg(long, global = true, value_name = "DIR", display_order = 901)]
    pub(crate) data_dir: Option<PathBuf>,
}

/// The commands at the top.
#[derive(Debug, Subcommand)]
pub(crate) enum TopCommand {
    /// Run one command behind walls
    Run(Box<RunArguments>),
    /// Run, inspect and merge tasks
    #[command(subcommand)]
    Task(Box<TaskCommand>),
    /// Look at what tasks did, before you merge or drop it
    Review(ReviewArguments),
    /// Merge tasks, each into the branch from which it began
    Merge(MergeArguments),
    /// Drop tasks, each kept recoverable
    Drop(TasksArguments),
    /// Take back the last merge or drop of tasks, or go back to a snapshot of your files
    Undo(UndoArguments),
    /// Open and use terminals of a running server, play recordings
    #[command(subcommand)]
    Terminal(Box<TerminalCommand>),
    /// Put a terminal or a session of a running server on this one
    Attach(AttachArguments),
    /// Run commands in a place that stays up, of a running server
    #[command(subcommand)]
    Session(Box<SessionCommand>),
    /// List what waits for your answer, and answer it
    Approvals(ApprovalsArguments),
    /// Hold a push of a task's own branch, or push it
    Push(PushArguments),
    /// List what would leave this machine and is held, and release or refuse it
    Outbox(OutboxArguments),
    /// Tell or set what may be changed in a workspace from now on
    Mode(ModeArguments),
    /// Authorise paths outside of the workspace, list and revoke them
    Paths(PathsArguments),
    /// List names that your own tools obey, release one, put back what was taken away there
    Protected(ProtectedArguments),
    /// List tasks, commands, sessions and terminals that run now
    Ps,
    /// Stop tasks that run in another terminal
    Stop(StopArguments),
    /// Show what a command, a task, a session or a terminal wrote
    Logs(LogsArguments),
    /// End commands, tasks, sessions and terminals that run elsewhere
    Kill(KillArguments),
    /// Have an agent that you use work behind walls: all of it, its commands, or by our tools
    Setup(SetupArguments),
    /// What agents call that were set up
    #[command(subcommand, hide = true)]
    Hook(HookCommand),
    /// Run Claude Code as a task, behind walls
    Claude(AgentArguments),
    /// Run Codex as a task, behind walls
    Codex(AgentArguments),
    /// Run Gemini CLI as a task, behind walls
    Gemini(AgentArguments),
    /// Run opencode as a task, behind walls
    Opencode(AgentArguments),
    /// List, show and check profiles of agents
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// List, show and check tools of your own
    #[command(subcommand)]
    Tool(ToolCommand),
    /// Explain and check policies
    #[command(subcommand)]
    Policy(Box<PolicyCommand>),
    /// Verify the journal
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Show what happened, event by event
    Events(Box<EventsArguments>),
    /// Show who works on what: conversations, agents and tasks as a tree
    Topology,
    /// Show what supports a task's result
    #[command(
        after_help = "Examples:\n  cofferdam evidence 1\n  cofferdam evidence 1 --json | jq '.data.facts[].kind'"
    )]
    Evidence(EvidenceArguments),
    /// List threads, or show the messages of one
    Threads(ThreadsArguments),
    /// Show what the verifiers said
    Verifier,
    /// Show the state of the whole in a few lines
    Summary,
    /// Serve operations on a workspace, and what happened, over HTTP
    Serve(Box<ServeArguments>),
    /// Offer operations on a workspace as tools over MCP
    Mcp(Box<McpArguments>),
    /// Call an operation: of a server, or here
    Call(Box<CallArguments>),
    /// Tell what this machine can enforce, and help to enforce more
    Doctor(DoctorArguments),
    /// Watch three tasks work in a throwaway repository
    #[command(after_help = "\
One task edits well and passes its verifier, one tries to leave and is stopped, one fails its
verifier. Nothing outside a temporary directory is touched, and that is removed at the end.")]
    Demo(DemoArguments),
}

/// What `doctor` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam doctor                      the table, with reasons and remedies
  sudo cofferdam doctor --fix           print each change, then make it after a yes
  cofferdam doctor --accept landlock    let `auto` fall back to landlock on this machine

Exit code 0 when the default provider works, 125 when it does not.")]
pub(crate) struct DoctorArguments {
    /// Make the changes that the remedies name; each is printed before it is made
    #[arg(long)]
    pub(crate) fix: bool,
    /// Do not ask before making the changes
    #[arg(long, requires = "fix")]
    pub(crate) yes: bool,
    /// Accept that `auto` falls back to this provider where bwrap does not work
    #[arg(long, value_name = "PROVIDER", conflicts_with = "fix")]
    pub(crate) accept: Option<AcceptedProvider>,
}

/// A provider that `auto` may fall back to once its owner accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AcceptedProvider {
    /// Landlock and seccomp on each command, no namespaces
    Landlock,
}

/// What `demo` takes.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Provider that puts the walls up
    #[arg(long, value_enum, value_name = "PROVIDER")]
    pub(crate) provider: Option<policy::ProviderChoice>,
    /// Keep the throwaway directory and say where it is
    #[arg(long)]
    pub(crate) keep: bool,
}

#[cfg(test)]
mod tests;
