//! `cofferdam setup`, and what agents call once they are set up.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::view::ServedWalls;

/// What `setup` takes.
#[derive(Debug, Args)]
#[command(
    override_usage = "cofferdam setup [OPTIONS] <AGENT> [-- WALLS...]",
    after_help = "\
Three modes, from most to least that stands behind walls:

  wrap   Writes a small script of the agent's name into ~/.local/bin/cofferdam-shims, which runs the
         whole agent as a task. It does nothing until that directory stands first in your PATH: the
         line for it is printed, and with --yes it is put into your shell's start-up file between two
         marks. The agent's own configuration is not touched.
  mcp    The agent runs as before. Its built-in tools for commands and files are switched off, and
         those of `cofferdam mcp` are offered instead.
  hook   The agent runs as before. What its own tool for commands is asked for goes through a session
         of ours; its tools for files stay as they are.

Each says what it does not cover. For mcp and hook the flags for walls go behind --, as those of
`cofferdam mcp`; without any, the policy decides. --yes tells the agent not to ask about what goes
through the walls. --undo puts back what was there, byte for byte; where a file was changed meanwhile,
only what was put into it is taken out, and that is refused where it was changed itself.

Examples:
  cofferdam setup claude                            the whole agent, as a task
  cofferdam setup claude --mode mcp -- --net restricted --allow @dev
  cofferdam setup gemini --mode hook
  cofferdam setup claude --undo
  COFFERDAM_WRAP=off claude                         one call as before"
)]
pub(crate) struct SetupArguments {
    /// The agent
    #[arg(value_enum, value_name = "AGENT")]
    pub(crate) agent: Agent,
    /// What of it goes behind walls [default: wrap; with --undo all that was set up]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    /// Take away what was written
    #[arg(long)]
    pub(crate) undo: bool,
    /// Put the line for PATH into the shell's start-up file too; with mcp and hook: have the agent
    /// not ask before it uses what stands behind walls
    #[arg(long, conflicts_with = "undo")]
    pub(crate) yes: bool,
    /// Flags of `cofferdam mcp`
    #[arg(last = true, value_name = "WALLS", conflicts_with = "undo")]
    pub(crate) walls: Vec<String>,
}

/// How much of an agent goes behind walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// The whole agent runs as a task
    Wrap,
    /// Its tool for commands goes through a session
    Hook,
    /// Its tools are switched off and ours are offered
    Mcp,
}

impl Mode {
    /// Gives the word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Wrap => "wrap",
            Self::Hook => "hook",
            Self::Mcp => "mcp",
        }
    }
}

/// An agent that can be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    /// Claude Code
    Claude,
    /// Codex CLI
    Codex,
    /// Gemini CLI
    Gemini,
    /// opencode
    Opencode,
    /// Cursor's command-line agent
    Cursor,
}

impl Agent {
    /// Gives the word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Cursor => "cursor",
        }
    }
}

/// What an agent calls that was set up in the mode hook. Nobody else has a use for it.
#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Hold a session for as long as the agent that started this keeps standard input open
    Host(Box<HookHostArguments>),
    /// Read what the agent is about to run, and answer what it is to run instead
    Rewrite(HookRewriteArguments),
    /// Run one command in the session of the agent that this descends from
    Run(HookRunArguments),
}

/// What `hook host` takes.
#[derive(Debug, Args)]
pub(crate) struct HookHostArguments {
    #[command(flatten)]
    pub(crate) walls: ServedWalls,
}

/// What `hook rewrite` takes.
#[derive(Debug, Args)]
pub(crate) struct HookRewriteArguments {
    /// The agent
    #[arg(value_enum, value_name = "AGENT")]
    pub(crate) agent: Agent,
    /// Have it not ask
    #[arg(long)]
    pub(crate) allow: bool,
}

/// What `hook run` takes.
#[derive(Debug, Args)]
pub(crate) struct HookRunArguments {
    /// The agent
    #[arg(value_enum, value_name = "AGENT")]
    pub(crate) agent: Agent,
    /// Beside the commands of the session, not in their row
    #[arg(long)]
    pub(crate) aside: bool,
    /// Where the server is found that holds the session, for an agent whose own sandbox hides its
    /// processes
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) host: Option<PathBuf>,
    /// Text for the shell
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub(crate) command: String,
}
