//! Answering: what is released is looked at again, sent once, and what came of it is written down.

use cofferdam_core::approval::Answerer;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::id::{OperationId, ProposalId, TaskId};
use cofferdam_core::limits;
use cofferdam_core::operation::{HeldAnswer, OutboxAnswer, RefuseHeld, ReleaseHeld};
use cofferdam_core::outbox::{
    Effect, Held, OutboxFailed, OutboxRefused, OutboxReleased, OutboxSent,
};

use super::{digest, of_task};
use crate::run::FrontDoor;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

impl Runtime {
    /// Releases proposals in the owner's name, one after the other; each is sent at once. The front
    /// door has made sure that it is the owner: an agent's own door has no way here.
    ///
    /// What cannot be sent does not hold the others back, and waits again.
    ///
    /// # Errors
    ///
    /// `proposal_unknown`, `task_unknown`, `invalid_request`; and where one alone was named, what
    /// refused it: `proposal_decided` for an answer that comes too late, `target_moved` where
    /// something is not as it was shown, `push_failed`.
    pub fn release_held(
        &self,
        request: &ReleaseHeld,
        door: FrontDoor,
    ) -> Result<OutboxAnswer, Problem> {
        let named = self.named(&request.proposal_ids, request.task.as_deref())?;
        self.answer_each(named, |id| self.release_one(id, door))
    }

