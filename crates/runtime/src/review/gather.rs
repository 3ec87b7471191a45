//! From the events of a task to its review.

use std::collections::BTreeSet;

use cofferdam_core::approval::Approval;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::event::{Event, EventFilter};
use cofferdam_core::id::TaskId;
use cofferdam_core::limits;
use cofferdam_core::operation::ListApprovals;
use cofferdam_core::outbox::Outbox;
use cofferdam_core::outcome::Status;
use cofferdam_core::plan::TOP_LEVEL_NAMES;
use cofferdam_core::task::{
    CleanupStatus, IsolationMode, Merge, MergeStatus, TaskResult, Verification, VerificationStatus,
    VerifyFrom,
};
use cofferdam_exec::workspace::{Harvest, WorktreeRecord};
use cofferdam_journal::Query;
use cofferdam_visibility::{State, TaskEvidence};

use super::model::{
    ProtectedOutcome, ReviewChanges, ReviewChecks, ReviewedCommand, ReviewedCommit, ReviewedFile,
    ReviewedName, TaskReview,
};
use super::told::Told;
use crate::outbox;
use crate::runtime::Runtime;
use crate::task::{DiffForm, Entry, Ledger, TaskState, rescued};

/// Commits that are listed.
const COMMITS: usize = 50;
/// Ignored places that are named; the rest is counted.
const IGNORED: usize = 8;

impl Runtime {
    /// Gives everything there is to be looked at about one task; with the patch where that is wanted.
    ///
    /// A task that still runs is shown as far as it is.
    ///
    /// # Errors
    ///
    /// When there is no such task, or the journal cannot be read.
    pub fn review(&self, name: &str, patch: bool) -> Result<TaskReview, Problem> {
        let entry = self.entry(name)?;
        let waiting = Waiting::read(self)?;
        self.review_entry(&entry, &waiting, patch)
    }

    /// Gives the same for every task about which somebody has to decide, oldest first.
    ///
    /// # Errors
    ///
    /// When the journal cannot be read.
    pub fn review_open(&self, patch: bool) -> Result<Vec<TaskReview>, Problem> {
        let ledger = Ledger::read(self.journal().as_ref(), true)?;
        let waiting = Waiting::read(self)?;
        ledger
            .entries()
            .iter()
            .filter(|entry| is_open(entry) || may_hold_state(entry) || waiting.has(&entry.task))
            .map(|entry| self.review_entry(entry, &waiting, patch))
            .filter(|review| review.as_ref().map_or(true, |review| review.open))
            .collect()
    }

