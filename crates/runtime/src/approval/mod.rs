//! Questions: asked through the journal, waited for, answered from any process.
//!
//! What is asked is written before anybody is asked. An answer is an event, so the caller that waits
//! and whoever answers need not be in one process, and what was answered survives both.

mod answer;
mod full_access;
mod hosts;
mod remember;
mod review;
mod rules;
mod two_step;
mod watch;

use std::time::Duration;

use cofferdam_core::approval::{
    Answerer, Approval, ApprovalAsk, ApprovalKind, ApprovalPreview, ApprovalResolved,
    ApprovalState, ApprovalUsed, Approvals, Binding, Entitled, RememberedWhat,
};
use cofferdam_core::authority::Authority;
use cofferdam_core::decide::{Decision, Ground, Operation, Verdict, decide};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{EventFilter, Severity, Subject, event_type};
use cofferdam_core::id::{ApprovalId, OperationId};
use cofferdam_core::limits;
use cofferdam_core::policy::{EffectivePolicy, Reviewer};
use cofferdam_exec::Control;
use cofferdam_journal::Query;

use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

pub use answer::{AskOwner, OwnerAnswer};
pub(crate) use remember::TaskAnswers;
pub use review::ReviewByUrl;
pub(crate) use rules::InPlace;
pub(crate) use watch::Watchers;
pub use watch::Watching;

/// How long a look at the journal waits for news; cancelling is seen at the latest then.
const LOOK: Duration = Duration::from_millis(100);

/// That something was approved, or is only tried: part of a request, and made by the runtime alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    kind: Kind,
    /// What allowed a command that a rule asks about.
    rules: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// It says nothing about what may be written.
    AsDecided,
    /// It runs where nothing can be written; what comes out decides whether somebody is asked.
    Try,
    /// Writing the workspace was approved, by this.
    Write(String),
    /// The file door asks about each change by itself.
    FileDoor,
    /// It runs without walls, as two have approved.
    Full(String),
}

impl Permit {
    const fn of(kind: Kind) -> Self {
        Self { kind, rules: None }
    }

    /// Lets the file door write, which asks before each change.
    pub(crate) const fn of_file_door() -> Self {
        Self::of(Kind::FileDoor)
    }

    pub(crate) const fn is_write(&self) -> bool {
        matches!(self.kind, Kind::Write(_) | Kind::FileDoor | Kind::Full(_))
    }

    pub(crate) const fn is_try(&self) -> bool {
        matches!(self.kind, Kind::Try)
    }

    /// Tells whether what may be written is settled.
    pub(crate) const fn settles_writing(&self) -> bool {
        !matches!(self.kind, Kind::AsDecided)
    }

    /// Tells whether what rules about commands ask was answered.
    pub(crate) const fn settles_rules(&self) -> bool {
        self.rules.is_some() || matches!(self.kind, Kind::Full(_))
    }

    /// Names the approval, or the remembered answer, that allowed it.
    pub(crate) fn by(&self) -> Option<&str> {
        match &self.kind {
            Kind::Write(by) | Kind::Full(by) => Some(by),
            Kind::Try | Kind::FileDoor | Kind::AsDecided => self.rules.as_deref(),
        }
    }
}

/// A question before it has an id.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) kind: ApprovalKind,
    pub(crate) summary: String,
    pub(crate) why: String,
    pub(crate) binding: Binding,
    pub(crate) preview: ApprovalPreview,
    pub(crate) entitled: Entitled,
    /// Of what an answer may be remembered.
    pub(crate) remember: Option<RememberedWhat>,
    /// Who may answer in the owner's place.
    pub(crate) reviewer: Option<Reviewer>,
    pub(crate) subject: Subject,
}

/// What is asked about one operation of an agent's.
#[derive(Debug)]
pub struct OperationQuestion<'a> {
    /// The policy in effect.
    pub policy: &'a EffectivePolicy,
    /// Who acts, for which task, on which root.
    pub authority: &'a Authority,
    /// In which tree.
    pub ground: Ground,
    /// What would be done.
    pub operation: &'a Operation,
    /// The digest is of this: the exact request, as it came.
    pub request: &'a [u8],
    /// The question, in one line.
    pub summary: &'a str,
    /// What is needed to answer.
    pub preview: ApprovalPreview,
    /// On whose behalf.
    pub subject: Subject,
    /// By what the caller is cancelled.
    pub control: &'a Control,
}

