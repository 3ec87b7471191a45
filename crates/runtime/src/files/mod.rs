//! Files of the workspace (E3–E6, E8), through the file door of a place that stands.

mod gate;
mod place;

use std::sync::Arc;

use cofferdam_core::authority::{Actor, Authority};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::decide::{self, Ground, Operation, Verdict};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::operation::{
    DeleteFolder, EditFile, FileBounds, FileRead, FileWritten, FilesChanged, FilesRead,
    FilesSearched, FolderListing, ListFolder, OnePath, PathValidate, PathVerdict, ReadFile,
    ReadFiles, RenameFile, RestoreFile, SearchFiles, WriteFile,
};
use cofferdam_core::outcome::Status;
use cofferdam_exec::{Control, FileDoor, FileTerms, FileVisits};
use serde_json::json;

use crate::approval::Permit;
use crate::host::PolicyRequest;
use crate::known::Known;
use crate::participants::Participants;
use crate::run::{FrontDoor, Opening};
use crate::runtime::Runtime;
use crate::scribe::Line;
pub(crate) use place::FilePlan;

/// What the file operations of one runtime remember.
#[derive(Debug, Default)]
pub(crate) struct Files {
    visits: Arc<FileVisits>,
}

/// Whose word a file operation is, in which workspace and by which door.
#[derive(Debug, Clone)]
pub struct FileRequest {
    /// Workspace and walls.
    pub policy: PolicyRequest,
    /// Who acts.
    pub authority: Authority,
    /// By which door it came.
    pub front_door: FrontDoor,
    /// By what its caller is cancelled, while somebody is asked.
    pub control: Control,
}

/// What an operation does to files, for the decision about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Look,
    Read,
    Change,
}

impl Runtime {
    /// Reads a file (E5).
    ///
    /// # Errors
    ///
    /// `denied`, and those of the file door.
    pub fn read_file(&self, who: &FileRequest, request: &ReadFile) -> Result<FileRead, Problem> {
        let paths = [&request.path];
        self.through(who, "read_file", Does::Read, &paths, |door| {
            door.read(request)
        })
    }

    /// Reads many files (E5).
    ///
    /// # Errors
    ///
    /// `invalid_request`; what is wrong with one of them is told with it.
    pub fn read_files(&self, who: &FileRequest, request: &ReadFiles) -> Result<FilesRead, Problem> {
        let top = BytePath::default();
        self.through(who, "read_files", Does::Read, &[&top], |door| {
            door.read_many(request)
        })
    }

    /// Writes a file, or adds to it (E3).
    ///
    /// # Errors
    ///
    /// As [`Runtime::edit_file`].
    pub fn write_file(
        &self,
        who: &FileRequest,
        request: WriteFile,
    ) -> Result<FileWritten, Problem> {
        let path = request.path.clone();
        self.through(who, "write_file", Does::Change, &[&path], |door| {
            door.write(request)
        })
    }

    /// Edits a file (E4).
    ///
    /// # Errors
    ///
    /// `denied`; `file_unread` for a file that was not read through this runtime, `file_conflict` for
    /// one that has changed since, unless the owner acts; those of the file door.
    pub fn edit_file(&self, who: &FileRequest, request: &EditFile) -> Result<FileWritten, Problem> {
        let paths = [&request.path];
        self.through(who, "edit_file", Does::Change, &paths, |door| {
            door.edit(request)
        })
    }

    /// Makes an empty file (E6).
    ///
    /// # Errors
    ///
    /// `denied`, `file_exists`, and those of the file door.
    pub fn create_file(
        &self,
        who: &FileRequest,
        request: &OnePath,
    ) -> Result<FilesChanged, Problem> {
        let paths = [&request.path];
        self.through(who, "create_file", Does::Change, &paths, |door| {
            door.create_file(request)
        })
    }

    /// Removes a file (E6).
    ///
    /// # Errors
    ///
    /// `denied`, `file_missing`, and those of the file door.
    pub fn delete_file(
        &self,
        who: &FileRequest,
        request: &OnePath,
    ) -> Result<FilesChanged, Problem> {
        let paths = [&request.path];
        self.through(who, "delete_file", Does::Change, &paths, |door| {
            door.delete_file(request)
        })
    }

