//! What an agent's state came to: written down, listed, and applied when the owner says so.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{EventFilter, Severity, Subject, event_type};
use cofferdam_core::profile::{StateChange, StateChangeKind, StateContent};
use cofferdam_core::spec::Identity;
use cofferdam_exec::home::{ApplyState, HomeReport, LayerChange, apply_state, homes_left};
use cofferdam_journal::{Journal, Query};
use serde_json::{Value, json};

use super::Agent;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};
use crate::task::{Course, Ledger, TaskProgress};

/// What `data.kind` says of a change of files that concerns an agent's state.
const AGENT_STATE: &str = "agent_state";
/// Bytes of a content that is read back.
const CONTENT_BYTES: usize = 2 << 20;

/// A change that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedState {
    /// The task.
    pub number: u64,
    /// The change.
    pub change: StateChange,
}

impl Agent {
    /// Writes down what the agent begins with, and tells the caller.
    pub(crate) fn announce(&self, course: &mut Course<'_>) {
        course.notes.extend(self.said.iter().cloned());
        let line = self.line(&course.subject);
        let shown = course.say(event_type::AGENT_HOME, Severity::Info, line.data);
        let summary = if self.credentials.is_empty() {
            format!("{} was given no credentials", self.profile.title)
        } else {
            format!(
                "{} could read credentials of its own: {}",
                self.profile.title,
                self.credentials.join(", ")
            )
        };
        let data = json!({"profile": self.profile.name, "credentials": self.credentials});
        course.keep("credentials", summary, None, shown, data);
    }

    /// Says what the agent begins with.
    pub(crate) fn line(&self, subject: &Subject) -> Line {
        let data = json!({
            "step": "seeded",
            "profile": self.profile.name,
            "path": self.directory(),
            "files": self.seeded.0,
            "bytes": self.seeded.1,
            "credentials": self.credentials,
            "said": self.said,
        });
        Line::new(event_type::AGENT_HOME, subject, data)
    }

    /// Does what [`Agent::settle`] does for an agent that ran as a single command.
    pub(crate) fn settle_alone(self, runtime: &Runtime, subject: &Subject) -> Result<(), Problem> {
        let Some(collected) = self.collect() else {
            return Ok(());
        };
        let report = collected?;
        let told = Told::new(runtime, &report, &self.profile.name, self.identity.as_ref())?;
        runtime.note(&report.notes);
        let has_changes = told.changes.is_some();
        if has_changes {
            runtime.note(std::slice::from_ref(&told.summary));
        }
        runtime.scribe.record(told.lines(subject))?;
        self.remove();
        Ok(())
    }

    /// Brings the agent's state back, writes down what changed, and removes the private home.
    pub(crate) fn settle(self, course: &mut Course<'_>) -> Result<(), Problem> {
        let Some(collected) = self.collect() else {
            return Ok(());
        };
        let report = match collected {
            Ok(report) => report,
            Err(problem) => {
                // It stays, and the next start tries again.
                let text = format!(
                    "the agent's state could not be brought back and is kept in {}: {problem}",
                    self.directory().unwrap_or_default()
                );
                tell(course, text);
                return Err(problem);
            }
        };
        let runtime = course.runtime;
        let told = Told::new(runtime, &report, &self.profile.name, self.identity.as_ref())?;
        for note in &report.notes {
            tell(course, note.clone());
        }
        course.say(event_type::AGENT_HOME, Severity::Info, told.home);
        if let Some(changes) = told.changes {
            let shown = course.say(event_type::FILE_CHANGED, Severity::Warning, changes);
            course.keep(AGENT_STATE, told.summary.clone(), None, shown, json!({}));
            tell(course, told.summary);
        }
        if course.trouble.is_none() {
            self.remove();
        }
        Ok(())
    }
}

/// Tells the caller, and has it written down at the end.
fn tell(course: &mut Course<'_>, text: String) {
    course.tell(TaskProgress::Noted { text: text.clone() });
    course.notes.push(text);
}

/// What is written down of a report.
struct Told {
    home: Value,
    changes: Option<Value>,
    summary: String,
}

impl Told {
    fn lines(self, subject: &Subject) -> Vec<Line> {
        let mut lines = vec![Line::new(event_type::AGENT_HOME, subject, self.home)];
        if let Some(changes) = self.changes {
            let line = Line::new(event_type::FILE_CHANGED, subject, changes);
            lines.push(line.severity(Severity::Warning));
        }
        lines
    }

