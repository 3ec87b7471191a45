//! Events: the envelope, and the catalogue of everything that can be said in a journal.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{AgentId, ConversationId, EventId, OperationId, TaskId, ThreadId};

/// Version of the envelope that this program writes.
pub const ENVELOPE_VERSION: u32 = 1;

/// How much an event matters to somebody who looks.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For somebody who debugs.
    Debug,
    /// Ordinary.
    #[default]
    Info,
    /// Worth a look.
    Warning,
    /// Something failed or was refused.
    Error,
}

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// The types of events that this version writes; a reader keeps types that it does not know.
        pub mod event_type {
            $($(#[$doc])* pub const $name: &str = $text;)*
            /// Every type of this version.
            pub const ALL: &[&str] = &[$($text,)*];
        }
    };
}

event_types! {
    /// A conversation began. data: `{goal, front_door}`.
    CONVERSATION_STARTED = "conversation.started";
    /// A conversation ended. data: `{status}`.
    CONVERSATION_ENDED = "conversation.ended";
    /// An agent began. data: `{name, role, parent}`.
    AGENT_STARTED = "agent.started";
    /// An agent ended. data: `{status}`.
    AGENT_ENDED = "agent.ended";
    /// An agent's private home reached a step. data: `{step, profile, path|came_back|…}`.
    AGENT_HOME = "agent.home";
    /// A task was accepted. data: a task request, `{goal, isolation_mode, command, base…}`.
    TASK_CREATED = "task.created";
    /// A task reached another state. data: `{state}`.
    TASK_STATE = "task.state";
    /// A task ended. data: the task's result.
    TASK_ENDED = "task.ended";
    /// Intent: an ended task is to be merged, dropped, or one of that taken back. data: `{lease, action_id, action}`.
    TASK_ACTION_INTENDED = "task.action_intended";
    /// That was done or refused. data: `{action_id, action, status, problem, …}`.
    TASK_ACTION_ENDED = "task.action_ended";
    /// The owner wants a running task to end. data: `{lease, of}`, whose wish it is and whose task.
    TASK_STOP_REQUESTED = "task.stop_requested";
    /// A message was sent. data: `{from, to, text}`.
    MESSAGE_SENT = "message.sent";
    /// Intent: a command is to be started. data: `{lease, command_id, argv, cwd, spec_hash, timeout_ms, protections}`.
    EXEC_INTENDED = "exec.intended";
    /// A command runs. data: `{command_id, pid}`.
    EXEC_STARTED = "exec.started";
    /// A command ended. data: its outcome.
    EXEC_ENDED = "exec.ended";
    /// Intent without outcome of a dead plane, settled at a later start. data: `{command_id, status, undone, stdout_full, stderr_full, order}`.
    EXEC_SETTLED = "exec.settled";
    /// Output of a command came, told now and then. data: `{command_id, stdout, stderr}`, the bytes so far.
    EXEC_OUTPUT = "exec.output";
    /// In which order both streams of a command arrived. data: `{command_id, digest, bytes}`.
    EXEC_ORDER = "exec.order";
    /// A key of a start was claimed, or cancelled before there was one. data: `{idempotency_key, command_id|cancelled, lease}`.
    EXEC_CLAIMED = "exec.claimed";
    /// A command goes on after the call that started it. data: `{command_id, lease, command, front_door, timeout_ms}`.
    EXEC_BACKGROUND = "exec.background";
    /// The end of a background command was told or claimed. data: `{command_id, how}`.
    EXEC_ACKNOWLEDGED = "exec.acknowledged";
    /// Somebody wants a command to end. data: `{command_id, force, of}`, whose command it is.
    EXEC_CANCEL_REQUESTED = "exec.cancel_requested";
    /// A plane listens for requests to end its commands. data: `{lease}`.
    EXEC_ATTENDED = "exec.attended";
    /// The output of a background command was removed after its time. data: `{command_id, removed}`.
    EXEC_EXPIRED = "exec.expired";
    /// A terminal was opened. data: `{name, lease, …}`, the terminal as listed.
    TERMINAL_STARTED = "terminal.started";
    /// Something was typed. data: `{terminal_id, name, offset, text, keys, hidden, bytes}`; text that was not shown is not kept.
    TERMINAL_INPUT = "terminal.input";
    /// A terminal wrote something. data: `{terminal_id, name, offset, bytes, text, omitted}`; the newest end of what came in a moment.
    TERMINAL_OUTPUT = "terminal.output";
    /// A terminal has another size. data: `{terminal_id, name, rows, columns}`.
    TERMINAL_RESIZED = "terminal.resized";
    /// A signal was sent. data: `{terminal_id, name, signal, target}`.
    TERMINAL_SIGNALLED = "terminal.signalled";
    /// Another terminal became the active one. data: `{previous, current}`.
    TERMINAL_SWITCHED = "terminal.switched";
    /// A terminal is opened anew with the same rights. data: `{terminal_id, name, spec_hash}` of the old one.
    TERMINAL_RESET = "terminal.reset";
    /// A terminal ended. data: `{terminal_id, name, reason, return_code, signal, written}`.
    TERMINAL_CLOSED = "terminal.closed";
    /// Recordings that were kept for their time, or beyond the room for them, were removed. data: `{removed[{terminal_id, bytes, modified, why}]}`.
    TERMINAL_EXPIRED = "terminal.expired";
    /// Intent: files are to be changed through the file door. data: `{lease, change_id, operation, path}`.
    FILE_INTENDED = "file.intended";
    /// That was done, failed, or nobody knows. data: `{change_id, operation, path, status, changes[], problem}`.
    FILE_ENDED = "file.ended";
    /// Older states of files that were kept for restoring went, the oldest first: there were more than are kept of one workspace. data: `{workspace, removed[{version, bytes, pos}], kept, kept_bytes}`.
    FILE_EXPIRED = "file.expired";
    /// What had been taken away at protected names went, that of the oldest commands first: there was more than is kept. data: `{removed[{command_id, bytes, paths[]}], kept, kept_bytes}`.
    QUARANTINE_EXPIRED = "file.quarantine_expired";
    /// Files changed. data: `{command_id|task, added[], modified[], deleted[], renamed[]}`.
    FILE_CHANGED = "file.changed";
    /// Something at a protected name was put back. data: `{path, rule, what}`.
    FILE_UNDONE = "file.undone";
    /// The owner put something back that was taken away, or lets git decide about a protected name. data: `{path, quarantine_id}`, or `{path}`.
    FILE_RELEASED = "file.released";
    /// The files of a checkout are kept as they were at a moment. data: `{snapshot, top}`.
    FILE_SNAPSHOT = "file.snapshot";
    /// The files of a checkout are those of a snapshot again. data: `{snapshot, before, files[], top}`.
    FILE_RESTORED = "file.restored";
    /// Intent: an enclosure is to be put up. data: `{lease, enclosure_id, spec_hash, provider, scratch}`.
    ISOLATION_INTENDED = "isolation.intended";
    /// An enclosure stands. data: `{enclosure_id, requested, effective, enforced_by, gaps}`.
    ISOLATION_ENCLOSED = "isolation.enclosed";
    /// An enclosure was taken down. data: `{enclosure_id, reason}`.
    ISOLATION_ENDED = "isolation.ended";
    /// The provider fell back as the policy allows. data: `{from, to, why}`.
    ISOLATION_FALLBACK = "isolation.fallback";
    /// A task's workspace reached a step. data: `{step, path, branch, base}`.
    ISOLATION_WORKSPACE = "isolation.workspace";
    /// Something of ours was removed, or kept. data: a removal receipt.
    ISOLATION_REMOVED = "isolation.removed";
    /// A session was opened. data: `{session_id, name, mode, idle_limit, lifetime, spec_hash}`.
    SESSION_OPENED = "session.opened";
    /// A session began anew: asked for, or its walls had gone or changed. data: `{session_id, reason}`.
    SESSION_RESET = "session.reset";
    /// A session ended. data: `{session_id, reason, ended_by, cancelled}`.
    SESSION_ENDED = "session.ended";
    /// A policy became the effective one. data: `{version, hash, layers}`.
    POLICY_LOADED = "policy.loaded";
    /// A policy file was refused; the last good one stays. data: `{path, problem}`.
    POLICY_REFUSED = "policy.refused";
    /// A decision was made. data: `{operation, verdict, rule, why}`.
    POLICY_DECIDED = "policy.decided";
    /// Something was denied. data: a denial.
    POLICY_DENIED = "policy.denied";
    /// What begins from now on is in another mode.
    POLICY_MODE = "policy.mode";
    /// An approval is asked for. data: the question, `{approval_id, kind, …}`.
    APPROVAL_REQUESTED = "approval.requested";
    /// Somebody answered. data: `{approval_id, answer, by, door, reason}`.
    APPROVAL_ANSWERED = "approval.answered";
    /// An approval is at its end. data: `{approval_id, state}`; of a host `{approval_id, answer, by}`.
    APPROVAL_RESOLVED = "approval.resolved";
    /// What was approved is done, once. data: `{approval_id, use_id, binding}`.
    APPROVAL_USED = "approval.used";
    /// An answer is remembered from now on.
    APPROVAL_REMEMBERED = "approval.remembered";
    /// A remembered answer took the place of a question.
    APPROVAL_RECALLED = "approval.recalled";
    /// A remembered answer was taken back.
    APPROVAL_FORGOTTEN = "approval.forgotten";
    /// Something would leave the machine, and is held. data: the proposal, `{proposal_id, effect, binding…}`.
    OUTBOX_PROPOSED = "outbox.proposed";
    /// Intent: the owner released a proposal, and it is carried out. data: `{proposal_id, release_id, digest, by, door, lease}`.
    OUTBOX_RELEASED = "outbox.released";
    /// A released proposal has left the machine. data: `{proposal_id, release_id, sent}`.
    OUTBOX_SENT = "outbox.sent";
    /// A released proposal did not get through. data: `{proposal_id, release_id, problem}`.
    OUTBOX_FAILED = "outbox.failed";
    /// The owner refused a proposal. data: `{proposal_id, by, door, reason}`.
    OUTBOX_REFUSED = "outbox.refused";
    /// A connection was decided. data: `{enclosure_id, command_id, host, port, verdict, reason, rule, origin…}`.
    NET_DECIDED = "net.decided";
    /// A connection that was allowed ended. data: `{enclosure_id, command_id, host, port, ended, sent, received, elapsed_ms}`.
    NET_CLOSED = "net.closed";
    /// A single request of a host whose requests are seen was passed on.
    NET_REQUESTED = "net.requested";
    /// Something inside began or ceased to listen. data: `{enclosure_id, port, state, published}`.
    NET_LISTENING = "net.listening";
    /// A verifier began. data: `{checks[]}`.
    VERIFIER_STARTED = "verifier.started";
    /// One check ended. data: `{check, status, return_code, command_id}`.
    VERIFIER_CHECK = "verifier.check";
    /// A verifier ended. data: `{status, checks[], tampered_inputs[]}`.
    VERIFIER_ENDED = "verifier.ended";
    /// A piece of evidence. data: `{evidence_id, kind, supports, summary, …}`.
    EVIDENCE_RECORDED = "evidence.recorded";
    /// What something used. data: `{wall_ms, user_ms, system_ms, bytes}`.
    USAGE_RECORDED = "usage.recorded";
    /// A line for people. data: `{text}`.
    LOG_LINE = "log.line";
    /// A plane took its lease. data: `{lease, pid, boot, start}`.
    LOG_LEASE_TAKEN = "log.lease_taken";
    /// A plane gave its lease back. data: `{lease}`.
    LOG_LEASE_ENDED = "log.lease_ended";
    /// Old events were removed; the chain goes on from the anchor. data: `{first_pos, anchor_hash}`.
    LOG_RETAINED = "log.retained";
}

