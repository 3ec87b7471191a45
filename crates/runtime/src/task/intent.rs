//! What is done with a task, written down before it is done, and found out about when its process
//! died in between.

use cofferdam_core::error::Problem;
use cofferdam_core::event::{Severity, event_type};
use cofferdam_exec::workspace::{Dropped, Merged};
use serde_json::{Value, json};

use super::ledger::{Action, Entry, Intended, part};
use crate::runtime::Runtime;
use crate::scribe::Line;

/// An action that has begun.
pub(super) struct Begun<'a> {
    runtime: &'a Runtime,
    entry: &'a Entry,
    action: Action,
    id: String,
}

impl Begun<'_> {
    /// Writes down what an action came to. It happened, whatever the journal says.
    pub(super) fn end(&self, status: &str, mut data: Value) -> Result<(), Problem> {
        data["action_id"] = self.id.as_str().into();
        data["action"] = json!(self.action);
        data["status"] = status.into();
        let severity = if status == "done" {
            Severity::Info
        } else {
            Severity::Warning
        };
        let line = Line::new(event_type::TASK_ACTION_ENDED, &self.entry.subject, data);
        self.runtime.scribe.say(line.severity(severity)).map(drop)
    }

    /// Writes down that an action was refused; gives what is to be told.
    pub(super) fn refuse(&self, problem: Problem) -> Problem {
        match self.end("refused", json!({"problem": problem})) {
            Ok(()) => problem,
            Err(trouble) => trouble,
        }
    }
}

impl Runtime {
    /// Writes down what is about to be done with a task: `plan` has all by which the next start can
    /// find out whether it was done.
    pub(super) fn begin<'a>(
        &'a self,
        entry: &'a Entry,
        action: Action,
        mut plan: Value,
    ) -> Result<Begun<'a>, Problem> {
        let (time, random) = self.plane.ambient().id_parts();
        let id = cofferdam_core::id::OperationId::new(time, random).to_string();
        plan["lease"] = json!(self.plane.lease());
        plan["action_id"] = json!(id);
        plan["action"] = json!(action);
        let line = Line::new(event_type::TASK_ACTION_INTENDED, &entry.subject, plan);
        self.scribe.say(line)?;
        Ok(Begun {
            runtime: self,
            entry,
            action,
            id,
        })
    }

    /// Finds out whether something was done that was begun by a process that died; gives it in words.
    pub(super) fn settle_action(
        &self,
        entry: &Entry,
        intended: &Intended,
    ) -> Result<String, Problem> {
        let number = entry.number;
        let begun = Begun {
            runtime: self,
            entry,
            action: intended.action,
            id: intended.action_id.clone(),
        };
        let what = match intended.action {
            Action::Merge => "merge",
            Action::Drop => "drop",
            Action::UndoMerge | Action::UndoDrop => "undo",
        };
        let is_done = match self.was_done(entry, intended) {
            Ok(is_done) => is_done,
            Err(problem) => {
                begun.end("interrupted", json!({"problem": problem}))?;
                return Ok(format!(
                    "{what} {number} was cut off, and whether it was done is not known: {problem}"
                ));
            }
        };
        if is_done {
            let key = match intended.action {
                Action::Merge | Action::UndoMerge => "merged",
                Action::Drop | Action::UndoDrop => "dropped",
            };
            let mut data = json!({"settled": true});
            data[key] = intended.plan.get(key).cloned().unwrap_or_default();
            begun.end("done", data)?;
        } else {
            begun.end("interrupted", json!({"settled": true}))?;
        }
        Ok(match (intended.action, is_done) {
            (Action::Merge | Action::Drop, true) => format!(
                "{what} {number} was cut off after it was done; cofferdam undo {number} takes it back"
            ),
            (_, true) => format!("{what} {number} was cut off after it was done"),
            (_, false) => format!("{what} {number} was cut off before it was done"),
        })
    }

    fn was_done(&self, entry: &Entry, intended: &Intended) -> Result<bool, Problem> {
        let Some(record) = &entry.record else {
            return Ok(false);
        };
        let merged: Option<Merged> = part(&intended.plan, "merged");
        let dropped: Option<Dropped> = part(&intended.plan, "dropped");
        let (workspaces, _) = self.workspaces_of(record)?;
        Ok(match (intended.action, merged, dropped) {
            (Action::Merge, Some(merged), _) => workspaces.settle_merge(record, &merged)?,
            (Action::UndoMerge, Some(merged), _) => {
                workspaces.settle_merge(record, &merged.back())?
            }
            (Action::Drop, _, Some(dropped)) => {
                let is_done = workspaces.settle_drop(record, &dropped)?;
                if is_done {
                    // What cannot go stays, as with every drop.
                    let _ = workspaces.remove(record, None);
                }
                is_done
            }
            (Action::UndoDrop, _, Some(dropped)) => !workspaces.settle_drop(record, &dropped)?,
            // Written by an older version, which did not say what it was about to do.
            _ => false,
        })
    }
}
