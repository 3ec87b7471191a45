use cofferdam_core::outcome::{Denial, Status};
use cofferdam_core::task::{ChangeKind, VerificationStatus};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hosts::{self, HostFact};
use crate::records::{FactRecord, TaskRecord};
use crate::state::State;

/// What supports and what contradicts the claims about a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskEvidence {
    /// The task.
    pub task_id: String,
    /// Its goal.
    pub goal: Option<String>,
    /// How it stands.
    pub status: Option<Status>,
    /// The result in one sentence, when it ended.
    pub summary: Option<String>,
    /// The verifier's word.
    pub verification: Option<VerificationStatus>,
    /// What the worker says.
    pub claims: Vec<Claim>,
    /// What the system saw.
    pub facts: Vec<Fact>,
    /// Commands that ran for it, oldest first.
    pub commands: Vec<CommandFacts>,
    /// Files that changed, by path.
    pub files: Vec<FileFact>,
    /// What was denied, with who saw it.
    pub denials: Vec<DenialFact>,
    /// Hosts that were asked for, reached or not.
    pub hosts: Vec<HostFact>,
    /// Whether the last passing check saw the last edit.
    pub freshness: Freshness,
}

/// Something that somebody says and that needs support.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Position of its event.
    pub pos: u64,
    /// When it was said.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// Who says it.
    pub by: Option<String>,
    /// What is said, one line.
    pub text: String,
    /// What the facts say to it.
    pub verdict: ClaimVerdict,
}

/// What the facts say to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    /// A fact that names it supports it, and none contradicts it.
    Supported,
    /// A fact that names it contradicts it.
    Contradicted,
    /// No fact names it.
    Unverified,
}

/// Something that the system saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// Position of its event.
    pub pos: u64,
    /// When it was seen.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// Its id, when it has one.
    pub evidence_id: Option<String>,
    /// What kind: `command`, `files_changed`, `denial`, `check`, and others.
    pub kind: String,
    /// One line for people.
    pub summary: String,
    /// The claim that it is about.
    pub claim: Option<String>,
    /// Whether it supports that claim.
    pub supports: Option<bool>,
    /// The command that it is about.
    pub command_id: Option<String>,
}

/// A command of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandFacts {
    /// The command.
    pub command_id: String,
    /// Position of the first event about it.
    pub pos: u64,
    /// Position of the last event about it: with an outcome, that one.
    pub last_pos: u64,
    /// What ran, one line.
    pub command: Option<String>,
    /// How it stands.
    pub status: Option<Status>,
    /// Its exit code.
    pub return_code: Option<i64>,
    /// Wall time in milliseconds.
    pub elapsed_ms: Option<u64>,
    /// Bytes of both streams.
    pub output_bytes: u64,
    /// Files that it changed, where that was seen for each command.
    pub files: Vec<String>,
    /// How much was denied.
    pub denials: u64,
    /// Why it never ran or was ended by us.
    pub error: Option<String>,
}

/// A file that changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileFact {
    /// Its path.
    pub path: String,
    /// What happened to it.
    pub change: ChangeKind,
    /// Its former path.
    pub from: Option<String>,
    /// Position of the last event about it.
    pub pos: u64,
    /// The commands that did it, where that was seen.
    pub commands: Vec<String>,
}

/// Something that was denied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DenialFact {
    /// Position of its event.
    pub pos: u64,
    /// The command that tried.
    pub command_id: Option<String>,
    /// Who saw it, which rule, on what, and what to do instead.
    pub denial: Denial,
}

/// A place in the log and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// The position.
    pub pos: u64,
    /// The time.
    #[schemars(with = "String")]
    pub time: Timestamp,
}

/// How old the last passing check is against the last edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Freshness {
    /// In one word.
    pub verdict: FreshnessVerdict,
    /// The last change of a file that was seen.
    pub last_edit: Option<Moment>,
    /// The last check that passed.
    pub last_passing_check: Option<Moment>,
    /// Milliseconds from the last edit to that check; below zero when the edit came later.
    pub check_after_edit_ms: Option<i64>,
}

/// Whether a passing check speaks for the files as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FreshnessVerdict {
    /// A check passed after the last edit.
    Fresh,
    /// Files changed after the last check that passed.
    Stale,
    /// No check passed.
    NeverPassed,
}

