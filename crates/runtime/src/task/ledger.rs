//! Tasks as a fold of the journal: what any process, and the next start, knows of them.

use std::collections::BTreeMap;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, EventFilter, Subject, event_type};
use cofferdam_core::id::TaskId;
use cofferdam_core::limits;
use cofferdam_core::operation::CommandForm;
use cofferdam_core::outcome::{IsolationLevel, Status};
use cofferdam_core::task::{CleanupPolicy, IsolationMode, Merge, MergeStatus, TaskResult};
use cofferdam_exec::workspace::{Dropped, Merged, WorktreeRecord};
use cofferdam_journal::{Journal, Query};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::overview::{TaskOverview, TaskState};

/// What was done with a task after it had ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Act {
    Merged(Merged),
    MergeTaken(Merged),
    Dropped(Dropped),
    DropTaken,
    /// It was refused; the files in conflict, where it was a conflict.
    Refused(Merge),
}

/// Something that was begun with a task and of which no end is known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Intended {
    pub(crate) action_id: String,
    pub(crate) action: Action,
    pub(crate) lease: Option<String>,
    /// What it is about to do, by which it can be found out whether it was done.
    pub(crate) plan: Value,
}

/// What can be done with a task after it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Merge,
    Drop,
    UndoMerge,
    UndoDrop,
}

/// One task.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) task: TaskId,
    pub(crate) number: u64,
    pub(crate) subject: Subject,
    pub(crate) goal: String,
    pub(crate) command: String,
    pub(crate) mode: IsolationMode,
    pub(crate) cleanup: CleanupPolicy,
    pub(crate) lease: Option<String>,
    pub(crate) created_at: String,
    /// The same in milliseconds since 1970.
    pub(crate) created_ms: i64,
    pub(crate) ended_at: Option<String>,
    pub(crate) state: TaskState,
    pub(crate) requested: Option<IsolationLevel>,
    pub(crate) effective: Option<IsolationLevel>,
    pub(crate) record: Option<WorktreeRecord>,
    pub(crate) result: Option<TaskResult>,
    acts: Vec<Act>,
    /// What was begun and not ended.
    pub(crate) intended: Vec<Intended>,
}

/// Every task of a journal, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    places: BTreeMap<TaskId, usize>,
}

impl Ledger {
    /// Reads the whole of it; `trees` tells whether the records of trees are wanted too.
    pub(crate) fn read(journal: &dyn Journal, trees: bool) -> Result<Self, Problem> {
        let mut ledger = Self::default();
        each(journal, "task", |event| ledger.take(&event))?;
        if trees {
            each(journal, event_type::ISOLATION_WORKSPACE, |event| {
                ledger.take(&event);
            })?;
        }
        Ok(ledger)
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn take(&mut self, event: &Event) {
        let Some(task) = &event.task else { return };
        if event.kind == event_type::TASK_CREATED {
            if !self.places.contains_key(task) {
                let number = self.entries.last().map_or(1, |last| last.number + 1);
                self.places.insert(task.clone(), self.entries.len());
                self.entries.push(Entry::begin(task.clone(), number, event));
            }
            return;
        }
        if let Some(place) = self.places.get(task) {
            self.entries[*place].take(event);
        }
    }

    /// Finds a task by its number, its id, or the beginning of it.
    pub(crate) fn find(&self, name: &str) -> Result<&Entry, Problem> {
        let unknown = || {
            Problem::new(ErrorCode::TaskUnknown, format!("there is no task {name}"))
                .with_hint("cofferdam task list")
        };
        let name = name.trim();
        if let Ok(number) = name.trim_start_matches('#').parse::<u64>() {
            let found = self.entries.iter().find(|one| one.number == number);
            if let Some(found) = found {
                return Ok(found);
            }
        }
        if name.is_empty() {
            return Err(unknown());
        }
        let full = if name.starts_with("task_") {
            name.to_owned()
        } else {
            format!("task_{name}")
        };
        let mut found = self
            .entries
            .iter()
            .filter(|one| one.task.as_str().starts_with(&full));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (Some(one), Some(_)) if one.task.as_str() == full => Ok(one),
            (Some(_), Some(_)) => Err(Problem::new(
                ErrorCode::TaskUnknown,
                format!("several tasks begin with {name}"),
            )
            .with_hint("give more of the id, or the number")),
            (None, _) => Err(unknown()),
        }
    }
}

