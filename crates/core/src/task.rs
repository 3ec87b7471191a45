//! Tasks: a goal given to a worker, in an isolation, with a result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::error::Problem;
use crate::id::{CommandId, ConversationId, EvidenceId, TaskId};
use crate::operation::CommandForm;
use crate::outcome::{CommandOutcome, IsolationLevel, Status};
use crate::spec::Mechanism;

/// How far a task stands apart from the user's own tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IsolationMode {
    /// In the workspace itself, behind the provider's walls only as far as the policy has them.
    None,
    /// Own context and scratch; result and evidence come back.
    Session,
    /// A working tree and a branch of the task's own.
    #[default]
    Worktree,
    /// The provider's walls around the workspace itself.
    Sandbox,
}

impl IsolationMode {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Session => "session",
            Self::Worktree => "worktree",
            Self::Sandbox => "sandbox",
        }
    }
}

/// Whether the place of a task lasts beyond it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceStrategy {
    /// It goes when the cleanup policy says so.
    #[default]
    Ephemeral,
    /// It stays, and a task of the same worker name uses it again.
    Persistent,
}

/// When the place of a task is removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CleanupPolicy {
    /// Whatever came out.
    Always,
    /// When command and verifier were good.
    #[default]
    OnSuccess,
    /// Never by itself.
    Never,
}

/// What of the user's uncommitted work goes into a task's tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Carry {
    /// Nothing; what is left behind is said.
    #[default]
    None,
    /// Changes of tracked files.
    Tracked,
    /// Changes of tracked files and new files that are not ignored.
    All,
}

/// From where the verifier takes the files that a check reads and the task changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerifyFrom {
    /// As the task left them; they are named.
    #[default]
    Task,
    /// As they were at the base.
    Base,
}

/// A request to run a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskRequest {
    /// The goal in words.
    pub goal: String,
    /// What the worker runs.
    pub command: CommandForm,
    /// Directory within the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<BytePath>,
    /// Shell commands that decide pass or fail, in order.
    #[serde(default)]
    pub verify: Vec<String>,
    /// Where the verifier takes changed inputs from.
    #[serde(default)]
    pub verify_from: VerifyFrom,
    /// Shell commands that prepare a fresh tree.
    #[serde(default)]
    pub setup: Vec<String>,
    /// How far the task stands apart.
    #[serde(default)]
    pub isolation_mode: IsolationMode,
    /// Whether its place lasts.
    #[serde(default)]
    pub workspace_strategy: WorkspaceStrategy,
    /// When its place is removed.
    #[serde(default)]
    pub cleanup_policy: CleanupPolicy,
    /// What uncommitted work goes in.
    #[serde(default)]
    pub carry: Carry,
    /// Name of the worker, the last part of the branch; made up when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Time limit of the command in seconds; none when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Seconds without output after which the command is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<f64>,
    /// Time limit of each check in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_timeout: Option<f64>,
}

/// How a file differs from the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content or mode differs.
    Modified,
    /// It is gone.
    Deleted,
    /// It has another name.
    Renamed,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModifiedFile {
    /// Path below the top of the tree.
    pub path: BytePath,
    /// What happened to it.
    pub change: ChangeKind,
    /// Its former path, when it was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<BytePath>,
    /// Whether it is binary.
    #[serde(default)]
    pub binary: bool,
    /// Lines added, when it is text.
    #[serde(default)]
    pub added_lines: u64,
    /// Lines removed, when it is text.
    #[serde(default)]
    pub removed_lines: u64,
    /// Whether git did not know it before the plane looked.
    #[serde(default)]
    pub untracked: bool,
}

/// The differences in figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffSummary {
    /// Files that changed.
    pub files: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// The same as a line for people.
    pub text: String,
}

/// What became of the place of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CleanupStatus {
    /// There was nothing to remove.
    NotNeeded,
    /// It is removed.
    Removed,
    /// It stays, as the policy says.
    Kept,
    /// It stays because something in it is not saved.
    KeptDirty,
    /// It stays because something in it still lives.
    KeptLive,
    /// It stays because its state is not known.
    KeptUnknown,
    /// The removal did not finish.
    Pending,
}

