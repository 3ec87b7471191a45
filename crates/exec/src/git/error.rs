//! What can go wrong with git.

use std::path::PathBuf;

use crate::tool::{Answer, ToolError};

/// Says what git, or the search for it, came to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// There is no git that could be used.
    #[error("git cannot be used: {why}")]
    Unavailable {
        /// Why.
        why: String,
    },
    /// git did not run to its end.
    #[error("git {} {source}", args.join(" "))]
    Tool {
        /// Its arguments.
        args: Vec<String>,
        /// What happened.
        source: ToolError,
    },
    /// git refused.
    #[error("git {} failed{}: {}", short(args), code.map_or_else(|| " by a signal".to_owned(), |code| format!(" ({code})")), stderr.trim())]
    Failed {
        /// Its arguments.
        args: Vec<String>,
        /// Its exit code; `None` after a signal.
        code: Option<i32>,
        /// What it printed.
        stderr: String,
    },
    /// The directory is in no repository.
    #[error("{} is not in a git repository", path.display())]
    NotARepository {
        /// The directory.
        path: PathBuf,
    },
    /// git does not trust the repository, as somebody else owns it.
    #[error("git does not trust {}: somebody else owns it", path.display())]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
    },
    /// The repository has no working tree.
    #[error("the repository at {} is bare", path.display())]
    Bare {
        /// The directory.
        path: PathBuf,
    },
    /// The repository has no commit.
    #[error("the repository at {} has no commit yet", path.display())]
    Unborn {
        /// Top of its working tree.
        path: PathBuf,
    },
    /// A reference was not where it was last seen.
    #[error("a reference was moved by somebody else: {stderr}")]
    RefMoved {
        /// What git said.
        stderr: String,
    },
    /// The lock of a repository was not given up in time.
    #[error("{} is held by another process since more than {seconds} s", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The lock file could not be used.
    #[error("{} cannot be locked: {source}", path.display())]
    LockFile {
        /// The lock.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// git printed something that it never should.
    #[error("git {command} gave an answer that cannot be read")]
    Unreadable {
        /// Which command.
        command: &'static str,
    },
}

fn short(args: &[String]) -> String {
    args.iter()
        .take(3)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}

impl GitError {
    pub(super) fn failed(args: Vec<String>, answer: &Answer) -> Self {
        Self::Failed {
            args,
            code: answer.code(),
            stderr: String::from_utf8_lossy(&answer.stderr).into_owned(),
        }
    }
}
