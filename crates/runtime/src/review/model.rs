//! A review as data.

use cofferdam_core::approval::Approval;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::id::TaskId;
use cofferdam_core::outbox::Held;
use cofferdam_core::outcome::{Denial, Status};
use cofferdam_core::task::{
    CheckResult, DiffSummary, Merge, ModifiedFile, TaskIsolation, VerificationStatus, VerifyFrom,
};
use cofferdam_visibility::Freshness;
use serde::Serialize;
use serde_json::Value;

use crate::task::TaskState;

/// One task as it is looked at before it is merged or dropped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskReview {
    /// The task.
    pub task_id: TaskId,
    /// Its number.
    pub number: u64,
    /// Its goal.
    pub goal: String,
    /// Its command as a line.
    pub command: String,
    /// How far it is.
    pub state: TaskState,
    /// The status of its command; `running` until it has ended.
    pub status: Status,
    /// The result in one sentence, once there is one.
    pub summary: String,
    /// The exit code of its command.
    pub return_code: Option<i32>,
    /// Wall time of its command in milliseconds, once it has ended.
    pub elapsed_ms: Option<u64>,
    /// Whether somebody still has to decide about it: it runs, or waits to be merged or dropped.
    pub open: bool,
    /// Where and behind what it ran, once it has ended.
    pub isolation: Option<TaskIsolation>,
    /// What it changed.
    pub changes: ReviewChanges,
    /// What the checks say.
    pub checks: ReviewChecks,
    /// Hosts that it wanted to reach, in the order of the first wish.
    pub hosts: Vec<ReviewedHost>,
    /// What was denied, the same thing once.
    pub denials: Vec<ReviewedDenial>,
    /// Names that the host's tools execute or obey, and what became of changes of them.
    pub protected: Vec<ReviewedName>,
    /// Changes of the agent's own state that are not transcripts and the like.
    pub agent_state: Vec<ReviewedStateChange>,
    /// What would leave the machine, and what became of it, the oldest first.
    pub held: Vec<Held>,
    /// Questions of it that wait for an answer.
    pub questions: Vec<Approval>,
    /// What of the user's checkout was not carried into its tree, with the flag that would.
    pub left_behind: Vec<String>,
    /// What in its tree was not brought in, in words.
    pub not_brought_in: Vec<String>,
    /// What else was noted, in words.
    pub notes: Vec<String>,
    /// What became of its changes in the user's branch.
    pub merge: Merge,
    /// Why it ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// The next commands.
    pub next: Vec<String>,
}

/// What a task changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReviewChanges {
    /// In figures.
    pub summary: DiffSummary,
    /// Every file.
    pub files: Vec<ReviewedFile>,
    /// What the plane ran for it, oldest first, checks included.
    pub commands: Vec<ReviewedCommand>,
    /// Commits that the task made itself, oldest first, at most fifty.
    pub commits: Vec<ReviewedCommit>,
    /// The patch, as git writes it, with what is not UTF-8 replaced; `None` where it was not asked
    /// for or there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// The patch as bytes.
    #[serde(skip)]
    pub patch_bytes: Vec<u8>,
    /// Why there is no patch, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_problem: Option<Problem>,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewedFile {
    /// What happened to it.
    pub file: ModifiedFile,
    /// Whether it is a name that the host's tools execute or obey: merging it is refused unless it
    /// is allowed.
    pub protected: bool,
    /// The commands that changed it, where that was seen.
    pub commands: Vec<String>,
}

/// A command that the plane ran for a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewedCommand {
    /// Its id.
    pub command_id: String,
    /// What it was: `setup`, `command` or `check`.
    pub kind: String,
    /// What ran, one line.
    pub command: Option<String>,
    /// How it stands.
    pub status: Option<Status>,
    /// Its exit code.
    pub return_code: Option<i64>,
    /// Wall time in milliseconds.
    pub elapsed_ms: Option<u64>,
    /// Files that it changed, where that was seen.
    pub files: Vec<String>,
    /// How much was denied.
    pub denials: u64,
}

/// A commit that a task made itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewedCommit {
    /// Its id.
    pub oid: String,
    /// The first line of its message.
    pub subject: String,
    /// Files that it changed.
    pub files: Vec<BytePath>,
}

/// What the checks say, and whether they speak for the files as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewChecks {
    /// The verdict; `skipped` where there was none.
    pub status: VerificationStatus,
    /// Each check.
    pub checks: Vec<CheckResult>,
    /// The age of the last passing check against the last edit.
    pub freshness: Option<Freshness>,
    /// Files that a check is known to read and the task changed.
    pub tampered_inputs: Vec<BytePath>,
    /// Where those were taken from.
    pub verify_from: VerifyFrom,
}

/// What was decided about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostVerdict {
    /// It was reached.
    Reached,
    /// It was refused.
    Refused,
    /// It was allowed, and could not be reached.
    Failed,
}

/// A host that a task wanted to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewedHost {
    /// The host, or an address.
    pub host: String,
    /// The port.
    pub port: Option<u64>,
    /// What was decided.
    pub verdict: HostVerdict,
    /// Why, as the proxy names it.
    pub reason: Option<String>,
    /// The rule that decided.
    pub rule: Option<String>,
    /// How often.
    pub times: u64,
    /// Position of the first event about it.
    pub pos: u64,
}

/// Something that was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewedDenial {
    /// Who saw it, which rule, on what, what to do instead, and whether that is certain not to
    /// change.
    pub denial: Denial,
    /// How often.
    pub times: u64,
    /// The commands that tried.
    pub commands: Vec<String>,
    /// Position of the first event about it.
    pub pos: u64,
}

/// What became of a change of a protected name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectedOutcome {
    /// It was put back.
    Undone,
    /// It is among the changes; merging is refused unless it is allowed.
    InChanges,
}

/// A protected name that was touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewedName {
    /// The path.
    pub path: String,
    /// The rule that protects it.
    pub rule: Option<String>,
    /// What was done there.
    pub what: Option<String>,
    /// What became of it.
    pub outcome: ProtectedOutcome,
    /// Position of the event that shows it.
    pub pos: Option<u64>,
}

/// A change of the agent's own state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReviewedStateChange {
    /// One line for people.
    pub summary: String,
    /// The file, where one is named.
    pub path: Option<String>,
    /// Whether it came back to the owner's own state; `None` where that was not said.
    pub applied: Option<bool>,
    /// Position of the event that says it.
    pub pos: u64,
    /// All that the event says.
    pub data: Value,
}
