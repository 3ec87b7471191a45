//! One task while it runs: who it is, how far it is, and what shows it.

use std::collections::HashMap;

use cofferdam_core::error::Problem;
use cofferdam_core::event::{EventFilter, Severity, Subject, event_type};
use cofferdam_core::id::{AgentId, EvidenceId, TaskId, ThreadId};
use cofferdam_core::limits;
use cofferdam_core::outcome::{CommandOutcome, Denial, Status};
use cofferdam_core::task::EvidenceItem;
use cofferdam_exec::{Control, PortBase};
use cofferdam_journal::Query;
use serde_json::{Value, json};

use super::overview::TaskState;
use super::request::TaskProgress;
use crate::participants::Participants;
use crate::run::FrontDoor;
use crate::runtime::Runtime;
use crate::scribe::Line;

/// One task while it runs.
pub(crate) struct Course<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) who: Participants,
    pub(crate) task: TaskId,
    pub(crate) worker: AgentId,
    pub(crate) subject: Subject,
    pub(crate) number: u64,
    pub(crate) door: FrontDoor,
    pub(crate) control: Control,
    pub(crate) progress: &'a mut dyn FnMut(TaskProgress),
    pub(crate) evidence: Vec<EvidenceItem>,
    /// What of the user's checkout is not in the tree, with the flag that would carry it in.
    pub(crate) left_behind: Vec<String>,
    /// What else is worth a word.
    pub(crate) notes: Vec<String>,
    /// The first failure of the journal; what happens goes on and is told by the result.
    pub(crate) trouble: Option<Problem>,
    denials: HashMap<Denial, usize>,
    /// Ports that are this task's as long as it runs.
    ports: Option<PortBase>,
}

impl<'a> Course<'a> {
    pub(crate) fn new(
        runtime: &'a Runtime,
        door: FrontDoor,
        control: Control,
        progress: &'a mut dyn FnMut(TaskProgress),
    ) -> Self {
        let ambient = runtime.plane.ambient();
        let who = Participants::new(ambient);
        let (time, random) = ambient.id_parts();
        let task = TaskId::new(time, random);
        let (time, random) = ambient.id_parts();
        let thread = ThreadId::new(time, random);
        let (time, random) = ambient.id_parts();
        let worker = AgentId::new(time, random);
        let subject = who.of_task(&task, &thread, &worker);
        Self {
            runtime,
            who,
            task,
            worker,
            subject,
            number: 0,
            door,
            control,
            progress,
            evidence: Vec::new(),
            left_behind: Vec::new(),
            notes: Vec::new(),
            trouble: None,
            denials: HashMap::new(),
            ports: None,
        }
    }

    /// Gives the first of the ports that the task has to itself; `None` where none could be had.
    pub(crate) fn port_base(&mut self) -> Option<u16> {
        if self.ports.is_none() {
            self.ports = PortBase::take(self.task.as_str());
        }
        self.ports.as_ref().map(PortBase::first)
    }

    pub(crate) fn tell(&mut self, progress: TaskProgress) {
        (self.progress)(progress);
    }

    /// Writes one event about the task; gives its position.
    pub(crate) fn say(
        &mut self,
        kind: &'static str,
        severity: Severity,
        data: Value,
    ) -> Option<u64> {
        let line = Line::new(kind, &self.subject, data).severity(severity);
        match self.runtime.scribe.say(line) {
            Ok(pos) => Some(pos),
            Err(problem) => {
                self.trouble.get_or_insert(problem);
                None
            }
        }
    }

    /// Goes to a state.
    pub(crate) fn enter(&mut self, state: TaskState) {
        self.enter_with(state, json!({"state": state}));
    }

    pub(crate) fn enter_with(&mut self, state: TaskState, mut data: Value) {
        data["state"] = state.as_str().into();
        self.say(event_type::TASK_STATE, Severity::Info, data);
    }

    /// Keeps a piece of evidence; `shown_by` is the event that shows it, where that is another one.
    pub(crate) fn keep(
        &mut self,
        kind: &str,
        summary: impl Into<String>,
        supports: Option<bool>,
        shown_by: Option<u64>,
        mut more: Value,
    ) {
        let (time, random) = self.runtime.plane.ambient().id_parts();
        let evidence_id = EvidenceId::new(time, random);
        let summary = summary.into();
        more["evidence_id"] = evidence_id.as_str().into();
        more["kind"] = kind.into();
        more["summary"] = summary.as_str().into();
        more["by"] = "system".into();
        if let Some(supports) = supports {
            more["supports"] = supports.into();
        }
        if let Some(pos) = shown_by {
            more["shown_by"] = pos.into();
        }
        let severity = if supports == Some(false) {
            Severity::Warning
        } else {
            Severity::Info
        };
        let own = self.say(event_type::EVIDENCE_RECORDED, severity, more);
        self.evidence.push(EvidenceItem {
            evidence_id,
            kind: kind.to_owned(),
            summary,
            pos: shown_by.or(own),
        });
    }