    /// Renames a file or folder (E6).
    ///
    /// # Errors
    ///
    /// `denied`, `file_exists`, `file_missing`, and those of the file door.
    pub fn rename_file(
        &self,
        who: &FileRequest,
        request: &RenameFile,
    ) -> Result<FilesChanged, Problem> {
        let paths = [&request.path, &request.new_path];
        self.through(who, "rename_file", Does::Change, &paths, |door| {
            door.rename(request)
        })
    }

    /// Makes a folder (E6).
    ///
    /// # Errors
    ///
    /// `denied`, `file_exists`, and those of the file door.
    pub fn create_folder(
        &self,
        who: &FileRequest,
        request: &OnePath,
    ) -> Result<FilesChanged, Problem> {
        let paths = [&request.path];
        self.through(who, "create_folder", Does::Change, &paths, |door| {
            door.create_folder(request)
        })
    }

    /// Removes a folder (E6).
    ///
    /// # Errors
    ///
    /// `denied`, `folder_not_empty`, and those of the file door.
    pub fn delete_folder(
        &self,
        who: &FileRequest,
        request: &DeleteFolder,
    ) -> Result<FilesChanged, Problem> {
        let paths = [&request.path];
        self.through(who, "delete_folder", Does::Change, &paths, |door| {
            door.delete_folder(request)
        })
    }

    /// Takes a change of files back.
    ///
    /// # Errors
    ///
    /// `denied`, `change_unknown`, `file_conflict`, `content_expired`.
    pub fn restore_file(
        &self,
        who: &FileRequest,
        request: &RestoreFile,
    ) -> Result<FilesChanged, Problem> {
        let top = BytePath::default();
        self.through(who, "restore_file", Does::Change, &[&top], |door| {
            door.restore(request)
        })
    }

    /// Lists a folder.
    ///
    /// # Errors
    ///
    /// `denied`, `not_a_folder`, and those of the file door.
    pub fn list_folder(
        &self,
        who: &FileRequest,
        request: &ListFolder,
    ) -> Result<FolderListing, Problem> {
        let paths = [&request.path];
        self.through(who, "list_folder", Does::Read, &paths, |door| {
            door.list_folder(request)
        })
    }

    /// Searches the files of a folder (E5).
    ///
    /// # Errors
    ///
    /// `denied`, and those of the file door.
    pub fn search_files(
        &self,
        who: &FileRequest,
        request: &SearchFiles,
    ) -> Result<FilesSearched, Problem> {
        let paths = [&request.path];
        self.through(who, "search_files", Does::Read, &paths, |door| {
            door.search(request)
        })
    }

    /// Tells whether a path may be used (E8); nothing happens to it.
    ///
    /// # Errors
    ///
    /// That nobody could be asked: a path that may not be used is a verdict.
    pub fn path_validate(
        &self,
        who: &FileRequest,
        request: &PathValidate,
    ) -> Result<PathVerdict, Problem> {
        self.through(who, "path_validate", Does::Look, &[&request.path], |door| {
            let mut verdict = door.validate(request)?;
            if request.access == cofferdam_core::operation::PathAccess::Write && verdict.allowed {
                let known = self.files_known(who)?;
                let decided = Self::decide_file(&known, who, Does::Change, &[&request.path]);
                match decided {
                    Ok(false) => {}
                    Ok(true) => {
                        "somebody is asked before it is written".clone_into(&mut verdict.rule);
                    }
                    Err(problem) => {
                        verdict.allowed = false;
                        verdict.rule = problem.message;
                    }
                }
            }
            Ok(verdict)
        })
    }

