//! `cofferdam push` and `cofferdam outbox …`

use std::path::PathBuf;

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
  cofferdam outbox refuse 3 --reason 'not yet'
  cofferdam outbox pull-request 3 --title 'Mend the parser' --body-file text.md
  cofferdam outbox publish 3 -- npm publish --access public")]
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
    /// Hold a pull request of a task's own branch, and the push that it needs
    PullRequest(PullRequestArguments),
    /// Hold a command that publishes what a task's own branch holds
    Publish(PublishArguments),
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

/// What `outbox pull-request` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
It is opened by the program of the forge where the remote leads: `gh` for github.com, `glab` for
gitlab.com and hosts named gitlab.*. For others say which one it is, or name a program of your own,
which reads one JSON object at its standard input:

  git config cofferdam.pullRequest glab
  git config --global cofferdam.pullRequest ~/bin/open-pull-request")]
pub(crate) struct PullRequestArguments {
    /// Number of the task, its id, or the beginning of it
    #[arg(value_name = "TASK")]
    pub(crate) task: String,
    /// Its title
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: String,
    /// Its text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) body: String,
    /// A file with its text; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "body")]
    pub(crate) body_file: Option<PathBuf>,
    /// The branch into which it is offered [default: that from which the task began]
    #[arg(long, value_name = "BRANCH")]
    pub(crate) base: Option<String>,
    /// The remote, by its name [default: where git pushes the base branch]
    #[arg(long, value_name = "NAME")]
    pub(crate) remote: Option<String>,
    /// Release it at once, and its push before
    #[arg(long)]
    pub(crate) release: bool,
    #[command(flatten)]
    pub(crate) repository: RepositoryMeant,
}

/// What `outbox publish` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
When it is released, exactly these words run as you, outside of the walls and with your credentials,
in a clean export of the commit that is shown. What they start from there, such as scripts of a
package or of its build, is the task's work: look at it before.")]
pub(crate) struct PublishArguments {
    /// Number of the task, its id, or the beginning of it
    #[arg(value_name = "TASK")]
    pub(crate) task: String,
    /// The folder where it runs, from the top of the repository
    #[arg(long, value_name = "FOLDER")]
    pub(crate) directory: Option<PathBuf>,
    /// Release it at once
    #[arg(long)]
    pub(crate) release: bool,
    #[command(flatten)]
    pub(crate) repository: RepositoryMeant,
    /// The command, word for word
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}

/// Names what is answered.
#[derive(Debug, Args)]
pub(crate) struct NamedHeld {
    /// Ids of what is held, or one task for all of it
    #[arg(value_name = "ID|TASK", required = true)]
    pub(crate) names: Vec<String>,
}
