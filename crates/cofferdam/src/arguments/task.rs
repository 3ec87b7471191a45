//! `cofferdam task …`

use std::ffi::OsString;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use cofferdam_core::task::{Carry, CleanupPolicy, IsolationMode, VerifyFrom, WorkspaceStrategy};

use super::policy::WallArguments;
use super::run::{TerminalArguments, TimeArguments};

/// `cofferdam task …`
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Run a command as a task, on a branch of its own
    #[command(
        override_usage = "cofferdam task run [OPTIONS] -- <CMD>...",
        after_help = "\
Examples:
  cofferdam task run --goal 'fix the parser' --verify 'make check' -- ./agent fix parser
  cofferdam task run --goal 'bump deps' --setup 'npm ci' --net full -- npm update
  cofferdam task run --isolation sandbox --goal 'lint here' -- npm run lint

By default the task works in a working tree of its own on branch cofferdam/RUN/WORKER, from the
commit that is checked out now; your checkout and your git directory are read-only to it. When it
ends, the checks decide, its branch is brought into the repository, and nothing is merged until you
say so: `cofferdam task diff N`, then `cofferdam task merge N` or `cofferdam task drop N`.

What git ignores does not stand in a fresh tree: list what is needed in `.worktreeinclude`, or make
it with --setup."
    )]
    Run(Box<TaskRunArguments>),
    /// List tasks
    List {
        /// Show this many of the newest
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show the result of a task
    Show(TaskReference),
    /// Show what a task changed
    #[command(after_help = "Examples:\n  cofferdam task diff 1\n  cofferdam task diff 1 --stat")]
    Diff {
        #[command(flatten)]
        task: TaskReference,
        /// Show figures only
        #[arg(long)]
        stat: bool,
    },
    /// Merge a task's branch into the branch from which it began
    #[command(after_help = "\
The merge is computed without touching your tree, and applied only when it is clean, the branch has
not moved meanwhile and the checkout has no changes of its own. Files that the host's tools execute
or obey (hooks, start-up files of agents and editors) are refused unless you allow them.
`cofferdam task undo N` takes it back.

Examples:
  cofferdam task merge 1
  cofferdam task merge 1 --into release")]
    Merge {
        #[command(flatten)]
        task: TaskReference,
        #[command(flatten)]
        how: MergeHow,
    },
    /// Drop a task: its tree and its branch, kept recoverable
    #[command(
        after_help = "What is removed stays under a ref; `cofferdam task undo N` brings it back."
    )]
    Drop(TaskReference),
    /// Take back the last merge or drop of a task
    Undo {
        #[command(flatten)]
        task: TaskReference,
        #[command(flatten)]
        repository: RepositoryMeant,
    },
}

/// How tasks are merged.
#[derive(Debug, Args)]
pub(crate) struct MergeHow {
    /// Branch that takes them, in place of the one from which each task began
    #[arg(long, value_name = "BRANCH")]
    pub(crate) into: Option<String>,
    /// Let them change names that the host's tools execute or obey
    #[arg(long)]
    pub(crate) allow_protected: bool,
    /// Push the branch that took them, with your own credentials and hooks, and never with force
    #[arg(long)]
    pub(crate) push: bool,
    /// The remote to which it is pushed, by its name [default: where git pushes that branch]
    #[arg(long, value_name = "NAME", requires = "push")]
    pub(crate) remote: Option<String>,
    #[command(flatten)]
    pub(crate) repository: RepositoryMeant,
}

/// Says which repository is meant, where the current directory is not in it.
#[derive(Debug, Args)]
pub(crate) struct RepositoryMeant {
    /// The repository of the tasks, where the current directory is not in it
    #[arg(long, value_name = "DIR")]
    pub(crate) repository: Option<PathBuf>,
}

/// Names a task.
#[derive(Debug, Args)]
pub(crate) struct TaskReference {
    /// Number of the task, its id, or the beginning of it
    #[arg(value_name = "TASK")]
    pub(crate) task: String,
}