/// Gives the number of a task that was just written at a position.
pub(crate) fn number_of(journal: &dyn Journal, task: &TaskId) -> Result<u64, Problem> {
    Ok(Ledger::read(journal, false)?.find(task.as_str())?.number)
}

/// Calls `with` for every event of a type or area, oldest first, with its body.
pub(crate) fn each(
    journal: &dyn Journal,
    kind: &str,
    mut with: impl FnMut(Event),
) -> Result<(), Problem> {
    let filter = EventFilter {
        event_type: Some(kind.to_owned()),
        ..EventFilter::default()
    };
    let mut query = Query::of(filter).limit(limits::PAGE_EVENTS_CAP).resolved();
    loop {
        let page = journal.read(&query).map_err(|error| error.to_problem())?;
        let next = page.next();
        page.events.into_iter().for_each(&mut with);
        match next {
            Some(pos) => query.after = Some(pos),
            None => return Ok(()),
        }
    }
}

/// Reads a part of what an event says; what is missing or strange is unsaid.
pub(crate) fn part<T: DeserializeOwned>(data: &Value, key: &str) -> Option<T> {
    T::deserialize(data.get(key)?).ok()
}

impl Entry {
    fn begin(task: TaskId, number: u64, event: &Event) -> Self {
        let data = &event.data;
        let command: Option<CommandForm> = part(data, "command");
        Self {
            task,
            number,
            subject: event.subject(),
            goal: part(data, "goal").unwrap_or_default(),
            command: command.map_or_else(String::new, |form| form.summary()),
            mode: part(data, "isolation_mode").unwrap_or_default(),
            cleanup: part(data, "cleanup_policy").unwrap_or_default(),
            lease: part(data, "lease"),
            created_at: event.time.to_string(),
            created_ms: event.time.as_millisecond(),
            ended_at: None,
            state: TaskState::Planned,
            requested: None,
            effective: None,
            record: None,
            result: None,
            acts: Vec::new(),
            intended: Vec::new(),
        }
    }

    fn take(&mut self, event: &Event) {
        let data = &event.data;
        match event.kind.as_str() {
            event_type::TASK_STATE => {
                if let Some(state) = part(data, "state") {
                    self.state = state;
                }
                // Older tasks may have gone with retention: the number that was given holds.
                if let Some(number) = part(data, "number") {
                    self.number = number;
                }
                self.requested = part(data, "requested").or(self.requested);
                self.effective = part(data, "effective").or(self.effective);
            }
            event_type::TASK_ENDED => {
                self.state = TaskState::Settled;
                self.ended_at = Some(event.time.to_string());
                self.result = serde_json::from_value(data.clone()).ok();
            }
            event_type::TASK_ACTION_INTENDED => self.intended.extend(intended(data)),
            event_type::TASK_ACTION_ENDED => self.take_end(data),
            event_type::ISOLATION_WORKSPACE => {
                if let Some(record) = part(data, "record") {
                    self.record = Some(record);
                }
            }
            _ => {}
        }
    }

    /// The result with what became of the task since.
    pub(crate) fn result_now(&self) -> Option<TaskResult> {
        let mut result = self.result.clone()?;
        let later = self.record.as_ref().and_then(|one| one.harvest.as_ref());
        if let Some(harvest) = later
            && result.isolation.branch.is_none()
        {
            // It was brought in after its end.
            result.isolation.branch.clone_from(&harvest.branch);
            result.modified_files.clone_from(&harvest.modified_files);
            result.git_diff_summary.clone_from(&harvest.summary);
            if harvest.branch.is_some() {
                result.merge.status = MergeStatus::NotRequested;
            }
        }
        if let Some(merge) = self.merge_now() {
            result.merge = merge;
        }
        Some(result)
    }