    /// Gives the position of the outcome that was written last in this line of work.
    pub(crate) fn last_outcome(&self) -> Option<u64> {
        let query = Query::of(EventFilter {
            conversation: Some(self.who.conversation.clone()),
            event_type: Some(event_type::EXEC_ENDED.to_owned()),
            ..EventFilter::default()
        })
        .backward()
        .limit(1);
        let page = self.runtime.journal().read(&query).ok()?;
        page.events.first().map(|event| event.pos)
    }

    /// Keeps what a command came to, and its denials.
    pub(crate) fn keep_command(&mut self, kind: &str, words: &str, outcome: &mut CommandOutcome) {
        let pos = self.last_outcome();
        let how = match (outcome.return_code, &outcome.signal) {
            (_, Some(signal)) => format!(" ({signal})"),
            (Some(code), None) if code != 0 => format!(" (exit {code})"),
            _ => String::new(),
        };
        self.keep(
            kind,
            format!("{words}: {}{how}", outcome.status),
            Some(outcome.status == Status::Completed),
            pos,
            json!({"command_id": outcome.command_id, "outcome": outcome.status}),
        );
        for index in 0..outcome.denials.len() {
            let mut same = outcome.denials[index].clone();
            same.will_not_change = false;
            let count = self.denials.entry(same.clone()).or_default();
            *count += 1;
            let count = *count;
            if count >= limits::DENIALS_UNTIL_WILL_NOT_CHANGE {
                outcome.denials[index].will_not_change = true;
            }
            // The first one shows it, the third one says that it is certain; more say nothing new.
            if count == 1 || count == limits::DENIALS_UNTIL_WILL_NOT_CHANGE {
                let often = if count == 1 {
                    String::new()
                } else {
                    format!(" ({count} times: it will not change)")
                };
                self.keep(
                    "denial",
                    format!("{} ({}){often}: {}", same.subject, same.rule, same.instead),
                    None,
                    pos,
                    json!({
                        "command_id": outcome.command_id,
                        "will_not_change": count >= limits::DENIALS_UNTIL_WILL_NOT_CHANGE,
                    }),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cofferdam_core::ambient::FixedAmbient;
    use cofferdam_core::error::ErrorCode;
    use cofferdam_core::outcome::{DenialSource, IsolationLevel};
    use cofferdam_core::spec::Network;
    use cofferdam_exec::host::Surroundings;

    use super::*;
    use crate::options::RuntimeOptions;
    use crate::refusal;

    #[test]
    fn the_third_identical_denial_of_a_task_will_not_change() {
        let top = tempfile::tempdir().unwrap();
        let data = top.path().join("data");
        let surroundings = Surroundings::new([("COFFERDAM_DATA_DIR", &data)], top.path());
        let options = RuntimeOptions::new(surroundings, Arc::new(FixedAmbient::default()));
        let runtime = Runtime::open(options).unwrap();
        let mut quiet = |_| {};
        let mut course = Course::new(&runtime, FrontDoor::Embedded, Control::new(), &mut quiet);
        let level = IsolationLevel {
            provider: None,
            network: Network::None,
        };
        let problem = Problem::new(ErrorCode::Denied, "no");
        let denial = |subject: &str| Denial {
            source: DenialSource::Mount,
            rule: "git hooks".to_owned(),
            subject: subject.to_owned(),
            instead: "leave it".to_owned(),
            askable: false,
            will_not_change: false,
        };
        let mut certain = Vec::new();
        for number in 0..4 {
            let id = runtime.command_id();
            let isolation = refusal::no_walls(level, 0);
            let mut outcome = refusal::outcome(id, isolation, problem.clone(), 0);
            let other = format!("other{number}");
            outcome.denials = vec![denial("hook"), denial(&other)];
            course.keep_command("command", "c", &mut outcome);
            certain.push((
                outcome.denials[0].will_not_change,
                outcome.denials[1].will_not_change,
            ));
        }
        let expected = [(false, false), (false, false), (true, false), (true, false)];
        assert_eq!(certain, expected);
        let of = |text: &str| {
            course
                .evidence
                .iter()
                .filter(|one| one.kind == "denial" && one.summary.contains(text))
                .count()
        };
        assert_eq!((of("hook ("), of("3 times"), of("other")), (2, 1, 4));
    }
}
