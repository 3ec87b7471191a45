//! Writing and editing (E3, E4), and making files and folders: there before or after, never half.

use std::borrow::Cow;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::file::{EditFailureReason, edit};
use cofferdam_core::limits;
use cofferdam_core::operation::{
    EditFile, FileWritten, FilesChanged, KeptFile, OnePath, PathChange, PathChangeKind, WriteFile,
    WriteMode,
};
use cofferdam_core::spec::Digest;
use cofferdam_keeper::{FileReply, FileRequest};
use cofferdam_sandbox::{Create, FileKind, Metadata, OpenHow};
use rustix::fs::Mode;
use serde_json::json;

use super::change::{About, ChangeKind};
use super::content::{Whole, digest_beside, keep, length_of, take, too_large, version, write_all};
use super::path::{Located, Real};
use super::{FileDoor, worker};

/// Permission bits of a file that is made, before the mask of the worker.
const FILE_MODE: u32 = 0o666;
/// Permission bits of a folder that is made, before the mask of the worker.
const FOLDER_MODE: u32 = 0o777;

/// How a file is put in its place.
#[derive(Clone, Copy)]
struct HowPut {
    /// What was there stays, and more follows it.
    keeps_old: bool,
    /// Nothing is answered before it has reached the disk.
    is_durable: bool,
}

/// A file as it is before a change.
struct Before {
    at: Located,
    metadata: Option<Metadata>,
    bytes: Vec<u8>,
    /// `None` where nothing stands.
    digest: Option<Digest>,
    /// What it held when it was last read through this door.
    seen: Option<Digest>,
}

impl Before {
    /// Refuses a change of a file that is not what its author takes it for.
    fn check(
        &self,
        path: &BytePath,
        expected: Option<&Digest>,
        must_be_read: bool,
    ) -> Result<(), Problem> {
        let (wanted, field) = match (expected, &self.digest) {
            (Some(expected), _) => (expected, "expected_digest"),
            (None, Some(_)) if must_be_read => {
                let Some(seen) = &self.seen else {
                    let message = format!("{path} has not been read before it is changed");
                    return Err(Problem::new(ErrorCode::FileUnread, message)
                        .with_field("path")
                        .with_hint("read it first, or say with `expected_digest` what it holds"));
                };
                (seen, "path")
            }
            (None, _) => return Ok(()),
        };
        let is_older = || self.metadata.is_some() && *wanted == Digest::sha256(&self.bytes);
        if self.digest.as_ref() == Some(wanted) || expected.is_some() && is_older() {
            return Ok(());
        }
        Err(Problem::new(
            ErrorCode::FileConflict,
            format!("{path} is not what was expected: somebody has changed it"),
        )
        .with_field(field)
        .with_hint("read the file again, and decide anew")
        .with_details(json!({"expected": wanted, "found": self.digest})))
    }
}

