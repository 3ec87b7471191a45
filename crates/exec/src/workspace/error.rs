//! What can go wrong with a task's working tree.

use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};

use crate::git::GitError;

/// Says what a workspace operation came to.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// git failed, is missing, or the repository is not one that can be worked with.
    #[error(transparent)]
    Git(GitFailure),
    /// The name of a worker or run cannot be one.
    #[error("{what} {name:?} cannot be used as a name: {why}")]
    Name {
        /// `worker` or `run`.
        what: &'static str,
        /// The name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// The branch, or one that stands in its way, exists already.
    #[error("branch {branch} is taken: {by}")]
    BranchTaken {
        /// The branch, without `refs/heads/`.
        branch: String,
        /// What holds it.
        by: String,
    },
    /// The directory exists already.
    #[error("{} exists already", path.display())]
    DirectoryTaken {
        /// The directory.
        path: PathBuf,
    },
    /// The tree is in use.
    #[error("the tree of worker {worker} is in use by another task")]
    Live {
        /// The worker.
        worker: String,
    },
    /// The tree was made, and is not as it should be.
    #[error("the new tree at {} is not as it should be: {why}", path.display())]
    NotAsMade {
        /// The tree.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// What the task left behind did not pass the check, or could not be read.
    #[error("what the task left in its repository was rejected: {why}")]
    HarvestRejected {
        /// Why.
        why: String,
    },
    /// The target of a merge moved while it was made.
    #[error("branch {branch} moved meanwhile; nothing was changed")]
    TargetMoved {
        /// The branch.
        branch: String,
    },
    /// A checkout has changes that a merge would touch.
    #[error("the checkout of {branch} at {} has {what}", path.display())]
    CheckoutDirty {
        /// The branch.
        branch: String,
        /// The checkout.
        path: PathBuf,
        /// What it has, in words.
        what: String,
        /// Which files.
        files: Vec<BytePath>,
    },
    /// Both sides changed the same lines.
    #[error("{} file(s) in conflict; nothing was changed", files.len())]
    MergeConflict {
        /// Which files.
        files: Vec<BytePath>,
    },
    /// The task changed names that the host's tools execute or obey.
    #[error("the task changed protected names: {}", list(files))]
    ProtectedChanged {
        /// Which.
        files: Vec<BytePath>,
    },
    /// A branch is not where it was when somebody looked at it.
    #[error("branch {branch} is at {}, not at {expected} as it was shown; nothing was pushed", found.as_deref().unwrap_or("no commit"))]
    BranchMoved {
        /// The branch.
        branch: String,
        /// Where it should be.
        expected: String,
        /// Where it is; nowhere when it is not there.
        found: Option<String>,
    },
    /// Something besides the branch is not as it was when somebody looked at it.
    #[error("{what} is another one than was shown; nothing has left")]
    PushChanged {
        /// What.
        what: String,
    },
    /// The owner's configuration has no such remote, or several and none that is meant.
    #[error("{}", no_remote(name.as_deref(), known))]
    RemoteUnknown {
        /// The name that was given.
        name: Option<String>,
        /// The remotes that there are.
        known: Vec<String>,
    },
    /// The merge was to be signed, and could not be.
    #[error("the merge could not be signed, as commit.gpgSign wants: {why}")]
    NotSigned {
        /// What git said.
        why: String,
    },
    /// The owner's hooks lie where a task could have changed them.
    #[error(
        "the task could have changed {path}, where your hooks are: nothing is pushed from here"
    )]
    HooksChanged {
        /// Where they are.
        path: BytePath,
    },
    /// A push did not get through.
    #[error("{remote} does not have {branch}: {why}")]
    PushFailed {
        /// The remote.
        remote: String,
        /// The branch.
        branch: String,
        /// What git, a hook or the remote said.
        why: String,
    },
    /// The remote does not have the branch as a pull request needs it.
    #[error("{remote} does not have {branch} at {commit}; nothing was opened")]
    NotPushed {
        /// The remote.
        remote: String,
        /// The branch.
        branch: String,
        /// The commit at which it has to be.
        commit: String,
    },
    /// Nothing makes pull requests where a remote leads.
    #[error("{why}")]
    ForgeUnknown {
        /// Why not.
        why: String,
        /// What the owner can do.
        hint: String,
    },
    /// A program of the owner's is not there.
    #[error(
        "{name:?} is not there to be run: it is neither on your search path nor a program outside of the workspace"
    )]
    ProgramMissing {
        /// Its name.
        name: String,
    },
    /// Something in a request cannot be meant.
    #[error("{why}")]
    Wrong {
        /// Which field.
        field: &'static str,
        /// Why not.
        why: String,
    },
    /// A commit holds a link that leads out of it.
    #[error(
        "{path} is a link that leads out of the commit: what is published could hold files of yours"
    )]
    LinkLeadsOut {
        /// The link.
        path: BytePath,
    },
    /// A program that carries out what was released did not end well.
    #[error("{program} {why}")]
    EffectFailed {
        /// The program.
        program: String,
        /// How it ended, and what it said.
        why: String,
        /// Whether nobody knows what it did.
        unknown: bool,
    },
    /// The task is not in a state in which this can be done.
    #[error("{why}")]
    State {
        /// Why not.
        why: String,
    },
    /// The place of the trees cannot be used.
    #[error("{} cannot hold the trees of tasks: {why}", path.display())]
    PlaceRefused {
        /// The place.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file operation failed.
    #[error("{step} failed on {}: {source}", path.display())]
    File {
        /// What was being done.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something that runs inside the walls could not be run.
    #[error("{0}")]
    Inside(Problem),
}

fn list(files: &[BytePath]) -> String {
    let mut text: Vec<String> = files.iter().take(5).map(ToString::to_string).collect();
    if files.len() > 5 {
        text.push(format!("and {} more", files.len() - 5));
    }
    text.join(", ")
}

fn no_remote(name: Option<&str>, known: &[String]) -> String {
    let there = if known.is_empty() {
        "the repository has none".to_owned()
    } else {
        format!("there are {}", known.join(", "))
    };
    match name {
        Some(name) => format!("{name:?} is no remote of the repository; {there}"),
        None => format!("no remote is named; {there}"),
    }
}

/// Wraps what git came to.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct GitFailure(pub(crate) GitError);

impl From<GitError> for WorkspaceError {
    fn from(error: GitError) -> Self {
        Self::Git(GitFailure(error))
    }
}

impl WorkspaceError {
    pub(crate) fn file(
        step: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::File { step, path, source }
    }

    pub(crate) fn rejected(why: impl Into<String>) -> Self {
        Self::HarvestRejected { why: why.into() }
    }

    /// Gives the stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Git(GitFailure(error)) => match error {
                GitError::Unavailable { .. } => ErrorCode::GitUnavailable,
                GitError::NotARepository { .. } => ErrorCode::NotARepository,
                GitError::Bare { .. } => ErrorCode::RepoBare,
                GitError::Unborn { .. } => ErrorCode::RepoUnborn,
                GitError::RefMoved { .. } => ErrorCode::TargetMoved,
                GitError::Failed { stderr, .. } if stderr.contains("No space left on device") => {
                    ErrorCode::StorageExhausted
                }
                _ => ErrorCode::GitFailed,
            },
            Self::Name { .. } | Self::Wrong { .. } => ErrorCode::InvalidRequest,
            Self::BranchTaken { .. } => ErrorCode::BranchTaken,
            Self::DirectoryTaken { .. } => ErrorCode::DirectoryTaken,
            Self::Live { .. } | Self::State { .. } => ErrorCode::TaskState,
            Self::NotAsMade { .. } | Self::NotSigned { .. } => ErrorCode::GitFailed,
            Self::HarvestRejected { .. } => ErrorCode::HarvestRejected,
            Self::TargetMoved { .. }
            | Self::BranchMoved { .. }
            | Self::PushChanged { .. }
            | Self::NotPushed { .. } => ErrorCode::TargetMoved,
            Self::RemoteUnknown { .. } => ErrorCode::RemoteUnknown,
            Self::PushFailed { .. } => ErrorCode::PushFailed,
            Self::ForgeUnknown { .. } => ErrorCode::ForgeUnknown,
            Self::ProgramMissing { .. } => ErrorCode::NotFound,
            Self::EffectFailed { .. } => ErrorCode::EffectFailed,
            Self::CheckoutDirty { .. } => ErrorCode::CheckoutDirty,
            Self::MergeConflict { .. } => ErrorCode::MergeConflict,
            Self::ProtectedChanged { .. }
            | Self::HooksChanged { .. }
            | Self::LinkLeadsOut { .. } => ErrorCode::Denied,
            Self::PlaceRefused { .. } => ErrorCode::DataDirRefused,
            Self::File { source, .. } => match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    ErrorCode::StorageExhausted
                }
                _ => ErrorCode::Io,
            },
            Self::Inside(problem) => problem.code,
        }
    }

    /// Says what to do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Git(GitFailure(error)) => match error {
                GitError::Unavailable { .. } => "install git 2.38 or newer".to_owned(),
                GitError::NotARepository { .. } => {
                    "run it in a git repository, or with --isolation session".to_owned()
                }
                GitError::Bare { .. } => "run it in a checkout of the repository".to_owned(),
                GitError::Unborn { .. } => {
                    "make a first commit: git commit --allow-empty -m \"first\"".to_owned()
                }
                GitError::ForeignOwner { path } => format!(
                    "if you trust it: git config --global --add safe.directory {}",
                    path.display()
                ),
                GitError::Locked { .. } => "try again when it is done".to_owned(),
                _ => return None,
            },
            Self::BranchTaken { .. } => "give another worker name".to_owned(),
            Self::DirectoryTaken { .. } => {
                "it is left as it is; give another worker name".to_owned()
            }
            Self::Live { .. } => {
                "wait until that task ends, or give another worker name".to_owned()
            }
            Self::HarvestRejected { .. } => {
                "the tree is kept; look at it where the result says that it lies".to_owned()
            }
            Self::TargetMoved { .. } => "run the merge again".to_owned(),
            Self::BranchMoved { .. } | Self::PushChanged { .. } => {
                "refuse it, and propose it anew as it is now".to_owned()
            }
            Self::RemoteUnknown { .. } => "git remote -v shows every remote".to_owned(),
            Self::NotPushed { .. } => {
                "release its push first: cofferdam outbox lists it".to_owned()
            }
            Self::ForgeUnknown { hint, .. } => hint.clone(),
            Self::ProgramMissing { .. } => {
                "install it, or name it by an absolute path outside of the workspace".to_owned()
            }
            Self::LinkLeadsOut { .. } => "have the task take the link out".to_owned(),
            Self::EffectFailed { unknown: true, .. } => {
                "look whether it got through; where it did not, propose it anew yourself".to_owned()
            }
            Self::NotSigned { .. } => {
                "see that your key and its agent are at hand: git commit --allow-empty -S"
                    .to_owned()
            }
            Self::HooksChanged { .. } => {
                "look at them, then push it yourself with git push".to_owned()
            }
            Self::CheckoutDirty { .. } => {
                "commit or stash those changes yourself, then merge again".to_owned()
            }
            Self::MergeConflict { .. } => {
                "merge the task's branch by hand with git merge, or drop the task".to_owned()
            }
            Self::ProtectedChanged { .. } => {
                "look at them in the diff; merge with --allow-protected if they are right"
                    .to_owned()
            }
            Self::Inside(problem) => return problem.hint.clone(),
            _ => return None,
        })
    }
}

impl From<WorkspaceError> for Problem {
    fn from(error: WorkspaceError) -> Self {
        let mut problem = Self::new(error.code(), error.to_string());
        if let WorkspaceError::Wrong { field, .. } = &error {
            problem = problem.with_field(*field);
        }
        match error.hint() {
            Some(hint) => problem.with_hint(hint),
            None => problem,
        }
    }
}
