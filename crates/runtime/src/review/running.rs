//! What runs now, over every plane of the data directory.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::event::{Event, EventFilter, INTENT_RULES, event_type};
use cofferdam_core::id::{CommandId, TaskId};
use cofferdam_core::task::IsolationMode;
use cofferdam_exec::{LivePlane, OutputReader, live_planes};
use cofferdam_journal::{Query, unsettled};
use serde::Serialize;
use serde_json::Value;

use crate::runtime::Runtime;
use crate::task::{Entry, Ledger, TaskState, each};

/// What runs now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunningThings {
    /// Tasks, oldest first.
    pub tasks: Vec<RunningTask>,
    /// Commands that belong to no task, oldest first.
    pub commands: Vec<RunningCommand>,
}

/// A task that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningTask {
    /// The task.
    pub task_id: TaskId,
    /// Its number.
    pub number: u64,
    /// Its goal.
    pub goal: String,
    /// Its command as a line.
    pub command: String,
    /// How far it is.
    pub state: TaskState,
    /// How far it stands apart.
    pub isolation_mode: IsolationMode,
    /// The process that runs it: Cofferdam's own.
    pub pid: u32,
    /// Why that process could not be proved, so that it is not signalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// The repository or directory that it works on.
    pub workspace: Option<BytePath>,
    /// Its tree on the host.
    pub tree: Option<BytePath>,
    /// Its branch.
    pub branch: Option<String>,
    /// Milliseconds since it was accepted.
    pub elapsed_ms: u64,
    /// Ports of it that stand open, where that was told.
    pub ports: Vec<u64>,
    /// What of it runs at this moment.
    pub commands: Vec<RunningCommand>,
}

/// A command that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningCommand {
    /// Its id.
    pub command_id: String,
    /// The process that runs it: Cofferdam's own.
    pub pid: u32,
    /// What runs, as a line.
    pub command: String,
    /// Where.
    pub cwd: Option<String>,
    /// Milliseconds since its intent was written.
    pub elapsed_ms: u64,
    /// Milliseconds since its last output, where there was some.
    pub last_output_ms: Option<u64>,
    /// Whether it went on after the call that started it.
    pub background: bool,
}

impl Runtime {
    /// Lists what runs: tasks and commands of every plane that lives in the data directory.
    ///
    /// # Errors
    ///
    /// When the journal cannot be read.
    pub fn running(&self) -> Result<RunningThings, Problem> {
        let planes = self.other_planes();
        let mut running = RunningThings::default();
        if planes.is_empty() {
            return Ok(running);
        }
        let ledger = Ledger::read(self.journal().as_ref(), true)?;
        for entry in ledger.entries() {
            if let Some(plane) = plane_of(&planes, entry) {
                running.tasks.push(self.running_task(entry, plane));
            }
        }
        for plane in &planes {
            let open = unsettled(self.journal().as_ref(), plane.record(), INTENT_RULES)
                .map_err(|error| error.to_problem())?;
            for event in open {
                if event.kind != event_type::EXEC_INTENDED {
                    continue;
                }
                let command = self.running_command(&event, plane.record().pid)?;
                let of = running
                    .tasks
                    .iter_mut()
                    .find(|task| Some(&task.task_id) == event.task.as_ref());
                match of {
                    Some(task) => task.commands.push(command),
                    None => running.commands.push(command),
                }
            }
        }
        self.take_ports(&mut running)?;
        Ok(running)
    }

    /// Finds the planes that live in other processes.
    pub(crate) fn other_planes(&self) -> Vec<LivePlane> {
        let own = self.plane.lease();
        live_planes(&self.data_dir)
            .into_iter()
            .filter(|plane| plane.record().lease != *own)
            .collect()
    }

    /// Lists the commands that a plane runs.
    pub(crate) fn commands_of(&self, plane: &LivePlane) -> Result<Vec<CommandId>, Problem> {
        let open = unsettled(self.journal().as_ref(), plane.record(), INTENT_RULES)
            .map_err(|error| error.to_problem())?;
        Ok(open
            .iter()
            .filter(|event| event.kind == event_type::EXEC_INTENDED)
            .filter_map(|event| event.data.get("command_id").and_then(Value::as_str))
            .filter_map(|id| CommandId::parse(id).ok())
            .collect())
    }

