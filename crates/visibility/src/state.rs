use std::collections::BTreeMap;

use cofferdam_core::event::{Event, event_type};
use cofferdam_core::outcome::{Denial, DenialSource, Status, Usage};
use cofferdam_core::task::{ChangeKind, VerificationStatus};
use serde_json::Value;

use crate::reading::{command_line, line_of, list, number, owned, part, status, text};
use crate::records::{
    AgentRecord, CheckRecord, CommandRecord, ConversationRecord, DenialRecord, FactRecord,
    FileRecord, Life, MessageRecord, TaskRecord, VerifierRecord,
};

/// Everything that events have told so far.
///
/// Folding is [`State::apply`], one event after the other in the order of positions; an event at or
/// before the position that was reached is left out, so that pages may overlap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub(crate) as_of: u64,
    pub(crate) conversations: BTreeMap<String, ConversationRecord>,
    pub(crate) agents: BTreeMap<String, AgentRecord>,
    pub(crate) tasks: BTreeMap<String, TaskRecord>,
    pub(crate) commands: BTreeMap<String, CommandRecord>,
    pub(crate) verifiers: BTreeMap<String, VerifierRecord>,
    pub(crate) threads: BTreeMap<String, Vec<MessageRecord>>,
    pub(crate) events: u64,
    pub(crate) areas: BTreeMap<String, u64>,
    pub(crate) unknown: u64,
    pub(crate) denials: BTreeMap<DenialWord, u64>,
    /// What was used outside of commands.
    pub(crate) extra_usage: ExtraUsage,
}

/// The word of a denial's source, ordered.
pub(crate) type DenialWord = String;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ExtraUsage {
    pub(crate) wall_ms: u64,
    pub(crate) user_ms: u64,
    pub(crate) system_ms: u64,
    pub(crate) bytes: u64,
}

