//! What came of a layer: some of it goes back into the real home, the rest is told.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::profile::{KeyRule, StateChangeKind};
use rustix::fs::{FileType, FlockOperation, fcntl_lock};
use serde_json::{Value, json};

use super::files::{directory_beneath, open_beneath, open_directory, open_in, problem, walk};
use super::keys::{self, Merged};
use super::record::{HOME, HomeRecord, SEED, Stamp};
use super::rules::{Class, DATABASE_PARTS, Rules};
use super::write::{self, Content, NewFile};
use super::{HomeReport, LayerChange, text};

/// Files of the state that are looked at.
const ENTRIES: usize = 200_000;
/// Bytes of a file that is parsed, compared or kept for a review.
const KEPT_BYTES: u64 = 1 << 20;
/// Bytes of a JSON file of which keys come back.
const JSON_BYTES: u64 = 32 << 20;
/// Changes that are told one by one.
const CHANGES: usize = 500;
/// The directory beside the private homes for what would come back and cannot.
const KEPT: &str = "kept-homes";

struct Collector<'a> {
    directory: &'a Path,
    record: &'a HomeRecord,
    rules: Rules<'a>,
    home: std::os::fd::OwnedFd,
    report: HomeReport,
    /// Databases of which a part changed.
    databases: BTreeSet<String>,
}

pub(super) fn collect(directory: &Path, record: &HomeRecord) -> Result<HomeReport, Problem> {
    let home = directory.join(HOME);
    let opened = open_directory(&home).map_err(|error| problem("open", &home, &error))?;
    let homes = directory.parent().unwrap_or(directory);
    let _lock = write::merge_lock(homes, record.real.as_path())
        .map_err(|error| problem("lock", homes, &error))?;
    let mut collector = Collector {
        directory,
        record,
        rules: Rules::new(&record.rules, &record.workspace)?,
        home: opened,
        report: HomeReport::default(),
        databases: BTreeSet::new(),
    };
    collector.all()?;
    collector.report.came_back.sort();
    collector
        .report
        .changes
        .sort_by(|left, right| left.path.cmp(&right.path));
    let more = collector.report.changes.len().saturating_sub(CHANGES);
    if more > 0 {
        collector.report.changes.truncate(CHANGES);
        collector.report.notes.push(format!(
            "{more} more files of the agent's state changed and are dropped"
        ));
    }
    Ok(collector.report)
}

