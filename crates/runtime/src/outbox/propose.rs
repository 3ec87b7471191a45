//! Proposing: what would leave is looked at, written down, and held.

use std::path::Path;

use cofferdam_core::approval::Binding;
use cofferdam_core::authority::Actor;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::id::ProposalId;
use cofferdam_core::operation::{Proposed, Publish, PullRequest, Push, WriteOutside};
use cofferdam_core::outbox::{Effect, Held, HeldState, InsideRequest, Proposal, ProposedBy};
use cofferdam_core::policy::{WantedPath, check_outside_file};
use cofferdam_core::spec::{Identity, Network};
use cofferdam_exec::host::wanted_file;
use cofferdam_exec::workspace::{
    PublishWish, PullRequestWish, PushRequest, Workspaces, WorktreeRecord,
};
use cofferdam_exec::{plan_write_outside, proposed_bytes};

use super::digest;
use crate::files::FileRequest;
use crate::host::PolicyRequest;
use crate::participants::Participants;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};
use crate::task::{Act, Entry, check_repository, ended, wrong_state};

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
    ) -> Result<Proposed, Problem> {
        let (entry, workspaces) = self.ready(&request.task, "push", from)?;
        let wish = PushRequest {
            remote: request.remote.clone(),
            ..PushRequest::default()
        };
        let push = workspaces
            .plan_push(record_of(&entry)?, &wish)
            .map_err(|error| with_field(error.into()))?;
        let by = ProposedBy::Operation;
        let (held, is_new) = self.hold(of(&entry), by, actor, Effect::Push { push })?;
        Ok(proposed(held, None, is_new))
    }

    /// Proposes a pull request of a task's own branch, and the push that it needs where the remote is
    /// not known to have it. Nothing leaves by it.
    ///
    /// # Errors
    ///
    /// `forge_unknown` where nothing is known, or nothing installed, that opens one; `invalid_request`;
    /// else as [`Self::propose_push`].
    pub fn propose_pull_request(
        &self,
        request: &PullRequest,
        actor: Actor,
        from: Option<&Path>,
    ) -> Result<Proposed, Problem> {
        let (entry, workspaces) = self.ready(&request.task, "pull-request", from)?;
        let wish = PullRequestWish {
            title: request.title.clone(),
            body: request.body.clone(),
            base: request.base.clone(),
            remote: request.remote.clone(),
        };
        let record = record_of(&entry)?;
        let by = ProposedBy::Operation;
        self.hold_pull_request(&workspaces, record, of(&entry), (by, actor), &wish)
    }

    /// Proposes to publish what a task's own branch holds. Nothing runs by it.
    ///
    /// # Errors
    ///
    /// `invalid_request`; `not_found` for a program that is not there; `denied` for a commit with a
    /// link that leads out of it; else as [`Self::propose_push`].
    pub fn propose_publish(
        &self,
        request: &Publish,
        actor: Actor,
        from: Option<&Path>,
    ) -> Result<Proposed, Problem> {
        let (entry, workspaces) = self.ready(&request.task, "publish", from)?;
        let wish = PublishWish {
            argv: request.argv.clone(),
            directory: request.directory.clone(),
        };
        let publish = workspaces.plan_publish(record_of(&entry)?, &wish)?;
        let by = ProposedBy::Operation;
        let (held, is_new) = self.hold(of(&entry), by, actor, Effect::Publish { publish })?;
        Ok(proposed(held, None, is_new))
    }

    /// Proposes that a file outside of the workspace holds certain bytes. Nothing is written by it.
    ///
    /// # Errors
    ///
    /// `path_refused` for what is denied, secret, protected, the system's, or can be written already;
    /// `not_a_file`; `file_missing` for a folder that is not there; `file_too_large`; `file_conflict`;
    /// `invalid_request`.
    pub fn propose_write_outside(
        &self,
        who: &FileRequest,
        request: WriteOutside,
    ) -> Result<Proposed, Problem> {
        let entry = match who.authority.task() {
            Some(task) => self.entry(task.as_str()).ok(),
            None => None,
        };
        let (subject, number) = if let Some(entry) = &entry {
            (entry.subject.clone(), Some(entry.number))
        } else {
            let mut subject = Participants::new(self.plane.ambient()).subject();
            subject.task = Some(self.plane.work());
            (subject, None)
        };
        let by = ProposedBy::Operation;
        let actor = who.authority.actor();
        let (held, is_new) =
            self.hold_write(&who.policy, (&subject, number), (by, actor), request)?;
        Ok(proposed(held, None, is_new))
    }

    /// Finds a task that has ended with a branch of its own, in the repository that is meant.
    fn ready(
        &self,
        task: &str,
        verb: &str,
        from: Option<&Path>,
    ) -> Result<(Entry, Workspaces), Problem> {
        let entry = self.entry(task)?;
        ended(&entry)?;
        let number = entry.number;
        if let Some(Act::Dropped(_)) = entry.last_act() {
            return Err(wrong_state(
                format!("task {number} was dropped"),
                format!("cofferdam undo {number}"),
            ));
        }
        let record = record_of(&entry)?;
        let (workspaces, _) = self.workspaces_of(record)?;
        check_repository(&workspaces, &entry, record, verb, from)?;
        Ok((entry, workspaces))
    }

    fn hold_pull_request(
        &self,
        workspaces: &Workspaces,
        record: &WorktreeRecord,
        of: (&Subject, Option<u64>),
        (by, actor): (ProposedBy, Actor),
        wish: &PullRequestWish,
    ) -> Result<Proposed, Problem> {
        let pull_request = workspaces
            .plan_pull_request(record, wish)
            .map_err(|error| with_field(error.into()))?;
        let push = PushRequest {
            remote: Some(pull_request.remote.clone()),
            ..PushRequest::default()
        };
        let push = workspaces.plan_push(record, &push)?;
        let before = if push.commits.is_empty() && push.commits_left_out == 0 {
            None
        } else {
            Some(self.hold(of, by, actor, Effect::Push { push })?.0)
        };
        let effect = Effect::PullRequest { pull_request };
        let (held, is_new) = self.hold(of, by, actor, effect)?;
        let before = before.filter(|before| before.state != HeldState::Released);
        Ok(proposed(held, before, is_new))
    }

    fn hold_write(
        &self,
        policy: &PolicyRequest,
        of: (&Subject, Option<u64>),
        (by, actor): (ProposedBy, Actor),
        request: WriteOutside,
    ) -> Result<(Held, bool), Problem> {
        let (effect, _) =
            self.look_outside(policy, &request.path.clone(), |root, wanted, identity| {
                plan_write_outside(root, wanted, request, identity)
            })?;
        // What is shown is what is written, so bytes that must not be shown are not proposed.
        if self.scribe.masker().mask_bytes(&proposed_bytes(&effect)?).1 > 0 {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                "it holds the value of a secret, which is never written down",
            )
            .with_field("content"));
        }
        let effect = Effect::WriteOutside {
            write_outside: effect,
        };
        self.hold(of, by, actor, effect)
    }

    /// Holds a path outside of the workspace against the policy and looks at it as its owner.
    pub(super) fn look_outside<T>(
        &self,
        policy: &PolicyRequest,
        path: &BytePath,
        look: impl FnOnce(&BytePath, &WantedPath, Option<&Identity>) -> Result<T, Problem>,
    ) -> Result<(T, BytePath), Problem> {
        let resolved = self.look(policy, Network::None, None)?;
        let facts = &resolved.facts;
        let wanted = wanted_file(path, &facts.owner.home)?;
        let stands = |path: &BytePath| std::fs::symlink_metadata(path.as_path()).is_ok();
        check_outside_file(&wanted, &resolved.policy, facts, &stands)?;
        let is_own = facts.owner.identity.uid == facts.caller.identity.uid;
        let identity = (!is_own).then_some(&facts.owner.identity);
        let root = facts.workspace.root.clone();
        Ok((look(&root, &wanted, identity)?, root))
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
        let record = record_of(&entry)?;
        let (workspaces, _) = self.workspaces_of(record)?;
        let wish = PushRequest {
            remote: remote.map(str::to_owned),
            branch: Some((merged.target, merged.new)),
            commit: None,
        };
        let push = workspaces
            .plan_push(record, &wish)
            .map_err(|error| with_field(error.into()))?;
        let effect = Effect::Push { push };
        let (held, _) = self.hold(of(&entry), ProposedBy::Merge, Actor::Owner, effect)?;
        Ok(held)
    }

    /// Proposes what a task pushed of its own branch, and asked for, in its own tree; gives in words
    /// what became of each.
    pub(crate) fn hold_left(
        &self,
        workspaces: &Workspaces,
        record: &WorktreeRecord,
        (subject, number): (&Subject, u64),
    ) -> Vec<String> {
        let of = (subject, Some(number));
        let by = (ProposedBy::Task, Actor::Protocol);
        let told = |what: &str, held: Result<Held, Problem>| match held {
            Ok(held) => format!(
                "{what} is {}: cofferdam outbox show {}",
                held.state.as_str(),
                held.proposal.proposal_id
            ),
            Err(problem) => format!("{what} is not proposed: {problem}"),
        };
        let mut said = Vec::new();
        for pushed in record.harvest.iter().flat_map(|harvest| &harvest.pushes) {
            let wish = PushRequest {
                remote: Some(pushed.remote.clone()),
                branch: None,
                commit: Some(pushed.commit.clone()),
            };
            let held = workspaces
                .plan_push(record, &wish)
                .map_err(Problem::from)
                .and_then(|push| self.hold(of, by.0, by.1, Effect::Push { push }));
            let what = format!("its push to {}", pushed.remote);
            said.push(told(&what, held.map(|(held, _)| held)));
        }
        for left in record.harvest.iter().flat_map(|harvest| &harvest.requests) {
            let held = match (&left.request, &left.wrong) {
                (Some(request), _) => self.hold_request(workspaces, record, of, by, request),
                (None, wrong) => {
                    let why = wrong.as_deref().unwrap_or("it is empty");
                    Err(Problem::new(ErrorCode::InvalidRequest, why))
                }
            };
            let what = left
                .request
                .as_ref()
                .map_or("what it asked for", InsideRequest::as_str);
            said.push(told(&format!("{what} ({})", left.file), held));
        }
        said
    }

    fn hold_request(
        &self,
        workspaces: &Workspaces,
        record: &WorktreeRecord,
        of: (&Subject, Option<u64>),
        by: (ProposedBy, Actor),
        request: &InsideRequest,
    ) -> Result<Held, Problem> {
        match request.clone() {
            InsideRequest::PullRequest {
                title,
                body,
                base,
                remote,
            } => {
                let wish = PullRequestWish {
                    title,
                    body,
                    base,
                    remote,
                };
                let proposed = self.hold_pull_request(workspaces, record, of, by, &wish)?;
                Ok(proposed.held)
            }
            InsideRequest::Publish { argv, directory } => {
                let wish = PublishWish { argv, directory };
                let publish = workspaces.plan_publish(record, &wish)?;
                let effect = Effect::Publish { publish };
                Ok(self.hold(of, by.0, by.1, effect)?.0)
            }
            InsideRequest::WriteOutside {
                path,
                content,
                encoding,
            } => {
                let policy = PolicyRequest {
                    workspace: Some(record.top.as_path().to_owned()),
                    ..PolicyRequest::default()
                };
                let request = WriteOutside {
                    path,
                    content,
                    encoding,
                    expected_digest: None,
                };
                Ok(self.hold_write(&policy, of, by, request)?.0)
            }
        }
    }

    /// Writes a proposal down, unless the same stands there. What the owner refused, and what was cut
    /// off, only they themselves propose anew.
    fn hold(
        &self,
        (subject, number): (&Subject, Option<u64>),
        by: ProposedBy,
        actor: Actor,
        effect: Effect,
    ) -> Result<(Held, bool), Problem> {
        let root = effect.root().clone();
        let mut written = to_value(&effect)?;
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
                && (actor != Actor::Owner
                    || !matches!(one.state, HeldState::Refused | HeldState::Unknown))
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

fn of(entry: &Entry) -> (&Subject, Option<u64>) {
    (&entry.subject, Some(entry.number))
}

/// Lends what is recorded of a task's own tree.
pub(super) fn record_of(entry: &Entry) -> Result<&WorktreeRecord, Problem> {
    entry.record.as_ref().ok_or_else(|| {
        wrong_state(
            format!("task {} has no branch of its own", entry.number),
            "push it yourself with git push",
        )
    })
}

fn proposed(held: Held, before: Option<Held>, is_new: bool) -> Proposed {
    let next = if held.state.waits() {
        let id = &held.proposal.proposal_id;
        let release = match &before {
            Some(before) => format!("{} {id}", before.proposal.proposal_id),
            None => id.to_string(),
        };
        vec![
            format!("cofferdam outbox show {id}"),
            format!("cofferdam outbox release {release}"),
        ]
    } else {
        vec!["cofferdam outbox list --all".to_owned()]
    };
    Proposed {
        held,
        before,
        is_new,
        next,
    }
}

fn with_field(problem: Problem) -> Problem {
    if problem.code == ErrorCode::RemoteUnknown {
        problem.with_field("remote")
    } else {
        problem
    }
}
