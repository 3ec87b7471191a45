//! What is done with a task after it has ended.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::plan::TOP_LEVEL_NAMES;
use cofferdam_core::task::{DiffSummary, Merge, MergeStatus, ModifiedFile};
use cofferdam_exec::workspace::{MergeRequest, TreeState, WorkspaceError};
use serde::Serialize;
use serde_json::{Value, json};

use super::ledger::{Act, Entry, Ledger};
use super::overview::TaskOverview;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// What a task changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskDiff {
    /// The task's number.
    pub number: u64,
    /// Every file.
    pub files: Vec<ModifiedFile>,
    /// In figures.
    pub summary: DiffSummary,
    /// The patch, as git writes it; not always UTF-8. Empty where only figures were asked for.
    #[serde(skip)]
    pub patch: Vec<u8>,
}

/// How a diff is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffForm {
    /// As a patch.
    Patch,
    /// Figures only.
    Stat,
}

/// How a task is merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// The branch that takes it; the one from which the task began when there is none.
    pub into: Option<String>,
    /// Whether names that the host's tools execute or obey may change.
    pub allow_protected: bool,
}

/// What a merge came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskMerge {
    /// The task's number.
    pub number: u64,
    /// What became of it.
    pub merge: Merge,
    /// The branch that it went into.
    pub into: Option<String>,
    /// Why not, where it did not.
    pub problem: Option<Problem>,
    /// The next commands.
    pub next: Vec<String>,
}

/// What dropping a task came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskDropped {
    /// The task's number.
    pub number: u64,
    /// Under which references its work is kept.
    pub kept_under: Vec<String>,
    /// What became of its tree, in words.
    pub place: String,
    /// The next commands.
    pub next: Vec<String>,
}

/// What taking back came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskUndone {
    /// The task's number.
    pub number: u64,
    /// What was taken back, in words.
    pub what: String,
    /// The next commands.
    pub next: Vec<String>,
}

fn wrong_state(text: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::TaskState, text).with_hint(hint)
}

/// An action that has begun.
struct Begun<'a> {
    runtime: &'a Runtime,
    entry: &'a Entry,
    action: &'static str,
    id: String,
}

impl Begun<'_> {
    /// Writes down what an action came to. It happened, whatever the journal says.
    fn end(&self, status: &str, mut data: Value) -> Result<(), Problem> {
        data["action_id"] = self.id.as_str().into();
        data["action"] = self.action.into();
        data["status"] = status.into();
        let severity = if status == "done" {
            Severity::Info
        } else {
            Severity::Warning
        };
        let line = Line::new(event_type::TASK_ACTION_ENDED, &self.entry.subject, data);
        self.runtime.scribe.say(line.severity(severity)).map(drop)
    }

    fn refuse(&self, problem: &Problem) -> Result<(), Problem> {
        self.end("refused", json!({"problem": problem}))
    }
}

impl Runtime {
    /// Lists every task, oldest first.
    pub fn tasks(&self) -> Result<Vec<TaskOverview>, Problem> {
        let ledger = Ledger::read(self.journal().as_ref(), true)?;
        Ok(ledger.entries().iter().map(Entry::overview).collect())
    }

    /// Finds a task by its number, its id, or the beginning of it.
    pub fn task(&self, name: &str) -> Result<TaskOverview, Problem> {
        self.entry(name).map(|entry| entry.overview())
    }

    /// Shows what a task changed, from where it began.
    pub fn diff(&self, name: &str, form: DiffForm) -> Result<TaskDiff, Problem> {
        let entry = self.entry(name)?;
        ended(&entry)?;
        let Some(result) = entry.result_now() else {
            return Err(unknown_end(&entry));
        };
        let mut diff = TaskDiff {
            number: entry.number,
            files: result.modified_files.clone(),
            summary: result.git_diff_summary.clone(),
            patch: Vec::new(),
        };
        if form == DiffForm::Stat {
            return Ok(diff);
        }
        let Some(record) = &entry.record else {
            return Err(wrong_state(
                format!(
                    "task {} worked in your own checkout (isolation {})",
                    entry.number,
                    entry.mode.as_str()
                ),
                "git diff shows what differs there now",
            ));
        };
        if record.harvest.is_none() {
            return Err(wrong_state(
                format!("what task {} did is not brought in", entry.number),
                format!("look at its tree, {}", record.tree),
            ));
        }
        let (workspaces, _) = self.workspaces_of(record)?;
        diff.patch = workspaces.diff(record)?;
        Ok(diff)
    }

