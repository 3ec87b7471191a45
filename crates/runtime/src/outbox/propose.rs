//! Proposing: what would leave is looked at, written down, and held.

use std::path::Path;

use cofferdam_core::approval::Binding;
use cofferdam_core::authority::Actor;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::id::ProposalId;
use cofferdam_core::operation::{Push, PushProposed};
use cofferdam_core::outbox::{Effect, Held, HeldState, Proposal, ProposedBy, PushEffect};
use cofferdam_exec::workspace::{PushRequest, Workspaces, WorktreeRecord};

use super::digest;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};
use crate::task::{Act, check_repository, ended, wrong_state};

impl Runtime {
    /// Proposes to push a task's own branch, as it was brought in. Nothing leaves by it.
    ///
    /// Who proposes the same again is given what is there. `from` is a directory in the repository
    /// that is meant; `None` where nobody could mean another.
    ///
    /// # Errors
    ///
    /// `task_unknown`; `task_state` where it has not ended, or has no branch; `target_moved` where
    /// its branch is not where it was brought in; `remote_unknown`; `other_repository`; `denied` where
    /// the task could have changed the owner's hooks.
    pub fn propose_push(
        &self,
        request: &Push,
        actor: Actor,
        from: Option<&Path>,
    ) -> Result<PushProposed, Problem> {
        let entry = self.entry(&request.task)?;
        ended(&entry)?;
        let number = entry.number;
        if let Some(Act::Dropped(_)) = entry.last_act() {
            return Err(wrong_state(
                format!("task {number} was dropped"),
                format!("cofferdam undo {number}"),
            ));
        }
        let Some(record) = &entry.record else {
            return Err(wrong_state(
                format!("task {number} has no branch of its own"),
                "push it yourself with git push",
            ));
        };
        let (workspaces, _) = self.workspaces_of(record)?;
        check_repository(&workspaces, &entry, record, "push", from)?;
        let wish = PushRequest {
            remote: request.remote.clone(),
            ..PushRequest::default()
        };
        let push = workspaces
            .plan_push(record, &wish)
            .map_err(|error| with_field(error.into()))?;
        let of = (&entry.subject, number);
        let (held, is_new) = self.hold(of, ProposedBy::Operation, actor, push)?;
        let next = if held.state.waits() {
            let id = &held.proposal.proposal_id;
            vec![
                format!("cofferdam outbox show {id}"),
                format!("cofferdam outbox release {id}"),
            ]
        } else {
            vec!["cofferdam outbox list --all".to_owned()]
        };
        Ok(PushProposed { held, is_new, next })
    }

    /// Proposes to push the branch into which a task was merged, as the merge left it. Only the owner
    /// has a way here.
    ///
    /// # Errors
    ///
    /// `task_state` where it is not merged; else as [`Self::propose_push`].
    pub fn propose_merged(&self, name: &str, remote: Option<&str>) -> Result<Held, Problem> {
        let entry = self.entry(name)?;
        let number = entry.number;
        let merged = match entry.last_act() {
            Some(Act::Merged(merged)) => merged.clone(),
            _ => {
                return Err(wrong_state(
                    format!("task {number} is not merged"),
                    format!("cofferdam merge {number}"),
                ));
            }
        };
        let Some(record) = &entry.record else {
            return Err(wrong_state(
                format!("task {number} has no branch of its own"),
                "push it yourself with git push",
            ));
        };
        let (workspaces, _) = self.workspaces_of(record)?;
        let wish = PushRequest {
            remote: remote.map(str::to_owned),
            branch: Some((merged.target, merged.new)),
            commit: None,
        };
        let push = workspaces
            .plan_push(record, &wish)
            .map_err(|error| with_field(error.into()))?;
        let of = (&entry.subject, number);
        let (held, _) = self.hold(of, ProposedBy::Merge, Actor::Owner, push)?;
        Ok(held)
    }

    /// Proposes what a task pushed of its own branch in its own tree; gives in words what became of
    /// each.
    pub(crate) fn hold_pushes(
        &self,
        workspaces: &Workspaces,
        record: &WorktreeRecord,
        of: (&Subject, u64),
    ) -> Vec<String> {
        let pushes = record.harvest.iter().flat_map(|harvest| &harvest.pushes);
        pushes
            .map(|pushed| {
                let wish = PushRequest {
                    remote: Some(pushed.remote.clone()),
                    branch: None,
                    commit: Some(pushed.commit.clone()),
                };
                let held = workspaces
                    .plan_push(record, &wish)
                    .map_err(Problem::from)
                    .and_then(|push| self.hold(of, ProposedBy::Task, Actor::Protocol, push));
                match held {
                    Ok((held, _)) => format!(
                        "its push to {} is {}: cofferdam outbox show {}",
                        pushed.remote,
                        held.state.as_str(),
                        held.proposal.proposal_id
                    ),
                    Err(problem) => {
                        format!("its push to {} is not proposed: {problem}", pushed.remote)
                    }
                }
            })
            .collect()
    }

    /// Writes a proposal down, unless the same stands there. What the owner refused only they
    /// themselves propose anew.
    fn hold(
        &self,
        (subject, number): (&Subject, u64),
        by: ProposedBy,
        actor: Actor,
        push: PushEffect,
    ) -> Result<(Held, bool), Problem> {
        let root = push.repository.clone();
        let mut written = to_value(&Effect::Push { push })?;
        // What is shown is what is written: known secrets are masked before it is digested.
        self.scribe.masker().mask_json(&mut written);
        let effect: Effect = serde_json::from_value(written).map_err(|error| {
            Problem::new(
                ErrorCode::Internal,
                format!("a proposal cannot be written: {error}"),
            )
        })?;
        let digest = digest(&effect)?;
        let outbox = self.outbox()?;
        let same = outbox.iter().filter(|one| {
            one.proposal.binding.task == subject.task
                && one.proposal.binding.digest == digest
                && (one.state != HeldState::Refused || actor != Actor::Owner)
        });
        if let Some(same) = same.last() {
            return Ok((same.clone(), false));
        }
        let ambient = self.plane.ambient();
        let (time, random) = ambient.id_parts();
        let proposal = Proposal {
            proposal_id: ProposalId::new(time, random),
            task_number: number,
            by,
            summary: effect.summary(),
            effect,
            binding: Binding {
                actor,
                task: subject.task.clone(),
                call: subject.op.clone(),
                root,
                digest,
            },
            proposed: ambient.now(),
        };
        let line = Line::new(event_type::OUTBOX_PROPOSED, subject, to_value(&proposal)?);
        self.scribe.say(line.severity(Severity::Warning))?;
        Ok((self.held_one(&proposal.proposal_id)?, true))
    }
}

fn with_field(problem: Problem) -> Problem {
    if problem.code == ErrorCode::RemoteUnknown {
        problem.with_field("remote")
    } else {
        problem
    }
}