impl State {
    /// Folds a whole sequence.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        for event in events {
            state.apply(event);
        }
        state
    }

    /// Gives the position up to which events were taken; 0 before the first.
    pub fn as_of(&self) -> u64 {
        self.as_of
    }

    /// Says that everything up to a position was looked at, although nothing there was wanted.
    pub fn advance(&mut self, pos: u64) {
        self.as_of = self.as_of.max(pos);
    }

    /// Takes one event.
    pub fn apply(&mut self, event: &Event) {
        if event.pos <= self.as_of {
            return;
        }
        self.as_of = event.pos;
        self.events += 1;
        *self.areas.entry(event.area().to_owned()).or_default() += 1;
        self.note_subjects(event);
        match event.kind.as_str() {
            event_type::CONVERSATION_STARTED | event_type::CONVERSATION_ENDED => {
                self.conversation(event);
            }
            event_type::AGENT_STARTED | event_type::AGENT_ENDED => self.agent(event),
            event_type::TASK_CREATED | event_type::TASK_STATE | event_type::TASK_ENDED => {
                self.task(event);
            }
            event_type::MESSAGE_SENT => self.message(event),
            event_type::EXEC_INTENDED
            | event_type::EXEC_STARTED
            | event_type::EXEC_ENDED
            | event_type::EXEC_SETTLED => self.command(event),
            event_type::FILE_CHANGED => self.files(event),
            event_type::POLICY_DENIED => self.denied(event),
            event_type::NET_DECIDED | event_type::NET_CLOSED => self.host(event),
            event_type::VERIFIER_STARTED
            | event_type::VERIFIER_CHECK
            | event_type::VERIFIER_ENDED => self.verifier(event),
            event_type::EVIDENCE_RECORDED => self.evidence_recorded(event),
            event_type::USAGE_RECORDED => self.usage(event),
            event_type::ISOLATION_WORKSPACE => self.workspace(event),
            kind if event_type::ALL.contains(&kind) => {}
            _ => self.unknown += 1,
        }
    }

    /// Makes a record of everything that an event names, so that no thing is without its place.
    fn note_subjects(&mut self, event: &Event) {
        let conversation = event.conversation.as_ref().map(ToString::to_string);
        let agent = event.agent.as_ref().map(ToString::to_string);
        let root = event.root_agent.as_ref().map(ToString::to_string);
        if let Some(id) = &conversation {
            let record = self.conversations.entry(id.clone()).or_default();
            record.life.seen(event);
            if record.root_agent.is_none() {
                record.root_agent.clone_from(&root);
            }
        }
        for id in [&root, &agent].into_iter().flatten() {
            let record = self.agents.entry(id.clone()).or_default();
            record.life.seen(event);
            if record.conversation.is_none() {
                record.conversation.clone_from(&conversation);
            }
        }
        // Questions outside of tasks name the process that asks as if it were one.
        let is_question = event.area() == "approval";
        let named = event.task.as_ref().map(ToString::to_string);
        let known = named.filter(|id| !is_question || self.tasks.contains_key(id));
        if let Some(id) = known {
            let record = self.tasks.entry(id).or_default();
            record.life.seen(event);
            if record.conversation.is_none() {
                record.conversation = conversation;
            }
            if record.agent.is_none() {
                record.agent = agent;
            }
            if record.parent.is_none() {
                record.parent = event.parent_task.as_ref().map(ToString::to_string);
            }
        }
    }

    fn conversation(&mut self, event: &Event) {
        let Some(id) = &event.conversation else {
            return;
        };
        let record = self.conversations.entry(id.to_string()).or_default();
        if event.kind == event_type::CONVERSATION_STARTED {
            record.life.start(event);
            record.goal = text(&event.data, "goal").map(line_of);
            record.front_door = owned(&event.data, "front_door");
        } else {
            record
                .life
                .end(event, status(&event.data).unwrap_or(Status::Completed));
        }
    }

    fn agent(&mut self, event: &Event) {
        let Some(id) = &event.agent else {
            return;
        };
        let record = self.agents.entry(id.to_string()).or_default();
        if event.kind == event_type::AGENT_STARTED {
            record.life.start(event);
            record.name = owned(&event.data, "name");
            record.role = owned(&event.data, "role");
            record.parent = owned(&event.data, "parent");
        } else {
            record
                .life
                .end(event, status(&event.data).unwrap_or(Status::Completed));
        }
    }

    fn task(&mut self, event: &Event) {
        let Some(id) = &event.task else {
            return;
        };
        let data = &event.data;
        let record = self.tasks.entry(id.to_string()).or_default();
        match event.kind.as_str() {
            event_type::TASK_CREATED => {
                record.life.start(event);
                record.goal = text(data, "goal").map(line_of);
                record.isolation_mode = part(data, "isolation_mode");
                record.base = owned(data, "base");
            }
            event_type::TASK_STATE => record.state = owned(data, "state"),
            _ => {
                record
                    .life
                    .end(event, status(data).unwrap_or(Status::Completed));
                record.state = Some("ended".to_owned());
                record.summary = text(data, "summary").map(line_of);
                if let Some(isolation) = data.get("isolation") {
                    record.branch = owned(isolation, "branch").or(record.branch.take());
                    record.base = owned(isolation, "base").or(record.base.take());
                    record.isolation_mode = part(isolation, "mode").or(record.isolation_mode);
                }
                if record.goal.is_none() {
                    record.goal = text(data, "goal").map(line_of);
                }
                record.verification = data
                    .get("verification")
                    .and_then(|verification| part(verification, "status"))
                    .or(record.verification);
                for file in list(data, "modified_files") {
                    let (Some(path), Some(change)) =
                        (owned(file, "path"), part::<ChangeKind>(file, "change"))
                    else {
                        continue;
                    };
                    // Which command it was is told by file.changed; here is what holds at the end.
                    let entry = record.files.entry(path).or_insert(FileRecord {
                        change,
                        from: None,
                        pos: event.pos,
                        commands: Vec::new(),
                    });
                    entry.change = change;
                    entry.from = owned(file, "from").or(entry.from.take());
                }
            }
        }
    }

    fn message(&mut self, event: &Event) {
        let data = &event.data;
        let said = owned(data, "text").unwrap_or_default();
        let from = owned(data, "from");
        if let Some(thread) = &event.thread {
            self.threads
                .entry(thread.to_string())
                .or_default()
                .push(MessageRecord {
                    pos: event.pos,
                    time: event.time,
                    id: owned(data, "message_id").unwrap_or_else(|| event.id.to_string()),
                    from: from.clone(),
                    to: owned(data, "to"),
                    text: said.clone(),
                    task: event.task.as_ref().map(ToString::to_string),
                });
        }
        // What a worker says about its task is a claim; what it is told is the goal.
        let root = event
            .root_agent
            .as_ref()
            .map(cofferdam_core::id::AgentId::as_str);
        let root_name = root.and_then(|root| self.agents.get(root)?.name.as_deref());
        let by_worker = match from.as_deref() {
            Some(from) => Some(from) != root && Some(from) != root_name,
            None => event.agent.is_some() && event.agent != event.root_agent,
        };
        if let (Some(task), true) = (self.task_of(event), by_worker) {
            task.facts.push(FactRecord {
                pos: event.pos,
                time: event.time,
                id: owned(data, "message_id"),
                kind: "claim".to_owned(),
                summary: line_of(&said),
                by: from.or_else(|| event.agent.as_ref().map(ToString::to_string)),
                claim: None,
                supports: None,
                command: None,
            });
        }
    }

    fn task_of(&mut self, event: &Event) -> Option<&mut TaskRecord> {
        self.tasks.get_mut(event.task.as_ref()?.as_str())
    }

    fn command(&mut self, event: &Event) {
        let data = &event.data;
        let Some(id) = owned(data, "command_id") else {
            return;
        };
        let record = self.commands.entry(id.clone()).or_default();
        record.life.seen(event);
        record.last_pos = event.pos;
        record.conversation = event
            .conversation
            .as_ref()
            .map(ToString::to_string)
            .or(record.conversation.take());
        record.agent = event
            .agent
            .as_ref()
            .map(ToString::to_string)
            .or(record.agent.take());
        let new_to_task = record.task.is_none();
        record.task = event
            .task
            .as_ref()
            .map(ToString::to_string)
            .or(record.task.take());
        let task = record.task.clone();
        match event.kind.as_str() {
            event_type::EXEC_INTENDED => {
                record.life.start(event);
                record.line = command_line(data);
            }
            event_type::EXEC_STARTED => record.life.start(event),
            event_type::EXEC_SETTLED => {
                record
                    .life
                    .end(event, status(data).unwrap_or(Status::Interrupted));
            }
            _ => {
                record.end(event);
                let denials: Vec<Denial> = list(data, "denials")
                    .filter_map(|denial| serde_json::from_value(denial.clone()).ok())
                    .collect();
                record.denials = denials.len() as u64;
                for denial in denials {
                    self.note_denial(event, task.as_deref(), Some(&id), denial);
                }
            }
        }
        if let Some(task) = task.filter(|_| new_to_task) {
            self.tasks.entry(task).or_default().commands.push(id);
        }
    }

    fn note_denial(
        &mut self,
        event: &Event,
        task: Option<&str>,
        command: Option<&str>,
        denial: Denial,
    ) {
        // The same denial may come by itself first, and then with the outcome.
        let already = task
            .and_then(|task| self.tasks.get(task))
            .is_some_and(|task| {
                task.denials
                    .iter()
                    .any(|known| known.denial == denial && known.command.as_deref() == command)
            });
        if already {
            return;
        }
        *self.denials.entry(source_word(denial.source)).or_default() += 1;
        if let Some(task) = task {
            self.tasks
                .entry(task.to_owned())
                .or_default()
                .denials
                .push(DenialRecord {
                    pos: event.pos,
                    command: command.map(str::to_owned),
                    denial,
                });
        }
    }

    fn denied(&mut self, event: &Event) {
        let mut data = event.data.clone();
        let command = owned(&data, "command_id");
        if let Some(fields) = data.as_object_mut() {
            fields.remove("command_id");
        }
        if let Ok(denial) = serde_json::from_value(data) {
            let task = event.task.as_ref().map(ToString::to_string);
            self.note_denial(event, task.as_deref(), command.as_deref(), denial);
        }
    }

    fn files(&mut self, event: &Event) {
        let command = owned(&event.data, "command_id");
        // Files are often measured only after the checks: what a command changed was changed before
        // it ended, whenever that is told.
        let edited = command
            .as_deref()
            .and_then(|id| self.commands.get(id))
            .and_then(|record| Some((record.last_pos, record.life.ended?)))
            .unwrap_or((event.pos, event.time));
        let Some(task) = self.task_of(event) else {
            return;
        };
        let words = [
            ("added", ChangeKind::Added),
            ("modified", ChangeKind::Modified),
            ("deleted", ChangeKind::Deleted),
            ("renamed", ChangeKind::Renamed),
        ];
        for (key, change) in words {
            for item in list(&event.data, key) {
                let path = item
                    .as_str()
                    .or_else(|| text(item, "path"))
                    .or_else(|| text(item, "to"));
                let Some(path) = path else {
                    continue;
                };
                let entry = task
                    .files
                    .entry(path.to_owned())
                    .or_insert_with(|| FileRecord {
                        change,
                        from: None,
                        pos: event.pos,
                        commands: Vec::new(),
                    });
                entry.change = change;
                entry.pos = event.pos;
                entry.from = owned(item, "from").or(entry.from.take());
                if let Some(command) = &command
                    && !entry.commands.contains(command)
                {
                    entry.commands.push(command.clone());
                }
                task.last_edit = task.last_edit.max(Some(edited));
            }
        }
    }

    fn workspace(&mut self, event: &Event) {
        let branch = owned(&event.data, "branch");
        let base = owned(&event.data, "base");
        if let Some(task) = self.task_of(event) {
            task.branch = branch.or(task.branch.take());
            task.base = base.or(task.base.take());
        }
    }

    fn verifier(&mut self, event: &Event) {
        let data = &event.data;
        let task = event.task.as_ref().map(ToString::to_string);
        let key = task.clone().unwrap_or_else(|| {
            event
                .conversation
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default()
        });
        let record = self.verifiers.entry(key).or_default();
        record.life.seen(event);
        record.task.clone_from(&task);
        let mut passed = false;
        match event.kind.as_str() {
            event_type::VERIFIER_STARTED => {
                // A verifier that runs again begins anew.
                *record = VerifierRecord {
                    life: Life {
                        first_pos: event.pos,
                        ..Life::default()
                    },
                    task,
                    ..VerifierRecord::default()
                };
                record.life.start(event);
                record.planned = list(data, "checks").filter_map(word_of_check).collect();
            }
            event_type::VERIFIER_CHECK => {
                let check = check_of(event, data);
                passed = check.status == VerificationStatus::Passed;
                record.checks.push(check);
            }
            _ => {
                let verdict = part(data, "status").unwrap_or(VerificationStatus::Error);
                record.life.end(event, Status::Completed);
                record.verdict = Some(verdict);
                record.tampered_inputs = list(data, "tampered_inputs")
                    .filter_map(|path| path.as_str().map(str::to_owned))
                    .collect();
                if record.checks.is_empty() {
                    record.checks = list(data, "checks")
                        .map(|check| check_of(event, check))
                        .collect();
                }
                passed = verdict == VerificationStatus::Passed && record.checks.is_empty();
                if let Some(task) = self.task_of(event) {
                    task.verification = Some(verdict);
                }
            }
        }
        if let (true, Some(task)) = (passed, self.task_of(event)) {
            task.last_passing_check = Some((event.pos, event.time));
        }
    }

    fn evidence_recorded(&mut self, event: &Event) {
        let data = &event.data;
        let fact = FactRecord {
            pos: event.pos,
            time: event.time,
            id: owned(data, "evidence_id"),
            kind: owned(data, "kind").unwrap_or_else(|| "unknown".to_owned()),
            summary: text(data, "summary").map(line_of).unwrap_or_default(),
            by: owned(data, "by"),
            claim: owned(data, "claim"),
            supports: data.get("supports").and_then(Value::as_bool),
            command: owned(data, "command_id"),
        };
        if let Some(task) = self.task_of(event) {
            task.facts.push(fact);
        }
    }

    fn usage(&mut self, event: &Event) {
        let data = &event.data;
        let told = |key| number(data, key).unwrap_or_default();
        let command = text(data, "command_id").and_then(|id| self.commands.get_mut(id));
        if let Some(command) = command {
            command.usage.user_ms = told("user_ms");
            command.usage.system_ms = told("system_ms");
            command.elapsed_ms = Some(told("wall_ms"));
            command.output_bytes = told("bytes");
        } else {
            self.extra_usage.wall_ms += told("wall_ms");
            self.extra_usage.user_ms += told("user_ms");
            self.extra_usage.system_ms += told("system_ms");
            self.extra_usage.bytes += told("bytes");
        }
    }
}