    /// Decides, opens the door and goes through it. What is refused is told to the journal.
    fn through<T>(
        &self,
        who: &FileRequest,
        operation: &'static str,
        does: Does,
        paths: &[&BytePath],
        act: impl FnOnce(&FileDoor<'_>) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let participants = Participants::new(self.plane.ambient());
        let words = format!("{operation} {}", paths[0]);
        let opening = Opening {
            who: &participants,
            words: &words,
            door: who.front_door,
        };
        let subject = participants.subject();
        if does == Does::Change {
            self.scribe.record_later(opening.lines());
        }
        let outcome = self.go_through(who, does, paths, &subject, act);
        let mut lines = Vec::new();
        if let Err(problem) = &outcome
            && is_denial(problem.code)
        {
            if does != Does::Change {
                lines.extend(opening.lines());
            }
            let data = json!({
                "operation": operation,
                "path": paths[0],
                "rule": problem.field,
                "why": problem.message,
                "source": "file_door",
            });
            let line = Line::new(event_type::POLICY_DENIED, &subject, data);
            lines.push(line.severity(Severity::Warning));
        }
        if does == Does::Change || !lines.is_empty() {
            let status = match &outcome {
                Ok(_) => Status::Completed,
                Err(problem) if problem.code == ErrorCode::Cancelled => Status::Cancelled,
                Err(problem) if is_denial(problem.code) => Status::Denied,
                Err(_) => Status::Error,
            };
            lines.extend(opening.ending(status));
            self.scribe.record_later(lines);
        }
        outcome
    }

    fn go_through<T>(
        &self,
        who: &FileRequest,
        does: Does,
        paths: &[&BytePath],
        subject: &Subject,
        act: impl FnOnce(&FileDoor<'_>) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let known = self.files_known(who)?;
        let asks = Self::decide_file(&known, who, does, paths)?;
        // What is asked about is done where it can be, by nobody but this door.
        let open = if asks {
            let policy = PolicyRequest {
                permit: Some(Permit::of_file_door()),
                ..who.policy.clone()
            };
            self.known_plan(&policy).map_err(|(problem, _)| problem)?
        } else {
            Arc::clone(&known)
        };
        // The owner at the keyboard answers for himself.
        let is_owner = who.authority.actor() == Actor::Owner;
        let gate = (asks && !is_owner).then_some(gate::Gate {
            runtime: self,
            known: &known,
            who,
            subject,
        });
        let plan = open
            .files
            .get_or_init(|| FilePlan::of(&open.spec, &open.resolved));
        let quota = open.resolved.policy.limits.files;
        let terms = FileTerms {
            bounds: FileBounds {
                quota_bytes: quota.map(|quota| quota.value.0),
                ..FileBounds::default()
            },
            denied: plan.denied.clone(),
            opened: plan.opened.clone(),
            visits: (!is_owner).then(|| Arc::clone(&self.files.visits)),
        };
        let enclosure = self.pool.standing(&plan.spec, &plan.hash, open.requested)?;
        let door = enclosure.files(subject, terms)?;
        match &gate {
            Some(gate) => act(&door.gated(gate)),
            None => act(&door),
        }
    }

    fn files_known(&self, who: &FileRequest) -> Result<Arc<Known>, Problem> {
        self.known_plan(&who.policy).map_err(|(problem, _)| problem)
    }

    /// Decides about each path; tells whether somebody has to be asked.
    fn decide_file(
        known: &Known,
        who: &FileRequest,
        does: Does,
        paths: &[&BytePath],
    ) -> Result<bool, Problem> {
        let mut asks = false;
        for path in paths {
            let path = known.spec.workspace.join(path.as_bytes());
            let operation = match does {
                Does::Look => Operation::Describe,
                Does::Read => Operation::ReadFile { path },
                Does::Change => Operation::ChangeFile { path },
            };
            let decision = decide::decide(
                &known.resolved.policy,
                &reaching(who, known),
                Ground::Checkout,
                &operation,
            );
            if decision.verdict == Verdict::Ask {
                asks = true;
            } else if let Some(problem) = decision.problem() {
                // One code for what lies outside, whoever finds it.
                let is_outside = decision.rule == "root";
                return Err(if is_outside {
                    Problem::new(ErrorCode::PathOutside, problem.message).with_field("path")
                } else {
                    problem
                });
            }
        }
        Ok(asks)
    }
}

/// Gives the authority of a request with what the policy opens besides the workspace.
fn reaching(who: &FileRequest, known: &Known) -> Authority {
    let opened = place::opened(&known.spec, &known.resolved);
    let places = opened.map(|(fact, access)| (fact.path.clone(), access));
    who.authority.clone().reaching(places)
}

/// Tells whether a failure is a refusal and no mishap.
const fn is_denial(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Denied
            | ErrorCode::PathOutside
            | ErrorCode::ReadonlyDenied
            | ErrorCode::ApprovalUnavailable
            | ErrorCode::ApprovalRejected
            | ErrorCode::ApprovalExpired
            | ErrorCode::GrantRefused
    )
}
