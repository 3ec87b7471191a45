//! Misses that are put to somebody as a question.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::hosts::{HostPattern, HostPort, HostRule, PortRange};
use cofferdam_core::id::{CommandId, EnclosureId};
use cofferdam_egress::{Ask, AskAnswer, AskRequest};
use serde_json::json;

use super::{Shared, program, remember};

/// Is asked about hosts that no rule allows. It may answer later and from another thread; a
/// question that is dropped is refused.
pub trait AskHost: Send + Sync {
    /// Takes a question.
    fn ask(&self, question: HostQuestion);
}

/// What somebody says about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAnswer {
    /// The connection that waits goes on.
    Once,
    /// As long as the task, or the command where there is no task.
    Task,
    /// Whenever something runs in this repository.
    Repository,
    /// It is refused this time.
    No,
    /// It is refused whenever something runs in this repository.
    Never,
}

impl HostAnswer {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Task => "task",
            Self::Repository => "repository",
            Self::No => "no",
            Self::Never => "never",
        }
    }
}

/// A host that something inside wants to reach and that no rule allows. The connection waits.
pub struct HostQuestion {
    /// What it wants to reach.
    pub target: HostPort,
    /// The program that asks, where it could be found out: its name.
    pub program: Option<String>,
    /// On whose behalf.
    pub subject: Subject,
    /// The command that runs, where it is only one.
    pub command: Option<CommandId>,
    /// How long it waits.
    pub limit: Duration,
    id: String,
    request: AskRequest,
    shared: Weak<Shared>,
}

impl fmt::Debug for HostQuestion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HostQuestion")
            .field("target", &self.target)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

impl HostQuestion {
    /// Tells whether the answer is still waited for.
    pub fn is_open(&self) -> bool {
        self.request.is_open()
    }

    /// Answers. What is remembered lies in the data directory, never in the workspace.
    pub fn answer(self, answer: HostAnswer) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        if !self.request.is_open() {
            return;
        }
        let rule = exact(&self.target);
        let remembers = matches!(answer, HostAnswer::Repository | HostAnswer::Never);
        let remembered = remembers
            .then(|| remember::remember(&shared.plane, &shared.repository, &rule, answer).err())
            .flatten();
        // What is answered is written down before it has its effect.
        let _ = shared.plane.record(
            &self.subject,
            event_type::APPROVAL_RESOLVED,
            Severity::Info,
            json!({
                "approval_id": self.id,
                "answer": answer.as_str(),
                "by": "owner",
                "host": self.target.host.to_string(),
                "port": self.target.port,
                "problem": remembered,
            }),
        );
        match answer {
            HostAnswer::Once => self.request.answer(AskAnswer::Allow),
            HostAnswer::Task | HostAnswer::Repository => {
                if let Some(task) = &self.subject.task {
                    shared.plane.network().grant(task, rule.clone());
                }
                shared.add(Some(rule), None);
                self.request.answer(AskAnswer::Allow);
            }
            HostAnswer::No => self.request.answer(AskAnswer::Deny),
            HostAnswer::Never => {
                self.request.answer(AskAnswer::Deny);
                shared.add(None, Some(rule));
            }
        }
    }
}

/// A rule for exactly what was shown.
fn exact(target: &HostPort) -> HostRule {
    HostRule {
        pattern: HostPattern::Exact(target.host.clone()),
        ports: Some(PortRange {
            first: target.port,
            last: target.port,
        }),
    }
}

/// Makes the proxy's questions ours.
pub(super) fn asker(shared: &Arc<Shared>, owner: Arc<dyn AskHost>) -> Ask {
    let shared = Arc::downgrade(shared);
    Arc::new(move |request: AskRequest| {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        if !is_answerable(&strong, &request.target) {
            return;
        }
        let (command, subject) = strong.watch.concerned();
        let id = question_id(strong.watch.enclosure(), request.connection);
        let program = request
            .client
            .and_then(|client| program::of_client(client, strong.spec.port));
        let told = strong.plane.record(
            &subject,
            event_type::APPROVAL_REQUESTED,
            Severity::Warning,
            json!({
                "approval_id": id,
                "kind": "host",
                "command_id": command,
                "host": request.target.host.to_string(),
                "port": request.target.port,
                "program": program,
                "limit_ms": request.limit.as_millis() as u64,
            }),
        );
        if told.is_err() {
            // Nobody is asked what nobody could look up later.
            return;
        }
        owner.ask(HostQuestion {
            target: request.target.clone(),
            program,
            subject,
            command,
            limit: request.limit,
            id,
            shared: shared.clone(),
            request,
        });
    })
}

/// Tells whether the managed layer leaves it to the owner.
fn is_answerable(shared: &Shared, target: &HostPort) -> bool {
    let Some(ceiling) = &shared.spec.ceiling else {
        return true;
    };
    ceiling
        .iter()
        .filter_map(|rule| rule.parse::<HostRule>().ok())
        .any(|rule| rule.holds_for(&target.host, target.port))
}

fn question_id(enclosure: &EnclosureId, connection: u64) -> String {
    format!("{}-{connection}", enclosure.as_str())
}
