//! Merging a task, and taking a merge or a drop back.

use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::outbox::Held;
use cofferdam_core::plan::TOP_LEVEL_NAMES;
use cofferdam_core::task::{Merge, MergeStatus};
use cofferdam_exec::workspace::{MergeRequest, Merged, WorkspaceError, Workspaces, WorktreeRecord};
use serde::Serialize;
use serde_json::json;

use super::actions::{ended, wrong_state};
use super::ledger::{Act, Action, Entry, Ledger};
use crate::runtime::Runtime;

/// How a task is merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// The branch that takes it; the one from which the task began when there is none.
    pub into: Option<String>,
    /// Whether names that the host's tools execute or obey may change.
    pub allow_protected: bool,
    /// A directory in the repository that is meant; the merge is refused where the task belongs to
    /// another one. `None` where nobody could mean another.
    pub from: Option<PathBuf>,
}

/// What a merge came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskMerge {
    /// The task's number.
    pub number: u64,
    /// What became of it.
    pub merge: Merge,
    /// Whether the branch had all of it before.
    pub already: bool,
    /// The branch that it went into.
    pub into: Option<String>,
    /// The top of the repository that was changed.
    pub repository: Option<BytePath>,
    /// The push of that branch, where one was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushed: Option<Held>,
    /// Why not, where it did not.
    pub problem: Option<Problem>,
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
    /// The top of the repository that was changed.
    pub repository: BytePath,
    /// The next commands.
    pub next: Vec<String>,
}

fn short(reference: &str) -> String {
    reference.trim_start_matches("refs/heads/").to_owned()
}

const fn plain(status: MergeStatus) -> Merge {
    Merge {
        status,
        oid: None,
        conflicts: Vec::new(),
    }
}

impl Runtime {
    /// Merges a task's branch into the branch from which it began, or another one.
    ///
    /// A conflict, a target that moved and a dirty checkout are results with a problem; nothing is
    /// touched then.
    ///
    /// # Errors
    ///
    /// When there is no such task, it is not in a state in which it can be merged, or it belongs to
    /// another repository than the one that is meant.
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
        let Some(record) = harvested else {
            return Ok(TaskMerge {
                number,
                merge: plain(MergeStatus::Nothing),
                already: false,
                into: None,
                repository: None,
                pushed: None,
                problem: None,
                next: vec![format!("cofferdam task show {number}")],
            });
        };
        let (workspaces, _) = self.workspaces_of(record)?;
        check_repository(
            &workspaces,
            &entry,
            record,
            "merge",
            options.from.as_deref(),
        )?;
        let told = |merge, merged: Option<&Merged>, problem, next| TaskMerge {
            number,
            merge,
            already: merged.is_some_and(|merged| merged.old == merged.new),
            into: merged.map(|merged| short(&merged.target)),
            repository: Some(record.top.clone()),
            pushed: None,
            problem,
            next,
        };
        let mut plan = json!({});
        let planned = workspaces.plan_merge(record, &request(&entry, options));
        if let Ok(planned) = &planned {
            plan["merged"] = json!(planned);
        }
        let begun = self.begin(&entry, Action::Merge, plan)?;
        let done = planned.and_then(|planned| workspaces.apply_merge(record, &planned));
        let merged = match done {
            Ok(merged) => merged,
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
                let next = ["review", "merge"].map(|verb| format!("cofferdam {verb} {number}"));
                return Ok(told(merge, None, Some(problem), next.to_vec()));
            }
        };
        let is_new = merged.old != merged.new;
        let ours = match entry.last_act() {
            Some(Act::Merged(before)) if before.target == merged.target => Some(before),
            _ => None,
        };
        let oid = match ours {
            Some(before) if !is_new => &before.new,
            _ => &merged.new,
        };
        let merge = Merge {
            oid: Some(oid.clone()),
            ..plain(MergeStatus::Merged)
        };
        // What moved nothing cannot be taken back either.
        let status = if is_new { "done" } else { "nothing" };
        begun.end(status, json!({"merged": merged, "merge": merge}))?;
        let mut next = vec![format!("cofferdam drop {number}")];
        if is_new || ours.is_some() {
            next.insert(0, format!("cofferdam undo {number}"));
        }
        if crate::outbox::waits(&self.outbox()?, &entry.task) {
            next.push(format!("cofferdam outbox release {number}"));
        }
        Ok(told(merge, Some(&merged), None, next))
    }

    /// Takes back the last merge or drop of a task. `from` is a directory in the repository that is
    /// meant, see [`MergeOptions::from`].
    ///
    /// # Errors
    ///
    /// When there is nothing to take back, or what it would be taken back from has moved on.
    pub fn undo(&self, name: &str, from: Option<&Path>) -> Result<TaskUndone, Problem> {
        let ledger = Ledger::read(self.journal().as_ref(), true)?;
        let entry = ledger.find(name)?;
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
        let (workspaces, _) = self.workspaces_of(record)?;
        let what = match entry.last_act() {
            Some(Act::Merged(merged)) => {
                check_repository(&workspaces, entry, record, "undo", from)?;
                let plan = json!({"merged": merged});
                let begun = self.begin(entry, Action::UndoMerge, plan)?;
                match workspaces.undo_merge(record, merged) {
                    Ok(back) => begun.end("done", json!({"merged": back}))?,
                    Err(error @ WorkspaceError::TargetMoved { .. }) => {
                        let problem = lies_below(&ledger, entry, record, merged);
                        return Err(begun.refuse(problem.unwrap_or_else(|| error.into())));
                    }
                    Err(error) => return Err(begun.refuse(error.into())),
                }
                format!("the merge into {}", short(&merged.target))
            }
            Some(Act::Dropped(dropped)) => {
                let plan = json!({"dropped": dropped});
                let begun = self.begin(entry, Action::UndoDrop, plan.clone())?;
                if let Err(error) = workspaces.undo_drop(record, dropped) {
                    return Err(begun.refuse(error.into()));
                }
                begun.end("done", plan)?;
                "the drop; its branch is back".to_owned()
            }
            _ => return Err(nothing()),
        };
        Ok(TaskUndone {
            number,
            what,
            repository: record.top.clone(),
            next: vec![
                format!("cofferdam review {number}"),
                format!("cofferdam merge {number}"),
            ],
        })
    }
}