    /// Merges a task's branch into the branch from which it began, or another one.
    ///
    /// A conflict, a target that moved and a dirty checkout are results with a problem; nothing is
    /// touched then.
    ///
    /// # Errors
    ///
    /// When there is no such task, or it is not in a state in which it can be merged.
    pub fn merge(&self, name: &str, options: &MergeOptions) -> Result<TaskMerge, Problem> {
        let entry = self.entry(name)?;
        ended(&entry)?;
        let number = entry.number;
        if let Some(Act::Dropped(_)) = entry.last_act() {
            return Err(wrong_state(
                format!("task {number} was dropped"),
                format!("cofferdam undo {number}"),
            ));
        }
        let harvested = entry.record.as_ref().and_then(|record| {
            let harvest = record.harvest.as_ref()?;
            harvest.branch.as_ref().map(|_| record)
        });
        let plain = |status| Merge {
            status,
            oid: None,
            conflicts: Vec::new(),
        };
        let Some(record) = harvested else {
            return Ok(TaskMerge {
                number,
                merge: plain(MergeStatus::Nothing),
                into: None,
                problem: None,
                next: vec![format!("cofferdam task show {number}")],
            });
        };
        let (workspaces, _) = self.workspaces_of(record)?;
        let begun = self.begin(&entry, "merge")?;
        let protected = if options.allow_protected {
            Vec::new()
        } else {
            TOP_LEVEL_NAMES
                .iter()
                .map(|entry| BytePath::from(entry.name))
                .collect()
        };
        let title = if entry.goal.is_empty() {
            &entry.command
        } else {
            &entry.goal
        };
        let request = MergeRequest {
            target: options.into.clone(),
            message: format!("Merge task {number}: {title}"),
            protected,
        };
        match workspaces.merge(record, &request) {
            Ok(merged) => {
                let status = if merged.old == merged.new {
                    MergeStatus::Nothing
                } else {
                    MergeStatus::Merged
                };
                let merge = Merge {
                    oid: Some(merged.new.clone()),
                    ..plain(status)
                };
                // What moved nothing cannot be taken back either.
                let done = if status == MergeStatus::Merged {
                    "done"
                } else {
                    "nothing"
                };
                begun.end(done, json!({"merged": merged, "merge": merge}))?;
                let into = merged.target.trim_start_matches("refs/heads/").to_owned();
                Ok(TaskMerge {
                    number,
                    merge,
                    into: Some(into),
                    problem: None,
                    next: vec![
                        format!("cofferdam undo {number}"),
                        format!("cofferdam drop {number}"),
                    ],
                })
            }
            Err(error) => {
                let merge = match &error {
                    WorkspaceError::MergeConflict { files } => Merge {
                        conflicts: files.clone(),
                        ..plain(MergeStatus::Conflict)
                    },
                    _ => plain(MergeStatus::Refused),
                };
                let problem = Problem::from(error);
                begun.end("refused", json!({"problem": problem, "merge": merge}))?;
                Ok(TaskMerge {
                    number,
                    merge,
                    into: None,
                    problem: Some(problem),
                    next: vec![
                        format!("cofferdam review {number}"),
                        format!("cofferdam merge {number}"),
                    ],
                })
            }
        }
    }