impl Runtime {
    /// Decides about an operation, and asks where that is needed: it returns when the operation may
    /// be done, once, now.
    ///
    /// # Errors
    ///
    /// The code of the denial; `approval_rejected`, `approval_expired`, `approval_unavailable`,
    /// `cancelled`; those of writing the journal.
    pub fn permit_operation(&self, question: OperationQuestion<'_>) -> Result<Decision, Problem> {
        let OperationQuestion {
            policy,
            authority,
            ground,
            operation,
            request,
            summary,
            preview,
            subject,
            control,
        } = question;
        let decision = decide(policy, authority, ground, operation);
        let (Verdict::Ask, Some(entitled)) = (decision.verdict, decision.entitled) else {
            return decision.problem().map_or(Ok(decision), Err);
        };
        let binding = Binding {
            actor: authority.actor(),
            task: authority.task().or(subject.task.as_ref()).cloned(),
            call: subject.op.clone(),
            root: authority.root().clone(),
            digest: cofferdam_core::spec::Digest::sha256(request),
        };
        let remember = match operation {
            Operation::ChangeFile { path } => Some(RememberedWhat::File { path: path.clone() }),
            Operation::UseTool { .. } => Some(RememberedWhat::Command {
                command: preview.command.clone().unwrap_or_default(),
                digest: cofferdam_core::spec::Digest::of(request),
            }),
            _ => None,
        };
        let permit = self.ask(
            Question {
                kind: operation.kind(),
                summary: summary.to_owned(),
                why: decision.why.clone(),
                binding,
                preview,
                entitled,
                remember,
                reviewer: policy.reviewer.as_ref().map(|one| one.value.clone()),
                subject,
            },
            control,
        )?;
        Ok(Decision {
            verdict: Verdict::Allow,
            rule: format!("approval ({})", permit.by().unwrap_or_default()),
            ..decision
        })
    }

    /// Asks, and waits until somebody has answered, time is over, or the caller does not wait any
    /// more; what is approved is used then, once. A remembered answer takes the place of the
    /// question. The journal has the question before anybody is asked.
    ///
    /// # Errors
    ///
    /// `approval_rejected`, `approval_expired`, `cancelled`, `grant_refused`, and
    /// `approval_unavailable` where nobody is there whose word is needed; those of writing and
    /// reading the journal.
    pub(crate) fn ask(&self, question: Question, control: &Control) -> Result<Permit, Problem> {
        let question = self.of_a_task(question);
        if let Some(permit) = self.recalled(&question)? {
            return Ok(permit);
        }
        let (binding, subject) = (question.binding.clone(), question.subject.clone());
        let id = self.put(question, control)?;
        self.use_once(&id, &binding, &subject)
    }

    /// Says to which task a question belongs, whose answers hold for it: what is done in a checkout
    /// outside of tasks belongs to one of the process that asks.
    fn of_a_task(&self, mut question: Question) -> Question {
        let task = question
            .binding
            .task
            .take()
            .or_else(|| question.subject.task.clone())
            .unwrap_or_else(|| self.plane.work());
        question.subject.task.get_or_insert_with(|| task.clone());
        question.binding.task = Some(task);
        question
    }

    fn put(&self, question: Question, control: &Control) -> Result<ApprovalId, Problem> {
        let Question {
            kind,
            summary,
            why,
            binding,
            preview,
            entitled,
            remember,
            reviewer,
            subject,
        } = question;
        if entitled == Entitled::Both && reviewer.is_none() {
            return Err(Problem::new(
                ErrorCode::ApprovalUnavailable,
                "it needs the owner's word and a reviewer's, and no reviewer is set",
            )
            .with_hint("set `reviewer` in your policy, or run it yourself: cofferdam run --provider direct -- COMMAND"));
        }
        let ambient = self.plane.ambient();
        let (time, random) = ambient.id_parts();
        let asked = ambient.now();
        let wait = jiff::SignedDuration::from_secs(limits::APPROVAL_SECONDS.cast_signed());
        let ask = ApprovalAsk {
            approval_id: ApprovalId::new(time, random),
            kind,
            summary,
            why,
            binding,
            preview,
            entitled,
            remember,
            asked,
            expires: asked.checked_add(wait).unwrap_or(asked),
            lease: self.plane.lease().clone(),
        };
        let line = Line::new(event_type::APPROVAL_REQUESTED, &subject, to_value(&ask)?);
        let pos = self.scribe.say(line.severity(Severity::Warning))?;
        let id = ask.approval_id.clone();
        let reviewer = reviewer.filter(|_| entitled.includes(Answerer::Reviewer));
        // Whoever is first ends the other's work.
        let review = Control::new();
        let answered = std::thread::scope(|scope| {
            if let Some(reviewer) = &reviewer {
                scope.spawn(|| self.ask_reviewer(reviewer, &ask, &review));
            }
            let _ended = CancelOnDrop(&review);
            if let Some(owner) = self.owner_at_hand() {
                self.put_to(owner.as_ref(), &ask, control)?;
            }
            self.conclude(&id, pos, &subject, control)
        })?;
        self.keep(&answered, &subject)?;
        concluded(&answered).map(|()| id)
    }

