//! `cofferdam approvals …`

use clap::{Args, Subcommand, ValueEnum};
use cofferdam_core::approval::ApprovalAnswer;
use cofferdam_core::id::ApprovalId;

/// What `approvals` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cofferdam approvals                              what waits for an answer
  cofferdam approvals show appr_0199…              the command, the diff, and why it is asked
  cofferdam approvals answer appr_0199… approve    exactly this, once")]
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
    /// Show one with all that is needed to answer
    Show {
        /// Its id
        #[arg(value_name = "ID")]
        id: ApprovalId,
    },
    /// Answer one, once
    Answer {
        /// Its id
        #[arg(value_name = "ID")]
        id: ApprovalId,
        /// What is said
        answer: AnswerChoice,
        /// Why; whoever asked is told
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// An answer as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerChoice {
    /// Exactly what was shown, once
    Approve,
    /// No
    Reject,
}

impl AnswerChoice {
    /// Gives the answer.
    pub(crate) const fn answer(self) -> ApprovalAnswer {
        match self {
            Self::Approve => ApprovalAnswer::Approve,
            Self::Reject => ApprovalAnswer::Reject,
        }
    }
}