/// Says which events are intents, and what must follow each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntentRule {
    /// The type of the intent; its data names the lease of the plane under `lease`.
    pub intent: &'static str,
    /// The key in the data of both that says what they are about.
    pub key: &'static str,
    /// The types that close it.
    pub outcomes: &'static [&'static str],
}

/// Every intent of this version.
pub const INTENT_RULES: &[IntentRule] = &[
    IntentRule {
        intent: event_type::EXEC_INTENDED,
        key: "command_id",
        outcomes: &[event_type::EXEC_ENDED, event_type::EXEC_SETTLED],
    },
    IntentRule {
        intent: event_type::FILE_INTENDED,
        key: "change_id",
        outcomes: &[event_type::FILE_ENDED],
    },
    IntentRule {
        intent: event_type::ISOLATION_INTENDED,
        key: "enclosure_id",
        outcomes: &[event_type::ISOLATION_ENDED],
    },
    IntentRule {
        intent: event_type::TERMINAL_STARTED,
        key: "terminal_id",
        outcomes: &[event_type::TERMINAL_CLOSED],
    },
    IntentRule {
        intent: event_type::APPROVAL_REQUESTED,
        key: "approval_id",
        outcomes: &[event_type::APPROVAL_RESOLVED],
    },
    IntentRule {
        intent: event_type::OUTBOX_RELEASED,
        key: "release_id",
        outcomes: &[event_type::OUTBOX_SENT, event_type::OUTBOX_FAILED],
    },
];

