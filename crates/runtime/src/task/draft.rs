//! A result while it comes about, and the words that begin and end a task in the journal.

use cofferdam_core::error::Problem;
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel, Status};
use cofferdam_core::task::{
    CleanupStatus, DiffSummary, Merge, MergeStatus, ModifiedFile, TaskIsolation, TaskRequest,
    TaskResult, Verification, VerificationStatus,
};
use serde_json::json;

use super::course::Course;
use super::overview::TaskState;
use super::{verify, words};
use crate::refusal;
use crate::scribe::{Line, to_value};

/// What is known of a result while it comes about.
pub(crate) struct Draft {
    pub(crate) status: Status,
    pub(crate) isolation: TaskIsolation,
    pub(crate) files: Vec<ModifiedFile>,
    pub(crate) summary: DiffSummary,
    pub(crate) outcome: Option<CommandOutcome>,
    pub(crate) verification: Verification,
    pub(crate) merge: MergeStatus,
    pub(crate) error: Option<Problem>,
    /// Whether anything of the task's, set-up included, ran in its place.
    pub(crate) touched: bool,
    /// Whether it was told command by command which files changed.
    pub(crate) is_credited: bool,
}

impl Draft {
    pub(crate) fn new(asked: &TaskRequest, requested: IsolationLevel) -> Self {
        let nothing = refusal::no_walls(requested, 0);
        Self {
            status: Status::Error,
            isolation: TaskIsolation {
                mode: asked.isolation_mode,
                workspace_path: None,
                branch: None,
                base: None,
                cleanup_status: CleanupStatus::NotNeeded,
                requested,
                effective: nothing.effective,
                enforced_by: Vec::new(),
            },
            files: Vec::new(),
            summary: DiffSummary {
                text: words::figures(&DiffSummary::default()),
                ..DiffSummary::default()
            },
            outcome: None,
            verification: verify::skipped(asked),
            merge: MergeStatus::Nothing,
            error: None,
            touched: false,
            is_credited: false,
        }
    }

    pub(crate) fn fail(&mut self, problem: Problem) {
        if self.outcome.is_none() {
            self.status = Status::of_refusal(problem.code);
        }
        self.error.get_or_insert(problem);
    }

    pub(crate) fn is_good(&self) -> bool {
        self.status == Status::Completed
            && self.error.is_none()
            && matches!(
                self.verification.status,
                VerificationStatus::Passed | VerificationStatus::Skipped
            )
    }
}

impl Course<'_> {
    pub(crate) fn opening_lines(&self, asked: &TaskRequest) -> Result<Vec<Line>, Problem> {
        let mut created = to_value(asked)?;
        created["lease"] = self.runtime.plane.lease().as_str().into();
        let name = asked
            .worker
            .clone()
            .unwrap_or_else(|| words::worker_name(&asked.goal));
        let message = if asked.goal.is_empty() {
            asked.command.summary()
        } else {
            asked.goal.clone()
        };
        Ok(vec![
            Line::new(event_type::TASK_CREATED, &self.subject, created),
            Line::new(
                event_type::AGENT_STARTED,
                &self.subject,
                json!({"name": name, "role": "worker", "parent": self.who.root}),
            ),
            Line::new(
                event_type::MESSAGE_SENT,
                &self.subject,
                json!({"from": self.who.root, "to": self.worker, "text": message}),
            ),
        ])
    }

    pub(crate) fn closing_lines(&self, result: &TaskResult) -> Result<Vec<Line>, Problem> {
        let severity = match (result.status, result.exit_code()) {
            (_, 0) => Severity::Info,
            (Status::Error | Status::Denied | Status::Interrupted, _) => Severity::Error,
            _ => Severity::Warning,
        };
        Ok(vec![
            Line::new(
                event_type::MESSAGE_SENT,
                &self.subject,
                json!({"from": self.worker, "to": self.who.root, "text": result.summary}),
            ),
            Line::new(event_type::TASK_ENDED, &self.subject, to_value(result)?).severity(severity),
            Line::new(
                event_type::AGENT_ENDED,
                &self.subject,
                json!({"status": result.status}),
            ),
        ])
    }

    pub(crate) fn conclude(&mut self, asked: &TaskRequest, draft: Draft) -> TaskResult {
        for note in std::mem::take(&mut self.notes) {
            self.say(event_type::LOG_LINE, Severity::Info, json!({"text": note}));
        }
        self.enter(TaskState::Settled);
        let mut result = TaskResult {
            task_id: self.task.clone(),
            conversation_id: self.who.conversation.clone(),
            number: self.number,
            goal: asked.goal.clone(),
            status: draft.status,
            summary: String::new(),
            isolation: draft.isolation,
            modified_files: draft.files,
            git_diff_summary: draft.summary,
            task_result: draft.outcome,
            verification: draft.verification,
            merge: Merge {
                status: draft.merge,
                oid: None,
                conflicts: Vec::new(),
            },
            evidence: std::mem::take(&mut self.evidence),
            left_behind: std::mem::take(&mut self.left_behind),
            error: draft.error.or_else(|| self.trouble.clone()),
            next: Vec::new(),
        };
        result.summary = words::sentence(&result);
        result.next = words::next(&result);
        result
    }
}
