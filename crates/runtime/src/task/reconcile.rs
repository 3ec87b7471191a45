//! Tasks of planes that died: settled as interrupted, with their trees kept unless nothing ran in
//! them.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::outcome::{IsolationLevel, Status};
use cofferdam_core::spec::Network;
use cofferdam_core::task::{
    CleanupPolicy, CleanupStatus, DiffSummary, Merge, MergeStatus, TaskIsolation, TaskRequest,
    TaskResult, WorkspaceStrategy,
};
use cofferdam_exec::workspace::{OrphanKind, WorktreeRecord};
use serde_json::json;

use super::ledger::{Entry, Intended, Ledger};
use super::place;
use super::{settle, verify, words};
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// A task that a plane left behind when it died, as it was settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciled {
    /// The task's number.
    pub number: u64,
    /// Its goal.
    pub goal: String,
    /// What it is now.
    pub status: Status,
    /// What became of its place, in words.
    pub place: String,
}

/// The record of a tree, what became of the tree, and the same in words.
type SettledTree = (Option<WorktreeRecord>, CleanupStatus, String);

impl Runtime {
    /// Settles the tasks of planes that died, and says what became of each; also what such planes had
    /// begun to do with tasks that had ended, of which [`Runtime::take_notes`] tells.
    ///
    /// A task whose plane lives is left alone. A tree in which nothing ran is taken back. What was
    /// done in any other is brought in, inside the walls that the task had, so that it is on a branch
    /// and can be looked at; a tree in which nothing was done goes, any other stays until it is
    /// dropped, or goes at once where the task said so.
    ///
    /// # Errors
    ///
    /// When the journal cannot be read or written.
    pub fn reconcile(&self) -> Result<Vec<Reconciled>, Problem> {
        let said = self.settle_homes()?;
        self.note(&said);
        let ledger = Ledger::read(self.journal().as_ref(), false)?;
        let is_left = |entry: &&Entry| {
            entry.result.is_none()
                && !entry
                    .lease
                    .as_deref()
                    .is_some_and(|lease| self.is_alive(lease))
        };
        let is_cut_off = |intended: &&Intended| {
            let lease = intended.lease.as_deref();
            !lease.is_some_and(|lease| self.is_alive(lease))
        };
        let is_any =
            |entry: &Entry| is_left(&entry) || entry.intended.iter().any(|one| is_cut_off(&one));
        if !ledger.entries().iter().any(is_any) {
            return Ok(Vec::new());
        }
        let ledger = Ledger::read(self.journal().as_ref(), true)?;
        for entry in ledger.entries() {
            for intended in entry.intended.iter().filter(is_cut_off) {
                let said = self.settle_action(entry, intended)?;
                self.note(&[said]);
            }
        }
        ledger
            .entries()
            .iter()
            .filter(is_left)
            .map(|entry| self.settle(entry))
            .collect()
    }

