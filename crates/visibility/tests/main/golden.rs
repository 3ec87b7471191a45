//! Every view of the story, held against what it was.

use cofferdam_visibility::{FreshnessVerdict, State};

use crate::story::{BUSY, GOOD, story};

fn state() -> State {
    State::fold(&story())
}

#[test]
fn c104_topology() {
    insta::assert_json_snapshot!(state().topology());
}

#[test]
fn c104_evidence() {
    insta::assert_json_snapshot!(state().evidence(GOOD));
}

#[test]
fn c104_thread() {
    insta::assert_json_snapshot!((state().thread("thread_1"), state().threads()));
}

#[test]
fn c104_verifier() {
    insta::assert_json_snapshot!(state().verifier_summary());
}

#[test]
fn c104_summary() {
    insta::assert_json_snapshot!(state().summary());
}

#[test]
fn what_is_not_there_is_said_to_be() {
    assert_eq!(state().evidence("task_none"), None);
    assert_eq!(state().thread("thread_none"), None);
}

#[test]
fn an_edit_after_the_check_makes_it_stale() {
    let mut events = story();
    let verdict = |events: &[_], task| {
        let evidence = State::fold(events).evidence(task).expect("there");
        evidence.freshness.verdict
    };
    assert_eq!(verdict(&events, GOOD), FreshnessVerdict::Fresh);
    assert_eq!(verdict(&events, BUSY), FreshnessVerdict::NeverPassed);
    let mut edit = events
        .iter()
        .find(|event| event.kind == "file.changed")
        .cloned()
        .expect("one");
    // Told late, of a command that had ended before the checks: that is no later edit.
    edit.pos = events.len() as u64 + 1;
    events.push(edit.clone());
    assert_eq!(verdict(&events, GOOD), FreshnessVerdict::Fresh);
    edit.pos += 1;
    edit.data = serde_json::json!({"modified": ["parser.c"]});
    events.push(edit);
    assert_eq!(verdict(&events, GOOD), FreshnessVerdict::Stale);
}
