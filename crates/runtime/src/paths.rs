//! Paths outside of the workspace that the owner authorises: each is one line of the policy, kept
//! beside the other remembered answers, and holds for files and commands alike from whatever begins
//! next.

use cofferdam_core::approval::{
    ApprovalAnswer, ApprovalKind, ApprovalPreview, Binding, Entitled, Remember, RememberedAnswer,
    RememberedWhat,
};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Subject, event_type};
use cofferdam_core::facts::PathKind;
use cofferdam_core::id::RuleId;
use cofferdam_core::limits;
use cofferdam_core::operation::{
    AuthorisePath, AuthorisedPath, AuthorisedPathPage, ForgetAnswer, RequestPath, RevokePath,
};
use cofferdam_core::policy::{Permission, WantedPath, check_authorisation};
use cofferdam_core::spec::{Access, Digest, Network};
use cofferdam_exec::host::wanted_path;
use cofferdam_exec::{is_as_authorised, remember_answer, remembered_answers};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::approval::Question;
use crate::files::FileRequest;
use crate::host::{Authorised, PolicyRequest, Resolved};
use crate::participants::Participants;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// Most characters of what an agent says it needs a path for.
const REASON_CHARACTERS: usize = 500;

impl Runtime {
    /// Authorises a path outside of the workspace, in the owner's name. It takes effect with whatever
    /// begins next, through the file door and for commands alike.
    ///
    /// # Errors
    ///
    /// `file_missing`; `path_refused` for what is denied, secret, protected, given already or holds
    /// something of that; `socket_refused`; `policy_widening` for what the managed policy does not
    /// allow; `invalid_request`; `io`.
    pub fn authorise_path(
        &self,
        policy: &PolicyRequest,
        request: &AuthorisePath,
    ) -> Result<AuthorisedPath, Problem> {
        let most = limits::REMEMBER_DAYS_CAP;
        let days = request.days.unwrap_or(limits::REMEMBER_DAYS);
        if !(1..=most).contains(&days) {
            let message = format!("a path is authorised for 1 to {most} days");
            return Err(Problem::new(ErrorCode::InvalidRequest, message).with_field("days"));
        }
        if request.hold == Remember::Once {
            let message = "a path is authorised for `task` or `repository`";
            return Err(Problem::new(ErrorCode::InvalidRequest, message).with_field("hold"));
        }
        let resolved = self.look(policy, Network::None, None)?;
        let checked = self.checked_path(policy, &resolved, &request.path, request.access)?;
        let subject = self.work_subject();
        let what = RememberedWhat::Path {
            path: checked.0.real.clone(),
            access: request.access,
        };
        let root = &resolved.facts.workspace.root;
        let expires = match request.hold {
            Remember::Repository => {
                let now = self.plane.ambient().now();
                let length = SignedDuration::from_hours(24 * i64::from(days));
                now.checked_add(length).unwrap_or(now)
            }
            Remember::Once | Remember::Task => Timestamp::MAX,
        };
        let answer = self.new_path_answer(root, what, expires);
        self.hold_path(answer.clone(), &subject)?;
        Ok(shown(&answer, checked.1))
    }