impl FileDoor<'_> {
    /// Writes a file, or adds to it. Folders above it are made.
    ///
    /// A file with several names gets bytes of its own: the others keep what they had. Owner and
    /// permission bits stay, but for set-id bits.
    ///
    /// # Errors
    ///
    /// `file_conflict` where the file is not what `expected_digest` says; `denied`, `path_outside`,
    /// `not_a_file`, `file_too_large`, `storage_exhausted`. Nothing is changed then.
    pub fn write(&self, request: WriteFile) -> Result<FileWritten, Problem> {
        let content = take(request.content, request.encoding)?;
        let path = request.path;
        let must_be_read = request.mode == WriteMode::Write;
        let before = self.before(&path, request.expected_digest.as_ref(), must_be_read)?;
        let all: [&[u8]; 2] = [&before.bytes, &content];
        let how = HowPut {
            keeps_old: !must_be_read,
            is_durable: request.durable,
        };
        let pieces = match request.mode {
            WriteMode::Write => &all[1..],
            WriteMode::Append => &all,
        };
        self.put(ChangeKind::WriteFile, &path, &before, pieces, how)
    }

    /// Edits a file: all groups, in order, or none.
    ///
    /// # Errors
    ///
    /// `edit_failed` with `details.failed_replacement_index`; `file_missing`, and those of writing.
    pub fn edit(&self, request: &EditFile) -> Result<FileWritten, Problem> {
        let path = &request.path;
        let before = self.before(path, request.expected_digest.as_ref(), true)?;
        if before.metadata.is_none() {
            return Err(worker::refused(
                path,
                rustix::io::Errno::NOENT.raw_os_error(),
            ));
        }
        let edited = edit(
            &before.bytes,
            &request.replacements,
            request.ambiguous,
            self.terms.bounds.written_bytes,
        )
        .map_err(|failure| {
            let hint = match &failure.reason {
                EditFailureReason::NotFound { close: Some(_) } => {
                    "`details.reason` has the text as it stands there: take it as it is"
                }
                EditFailureReason::NotFound { close: None } => "read the file again",
                EditFailureReason::Ambiguous { .. } => {
                    "give more of the text around it, or `replace_all`"
                }
                _ => "correct the group; nothing was written",
            };
            Problem::new(ErrorCode::EditFailed, format!("{path}: {failure}"))
                .with_field("replacements")
                .with_hint(hint)
                .with_details(json!({
                    "failed_replacement_index": failure.index,
                    "reason": failure.reason,
                    "write_performed": false,
                }))
        })?;
        let how = HowPut {
            keeps_old: false,
            is_durable: request.durable,
        };
        let written = self.put(ChangeKind::EditFile, path, &before, &edited.pieces(), how)?;
        let count = |of: fn(&cofferdam_core::file::ReplacementDetail) -> u64| {
            Some(edited.details.iter().map(of).sum())
        };
        Ok(FileWritten {
            replacements: count(|detail| detail.replacements),
            found_matches: count(|detail| detail.found_matches),
            details: edited.details.clone(),
            ..written
        })
    }

    /// Makes an empty file; folders above it are made.
    ///
    /// # Errors
    ///
    /// `file_exists`, and those of writing.
    pub fn create_file(&self, request: &OnePath) -> Result<FilesChanged, Problem> {
        let path = &request.path;
        let named = self.locate(path)?;
        let Real { at, metadata } = self.real(&named, false)?;
        if metadata.is_some() {
            return Err(worker::refused(
                path,
                rustix::io::Errno::EXIST.raw_os_error(),
            ));
        }
        self.may_change(&at)?;
        let paths = [at.absolute()];
        let about = About {
            paths: &paths,
            bytes: Some((&[], &[])),
            growth: 0,
        };
        let ((), changed) = self.tell(ChangeKind::CreateFile, path, about, |changes| {
            self.make_parents(&at, changes)?;
            let how = OpenHow::Write {
                create: Create::New,
                truncate: false,
                append: false,
                mode: FILE_MODE,
            };
            let request = FileRequest::Open {
                path: at.relative().to_vec(),
                how,
            };
            let reply = self.ask(&at, &request)?;
            let mode = match reply.0 {
                FileReply::Opened(metadata) => metadata.mode,
                other => return Err(worker::odd(&other)),
            };
            let after = KeptFile {
                digest: Digest::of(&[]),
                bytes: 0,
                mode,
            };
            if let Some(visits) = &self.terms.visits {
                visits.see(self.on_host(&at), after.digest.clone());
            }
            changes.push(change(&at, PathChangeKind::FileCreated, None, Some(after)));
            Ok(())
        })?;
        Ok(changed)
    }

    /// Makes a folder, with those above it.
    ///
    /// # Errors
    ///
    /// `file_exists`, and those of writing.
    pub fn create_folder(&self, request: &OnePath) -> Result<FilesChanged, Problem> {
        let path = &request.path;
        let named = self.locate(path)?;
        let Real { at, metadata } = self.real(&named, false)?;
        if metadata.is_some() {
            return Err(worker::refused(
                path,
                rustix::io::Errno::EXIST.raw_os_error(),
            ));
        }
        self.may_change(&at)?;
        let paths = [at.absolute()];
        let about = About {
            paths: &paths,
            ..About::default()
        };
        let ((), changed) = self.tell(ChangeKind::CreateFolder, path, about, |changes| {
            self.make_parents(&at, changes)?;
            self.make_folder(&at, changes)
        })?;
        Ok(changed)
    }

    /// Finds a file that is to be changed, and reads it.
    fn before(
        &self,
        path: &BytePath,
        expected: Option<&Digest>,
        must_be_read: bool,
    ) -> Result<Before, Problem> {
        let named = self.locate(path)?;
        let Real { at, metadata } = self.real(&named, true)?;
        self.may_change(&at)?;
        let whole = match metadata.map(|metadata| metadata.kind) {
            None => Whole {
                bytes: Vec::new(),
                stamp: None,
            },
            Some(FileKind::File) => self.whole_of(&at, self.terms.bounds.written_bytes)?,
            Some(_) => {
                return Err(worker::refused(
                    path,
                    rustix::io::Errno::ISDIR.raw_os_error(),
                ));
            }
        };
        let before = Before {
            digest: metadata.map(|_| self.digest_to_act(&whole)),
            seen: (self.terms.visits.as_ref()).and_then(|visits| visits.of(&self.on_host(&at))),
            at,
            metadata,
            bytes: whole.bytes,
        };
        before.check(path, expected, must_be_read && self.terms.visits.is_some())?;
        Ok(before)
    }

    /// Puts pieces that follow each other in the place of a file.
    fn put(
        &self,
        kind: ChangeKind,
        path: &BytePath,
        before: &Before,
        pieces: &[&[u8]],
        how: HowPut,
    ) -> Result<FileWritten, Problem> {
        let most = self.terms.bounds.written_bytes;
        let length = length_of(pieces);
        if length > most {
            return Err(too_large(path, length, most));
        }
        // In one piece only for whom it is shown to.
        let is_shown = self.gate.is_some() || length <= limits::FILE_TEXT_BYTES;
        let shown = match pieces {
            [one] => Cow::Borrowed(*one),
            _ if is_shown => Cow::Owned(pieces.concat()),
            _ => Cow::default(),
        };
        let journal = self.plane.journal().as_ref();
        let old = (before.metadata.zip(before.digest.clone()))
            .map(|(metadata, digest)| keep(journal, digest, &before.bytes, metadata.mode))
            .transpose()?;
        let paths = [before.at.absolute()];
        let about = About {
            paths: &paths,
            bytes: Some((&before.bytes, &shown)),
            growth: length.saturating_sub(before.bytes.len() as u64),
        };
        let (new, changed) = self.tell(kind, path, about, |changes| {
            self.still(&before.at, before.digest.as_ref())?;
            self.make_parents(&before.at, changes)?;
            let (digest, mode) = digest_beside(pieces, || {
                let old = before.metadata.as_ref();
                self.replace(&before.at, old, None, pieces, how.is_durable)
            });
            let new = KeptFile {
                digest,
                bytes: length,
                mode: mode?,
            };
            // Who had not seen all of it has not seen it now: what was added follows the unknown.
            let had_seen = before.digest.is_none() || before.seen == before.digest;
            if let Some(visits) = self
                .terms
                .visits
                .as_ref()
                .filter(|_| had_seen || !how.keeps_old)
            {
                visits.see(self.on_host(&before.at), new.digest.clone());
            }
            let kind = if old.is_some() {
                PathChangeKind::FileModified
            } else {
                PathChangeKind::FileCreated
            };
            changes.push(change(&before.at, kind, old.clone(), Some(new.clone())));
            if how.is_durable {
                self.sync_above(&before.at)?;
            }
            Ok(new)
        })?;
        let masker = self.plane.masker();
        Ok(FileWritten {
            path: path.clone(),
            change_id: changed.change_id,
            created: old.is_none(),
            bytes: new.bytes,
            original_file: old.map(|old| version(&old, &before.bytes, masker)),
            new_file: version(&new, &shown, masker),
            replacements: None,
            found_matches: None,
            details: Vec::new(),
            quota: changed.quota,
        })
    }

    /// Writes beside the file and gives that its name. Gives the permission bits that it has then:
    /// those of `wanted`, else of the old file, else what the worker's mask leaves.
    pub(super) fn replace(
        &self,
        at: &Located,
        old: Option<&Metadata>,
        wanted: Option<u32>,
        pieces: &[&[u8]],
        is_durable: bool,
    ) -> Result<u32, Problem> {
        let folder = at
            .parent()
            .ok_or_else(|| worker::refused(at.shown(), rustix::io::Errno::ISDIR.raw_os_error()))?;
        let mode = wanted.or(old.map(|old| old.mode)).map(|mode| mode & 0o777);
        let request = FileRequest::Temporary {
            directory: folder.relative().to_vec(),
            mode: mode.unwrap_or(FILE_MODE),
        };
        let (FileReply::Temporary { token }, Some(file)) = self.ask(at, &request)? else {
            return Err(Problem::new(
                ErrorCode::Internal,
                "a file worker gave no file to write to",
            ));
        };
        let filled = fill(at, file, old, mode, pieces, is_durable);
        let end = match &filled {
            Ok(_) => FileRequest::Commit {
                token,
                path: at.relative().to_vec(),
                replace: old.is_some(),
            },
            Err(_) => FileRequest::Discard { token },
        };
        let ended = self.ask(at, &end);
        let mode = filled?;
        ended?;
        Ok(mode)
    }

    /// Brings the names in the folder above a place to the disk.
    fn sync_above(&self, at: &Located) -> Result<(), Problem> {
        let Some(folder) = at.parent() else {
            return Ok(());
        };
        let request = FileRequest::Sync {
            directory: folder.relative().to_vec(),
        };
        self.ask(at, &request).map(drop)
    }

    /// Makes the folders above a place that are not there.
    pub(super) fn make_parents(
        &self,
        at: &Located,
        changes: &mut Vec<PathChange>,
    ) -> Result<(), Problem> {
        let mut missing = Vec::new();
        let mut above = at.parent();
        while let Some(folder) = above {
            if self.look(&folder)?.is_some() {
                break;
            }
            above = folder.parent();
            missing.push(folder);
        }
        for folder in missing.iter().rev() {
            self.make_folder(folder, changes)?;
        }
        Ok(())
    }

    pub(super) fn make_folder(
        &self,
        at: &Located,
        changes: &mut Vec<PathChange>,
    ) -> Result<(), Problem> {
        let request = FileRequest::MakeDirectory {
            path: at.relative().to_vec(),
            mode: FOLDER_MODE,
            parents: false,
        };
        self.ask(at, &request)?;
        changes.push(change(at, PathChangeKind::FolderCreated, None, None));
        Ok(())
    }
}

