//! Results to be rendered in tests.

use cofferdam_core::event::Event;
use cofferdam_core::id::{CommandId, ConversationId, TaskId};
use cofferdam_core::outcome::{
    CommandOutcome, EndedBy, Isolation, IsolationLevel, OutputReference, Status, StreamEncoding,
    Usage,
};
use cofferdam_core::spec::{Mechanism, Network, ProviderKind};
use cofferdam_core::task::{
    ChangeKind, CheckResult, CleanupStatus, DiffSummary, IsolationMode, Merge, MergeStatus,
    ModifiedFile, TaskIsolation, TaskResult, Verification, VerificationStatus, VerifyFrom,
};

pub(crate) fn level(provider: Option<ProviderKind>) -> IsolationLevel {
    IsolationLevel {
        provider,
        network: Network::None,
    }
}

pub(crate) fn outcome(status: Status) -> CommandOutcome {
    let whole = OutputReference {
        bytes: 0,
        digest: None,
        dropped: 0,
    };
    CommandOutcome {
        command_id: CommandId::new(1, [0; 10]),
        success: status == Status::Completed,
        status,
        output: String::new(),
        stdout: String::new(),
        stderr: String::new(),
        stdout_encoding: StreamEncoding::Utf8,
        stderr_encoding: StreamEncoding::Utf8,
        return_code: (status == Status::Completed).then_some(0),
        signal: None,
        truncated: false,
        elapsed_ms: 1_234,
        isolation: Isolation {
            requested: level(None),
            effective: level(Some(ProviderKind::Bwrap)),
            enforced_by: vec![Mechanism::MountNamespace, Mechanism::Seccomp],
            gaps: Vec::new(),
            uid: 1000,
        },
        published: Vec::new(),
        denials: Vec::new(),
        hints: Vec::new(),
        stdout_full: whole.clone(),
        stderr_full: whole,
        leftovers: Vec::new(),
        kept: Vec::new(),
        pipes_held_by: Vec::new(),
        ended_by: Some(EndedBy::Itself),
        usage: Usage::default(),
        timeout_ms: None,
        timeout_clamped: false,
        limits: Vec::new(),
        reasons: Vec::new(),
        undone: Vec::new(),
        error: None,
    }
}

pub(crate) fn file(path: &str, change: ChangeKind, added: u64, removed: u64) -> ModifiedFile {
    ModifiedFile {
        path: path.into(),
        change,
        from: None,
        binary: false,
        added_lines: added,
        removed_lines: removed,
        untracked: change == ChangeKind::Added,
    }
}

pub(crate) fn check(text: &str, status: VerificationStatus, output: &str) -> CheckResult {
    CheckResult {
        check: text.to_owned(),
        status,
        return_code: Some(i32::from(status != VerificationStatus::Passed)),
        elapsed_ms: 210,
        output: output.to_owned(),
        command_id: None,
    }
}

pub(crate) fn task() -> TaskResult {
    TaskResult {
        task_id: TaskId::new(1, [0; 10]),
        conversation_id: ConversationId::new(1, [0; 10]),
        number: 3,
        goal: "fix the parser".to_owned(),
        status: Status::Completed,
        summary: "2 files changed, the verifier passed".to_owned(),
        isolation: TaskIsolation {
            mode: IsolationMode::Worktree,
            workspace_path: Some("/data/worktrees/repo/run/worker".into()),
            branch: Some("cofferdam/run/worker".to_owned()),
            base: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            cleanup_status: CleanupStatus::Removed,
            requested: level(None),
            effective: level(Some(ProviderKind::Bwrap)),
            enforced_by: vec![Mechanism::MountNamespace],
        },
        modified_files: vec![
            file("a.txt", ChangeKind::Modified, 1, 1),
            file("new.txt", ChangeKind::Added, 1, 0),
        ],
        git_diff_summary: DiffSummary {
            files: 2,
            insertions: 2,
            deletions: 1,
            text: "2 files changed, 2 insertions(+), 1 deletion(-)".to_owned(),
        },
        task_result: Some(outcome(Status::Completed)),
        verification: Verification {
            status: VerificationStatus::Passed,
            checks: vec![check("make check", VerificationStatus::Passed, "")],
            tampered_inputs: Vec::new(),
            verify_from: VerifyFrom::Task,
            tree: None,
        },
        merge: Merge {
            status: MergeStatus::NotRequested,
            oid: None,
            conflicts: Vec::new(),
        },
        evidence: Vec::new(),
        left_behind: Vec::new(),
        error: None,
        next: vec![
            "cofferdam review 3".to_owned(),
            "cofferdam merge 3".to_owned(),
        ],
    }
}

/// Makes an event about a subject, as an object of ids.
pub(crate) fn event(subject: &serde_json::Value, kind: &str, data: serde_json::Value) -> Event {
    let mut whole = serde_json::json!({
        "v": 1, "id": "evt_1", "pos": 1, "epoch": "e", "seq": 0, "time": "2026-01-01T00:00:00Z",
        "type": kind, "severity": "info", "data": data, "redactions": 0, "prev_hash": "", "hash": "",
    });
    if let (Some(whole), Some(subject)) = (whole.as_object_mut(), subject.as_object()) {
        whole.extend(subject.clone());
    }
    serde_json::from_value(whole).expect("an event")
}