    fn review_entry(
        &self,
        entry: &Entry,
        waiting: &Waiting,
        patch: bool,
    ) -> Result<TaskReview, Problem> {
        let mut state = State::default();
        let mut told = Told::default();
        self.each_of_task(entry, |event| {
            state.apply(event);
            told.take(event);
        })?;
        let result = entry.result_now();
        let evidence = state.evidence(entry.task.as_str());
        let record = entry.record.as_ref();
        let harvest = record.and_then(|record| record.harvest.as_ref());
        let mut notes = told.notes;
        let mut changes = changes(result.as_ref(), evidence.as_ref(), &told.kinds);
        changes.commits = match record.zip(harvest) {
            Some((record, harvest)) if harvest.own_commits > 0 => {
                self.commits(record).unwrap_or_else(|problem| {
                    notes.push(format!("its commits cannot be listed: {problem}"));
                    Vec::new()
                })
            }
            _ => Vec::new(),
        };
        if patch && !changes.files.is_empty() {
            match self.diff(entry.task.as_str(), DiffForm::Patch) {
                Ok(diff) => {
                    changes.patch = Some(String::from_utf8_lossy(&diff.patch).into_owned());
                    changes.patch_bytes = diff.patch;
                }
                Err(problem) => changes.patch_problem = Some(problem),
            }
        }
        let mut protected = told.undone;
        protected.extend(in_changes(&changes));
        let outcome = result.as_ref().and_then(|one| one.task_result.as_ref());
        let mut review = TaskReview {
            task_id: entry.task.clone(),
            number: entry.number,
            goal: entry.goal.clone(),
            command: entry.command.clone(),
            state: entry.state,
            status: result.as_ref().map_or(Status::Running, |one| one.status),
            summary: result.as_ref().map_or_else(
                || entry.state.as_str().to_owned(),
                |one| one.summary.clone(),
            ),
            return_code: outcome.and_then(|outcome| outcome.return_code),
            elapsed_ms: outcome.map(|outcome| outcome.elapsed_ms),
            open: is_open(entry)
                || (may_hold_state(entry) && holds_state(&told.agent_state))
                || waiting.has(&entry.task),
            isolation: result.as_ref().map(|one| one.isolation.clone()),
            checks: checks(
                result.as_ref().map(|one| &one.verification),
                evidence.as_ref(),
            ),
            changes,
            hosts: told.hosts,
            denials: told.denials,
            protected,
            agent_state: told.agent_state,
            held: outbox::of_task(&waiting.outbox, &entry.task),
            questions: waiting.questions_of(&entry.task),
            left_behind: result
                .as_ref()
                .map(|one| one.left_behind.clone())
                .unwrap_or_default(),
            not_brought_in: harvest.map(not_brought_in).unwrap_or_default(),
            notes,
            merge: result.as_ref().map_or_else(
                || Merge {
                    status: MergeStatus::NotRequested,
                    oid: None,
                    conflicts: Vec::new(),
                },
                |one| one.merge.clone(),
            ),
            error: result.as_ref().and_then(|one| one.error.clone()),
            next: Vec::new(),
        };
        // What is said in its own place is not said again among the notes.
        let said = [&review.not_brought_in, &told.said];
        review
            .notes
            .retain(|note| !said.iter().any(|said| said.contains(note)));
        let ids: Vec<_> = review
            .held
            .iter()
            .map(|one| one.proposal.proposal_id.as_str())
            .collect();
        review
            .notes
            .retain(|note| !ids.iter().any(|id| note.contains(id)));
        review.next = next(&review);
        Ok(review)
    }

    fn commits(&self, record: &WorktreeRecord) -> Result<Vec<ReviewedCommit>, Problem> {
        let (workspaces, _) = self.workspaces_of(record)?;
        let commits = workspaces.commits(record, COMMITS)?;
        // The last one may be the plane's own, which holds what the task had not committed.
        let own = record.harvest.as_ref().filter(|one| one.uncommitted);
        Ok(commits
            .into_iter()
            .filter(|one| own.is_none_or(|harvest| harvest.commit != one.oid))
            .map(|one| ReviewedCommit {
                oid: one.oid,
                subject: one.subject,
                files: one.files,
            })
            .collect())
    }

    fn each_of_task(&self, entry: &Entry, mut with: impl FnMut(&Event)) -> Result<(), Problem> {
        let filter = EventFilter {
            task: Some(entry.task.clone()),
            ..EventFilter::default()
        };
        let mut query = Query::of(filter).limit(limits::PAGE_EVENTS_CAP).resolved();
        loop {
            let page = self
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            page.events.iter().for_each(&mut with);
            match page.next() {
                Some(pos) => query.after = Some(pos),
                None => return Ok(()),
            }
        }
    }
}

/// What waits for the owner's word, of all tasks.
struct Waiting {
    outbox: Outbox,
    questions: Vec<Approval>,
}

impl Waiting {
    fn read(runtime: &Runtime) -> Result<Self, Problem> {
        let page = runtime.approvals(&ListApprovals::default())?;
        Ok(Self {
            outbox: runtime.outbox()?,
            questions: page.approvals,
        })
    }

    fn questions_of(&self, task: &TaskId) -> Vec<Approval> {
        let is_of = |one: &&Approval| one.ask.binding.task.as_ref() == Some(task);
        self.questions.iter().rev().filter(is_of).cloned().collect()
    }

    /// Tells whether something of a task waits to leave.
    fn has(&self, task: &TaskId) -> bool {
        outbox::waits(&self.outbox, task)
    }
}

