//! Working trees of tasks: made, harvested, merged and removed.
//!
//! A task's tree has a git directory of its own that borrows the user's objects. While the task
//! runs, the user's repository holds one reference more, `refs/cofferdam/base/<run>/<worker>`, and
//! is otherwise not touched. When the task has ended, [`Workspaces::harvest`] brings its branch in:
//! git runs on the task's repository only inside the walls (through [`InsideGit`]), what it packs is
//! checked outside in a quarantine, and references move by compare-and-swap.
//!
//! Uncommitted work that is carried in (`carry = tracked | all`) is a commit of its own on the
//! task's branch. The recorded base stays the commit at the user's `HEAD`; changes are measured from
//! the carried commit, so that what the user had changed is not shown as the task's.
//!
//! Filter drivers (LFS and the like) are off in a task's tree: files are as the objects hold them.
//!
//! Nothing is removed without proof that it is ours, dead and saved; see [`RemovalReceipt`].

mod borrow;
mod carry;
mod commits;
mod create;
mod dispose;
mod error;
mod files;
mod gitdir;
mod harvest;
mod incoming;
mod inside;
mod inspect;
mod kept;
mod merge;
mod names;
mod outbox;
mod persistent;
mod populate;
mod publish;
mod pull_request;
mod push;
mod record;
mod remove;
mod rescue;
mod saga;
mod seed;
mod snapshot;
mod store;
mod submodule;
mod survey;
mod sweep;
mod watch;

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::spec::{Digest, Identity};

pub use commits::TaskCommit;
pub use create::Worktree;
pub use dispose::Dropped;
pub use error::{GitFailure, WorkspaceError};
pub(crate) use files::{remove_tree, replace_file};
pub use inside::{InsideCall, InsideGit, InsideOutput};
pub use kept::{CheckoutChange, KeptCheckout};
pub use merge::{MergeRequest, Merged};
pub use outbox::requests_folder;
pub use publish::PublishWish;
pub use pull_request::PullRequestWish;
pub use push::PushRequest;
pub use record::{
    Base, Borrowed, Harvest, InsidePush, LeftBehind, LeftKind, LeftRequest, Placement, Saved, Seed,
    TreeState, Unsaved, WorkspaceStep, WorkspaceView, WorktreePlan, WorktreeRecord,
    WorktreeRequest,
};
pub use remove::{Proof, RemovalOutcome, RemovalReceipt};
pub use snapshot::{CheckoutSnapshot, RestoredSnapshot, SNAPSHOTS_KEPT};
pub use store::Lease;
pub use sweep::{Orphan, OrphanKind};

pub use crate::git::GitOptions;

use crate::git::{Git, Repository};

/// Says where trees lie and as whom they are worked on.
#[derive(Debug, Clone)]
pub struct WorkspacesOptions {
    /// Directory that holds the trees of tasks, `<data>/worktrees` as a rule. Where root works for
    /// somebody else it has to be one that this user can reach and owns.
    pub trees: PathBuf,
    /// How git is found and whose configuration it reads.
    pub git: GitOptions,
    /// As whom git and every file operation act; `None` as the caller. Needs root.
    pub identity: Option<Identity>,
    /// Bytes that the pack of one task may have.
    pub pack_bound: u64,
}

impl WorkspacesOptions {
    /// Makes options with the usual bound of 2 GiB for a pack.
    pub fn new(trees: impl Into<PathBuf>, git: GitOptions) -> Self {
        Self {
            trees: trees.into(),
            git,
            identity: None,
            pack_bound: 2 << 30,
        }
    }
}

/// Makes, harvests, merges and removes the trees of tasks. Cheap to make but for one call of git.
#[derive(Debug)]
pub struct Workspaces {
    trees: PathBuf,
    git: Git,
    identity: Option<Identity>,
    pack_bound: u64,
}

impl Workspaces {
    /// Finds git and makes the directory of the trees.
    ///
    /// Fails when git is missing or too old, or when the directory belongs to somebody else.
    pub fn open(mut options: WorkspacesOptions) -> Result<Self, WorkspaceError> {
        options.git.refused.push(options.trees.as_path().into());
        let identity = options.identity.clone();
        let (git, trees) = as_identity(identity.as_ref(), || {
            let git = Git::find(&options.git)?;
            let trees = prepare_place(&options.trees)?;
            Ok::<_, WorkspaceError>((git, trees))
        })?;
        Ok(Self {
            trees,
            git,
            identity,
            pack_bound: options.pack_bound,
        })
    }

    /// Does work as the identity that these trees belong to.
    fn acting<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, WorkspaceError> + Send,
    ) -> Result<T, WorkspaceError> {
        as_identity(self.identity.as_ref(), work)
    }

    fn locks(&self) -> PathBuf {
        self.trees.join(".locks")
    }

    fn places(&self, repository: &str) -> Places {
        Places {
            top: self.trees.join(repository),
        }
    }

    /// Gives what a plan needs to know about a tree that was recorded.
    pub fn plan(&self, record: &WorktreeRecord) -> WorktreePlan {
        let places = self.places(&record.repository);
        let mut borrowed: Vec<Borrowed> = Vec::new();
        let mut names: Vec<PathBuf> = std::fs::read_dir(places.borrowed())
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        names.sort();
        for inside in names {
            if let Ok(source) = inside.canonicalize() {
                borrowed.push(Borrowed {
                    source: source.into(),
                    inside: inside.into(),
                });
            }
        }
        WorktreePlan {
            top: record.top.clone(),
            tree: record.tree.clone(),
            prefix: record.prefix.clone(),
            borrowed,
        }
    }

    /// Gives the absolute path of git, as it is to be used inside too.
    pub fn git_program(&self) -> BytePath {
        self.git.program()
    }
}