/// What `task run` takes.
#[derive(Debug, Args)]
pub(crate) struct TaskRunArguments {
    /// The goal, in words
    #[arg(long, value_name = "TEXT")]
    pub(crate) goal: Option<String>,
    /// Shell command that decides pass or fail; may be given several times
    #[arg(long, value_name = "CHECK")]
    pub(crate) verify: Vec<String>,
    /// Shell command that prepares the tree before the command starts; may be given several times
    #[arg(long, value_name = "STEP")]
    pub(crate) setup: Vec<String>,
    /// How far the task stands apart
    #[arg(long, value_enum, value_name = "MODE", default_value_t = IsolationChoice::Worktree)]
    pub(crate) isolation: IsolationChoice,
    /// Whether its tree lasts beyond it
    #[arg(long, value_enum, value_name = "STRATEGY", default_value_t = StrategyChoice::Ephemeral)]
    pub(crate) strategy: StrategyChoice,
    /// When its tree is removed
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = CleanupChoice::OnSuccess)]
    pub(crate) cleanup: CleanupChoice,
    /// What of your uncommitted work goes in
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = CarryChoice::None)]
    pub(crate) carry: CarryChoice,
    /// Where the checks take files from that they read and the task changed
    #[arg(long, value_enum, value_name = "FROM", default_value_t = VerifyFromChoice::Task)]
    pub(crate) verify_from: VerifyFromChoice,
    /// Seconds that each check may take
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) verify_timeout: Option<f64>,
    /// Name of the worker, the last part of the branch [default: made up]
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,
    /// Run the same task N times side by side, each in a tree of its own; workers are NAME-1 to
    /// NAME-N, and nothing is read from standard input
    #[arg(long, value_name = "N", conflicts_with_all = ["tty", "no_tty"])]
    pub(crate) fork: Option<usize>,
    /// Merge at once when the verifier passes (not in this version)
    #[arg(long, hide = true)]
    pub(crate) merge_back: bool,
    #[command(flatten)]
    pub(crate) walls: WallArguments,
    #[command(flatten)]
    pub(crate) limits: TimeArguments,
    #[command(flatten)]
    pub(crate) terminal: TerminalArguments,
    /// The command and its arguments, as they are
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "CMD",
        help_heading = "Command"
    )]
    pub(crate) command: Vec<OsString>,
}

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident of $target:ident { $($(#[$variant_doc:meta])* $variant:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
        #[value(rename_all = "snake_case")]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant,)* }

        impl From<$name> for $target {
            fn from(choice: $name) -> Self {
                match choice { $($name::$variant => Self::$variant,)* }
            }
        }
    )*};
}

choices! {
    /// How far a task stands apart.
    IsolationChoice of IsolationMode {
        /// In the workspace itself
        None,
        /// Own context and scratch; the workspace is only read
        Session,
        /// A working tree and a branch of its own
        Worktree,
        /// The provider's walls around the workspace itself
        Sandbox,
    }
    /// Whether the place of a task lasts.
    StrategyChoice of WorkspaceStrategy {
        /// It goes when --cleanup says so
        Ephemeral,
        /// It stays, and a task of the same --worker uses it again
        Persistent,
    }
    /// When the place of a task is removed.
    CleanupChoice of CleanupPolicy {
        /// Whatever came out
        Always,
        /// When command and checks were good
        OnSuccess,
        /// Never by itself
        Never,
    }
    /// What uncommitted work goes in.
    CarryChoice of Carry {
        /// Nothing; what is left behind is said
        None,
        /// Changes of tracked files
        Tracked,
        /// Those and new files that are not ignored
        All,
    }
    /// Where the checks take changed inputs from.
    VerifyFromChoice of VerifyFrom {
        /// As the task left them; they are named
        Task,
        /// As they were at the base
        Base,
    }
}
