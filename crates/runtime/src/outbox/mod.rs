//! The outbox: what would leave the machine is held, and one answer of the owner's releases it.
//!
//! The journal is the outbox: a proposal is an event, an answer is one, and what is written first
//! counts. So any process may propose, another one may answer, and a start in between changes nothing.

mod answer;
mod propose;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::{ProposalId, TaskId};
use cofferdam_core::limits;
use cofferdam_core::operation::{ListOutbox, OutboxPage, PendingEffect};
use cofferdam_core::outbox::{Held, InsideRequest, Outbox};
use cofferdam_core::spec::Digest;

use crate::runtime::Runtime;
use crate::scribe::to_value;
use crate::task::{Ledger, each};

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
                None => request.all || one.state.is_open(),
            };
            of_task && in_state
        };
        let mut held: Vec<Held> = self.outbox()?.iter().filter(is_wanted).cloned().collect();
        held.reverse();
        let left_out = held.len().saturating_sub(limits::PROPOSALS_LISTED);
        held.truncate(limits::PROPOSALS_LISTED);
        let pending = if request.state.is_none() {
            self.pending_effects(task.as_ref())?
        } else {
            Vec::new()
        };
        Ok(OutboxPage {
            held,
            left_out,
            pending,
        })
    }

    /// Looks into the trees of tasks that still run for what they pushed and asked for. It is their own
    /// word, and nothing of it is believed before they have ended; a tree that cannot be looked into
    /// has nothing.
    fn pending_effects(&self, task: Option<&TaskId>) -> Result<Vec<PendingEffect>, Problem> {
        let mut pending = Vec::new();
        let ledger = Ledger::read(self.journal().as_ref(), true)?;
        for entry in ledger.entries() {
            let is_over = entry.result.is_some();
            if is_over || task.is_some_and(|task| *task != entry.task) {
                continue;
            }
            let Some(record) = &entry.record else {
                continue;
            };
            let looked = self
                .workspaces_of(record)
                .and_then(|(workspaces, _)| Ok(workspaces.pending(record)?));
            let Ok((pushes, requests)) = looked else {
                continue;
            };
            let pushes = pushes.iter().map(|one| {
                let commit = one.commit.get(..10).unwrap_or(&one.commit);
                format!("push {commit} to {}", one.remote)
            });
            let requests = requests.iter().map(|one| {
                let what = one.request.as_ref();
                let what = what.map_or("a request that cannot be read", InsideRequest::as_str);
                format!("{what} ({})", one.file)
            });
            let mut told: Vec<String> = pushes.chain(requests).collect();
            for summary in &mut told {
                self.scribe.masker().mask_text(summary);
            }
            pending.extend(told.into_iter().map(|summary| PendingEffect {
                task_number: entry.number,
                summary,
            }));
        }
        Ok(pending)
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
