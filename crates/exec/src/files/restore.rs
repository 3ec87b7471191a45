//! Taking a change of files back: another change, so that it can be taken back too.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{EventFilter, event_type};
use cofferdam_core::operation::{FilesChanged, KeptFile, PathChange, PathChangeKind, RestoreFile};
use cofferdam_journal::Query;
use cofferdam_keeper::FileRequest;
use cofferdam_sandbox::FileKind;
use serde_json::json;

use super::FileDoor;
use super::change::{About, ChangeKind};
use super::path::Located;
use super::write::change;

impl FileDoor<'_> {
    /// Brings back how files were before a change.
    ///
    /// # Errors
    ///
    /// `change_unknown`; `file_conflict` where something has changed since at one of its paths, and
    /// then nothing is done; `content_expired` where the bytes are not kept any more.
    pub fn restore(&self, request: &RestoreFile) -> Result<FilesChanged, Problem> {
        let changes = self.changes_of(&request.change_id)?;
        let mut steps = Vec::new();
        for one in changes.iter().rev() {
            steps.push(self.step_back(one)?);
        }
        let path = changes
            .first()
            .map_or_else(BytePath::default, |one| one.path.clone());
        let paths: Vec<BytePath> = changes.iter().map(|one| one.path.clone()).collect();
        let about = About {
            paths: &paths,
            bytes: None,
            growth: steps.iter().map(Step::growth).sum(),
        };
        let ((), changed) = self.tell(ChangeKind::RestoreFile, &path, about, |told| {
            for step in &steps {
                self.take_step(step, told)?;
            }
            Ok(())
        })?;
        Ok(changed)
    }

    /// Reads from the journal what a change did.
    fn changes_of(&self, change_id: &str) -> Result<Vec<PathChange>, Problem> {
        let mut query = Query::of(EventFilter {
            event_type: Some(event_type::FILE_ENDED.to_owned()),
            ..EventFilter::default()
        })
        .backward();
        loop {
            let page = self
                .plane
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            for event in &page.events {
                let of = |name: &str| event.data.get(name);
                if of("change_id").and_then(|id| id.as_str()) != Some(change_id) {
                    continue;
                }
                let changes = of("changes").cloned().unwrap_or_default();
                return serde_json::from_value(changes).map_err(|error| {
                    Problem::new(
                        ErrorCode::JournalCorrupt,
                        format!("the change {change_id} cannot be read: {error}"),
                    )
                });
            }
            let Some(last) = page.events.last() else {
                let message = format!("there is no change {change_id}");
                return Err(Problem::new(ErrorCode::ChangeUnknown, message).with_field("change_id"));
            };
            query = query.after(last.pos);
        }
    }

    fn step_back(&self, one: &PathChange) -> Result<Step, Problem> {
        let at = self.locate(&one.path)?;
        self.may_change(&at)?;
        let found = self.look(&at)?;
        let is_as_left = |after: Option<&KeptFile>| -> Result<bool, Problem> {
            match (after, found) {
                (None, None) => Ok(true),
                (Some(after), Some(_)) => {
                    let whole = self.whole_of(&at, self.terms.bounds.read_bytes)?;
                    Ok(after.digest.is_of(&whole.bytes))
                }
                _ => Ok(false),
            }
        };
        let conflict = || {
            Problem::new(
                ErrorCode::FileConflict,
                format!("{} has changed since", one.path),
            )
            .with_hint("take the later change back first")
        };
        match one.kind {
            PathChangeKind::FileCreated | PathChangeKind::FileModified => {
                if !is_as_left(one.after.as_ref())? {
                    return Err(conflict());
                }
                Ok(match &one.before {
                    Some(before) => Step::Write {
                        bytes: self.kept(before)?,
                        kept: before.clone(),
                        replaced: found.map_or(0, |found| found.size),
                        at,
                    },
                    None => Step::Remove(at, found.map_or(0, |found| found.mode)),
                })
            }
            PathChangeKind::FileDeleted => match (&one.before, found) {
                (Some(before), None) => Ok(Step::Write {
                    bytes: self.kept(before)?,
                    kept: before.clone(),
                    replaced: 0,
                    at,
                }),
                _ => Err(conflict()),
            },
            PathChangeKind::FolderDeleted if found.is_none() => Ok(Step::MakeFolder(at)),
            PathChangeKind::FolderCreated => Ok(Step::RemoveFolder(at)),
            PathChangeKind::Renamed => {
                let new = one.new_path.as_ref().ok_or_else(conflict)?;
                if found.is_some() {
                    return Err(conflict());
                }
                Ok(Step::Rename(self.locate(new)?, at))
            }
            PathChangeKind::LinkDeleted => match (&one.before, found) {
                (Some(before), None) => Ok(Step::MakeLink(at, self.kept(before)?, before.clone())),
                (Some(_), Some(_)) => Err(conflict()),
                (None, _) => Err(Problem::new(
                    ErrorCode::ContentExpired,
                    format!(
                        "{} was neither a file nor a link, and is not kept",
                        one.path
                    ),
                )),
            },
            PathChangeKind::LinkCreated => {
                let is_link = found.is_some_and(|found| found.kind == FileKind::Symlink);
                let after = one.after.as_ref();
                let is_same = is_link
                    && after.is_some_and(|after| {
                        self.target_of(&at)
                            .is_ok_and(|target| after.digest.is_of(&target))
                    });
                if is_same {
                    Ok(Step::RemoveLink(at))
                } else {
                    Err(conflict())
                }
            }
            PathChangeKind::FolderDeleted => Err(conflict()),
        }
    }

    fn kept(&self, file: &KeptFile) -> Result<Vec<u8>, Problem> {
        let limit = usize::try_from(file.bytes).unwrap_or(usize::MAX);
        let bytes = self
            .plane
            .journal()
            .content(&file.digest, 0, limit)
            .map_err(|error| error.to_problem())?;
        bytes
            .filter(|bytes| bytes.len() as u64 == file.bytes && file.digest.is_of(bytes))
            .ok_or_else(|| {
                Problem::new(
                    ErrorCode::ContentExpired,
                    format!("the bytes {} are not kept any more", file.digest),
                )
                .with_details(json!({"digest": file.digest}))
            })
    }

    fn take_step(&self, step: &Step, told: &mut Vec<PathChange>) -> Result<(), Problem> {
        match step {
            Step::Write {
                at, bytes, kept, ..
            } => {
                let old = self.look(at)?;
                let before = old
                    .map(|old| self.keep_standing(at, old.mode))
                    .transpose()?;
                self.make_parents(at, told)?;
                self.replace(at, old.as_ref(), Some(kept.mode), &[bytes], false)?;
                if let Some(visits) = &self.terms.visits {
                    visits.forget(&self.on_host(at));
                }
                let kind = if before.is_some() {
                    PathChangeKind::FileModified
                } else {
                    PathChangeKind::FileCreated
                };
                told.push(change(at, kind, before, Some(kept.clone())));
            }
            Step::Remove(at, mode) => {
                let kept = self.keep_standing(at, *mode)?;
                self.unlink(at, false)?;
                told.push(change(at, PathChangeKind::FileDeleted, Some(kept), None));
            }
            Step::MakeLink(at, target, kept) => {
                self.make_parents(at, told)?;
                let request = FileRequest::MakeLink {
                    path: at.relative().to_vec(),
                    target: target.clone(),
                };
                self.ask(at, &request)?;
                let kind = PathChangeKind::LinkCreated;
                told.push(change(at, kind, None, Some(kept.clone())));
            }
            Step::RemoveLink(at) => {
                let kept = self.keep_link(at)?;
                self.unlink(at, false)?;
                told.push(change(at, PathChangeKind::LinkDeleted, Some(kept), None));
            }
            Step::MakeFolder(at) => {
                if self.look(at)?.is_none() {
                    self.make_parents(at, told)?;
                    self.make_folder(at, told)?;
                }
            }
            Step::RemoveFolder(at) => {
                self.unlink(at, true)?;
                told.push(change(at, PathChangeKind::FolderDeleted, None, None));
            }
            Step::Rename(from, to) => self.rename_one(from, to, told)?,
        }
        Ok(())
    }
}

/// One thing that is done to bring a path back.
enum Step {
    Write {
        at: Located,
        bytes: Vec<u8>,
        kept: KeptFile,
        /// Bytes of what stands there now.
        replaced: u64,
    },
    /// The file and its permission bits.
    Remove(Located, u32),
    /// The link, where it leads, and that as it is kept.
    MakeLink(Located, Vec<u8>, KeptFile),
    RemoveLink(Located),
    MakeFolder(Located),
    RemoveFolder(Located),
    Rename(Located, Located),
}

impl Step {
    /// How many bytes it adds.
    fn growth(&self) -> u64 {
        match self {
            Self::Write {
                bytes, replaced, ..
            } => (bytes.len() as u64).saturating_sub(*replaced),
            _ => 0,
        }
    }
}