/// Tells whether somebody has to decide about a task: it runs, its branch waits, or work of it lies
/// in a tree that was not brought in.
fn is_open(entry: &Entry) -> bool {
    let Some(result) = entry.result_now() else {
        return true;
    };
    match result.merge.status {
        MergeStatus::Merged | MergeStatus::Dropped => false,
        MergeStatus::NotRequested
        | MergeStatus::Conflict
        | MergeStatus::Refused
        | MergeStatus::Undone => result.isolation.branch.is_some(),
        MergeStatus::Nothing => {
            result.isolation.mode == IsolationMode::Worktree && has_unsaved_tree(&result)
        }
    }
}

/// Tells whether nothing but changes of the agent's own state may wait for somebody: nobody decided
/// about the task yet, and its evidence names such changes.
fn may_hold_state(entry: &Entry) -> bool {
    let decided = [MergeStatus::Merged, MergeStatus::Dropped];
    entry.result_now().is_some_and(|result| {
        !decided.contains(&result.merge.status)
            && result.evidence.iter().any(|one| one.kind == "agent_state")
    })
}

/// Tells whether a change of the agent's state was not applied.
fn holds_state(changes: &[super::ReviewedStateChange]) -> bool {
    changes.iter().any(|change| change.applied == Some(false))
}

fn has_unsaved_tree(result: &TaskResult) -> bool {
    matches!(
        result.isolation.cleanup_status,
        CleanupStatus::KeptDirty | CleanupStatus::KeptUnknown
    )
}

fn changes(
    result: Option<&TaskResult>,
    evidence: Option<&TaskEvidence>,
    kinds: &[(String, String)],
) -> ReviewChanges {
    let by = |path: &BytePath| {
        let path = path.to_string();
        evidence
            .and_then(|one| one.files.iter().find(|file| file.path == path))
            .map(|file| file.commands.clone())
            .unwrap_or_default()
    };
    let files = result.map(|one| one.modified_files.as_slice());
    ReviewChanges {
        summary: result
            .map(|one| one.git_diff_summary.clone())
            .unwrap_or_default(),
        files: files
            .unwrap_or_default()
            .iter()
            .map(|file| ReviewedFile {
                protected: std::iter::once(&file.path)
                    .chain(&file.from)
                    .any(|path| rule_of(path).is_some()),
                commands: by(&file.path),
                file: file.clone(),
            })
            .collect(),
        commands: evidence
            .map(|one| one.commands.as_slice())
            .unwrap_or_default()
            .iter()
            .map(|one| ReviewedCommand {
                kind: kinds
                    .iter()
                    .find(|(id, _)| *id == one.command_id)
                    .map_or_else(|| "command".to_owned(), |(_, kind)| kind.clone()),
                command_id: one.command_id.clone(),
                command: one.command.clone(),
                status: one.status,
                return_code: one.return_code,
                elapsed_ms: one.elapsed_ms,
                files: one.files.clone(),
                denials: one.denials,
            })
            .collect(),
        ..ReviewChanges::default()
    }
}

/// Gives the rule that protects a path below the top of a tree.
fn rule_of(path: &BytePath) -> Option<&'static str> {
    TOP_LEVEL_NAMES
        .iter()
        .find(|entry| path.is_within(&BytePath::from(entry.name)))
        .map(|entry| entry.rule)
}

fn in_changes(changes: &ReviewChanges) -> Vec<ReviewedName> {
    let mut seen = BTreeSet::new();
    changes
        .files
        .iter()
        .filter(|file| file.protected)
        .flat_map(|file| {
            std::iter::once(&file.file.path)
                .chain(&file.file.from)
                .map(|path| (path, file.file.change))
        })
        .filter_map(|(path, change)| {
            let rule = rule_of(path)?;
            seen.insert(path.to_string()).then(|| ReviewedName {
                path: path.to_string(),
                rule: Some(rule.to_owned()),
                what: serde_json::to_value(change)
                    .ok()
                    .and_then(|word| word.as_str().map(str::to_owned)),
                outcome: ProtectedOutcome::InChanges,
                pos: None,
            })
        })
        .collect()
}

