//! What is known about a task's tree, as data: it is journalled and lies beside the tree on disk.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::outbox::InsideRequest;
use cofferdam_core::task::{Carry, DiffSummary, ModifiedFile, WorkspaceStrategy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a task's tree is to be.
#[derive(Debug, Clone)]
pub struct WorktreeRequest {
    /// Directory in the user's repository.
    pub workspace: BytePath,
    /// Names the record, such as the task's id; also stands in the marker.
    pub record: String,
    /// Random text that nobody else can know; makes names of temporary places and the marker.
    pub nonce: String,
    /// The run, a part of the branch and the path.
    pub run: String,
    /// The worker, the last part of both.
    pub worker: String,
    /// What uncommitted work goes in.
    pub carry: Carry,
    /// Whether the tree lasts beyond the task.
    pub strategy: WorkspaceStrategy,
    /// Revision to begin from; `HEAD` of the workspace when there is none.
    pub base: Option<String>,
}

/// A step in the life of a tree, reported before or after it is done as its words say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkspaceStep {
    /// Everything was looked at; nothing is made yet.
    Intended {
        /// What will be made.
        record: Box<WorktreeRecord>,
    },
    /// The base commit is held by a reference in the user's repository.
    BaseHeld {
        /// The reference.
        reference: String,
        /// The commit.
        base: String,
    },
    /// The directory and its own git directory are there.
    Prepared {
        /// The tree.
        path: BytePath,
    },
    /// The files of the base are there.
    CheckedOut {
        /// The branch.
        branch: String,
    },
    /// Uncommitted work of the user's checkout is in.
    Carried {
        /// The commit that holds it.
        commit: String,
    },
    /// Ignored files of the user's checkout were copied.
    Seeded {
        /// How many.
        files: u64,
    },
    /// The tree was looked at and is as it should be.
    Ready {
        /// The tree.
        path: BytePath,
    },
    /// Making it failed; what this attempt had made is gone again.
    RolledBack {
        /// Why it failed.
        why: String,
        /// What could not be taken back.
        left: Vec<String>,
    },
}

/// Where a task began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// The commit.
    pub oid: String,
    /// The branch that named it, by its full name; `None` for a detached `HEAD`.
    pub reference: Option<String>,
    /// Time of the commit in seconds since 1970, where it was read.
    pub committed_at: Option<i64>,
    /// The remote branch that it follows, where there is one.
    pub upstream: Option<String>,
    /// Commits that it lacks of that, as far as was last fetched.
    pub behind: Option<u64>,
    /// Commits that it has beyond that.
    pub ahead: Option<u64>,
    /// When something was last fetched, in seconds since 1970.
    pub fetched_at: Option<i64>,
}

/// How far the making of a tree got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TreeState {
    /// It is being made; nothing has run in it.
    Making,
    /// It is there, and a task may run or have run in it.
    Ready,
    /// What was in it is harvested.
    Harvested,
}

/// A file that was copied into a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Seed {
    /// Path below the top.
    pub path: BytePath,
    /// Bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970, as left by the copy.
    pub modified: i64,
}

/// Everything that has to be known about a tree to harvest, merge or remove it later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorktreeRecord {
    /// Names the record.
    pub record: String,
    /// The marker's secret.
    pub nonce: String,
    /// The run.
    pub run: String,
    /// The worker.
    pub worker: String,
    /// Top of the user's working tree.
    pub top: BytePath,
    /// The git directory of that tree.
    pub git_dir: BytePath,
    /// The git directory that its linked trees share.
    pub common_dir: BytePath,
    /// `sha1` or `sha256`.
    pub object_format: String,
    /// Path from the top to the workspace that was named; empty or ending in a slash.
    pub prefix: BytePath,
    /// Short name of the repository in paths.
    pub repository: String,
    /// The task's tree on the host.
    pub tree: BytePath,
    /// Device and inode of the tree, once it is made.
    pub identity: Option<(u64, u64)>,
    /// The task's branch without `refs/heads/`.
    pub branch: String,
    /// Where it began.
    pub base: Base,
    /// The commit that holds carried work; changes are measured from it then.
    pub carried: Option<String>,
    /// Whether the tree lasts.
    pub strategy: WorkspaceStrategy,
    /// How far it got.
    pub state: TreeState,
    /// The record of an earlier task whose work, cut off and never brought in, is still in the tree.
    pub continues: Option<String>,
    /// Files that were copied in.
    pub seeds: Vec<Seed>,
    /// What is off or different from the user's checkout, in words.
    pub notes: Vec<String>,
    /// What came out of it, once it was harvested.
    pub harvest: Option<Harvest>,
}

