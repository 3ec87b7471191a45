use cofferdam_core::event::Event;
use cofferdam_visibility::State;
use serde_json::json;

use super::*;
use crate::render::fixtures::event;
use crate::render::plain;

/// A conversation with one task, its command, a check and a message.
fn events() -> Vec<Event> {
    let root = json!({"conversation": "conv_1", "agent": "agent_1", "root_agent": "agent_1"});
    let worker = json!({
        "conversation": "conv_1", "agent": "agent_2", "root_agent": "agent_1",
        "task": "task_1", "thread": "thread_1",
    });
    let of = |subject: &serde_json::Value, kind: &str, data| event(subject, kind, data);
    let mut events = vec![
        of(
            &root,
            "conversation.started",
            json!({"goal": "fix the parser", "front_door": "command_line"}),
        ),
        of(
            &root,
            "agent.started",
            json!({"name": "owner", "role": "root", "parent": null}),
        ),
        of(
            &worker,
            "agent.started",
            json!({"name": "worker", "role": "worker", "parent": "agent_1"}),
        ),
        of(
            &worker,
            "task.created",
            json!({"goal": "fix the parser", "number": 1, "isolation_mode": "worktree"}),
        ),
        of(
            &worker,
            "message.sent",
            json!({"from": "agent_1", "to": "agent_2", "text": "fix\u{1b}[2J it"}),
        ),
        of(
            &worker,
            "exec.intended",
            json!({"command_id": "cmd_1", "argv": ["make"], "cwd": "/w"}),
        ),
        of(
            &worker,
            "exec.ended",
            json!({
                "command_id": "cmd_1", "status": "failed", "return_code": 2, "elapsed_ms": 1500,
                "isolation": {"effective": {"provider": "bwrap", "network": "none"}},
            }),
        ),
        of(
            &worker,
            "verifier.started",
            json!({"checks": ["make check", "true"]}),
        ),
        of(
            &worker,
            "verifier.check",
            json!({"check": "make check", "status": "failed", "return_code": 1}),
        ),
        of(
            &worker,
            "verifier.check",
            json!({"check": "true", "status": "passed", "return_code": 0}),
        ),
        of(
            &worker,
            "verifier.ended",
            json!({"status": "failed", "checks": [], "tampered_inputs": ["Makefile"]}),
        ),
        of(
            &worker,
            "task.ended",
            json!({"status": "failed", "summary": "it failed"}),
        ),
    ];
    for (index, event) in events.iter_mut().enumerate() {
        event.pos = index as u64 + 1;
    }
    events
}

#[test]
fn the_topology_is_a_tree() {
    let state = State::fold(&events());
    insta::assert_snapshot!(plain(&topology(&state.topology())), @r"
    conversation fix the parser running
    └─ agent owner running
       └─ agent worker running
          └─ task fix the parser failed, verifier failed
             └─ command make failed, exit 2 bwrap 1.5 s
    ");
}

#[test]
fn the_summary_counts() {
    let state = State::fold(&events());
    insta::assert_snapshot!(plain(&summary(&state.summary())), @r"
    running
      conversations  1 (1 running)
      agents         2 (2 running)
      tasks          1 (1 failed)
      commands       1 (1 failed)
      used           1.5 s of wall time, 0 ms of processor time, 0 B of output
      events         12
    ");
}

#[test]
fn the_verifier_names_each_check() {
    let state = State::fold(&events());
    insta::assert_snapshot!(plain(&verifier(&state.verifier_summary())), @r"
    0 passed, 1 failed, 0 could not be run, 0 skipped, 0 running

    task_1 failed
      failed  make check (exit 1)
      passed  true
      the task changed what the checks read: Makefile
    ");
}

#[test]
fn evidence_begins_with_the_verdict() {
    let state = State::fold(&events());
    let shown = state.evidence("task_1").expect("a task");
    insta::assert_snapshot!(plain(&evidence(&shown)), @r"
    fix the parser failed · verifier failed
    a check passed after the last edit, and another did not

    Facts
           9 check          make check failed
          10 check          true passed

    Commands
           6 failed, exit 2 make 0 B
    ");
}

#[test]
fn messages_cannot_move_the_cursor() {
    let state = State::fold(&events());
    let thread = state.thread("thread_1").expect("a thread");
    insta::assert_snapshot!(plain(&messages(&thread)), @r"
    00:00:00 agent_1 → agent_2
      fix[2J it
    ");
    assert!(plain(&threads(&state.threads())).contains("thread_1"));
}

#[test]
fn nothing_is_said_in_words() {
    let state = State::default();
    assert_eq!(topology(&state.topology()), "nothing has happened yet\n");
    assert_eq!(threads(&state.threads()), "no threads yet\n");
}