fn checks(verification: Option<&Verification>, evidence: Option<&TaskEvidence>) -> ReviewChecks {
    let freshness = evidence
        .map(|one| one.freshness.clone())
        .filter(|_| verification.is_some_and(|one| !one.checks.is_empty()));
    match verification {
        Some(one) => ReviewChecks {
            status: one.status,
            checks: one.checks.clone(),
            freshness,
            tampered_inputs: one.tampered_inputs.clone(),
            verify_from: one.verify_from,
        },
        None => ReviewChecks {
            status: VerificationStatus::Skipped,
            checks: Vec::new(),
            freshness,
            tampered_inputs: Vec::new(),
            verify_from: VerifyFrom::Task,
        },
    }
}

/// Says what in a tree did not come in.
fn not_brought_in(harvest: &Harvest) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    if !harvest.ignored.is_empty() {
        let mut names: Vec<String> = harvest
            .ignored
            .iter()
            .take(IGNORED)
            .map(ToString::to_string)
            .collect();
        if let Some(more) = harvest.ignored.len().checked_sub(IGNORED + 1) {
            names.push(format!("and {} more", more + 1));
        }
        lines.push(format!("git ignores {}", names.join(", ")));
    }
    // In the words in which the end of the task tells them.
    lines.extend(rescued(harvest));
    for saved in harvest.saved.iter().filter(|one| !one.is_snapshot()) {
        lines.push(format!("{} is kept under {}", saved.name, saved.reference));
    }
    for unsaved in &harvest.unsaved {
        lines.push(format!("{} is not saved: {}", unsaved.path, unsaved.why));
    }
    for path in &harvest.seeds_changed {
        lines.push(format!(
            "{path} was copied in and changed; that is not brought in"
        ));
    }
    for what in &harvest.in_progress {
        lines.push(format!("a {what} was not finished"));
    }
    lines
}

fn next(review: &TaskReview) -> Vec<String> {
    let number = review.number;
    let mut commands = decisions(review);
    // The path is the agent's word: one that a shell would take apart is not put into a command.
    let is_plain = |path: &&str| {
        path.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte))
    };
    let mut held = review
        .agent_state
        .iter()
        .filter(|change| change.applied == Some(false))
        .filter_map(|change| change.path.as_deref())
        .filter(is_plain);
    if let Some(path) = held.next() {
        commands.push(format!("cofferdam review {number} --apply-state {path}"));
    }
    if review.held.iter().any(|one| one.state.waits()) {
        commands.push(format!("cofferdam outbox release {number}"));
    }
    for question in &review.questions {
        let id = &question.ask.approval_id;
        commands.push(format!("cofferdam approvals show {id}"));
    }
    commands
}

/// Gives the commands by which somebody decides about a task.
fn decisions(review: &TaskReview) -> Vec<String> {
    let number = review.number;
    let of = |verb: &str| format!("cofferdam {verb} {number}");
    if review.state != TaskState::Settled {
        return vec![
            format!("cofferdam events --follow --task {number}"),
            of("stop"),
        ];
    }
    match review.merge.status {
        MergeStatus::Merged => return vec![of("undo"), of("drop")],
        MergeStatus::Dropped => return vec![of("undo")],
        _ => {}
    }
    let has_branch = review
        .isolation
        .as_ref()
        .is_some_and(|isolation| isolation.branch.is_some());
    if !has_branch {
        return if review.open {
            vec![of("drop"), of("evidence")]
        } else {
            vec![of("task show"), of("evidence")]
        };
    }
    let is_good = review.status == Status::Completed
        && review.error.is_none()
        && matches!(
            review.checks.status,
            VerificationStatus::Passed | VerificationStatus::Skipped
        );
    let is_held = |name: &ReviewedName| name.outcome == ProtectedOutcome::InChanges;
    let merge = if review.protected.iter().any(is_held) {
        of("merge --allow-protected")
    } else {
        of("merge")
    };
    if is_good {
        vec![merge, of("drop")]
    } else {
        vec![of("drop"), merge]
    }
}