impl WorktreeRecord {
    /// Gives the commit from which changes are measured: the carried one, else the base.
    pub fn measured_from(&self) -> &str {
        self.carried.as_deref().unwrap_or(&self.base.oid)
    }

    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.run, self.worker)
    }

    pub(crate) fn base_reference(&self) -> String {
        format!("refs/cofferdam/base/{}", self.name())
    }

    pub(crate) fn branch_reference(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    pub(crate) fn saved_prefix(&self) -> String {
        format!("refs/cofferdam/saved/{}", self.name())
    }

    pub(crate) fn trash_prefix(&self) -> String {
        format!("refs/cofferdam/trash/{}", self.name())
    }

    pub(crate) fn undo_reference(&self) -> String {
        format!("refs/cofferdam/undo/{}", self.name())
    }
}

/// Where a tree stands inside the walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// At the path of the user's repository; needs a mount namespace.
    AtRepository,
    /// At its own path.
    AtOwnPath,
}

/// The tree as commands see it, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceView {
    /// Path inside.
    pub inside: BytePath,
    /// Path on the host.
    pub source: BytePath,
}

/// Something of the host that the tree needs to be seen read-only at a place inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Borrowed {
    /// The real path on the host; to be readable where there is no mount namespace.
    pub source: BytePath,
    /// Path inside; on the host a link to `source` stands there.
    pub inside: BytePath,
}

/// What a plan needs to know about a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreePlan {
    /// Top of the user's repository, where the tree stands inside if it can.
    pub top: BytePath,
    /// The tree on the host.
    pub tree: BytePath,
    /// Path from the top to the workspace that was named.
    pub prefix: BytePath,
    /// What must be visible read-only besides.
    pub borrowed: Vec<Borrowed>,
}

impl WorktreePlan {
    /// Gives the view for a placement.
    pub fn view(&self, placement: Placement) -> WorkspaceView {
        let inside = match placement {
            Placement::AtRepository => self.top.clone(),
            Placement::AtOwnPath => self.tree.clone(),
        };
        WorkspaceView {
            inside,
            source: self.tree.clone(),
        }
    }
}

/// Something of the user's checkout that is not in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftBehind {
    /// Path below the top; a directory ends in a slash.
    pub path: BytePath,
    /// What it is: `modified`, `untracked` or `submodule`.
    pub kind: LeftKind,
}

/// What is left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeftKind {
    /// A tracked file with changes.
    Modified,
    /// A new file.
    Untracked,
    /// Changes inside a submodule.
    Submodule,
}

/// A reference or stash entry of the task that is not its branch, and where it is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// What it was in the task's repository.
    pub name: String,
    /// Where it is in the user's repository.
    pub reference: String,
    /// What it names.
    pub oid: String,
}

impl Saved {
    /// Tells whether it is a state of the task's tree that the plane kept after a command.
    pub fn is_snapshot(&self) -> bool {
        self.name.starts_with("refs/cofferdam/snapshots/")
    }
}

/// Something in the tree that is on no reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unsaved {
    /// Path below the top.
    pub path: BytePath,
    /// Why it is not saved.
    pub why: String,
}

/// A push in a task's tree, which went to a place of the task's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InsidePush {
    /// The remote that was meant, one of the owner's configuration.
    pub remote: String,
    /// The commit, as the task says: any object id.
    pub commit: String,
}

/// A request that a task left in its own tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftRequest {
    /// The name of its file.
    pub file: String,
    /// What is asked for; nothing where it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<InsideRequest>,
    /// Why it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<String>,
}

/// What came out of a task's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Harvest {
    /// The last commit: the task's own, or the one that holds its uncommitted work.
    pub commit: String,
    /// Its tree.
    pub tree: String,
    /// The branch in the user's repository; `None` when there is nothing to bring in.
    pub branch: Option<String>,
    /// Commits that the task made itself.
    pub own_commits: u64,
    /// Whether the last commit holds work that the task had not committed.
    pub uncommitted: bool,
    /// The branch on which the task stood at its end, when it was another; `HEAD` when detached.
    pub moved_to: Option<String>,
    /// Whether the last commit has the base among its ancestors.
    pub descends_from_base: bool,
    /// Other branches, tags and stash entries of the task.
    pub saved: Vec<Saved>,
    /// What could not be saved.
    pub unsaved: Vec<Unsaved>,
    /// Ignored files and directories in the tree that were not copied in; at most a thousand.
    pub ignored: Vec<BytePath>,
    /// Copied-in files that the task changed or removed.
    pub seeds_changed: Vec<BytePath>,
    /// Copied-in files that the task committed.
    pub seeds_committed: Vec<BytePath>,
    /// A merge, rebase or the like that was not finished.
    pub in_progress: Vec<String>,
    /// What the task pushed of its own branch, as it says; nothing of it has left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pushes: Vec<InsidePush>,
    /// What else the task asked for in its own tree, in the order of the names of its files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<LeftRequest>,
    /// Why the task's own git directory was of no use, where its files were saved without it: then
    /// they are one commit on the base, and what the task committed itself is not among it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescued: Option<String>,
    /// Every file that differs from where it began.
    pub modified_files: Vec<ModifiedFile>,
    /// The same in figures.
    pub summary: DiffSummary,
}
