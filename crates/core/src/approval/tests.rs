use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::authority::Actor;
use crate::bytes::BytePath;
use crate::error::ErrorCode;
use crate::id::{ApprovalId, LeaseId, OperationId, TaskId};
use crate::spec::Digest;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
}

fn binding() -> Binding {
    Binding {
        actor: Actor::Protocol,
        task: Some(TaskId::new(1, [1; 10])),
        call: Some(OperationId::new(1, [2; 10])),
        root: BytePath::from("/w"),
        digest: Digest::sha256(b"the request"),
    }
}

fn approval(entitled: Entitled) -> Approval {
    Approval::new(ApprovalAsk {
        approval_id: ApprovalId::new(1, [3; 10]),
        kind: ApprovalKind::Command,
        summary: "make install".to_owned(),
        why: "the policy asks before each change".to_owned(),
        binding: binding(),
        preview: ApprovalPreview::default(),
        entitled,
        remember: None,
        asked: at(0),
        expires: at(100),
        lease: LeaseId::new(1, [4; 10]),
    })
}

fn given(answer: ApprovalAnswer, by: Answerer, second: i64) -> GivenAnswer {
    GivenAnswer {
        answer,
        by,
        door: "command_line".to_owned(),
        reason: None,
        remember: Remember::Once,
        remember_days: None,
        time: at(second),
    }
}

fn used(number: u8, binding: Binding) -> ApprovalUsed {
    ApprovalUsed {
        approval_id: ApprovalId::new(1, [3; 10]),
        use_id: OperationId::new(9, [number; 10]),
        binding,
    }
}

use Answerer::{Owner, Reviewer};
use ApprovalAnswer::{Approve, Reject};

#[test]
fn row_70_the_first_answer_stands_and_a_late_one_is_a_conflict() {
    let mut one = approval(Entitled::Owner);
    assert_eq!(one.standing(Owner, at(1)), Ok(Standing::Open));
    one.answer(given(Reject, Owner, 1));
    assert_eq!(one.standing(Owner, at(2)), Ok(Standing::Stands));
    one.answer(given(Approve, Owner, 2));
    assert_eq!(one.state, ApprovalState::Rejected);
    assert_eq!(one.answers.len(), 1);

    let late = approval(Entitled::Owner);
    let problem = late.standing(Owner, at(100)).expect_err("too late");
    assert_eq!(problem.code, ErrorCode::ApprovalClosed);
    for end in [
        ApprovalState::Cancelled,
        ApprovalState::Expired,
        ApprovalState::Interrupted,
    ] {
        let mut ended = approval(Entitled::Owner);
        ended.resolve(end, at(1));
        assert_eq!(ended.state, end);
        let problem = ended.standing(Owner, at(2)).expect_err("too late");
        assert_eq!(problem.code, ErrorCode::ApprovalClosed);
        ended.answer(given(Approve, Owner, 2));
        assert_eq!(ended.state, end);
    }
}

#[test]
fn row_70_who_is_not_entitled_decides_nothing() {
    let mut one = approval(Entitled::Owner);
    let problem = one.standing(Reviewer, at(1)).expect_err("not theirs");
    assert_eq!(problem.code, ErrorCode::ApprovalForbidden);
    one.answer(given(Approve, Reviewer, 1));
    assert_eq!(one.state, ApprovalState::Pending);
    // An end that nobody answered never approves.
    one.resolve(ApprovalState::Approved, at(1));
    assert_eq!(one.state, ApprovalState::Pending);
}

#[test]
fn row_74_one_of_two_is_not_enough_in_either_order() {
    for (first, second) in [(Owner, Reviewer), (Reviewer, Owner)] {
        let mut one = approval(Entitled::Both);
        one.answer(given(Approve, first, 1));
        one.answer(given(Approve, first, 2));
        assert_eq!(one.state, ApprovalState::Pending, "{first:?} twice");
        let problem = one.may_use(&binding(), at(3)).expect_err("not yet");
        assert_eq!(problem.code, ErrorCode::GrantRefused);
        one.answer(given(Approve, second, 3));
        assert_eq!(one.state, ApprovalState::Approved);

        let mut no = approval(Entitled::Both);
        no.answer(given(Approve, first, 1));
        no.answer(given(Reject, second, 2));
        assert_eq!(no.state, ApprovalState::Rejected);
    }
}

