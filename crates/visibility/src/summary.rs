use std::collections::BTreeMap;

use cofferdam_core::outcome::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::Life;
use crate::state::State;

/// Everything in figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuntimeSummary {
    /// Whether anything runs: the union of everything below.
    pub status: Activity,
    /// What runs now.
    pub running: Running,
    /// Lines of work by status.
    pub conversations: Counts,
    /// Agents by status.
    pub agents: Counts,
    /// Tasks by status.
    pub tasks: Counts,
    /// Commands by status.
    pub commands: Counts,
    /// What was used, all in all.
    pub usage: UsageSum,
    /// Denials by who saw them.
    pub denials: BTreeMap<String, u64>,
    /// Events by area.
    pub events: EventCounts,
}

/// Whether anything runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Something runs.
    Running,
    /// Nothing runs.
    Idle,
}

impl Activity {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Idle => "idle",
        }
    }
}

/// The ids of what runs now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// Lines of work.
    pub conversations: Vec<String>,
    /// Agents.
    pub agents: Vec<String>,
    /// Tasks.
    pub tasks: Vec<String>,
    /// Commands.
    pub commands: Vec<String>,
}

/// How many there are, and how they stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// All of them.
    pub total: u64,
    /// By status word; those of which it was never said are only in `total`.
    pub by_status: BTreeMap<String, u64>,
}

/// What was used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageSum {
    /// Wall time of commands, in milliseconds; those that ran at once count each.
    pub wall_ms: u64,
    /// Processor time in user mode, in milliseconds.
    pub user_ms: u64,
    /// Processor time in the kernel, in milliseconds.
    pub system_ms: u64,
    /// Bytes of output.
    pub output_bytes: u64,
    /// Largest resident set of one process, in KiB.
    pub max_resident_kib: u64,
}

/// Events in figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventCounts {
    /// All of them.
    pub total: u64,
    /// By area.
    pub by_area: BTreeMap<String, u64>,
    /// Of types that this version does not know.
    pub unknown: u64,
}

impl State {
    /// Gives everything in figures.
    pub fn summary(&self) -> RuntimeSummary {
        let lives = |records: Vec<(&String, &Life)>| {
            let running: Vec<String> = records
                .iter()
                .filter(|(_, life)| life.runs())
                .map(|(id, _)| (*id).clone())
                .collect();
            (counts(records.into_iter().map(|(_, life)| life)), running)
        };
        let (conversations, running_conversations) = lives(
            self.conversations
                .iter()
                .map(|(id, record)| (id, &record.life))
                .collect(),
        );
        let (agents, running_agents) = lives(
            self.agents
                .iter()
                .map(|(id, record)| (id, &record.life))
                .collect(),
        );
        let (tasks, running_tasks) = lives(
            self.tasks
                .iter()
                .map(|(id, record)| (id, &record.life))
                .collect(),
        );
        let (commands, running_commands) = lives(
            self.commands
                .iter()
                .map(|(id, record)| (id, &record.life))
                .collect(),
        );
        let running = Running {
            conversations: running_conversations,
            agents: running_agents,
            tasks: running_tasks,
            commands: running_commands,
        };
        let idle = running == Running::default();
        RuntimeSummary {
            status: if idle {
                Activity::Idle
            } else {
                Activity::Running
            },
            running,
            conversations,
            agents,
            tasks,
            commands,
            usage: self.usage_sum(),
            denials: self.denials.clone(),
            events: EventCounts {
                total: self.events,
                by_area: self.areas.clone(),
                unknown: self.unknown,
            },
        }
    }

    fn usage_sum(&self) -> UsageSum {
        let extra = &self.extra_usage;
        let mut sum = UsageSum {
            wall_ms: extra.wall_ms,
            user_ms: extra.user_ms,
            system_ms: extra.system_ms,
            output_bytes: extra.bytes,
            max_resident_kib: 0,
        };
        for command in self.commands.values() {
            sum.wall_ms += command.elapsed_ms.unwrap_or_default();
            sum.user_ms += command.usage.user_ms;
            sum.system_ms += command.usage.system_ms;
            sum.output_bytes += command.output_bytes;
            sum.max_resident_kib = sum.max_resident_kib.max(command.usage.max_resident_kib);
        }
        sum
    }
}

fn counts<'a>(lives: impl Iterator<Item = &'a Life>) -> Counts {
    let mut counts = Counts::default();
    for life in lives {
        counts.total += 1;
        if let Some(status) = life.status.map(Status::as_str) {
            *counts.by_status.entry(status.to_owned()).or_default() += 1;
        }
    }
    counts
}