/// Whom and what an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Subject {
    /// The line of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// The thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// The agent that acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The agent at the root of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_agent: Option<AgentId>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The task above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_task: Option<TaskId>,
    /// The operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<OperationId>,
}

/// An event before the journal has taken it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Its id.
    pub id: EventId,
    /// When it happened.
    pub time: Timestamp,
    /// `area.verb`, see [`event_type`].
    pub kind: String,
    /// Whom and what it is about.
    pub subject: Subject,
    /// The event that led to it.
    pub causation: Option<EventId>,
    /// How much it matters.
    pub severity: Severity,
    /// What it says.
    pub data: Value,
    /// How many secret values were masked in `data`.
    pub redactions: u32,
}

/// An event as the journal gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Version of the envelope.
    pub v: u32,
    /// Its id.
    pub id: EventId,
    /// Position in the whole log, contiguous, from 1.
    pub pos: u64,
    /// Changes only when the log is made anew.
    pub epoch: String,
    /// Number within its conversation, contiguous, from 1; 0 where there is none.
    pub seq: u64,
    /// When it happened, RFC 3339 in UTC.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// `area.verb`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The line of work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// The agent that acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The agent at the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_agent: Option<AgentId>,
    /// The task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The task above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task: Option<TaskId>,
    /// The operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<OperationId>,
    /// The event that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation: Option<EventId>,
    /// How much it matters.
    pub severity: Severity,
    /// What it says; a body beyond 8 KiB is `{"content": digest, "bytes": n}`.
    pub data: Value,
    /// How many secret values were masked in `data`.
    #[serde(default)]
    pub redactions: u32,
    /// Hash of the event before; of the anchor for the first.
    pub prev_hash: String,
    /// SHA-256 over the stored bytes and `prev_hash`.
    pub hash: String,
}

