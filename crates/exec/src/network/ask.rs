//! Misses that are put to somebody as a question.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cofferdam_core::approval::{
    Answerer, ApprovalAnswer, ApprovalAnswered, ApprovalAsk, ApprovalKind, ApprovalPreview,
    ApprovalResolved, ApprovalState, Binding, Entitled, Remember, RememberedAnswer, RememberedWhat,
    recall,
};
use cofferdam_core::authority::Actor;
use cofferdam_core::error::Problem;
use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::hosts::{HostPattern, HostPort, HostRule, PortRange};
use cofferdam_core::id::{ApprovalId, CommandId, RuleId};
use cofferdam_core::limits;
use cofferdam_core::spec::Digest;
use cofferdam_egress::{Ask, AskAnswer, AskRequest};
use jiff::SignedDuration;
use serde::Serialize;
use serde_json::json;

use super::{Shared, program};
use crate::remembered::{remember_answer, remembered_answers};

/// Is asked about hosts that no rule allows. It may answer later and from another thread; a
/// question that is dropped is refused.
pub trait AskHost: Send + Sync {
    /// Tells whether anybody is there who could answer; else nothing is asked, and it is refused at
    /// once.
    fn is_there(&self) -> bool {
        true
    }

    /// Takes a question.
    fn ask(&self, question: HostQuestion);
}