/// The isolation of a task as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskIsolation {
    /// How far the task stood apart.
    pub mode: IsolationMode,
    /// Where its tree lies on the host.
    pub workspace_path: Option<BytePath>,
    /// Its branch in the user's repository.
    pub branch: Option<String>,
    /// The commit from which it began.
    pub base: Option<String>,
    /// What became of its place.
    pub cleanup_status: CleanupStatus,
    /// The walls as asked for.
    pub requested: IsolationLevel,
    /// The walls as they were.
    pub effective: IsolationLevel,
    /// By what means.
    pub enforced_by: Vec<Mechanism>,
}

/// The verdict of a verifier, or of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerificationStatus {
    /// Every check was good.
    Passed,
    /// A check was not.
    Failed,
    /// A check could not be run.
    Error,
    /// There was no check, or the command had failed already.
    Skipped,
}

impl VerificationStatus {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }
}

/// One check that was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckResult {
    /// The shell command.
    pub check: String,
    /// Its verdict.
    pub status: VerificationStatus,
    /// Its exit code.
    pub return_code: Option<i32>,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// The tail of its output.
    pub output: String,
    /// The command that it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
}

/// What the verifier says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// The verdict.
    pub status: VerificationStatus,
    /// Each check.
    pub checks: Vec<CheckResult>,
    /// Files that a check is known to read and the task changed.
    pub tampered_inputs: Vec<BytePath>,
    /// Where those were taken from.
    pub verify_from: VerifyFrom,
    /// The tree on which the checks ran, by git's object id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
}

/// What became of the task's changes in the user's branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MergeStatus {
    /// They wait on the task's branch.
    NotRequested,
    /// There is nothing to merge.
    Nothing,
    /// They are merged.
    Merged,
    /// Both sides changed the same lines; nothing was touched.
    Conflict,
    /// Refused, see the error.
    Refused,
    /// The task was dropped.
    Dropped,
    /// A merge was undone.
    Undone,
}

/// The merge of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Merge {
    /// What became of it.
    pub status: MergeStatus,
    /// The commit that resulted.
    pub oid: Option<String>,
    /// Files in conflict.
    pub conflicts: Vec<BytePath>,
}

/// A claim, or a fact made by the system, that belongs to a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvidenceItem {
    /// Its id.
    pub evidence_id: EvidenceId,
    /// What kind: `command`, `files_changed`, `denial`, `check`, `setup`, `left_behind`, `removal`.
    pub kind: String,
    /// One line for people.
    pub summary: String,
    /// Position of the event that shows it, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pos: Option<u64>,
}

/// The result of a task, with exactly these fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    /// The task.
    pub task_id: TaskId,
    /// The line of work that it belongs to.
    pub conversation_id: ConversationId,
    /// The number by which people name it, from 1, within the data directory.
    pub number: u64,
    /// The goal in words.
    pub goal: String,
    /// The status of its command.
    pub status: Status,
    /// One sentence.
    pub summary: String,
    /// Where and behind what it ran.
    pub isolation: TaskIsolation,
    /// Every file that differs from the base.
    pub modified_files: Vec<ModifiedFile>,
    /// The differences in figures.
    pub git_diff_summary: DiffSummary,
    /// The command's outcome; `None` when it was never started.
    pub task_result: Option<CommandOutcome>,
    /// The verifier's word.
    pub verification: Verification,
    /// What became of the changes in the user's branch.
    pub merge: Merge,
    /// What shows all this.
    pub evidence: Vec<EvidenceItem>,
    /// What was not carried into the tree, with the flag that would.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<String>,
    /// Why it ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// The next two commands.
    pub next: Vec<String>,
}

impl TaskResult {
    /// Gives the exit code of `task run`.
    pub fn exit_code(&self) -> u8 {
        use crate::exit;
        let command = match (&self.task_result, self.status) {
            (Some(outcome), _) => outcome.exit_code(),
            (None, Status::Denied) => exit::DENIED,
            (None, _) => exit::OWN_FAILURE,
        };
        if command != exit::SUCCESS {
            return command;
        }
        if self.error.is_some() {
            return exit::OWN_FAILURE;
        }
        match self.verification.status {
            VerificationStatus::Passed | VerificationStatus::Skipped => exit::SUCCESS,
            VerificationStatus::Failed | VerificationStatus::Error => exit::VERIFIER_FAILED,
        }
    }
}
