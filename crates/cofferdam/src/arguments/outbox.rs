//! `cofferdam push` and `cofferdam outbox …`

use clap::{Args, Subcommand};
use cofferdam_core::id::ProposalId;

use super::task::RepositoryMeant;

/// What `push` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Holds a push of the task's own branch, as it was brought in, and shows what would leave. Nothing
leaves until it is released: `cofferdam outbox release`, or at once with --release. Exactly the
commit that is shown is pushed, with your own credentials and hooks, and never with force.

Examples:
  cofferdam push 1                         hold a push of task 1's branch
  cofferdam push 1 --remote fork --release push it to `fork` now
  cofferdam merge 1 --push                 merge it and push the branch that took it")]
pub(crate) struct PushArguments {
    /// Number of the task, its id, or the beginning of it
    #[arg(value_name = "TASK")]
    pub(crate) task: String,
    /// The remote, by its name [default: where git pushes the base branch]
    #[arg(long, value_name = "NAME")]
    pub(crate) remote: Option<String>,
    /// Release it at once
    #[arg(long)]
    pub(crate) release: bool,
    #[command(flatten)]
    pub(crate) repository: RepositoryMeant,
}

/// What `outbox` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
What a task or an agent wants to have leave this machine is held here until you answer. Unanswered,
nothing leaves.

Examples:
  cofferdam outbox                         what is held
  cofferdam outbox show out_0199…          the commits, where they go, what to know before
  cofferdam outbox release 3               all that is held of task 3
  cofferdam outbox release out_0199… out_019a…
                                           these two only
  cofferdam outbox refuse 3 --reason 'not yet'")]
pub(crate) struct OutboxArguments {
    #[command(subcommand)]
    pub(crate) command: Option<OutboxCommand>,
}

/// `cofferdam outbox …`
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// List what is held
    List {
        /// List also what was released or refused
        #[arg(long)]
        all: bool,
        /// Only those of this task
        #[arg(long, value_name = "TASK")]
        task: Option<String>,
    },
    /// Show one with all that is needed to answer
    Show {
        /// Its id
        #[arg(value_name = "ID")]
        id: ProposalId,
    },
    /// Let it leave: exactly what is shown, once
    Release(NamedHeld),
    /// Let it not leave
    Refuse {
        #[command(flatten)]
        named: NamedHeld,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// Names what is answered.
#[derive(Debug, Args)]
pub(crate) struct NamedHeld {
    /// Ids of what is held, or one task for all of it
    #[arg(value_name = "ID|TASK", required = true)]
    pub(crate) names: Vec<String>,
}