    fn new(
        runtime: &Runtime,
        report: &HomeReport,
        profile: &str,
        owner: Option<&Identity>,
    ) -> Result<Self, Problem> {
        let journal = runtime.journal().as_ref();
        let changes = report
            .changes
            .iter()
            .map(|change| {
                let mut change = change.clone();
                change.mask(runtime.scribe.masker());
                keep_contents(journal, &change)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let home = json!({
            "step": "collected",
            "profile": profile,
            "came_back": report.came_back,
            "changes": changes.len(),
            "notes": report.notes,
        });
        let names: Vec<String> = changes
            .iter()
            .take(5)
            .map(|change| format!("~/{} ({})", change.path, change.what.as_str()))
            .collect();
        let more = changes.len().saturating_sub(names.len());
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let summary = format!(
            "the agent changed its own configuration, which is not applied: {}{more}",
            names.join(", ")
        );
        let changes = if changes.is_empty() {
            None
        } else {
            let state = to_value(&changes)?;
            let mut data = json!({"kind": AGENT_STATE, "profile": profile, "state": state});
            if let Some(owner) = owner {
                data["owner"] = to_value(owner)?;
            }
            Some(data)
        };
        Ok(Self {
            home,
            changes,
            summary,
        })
    }
}

fn keep_contents(journal: &dyn Journal, change: &LayerChange) -> Result<StateChange, Problem> {
    let put = |bytes: &Option<Vec<u8>>| -> Result<Option<StateContent>, Problem> {
        let Some(bytes) = bytes else { return Ok(None) };
        let kept = journal
            .put_content(bytes)
            .map_err(|error| error.to_problem())?;
        Ok(Some(StateContent {
            digest: kept.content,
            bytes: kept.bytes,
        }))
    };
    Ok(StateChange {
        path: change.path.clone(),
        host: change.host.clone(),
        what: change.what,
        secret: change.secret,
        keys: change.keys.clone(),
        before: put(&change.before)?,
        after: put(&change.after)?,
        diff: change.diff.clone(),
        masked: change.masked,
    })
}

impl Runtime {
    /// Settles the private homes of processes that died: what may come back comes back.
    pub(crate) fn settle_homes(&self) -> Result<Vec<String>, Problem> {
        let mut said = Vec::new();
        let own = homes_left(&self.own_homes(), None);
        let mut all: Vec<_> = own.into_iter().map(|left| (left, None)).collect();
        for other in self.homes_of_others() {
            let left = homes_left(other.homes.as_path(), Some(&other.owner));
            all.extend(
                left.into_iter()
                    .map(|left| (left, Some(other.owner.clone()))),
            );
        }
        for (left, owner) in all {
            let report = match &left.report {
                Ok(report) => report,
                Err(problem) => {
                    said.push(format!(
                        "the agent's state in {} could not be brought back: {problem}",
                        left.directory()
                    ));
                    continue;
                }
            };
            let subject = self.subject_of(&left.task);
            let mut told = Told::new(self, report, &left.profile, owner.as_ref())?;
            told.home["step"] = "settled".into();
            self.scribe.record(told.lines(&subject))?;
            said.push(format!(
                "the state of {} was brought back after its process died: {} files",
                left.profile,
                report.came_back.len()
            ));
            left.remove();
        }
        Ok(said)
    }

    fn subject_of(&self, task: &str) -> Subject {
        let ledger = Ledger::read(self.journal().as_ref(), false);
        ledger
            .ok()
            .and_then(|ledger| Some(ledger.find(task).ok()?.subject.clone()))
            .unwrap_or_default()
    }

    /// Lists the changes of its own state that a task's agent made and that did not come back.
    ///
    /// # Errors
    ///
    /// `task_unknown`, and when the journal cannot be read.
    pub fn agent_state(&self, task: &str) -> Result<Vec<StateChange>, Problem> {
        let changes = self.state_of(task)?;
        Ok(changes.into_iter().map(|(change, _)| change).collect())
    }

    /// Lists them with whose home it is, where that was not the caller's.
    fn state_of(&self, task: &str) -> Result<Vec<(StateChange, Option<Identity>)>, Problem> {
        let ledger = Ledger::read(self.journal().as_ref(), false)?;
        let subject = &ledger.find(task)?.subject;
        let mut changes = Vec::new();
        let query = Query::of(EventFilter {
            conversation: subject.conversation.clone(),
            event_type: Some(event_type::FILE_CHANGED.to_owned()),
            ..EventFilter::default()
        })
        .resolved();
        let mut after = None;
        loop {
            let mut query = query.clone();
            query.after = after;
            let page = self
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            for event in &page.events {
                if event.task == subject.task && event.data["kind"] == AGENT_STATE {
                    let state = event.data["state"].clone();
                    let list: Vec<StateChange> = serde_json::from_value(state).unwrap_or_default();
                    let owner: Option<Identity> = event
                        .data
                        .get("owner")
                        .and_then(|owner| serde_json::from_value(owner.clone()).ok());
                    changes.extend(list.into_iter().map(|change| (change, owner.clone())));
                }
            }
            after = page.next();
            if after.is_none() {
                return Ok(changes);
            }
        }
    }

    /// Applies one change of its own state that a task's agent made; `path` is relative to the home
    /// directory, with or without `~/`.
    ///
    /// # Errors
    ///
    /// `task_unknown`, `invalid_request` where the task has no such change, and those of
    /// [`apply_state`].
    pub fn apply_state(&self, task: &str, path: &str) -> Result<AppliedState, Problem> {
        let ledger = Ledger::read(self.journal().as_ref(), false)?;
        let entry = ledger.find(task)?;
        let number = entry.number;
        let wanted = BytePath::from(path.trim_start_matches("~/"));
        let (change, owner) = self
            .state_of(task)?
            .into_iter()
            .rfind(|(change, _)| change.path == wanted)
            .ok_or_else(|| {
                Problem::new(
                    ErrorCode::InvalidRequest,
                    format!("task {number} did not change ~/{wanted}"),
                )
                .with_hint(format!("cofferdam review {number} lists what it changed"))
            })?;
        let after = match &change.after {
            Some(content) => self
                .journal()
                .content(&content.digest, 0, CONTENT_BYTES)
                .map_err(|error| error.to_problem())?,
            None => None,
        };
        apply_state(&ApplyState {
            change: &change,
            after: after.as_deref(),
            identity: owner.as_ref(),
        })?;
        let what: StateChangeKind = change.what;
        let data = json!({"step": "applied", "path": change.path, "what": what});
        self.scribe
            .say(Line::new(event_type::AGENT_HOME, &entry.subject, data))?;
        Ok(AppliedState { number, change })
    }
}
