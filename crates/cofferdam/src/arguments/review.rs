//! Looking at tasks and deciding about them, and what runs.

use clap::Args;

use super::task::{MergeHow, RepositoryMeant};

/// What `review` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a task: every task about which you have to decide. First what matters, then the diff.
A long review goes through $PAGER, or less, where you look at it on a terminal.

Examples:
  cofferdam review                 what waits for you
  cofferdam review 3               one task
  cofferdam review 3 --stat        without the diff
  cofferdam review 3 --apply-state .claude/settings.json
  cofferdam review --commands      which command over a protocol changed which file of this checkout
  cofferdam review --json | jq '.tasks[].hosts'")]
pub(crate) struct ReviewArguments {
    /// Numbers of tasks, their ids, or the beginnings of them
    #[arg(value_name = "TASK")]
    pub(crate) tasks: Vec<String>,
    /// Leave the diff out
    #[arg(long)]
    pub(crate) stat: bool,
    /// Apply a change that the agent made to its own state and that was held back, by its path below
    /// the home directory; may be given several times, with one task
    #[arg(long, value_name = "PATH", requires = "tasks")]
    pub(crate) apply_state: Vec<String>,
    /// Show which command of a session, of `cofferdam mcp` or over a server changed which file of the
    /// checkout, as far as its snapshots reach back
    #[arg(long, conflicts_with_all = ["tasks", "stat", "apply_state"])]
    pub(crate) commands: bool,
    /// Only the commands of one session, by name or id
    #[arg(long, value_name = "SESSION", requires = "commands")]
    pub(crate) session: Option<String>,
    /// Print at once, without a pager
    #[arg(long)]
    pub(crate) no_pager: bool,
}

/// Names one or several tasks.
#[derive(Debug, Args)]
pub(crate) struct TasksArguments {
    /// Numbers of tasks, their ids, or the beginnings of them
    #[arg(value_name = "TASK", required = true)]
    pub(crate) tasks: Vec<String>,
}

/// What `merge` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
One after the other, in the order in which they are named; the first that is refused ends it, and
what was merged before stays merged. `cofferdam undo N` takes a merge back.

Examples:
  cofferdam merge 1
  cofferdam merge 1 2 --into release")]
pub(crate) struct MergeArguments {
    #[command(flatten)]
    pub(crate) tasks: TasksArguments,
    #[command(flatten)]
    pub(crate) how: MergeHow,
}

/// What `undo` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
A snapshot holds every file of a checkout that git does not ignore, untracked ones included. To go
back to one changes files only: branches and the index stay as they are. What the files are before
that is a snapshot too, so that it can be taken back. Each repository keeps the newest 100, under
refs/cofferdam/snapshots/. What tasks kept of their own trees, after each set-up step and at their
end, goes with them: with `drop`.

Examples:
  cofferdam undo 1                 the last merge or drop of a task
  cofferdam undo --list            snapshots of this repository
  cofferdam undo s3                files as they were at that moment
  cofferdam undo t1.end            files as they were at the end of task 1")]
pub(crate) struct UndoArguments {
    /// Numbers of tasks, their ids, or the beginnings of them; or the name of one snapshot
    #[arg(value_name = "TASK|SNAPSHOT", required_unless_present = "list")]
    pub(crate) tasks: Vec<String>,
    /// List the snapshots of the repository
    #[arg(long, conflicts_with = "tasks")]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) repository: RepositoryMeant,
}

/// What `stop` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
A task gets SIGTERM as if it came from its own terminal, and is ended after five seconds more. What
it did is brought in on its branch. Only a process that its lease proves is signalled.")]
pub(crate) struct StopArguments {
    /// Numbers of tasks, their ids, or the beginnings of them
    #[arg(value_name = "TASK", required_unless_present = "all")]
    pub(crate) tasks: Vec<String>,
    /// Stop every task that runs, and every command of `cofferdam run`
    #[arg(long, conflicts_with = "tasks")]
    pub(crate) all: bool,
    /// Seconds to wait for the end
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) wait: u64,
}
