//! The mode in which an owner lets a workspace be worked on: kept in the data directory, so that any
//! process of the owner's sets it, and looked at whenever something begins. What runs keeps the mode
//! in which it began, so a change waits for whatever is next; one that was taken back before that has
//! changed nothing, and nothing is told of it.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use cofferdam_core::approval::{ApprovalKind, ApprovalPreview, Binding, Entitled};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Subject, event_type};
use cofferdam_core::operation::{Mode, ModeView, ReadFile, SetMode, SubmitPlan};
use cofferdam_core::policy::{Permission, ProviderChoice};
use cofferdam_core::spec::{Digest, Network};
use cofferdam_exec::{drop_own_file, keep_own_file};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::approval::Question;
use crate::files::FileRequest;
use crate::host::PolicyRequest;
use crate::participants::Participants;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// Most characters of a plan that are shown.
const PLAN_CHARACTERS: usize = 20_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    workspace: BytePath,
    mode: Mode,
}

/// The modes that were in effect when something last began, by workspace.
#[derive(Debug, Default)]
pub(crate) struct SeenModes(Mutex<Vec<(BytePath, Mode)>>);

impl Runtime {
    /// Tells the mode of a workspace.
    ///
    /// # Errors
    ///
    /// Those of finding the workspace and laying the policy.
    pub fn mode(&self, policy: &PolicyRequest) -> Result<ModeView, Problem> {
        let workspace = self.workspace(policy)?;
        let resolved = self.look(policy, Network::None, None)?;
        Ok(ModeView {
            mode: self.mode_of(&workspace)?,
            permission: resolved.policy.permission.value,
        })
    }

    /// Sets the mode of a workspace, in the owner's name. It takes effect with whatever begins next.
    ///
    /// # Errors
    ///
    /// `invalid_request` for a folder that is none of the workspace's; `policy_widening` for what the
    /// managed policy does not allow, and then nothing is set; `io`.
    pub fn set_mode(&self, policy: &PolicyRequest, request: &SetMode) -> Result<ModeView, Problem> {
        let workspace = self.workspace(policy)?;
        let mode = match &request.to {
            Mode::Plan { folder } => Mode::Plan {
                folder: plan_folder(&workspace, folder)?,
            },
            other => other.clone(),
        };
        // What the layers refuse is not kept.
        let wanted = in_mode(policy, &mode);
        let resolved = self.look_in(&wanted, &mode, Network::None, None)?;
        let path = self.mode_path(&workspace);
        if mode == Mode::Policy {
            drop_own_file(&path)?;
        } else {
            let record = Record {
                workspace: workspace.clone(),
                mode: mode.clone(),
            };
            keep_own_file(&path, to_value(&record)?.to_string().as_bytes())?;
        }
        Ok(ModeView {
            mode,
            permission: resolved.policy.permission.value,
        })
    }

    /// Puts a plan to the owner; a yes ends the plan mode.
    ///
    /// # Errors
    ///
    /// `invalid_request` where no plan is made, or the file is not in its folder; those of reading it;
    /// `approval_rejected`, `approval_expired`, `cancelled`.
    pub fn submit_plan(
        &self,
        who: &FileRequest,
        request: &SubmitPlan,
    ) -> Result<ModeView, Problem> {
        let workspace = self.workspace(&who.policy)?;
        let refused = |message: String| {
            Err(Problem::new(ErrorCode::InvalidRequest, message).with_field("path"))
        };
        let Mode::Plan { folder } = self.mode_of(&workspace)? else {
            return refused("no plan is made here: the owner has not set that mode".to_owned());
        };
        let path = workspace.join(request.path.as_bytes());
        if !path.is_within(&folder) {
            return refused(format!("a plan lies in {folder}"));
        }
        let read = self.read_file(
            who,
            &ReadFile {
                max_chars: Some(PLAN_CHARACTERS),
                ..ReadFile::whole(request.path.clone())
            },
        )?;
        let participants = Participants::new(self.plane.ambient());
        let subject = participants.subject();
        let question = Question {
            kind: ApprovalKind::Plan,
            summary: format!("carry out the plan in {path}"),
            why: "a plan is carried out when it is approved; until then only its folder can be written"
                .to_owned(),
            binding: Binding {
                actor: who.authority.actor(),
                task: who.authority.task().cloned(),
                call: subject.op.clone(),
                root: workspace,
                digest: read.digest,
            },
            preview: ApprovalPreview {
                plan: read.content,
                diff_cut: read.truncated,
                ..ApprovalPreview::default()
            },
            entitled: Entitled::Owner,
            remember: None,
            reviewer: None,
            subject,
        };
        self.ask(question, &who.control)?;
        self.set_mode(&who.policy, &SetMode { to: Mode::Policy })
    }