impl Event {
    /// Gives the area, the part of the type before the dot.
    pub fn area(&self) -> &str {
        self.kind.split('.').next().unwrap_or_default()
    }

    /// Gathers whom and what it is about.
    pub fn subject(&self) -> Subject {
        Subject {
            conversation: self.conversation.clone(),
            thread: self.thread.clone(),
            agent: self.agent.clone(),
            root_agent: self.root_agent.clone(),
            task: self.task.clone(),
            parent_task: self.parent_task.clone(),
            op: self.op.clone(),
        }
    }
}

/// Which events a reader wants; every given part must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EventFilter {
    /// Of this conversation.
    pub conversation: Option<ConversationId>,
    /// Of this agent.
    pub agent: Option<AgentId>,
    /// Of this thread.
    pub thread: Option<ThreadId>,
    /// Of this task.
    pub task: Option<TaskId>,
    /// Of this type, or of this area when it has no dot.
    pub event_type: Option<String>,
    /// Not before this time.
    #[schemars(with = "Option<String>")]
    pub from: Option<Timestamp>,
    /// Before this time.
    #[schemars(with = "Option<String>")]
    pub to: Option<Timestamp>,
}

impl EventFilter {
    /// Tells whether an event is wanted: the rule that every store follows.
    pub fn accepts(&self, event: &Event) -> bool {
        fn same<T: PartialEq>(wanted: Option<&T>, has: Option<&T>) -> bool {
            wanted.is_none_or(|wanted| has == Some(wanted))
        }
        same(self.conversation.as_ref(), event.conversation.as_ref())
            && same(self.agent.as_ref(), event.agent.as_ref())
            && same(self.thread.as_ref(), event.thread.as_ref())
            && same(self.task.as_ref(), event.task.as_ref())
            && self.event_type.as_deref().is_none_or(|wanted| {
                if wanted.contains('.') {
                    event.kind == wanted
                } else {
                    event.area() == wanted
                }
            })
            && self.from.is_none_or(|from| event.time >= from)
            && self.to.is_none_or(|to| event.time < to)
    }
}
