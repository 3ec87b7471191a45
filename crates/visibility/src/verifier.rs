use cofferdam_core::task::VerificationStatus;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::VerifierRecord;
use crate::state::State;

/// What verifiers say, task by task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifierSummary {
    /// How many there are of each.
    pub counts: VerifierCounts,
    /// Each verifier in its last run, oldest first.
    pub runs: Vec<VerifierRun>,
}

/// Verifiers by their word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifierCounts {
    /// Every check was good.
    pub passed: u64,
    /// A check was not.
    pub failed: u64,
    /// A check could not be run.
    pub error: u64,
    /// There was nothing to check.
    pub skipped: u64,
    /// It runs.
    pub running: u64,
}

/// One verifier in its last run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifierRun {
    /// The task that it verifies.
    pub task_id: Option<String>,
    /// Its word; nothing while it runs.
    pub status: Option<VerificationStatus>,
    /// When it began.
    #[schemars(with = "Option<String>")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[schemars(with = "Option<String>")]
    pub ended: Option<Timestamp>,
    /// Checks that were run.
    pub checks: Vec<CheckView>,
    /// Checks that were announced and not run yet.
    pub pending: Vec<String>,
    /// Files that a check is known to read and the task changed.
    pub tampered_inputs: Vec<String>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckView {
    /// Position of its event.
    pub pos: u64,
    /// The shell command, one line.
    pub check: String,
    /// Its verdict.
    pub status: VerificationStatus,
    /// Its exit code.
    pub return_code: Option<i64>,
    /// Wall time in milliseconds.
    pub elapsed_ms: Option<u64>,
    /// The command that it was.
    pub command_id: Option<String>,
}

impl State {
    /// Gives what verifiers say.
    pub fn verifier_summary(&self) -> VerifierSummary {
        let mut records: Vec<&VerifierRecord> = self.verifiers.values().collect();
        records.sort_by_key(|record| record.life.first_pos);
        let mut counts = VerifierCounts::default();
        for record in &records {
            let count = match record.verdict {
                Some(VerificationStatus::Passed) => &mut counts.passed,
                Some(VerificationStatus::Failed) => &mut counts.failed,
                Some(VerificationStatus::Error) => &mut counts.error,
                Some(VerificationStatus::Skipped) => &mut counts.skipped,
                None => &mut counts.running,
            };
            *count += 1;
        }
        VerifierSummary {
            counts,
            runs: records.into_iter().map(run).collect(),
        }
    }
}

fn run(record: &VerifierRecord) -> VerifierRun {
    let pending = match record.verdict {
        Some(_) => Vec::new(),
        None => record
            .planned
            .iter()
            .skip(record.checks.len())
            .cloned()
            .collect(),
    };
    VerifierRun {
        task_id: record.task.clone(),
        status: record.verdict,
        started: record.life.started,
        ended: record.life.ended,
        checks: record
            .checks
            .iter()
            .map(|check| CheckView {
                pos: check.pos,
                check: check.check.clone(),
                status: check.status,
                return_code: check.return_code,
                elapsed_ms: check.elapsed_ms,
                command_id: check.command.clone(),
            })
            .collect(),
        pending,
        tampered_inputs: record.tampered_inputs.clone(),
    }
}
