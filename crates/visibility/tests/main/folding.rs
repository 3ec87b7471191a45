//! A state is nothing but a fold over events.

use std::collections::BTreeSet;

use cofferdam_core::event::Event;
use cofferdam_visibility::{Node, NodeDetail, State};
use serde_json::json;

use crate::story::story;

#[test]
fn c102_a_snapshot_and_the_tail_are_the_whole() {
    let events = story();
    let whole = State::fold(&events);
    for cut in 0..=events.len() {
        let mut state = State::fold(&events[..cut]);
        assert_eq!(state.as_of(), cut as u64);
        // Pages may overlap: what was seen is left out.
        for event in &events[cut.saturating_sub(3)..] {
            state.apply(event);
        }
        assert_eq!(state, whole, "cut at {cut}");
    }
}

#[test]
fn strange_events_are_counted_and_harm_nothing() {
    let mut events = story();
    let known = State::fold(&events);
    let kinds: BTreeSet<String> = events.iter().map(|event| event.kind.clone()).collect();
    let strange = [
        json!(null),
        json!([1]),
        json!("text"),
        json!({"command_id": 7, "denials": [{"source": "moon"}], "checks": 3, "status": "who knows"}),
    ];
    for kind in kinds {
        for data in &strange {
            let mut event = events[0].clone();
            event.pos = events.len() as u64 + 1;
            event.kind.clone_from(&kind);
            event.data = data.clone();
            events.push(event);
        }
    }
    let state = State::fold(&events);
    // Four of a type that nobody knows.
    assert_eq!(
        state.summary().events.unknown,
        known.summary().events.unknown + 4
    );
    assert_eq!(state.summary().commands, known.summary().commands);
    state.topology();
}

fn running_commands(node: &Node, into: &mut BTreeSet<String>) {
    let own = matches!(node.detail, NodeDetail::Command { .. });
    if own && node.running > 0 {
        into.insert(node.id.clone());
    }
    node.children
        .iter()
        .for_each(|child| running_commands(child, into));
}

#[test]
fn c104_what_runs_is_the_union_of_its_parts() {
    let events = story();
    for cut in 0..=events.len() {
        let state = State::fold(&events[..cut]);
        let topology = state.topology();
        let mut parts = BTreeSet::new();
        topology
            .roots
            .iter()
            .for_each(|node| running_commands(node, &mut parts));
        let running: BTreeSet<String> = state.summary().running.commands.into_iter().collect();
        assert_eq!(parts, running, "cut at {cut}");
        assert_eq!(topology.running, running.len() as u64, "cut at {cut}");
    }
}

#[test]
fn a_circle_of_agents_is_cut_open() {
    let mut events: Vec<Event> = story()[..3].to_vec();
    for (agent, parent) in [("agent_w1", "agent_w9"), ("agent_w9", "agent_w1")] {
        let mut event = events[2].clone();
        event.pos = events.len() as u64 + 1;
        event.agent = agent.parse().ok();
        event.data = json!({"name": agent, "parent": parent});
        events.push(event);
    }
    let topology = State::fold(&events).topology();
    let mut seen = 0;
    let mut stack: Vec<&Node> = topology.roots.iter().collect();
    while let Some(node) = stack.pop() {
        seen += 1;
        stack.extend(&node.children);
    }
    assert_eq!(seen, 4);
}

#[test]
fn hosts_that_a_task_asked_for_are_counted_with_what_came_of_it() {
    let mut events = story();
    let last = events
        .iter()
        .rfind(|event| event.task.is_some())
        .expect("a task")
        .clone();
    let mut tell = |kind: &str, data: serde_json::Value| {
        let pos = events.len() as u64 + 1;
        events.push(Event {
            pos,
            kind: kind.to_owned(),
            data,
            ..last.clone()
        });
    };
    let decided = |host: &str, verdict: &str| json!({"host": host, "port": 443, "verdict": verdict, "reason": "r", "origin": "o"});
    tell("net.decided", decided("a.test", "allowed"));
    tell(
        "net.closed",
        json!({"host": "a.test", "port": 443, "sent": 5, "received": 7}),
    );
    tell("net.decided", decided("b.test", "refused"));
    tell("net.decided", decided("b.test", "refused"));
    let task = last.task.expect("as above").to_string();
    let hosts = State::fold(&events).evidence(&task).expect("known").hosts;
    let told: Vec<_> = hosts
        .iter()
        .map(|one| {
            (
                one.host.as_str(),
                one.reached,
                one.refused,
                one.sent,
                one.received,
            )
        })
        .collect();
    assert_eq!(told, [("a.test", 1, 0, 5, 7), ("b.test", 0, 2, 0, 0)]);
}