    /// Puts the question to the owner whether a path may be used, in an agent's name, and waits for the
    /// answer. A yes for this once holds as long as the task.
    ///
    /// # Errors
    ///
    /// As [`Runtime::authorise_path`], before anybody is asked; `readonly_denied`;
    /// `approval_rejected`, `approval_expired`, `approval_unavailable`, `cancelled`.
    pub fn request_path(
        &self,
        who: &FileRequest,
        request: &RequestPath,
    ) -> Result<AuthorisedPath, Problem> {
        if request.reason.chars().count() > REASON_CHARACTERS {
            let message = format!("a reason has at most {REASON_CHARACTERS} characters");
            return Err(Problem::new(ErrorCode::InvalidRequest, message).with_field("reason"));
        }
        let resolved = self.look(&who.policy, Network::None, None)?;
        if request.access == Access::Write
            && resolved.policy.permission.value == Permission::Readonly
        {
            return Err(Problem::new(
                ErrorCode::ReadonlyDenied,
                "the policy lets nothing be changed",
            ));
        }
        let (wanted, read_only_below) =
            self.checked_path(&who.policy, &resolved, &request.path, request.access)?;
        if !self.answers_questions() {
            return Err(Problem::new(
                ErrorCode::ApprovalUnavailable,
                "a path outside of the workspace is the owner's to give, and nobody looks at questions",
            )
            .with_hint("the owner says: cofferdam paths authorise PATH"));
        }
        let participants = Participants::new(self.plane.ambient());
        let mut subject = participants.subject();
        subject.task = Some(self.plane.work());
        let root = resolved.facts.workspace.root.clone();
        let what = RememberedWhat::Path {
            path: wanted.real.clone(),
            access: request.access,
        };
        let word = match request.access {
            Access::Read => "read",
            Access::Write => "read and write",
        };
        let exact = json!({"path": wanted.real, "access": request.access}).to_string();
        let question = Question {
            kind: ApprovalKind::Path,
            summary: format!("let work in {root} {word} {}", wanted.real),
            why: format!("it says what for: {}", request.reason),
            binding: Binding {
                actor: who.authority.actor(),
                task: who.authority.task().cloned(),
                call: subject.op.clone(),
                root: root.clone(),
                digest: Digest::of(exact.as_bytes()),
            },
            preview: match request.access {
                Access::Read => ApprovalPreview {
                    reads: vec![wanted.real.clone()],
                    ..ApprovalPreview::default()
                },
                Access::Write => ApprovalPreview {
                    writes: vec![wanted.real.clone()],
                    ..ApprovalPreview::default()
                },
            },
            entitled: Entitled::Owner,
            remember: Some(what.clone()),
            reviewer: None,
            subject: subject.clone(),
        };
        self.ask(question, &who.control)?;
        let held = self.path_answers(&root);
        let found = held.into_iter().find(|one| one.what == what);
        let answer = if let Some(found) = found {
            found
        } else {
            let answer = self.new_path_answer(&root, what, Timestamp::MAX);
            self.hold_path(answer.clone(), &subject)?;
            answer
        };
        Ok(shown(&answer, read_only_below))
    }

    /// Lists the paths that are authorised for a workspace.
    ///
    /// # Errors
    ///
    /// Those of finding the workspace.
    pub fn authorised_paths(&self, policy: &PolicyRequest) -> Result<AuthorisedPathPage, Problem> {
        let root = self.workspace(policy)?;
        let mut answers = self.path_answers(&root);
        answers.sort_by_key(|one| std::cmp::Reverse(one.created));
        Ok(AuthorisedPathPage {
            paths: answers.iter().map(|one| shown(one, Vec::new())).collect(),
        })
    }

    /// Takes an authorisation back: whatever begins next is without it.
    ///
    /// # Errors
    ///
    /// `path_unknown` for what is none of this workspace; those of writing.
    pub fn revoke_path(
        &self,
        policy: &PolicyRequest,
        request: &RevokePath,
    ) -> Result<AuthorisedPath, Problem> {
        let root = self.workspace(policy)?;
        let id = &request.rule_id;
        let found = self.path_answers(&root);
        let found = found.into_iter().find(|one| one.rule_id == *id);
        let found = found.ok_or_else(|| {
            Problem::new(
                ErrorCode::PathUnknown,
                format!("no path is authorised here as {id}"),
            )
            .with_field("rule_id")
            .with_hint("cofferdam paths lists them")
        })?;
        self.forget(&ForgetAnswer {
            rule_id: id.clone(),
        })?;
        Ok(shown(&found, Vec::new()))
    }

