use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::approval::{Answerer, Binding};
use crate::authority::Actor;
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::event::{Event, Severity, event_type};
use crate::id::{EventId, LeaseId, OperationId, ProposalId};
use crate::spec::Digest;
use crate::task::DiffSummary;

fn proposal() -> Proposal {
    let effect = Effect::Push {
        push: PushEffect {
            repository: BytePath::from("/w"),
            remote: "origin".to_owned(),
            urls: vec!["https://h.example/a.git".to_owned()],
            branch: "refs/heads/cofferdam/1-abc/x".to_owned(),
            commit: "a".repeat(40),
            tip: "a".repeat(40),
            commits: Vec::new(),
            commits_left_out: 0,
            summary: DiffSummary::default(),
            hook: None,
            cautions: Vec::new(),
        },
    };
    Proposal {
        proposal_id: ProposalId::new(1, [1; 10]),
        task_number: Some(1),
        by: ProposedBy::Operation,
        summary: effect.summary(),
        binding: Binding {
            actor: Actor::Protocol,
            task: None,
            call: None,
            root: BytePath::from("/w"),
            digest: Digest::of(b"the effect"),
        },
        effect,
        proposed: Timestamp::UNIX_EPOCH,
    }
}

fn event(kind: &str, pos: u64, data: Value) -> Event {
    Event {
        v: 1,
        id: EventId::new(pos, [0; 10]),
        pos,
        epoch: "e".to_owned(),
        seq: 0,
        time: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(pos.cast_signed()),
        kind: kind.to_owned(),
        conversation: None,
        thread: None,
        agent: None,
        root_agent: None,
        task: None,
        parent_task: None,
        op: None,
        causation: None,
        severity: Severity::Info,
        data,
        redactions: 0,
        prev_hash: String::new(),
        hash: String::new(),
    }
}

fn answer(number: u8) -> OperationId {
    OperationId::new(2, [number; 10])
}

fn value<T: serde::Serialize>(data: &T) -> Value {
    serde_json::to_value(data).expect("JSON")
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Release(u8),
    ReleaseOfSomethingElse(u8),
    ReleaseByReviewer(u8),
    Refuse(u8),
    Sent(u8),
    Failed(u8),
    CutOff(u8),
}

fn told(step: Step, pos: u64) -> Event {
    let proposal_id = ProposalId::new(1, [1; 10]);
    let release = |number: u8, text: &[u8], by| OutboxReleased {
        proposal_id: proposal_id.clone(),
        release_id: answer(number),
        digest: Digest::of(text),
        by,
        door: "command_line".to_owned(),
        lease: LeaseId::new(1, [4; 10]),
        once: false,
    };
    let released = |data: OutboxReleased| event(event_type::OUTBOX_RELEASED, pos, value(&data));
    match step {
        Step::Release(number) => released(release(number, b"the effect", Answerer::Owner)),
        Step::ReleaseOfSomethingElse(number) => {
            released(release(number, b"another", Answerer::Owner))
        }
        Step::ReleaseByReviewer(number) => {
            released(release(number, b"the effect", Answerer::Reviewer))
        }
        Step::Refuse(number) => event(
            event_type::OUTBOX_REFUSED,
            pos,
            value(&OutboxRefused {
                proposal_id,
                answer_id: answer(number),
                by: Answerer::Owner,
                door: "command_line".to_owned(),
                reason: None,
            }),
        ),
        Step::Sent(number) => event(
            event_type::OUTBOX_SENT,
            pos,
            value(&OutboxSent {
                proposal_id,
                release_id: answer(number),
                sent: Sent {
                    sent_as: SentAs::New,
                    said: String::new(),
                },
            }),
        ),
        Step::Failed(number) | Step::CutOff(number) => event(
            event_type::OUTBOX_FAILED,
            pos,
            value(&OutboxFailed {
                proposal_id,
                release_id: answer(number),
                problem: Problem::new(ErrorCode::PushFailed, "no"),
                unknown: matches!(step, Step::CutOff(_)),
            }),
        ),
    }
}

fn after(steps: &[Step]) -> Held {
    let mut outbox = Outbox::default();
    outbox.apply(&event(event_type::OUTBOX_PROPOSED, 1, value(&proposal())));
    for (index, step) in steps.iter().enumerate() {
        outbox.apply(&told(*step, index as u64 + 2));
    }
    outbox.iter().next().expect("one").clone()
}