impl State {
    /// Gives the evidence of a task; `None` when no event names it.
    pub fn evidence(&self, task_id: &str) -> Option<TaskEvidence> {
        let task = self.tasks.get(task_id)?;
        let (claims, facts): (Vec<&FactRecord>, Vec<&FactRecord>) =
            task.facts.iter().partition(|fact| fact.kind == "claim");
        let mut facts: Vec<Fact> = facts.into_iter().map(fact).collect();
        facts.extend(self.check_facts(task_id));
        facts.sort_by_key(|fact| fact.pos);
        Some(TaskEvidence {
            task_id: task_id.to_owned(),
            goal: task.goal.clone(),
            status: task.life.status,
            summary: task.summary.clone(),
            verification: task.verification,
            claims: claims
                .into_iter()
                .map(|claim| Claim {
                    pos: claim.pos,
                    time: claim.time,
                    by: claim.by.clone(),
                    text: claim.summary.clone(),
                    verdict: verdict(claim, &task.facts),
                })
                .collect(),
            facts,
            commands: self.command_facts(task),
            files: task
                .files
                .iter()
                .map(|(path, file)| FileFact {
                    path: path.clone(),
                    change: file.change,
                    from: file.from.clone(),
                    pos: file.pos,
                    commands: file.commands.clone(),
                })
                .collect(),
            denials: task
                .denials
                .iter()
                .map(|record| DenialFact {
                    pos: record.pos,
                    command_id: record.command.clone(),
                    denial: record.denial.clone(),
                })
                .collect(),
            hosts: task
                .hosts
                .iter()
                .map(|((host, port), record)| hosts::fact((host, *port), record))
                .collect(),
            freshness: freshness(task),
        })
    }

    fn check_facts(&self, task_id: &str) -> impl Iterator<Item = Fact> {
        let checks = self
            .verifiers
            .get(task_id)
            .map(|verifier| verifier.checks.as_slice())
            .unwrap_or_default();
        checks.iter().map(|check| Fact {
            pos: check.pos,
            time: check.time,
            evidence_id: None,
            kind: "check".to_owned(),
            summary: format!("{} {}", check.check, check.status.as_str()),
            claim: None,
            supports: Some(check.status == VerificationStatus::Passed),
            command_id: check.command.clone(),
        })
    }

    fn command_facts(&self, task: &TaskRecord) -> Vec<CommandFacts> {
        let mut commands: Vec<CommandFacts> = task
            .commands
            .iter()
            .filter_map(|id| {
                let record = self.commands.get(id)?;
                Some(CommandFacts {
                    command_id: id.clone(),
                    pos: record.life.first_pos,
                    last_pos: record.last_pos,
                    command: record.line.clone(),
                    status: record.life.status,
                    return_code: record.return_code,
                    elapsed_ms: record.elapsed_ms,
                    output_bytes: record.output_bytes,
                    files: task
                        .files
                        .iter()
                        .filter(|(_, file)| file.commands.contains(id))
                        .map(|(path, _)| path.clone())
                        .collect(),
                    denials: record.denials,
                    error: record.error.clone(),
                })
            })
            .collect();
        commands.sort_by_key(|command| command.pos);
        commands
    }
}

fn fact(record: &FactRecord) -> Fact {
    Fact {
        pos: record.pos,
        time: record.time,
        evidence_id: record.id.clone(),
        kind: record.kind.clone(),
        summary: record.summary.clone(),
        claim: record.claim.clone(),
        supports: record.supports,
        command_id: record.command.clone(),
    }
}

fn verdict(claim: &FactRecord, facts: &[FactRecord]) -> ClaimVerdict {
    let Some(id) = claim.id.as_deref() else {
        return ClaimVerdict::Unverified;
    };
    facts
        .iter()
        .filter(|fact| fact.claim.as_deref() == Some(id))
        .filter_map(|fact| fact.supports)
        .fold(ClaimVerdict::Unverified, |verdict, supports| {
            match (verdict, supports) {
                (ClaimVerdict::Contradicted, _) | (_, false) => ClaimVerdict::Contradicted,
                (_, true) => ClaimVerdict::Supported,
            }
        })
}

fn freshness(task: &TaskRecord) -> Freshness {
    let moment = |(pos, time): (u64, Timestamp)| Moment { pos, time };
    let verdict = match (task.last_passing_check, task.last_edit) {
        (None, _) => FreshnessVerdict::NeverPassed,
        (Some((check, _)), Some((edit, _))) if check < edit => FreshnessVerdict::Stale,
        (Some(_), _) => FreshnessVerdict::Fresh,
    };
    let check_after_edit_ms = match (task.last_passing_check, task.last_edit) {
        (Some((_, check)), Some((_, edit))) => Some(check.as_millisecond() - edit.as_millisecond()),
        _ => None,
    };
    Freshness {
        verdict,
        last_edit: task.last_edit.map(moment),
        last_passing_check: task.last_passing_check.map(moment),
        check_after_edit_ms,
    }
}
