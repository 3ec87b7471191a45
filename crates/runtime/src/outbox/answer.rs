//! Answering: what is released is looked at again, sent once, and what came of it is written down.

use cofferdam_core::approval::Answerer;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::id::{OperationId, ProposalId, TaskId};
use cofferdam_core::limits;
use cofferdam_core::operation::{HeldAnswer, OutboxAnswer, RefuseHeld, ReleaseHeld};
use cofferdam_core::outbox::{
    Effect, Held, OutboxFailed, OutboxRefused, OutboxReleased, OutboxSent, Proposal, Sent,
};
use cofferdam_core::spec::Identity;
use cofferdam_exec::workspace::{WorkspaceError, Workspaces, WorktreeRecord};
use cofferdam_exec::{check_write_outside, write_outside};

use super::propose::record_of;
use super::{digest, of_task};
use crate::host::PolicyRequest;
use crate::run::FrontDoor;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// What a release is carried out with.
struct Means {
    subject: Subject,
    with: With,
}

enum With {
    /// The owner's repository and what is recorded of the task's tree.
    Branch(Box<(Workspaces, WorktreeRecord)>),
    /// Files of the owner's, as whom they are written.
    Files(Option<Identity>),
}

impl Means {
    /// Refuses what is not as it was shown.
    fn check(&self, effect: &Effect) -> Result<(), Problem> {
        match (&self.with, effect) {
            (With::Branch(with), Effect::Push { push }) => Ok(with.0.check_push(&with.1, push)?),
            (With::Branch(with), Effect::PullRequest { pull_request }) => {
                Ok(with.0.check_pull_request(&with.1, pull_request)?)
            }
            (With::Branch(with), Effect::Publish { publish }) => {
                Ok(with.0.check_publish(&with.1, publish)?)
            }
            (With::Files(identity), Effect::WriteOutside { write_outside }) => {
                check_write_outside(write_outside, identity.as_ref())
            }
            _ => Err(mixed_up()),
        }
    }

    /// Does it; beside a failure, whether nobody knows what came of it.
    fn carry_out(&self, proposal: &Proposal) -> Result<Sent, (Problem, bool)> {
        let told = |error: WorkspaceError| {
            let unknown = matches!(error, WorkspaceError::EffectFailed { unknown: true, .. });
            (Problem::from(error), unknown)
        };
        match (&self.with, &proposal.effect) {
            (With::Branch(with), Effect::Push { push }) => with.0.push(&with.1, push).map_err(told),
            (With::Branch(with), Effect::PullRequest { pull_request }) => with
                .0
                .open_pull_request(&with.1, pull_request)
                .map_err(told),
            (With::Branch(with), Effect::Publish { publish }) => with
                .0
                .publish(&with.1, publish, proposal.proposal_id.as_str())
                .map_err(told),
            (
                With::Files(identity),
                Effect::WriteOutside {
                    write_outside: file,
                },
            ) => write_outside(file, identity.as_ref()).map_err(|problem| (problem, false)),
            _ => Err((mixed_up(), false)),
        }
    }
}

fn mixed_up() -> Problem {
    Problem::new(ErrorCode::Internal, "a release was given the wrong means")
}

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
    /// something is not as it was shown, `push_failed`, `effect_failed`, `file_conflict`.
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
        let means = self.means(proposal)?;
        // What is not as it was shown is no answer yet: it stays held.
        means.check(&proposal.effect)?;
        let released = OutboxReleased {
            proposal_id: id.clone(),
            release_id: self.answer_id(),
            digest: proposal.binding.digest.clone(),
            by: Answerer::Owner,
            door: door.as_str().to_owned(),
            lease: self.plane.lease().clone(),
            once: proposal.effect.is_once(),
        };
        let subject = &means.subject;
        self.write(
            event_type::OUTBOX_RELEASED,
            subject,
            &released,
            Severity::Info,
        )?;
        self.check_first(id, &released.release_id)?;
        match means.carry_out(proposal) {
            Ok(sent) => {
                let sent = OutboxSent {
                    proposal_id: id.clone(),
                    release_id: released.release_id,
                    sent,
                };
                self.write(event_type::OUTBOX_SENT, subject, &sent, Severity::Info)
            }
            Err((problem, unknown)) => {
                let failed = OutboxFailed {
                    proposal_id: id.clone(),
                    release_id: released.release_id,
                    problem: problem.clone(),
                    unknown,
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

    /// Finds what a release is carried out with.
    fn means(&self, proposal: &Proposal) -> Result<Means, Problem> {
        let task = proposal.binding.task.as_ref();
        if let Effect::WriteOutside { write_outside } = &proposal.effect {
            let policy = PolicyRequest {
                workspace: Some(write_outside.workspace.as_path().to_owned()),
                ..PolicyRequest::default()
            };
            // Held against the policy as it is now.
            let (identity, _) =
                self.look_outside(&policy, &write_outside.path, |_, wanted, identity| {
                    if wanted.real == write_outside.path {
                        return Ok(identity.cloned());
                    }
                    Err(Problem::new(
                        ErrorCode::TargetMoved,
                        format!("{} leads to {} by now", write_outside.path, wanted.real),
                    ))
                })?;
            return Ok(Means {
                subject: self.teller_of(task),
                with: With::Files(identity),
            });
        }
        let Some(task) = task else {
            return Err(Problem::new(
                ErrorCode::GrantRefused,
                format!("{} belongs to no task", proposal.proposal_id),
            ));
        };
        let entry = self.entry(task.as_str())?;
        let record = record_of(&entry)?.clone();
        let (workspaces, _) = self.workspaces_of(&record)?;
        Ok(Means {
            subject: entry.subject,
            with: With::Branch(Box::new((workspaces, record))),
        })
    }

    /// Gives whose events are told; of what came from no task of the ledger, its own mark.
    fn teller_of(&self, task: Option<&TaskId>) -> Subject {
        let entry = task.and_then(|task| self.entry(task.as_str()).ok());
        entry.map_or_else(
            || Subject {
                task: task.cloned(),
                ..Subject::default()
            },
            |entry| entry.subject,
        )
    }

    fn refuse_one(
        &self,
        id: &ProposalId,
        door: FrontDoor,
        reason: Option<String>,
    ) -> Result<(), Problem> {
        let held = self.held_one(id)?;
        held.check_refusal(Answerer::Owner)?;
        let subject = self.teller_of(held.proposal.binding.task.as_ref());
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
            if held.state.waits() && held.proposal.effect.branch() == Some(reference.as_str()) {
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