    /// Refuses proposals in the owner's name: they will not leave.
    ///
    /// # Errors
    ///
    /// As [`Self::release_held`].
    pub fn refuse_held(
        &self,
        request: &RefuseHeld,
        door: FrontDoor,
    ) -> Result<OutboxAnswer, Problem> {
        let reason = request.reason.clone().filter(|reason| !reason.is_empty());
        let most = limits::APPROVAL_REASON_CHARACTERS;
        if reason.iter().any(|reason| reason.chars().count() > most) {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("a reason has at most {most} characters"),
            )
            .with_field("reason"));
        }
        let named = self.named(&request.proposal_ids, request.task.as_deref())?;
        self.answer_each(named, |id| self.refuse_one(id, door, reason.clone()))
    }

    /// Finds what an answer is about.
    fn named(&self, ids: &[ProposalId], task: Option<&str>) -> Result<Vec<ProposalId>, Problem> {
        match (ids, task) {
            ([], Some(name)) => {
                let task = self.task(name)?;
                let held = of_task(&self.outbox()?, &task.task_id).into_iter();
                let ids: Vec<_> = held
                    .filter(|one| one.state.waits())
                    .map(|one| one.proposal.proposal_id)
                    .collect();
                if ids.is_empty() {
                    return Err(Problem::new(
                        ErrorCode::ProposalUnknown,
                        format!("nothing of task {} is held", task.number),
                    )
                    .with_field("task")
                    .with_hint("cofferdam outbox list --all shows every one"));
                }
                Ok(ids)
            }
            ([_, ..], None) => {
                let mut all: Vec<ProposalId> = Vec::new();
                for id in ids {
                    self.held_one(id)?;
                    if !all.contains(id) {
                        all.push(id.clone());
                    }
                }
                Ok(all)
            }
            _ => Err(Problem::new(
                ErrorCode::InvalidRequest,
                "either a task or proposals have to be named",
            )
            .with_field("proposal_ids")),
        }
    }

    fn answer_each(
        &self,
        named: Vec<ProposalId>,
        answer: impl Fn(&ProposalId) -> Result<(), Problem>,
    ) -> Result<OutboxAnswer, Problem> {
        let is_one = named.len() == 1;
        let mut answers = Vec::new();
        for id in named {
            let problem = answer(&id).err();
            if let Some(problem) = problem.as_ref().filter(|_| is_one) {
                return Err(problem.clone());
            }
            answers.push(HeldAnswer {
                held: self.held_one(&id)?,
                problem,
            });
        }
        let success = answers.iter().all(|one| one.problem.is_none());
        Ok(OutboxAnswer { answers, success })
    }

    fn release_one(&self, id: &ProposalId, door: FrontDoor) -> Result<(), Problem> {
        let held = self.held_one(id)?;
        held.check(Answerer::Owner)?;
        let proposal = &held.proposal;
        if digest(&proposal.effect)? != proposal.binding.digest {
            return Err(Problem::new(
                ErrorCode::GrantRefused,
                format!("what {id} would do is not what was proposed"),
            ));
        }
        let Some(task) = &proposal.binding.task else {
            return Err(Problem::new(
                ErrorCode::GrantRefused,
                format!("{id} belongs to no task"),
            ));
        };
        let entry = self.entry(task.as_str())?;
        let Some(record) = &entry.record else {
            return Err(Problem::new(
                ErrorCode::TaskState,
                format!("task {} has no branch of its own", entry.number),
            ));
        };
        let Effect::Push { push } = &proposal.effect;
        let (workspaces, _) = self.workspaces_of(record)?;
        // What is not as it was shown is no answer yet: it stays held.
        workspaces.check_push(record, push)?;
        let released = OutboxReleased {
            proposal_id: id.clone(),
            release_id: self.answer_id(),
            digest: proposal.binding.digest.clone(),
            by: Answerer::Owner,
            door: door.as_str().to_owned(),
            lease: self.plane.lease().clone(),
        };
        let subject = &entry.subject;
        self.write(
            event_type::OUTBOX_RELEASED,
            subject,
            &released,
            Severity::Info,
        )?;
        self.check_first(id, &released.release_id)?;
        match workspaces.push(record, push) {
            Ok(sent) => {
                let sent = OutboxSent {
                    proposal_id: id.clone(),
                    release_id: released.release_id,
                    sent,
                };
                self.write(event_type::OUTBOX_SENT, subject, &sent, Severity::Info)
            }
            Err(error) => {
                let problem = Problem::from(error);
                let failed = OutboxFailed {
                    proposal_id: id.clone(),
                    release_id: released.release_id,
                    problem: problem.clone(),
                };
                self.write(
                    event_type::OUTBOX_FAILED,
                    subject,
                    &failed,
                    Severity::Warning,
                )?;
                Err(problem)
            }
        }
    }

    fn refuse_one(
        &self,
        id: &ProposalId,
        door: FrontDoor,
        reason: Option<String>,
    ) -> Result<(), Problem> {
        let held = self.held_one(id)?;
        held.check(Answerer::Owner)?;
        let subject = match &held.proposal.binding.task {
            Some(task) => self.entry(task.as_str())?.subject,
            None => Subject::default(),
        };
        let refused = OutboxRefused {
            proposal_id: id.clone(),
            answer_id: self.answer_id(),
            by: Answerer::Owner,
            door: door.as_str().to_owned(),
            reason,
        };
        self.write(
            event_type::OUTBOX_REFUSED,
            &subject,
            &refused,
            Severity::Info,
        )?;
        self.check_first(id, &refused.answer_id)
    }

    /// Refuses what waits of a task's own branch, which is gone: the owner dropped it.
    pub(crate) fn refuse_dropped(&self, task: &TaskId, branch: &str) -> Result<(), Problem> {
        let reference = format!("refs/heads/{branch}");
        for held in of_task(&self.outbox()?, task) {
            let Effect::Push { push } = &held.proposal.effect;
            if held.state.waits() && push.branch == reference {
                let reason = Some("the task was dropped".to_owned());
                let id = &held.proposal.proposal_id;
                match self.refuse_one(id, FrontDoor::CommandLine, reason) {
                    // Somebody else was first.
                    Err(problem) if problem.code == ErrorCode::ProposalDecided => {}
                    refused => refused?,
                }
            }
        }
        Ok(())
    }

    fn answer_id(&self) -> OperationId {
        let (time, random) = self.plane.ambient().id_parts();
        OperationId::new(time, random)
    }

    /// Somebody else may have been first: what the journal says is so.
    fn check_first(&self, id: &ProposalId, answer: &OperationId) -> Result<(), Problem> {
        let held: Held = self.held_one(id)?;
        if held.is_by(answer) {
            return Ok(());
        }
        held.check(Answerer::Owner).and(Err(Problem::new(
            ErrorCode::ProposalDecided,
            format!("{id} was answered by somebody else meanwhile"),
        )))
    }

    fn write<T: serde::Serialize>(
        &self,
        kind: &'static str,
        subject: &Subject,
        data: &T,
        severity: Severity,
    ) -> Result<(), Problem> {
        let line = Line::new(kind, subject, to_value(data)?);
        self.scribe.say(line.severity(severity)).map(drop)
    }
}