impl Collector<'_> {
    fn all(&mut self) -> Result<(), Problem> {
        // What lies within another source is walked with it.
        let tops: Vec<BytePath> = self
            .record
            .sources
            .iter()
            .map(|source| source.inside.clone())
            .filter(|inside| {
                !self
                    .record
                    .sources
                    .iter()
                    .any(|other| *inside != other.inside && inside.is_within(&other.inside))
            })
            .collect();
        for top in &tops {
            let top = top.as_path();
            let found = match directory_beneath(self.home.as_fd(), top) {
                Ok(fd) => {
                    let (found, all) = walk(&fd, ENTRIES, &|_| true)
                        .map_err(|error| problem("look at", top, &error))?;
                    if !all {
                        self.report.notes.push(format!(
                            "~/{} holds too many files to look at",
                            top.display()
                        ));
                    }
                    found
                        .into_iter()
                        .map(|one| (top.join(one.path), one.kind))
                        .collect()
                }
                Err(_) => vec![(top.to_owned(), FileType::Unknown)],
            };
            for (path, kind) in found {
                self.one(&path, kind)?;
            }
        }
        for main in std::mem::take(&mut self.databases) {
            self.database(&main)?;
        }
        let gone: Vec<BytePath> = self
            .record
            .seeded
            .keys()
            .filter(|path| self.is_gone(path.as_path()))
            .cloned()
            .collect();
        for path in gone {
            let path = path.as_path();
            if matches!(self.rules.class(path), Class::Other) {
                let before = self.real(path)?;
                if before.is_some() {
                    self.change(path, StateChangeKind::Deleted, before, None, Vec::new());
                }
            }
        }
        self.outside();
        Ok(())
    }

    fn is_gone(&self, path: &Path) -> bool {
        open_beneath(self.home.as_fd(), path)
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Says what else was left in the private home: it goes with it.
    fn outside(&mut self) {
        let Ok(entries) = std::fs::read_dir(self.directory.join(HOME)) else {
            return;
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| {
                let name = PathBuf::from(entry.file_name());
                let is_state = self
                    .record
                    .sources
                    .iter()
                    .any(|source| source.inside.as_path().starts_with(&name));
                !is_state && holds_something(&entry.path(), 4)
            })
            .map(|entry| format!("~/{}", entry.file_name().to_string_lossy()))
            .collect();
        names.sort();
        if !names.is_empty() {
            let more = names.len().saturating_sub(8);
            names.truncate(8);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            self.report.notes.push(format!(
                "what was written elsewhere in the private home is gone: {}{more}",
                names.join(", ")
            ));
        }
    }

    fn one(&mut self, path: &Path, kind: FileType) -> Result<(), Problem> {
        if !matches!(kind, FileType::RegularFile | FileType::Unknown) {
            let known = self.record.seeded.contains_key(&BytePath::from(path));
            if !matches!(self.rules.class(path), Class::Ignored) || known {
                self.change(path, StateChangeKind::Special, None, None, Vec::new());
            }
            return Ok(());
        }
        let (file, metadata) = match open_beneath(self.home.as_fd(), path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => {
                self.change(path, StateChangeKind::Special, None, None, Vec::new());
                return Ok(());
            }
        };
        let seeded = self.record.seeded.get(&BytePath::from(path)).copied();
        if seeded.is_some_and(|one| one.layer == Stamp::of(&metadata)) {
            return Ok(());
        }
        match self.rules.class(path) {
            Class::Keys(rule) => self.keys(path, rule, &file),
            Class::Database => {
                let main = path.to_str().and_then(|path| self.rules.database(path));
                self.databases.extend(main);
                Ok(())
            }
            Class::Back {
                transcript,
                rewritten,
            } => self.back(path, &file, transcript, rewritten),
            Class::Ignored => Ok(()),
            Class::Other => {
                let after = whole(&file, path)?;
                let before = self.real(path)?;
                if after.is_some() && after == before {
                    return Ok(());
                }
                let what = self.added_or_modified(path);
                self.change(path, what, before, after, Vec::new());
                Ok(())
            }
        }
    }

    /// Gives what stands in the real home, where it is small enough to be kept.
    fn real(&self, path: &Path) -> Result<Option<Vec<u8>>, Problem> {
        let (top, below) = self.record.host(path);
        match open_in(&top, &below) {
            Ok(Some((file, _))) => whole(&file, path),
            _ => Ok(None),
        }
    }

    /// Tells whether a file that changed is a new one.
    fn added_or_modified(&self, path: &Path) -> StateChangeKind {
        let (top, below) = self.record.host(path);
        if top.join(below).symlink_metadata().is_ok() {
            StateChangeKind::Modified
        } else {
            StateChangeKind::Added
        }
    }

    /// Keeps what would come back and cannot, beside the private homes, and says where.
    fn keep_aside(&mut self, path: &Path) -> Result<(), Problem> {
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

    /// Brings a transcript or the like back.
    fn back(
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

    fn put(
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

    /// Brings single keys back, and tells which others changed.
    fn keys(&mut self, path: &Path, rule: &KeyRule, file: &File) -> Result<(), Problem> {
        let seed_file = self.directory.join(SEED).join(path);
        let seed = std::fs::read(seed_file).ok();
        let seed = seed
            .and_then(|text| serde_json::from_slice::<Value>(&text).ok())
            .unwrap_or_else(|| json!({}));
        let failed = |error: io::Error| problem("read", path, &error);
        let layer = write::read_whole(file, JSON_BYTES)
            .map_err(failed)?
            .and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let Some(layer) = layer else {
            let what = self.added_or_modified(path);
            self.report.notes.push(format!(
                "~/{} is no JSON any more; nothing of it came back",
                path.display()
            ));
            self.change(path, what, None, None, Vec::new());
            return Ok(());
        };
        let (top, below) = self.record.host(path);
        let existing = open_in(&top, &below);
        let (real, mode) = match &existing {
            Ok(None) => (json!({}), None),
            Ok(Some((file, metadata))) => {
                let text = write::read_whole(file, JSON_BYTES).map_err(failed)?;
                let value = text.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
                let Some(value) = value else {
                    self.report.notes.push(format!(
                        "~/{} cannot be read as JSON; nothing was brought back into it",
                        path.display()
                    ));
                    return Ok(());
                };
                (value, Some(metadata.mode()))
            }
            Err(error) => {
                self.report.notes.push(format!(
                    "~/{} cannot be opened ({error}); nothing was brought back into it",
                    path.display()
                ));
                return Ok(());
            }
        };
        match keys::merge(rule, &seed, &layer, &real) {
            Merged::Same => {}
            Merged::New(merged) => {
                let mut text = serde_json::to_vec_pretty(&merged).unwrap_or_default();
                text.push(b'\n');
                self.put(path, &Content::Bytes(&text), mode, true)
                    .map_err(|error| problem("write", path, &error))?;
            }
            Merged::Theirs => self.report.notes.push(format!(
                "what changed in ~/{} meanwhile is newer and stays",
                path.display()
            )),
        }
        let changes = keys::changes(rule, &seed, &layer);
        if !changes.is_empty() {
            let is_new = !matches!(existing, Ok(Some(_)));
            let what = if is_new {
                StateChangeKind::Added
            } else {
                StateChangeKind::Modified
            };
            self.change(path, what, None, None, changes);
        }
        Ok(())
    }

    /// Brings a database back with what belongs to it, where nobody else has it open or changed it.
    fn database(&mut self, main: &str) -> Result<(), Problem> {
        let parts: Vec<PathBuf> = DATABASE_PARTS
            .iter()
            .map(|end| PathBuf::from(format!("{main}{end}")))
            .collect();
        let (top, below) = self.record.host(Path::new(main));
        let mut untouched = true;
        let mut held = None;
        for (index, part) in parts.iter().enumerate() {
            let (top, below) = self.record.host(part);
            let Ok(now) = open_in(&top, &below) else {
                untouched = false;
                continue;
            };
            let stamp = now.as_ref().map(|(_, metadata)| Stamp::of(metadata));
            let seeded = self.record.seeded.get(&BytePath::from(part.as_path()));
            // The index of the log belongs to whoever has the database open.
            let is_index = index == 2;
            untouched &=
                is_index || stamp == seeded.map(|one| one.real) || self.is_put(part, stamp);
            if index == 0
                && let Some((file, metadata)) = now
            {
                // SQLite holds a lock on a database in this mode for as long as it is open.
                let file = File::options()
                    .read(true)
                    .write(true)
                    .open(top.join(&below))
                    .unwrap_or(file);
                let free = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
                untouched &= free;
                held = Some((file, metadata.mode()));
            }
        }
        if !untouched {
            self.change(
                Path::new(main),
                StateChangeKind::Conflict,
                None,
                None,
                Vec::new(),
            );
            for part in &parts[..2] {
                self.keep_aside(part)?;
            }
            return Ok(());
        }
        let mode = held.as_ref().map(|(_, mode)| *mode);
        // The log first: with the old database it is no more than that database was.
        let failed = |error: io::Error| problem("write", &top.join(&below), &error);
        for index in [1, 0, 2] {
            let part = &parts[index];
            match open_beneath(self.home.as_fd(), part) {
                Ok((file, _)) if index != 2 => {
                    self.put(part, &Content::File(&file), mode, true)
                        .map_err(failed)?;
                }
                _ => {
                    // Without its index the log is read through once more.
                    let (top, below) = self.record.host(part);
                    if index != 0 {
                        write::remove(&top, &below).map_err(failed)?;
                    }
                }
            }
        }
        drop(held);
        Ok(())
    }

    /// Tells whether a part of a database is the layer's already: a merge was cut off.
    fn is_put(&self, part: &Path, stamp: Option<Stamp>) -> bool {
        let layer = open_beneath(self.home.as_fd(), part)
            .ok()
            .map(|(_, metadata)| Stamp::of(&metadata));
        match (layer, stamp) {
            (Some(layer), Some(now)) => layer.size == now.size && layer.modified == now.modified,
            (layer, now) => layer.is_none() && now.is_none(),
        }
    }

    fn change(
        &mut self,
        path: &Path,
        what: StateChangeKind,
        before: Option<Vec<u8>>,
        after: Option<Vec<u8>>,
        keys: Vec<cofferdam_core::profile::KeyChange>,
    ) {
        let (top, below) = self.record.host(path);
        let secret = self.rules.is_secret(path) && keys.is_empty();
        let diff = if secret || !keys.is_empty() {
            String::new()
        } else {
            text::diff(before.as_deref(), after.as_deref())
        };
        self.report.changes.push(LayerChange {
            path: BytePath::from(path),
            host: BytePath::from(top.join(below)),
            what,
            secret,
            keys,
            before: before.filter(|_| !secret),
            after: after.filter(|_| !secret),
            diff,
        });
    }
}

fn whole(file: &File, path: &Path) -> Result<Option<Vec<u8>>, Problem> {
    write::read_whole(file, KEPT_BYTES).map_err(|error| problem("read", path, &error))
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

/// Tells whether anything but empty directories lies at a path.
fn holds_something(path: &Path, depth: usize) -> bool {
    let Ok(metadata) = path.symlink_metadata() else {
        return false;
    };
    if !metadata.is_dir() {
        return metadata.len() > 0 || metadata.is_symlink();
    }
    depth > 0
        && std::fs::read_dir(path).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|one| holds_something(&one.path(), depth - 1))
        })
}