/// Fills a file that has no name yet, and gives it owner and bits of the one whose place it takes.
fn fill(
    at: &Located,
    file: std::os::fd::OwnedFd,
    old: Option<&Metadata>,
    mode: Option<u32>,
    pieces: &[&[u8]],
    is_durable: bool,
) -> Result<u32, Problem> {
    let failed = |errno: rustix::io::Errno| worker::refused(at.shown(), errno.raw_os_error());
    if let Some(mode) = mode {
        // The worker's mask does not count for a file that is there already.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(failed)?;
    }
    let made = rustix::fs::fstat(&file).map_err(failed)?;
    if let Some(old) = old.filter(|old| (old.uid, old.gid) != (made.st_uid, made.st_gid)) {
        let owner = rustix::fs::Uid::from_raw(old.uid);
        let group = rustix::fs::Gid::from_raw(old.gid);
        rustix::fs::fchown(&file, Some(owner), Some(group)).map_err(|_| {
            let message = format!("{} belongs to somebody else", at.shown());
            Problem::new(ErrorCode::Denied, message)
                .with_field("path")
                .with_hint("a new file would belong to another owner; write it with a command")
        })?;
    }
    write_all(file, pieces, is_durable, at.shown())?;
    Ok(made.st_mode & 0o777)
}

pub(super) fn change(
    at: &Located,
    kind: PathChangeKind,
    before: Option<KeptFile>,
    after: Option<KeptFile>,
) -> PathChange {
    PathChange {
        path: at.absolute(),
        kind,
        new_path: None,
        before,
        after,
    }
}
