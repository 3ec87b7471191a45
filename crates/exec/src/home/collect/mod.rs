//! What came of a layer: some of it goes back into the real home, the rest is told.

mod back;
mod database;
mod listed;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::profile::{KeyChange, StateChangeKind};
use rustix::fs::FileType;

use super::files::{directory_beneath, open_beneath, open_directory, open_in, problem, walk};
use super::record::{HOME, HomeRecord, Stamp};
use super::rules::{Class, Rules};
use super::write;
use super::{HomeReport, LayerChange, secrets, text};

/// Files of the state that are looked at.
const ENTRIES: usize = 200_000;
/// Bytes of a file that is parsed, compared or kept for a review.
const KEPT_BYTES: u64 = 1 << 20;
/// Changes that are told one by one.
const CHANGES: usize = 500;
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
    let secrets = secrets::known(record, &collector.rules, &collector.home);
    for change in &mut collector.report.changes {
        change.mask(&secrets);
    }
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

    fn change(
        &mut self,
        path: &Path,
        what: StateChangeKind,
        before: Option<Vec<u8>>,
        after: Option<Vec<u8>>,
        keys: Vec<KeyChange>,
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
            masked: false,
        });
    }
}

fn whole(file: &File, path: &Path) -> Result<Option<Vec<u8>>, Problem> {
    write::read_whole(file, KEPT_BYTES).map_err(|error| problem("read", path, &error))
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
