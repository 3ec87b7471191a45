//! Whole files that come back: transcripts, and what agents write anew.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::profile::StateChangeKind;

use super::{Collector, whole};
use crate::home::files::{open_beneath, open_in, problem};
use crate::home::record::Stamp;
use crate::home::write::{self, Content, NewFile};

/// The directory beside the private homes for what would come back and cannot.
const KEPT: &str = "kept-homes";

impl Collector<'_> {
    /// Brings a transcript or the like back.
    pub(super) fn back(
        &mut self,
        path: &Path,
        file: &File,
        transcript: bool,
        rewritten: bool,
    ) -> Result<(), Problem> {
        let (top, below) = self.record.host(path);
        let failed = |error: io::Error| problem("write", &top.join(&below), &error);
        let Ok(existing) = open_in(&top, &below) else {
            // A link, or something that is no file: the user's own doing.
            self.change(path, StateChangeKind::Conflict, None, None, Vec::new());
            return self.keep_aside(path);
        };
        let Some((real, metadata)) = existing else {
            self.put(path, &Content::File(file), None, false)
                .map_err(failed)?;
            return Ok(());
        };
        let seeded = self.record.seeded.get(&BytePath::from(path));
        let untouched = seeded.is_some_and(|one| one.real == Stamp::of(&metadata));
        if transcript && is_beginning(&real, file).map_err(failed)? || rewritten && untouched {
            self.put(path, &Content::File(file), Some(metadata.mode()), true)
                .map_err(failed)?;
            return Ok(());
        }
        if is_beginning(file, &real).map_err(failed)? {
            // What is there goes further, or is the same.
            return Ok(());
        }
        let what = if untouched {
            StateChangeKind::Modified
        } else {
            StateChangeKind::Conflict
        };
        let (before, after) = (whole(&real, path)?, whole(file, path)?);
        self.change(path, what, before, after, Vec::new());
        self.keep_aside(path)
    }

    pub(super) fn put(
        &mut self,
        path: &Path,
        content: &Content<'_>,
        mode: Option<u32>,
        replace: bool,
    ) -> io::Result<()> {
        let (top, below) = self.record.host(path);
        let (mode, modified) = match content {
            Content::File(file) => {
                let metadata = file.metadata()?;
                (
                    // Nothing that comes back is a program, and the user can read all of it.
                    (mode.unwrap_or(metadata.mode()) & 0o666) | 0o600,
                    metadata.modified().ok(),
                )
            }
            Content::Bytes(_) => (mode.unwrap_or(0o600), None),
        };
        write::put(
            &top,
            &below,
            &NewFile {
                content: match content {
                    Content::File(file) => Content::File(file),
                    Content::Bytes(bytes) => Content::Bytes(bytes),
                },
                mode,
                modified,
                replace,
                owner: self.record.identity.as_ref(),
            },
        )?;
        self.report.came_back.push(BytePath::from(path));
        Ok(())
    }

    /// Keeps what would come back and cannot, beside the private homes, and says where.
    pub(super) fn keep_aside(&mut self, path: &Path) -> Result<(), Problem> {
        let Ok((file, metadata)) = open_beneath(self.home.as_fd(), path) else {
            return Ok(());
        };
        let homes = self.directory.parent().unwrap_or(self.directory);
        let top = homes.with_file_name(KEPT).join(&self.record.task);
        let new = NewFile {
            content: Content::File(&file),
            mode: (metadata.mode() & 0o666) | 0o600,
            modified: metadata.modified().ok(),
            replace: true,
            owner: self.record.identity.as_ref(),
        };
        write::put(&top, path, &new).map_err(|error| problem("keep", path, &error))?;
        self.report.notes.push(format!(
            "~/{} is in use or was changed by somebody else; what this run made of it is kept as {}",
            path.display(),
            top.join(path).display()
        ));
        Ok(())
    }
}

/// Tells whether what one file holds is the beginning of what another one holds.
fn is_beginning(first: &File, whole: &File) -> io::Result<bool> {
    let length = first.metadata()?.len();
    if length > whole.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (first, whole);
    io::Seek::seek(&mut left, io::SeekFrom::Start(0))?;
    io::Seek::seek(&mut right, io::SeekFrom::Start(0))?;
    let mut left = io::BufReader::with_capacity(1 << 16, left.take(length));
    let mut right = io::BufReader::with_capacity(1 << 16, right);
    let (mut one, mut other) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let read = left.read(&mut one)?;
        if read == 0 {
            return Ok(true);
        }
        right.read_exact(&mut other[..read])?;
        if one[..read] != other[..read] {
            return Ok(false);
        }
    }
}
