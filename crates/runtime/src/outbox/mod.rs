//! The outbox: what would leave the machine is held, and one answer of the owner's releases it.
//!
//! The journal is the outbox: a proposal is an event, an answer is one, and what is written first
//! counts. So any process may propose, another one may answer, and a start in between changes nothing.

mod answer;
mod propose;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::{ProposalId, TaskId};
use cofferdam_core::limits;
use cofferdam_core::operation::{ListOutbox, OutboxPage};
use cofferdam_core::outbox::{Held, Outbox};
use cofferdam_core::spec::Digest;

use crate::runtime::Runtime;
use crate::scribe::to_value;
use crate::task::each;

/// Digests what would leave, so that what is released is what was shown.
fn digest(effect: &cofferdam_core::outbox::Effect) -> Result<Digest, Problem> {
    Ok(Digest::of(to_value(effect)?.to_string().as_bytes()))
}

impl Runtime {
    /// Reads every proposal.
    pub(crate) fn outbox(&self) -> Result<Outbox, Problem> {
        let mut outbox = Outbox::default();
        each(self.journal().as_ref(), "outbox", |event| {
            outbox.apply(&event);
        })?;
        Ok(outbox)
    }

    /// Lists proposals, the newest first.
    ///
    /// # Errors
    ///
    /// `task_unknown`, and when the journal cannot be read.
    pub fn held(&self, request: &ListOutbox) -> Result<OutboxPage, Problem> {
        let task = match &request.task {
            Some(name) => Some(self.task(name)?.task_id),
            None => None,
        };
        let is_wanted = |one: &&Held| {
            let of_task = task.is_none() || one.proposal.binding.task == task;
            let in_state = match request.state {
                Some(state) => one.state == state,
                None => request.all || one.state.waits(),
            };
            of_task && in_state
        };
        let mut held: Vec<Held> = self.outbox()?.iter().filter(is_wanted).cloned().collect();
        held.reverse();
        let left_out = held.len().saturating_sub(limits::PROPOSALS_LISTED);
        held.truncate(limits::PROPOSALS_LISTED);
        Ok(OutboxPage { held, left_out })
    }

    /// Gives one proposal.
    ///
    /// # Errors
    ///
    /// `proposal_unknown`, and when the journal cannot be read.
    pub fn held_one(&self, id: &ProposalId) -> Result<Held, Problem> {
        self.outbox()?.get(id).cloned().ok_or_else(|| {
            Problem::new(
                ErrorCode::ProposalUnknown,
                format!("there is no proposal {id}"),
            )
            .with_field("proposal_ids")
            .with_hint("cofferdam outbox list --all shows every one")
        })
    }
}

/// Gives the proposals of a task, the oldest first.
pub(crate) fn of_task(outbox: &Outbox, task: &TaskId) -> Vec<Held> {
    outbox
        .iter()
        .filter(|one| one.proposal.binding.task.as_ref() == Some(task))
        .cloned()
        .collect()
}

/// Tells whether something of a task waits for an answer.
pub(crate) fn waits(outbox: &Outbox, task: &TaskId) -> bool {
    outbox
        .iter()
        .any(|one| one.state.waits() && one.proposal.binding.task.as_ref() == Some(task))
}