fn request(entry: &Entry, options: &MergeOptions) -> MergeRequest {
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
    MergeRequest {
        target: options.into.clone(),
        message: format!("Merge task {}: {title}", entry.number),
        protected,
    }
}

/// Refuses to change a checkout of another repository than the one that is meant.
pub(crate) fn check_repository(
    workspaces: &Workspaces,
    entry: &Entry,
    record: &WorktreeRecord,
    verb: &str,
    from: Option<&Path>,
) -> Result<(), Problem> {
    let Some(from) = from else { return Ok(()) };
    if workspaces.is_in_repository(record, from)? {
        return Ok(());
    }
    let number = entry.number;
    Err(Problem::new(
        ErrorCode::OtherRepository,
        format!(
            "task {number} belongs to {}, and {} is not in it",
            record.top,
            from.display()
        ),
    )
    .with_field("repository")
    .with_hint(format!(
        "cofferdam {verb} {number} --repository {}",
        record.top
    )))
}

/// Says which tasks were merged on top of one, where that is why its merge cannot be taken back.
fn lies_below(
    ledger: &Ledger,
    entry: &Entry,
    record: &WorktreeRecord,
    merged: &Merged,
) -> Option<Problem> {
    let mut above: Vec<u64> = Vec::new();
    let mut top = &merged.new;
    while let Some((number, next)) = ledger.entries().iter().find_map(|other| {
        let same = other.record.as_ref()?.common_dir == record.common_dir;
        match other.last_act() {
            Some(Act::Merged(one)) if same && one.target == merged.target && one.old == *top => {
                Some((other.number, &one.new))
            }
            _ => None,
        }
    }) {
        if number == entry.number || above.contains(&number) {
            break;
        }
        above.push(number);
        top = next;
    }
    let last = *above.last()?;
    let branch = short(&merged.target);
    let number = entry.number;
    let order: Vec<String> = above.iter().rev().map(ToString::to_string).collect();
    Some(
        Problem::new(
            ErrorCode::TargetMoved,
            format!(
                "task {} was merged into {branch} on top of task {number}: undo {last} first",
                above[0]
            ),
        )
        .with_hint(format!("cofferdam undo {} {number}", order.join(" "))),
    )
}