impl WorktreeRecord {
    /// The user's repository as recorded.
    fn user_repository(&self) -> Repository {
        let common_dir = self.common_dir.as_path().to_path_buf();
        Repository {
            top: self.top.as_path().to_path_buf(),
            git_dir: self.git_dir.as_path().to_path_buf(),
            objects: common_dir.join("objects"),
            common_dir,
            object_format: self.object_format.clone(),
            prefix: self.prefix.as_path().to_path_buf(),
        }
    }

    fn tree_path(&self) -> &Path {
        self.tree.as_path()
    }
}

/// Where things lie for one repository.
#[derive(Debug, Clone)]
struct Places {
    top: PathBuf,
}

impl Places {
    fn tree(&self, run: &str, worker: &str) -> PathBuf {
        self.top.join(run).join(worker)
    }

    fn record(&self, run: &str, worker: &str) -> PathBuf {
        self.top.join(".records").join(run).join(worker)
    }

    fn borrowed(&self) -> PathBuf {
        self.top.join(".borrowed")
    }

    fn incoming(&self) -> PathBuf {
        self.top.join(".incoming")
    }

    fn trash(&self) -> PathBuf {
        self.top.join(".trash")
    }
}

/// Gives a short name for a repository that is the same every time.
fn repository_name(common_dir: &Path) -> String {
    let own = common_dir
        .file_name()
        .map(OsStrExt::as_bytes)
        .unwrap_or_default();
    let named = if own == b".git" {
        common_dir.parent().and_then(Path::file_name)
    } else {
        None
    };
    let name: String = named
        .map_or_else(
            || String::from_utf8_lossy(own),
            |name| name.to_string_lossy(),
        )
        .chars()
        .map(|one| {
            if one.is_alphanumeric() || "-_".contains(one) {
                one
            } else {
                '-'
            }
        })
        .take(40)
        .collect();
    let name = name.trim_matches('-');
    let digest = Digest::sha256(common_dir.as_os_str().as_bytes());
    format!(
        "{}-{}",
        if name.is_empty() { "repository" } else { name },
        &digest.as_str()[..12]
    )
}

fn make_private(path: &Path) -> Result<(), WorkspaceError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(WorkspaceError::file("making the directory", path))
}

fn prepare_place(trees: &Path) -> Result<PathBuf, WorkspaceError> {
    let refuse = |why: String| WorkspaceError::PlaceRefused {
        path: trees.to_path_buf(),
        why,
    };
    if !trees.is_absolute() {
        return Err(refuse("it is no absolute path".to_owned()));
    }
    make_private(&trees.join(".locks"))?;
    let real = trees
        .canonicalize()
        .map_err(|error| refuse(error.to_string()))?;
    let metadata = real.metadata().map_err(|error| refuse(error.to_string()))?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        return Err(refuse(format!(
            "it belongs to user {}, not {own}",
            metadata.uid()
        )));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(refuse("others may write to it".to_owned()));
    }
    Ok(real)
}

/// Does work in a thread that has taken on an identity, or in this one when there is none.
///
/// Every file operation and every process that the work starts then acts as that user: what the
/// user could not do by hand cannot be done by way of root.
pub(crate) fn as_identity<T: Send, E: Send + From<WorkspaceError>>(
    identity: Option<&Identity>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    let Some(identity) = identity else {
        return work();
    };
    let outcome = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            take_identity(identity).map_err(WorkspaceError::file(
                "taking on the owner's identity",
                Path::new(""),
            ))?;
            work()
        });
        worker.join()
    });
    // Credentials of the thread marked the memory of the process as not dumpable, so that its new
    // user could not reach into it; the thread is gone now.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable);
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn take_identity(identity: &Identity) -> std::io::Result<()> {
    use rustix::process::{Gid, Uid};
    let groups: Vec<Gid> = identity
        .groups
        .iter()
        .map(|group| Gid::from_raw(*group))
        .collect();
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_get_stable_readable_names() {
        let name = repository_name(Path::new("/srv/My Repo/.git"));
        assert!(name.starts_with("My-Repo-"), "{name}");
        assert_ne!(name, repository_name(Path::new("/srv/My-Repo/.git")));
        assert!(repository_name(Path::new("/srv/x.git")).starts_with("x-git-"));
    }

    #[test]
    fn work_is_done_as_somebody_else_and_only_there() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let identity = Identity {
            uid: 12345,
            gid: 12346,
            groups: vec![12346],
        };
        let inside = as_identity(Some(&identity), || {
            let ids = (
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw(),
            );
            Ok::<_, WorkspaceError>(ids)
        });
        assert_eq!(inside.unwrap(), (12345, 12346));
        assert!(rustix::process::geteuid().is_root());
    }
}