    /// Waits for the end of a question that stands in the journal at a position.
    fn conclude(
        &self,
        id: &ApprovalId,
        pos: u64,
        subject: &Subject,
        control: &Control,
    ) -> Result<Approval, Problem> {
        let mut seen = Seen::after(pos.saturating_sub(1));
        loop {
            let head = seen.read(self)?;
            let now = self.plane.ambient().now();
            let approval = seen.approvals.get(id).ok_or_else(unseen)?;
            let state = match approval.state_at(now) {
                ApprovalState::Pending if is_given_up(control) => ApprovalState::Cancelled,
                state => state,
            };
            if state == ApprovalState::Pending {
                self.journal()
                    .wait_beyond(head, LOOK)
                    .map_err(|error| error.to_problem())?;
                continue;
            }
            let data = ApprovalResolved {
                approval_id: id.clone(),
                state,
            };
            let line = Line::new(event_type::APPROVAL_RESOLVED, subject, to_value(&data)?);
            self.scribe.say(line)?;
            // An answer may have come before that.
            seen.read(self)?;
            return seen.approvals.get(id).cloned().ok_or_else(unseen);
        }
    }

    /// Does what was approved, once: whoever writes the first use may go on.
    ///
    /// # Errors
    ///
    /// `grant_refused`; those of writing and reading the journal.
    pub(crate) fn use_once(
        &self,
        id: &ApprovalId,
        binding: &Binding,
        subject: &Subject,
    ) -> Result<Permit, Problem> {
        let ambient = self.plane.ambient();
        let approval = self.find_approval(id)?;
        approval.may_use(binding, ambient.now())?;
        let (time, random) = ambient.id_parts();
        let used = ApprovalUsed {
            approval_id: id.clone(),
            use_id: OperationId::new(time, random),
            binding: binding.clone(),
        };
        let line = Line::new(event_type::APPROVAL_USED, subject, to_value(&used)?);
        self.scribe.say(line)?;
        if self.find_approval(id)?.used == Some(used.use_id) {
            return Ok(Permit::of(Kind::Write(id.to_string())));
        }
        Err(Problem::new(
            ErrorCode::GrantRefused,
            format!("what {id} allowed was done already"),
        ))
    }

    pub(crate) fn all_approvals(&self) -> Result<Approvals, Problem> {
        let mut seen = Seen::after(0);
        seen.read(self)?;
        Ok(seen.approvals)
    }

    pub(crate) fn find_approval(&self, id: &ApprovalId) -> Result<Approval, Problem> {
        self.all_approvals()?.get(id).cloned().ok_or_else(|| {
            Problem::new(
                ErrorCode::ApprovalUnknown,
                format!("there is no approval {id}"),
            )
            .with_field("approval_id")
            .with_hint("cofferdam approvals list --all shows every one")
        })
    }
}

/// Ends what goes on beside.
struct CancelOnDrop<'a>(&'a Control);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Tells whether whoever asked does not wait any more.
fn is_given_up(control: &Control) -> bool {
    control.is_cancelled() || control.is_interrupted()
}

fn unseen() -> Problem {
    Problem::new(
        ErrorCode::JournalIo,
        "a question that was written is not there",
    )
}

fn concluded(approval: &Approval) -> Result<(), Problem> {
    let id = &approval.ask.approval_id;
    let reason = approval
        .answers
        .last()
        .and_then(|last| last.reason.as_deref());
    let because = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    match approval.state {
        ApprovalState::Approved => Ok(()),
        ApprovalState::Rejected => {
            let by = approval
                .answers
                .last()
                .map_or("owner", |one| one.by.as_str());
            Err(Problem::new(
                ErrorCode::ApprovalRejected,
                format!("the {by} said no{because}"),
            ))
        }
        ApprovalState::Expired => Err(Problem::new(
            ErrorCode::ApprovalExpired,
            "nobody answered in time",
        )
        .with_hint("cofferdam approvals shows what waits for an answer")),
        state => Err(Problem::new(
            ErrorCode::Cancelled,
            format!("nobody waits for an answer any more: {}", state.as_str()),
        )),
    }
    .map_err(|problem| problem.with_details(serde_json::json!({"approval_id": id})))
}

/// The approvals as far as the journal was read.
#[derive(Debug)]
struct Seen {
    approvals: Approvals,
    after: u64,
}

impl Seen {
    fn after(after: u64) -> Self {
        Self {
            approvals: Approvals::default(),
            after,
        }
    }

    /// Reads what is new; gives the position of the newest event.
    fn read(&mut self, runtime: &Runtime) -> Result<u64, Problem> {
        loop {
            let query = Query::of(EventFilter {
                event_type: Some("approval".to_owned()),
                ..EventFilter::default()
            })
            .after(self.after)
            .limit(limits::PAGE_EVENTS_CAP)
            .resolved();
            let page = runtime
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            let next = page.next();
            for event in &page.events {
                self.approvals.apply(event);
            }
            self.after = next.unwrap_or(page.head.pos).max(self.after);
            if next.is_none() {
                return Ok(page.head.pos);
            }
        }
    }
}
