//! Plans of single commands that stay known for a moment, so that a server does not look at the
//! whole host before each of them.
//!
//! A plan is made again as soon as a policy file changed, and at the latest after [`FRESH`].

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cofferdam_core::outcome::{CommandOutcome, IsolationLevel};
use cofferdam_core::plan::{self, WorkspaceView};
use cofferdam_core::spec::{Digest, EnclosureSpec, Network};
use cofferdam_exec::Run;

use crate::decide::{asks_by_rules, asks_to_write, decide, rule_question};
use crate::files::FilePlan;
use crate::host::{PolicyRequest, Resolved};
use crate::refusal;
use crate::run::{
    Opening, Refused, RunRequest, cancelled, decided, fallback, narrow, own_ports, plan_in,
    with_input,
};
use crate::runtime::Runtime;
use crate::session::Stamp;

/// How long what was seen of the host is taken as it was.
const FRESH: Duration = Duration::from_secs(1);
/// How long it is at most, while another thread looks.
const STALE: Duration = Duration::from_secs(5);
/// Most plans that stay known; the one that was made first gives way.
const MOST: usize = 16;

/// The plans of a runtime.
#[derive(Debug, Default)]
pub(crate) struct KnownPlans(Mutex<Vec<Entry>>);

/// A plan and what it was made of.
#[derive(Debug)]
struct Entry {
    policy: PolicyRequest,
    stamp: Stamp,
    /// When it was made, by the monotonic clock.
    made: Duration,
    /// Whether a thread is making it again; the others go on with what is known.
    is_being_made: bool,
    known: Arc<Known>,
}

/// A plan with everything that was decided for it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) resolved: Resolved,
    pub(crate) requested: IsolationLevel,
    pub(crate) spec: EnclosureSpec,
    hash: Digest,
    policy_digest: Digest,
    /// The plan by which files are served, once somebody asks for one.
    pub(crate) files: OnceLock<FilePlan>,
}

impl Runtime {
    /// Runs a command over a protocol, by a plan that is known, in a place that stands ready.
    pub(crate) fn run_known(
        &self,
        request: RunRequest<'_>,
        opening: &Opening<'_>,
        told: &mut bool,
    ) -> Result<CommandOutcome, Refused> {
        let RunRequest {
            mut policy,
            mut command,
            front_door,
            io,
            control,
        } = request;
        narrow(&mut policy, &command);
        let known = self.known_plan(&policy)?;
        let Known {
            resolved,
            requested,
            spec,
            hash,
            policy_digest,
            ..
        } = known.as_ref();
        let refused = |problem| (problem, Some(*requested));
        let decision = decide(&resolved.policy);
        if asks_to_write(&resolved.policy, &policy) {
            let request = RunRequest {
                policy,
                command,
                front_door,
                io,
                control,
            };
            return self.run_asking(request, resolved, opening, told);
        }
        if self.answers_questions()
            && asks_by_rules(&resolved.policy, front_door)
            && let Some(judgement) = rule_question(resolved, spec, &command.command, front_door)
        {
            let request = RunRequest {
                policy,
                command,
                front_door,
                io,
                control,
            };
            return self.run_rule_asking(request, resolved, &judgement, opening, told);
        }
        let io = with_input(io, &mut command.stdin);
        command.cwd.get_or_insert_with(|| resolved.cwd.clone());
        let _ports = own_ports(resolved, &mut command);
        let planned = plan_in(resolved, spec, &command, front_door, &io).map_err(refused)?;
        if control.is_cancelled() {
            return Err(refused(cancelled()));
        }
        let subject = opening.who.subject();
        let mut lines = if *told { Vec::new() } else { opening.lines() };
        let digests = (hash, policy_digest);
        lines.push(decided(
            opening,
            &decision,
            &resolved.policy,
            spec,
            &planned,
            digests,
        ));
        lines.extend(fallback(resolved, spec, opening));
        // With the intent of the command, in one step.
        self.scribe.record_later(lines);
        *told = true;
        let kept = self.kept_command(resolved, front_door, || opening.credit());
        if let Some(kept) = &kept {
            kept.begin();
        }
        let run = Run {
            command: planned.spec,
            subject,
            io,
            control,
            timeout_clamped: !planned.clamps.is_empty(),
        };
        let outcome = self.pool.run_known(spec, hash, *requested, run);
        if let Some(kept) = kept {
            kept.end(&outcome.command_id);
        }
        self.scribe.record_later(opening.ending(outcome.status));
        Ok(outcome)
    }

    /// Gives the plan of a policy: the one that is known, as long as it is fresh.
    pub(crate) fn known_plan(&self, policy: &PolicyRequest) -> Result<Arc<Known>, Refused> {
        let stamp = self.policy_stamp(policy);
        let now = self.plane.ambient().monotonic();
        if let Some(known) = self.known.find(policy, &stamp, now) {
            return Ok(known);
        }
        let made = self.make_plan(policy).map(Arc::new);
        // The list is whole after every statement that changes it.
        let mut entries = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|one| one.policy != *policy);
        let known = made?;
        if entries.len() >= MOST {
            entries.remove(0);
        }
        entries.push(Entry {
            policy: policy.clone(),
            stamp,
            made: now,
            is_being_made: false,
            known: Arc::clone(&known),
        });
        Ok(known)
    }

    fn make_plan(&self, policy: &PolicyRequest) -> Result<Known, Refused> {
        let early = |problem| (problem, None);
        let resolved = self.look(policy, Network::None, None).map_err(early)?;
        let requested = refusal::requested(&resolved.policy);
        let view = WorkspaceView::live(&resolved.facts.workspace);
        let spec = plan::prepare(&resolved.policy, &view, &resolved.facts, &self.scratch())
            .map_err(|problem| (problem, Some(requested)))?;
        Ok(Known {
            requested,
            hash: spec.hash(),
            policy_digest: resolved.policy.digest(),
            spec,
            resolved,
            files: OnceLock::new(),
        })
    }
}

impl KnownPlans {
    /// Gives a plan that is fresh; nothing to the one thread that is to make it again.
    fn find(&self, policy: &PolicyRequest, stamp: &Stamp, now: Duration) -> Option<Arc<Known>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.iter_mut().find(|one| one.policy == *policy)?;
        let age = now.saturating_sub(entry.made);
        let is_fresh = age < FRESH || entry.is_being_made && age < STALE;
        if is_fresh && entry.stamp == *stamp {
            return Some(Arc::clone(&entry.known));
        }
        entry.is_being_made = true;
        None
    }
}
