//! The file door: files of an enclosure, through a worker behind the same walls as commands.
//!
//! What a command cannot reach, the door cannot either, since the kernel answers both in the same
//! place. The door adds what a command has nobody for: a path is looked at link by link and then
//! used as it was found, a change is there whole or not at all, is told to the journal before and
//! after, and can be taken back. Names that the host's tools obey are refused here even where the
//! walls would only undo them afterwards.

mod change;
mod content;
mod denied;
mod digests;
mod gate;
mod ledger;
mod many;
mod media;
mod path;
mod read;
mod recent;
mod remove;
mod restore;
mod search;
mod visits;
mod worker;
mod write;

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::Subject;
use cofferdam_core::operation::{
    EntryKind, FileBounds, FolderEntry, FolderListing, ListFolder, PathValidate, PathVerdict,
};
use cofferdam_keeper::{FileReply, FileRequest};
use cofferdam_sandbox::FileKind;

use crate::enclosure::Enclosure;
use crate::plane::Plane;
use crate::standing::Standing;
pub(crate) use change::settle;
pub(crate) use content::take as take_content;
pub use denied::DeniedReads;
pub(crate) use digests::DigestMemo;
pub use gate::{FileGate, FileIntent};
pub(crate) use ledger::Ledgers;
use path::Located;
pub use visits::FileVisits;
use worker::Worker;
pub(crate) use worker::{FileFault, FileWorker, Workers};

/// How long the worker may take for one request; a hung disk must not hang the plane.
const WORKER_LIMIT: Duration = Duration::from_secs(20);
/// Names of a folder that are listed unless a request says how many.
const LISTED: u32 = 1_000;
/// Most names of a folder that are listed.
const LISTED_CAP: u32 = 10_000;

/// Files of one enclosure.
#[derive(Debug)]
pub struct FileDoor<'e> {
    plane: &'e Plane,
    standing: Arc<Standing>,
    subject: Subject,
    terms: FileTerms,
    gate: Option<&'e dyn FileGate>,
}

/// What holds for the files of one door besides the walls.
#[derive(Debug, Clone, Default)]
pub struct FileTerms {
    /// How much is taken and given.
    pub bounds: FileBounds,
    /// What may not be read, nor changed, whether walls hide it or not.
    pub denied: DeniedReads,
    /// What is open besides the workspace, as commands see it; the walls say what may be done there.
    pub opened: Vec<OpenedPath>,
    /// Which files were read through this door: with it a file has to be read before it is
    /// overwritten or edited; without it that is not asked for.
    pub visits: Option<Arc<FileVisits>>,
}

/// A path outside of the workspace that a policy opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedPath {
    /// Where it stands.
    pub path: BytePath,
    /// Whether it is a folder, with everything below it.
    pub is_folder: bool,
}

impl OpenedPath {
    /// Gives the root of a worker from which a path is reached, where it lies here.
    fn root_of(&self, path: &BytePath) -> Option<BytePath> {
        if self.is_folder {
            path.is_within(&self.path).then(|| self.path.clone())
        } else {
            self.path.parent().filter(|_| *path == self.path)
        }
    }
}

impl Enclosure {
    /// Opens the file door of the place, on behalf of somebody.
    ///
    /// # Errors
    ///
    /// That the walls could not be put up.
    pub fn files(&self, subject: &Subject, terms: FileTerms) -> Result<FileDoor<'_>, Problem> {
        Ok(FileDoor {
            plane: self.plane(),
            standing: self.standing()?,
            subject: subject.clone(),
            terms,
            gate: None,
        })
    }
}

impl<'e> FileDoor<'e> {
    /// Gives the same door with somebody in it, who is asked before each change.
    #[must_use]
    pub fn gated(mut self, gate: &'e dyn FileGate) -> Self {
        self.gate = Some(gate);
        self
    }
}

impl FileDoor<'_> {
    /// Lists a folder, sorted by name.
    ///
    /// # Errors
    ///
    /// `invalid_request`, and those of looking at a path.
    pub fn list_folder(&self, request: &ListFolder) -> Result<FolderListing, Problem> {
        let limit = request.limit.unwrap_or(LISTED);
        if !(1..=LISTED_CAP).contains(&limit) {
            let message = format!("limit is 1 to {LISTED_CAP}, not {limit}");
            return Err(Problem::new(ErrorCode::InvalidRequest, message).with_field("limit"));
        }
        let folder = self.locate(&request.path)?;
        self.may_read(&self.real(&folder, true)?.at)?;
        let reply = self.ask(
            &folder,
            &FileRequest::List {
                path: folder.relative().to_vec(),
                limit,
            },
        )?;
        let FileReply::Entries {
            mut entries,
            truncated,
        } = reply.0
        else {
            return Err(worker::odd(&reply.0));
        };
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(FolderListing {
            path: request.path.clone(),
            entries: entries
                .into_iter()
                .map(|entry| FolderEntry {
                    name: BytePath::from_bytes(entry.name),
                    kind: entry_kind(entry.kind),
                })
                .collect(),
            truncated,
        })
    }

    /// Tells whether a path may be used (E8).
    ///
    /// # Errors
    ///
    /// Only that the worker did not answer: a path that may not be used is a verdict.
    pub fn validate(&self, request: &PathValidate) -> Result<PathVerdict, Problem> {
        path::validate(self, request)
    }

    /// Asks the worker of a path's root.
    fn ask(
        &self,
        at: &Located,
        request: &FileRequest,
    ) -> Result<(FileReply, Option<std::os::fd::OwnedFd>), Problem> {
        self.worker(at)?
            .call(request, WORKER_LIMIT)
            .map_err(|fault| fault.to_problem(at.shown()))
    }

    fn worker(&self, at: &Located) -> Result<Worker, Problem> {
        self.standing
            .workers()
            .of_root(self.standing.backend(), at.root())
    }
}

const fn entry_kind(kind: FileKind) -> EntryKind {
    match kind {
        FileKind::File => EntryKind::File,
        FileKind::Directory => EntryKind::Folder,
        FileKind::Symlink => EntryKind::Link,
        FileKind::Other => EntryKind::Other,
    }
}