#[test]
fn row_72_what_was_approved_is_done_once_and_nothing_else_is() {
    let mut one = approval(Entitled::Owner);
    one.answer(given(Approve, Owner, 1));
    let others = [
        Binding {
            actor: Actor::Owner,
            ..binding()
        },
        Binding {
            task: None,
            ..binding()
        },
        Binding {
            call: Some(OperationId::new(1, [3; 10])),
            ..binding()
        },
        Binding {
            root: BytePath::from("/w/sub"),
            ..binding()
        },
        Binding {
            digest: Digest::sha256(b"the requesu"),
            ..binding()
        },
    ];
    for (number, other) in others.into_iter().enumerate() {
        let problem = one.may_use(&other, at(2)).expect_err("another");
        assert_eq!(problem.code, ErrorCode::GrantRefused, "{number}");
        one.use_once(&used(1, other), at(2));
        assert_eq!(one.used, None, "{number}");
    }
    assert!(one.may_use(&binding(), at(61)).is_err(), "not in time");
    one.use_once(&used(2, binding()), at(2));
    one.use_once(&used(3, binding()), at(3));
    assert_eq!(one.used, Some(used(2, binding()).use_id));
    assert!(one.may_use(&binding(), at(3)).is_err(), "replayed");
}

#[derive(Debug, Clone)]
enum Step {
    Answer(ApprovalAnswer, Answerer),
    Resolve(ApprovalState),
    Use(u8),
}

fn steps() -> impl Strategy<Value = Vec<(Step, i64)>> {
    let step = prop_oneof![
        (
            prop_oneof![Just(Approve), Just(Reject)],
            prop_oneof![Just(Owner), Just(Reviewer)]
        )
            .prop_map(|(answer, by)| Step::Answer(answer, by)),
        prop_oneof![
            Just(ApprovalState::Approved),
            Just(ApprovalState::Rejected),
            Just(ApprovalState::Expired),
            Just(ApprovalState::Cancelled),
            Just(ApprovalState::Interrupted),
        ]
        .prop_map(Step::Resolve),
        any::<u8>().prop_map(Step::Use),
    ];
    proptest::collection::vec((step, 0i64..40), 0..12)
}

proptest! {
    /// Whatever happens in whatever order: what ended never changes, approval needs everybody who
    /// is entitled, and at most one use counts.
    #[test]
    fn row_70_a_decision_never_changes(
        entitled in prop_oneof![Just(Entitled::Owner), Just(Entitled::Either), Just(Entitled::Both)],
        steps in steps(),
    ) {
        let mut one = approval(entitled);
        let mut second = 0;
        let mut ended: Option<ApprovalState> = None;
        let mut first_use = None;
        for (step, later) in steps {
            second += later;
            match step {
                Step::Answer(answer, by) => one.answer(given(answer, by, second)),
                Step::Resolve(state) => one.resolve(state, at(second)),
                Step::Use(number) => one.use_once(&used(number, binding()), at(second)),
            }
            if let Some(before) = ended {
                prop_assert_eq!(one.state, before);
            }
            if one.state != ApprovalState::Pending {
                ended = Some(one.state);
            }
            if one.state == ApprovalState::Approved {
                let yes = one.answers.iter().filter(|one| one.answer == Approve).count();
                prop_assert_eq!(yes, entitled.needed());
                prop_assert!(one.answers.iter().all(|one| entitled.includes(one.by)));
                prop_assert!(one.answers.iter().all(|one| one.time < at(100)));
            }
            if let Some(before) = &first_use {
                prop_assert_eq!(one.used.as_ref(), Some(before));
            }
            if one.used.is_some() {
                prop_assert_eq!(one.state, ApprovalState::Approved);
            }
            first_use.clone_from(&one.used);
        }
    }
}
