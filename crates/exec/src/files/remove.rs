//! Removing and renaming (E6). What is removed can be brought back: its bytes are kept first.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::limits;
use cofferdam_core::operation::{
    DeleteFolder, FilesChanged, KeptFile, OnePath, PathChange, PathChangeKind, RenameFile,
};
use cofferdam_core::spec::Digest;
use cofferdam_keeper::{FileReply, FileRequest};
use cofferdam_sandbox::{FileKind, Metadata};
use rustix::io::Errno;

use super::change::{About, ChangeKind};
use super::content::keep;
use super::path::{Located, Real};
use super::write::change;
use super::{FileDoor, worker};

/// Permission bits that the kernel shows of every link.
const LINK_MODE: u32 = 0o777;

impl FileDoor<'_> {
    /// Removes a file or a symbolic link, never what the link leads to.
    ///
    /// # Errors
    ///
    /// `not_a_file` for a folder; `file_missing`, `denied`, `path_outside`, `file_too_large` for one
    /// that is too large to be kept.
    pub fn delete_file(&self, request: &OnePath) -> Result<FilesChanged, Problem> {
        let (at, metadata) = self.standing_there(request)?;
        if metadata.kind == FileKind::Directory {
            return Err(worker::refused(at.shown(), Errno::ISDIR.raw_os_error())
                .with_hint("delete_folder removes folders"));
        }
        // Whoever stands in the door sees what goes.
        let shown = match metadata.kind {
            FileKind::File if self.gate.is_some() => {
                self.may_read(&at)?;
                Some(self.whole_of(&at, self.terms.bounds.read_bytes)?)
            }
            _ => None,
        };
        let bytes = (shown.as_ref()).map(|shown| (shown.bytes.as_slice(), [].as_slice()));
        let paths = [at.absolute()];
        let about = About {
            paths: &paths,
            bytes,
            growth: 0,
        };
        let ((), changed) = self.tell(ChangeKind::DeleteFile, &request.path, about, |changes| {
            if let Some(shown) = &shown {
                self.still(&at, Some(&self.digest_to_act(shown)))?;
            }
            self.remove_one(&at, &metadata, changes)
        })?;
        Ok(changed)
    }

    /// Removes a folder; one that is not empty only where the request says so.
    ///
    /// # Errors
    ///
    /// `folder_not_empty`, `not_a_folder`; `file_too_large` where there is more in it than is taken
    /// along; as for a file. What was removed before a failure is told in the journal.
    pub fn delete_folder(&self, request: &DeleteFolder) -> Result<FilesChanged, Problem> {
        let path = OnePath {
            path: request.path.clone(),
        };
        let (at, metadata) = self.standing_there(&path)?;
        if metadata.kind != FileKind::Directory {
            let message = format!("{} is no folder", request.path);
            return Err(Problem::new(ErrorCode::NotAFolder, message).with_field("path"));
        }
        if at.parent().is_none() {
            let message = "the workspace itself is not removed";
            return Err(Problem::new(ErrorCode::Denied, message).with_field("path"));
        }
        let mut all = Vec::new();
        if request.recursive {
            self.walk(&at, &mut all)?;
        }
        let paths = [at.absolute()];
        let about = About {
            paths: &paths,
            ..About::default()
        };
        let ((), changed) =
            self.tell(ChangeKind::DeleteFolder, &request.path, about, |changes| {
                for (place, metadata) in all.iter().rev() {
                    self.remove_one(place, metadata, changes)?;
                }
                self.remove_one(&at, &metadata, changes)
            })?;
        Ok(changed)
    }

    /// Gives a file, link or folder another name. Nothing is replaced.
    ///
    /// # Errors
    ///
    /// `file_exists`, `file_missing`, `denied`, `path_outside`.
    pub fn rename(&self, request: &RenameFile) -> Result<FilesChanged, Problem> {
        let path = OnePath {
            path: request.path.clone(),
        };
        let (from, _) = self.standing_there(&path)?;
        let named = self.locate(&request.new_path)?;
        let Real { at: to, metadata } = self.real(&named, false)?;
        if metadata.is_some() {
            let problem = worker::refused(&request.new_path, Errno::EXIST.raw_os_error());
            return Err(problem.with_field("new_path"));
        }
        self.may_change(&to)
            .map_err(|problem| problem.with_field("new_path"))?;
        let paths = [from.absolute(), to.absolute()];
        let about = About {
            paths: &paths,
            ..About::default()
        };
        let ((), changed) = self.tell(ChangeKind::RenameFile, &request.path, about, |changes| {
            self.make_parents(&to, changes)?;
            self.rename_one(&from, &to, changes)
        })?;
        Ok(changed)
    }

    pub(super) fn rename_one(
        &self,
        from: &Located,
        to: &Located,
        changes: &mut Vec<PathChange>,
    ) -> Result<(), Problem> {
        if from.root() != to.root() {
            let message = format!("{} and {} lie under two roots", from.shown(), to.shown());
            return Err(Problem::new(ErrorCode::InvalidRequest, message)
                .with_field("new_path")
                .with_hint("write it there, and delete it here"));
        }
        let request = FileRequest::Rename {
            from: from.relative().to_vec(),
            to: to.relative().to_vec(),
            replace: false,
        };
        self.ask(to, &request)?;
        if let Some(visits) = &self.terms.visits {
            visits.rename(&self.on_host(from), &self.on_host(to));
        }
        changes.push(PathChange {
            new_path: Some(to.absolute()),
            ..change(from, PathChangeKind::Renamed, None, None)
        });
        Ok(())
    }

    /// Finds what is to be removed or renamed, the last name not followed.
    fn standing_there(&self, request: &OnePath) -> Result<(Located, Metadata), Problem> {
        let named = self.locate(&request.path)?;
        let Real { at, metadata } = self.real(&named, false)?;
        self.may_change(&at)?;
        let metadata =
            metadata.ok_or_else(|| worker::refused(&request.path, Errno::NOENT.raw_os_error()))?;
        Ok((at, metadata))
    }

    /// Lists everything below a folder, a folder before what is in it.
    fn walk(&self, at: &Located, all: &mut Vec<(Located, Metadata)>) -> Result<(), Problem> {
        let mut folders = vec![at.clone()];
        while let Some(folder) = folders.pop() {
            let request = FileRequest::List {
                path: folder.relative().to_vec(),
                limit: u32::try_from(limits::DELETE_ENTRIES).unwrap_or(u32::MAX),
            };
            let FileReply::Entries { entries, truncated } = self.ask(&folder, &request)?.0 else {
                return Err(Problem::new(
                    ErrorCode::Internal,
                    "a file worker listed no names",
                ));
            };
            if truncated || all.len() + entries.len() > limits::DELETE_ENTRIES {
                let message = format!(
                    "{} holds more than {} names",
                    at.shown(),
                    limits::DELETE_ENTRIES
                );
                return Err(Problem::new(ErrorCode::FileTooLarge, message)
                    .with_field("path")
                    .with_hint("remove it in parts, or with a command"));
            }
            for entry in entries {
                let child = folder.child(&entry.name);
                let metadata = self
                    .look(&child)?
                    .ok_or_else(|| worker::refused(child.shown(), Errno::NOENT.raw_os_error()))?;
                if metadata.kind == FileKind::Directory {
                    folders.push(child.clone());
                }
                all.push((child, metadata));
            }
        }
        Ok(())
    }

    fn remove_one(
        &self,
        at: &Located,
        metadata: &Metadata,
        changes: &mut Vec<PathChange>,
    ) -> Result<(), Problem> {
        self.may_read(at)?;
        let (kind, before) = match metadata.kind {
            FileKind::File => {
                let kept = self.keep_standing(at, metadata.mode)?;
                (PathChangeKind::FileDeleted, Some(kept))
            }
            FileKind::Directory => (PathChangeKind::FolderDeleted, None),
            FileKind::Symlink => (PathChangeKind::LinkDeleted, Some(self.keep_link(at)?)),
            // What is no file is no link either; there is nothing of it that could be kept.
            FileKind::Other => (PathChangeKind::LinkDeleted, None),
        };
        self.unlink(at, metadata.kind == FileKind::Directory)?;
        changes.push(change(at, kind, before, None));
        Ok(())
    }

    /// Keeps what stands at a place, before it goes.
    pub(super) fn keep_standing(&self, at: &Located, mode: u32) -> Result<KeptFile, Problem> {
        let whole = self.whole_of(at, self.terms.bounds.read_bytes)?;
        let digest = self.digest_to_act(&whole);
        keep(self.plane.journal().as_ref(), digest, &whole.bytes, mode)
    }

    /// Keeps where a symbolic link leads, before it goes.
    pub(super) fn keep_link(&self, at: &Located) -> Result<KeptFile, Problem> {
        let target = self.target_of(at)?;
        let digest = Digest::of(&target);
        keep(self.plane.journal().as_ref(), digest, &target, LINK_MODE)
    }

    /// Reads where a symbolic link leads, as it says itself.
    pub(super) fn target_of(&self, at: &Located) -> Result<Vec<u8>, Problem> {
        let request = FileRequest::ReadLink {
            path: at.relative().to_vec(),
        };
        let FileReply::Link { target } = self.ask(at, &request)?.0 else {
            return Err(Problem::new(
                ErrorCode::Internal,
                "a file worker read no link",
            ));
        };
        Ok(target)
    }

    /// Removes a name: of an empty folder where `is_folder` says so, else of anything else.
    pub(super) fn unlink(&self, at: &Located, is_folder: bool) -> Result<(), Problem> {
        let request = FileRequest::Remove {
            path: at.relative().to_vec(),
            directory: is_folder,
        };
        self.ask(at, &request)?;
        if let Some(visits) = &self.terms.visits {
            visits.forget(&self.on_host(at));
        }
        Ok(())
    }
}
