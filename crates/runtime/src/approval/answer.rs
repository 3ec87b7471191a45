//! Listing and answering, from whatever process.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use cofferdam_core::approval::{
    Answerer, Approval, ApprovalAnswer, ApprovalAnswered, ApprovalAsk, ApprovalState, Remember,
    Standing,
};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{EventFilter, Subject, event_type};
use cofferdam_core::id::ApprovalId;
use cofferdam_core::limits;
use cofferdam_core::operation::{AnswerApproval, ApprovalDecided, ApprovalPage, ListApprovals};
use cofferdam_exec::Control;
use cofferdam_journal::Query;

use super::is_given_up;
use crate::run::FrontDoor;
use crate::runtime::{Asked, Runtime};
use crate::scribe::{Line, to_value};

/// Puts questions to an owner who is at hand, such as at a terminal.
pub trait AskOwner: Send + Sync {
    /// Tells whether the owner could answer within seconds.
    fn is_there(&self) -> bool {
        true
    }

    /// Puts a question, and waits for the answer at most as long as `is_open` says so. Without an
    /// answer the question goes on waiting for one from elsewhere.
    fn ask(&self, ask: &ApprovalAsk, is_open: &dyn Fn() -> bool) -> Option<OwnerAnswer>;

    /// Names the door by which the answers come.
    fn door(&self) -> &'static str {
        FrontDoor::CommandLine.as_str()
    }
}

/// What the owner says, and for how long it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerAnswer {
    /// What is said.
    pub answer: ApprovalAnswer,
    /// For how long.
    pub remember: Remember,
}

impl Runtime {
    /// Says that somebody looks at the questions that wait, such as with `cofferdam approvals`. Where
    /// nobody does, what only a rule asks about is refused at once.
    pub fn attend_questions(&self) {
        self.is_attended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn answers_questions(&self) -> bool {
        self.is_attended.load(Ordering::Relaxed)
    }

    /// Says who is asked first, in the thread that waits for the answer.
    pub fn on_approval(&self, owner: Arc<dyn AskOwner>) {
        self.attend_questions();
        *self
            .ask_owner
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Asked(owner));
    }

    /// Lists approvals, the newest first.
    ///
    /// # Errors
    ///
    /// When the journal cannot be read.
    pub fn approvals(&self, request: &ListApprovals) -> Result<ApprovalPage, Problem> {
        let now = self.plane.ambient().now();
        let wanted = request.state.unwrap_or(ApprovalState::Pending);
        let of_task = |one: &Approval| {
            let task = request.task_id.as_ref();
            task.is_none() || task == one.ask.binding.task.as_ref()
        };
        let mut approvals: Vec<Approval> = self
            .all_approvals()?
            .iter()
            .filter(|one| of_task(one))
            .map(|one| one.clone().at(now))
            .filter(|one| request.all || one.state == wanted)
            .collect();
        approvals.reverse();
        let left_out = approvals.len().saturating_sub(limits::APPROVALS_LISTED);
        approvals.truncate(limits::APPROVALS_LISTED);
        Ok(ApprovalPage {
            approvals,
            left_out,
        })
    }

    /// Gives one approval.
    ///
    /// # Errors
    ///
    /// `approval_unknown`, and when the journal cannot be read.
    pub fn approval(&self, id: &ApprovalId) -> Result<Approval, Problem> {
        let now = self.plane.ambient().now();
        self.find_approval(id).map(|one| one.at(now))
    }