#[test]
fn row_147_the_first_answer_stands_and_a_late_one_is_a_conflict() {
    let held = after(&[Step::Refuse(1), Step::Release(2), Step::Sent(2)]);
    assert_eq!(held.state, HeldState::Refused);
    assert!(held.is_by(&answer(1)));
    let late = held.check(Answerer::Owner).expect_err("decided");
    assert_eq!(late.code, ErrorCode::ProposalDecided);
    insta::assert_snapshot!(
        late.message.split_once(' ').expect("an id and more").1,
        @"is refused already"
    );

    // Of two releases at once one is carried out.
    let held = after(&[Step::Release(1), Step::Release(2), Step::Sent(2)]);
    assert_eq!(held.state, HeldState::Releasing);
    assert!(held.is_by(&answer(1)));
    let held = after(&[Step::Release(1), Step::Sent(1), Step::Refuse(2)]);
    assert_eq!(held.state, HeldState::Released);

    // What did not get through waits again.
    let again = [Step::Release(1), Step::Failed(1), Step::Release(2)];
    assert_eq!(after(&again[..2]).check(Answerer::Owner), Ok(()));
    assert_eq!(after(&again).state, HeldState::Releasing);
}

#[test]
fn what_may_have_left_is_never_tried_again() {
    let held = after(&[Step::Release(1), Step::CutOff(1), Step::Release(2)]);
    assert_eq!(held.state, HeldState::Unknown);
    assert!(held.is_by(&answer(1)));
    let late = held.check(Answerer::Owner).expect_err("decided");
    assert_eq!(late.code, ErrorCode::ProposalDecided);
    assert!(late.message.contains("is not tried again"), "{late}");
    // A refusal puts it away.
    let steps = [Step::Release(1), Step::CutOff(1), Step::Refuse(2)];
    assert_eq!(after(&steps).state, HeldState::Refused);
}

#[test]
fn only_the_owner_answers_and_only_what_was_shown() {
    let held = after(&[]);
    let problem = held.check(Answerer::Reviewer).expect_err("not theirs");
    assert_eq!(problem.code, ErrorCode::ApprovalForbidden);
    for step in [Step::ReleaseByReviewer(1), Step::ReleaseOfSomethingElse(1)] {
        assert_eq!(after(&[step]), held);
    }
}

#[test]
fn an_effect_is_written_and_read_whole_and_nothing_else_is_taken() {
    let effect = proposal().effect;
    let mut written = value(&effect);
    assert_eq!(written["kind"], "push");
    assert_eq!(
        serde_json::from_value::<Effect>(written.clone()).expect("read"),
        effect
    );
    written["push"]["force"] = true.into();
    assert!(serde_json::from_value::<Effect>(written).is_err());
    insta::assert_snapshot!(effect.summary(), @"push cofferdam/1-abc/x at aaaaaaaaaa to origin");
}

proptest! {
    /// Whatever is written in whatever order, nothing is released without the owner's word on
    /// exactly this, and what is decided stays so.
    #[test]
    fn nothing_leaves_without_an_answer(
        steps in prop::collection::vec((0_u8..7, 0_u8..3), 0..12)
    ) {
        let steps: Vec<Step> = steps
            .into_iter()
            .map(|(kind, number)| match kind {
                0 => Step::Release(number),
                1 => Step::ReleaseOfSomethingElse(number),
                2 => Step::ReleaseByReviewer(number),
                3 => Step::Refuse(number),
                4 => Step::Sent(number),
                5 => Step::CutOff(number),
                _ => Step::Failed(number),
            })
            .collect();
        let mut before = after(&[]);
        for end in 1..=steps.len() {
            let now = after(&steps[..end]);
            if matches!(before.state, HeldState::Released | HeldState::Refused) {
                prop_assert_eq!(&now, &before);
            }
            if before.state == HeldState::Unknown && now.state != HeldState::Unknown {
                prop_assert_eq!(now.state, HeldState::Refused);
            }
            if now.state == HeldState::Released && before.state != HeldState::Released {
                prop_assert_eq!(before.state, HeldState::Releasing);
                let Step::Sent(number) = steps[end - 1] else {
                    return Err(TestCaseError::fail("nothing was sent"));
                };
                prop_assert!(before.is_by(&answer(number)));
            }
            if now.state == HeldState::Releasing && before.state != HeldState::Releasing {
                prop_assert!(matches!(steps[end - 1], Step::Release(_)));
            }
            before = now;
        }
    }
}
