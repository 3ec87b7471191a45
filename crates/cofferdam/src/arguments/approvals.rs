//! `cofferdam approvals …`

use clap::{Args, Subcommand, ValueEnum};
use cofferdam_core::approval::Remember;
use cofferdam_core::id::{ApprovalId, RuleId};

/// What `approvals` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam approvals                      what waits for an answer
  cofferdam approvals show appr_0199…      the command, the diff, and why it is asked
  cofferdam approvals approve appr_0199…   exactly this, once
  cofferdam approvals approve appr_0199… --for repository
                                           and the same again in this repository, for 30 days
  cofferdam approvals watch                be asked here, also what waits only seconds
  cofferdam approvals remembered           what was answered for longer")]
pub(crate) struct ApprovalsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<ApprovalsCommand>,
}

/// `cofferdam approvals …`
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List what waits for an answer
    List {
        /// List also what has ended
        #[arg(long)]
        all: bool,
    },
    /// Show one with all that is needed to answer, and what would be remembered
    Show {
        /// Its id
        #[arg(value_name = "ID")]
        id: ApprovalId,
    },
    /// Say yes to one: exactly what is shown, once
    Approve(AnswerArguments),
    /// Say no to one
    Deny(AnswerArguments),
    /// Be asked on this terminal until interrupted
    ///
    /// With --ask, a host that nothing allows is held for some seconds, but only while somebody
    /// watches: at the terminal of the command, by this, by an event stream with the owner's token,
    /// or having listed approvals with it in the last 30 seconds. Without a terminal each question is
    /// a line, to be answered from elsewhere.
    Watch,
    /// List the answers that are remembered
    Remembered,
    /// Take a remembered answer back
    Forget {
        /// Its id
        #[arg(value_name = "ID")]
        id: RuleId,
    },
}

/// An answer.
#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    /// The id of what is answered
    #[arg(value_name = "ID")]
    pub(crate) id: ApprovalId,
    /// Why; whoever asked is told
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// For how long it holds, for exactly the same again
    #[arg(long = "for", value_name = "HOW_LONG", default_value = "once")]
    pub(crate) remember: RememberChoice,
    /// Days for which it holds in the repository [default: 30]
    #[arg(long, value_name = "DAYS")]
    pub(crate) days: Option<u32>,
}

/// For how long an answer holds, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RememberChoice {
    /// This time
    Once,
    /// As long as the task, or the process that asks
    Task,
    /// In this repository, until it expires
    Repository,
}

impl RememberChoice {
    /// Gives the word.
    pub(crate) const fn remember(self) -> Remember {
        match self {
            Self::Once => Remember::Once,
            Self::Task => Remember::Task,
            Self::Repository => Remember::Repository,
        }
    }
}
