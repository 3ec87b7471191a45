//! What is done with a task after it has ended.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::task::{DiffSummary, ModifiedFile};
use cofferdam_exec::workspace::TreeState;
use serde::Serialize;
use serde_json::{Value, json};

use super::ledger::{Act, Action, Entry, Ledger};
use super::overview::TaskOverview;
use crate::runtime::Runtime;
use crate::scribe::to_value;

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

/// What dropping a task came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskDropped {
    /// The task's number.
    pub number: u64,
    /// Under which references its work is kept.
    pub kept_under: Vec<String>,
    /// What became of its tree, in words.
    pub place: String,
    /// The top of the repository that it belongs to.
    pub repository: BytePath,
    /// The next commands.
    pub next: Vec<String>,
}

pub(crate) fn wrong_state(text: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::TaskState, text).with_hint(hint)
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
        let dropped = workspaces.plan_drop(&record)?;
        let begun = self.begin(&entry, Action::Drop, json!({"dropped": dropped}))?;
        if let Err(error) = workspaces.apply_drop(&record, &dropped) {
            return Err(begun.refuse(error.into()));
        }
        // What the branch held is saved now, so the tree may go; if it may not, that is told.
        let receipt = workspaces.remove(&record, lease);
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
        self.refuse_dropped(&entry.task, &record.branch)?;
        Ok(TaskDropped {
            number,
            kept_under: dropped
                .references
                .iter()
                .map(|one| one.reference.clone())
                .collect(),
            place,
            repository: record.top.clone(),
            next: vec![
                format!("cofferdam undo {number}"),
                "cofferdam task list".to_owned(),
            ],
        })
    }

    /// Finds a task with the record of its tree.
    pub(crate) fn entry(&self, name: &str) -> Result<Entry, Problem> {
        let ledger = Ledger::read(self.journal().as_ref(), true)?;
        ledger.find(name).cloned()
    }
}

/// Refuses a task that has not ended.
pub(crate) fn ended(entry: &Entry) -> Result<(), Problem> {
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