    /// Gives the paths that are authorised for a workspace and in effect.
    pub(crate) fn paths_in_effect(&self, root: &BytePath) -> Vec<(BytePath, Access)> {
        let mut paths: Vec<(BytePath, Access)> = self
            .path_answers(root)
            .into_iter()
            .filter_map(|one| match one.what {
                RememberedWhat::Path { path, access } => Some((path, access)),
                _ => None,
            })
            .filter(|(path, _)| is_as_authorised(path))
            .collect();
        paths.sort();
        paths
    }

    /// Gives what was said about paths and still holds; of two that contradict each other the no.
    fn path_answers(&self, root: &BytePath) -> Vec<RememberedAnswer> {
        let now = self.plane.ambient().now();
        let mut all = remembered_answers(self.data_dir(), root);
        all.extend(self.task_answers.of(&self.plane.work(), root));
        all.retain(|one| matches!(one.what, RememberedWhat::Path { .. }) && now < one.expires);
        let refused: Vec<RememberedWhat> = all
            .iter()
            .filter(|one| one.answer == ApprovalAnswer::Reject)
            .map(|one| one.what.clone())
            .collect();
        all.retain(|one| !refused.contains(&one.what));
        all
    }

    fn checked_path(
        &self,
        policy: &PolicyRequest,
        resolved: &Resolved,
        path: &BytePath,
        access: Access,
    ) -> Result<(WantedPath, Vec<BytePath>), Problem> {
        let facts = &resolved.facts;
        let wanted = wanted_path(path, access, &facts.owner.home)?;
        let stands = |path: &BytePath| std::fs::symlink_metadata(path.as_path()).is_ok();
        let below = check_authorisation(&wanted, &resolved.policy, facts, &stands)?;
        // What the managed policy does not allow is not kept.
        let mut wider = policy.clone();
        wider.request = None;
        let field = match access {
            Access::Read => &mut wider.owner.read,
            Access::Write => &mut wider.owner.write,
        };
        field.get_or_insert_default().push(wanted.real.clone());
        self.look(&wider, Network::None, None)?;
        debug_assert!(wanted.kind != PathKind::Absent, "it was looked at");
        Ok((wanted, below))
    }

    fn new_path_answer(
        &self,
        root: &BytePath,
        what: RememberedWhat,
        expires: Timestamp,
    ) -> RememberedAnswer {
        let ambient = self.plane.ambient();
        let (time, random) = ambient.id_parts();
        RememberedAnswer {
            rule_id: RuleId::new(time, random),
            repository: root.clone(),
            answer: ApprovalAnswer::Approve,
            what,
            approval_id: None,
            created: ambient.now(),
            expires,
        }
    }

    /// Tells of an authorisation and puts it in force.
    fn hold_path(&self, answer: RememberedAnswer, subject: &Subject) -> Result<(), Problem> {
        let data = to_value(&answer)?;
        let line = Line::new(event_type::APPROVAL_REMEMBERED, subject, data);
        self.scribe.say(line)?;
        if answer.expires == Timestamp::MAX {
            self.task_answers.hold(self.plane.work(), answer);
            return Ok(());
        }
        remember_answer(self.data_dir(), answer)
    }

    fn work_subject(&self) -> Subject {
        Subject {
            task: Some(self.plane.work()),
            ..Subject::default()
        }
    }
}

impl Authorised for Runtime {
    fn paths(&self, workspace: &BytePath) -> Vec<(BytePath, Access)> {
        self.paths_in_effect(workspace)
    }
}

fn shown(answer: &RememberedAnswer, read_only_below: Vec<BytePath>) -> AuthorisedPath {
    let (path, access) = match &answer.what {
        RememberedWhat::Path { path, access } => (path.clone(), *access),
        _ => (BytePath::default(), Access::Read),
    };
    AuthorisedPath {
        rule_id: answer.rule_id.clone(),
        line: answer.what.line(answer.answer),
        in_effect: is_as_authorised(&path),
        path,
        access,
        repository: answer.repository.clone(),
        expires: Some(answer.expires).filter(|expires| *expires != Timestamp::MAX),
        read_only_below,
    }
}