    /// Takes the end of an action, once: two that find the same one cut off may both settle it.
    fn take_end(&mut self, data: &Value) {
        let id = data.get("action_id").and_then(Value::as_str);
        let before = self.intended.len();
        self.intended
            .retain(|one| Some(one.action_id.as_str()) != id);
        if self.intended.len() < before {
            self.acts.extend(act(data));
        }
    }

    pub(crate) fn merge_now(&self) -> Option<Merge> {
        let plain = |status, oid: Option<&String>| Merge {
            status,
            oid: oid.cloned(),
            conflicts: Vec::new(),
        };
        if let Act::Refused(merge) = self.acts.last()? {
            return Some(merge.clone());
        }
        Some(match self.last_act() {
            Some(Act::Merged(merged)) => plain(MergeStatus::Merged, Some(&merged.new)),
            Some(Act::Dropped(_)) => plain(MergeStatus::Dropped, None),
            _ if self
                .acts
                .iter()
                .any(|act| matches!(act, Act::MergeTaken(_))) =>
            {
                plain(MergeStatus::Undone, None)
            }
            _ => plain(MergeStatus::NotRequested, None),
        })
    }

    /// What was last done and still holds: what was refused or taken back does not count.
    pub(crate) fn last_act(&self) -> Option<&Act> {
        let mut standing: Vec<&Act> = Vec::new();
        for act in &self.acts {
            match act {
                Act::Merged(_) | Act::Dropped(_) => standing.push(act),
                Act::MergeTaken(_) | Act::DropTaken => drop(standing.pop()),
                Act::Refused(_) => {}
            }
        }
        standing.last().copied()
    }

    pub(crate) fn overview(&self) -> TaskOverview {
        let result = self.result_now();
        let told = result.as_ref();
        TaskOverview {
            task_id: self.task.clone(),
            number: self.number,
            conversation_id: told.map_or_else(
                || self.conversation(),
                |result| result.conversation_id.clone(),
            ),
            goal: self.goal.clone(),
            command: self.command.clone(),
            isolation_mode: self.mode,
            created_at: self.created_at.clone(),
            ended_at: self.ended_at.clone(),
            state: self.state,
            status: told.map_or(Status::Running, |result| result.status),
            verification: told.map(|result| result.verification.status),
            merge: told.map_or(MergeStatus::NotRequested, |result| result.merge.status),
            branch: told.and_then(|result| result.isolation.branch.clone()),
            workspace_path: told.and_then(|result| result.isolation.workspace_path.clone()),
            files: told.map_or(0, |result| result.modified_files.len()),
            result,
        }
    }

    pub(crate) fn conversation(&self) -> cofferdam_core::id::ConversationId {
        self.subject.conversation.clone().unwrap_or_else(|| {
            // Every task of ours has one; a journal of somebody else's may not.
            cofferdam_core::id::ConversationId::new(0, [0; 10])
        })
    }
}

fn intended(data: &Value) -> Option<Intended> {
    Some(Intended {
        action_id: part(data, "action_id")?,
        action: part(data, "action")?,
        lease: part(data, "lease"),
        plan: data.clone(),
    })
}

fn act(data: &Value) -> Option<Act> {
    let done = data.get("status").and_then(Value::as_str) == Some("done");
    match (part(data, "action")?, done) {
        (Action::Merge, true) => part(data, "merged").map(Act::Merged),
        (Action::Drop, true) => part(data, "dropped").map(Act::Dropped),
        (Action::UndoMerge, true) => part(data, "merged").map(Act::MergeTaken),
        (Action::UndoDrop, true) => Some(Act::DropTaken),
        (Action::Merge, false) => part(data, "merge").map(Act::Refused),
        _ => None,
    }
}