    fn settle(&self, entry: &Entry) -> Result<Reconciled, Problem> {
        let (record, cleanup, place) = match &entry.record {
            None => (None, CleanupStatus::NotNeeded, "it had no tree".to_owned()),
            Some(record) => match self.settle_tree(entry, record) {
                Ok(settled) => settled,
                // What cannot be looked at stays.
                Err(problem) => (
                    Some(record.clone()),
                    CleanupStatus::KeptUnknown,
                    format!("its tree {} stays: {problem}", record.tree),
                ),
            },
        };
        let level = |level: Option<IsolationLevel>| {
            level.unwrap_or(IsolationLevel {
                provider: None,
                network: Network::None,
            })
        };
        let kept = cleanup != CleanupStatus::NotNeeded && cleanup != CleanupStatus::Removed;
        let harvest = record.as_ref().and_then(|record| record.harvest.as_ref());
        let asked = TaskRequest {
            goal: entry.goal.clone(),
            command: cofferdam_core::operation::CommandForm::Shell(entry.command.clone()),
            cwd: None,
            verify: Vec::new(),
            verify_from: cofferdam_core::task::VerifyFrom::Task,
            setup: Vec::new(),
            isolation_mode: entry.mode,
            workspace_strategy: WorkspaceStrategy::Ephemeral,
            cleanup_policy: entry.cleanup,
            carry: cofferdam_core::task::Carry::None,
            worker: None,
            timeout: None,
            idle_timeout: None,
            verify_timeout: None,
        };
        let problem = Problem::new(
            ErrorCode::EnclosureLost,
            format!(
                "its process died while it was {}; everything of it was ended",
                entry.state.as_str()
            ),
        );
        let has_branch = harvest.is_some_and(|one| one.branch.is_some());
        let problem = match (has_branch, kept) {
            (true, _) => problem.with_hint(format!("cofferdam review {}", entry.number)),
            (false, true) => problem.with_hint(format!(
                "cofferdam drop {} saves what is in its tree and removes it",
                entry.number
            )),
            (false, false) => problem,
        };
        let mut result = TaskResult {
            task_id: entry.task.clone(),
            conversation_id: entry.conversation(),
            number: entry.number,
            goal: entry.goal.clone(),
            status: Status::Interrupted,
            summary: String::new(),
            isolation: TaskIsolation {
                mode: entry.mode,
                workspace_path: record.as_ref().map(|record| record.tree.clone()),
                branch: harvest.and_then(|harvest| harvest.branch.clone()),
                base: record.as_ref().map(|record| record.base.oid.clone()),
                cleanup_status: cleanup,
                requested: level(entry.requested),
                effective: level(entry.effective),
                enforced_by: Vec::new(),
            },
            modified_files: harvest
                .map(|one| one.modified_files.clone())
                .unwrap_or_default(),
            git_diff_summary: harvest.map_or_else(DiffSummary::default, |one| one.summary.clone()),
            task_result: None,
            verification: verify::skipped(&asked),
            merge: Merge {
                status: if has_branch {
                    MergeStatus::NotRequested
                } else {
                    MergeStatus::Nothing
                },
                oid: None,
                conflicts: Vec::new(),
            },
            evidence: Vec::new(),
            left_behind: Vec::new(),
            error: Some(problem),
            next: Vec::new(),
        };
        result.summary = format!("interrupted while {}; {place}", entry.state.as_str());
        result.next = words::next(&result);
        let ended = |kind| {
            let subject = &entry.subject;
            Line::new(kind, subject, json!({"status": Status::Interrupted}))
        };
        let root = cofferdam_core::event::Subject {
            agent: entry.subject.root_agent.clone(),
            thread: None,
            task: None,
            ..entry.subject.clone()
        };
        let said = json!({
            "from": entry.subject.agent,
            "to": entry.subject.root_agent,
            "text": result.summary,
        });
        self.scribe.record(vec![
            Line::new(event_type::MESSAGE_SENT, &entry.subject, said),
            Line::new(event_type::TASK_ENDED, &entry.subject, to_value(&result)?)
                .severity(Severity::Error),
            ended(event_type::AGENT_ENDED),
            Line {
                subject: root.clone(),
                ..ended(event_type::AGENT_ENDED)
            },
            Line {
                subject: root,
                ..ended(event_type::CONVERSATION_ENDED)
            },
        ])?;
        Ok(Reconciled {
            number: entry.number,
            goal: entry.goal.clone(),
            status: Status::Interrupted,
            place,
        })
    }