    fn since(&self, event: &Event) -> u64 {
        self.since_time(event.time.as_millisecond())
    }

    fn since_time(&self, milliseconds: i64) -> u64 {
        let now = self.plane.ambient().now().as_millisecond();
        u64::try_from(now - milliseconds).unwrap_or_default()
    }

    fn running_task(&self, entry: &Entry, plane: &LivePlane) -> RunningTask {
        let record = entry.record.as_ref();
        RunningTask {
            task_id: entry.task.clone(),
            number: entry.number,
            goal: entry.goal.clone(),
            command: entry.command.clone(),
            state: entry.state,
            isolation_mode: entry.mode,
            pid: plane.record().pid,
            doubt: plane.doubt().map(str::to_owned),
            workspace: record.map(|record| record.top.clone()),
            tree: record.map(|record| record.tree.clone()),
            branch: record.map(|record| record.branch.clone()),
            elapsed_ms: self.since_time(entry.created_ms),
            ports: Vec::new(),
            commands: Vec::new(),
        }
    }

    pub(super) fn running_command(
        &self,
        event: &Event,
        pid: u32,
    ) -> Result<RunningCommand, Problem> {
        let data = &event.data;
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let argv = data.get("argv").and_then(Value::as_array);
        let id = data.get("command_id").and_then(word).unwrap_or_default();
        let written = CommandId::parse(&id)
            .ok()
            .and_then(|id| OutputReader::live(&self.data_dir, &id).last_written())
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map(|since| since.as_millis() as i64);
        let last = match written {
            Some(written) => Some(written),
            // Without files the journal tells it, now and then.
            None => self.last_told(event, event_type::EXEC_OUTPUT, &id)?,
        };
        Ok(RunningCommand {
            last_output_ms: last.map(|time| self.since_time(time)),
            background: self
                .last_told(event, event_type::EXEC_BACKGROUND, &id)?
                .is_some(),
            command_id: id,
            pid,
            command: argv
                .map(|words| words.iter().filter_map(word).collect::<Vec<_>>().join(" "))
                .unwrap_or_default(),
            cwd: data.get("cwd").and_then(word),
            elapsed_ms: self.since(event),
        })
    }

    /// Finds when something was last told of a command, in the line of work of its intent.
    fn last_told(&self, intent: &Event, kind: &str, id: &str) -> Result<Option<i64>, Problem> {
        let query = Query::of(EventFilter {
            conversation: intent.conversation.clone(),
            event_type: Some(kind.to_owned()),
            ..EventFilter::default()
        })
        .backward();
        let page = self
            .journal()
            .read(&query)
            .map_err(|error| error.to_problem())?;
        Ok(page
            .events
            .iter()
            .find(|event| event.data.get("command_id").and_then(Value::as_str) == Some(id))
            .map(|event| event.time.as_millisecond()))
    }

    /// Takes the ports that were told: opened by one event, closed by another.
    fn take_ports(&self, running: &mut RunningThings) -> Result<(), Problem> {
        if running.tasks.is_empty() {
            return Ok(());
        }
        each(self.journal().as_ref(), "net", |event| {
            let Some(task) = running
                .tasks
                .iter_mut()
                .find(|task| Some(&task.task_id) == event.task.as_ref())
            else {
                return;
            };
            if event.kind != event_type::NET_LISTENING {
                return;
            }
            let Some(port) = event.data.get("port").and_then(Value::as_u64) else {
                return;
            };
            task.ports.retain(|one| *one != port);
            // Whatever is not said to have ended stands open.
            let state = event.data.get("state").and_then(Value::as_str);
            if !matches!(state, Some("closed" | "ended" | "ceased" | "gone")) {
                task.ports.push(port);
            }
        })
    }
}

/// Gives the plane that runs a task now.
pub(super) fn plane_of<'a>(planes: &'a [LivePlane], entry: &Entry) -> Option<&'a LivePlane> {
    let lease = entry.lease.as_deref()?;
    planes
        .iter()
        .find(|plane| entry.result.is_none() && plane.record().lease.as_str() == lease)
}