    /// Gives the mode of a workspace.
    pub(crate) fn mode_of(&self, workspace: &BytePath) -> Result<Mode, Problem> {
        let path = self.mode_path(workspace);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Mode::Policy),
            Err(error) => return Err(unreadable(&path, &error)),
        };
        let record: Record =
            serde_json::from_slice(&text).map_err(|error| unreadable(&path, &error))?;
        if record.workspace == *workspace {
            Ok(record.mode)
        } else {
            Err(unreadable(&path, &"it is another workspace's"))
        }
    }

    /// Gives the mode in which a request is, and tells when it is another one than before.
    pub(crate) fn mode_for(&self, policy: &PolicyRequest) -> Result<Mode, Problem> {
        // Most have never set one.
        if !self.data_dir().join("modes").exists() {
            return Ok(Mode::Policy);
        }
        let workspace = self.workspace(policy)?;
        let mode = self.mode_of(&workspace)?;
        let before = {
            let mut seen = self
                .seen_modes
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some((_, seen)) = seen.iter_mut().find(|(of, _)| *of == workspace) {
                Some(std::mem::replace(seen, mode.clone()))
            } else {
                seen.push((workspace.clone(), mode.clone()));
                None
            }
        };
        if let Some(before) = before.filter(|before| *before != mode) {
            let data = json!({"workspace": workspace, "from": before, "to": mode});
            let line = Line::new(event_type::POLICY_MODE, &Subject::default(), data);
            self.scribe.record_later(vec![line]);
        }
        Ok(mode)
    }

    /// Names the file that has the mode of a workspace.
    pub(crate) fn mode_path(&self, workspace: &BytePath) -> PathBuf {
        let digest = Digest::sha256(workspace.as_bytes());
        self.data_dir()
            .join("modes")
            .join(format!("{}.json", &digest.as_str()[..32]))
    }
}

/// Gives a request what its mode says, in the owner's name.
pub(crate) fn in_mode(policy: &PolicyRequest, mode: &Mode) -> PolicyRequest {
    let mut policy = policy.clone();
    // Walls the mode needs take the place of none, as with any layer below.
    let needs_walls = !matches!(
        mode,
        Mode::Policy
            | Mode::Permission {
                permission: Permission::Unrestricted
            }
    );
    if needs_walls && policy.owner.provider == Some(ProviderChoice::Direct) {
        policy.owner.provider = Some(ProviderChoice::Auto);
    }
    match mode {
        Mode::Policy => {}
        Mode::Permission { permission } => policy.owner.permission = Some(*permission),
        Mode::Plan { folder } => {
            // Walls hold everything else back; inside them nothing asks.
            policy.owner.permission = Some(Permission::AutoApproval);
            policy
                .owner
                .write
                .get_or_insert_default()
                .push(folder.clone());
        }
    }
    policy
}

fn unreadable(path: &std::path::Path, why: &dyn std::fmt::Display) -> Problem {
    // Whoever set one wanted less: without knowing what, nothing begins.
    Problem::new(
        ErrorCode::PolicyUnreadable,
        format!("the mode in {} cannot be read: {why}", path.display()),
    )
    .with_hint("remove the file, and set the mode again: cofferdam mode")
}

/// Finds the folder of plans: a real one, below the top of the workspace.
fn plan_folder(workspace: &BytePath, folder: &BytePath) -> Result<BytePath, Problem> {
    let wrong = |why: &str| {
        Problem::new(ErrorCode::InvalidRequest, format!("{folder} {why}"))
            .with_field("folder")
            .with_hint("name a folder of the workspace that is there, such as plans")
    };
    let path = workspace.join(folder.as_bytes());
    let real = path
        .as_path()
        .canonicalize()
        .map_err(|_| wrong("is not there"))?;
    if !real.is_dir() {
        return Err(wrong("is no folder"));
    }
    let real = BytePath::from(real);
    if real == *workspace || !real.is_within(workspace) {
        return Err(wrong("does not lie below the top of the workspace"));
    }
    Ok(real)
}