    /// Answers in the owner's name. The front door has made sure that it is the owner: an agent's
    /// own door has no way here.
    ///
    /// Where the question is decided already, what was said first stands, and is given.
    ///
    /// # Errors
    ///
    /// `approval_unknown`, `approval_closed` for an answer that comes too late,
    /// `invalid_request` for a reason that is too long; those of writing and reading the journal.
    pub fn answer_approval(
        &self,
        request: &AnswerApproval,
        door: FrontDoor,
    ) -> Result<ApprovalDecided, Problem> {
        let reason = request.reason.as_deref().unwrap_or_default();
        if reason.chars().count() > limits::APPROVAL_REASON_CHARACTERS {
            let most = limits::APPROVAL_REASON_CHARACTERS;
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("a reason has at most {most} characters"),
            )
            .with_field("reason"));
        }
        let most = limits::REMEMBER_DAYS_CAP;
        if request
            .remember_days
            .is_some_and(|days| !(1..=most).contains(&days))
        {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("an answer is remembered for 1 to {most} days"),
            )
            .with_field("remember_days"));
        }
        let data = ApprovalAnswered {
            approval_id: request.approval_id.clone(),
            answer: request.answer,
            by: Answerer::Owner,
            door: door.as_str().to_owned(),
            reason: request.reason.clone().filter(|reason| !reason.is_empty()),
            remember: request.remember,
            remember_days: request.remember_days,
        };
        self.answer(&data)
    }

    pub(super) fn answer(&self, data: &ApprovalAnswered) -> Result<ApprovalDecided, Problem> {
        let id = &data.approval_id;
        let before = self.find_approval(id)?;
        let now = self.plane.ambient().now();
        if data.remember != Remember::Once && before.ask.remember.is_none() {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("{id} can be answered for this once only"),
            )
            .with_field("remember"));
        }
        if before.standing(data.by, now)? == Standing::Stands {
            return Ok(ApprovalDecided {
                approval: before.at(now),
                counted: false,
            });
        }
        let subject = self.subject_of_question(id)?;
        let line = Line::new(event_type::APPROVAL_ANSWERED, &subject, to_value(data)?);
        self.scribe.say(line)?;
        // Somebody else may have been first: what the journal says is so.
        let approval = self.find_approval(id)?;
        let counted = before.answers.len() < approval.answers.len()
            && approval
                .answers
                .iter()
                .any(|one| one.by == data.by && one.door == data.door && one.time >= now);
        if !counted {
            approval.standing(data.by, now)?;
        }
        Ok(ApprovalDecided {
            approval: approval.at(now),
            counted,
        })
    }

    /// Gives whom and what the events of a question are about.
    fn subject_of_question(&self, id: &ApprovalId) -> Result<Subject, Problem> {
        let mut query = Query::of(EventFilter {
            event_type: Some(event_type::APPROVAL_REQUESTED.to_owned()),
            ..EventFilter::default()
        })
        .limit(limits::PAGE_EVENTS_CAP)
        .resolved();
        loop {
            let page = self
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            let next = page.next();
            let found = page
                .events
                .iter()
                .find(|event| event.data["approval_id"] == id.as_str());
            match (found, next) {
                (Some(event), _) => return Ok(event.subject()),
                (None, Some(pos)) => query.after = Some(pos),
                (None, None) => return Ok(Subject::default()),
            }
        }
    }

    /// Gives whoever is asked first.
    pub(super) fn owner_at_hand(&self) -> Option<Arc<dyn AskOwner>> {
        let owner = self
            .ask_owner
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        owner.as_ref().map(|Asked(owner)| Arc::clone(owner))
    }

    pub(super) fn is_pending(&self, id: &ApprovalId) -> bool {
        self.approval(id)
            .is_ok_and(|one| one.state == ApprovalState::Pending)
    }

    /// Puts a question to the owner who is at hand.
    pub(super) fn put_to(
        &self,
        owner: &dyn AskOwner,
        ask: &ApprovalAsk,
        control: &Control,
    ) -> Result<(), Problem> {
        let is_open = || !is_given_up(control) && self.is_pending(&ask.approval_id);
        self.put_while(owner, ask, &is_open)
    }

    /// Puts a question to the owner who is at hand, as long as it is open.
    pub(super) fn put_while(
        &self,
        owner: &dyn AskOwner,
        ask: &ApprovalAsk,
        is_open: &dyn Fn() -> bool,
    ) -> Result<(), Problem> {
        let Some(OwnerAnswer { answer, remember }) = owner.ask(ask, is_open) else {
            return Ok(());
        };
        let said = self.answer(&ApprovalAnswered {
            approval_id: ask.approval_id.clone(),
            answer,
            by: Answerer::Owner,
            door: owner.door().to_owned(),
            reason: None,
            remember,
            remember_days: None,
        });
        match said {
            // It ended meanwhile: whoever waits sees how.
            Err(problem) if problem.code == ErrorCode::ApprovalClosed => Ok(()),
            said => said.map(drop),
        }
    }
}