/// What somebody says about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAnswer {
    /// The connection that waits goes on.
    Once,
    /// As long as the task, or outside of one as long as the process that asks, in its repository.
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

    /// Gives the answer that an approval's stands for.
    pub const fn of(answer: ApprovalAnswer, remember: Remember) -> Self {
        match (answer, remember) {
            (ApprovalAnswer::Approve, Remember::Once) => Self::Once,
            (ApprovalAnswer::Approve, Remember::Task) => Self::Task,
            (ApprovalAnswer::Approve, Remember::Repository) => Self::Repository,
            (ApprovalAnswer::Reject, Remember::Once | Remember::Task) => Self::No,
            (ApprovalAnswer::Reject, Remember::Repository) => Self::Never,
        }
    }

    const fn parts(self) -> (ApprovalAnswer, Remember) {
        match self {
            Self::Once => (ApprovalAnswer::Approve, Remember::Once),
            Self::Task => (ApprovalAnswer::Approve, Remember::Task),
            Self::Repository => (ApprovalAnswer::Approve, Remember::Repository),
            Self::No => (ApprovalAnswer::Reject, Remember::Once),
            Self::Never => (ApprovalAnswer::Reject, Remember::Repository),
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
    ask: ApprovalAsk,
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

    /// Lends the question as the journal has it: whoever lists approvals sees it too.
    pub const fn approval(&self) -> &ApprovalAsk {
        &self.ask
    }

    /// Answers for the owner. What is remembered lies in the data directory, never in the workspace.
    pub fn answer(self, answer: HostAnswer) {
        let Some(shared) = self.shared.upgrade().filter(|_| self.request.is_open()) else {
            return;
        };
        let (said, remember) = answer.parts();
        // What is answered is written down before it has its effect.
        self.record(
            &shared,
            event_type::APPROVAL_ANSWERED,
            &ApprovalAnswered {
                approval_id: self.ask.approval_id.clone(),
                answer: said,
                by: Answerer::Owner,
                door: "command_line".to_owned(),
                reason: None,
                remember,
                remember_days: None,
            },
        );
        self.settle(answer, None);
    }

    /// Puts an answer in force that is in the journal already; `days` says for how long it is
    /// remembered for the repository.
    pub fn settle(self, answer: HostAnswer, days: Option<u32>) {
        let Some(shared) = self.shared.upgrade().filter(|_| self.request.is_open()) else {
            return;
        };
        let rule = exact(&self.target);
        let (said, remember) = answer.parts();
        let state = match said {
            ApprovalAnswer::Approve => ApprovalState::Approved,
            ApprovalAnswer::Reject => ApprovalState::Rejected,
        };
        self.record(
            &shared,
            event_type::APPROVAL_RESOLVED,
            &ApprovalResolved {
                approval_id: self.ask.approval_id.clone(),
                state,
            },
        );
        if remember == Remember::Repository {
            // One that cannot be kept is asked about again.
            let _ = self.remember(&shared, said, days);
        }
        match answer {
            HostAnswer::Once => self.request.answer(AskAnswer::Allow),
            HostAnswer::Task | HostAnswer::Repository => {
                if let Some(task) = &self.subject.task {
                    let network = shared.plane.network();
                    network.grant(task, &shared.repository, rule.clone());
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

    fn remember(
        &self,
        shared: &Shared,
        answer: ApprovalAnswer,
        days: Option<u32>,
    ) -> Result<(), Problem> {
        let (Some(data), Some(what)) = (shared.plane.data(), self.ask.remember.clone()) else {
            return Ok(());
        };
        let ambient = shared.plane.ambient();
        let (time, random) = ambient.id_parts();
        let created = ambient.now();
        let days = days.unwrap_or(limits::REMEMBER_DAYS);
        let remembered = RememberedAnswer {
            rule_id: RuleId::new(time, random),
            repository: shared.repository.clone(),
            answer,
            what,
            approval_id: Some(self.ask.approval_id.clone()),
            created,
            expires: created
                .checked_add(SignedDuration::from_hours(24 * i64::from(days)))
                .unwrap_or(created),
        };
        remember_answer(data.path(), remembered.clone())?;
        self.record(shared, event_type::APPROVAL_REMEMBERED, &remembered);
        Ok(())
    }

    fn record(&self, shared: &Shared, kind: &'static str, data: &impl Serialize) {
        let data = serde_json::to_value(data).unwrap_or_default();
        // An answer holds also where the journal takes nothing any more.
        let _ = shared
            .plane
            .record(&self.subject, kind, Severity::Info, data);
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
        let (command, mut subject) = strong.watch.concerned();
        subject.task.get_or_insert_with(|| strong.plane.work());
        let program = request
            .client
            .and_then(|client| program::of_client(client, strong.spec.port));
        let ask = approval(&strong, &request, &subject, program.as_deref());
        // Answered meanwhile, for a place whose plan is older than the answer.
        if let Some(answer) = recalled(&strong, &ask, &subject) {
            let rule = exact(&request.target);
            return match answer {
                ApprovalAnswer::Approve => {
                    strong.add(Some(rule), None);
                    request.answer(AskAnswer::Allow);
                }
                ApprovalAnswer::Reject => {
                    strong.add(None, Some(rule));
                    request.answer(AskAnswer::Deny);
                }
            };
        }
        if !owner.is_there() {
            return;
        }
        let told = serde_json::to_value(&ask).is_ok_and(|data| {
            strong
                .plane
                .record(
                    &subject,
                    event_type::APPROVAL_REQUESTED,
                    Severity::Warning,
                    data,
                )
                .is_ok()
        });
        if !told {
            // Nobody is asked what nobody could look up later.
            return;
        }
        owner.ask(HostQuestion {
            target: request.target.clone(),
            program,
            subject,
            command,
            limit: request.limit,
            ask,
            shared: shared.clone(),
            request,
        });
    })
}

/// Finds the answer that is remembered for the repository; the journal has it before it counts.
fn recalled(shared: &Shared, ask: &ApprovalAsk, subject: &Subject) -> Option<ApprovalAnswer> {
    let what = ask.remember.as_ref()?;
    let answers = remembered_answers(shared.plane.data()?.path(), &shared.repository);
    let found = recall(&answers, what, shared.plane.ambient().now())?;
    let data = json!({
        "rule_id": found.rule_id,
        "answer": found.answer,
        "line": found.what.line(found.answer),
        "summary": ask.summary,
        "binding": ask.binding,
    });
    let told = shared
        .plane
        .record(subject, event_type::APPROVAL_RECALLED, Severity::Info, data);
    told.is_ok().then_some(found.answer)
}

/// Makes the question that whoever lists approvals sees.
fn approval(
    shared: &Shared,
    request: &AskRequest,
    subject: &Subject,
    program: Option<&str>,
) -> ApprovalAsk {
    let ambient = shared.plane.ambient();
    let (time, random) = ambient.id_parts();
    let asked = ambient.now();
    let target = request.target.to_string();
    let rule = exact(&request.target).to_string();
    let limit = SignedDuration::try_from(request.limit).unwrap_or(SignedDuration::MAX);
    ApprovalAsk {
        approval_id: ApprovalId::new(time, random),
        kind: ApprovalKind::Host,
        summary: format!("let {} reach {target}", program.unwrap_or("a program")),
        why: "no rule allows the host".to_owned(),
        binding: Binding {
            actor: Actor::Protocol,
            task: subject.task.clone(),
            call: subject.op.clone(),
            root: shared.repository.clone(),
            digest: Digest::sha256(target.as_bytes()),
        },
        preview: ApprovalPreview {
            hosts: vec![target],
            ..ApprovalPreview::default()
        },
        entitled: Entitled::Owner,
        remember: Some(RememberedWhat::Host { rule }),
        asked,
        expires: asked.checked_add(limit).unwrap_or(asked),
        lease: shared.plane.lease().clone(),
    }
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