    /// Finds out what is left of a tree; what lies on disk counts, not what was written down last.
    fn settle_tree(&self, entry: &Entry, record: &WorktreeRecord) -> Result<SettledTree, Problem> {
        let (workspaces, _) = self.workspaces_of(record)?;
        let found = workspaces.orphans()?.into_iter().find(|orphan| {
            let named = orphan.record.as_ref().map(|one| &one.record);
            named == Some(&record.record) || orphan.path == record.tree
        });
        let Some(orphan) = found else {
            if record.tree.as_path().exists() {
                return Ok((
                    Some(record.clone()),
                    CleanupStatus::KeptLive,
                    format!("its tree {} stays: somebody uses it", record.tree),
                ));
            }
            return Ok((
                None,
                CleanupStatus::NotNeeded,
                "its tree is gone".to_owned(),
            ));
        };
        let now = orphan.record.as_ref().map(|one| (**one).clone());
        if let Some(now) = &now {
            self.scribe
                .say(place::record_line(&entry.subject, "found", now)?)?;
        }
        Ok(match orphan.kind {
            OrphanKind::HalfMade if workspaces.take_back_half_made(&orphan)? => (
                None,
                CleanupStatus::Removed,
                "its tree was not ready and is taken back".to_owned(),
            ),
            OrphanKind::Missing => (now, CleanupStatus::NotNeeded, "its tree is gone".to_owned()),
            OrphanKind::Kept => (
                now,
                CleanupStatus::Kept,
                format!("its work is brought in, its tree {} stays", orphan.path),
            ),
            OrphanKind::Unharvested => return self.settle_unharvested(entry, now, &orphan.path),
            OrphanKind::HalfMade | OrphanKind::Foreign | OrphanKind::Unreadable => (
                now,
                CleanupStatus::KeptUnknown,
                format!(
                    "its tree {} stays: what it is could not be proved",
                    orphan.path
                ),
            ),
        })
    }

    /// Brings in what was done in the tree of a task that was cut off.
    fn settle_unharvested(
        &self,
        entry: &Entry,
        record: Option<WorktreeRecord>,
        path: &BytePath,
    ) -> Result<SettledTree, Problem> {
        let dirty = |record, why: String| {
            let place = format!("its tree {path} stays with what was done in it{why}");
            Ok((record, CleanupStatus::KeptDirty, place))
        };
        let Some(found) = &record else {
            return dirty(record, String::new());
        };
        let tree = match self.salvage(entry, found) {
            Ok(Some(tree)) => tree,
            Ok(None) => {
                let place = format!("its tree {path} stays: somebody is at work in it");
                return Ok((record, CleanupStatus::KeptLive, place));
            }
            Err(problem) => {
                let why = format!(", which could not be brought in: {problem}");
                return dirty(record, why);
            }
        };
        let Some(harvest) = &tree.record.harvest else {
            return dirty(Some(tree.record), String::new());
        };
        let of = (&entry.subject, entry.number);
        self.note(&self.hold_left(&tree.workspaces, &tree.record, of));
        if !harvest.modified_files.is_empty() {
            let mut data = settle::file_changes(&harvest.modified_files);
            data["task"] = entry.task.as_str().into();
            let line = Line::new(event_type::FILE_CHANGED, &entry.subject, data);
            self.scribe.say(line)?;
        }
        let saved = match &harvest.branch {
            Some(branch) => format!("its work is saved on {branch}"),
            None => "it changed nothing".to_owned(),
        };
        let is_empty = harvest.branch.is_none()
            && harvest
                .saved
                .iter()
                .all(cofferdam_exec::workspace::Saved::is_snapshot)
            && harvest.ignored.is_empty()
            && harvest.seeds_changed.is_empty();
        let goes = match entry.cleanup {
            CleanupPolicy::Always => true,
            CleanupPolicy::OnSuccess => is_empty,
            CleanupPolicy::Never => false,
        };
        let lasts = tree.record.strategy == WorkspaceStrategy::Persistent;
        if !goes || lasts {
            let place = format!("{saved}, its tree {path} stays");
            return Ok((Some(tree.record), CleanupStatus::Kept, place));
        }
        let receipt = tree.workspaces.remove(&tree.record, tree.lease)?;
        let line = Line::new(
            event_type::ISOLATION_REMOVED,
            &entry.subject,
            to_value(&receipt)?,
        );
        self.scribe.say(line)?;
        let place = match receipt.status() {
            CleanupStatus::Removed | CleanupStatus::NotNeeded => {
                format!("{saved}, its tree is removed")
            }
            _ => format!("{saved}, its tree {path} stays"),
        };
        Ok((Some(tree.record), receipt.status(), place))
    }
}