impl CommandRecord {
    fn end(&mut self, event: &Event) {
        let data = &event.data;
        self.life
            .end(event, status(data).unwrap_or(Status::Completed));
        self.return_code = data.get("return_code").and_then(Value::as_i64);
        self.signal = owned(data, "signal");
        self.elapsed_ms = number(data, "elapsed_ms").or(self.elapsed_ms);
        if let Some(usage) = part::<Usage>(data, "usage") {
            self.usage = usage;
        }
        let streams = ["stdout_full", "stderr_full"];
        let bytes: u64 = streams
            .iter()
            .filter_map(|stream| number(data.get(stream)?, "bytes"))
            .sum();
        self.output_bytes = self.output_bytes.max(bytes);
        if let Some(effective) = data
            .get("isolation")
            .and_then(|isolation| isolation.get("effective"))
        {
            self.provider = part(effective, "provider");
            self.network = part(effective, "network");
        }
        self.error = data
            .get("error")
            .and_then(|error| text(error, "message"))
            .map(line_of);
    }
}

pub(crate) fn source_word(source: DenialSource) -> String {
    match source {
        DenialSource::Seccomp => "seccomp",
        DenialSource::Mount => "mount",
        DenialSource::Proxy => "proxy",
        DenialSource::FileDoor => "file_door",
        DenialSource::Policy => "policy",
    }
    .to_owned()
}

fn word_of_check(check: &Value) -> Option<String> {
    check.as_str().or_else(|| text(check, "check")).map(line_of)
}

fn check_of(event: &Event, data: &Value) -> CheckRecord {
    CheckRecord {
        pos: event.pos,
        time: event.time,
        check: text(data, "check").map(line_of).unwrap_or_default(),
        status: part(data, "status").unwrap_or(VerificationStatus::Error),
        return_code: data.get("return_code").and_then(Value::as_i64),
        elapsed_ms: number(data, "elapsed_ms"),
        command: owned(data, "command_id"),
    }
}
