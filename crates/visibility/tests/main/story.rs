//! A line of work with two tasks: one ends well, one is still at it.

use cofferdam_core::event::{Event, Severity};
use cofferdam_core::id::{AgentId, ConversationId, EventId, TaskId, ThreadId};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) const GOOD: &str = "task_good";
pub(crate) const BUSY: &str = "task_busy";

/// Builds events as a journal would give them, a second apart.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) events: Vec<Event>,
}

impl Story {
    pub(crate) fn say(&mut self, kind: &str, agent: &str, task: Option<&str>, data: Value) {
        let pos = self.events.len() as u64 + 1;
        self.events.push(Event {
            v: 1,
            id: EventId::parse(&format!("evt_{pos}")).expect("an id"),
            pos,
            epoch: "e".to_owned(),
            seq: pos,
            time: Timestamp::from_second(1_800_000_000 + pos as i64).expect("a time"),
            kind: kind.to_owned(),
            conversation: ConversationId::parse("conv_1").ok(),
            thread: None,
            agent: AgentId::parse(agent).ok(),
            root_agent: AgentId::parse("agent_root").ok(),
            task: task.and_then(|task| TaskId::parse(task).ok()),
            parent_task: None,
            op: None,
            causation: None,
            severity: Severity::Info,
            data,
            redactions: 0,
            prev_hash: String::new(),
            hash: String::new(),
        });
    }

    fn message(&mut self, agent: &str, task: &str, data: Value) {
        self.say("message.sent", agent, Some(task), data);
        if let Some(event) = self.events.last_mut() {
            event.thread = ThreadId::parse("thread_1").ok();
        }
    }
}

fn outcome(command: &str, status: &str, code: i64, denials: Value) -> Value {
    json!({
        "command_id": command, "success": code == 0, "status": status, "return_code": code,
        "elapsed_ms": 900, "stdout": "secret output that no view keeps",
        "isolation": {
            "requested": {"network": "none"},
            "effective": {"provider": "bwrap", "network": "none"},
            "enforced_by": [], "uid": 0
        },
        "denials": denials,
        "stdout_full": {"bytes": 32}, "stderr_full": {"bytes": 8},
        "usage": {"user_ms": 40, "system_ms": 10, "max_resident_kib": 2048}
    })
}

/// Tells the story.
pub(crate) fn story() -> Vec<Event> {
    let mut story = Story::default();
    let denial = json!({
        "source": "mount", "rule": "git_hooks", "subject": "/repo/.git/hooks/pre-commit",
        "instead": "leave it to the owner", "askable": false
    });
    story.say(
        "conversation.started",
        "agent_root",
        None,
        json!({"goal": "mend the parser", "front_door": "cli"}),
    );
    story.say(
        "agent.started",
        "agent_root",
        None,
        json!({"name": "lead", "role": "root"}),
    );
    story.say(
        "agent.started",
        "agent_w1",
        None,
        json!({"name": "mender", "role": "worker", "parent": "agent_root"}),
    );
    story.say(
        "task.created",
        "agent_w1",
        Some(GOOD),
        json!({"goal": "mend the parser\nand more", "isolation_mode": "worktree"}),
    );
    story.message(
        "agent_w1",
        GOOD,
        json!({"from": "lead", "to": "mender", "text": "mend it"}),
    );
    story.say(
        "isolation.workspace",
        "agent_w1",
        Some(GOOD),
        json!({"step": "made", "branch": "cofferdam/r/w", "base": "a1b2"}),
    );
    story.say(
        "exec.intended",
        "agent_w1",
        Some(GOOD),
        json!({"command_id": "cmd_1", "argv": ["sed", "-i", "s/a/b/", "parser.c"]}),
    );
    story.say(
        "exec.started",
        "agent_w1",
        Some(GOOD),
        json!({"command_id": "cmd_1", "pid": 7}),
    );
    story.say("policy.denied", "agent_w1", Some(GOOD), {
        let mut data = denial.clone();
        data["command_id"] = json!("cmd_1");
        data
    });
    story.say(
        "usage.recorded",
        "agent_w1",
        Some(GOOD),
        json!({"command_id": "cmd_1", "wall_ms": 900, "user_ms": 40, "system_ms": 10, "bytes": 40}),
    );
    story.say(
        "exec.ended",
        "agent_w1",
        Some(GOOD),
        outcome("cmd_1", "completed", 0, json!([denial])),
    );
    story.say("file.changed", "agent_w1", Some(GOOD), json!({"command_id": "cmd_1", "added": ["new.c"], "modified": ["parser.c"], "renamed": [{"from": "old.h", "to": "new.h"}]}));
    story.message(
        "agent_w1",
        GOOD,
        json!({"from": "mender", "to": "lead", "text": "all tests pass", "message_id": "msg_1"}),
    );
    story.say(
        "verifier.started",
        "agent_w1",
        Some(GOOD),
        json!({"checks": ["make check", "make lint"]}),
    );
    story.say("verifier.check", "agent_w1", Some(GOOD), json!({"check": "make check", "status": "passed", "return_code": 0, "elapsed_ms": 80, "command_id": "cmd_2"}));
    story.say(
        "verifier.check",
        "agent_w1",
        Some(GOOD),
        json!({"check": "make lint", "status": "failed", "return_code": 2, "elapsed_ms": 20}),
    );
    story.say(
        "verifier.ended",
        "agent_w1",
        Some(GOOD),
        json!({"status": "failed", "checks": [], "tampered_inputs": ["Makefile"]}),
    );
    story.say("evidence.recorded", "agent_w1", Some(GOOD), json!({"evidence_id": "evid_1", "kind": "check", "claim": "msg_1", "supports": false, "summary": "make lint failed"}));
    story.say("task.ended", "agent_w1", Some(GOOD), json!({
        "task_id": GOOD, "status": "completed", "summary": "the command ended, a check failed",
        "isolation": {"mode": "worktree", "branch": "cofferdam/r/w", "base": "a1b2"},
        "modified_files": [{"path": "parser.c", "change": "modified"}, {"path": "late.c", "change": "added"}],
        "verification": {"status": "failed"}
    }));
    story.say(
        "agent.ended",
        "agent_w1",
        None,
        json!({"status": "completed"}),
    );
    story.say(
        "dream.seen",
        "agent_root",
        None,
        json!({"what": "a type of a later version"}),
    );
    story.say(
        "task.created",
        "agent_w2",
        Some(BUSY),
        json!({"goal": "write the manual", "isolation_mode": "sandbox"}),
    );
    story.say(
        "exec.intended",
        "agent_w2",
        Some(BUSY),
        json!({"command_id": "cmd_3", "argv": ["make", "manual"]}),
    );
    story.say(
        "exec.started",
        "agent_w2",
        Some(BUSY),
        json!({"command_id": "cmd_3", "pid": 9}),
    );
    story.say(
        "exec.intended",
        "agent_root",
        None,
        json!({"command_id": "cmd_4", "argv": ["true"]}),
    );
    story.say(
        "exec.settled",
        "agent_root",
        None,
        json!({"command_id": "cmd_4", "status": "interrupted"}),
    );
    story.say(
        "exec.output",
        "agent_w2",
        Some(BUSY),
        json!({"command_id": "cmd_3", "stream": "stdout", "offset": 0, "bytes": 3}),
    );
    story.events
}