    /// Drops a task: its tree and its branch go, its work stays under a reference.
    ///
    /// Work that is not brought in yet, as after a crash, is brought in first.
    ///
    /// # Errors
    ///
    /// When there is no such task, it has nothing of its own, or what it did cannot be saved.
    pub fn drop_task(&self, name: &str) -> Result<TaskDropped, Problem> {
        let entry = self.entry(name)?;
        ended(&entry)?;
        let number = entry.number;
        if let Some(Act::Dropped(_)) = entry.last_act() {
            return Err(wrong_state(
                format!("task {number} was dropped already"),
                format!("cofferdam undo {number}"),
            ));
        }
        let Some(record) = &entry.record else {
            return Err(wrong_state(
                format!("task {number} has no tree and no branch to drop"),
                "what it changed is in your checkout: git status",
            ));
        };
        let (workspaces, _) = self.workspaces_of(record)?;
        let begun = self.begin(&entry, "drop")?;
        let work = || -> Result<_, Problem> {
            let mut record = record.clone();
            let mut lease = None;
            let is_there = record.tree.as_path().is_dir();
            if record.state == TreeState::Ready && record.harvest.is_none() && is_there {
                let Some(tree) = self.salvage(&entry, &record)? else {
                    return Err(wrong_state(
                        format!("somebody is at work in the tree of task {number}"),
                        format!("cofferdam drop {number}, when that has ended"),
                    ));
                };
                (record, lease) = (tree.record, tree.lease);
            }
            let dropped = workspaces.drop_task(&record)?;
            // What the branch held is saved now, so the tree may go; if it may not, that is told.
            let receipt = workspaces.remove(&record, lease);
            Ok((dropped, receipt))
        };
        let (dropped, receipt) = match work() {
            Ok(done) => done,
            Err(problem) => {
                begun.refuse(&problem)?;
                return Err(problem);
            }
        };
        let (place, receipt) = match receipt {
            Ok(receipt) => {
                use cofferdam_core::task::CleanupStatus::{NotNeeded, Removed};
                let place = match receipt.status() {
                    Removed => format!("{} is removed", receipt.path),
                    NotNeeded => "its tree was gone already".to_owned(),
                    _ => {
                        let why = to_value(&receipt.result)?;
                        let why = why.get("why").or_else(|| why.get("what"));
                        let why = why.and_then(Value::as_str).unwrap_or("not known");
                        format!("{} stays: {why}", receipt.path)
                    }
                };
                (place, to_value(&receipt)?)
            }
            Err(error) => (format!("its tree stays: {error}"), Value::Null),
        };
        begun.end("done", json!({"dropped": dropped, "receipt": receipt}))?;
        Ok(TaskDropped {
            number,
            kept_under: dropped
                .references
                .iter()
                .map(|one| one.reference.clone())
                .collect(),
            place,
            next: vec![
                format!("cofferdam undo {number}"),
                "cofferdam task list".to_owned(),
            ],
        })
    }

    /// Takes back the last merge or drop of a task.
    ///
    /// # Errors
    ///
    /// When there is nothing to take back, or what it would be taken back from has moved on.
    pub fn undo(&self, name: &str) -> Result<TaskUndone, Problem> {
        let entry = self.entry(name)?;
        let number = entry.number;
        let nothing = || {
            wrong_state(
                format!("nothing of task {number} can be taken back"),
                "only a merge and a drop can be",
            )
        };
        let Some(record) = &entry.record else {
            return Err(nothing());
        };
        let (action, what) = match entry.last_act() {
            Some(Act::Merged(merged)) => (
                "undo_merge",
                format!(
                    "the merge into {}",
                    merged.target.trim_start_matches("refs/heads/")
                ),
            ),
            Some(Act::Dropped(_)) => ("undo_drop", "the drop; its branch is back".to_owned()),
            _ => return Err(nothing()),
        };
        let (workspaces, _) = self.workspaces_of(record)?;
        let begun = self.begin(&entry, action)?;
        let outcome = match entry.last_act() {
            Some(Act::Merged(merged)) => workspaces
                .undo_merge(record, merged)
                .map(|back| json!({"merged": back})),
            Some(Act::Dropped(dropped)) => workspaces
                .undo_drop(record, dropped)
                .map(|()| json!({"dropped": dropped})),
            _ => return Err(nothing()),
        };
        match outcome {
            Ok(data) => begun.end("done", data)?,
            Err(error) => {
                let problem = Problem::from(error);
                begun.refuse(&problem)?;
                return Err(problem);
            }
        }
        Ok(TaskUndone {
            number,
            what,
            next: vec![
                format!("cofferdam review {number}"),
                format!("cofferdam merge {number}"),
            ],
        })
    }

    /// Finds a task with the record of its tree.
    pub(crate) fn entry(&self, name: &str) -> Result<Entry, Problem> {
        let ledger = Ledger::read(self.journal().as_ref(), true)?;
        ledger.find(name).cloned()
    }

    fn begin<'a>(&'a self, entry: &'a Entry, action: &'static str) -> Result<Begun<'a>, Problem> {
        let (time, random) = self.plane.ambient().id_parts();
        let id = cofferdam_core::id::OperationId::new(time, random).to_string();
        let data = json!({
            "lease": self.plane.lease(),
            "action_id": id,
            "action": action,
        });
        let line = Line::new(event_type::TASK_ACTION_INTENDED, &entry.subject, data);
        self.scribe.say(line)?;
        Ok(Begun {
            runtime: self,
            entry,
            action,
            id,
        })
    }
}

/// Refuses a task that has not ended.
fn ended(entry: &Entry) -> Result<(), Problem> {
    if entry.result.is_some() {
        Ok(())
    } else {
        Err(unknown_end(entry))
    }
}

fn unknown_end(entry: &Entry) -> Problem {
    wrong_state(
        format!(
            "task {} has not ended, it is {}",
            entry.number,
            entry.state.as_str()
        ),
        "wait for it, or stop it where it runs",
    )
}
