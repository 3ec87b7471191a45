//! Reviews as text.

use cofferdam_core::id::TaskId;
use cofferdam_core::outcome::{Denial, Status};
use cofferdam_core::task::{ChangeKind, DiffSummary, Merge, VerifyFrom};
use cofferdam_runtime::{ReviewChanges, ReviewChecks, TaskState};

use super::*;
use crate::render::fixtures::{check, file, task};
use crate::render::plain;

fn refused(host: &str, times: u64) -> ReviewedHost {
    ReviewedHost {
        host: host.to_owned(),
        port: Some(443),
        verdict: HostVerdict::Refused,
        reason: Some("not_listed".to_owned()),
        rule: None,
        times,
        pos: 1,
    }
}

fn denied(source: DenialSource, subject: &str, times: u64) -> ReviewedDenial {
    ReviewedDenial {
        denial: Denial {
            source,
            rule: "a rule".to_owned(),
            subject: subject.to_owned(),
            instead: "ask the owner to allow it with --allow a.example, or do without".to_owned(),
            askable: true,
            will_not_change: times > 2,
        },
        times,
        commands: Vec::new(),
        pos: 2,
    }
}

fn small() -> TaskReview {
    TaskReview {
        task_id: TaskId::new(1, [0; 10]),
        number: 3,
        goal: "fix the parser".to_owned(),
        command: "agent fix".to_owned(),
        state: TaskState::Settled,
        status: Status::Completed,
        summary: String::new(),
        return_code: Some(0),
        elapsed_ms: Some(61_000),
        open: true,
        isolation: Some(task().isolation),
        changes: ReviewChanges {
            summary: DiffSummary {
                files: 1,
                insertions: 2,
                deletions: 1,
                text: String::new(),
            },
            files: vec![ReviewedFile {
                file: file("src/\x1b[2Jparser.rs", ChangeKind::Modified, 2, 1),
                protected: false,
                commands: Vec::new(),
            }],
            patch_bytes: b"+new\x1b[31m\n".to_vec(),
            ..ReviewChanges::default()
        },
        checks: ReviewChecks {
            status: VerificationStatus::Passed,
            checks: vec![check("make check", VerificationStatus::Passed, "")],
            freshness: None,
            tampered_inputs: Vec::new(),
            verify_from: VerifyFrom::Task,
        },
        hosts: vec![refused("a.example", 3), refused("b.example", 1)],
        denials: vec![
            denied(DenialSource::Proxy, "a.example:443", 3),
            denied(DenialSource::Mount, ".git/hooks", 1),
        ],
        protected: Vec::new(),
        agent_state: Vec::new(),
        held: Vec::new(),
        questions: Vec::new(),
        left_behind: vec!["changes of a.txt (--carry tracked)".to_owned()],
        not_brought_in: Vec::new(),
        notes: Vec::new(),
        merge: Merge {
            status: MergeStatus::NotRequested,
            oid: None,
            conflicts: Vec::new(),
        },
        error: None,
        next: vec!["cofferdam merge 3".to_owned()],
    }
}

#[test]
fn a_small_task_is_grasped_in_one_screen() {
    insta::assert_snapshot!(plain(&reviews(&[small()])), @r"
    task 3 completed in 1 min 1 s · verifier passed · 2 hosts refused · 1 denial
      goal      fix the parser
      command   agent fix
      branch    cofferdam/run/worker from 0123456789
      walls     worktree · bwrap, network none
      changes   1 file, +2 −1
                M src/ [2Jparser.rs +2 −1
      checks    passed  make check 210 ms
      hosts     refused a.example:443 3 times (not_listed) (will not change); --allow a.example lets it through
                refused b.example:443 (not_listed)
      denied    .git/hooks (a rule)
                ask the owner to allow it with --allow a.example, or do without
      not in    changes of a.txt (--carry tracked)

    next: cofferdam merge 3
    ");
}

#[test]
fn a_patch_cannot_move_the_cursor_and_stands_below_its_task() {
    let one = patches(&[small()]);
    assert_eq!(plain(&one), "\n+new[31m\n");
    let two = plain(&patches(&[small(), small()]));
    assert!(two.contains("what task 3 changed\n+new"), "{two}");
}
