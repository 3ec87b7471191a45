//! Ending tasks that run in other processes.

use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, EventFilter, INTENT_RULES, event_type};
use cofferdam_core::id::TaskId;
use cofferdam_core::outcome::Status;
use cofferdam_exec::LivePlane;
use cofferdam_journal::{Query, unsettled};
use serde::Serialize;
use serde_json::json;

use super::running::{RunningCommand, plane_of};
use crate::run::FrontDoor;
use crate::runtime::Runtime;
use crate::scribe::Line;
use crate::task::{Entry, Ledger, each};

/// How often it is looked whether a task has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What became of a task that was to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopEnd {
    /// It has ended.
    Stopped,
    /// It had ended already.
    NotRunning,
    /// It was asked to end and has not yet.
    StillRunning,
    /// It was not asked: see the problem.
    Refused,
}

/// What stopping a task came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskStopped {
    /// The task's number.
    pub number: u64,
    /// What became of it.
    pub end: StopEnd,
    /// Its status now.
    pub status: Status,
    /// The branch that holds what it did.
    pub branch: Option<String>,
    /// Why it was not stopped, where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// The next commands.
    pub next: Vec<String>,
}

/// What stopping a command that belongs to no task came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandStopped {
    /// Its id.
    pub command_id: String,
    /// What ran, as a line.
    pub command: String,
    /// The process that ran it: Cofferdam's own.
    pub pid: u32,
    /// What became of it.
    pub end: StopEnd,
    /// Why it was not stopped, where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl Runtime {
    /// Stops tasks that run in other processes of the same user, and waits for their ends.
    ///
    /// A process is signalled only when its lease proves that it is the one, and only when everything
    /// that it runs is to be stopped. Where it runs other tasks too, it is asked through the journal;
    /// one that runs several at once listens for that. Without names every task is stopped.
    ///
    /// # Errors
    ///
    /// When a name names no task: then nothing is stopped.
    pub fn stop(&self, names: &[String], patience: Duration) -> Result<Vec<TaskStopped>, Problem> {
        let ledger = Ledger::read(self.journal().as_ref(), true)?;
        let planes = self.other_planes();
        let wanted: Vec<&Entry> = if names.is_empty() {
            let entries = ledger.entries().iter();
            entries
                .filter(|entry| plane_of(&planes, entry).is_some())
                .collect()
        } else {
            let mut wanted: Vec<&Entry> = Vec::new();
            for name in names {
                let entry = ledger.find(name)?;
                if !wanted.iter().any(|one| one.task == entry.task) {
                    wanted.push(entry);
                }
            }
            wanted
        };
        let mut asked: Vec<(TaskId, Result<(), Problem>)> = Vec::new();
        for plane in &planes {
            let is_here = |entry: &Entry| {
                plane_of(&planes, entry).is_some_and(|one| one.record() == plane.record())
            };
            let here: Vec<&&Entry> = wanted.iter().filter(|entry| is_here(entry)).collect();
            if here.is_empty() {
                continue;
            }
            let others: Vec<u64> = ledger
                .entries()
                .iter()
                .filter(|entry| is_here(entry) && !here.iter().any(|one| one.task == entry.task))
                .map(|entry| entry.number)
                .collect();
            let lines = here.iter().map(|entry| {
                let data = json!({"lease": self.plane.lease(), "of": plane.record().lease});
                Line::new(event_type::TASK_STOP_REQUESTED, &entry.subject, data)
            });
            self.scribe.record(lines.collect())?;
            let done = if others.is_empty() {
                plane.terminate()
            } else {
                Ok(())
            };
            asked.extend(here.iter().map(|one| (one.task.clone(), done.clone())));
        }
        let waits = |task: &TaskId| asked.iter().any(|(one, done)| one == task && done.is_ok());
        let ends = self.await_ends(
            &wanted
                .iter()
                .filter(|entry| waits(&entry.task))
                .map(|entry| entry.task.clone())
                .collect::<Vec<_>>(),
            patience,
        )?;
        Ok(wanted
            .into_iter()
            .map(|before| {
                let now = ends.find(before.task.as_str()).unwrap_or(before);
                let of = asked.iter().find(|(task, _)| *task == before.task);
                stopped(before, now, of.map(|(_, done)| done))
            })
            .collect())
    }

    /// Stops the commands that belong to no task and that somebody runs at a keyboard, in other
    /// processes of the same user, and waits for their ends. A process that serves others is none of
    /// these, and stays.
    ///
    /// # Errors
    ///
    /// When the journal cannot be read.
    pub fn stop_commands(&self, patience: Duration) -> Result<Vec<CommandStopped>, Problem> {
        let mut keyboard = Vec::new();
        each(
            self.journal().as_ref(),
            event_type::CONVERSATION_STARTED,
            |event| {
                if event.data["front_door"] == FrontDoor::CommandLine.as_str() {
                    keyboard.extend(event.conversation);
                }
            },
        )?;
        let planes = self.other_planes();
        let mut asked = Vec::new();
        for plane in &planes {
            let open = unsettled(self.journal().as_ref(), plane.record(), INTENT_RULES)
                .map_err(|error| error.to_problem())?;
            let commands: Vec<&Event> = open
                .iter()
                .filter(|event| event.kind == event_type::EXEC_INTENDED)
                .collect();
            let is_bare = |event: &&Event| {
                let at_keyboard = |one| keyboard.contains(one);
                event.task.is_none() && event.conversation.as_ref().is_some_and(at_keyboard)
            };
            if commands.is_empty() || !commands.iter().all(is_bare) {
                continue;
            }
            let list = commands
                .into_iter()
                .map(|event| self.command_of(event, plane))
                .collect::<Result<Vec<_>, _>>()?;
            let done = plane.terminate();
            asked.extend(list.into_iter().map(|one| (plane, one, done.clone())));
        }
        let until = Instant::now() + patience;
        Ok(asked
            .into_iter()
            .map(|(plane, command, done)| {
                let left = until.saturating_duration_since(Instant::now());
                let pid = plane.record().pid;
                let (end, problem) = match done {
                    Err(problem) => (StopEnd::Refused, Some(problem)),
                    Ok(()) if plane.wait(left) => (StopEnd::Stopped, None),
                    Ok(()) => {
                        let text = format!("process {pid} was asked to end and has not yet");
                        let problem = Problem::new(ErrorCode::TaskState, text)
                            .with_hint("look again with `cofferdam ps`");
                        (StopEnd::StillRunning, Some(problem))
                    }
                };
                CommandStopped {
                    command_id: command.command_id,
                    command: command.command,
                    pid,
                    end,
                    problem,
                }
            })
            .collect())
    }

    fn command_of(&self, event: &Event, plane: &LivePlane) -> Result<RunningCommand, Problem> {
        self.running_command(event, plane.record().pid)
    }

    /// Waits until tasks have a result; gives what is known of all then.
    fn await_ends(&self, tasks: &[TaskId], patience: Duration) -> Result<Ledger, Problem> {
        let until = Instant::now() + patience;
        let mut seen = 0;
        loop {
            let head = self
                .journal()
                .head()
                .map_err(|error| error.to_problem())?
                .pos;
            let late = Instant::now() >= until;
            if head != seen || late {
                seen = head;
                let ledger = Ledger::read(self.journal().as_ref(), true)?;
                let ended = |task: &TaskId| {
                    let found = ledger.find(task.as_str());
                    found.is_ok_and(|entry| entry.result.is_some())
                };
                if late || tasks.iter().all(ended) {
                    return Ok(ledger);
                }
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Lists which tasks somebody wants to end, as was said after a position; with the position to go
    /// on from.
    ///
    /// # Errors
    ///
    /// When the journal cannot be read.
    pub fn stop_requests(&self, after: u64) -> Result<(u64, Vec<TaskId>), Problem> {
        let query = Query::of(EventFilter {
            event_type: Some(event_type::TASK_STOP_REQUESTED.to_owned()),
            ..EventFilter::default()
        })
        .after(after);
        let page = self
            .journal()
            .read(&query)
            .map_err(|error| error.to_problem())?;
        let pos = page.events.last().map_or(after, |event| event.pos);
        Ok((
            pos,
            page.events
                .into_iter()
                .filter_map(|event| event.task)
                .collect(),
        ))
    }
}

fn stopped(before: &Entry, now: &Entry, asked: Option<&Result<(), Problem>>) -> TaskStopped {
    let number = before.number;
    let result = now.result_now();
    let branch = result.as_ref().and_then(|one| one.isolation.branch.clone());
    let (end, problem) = match (asked, before.result.is_some(), result.is_some()) {
        (_, true, _) => (StopEnd::NotRunning, None),
        (_, false, true) => (StopEnd::Stopped, None),
        (Some(Ok(())), false, false) => {
            let problem = Problem::new(
                ErrorCode::TaskState,
                format!("task {number} was asked to end and has not yet"),
            )
            .with_hint(
                "look again with `cofferdam ps`; where its process runs other tasks too, name them all",
            );
            (StopEnd::StillRunning, Some(problem))
        }
        (Some(Err(problem)), false, false) => (StopEnd::Refused, Some(problem.clone())),
        (None, false, false) => {
            let problem = Problem::new(
                ErrorCode::TaskState,
                format!("no living process runs task {number}"),
            )
            .with_hint("the next command settles it");
            (StopEnd::Refused, Some(problem))
        }
    };
    TaskStopped {
        number,
        end,
        status: result.as_ref().map_or(Status::Running, |one| one.status),
        next: if result.is_some() {
            vec![
                format!("cofferdam review {number}"),
                format!("cofferdam drop {number}"),
            ]
        } else {
            vec!["cofferdam ps".to_owned()]
        },
        branch,
        problem,
    }
}
