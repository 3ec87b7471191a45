//! Layers whose process died: found, proved to be unused, and settled like any other.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::spec::Identity;

use super::record::{HomeRecord, hold};
use super::{HomeLayer, HomeReport};
use crate::provider::remove_tree;
use crate::workspace::as_identity;

/// Age up to which a layer without a record is one that is being made.
const FRESH: Duration = Duration::from_mins(1);
/// Time that what is left of a dead run gets to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// A layer that was left, and what became of it.
#[derive(Debug)]
pub struct HomesLeft {
    /// The task to which it belonged.
    pub task: String,
    /// The profile.
    pub profile: String,
    /// What came of it; the problem where the real home could not be written: it stays then.
    pub report: Result<HomeReport, Problem>,
    layer: Option<HomeLayer>,
    directory: PathBuf,
}

impl HomesLeft {
    /// Gives where it lies.
    pub fn directory(&self) -> BytePath {
        BytePath::from(self.directory.as_path())
    }

    /// Removes the layer, after what came of it was written down.
    pub fn remove(self) {
        if let Some(layer) = self.layer.filter(|_| self.report.is_ok()) {
            layer.remove();
        }
    }
}

/// Settles the layers below a directory whose processes died, as the user to whom it belongs, where
/// that is not the caller.
pub fn homes_left(homes: &Path, owner: Option<&Identity>) -> Vec<HomesLeft> {
    let Ok(entries) = std::fs::read_dir(homes) else {
        return Vec::new();
    };
    let directories = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .filter_map(|entry| one_left(entry.path(), owner))
        .collect()
}

fn one_left(directory: PathBuf, owner: Option<&Identity>) -> Option<HomesLeft> {
    let held = as_identity(owner, || {
        if !directory.join(super::record::RECORD).exists() && is_fresh(&directory) {
            // Somebody is making it.
            return Ok(None);
        }
        hold(&directory)
    });
    let alive = held.ok().flatten()?;
    // By whoever calls: what runs in it may be hidden from its own user.
    if !waits_until_unused(&directory) {
        // Something of it is still there: the next start looks again.
        return None;
    }
    let settled = as_identity(owner, || {
        let Some(mut record) = HomeRecord::read(&directory) else {
            // It died before anything was copied in, so nothing ran in it.
            if !directory.join(super::record::RECORD).exists() {
                remove_tree(&directory);
            }
            return Ok::<_, Problem>(None);
        };
        // Whoever owns the directory may have written the record: it never says as whom to act.
        record.identity = owner.cloned();
        let report = super::collect::collect(&directory, &record);
        Ok(Some((record, report)))
    });
    let (record, report) = settled.ok().flatten()?;
    let layer = HomeLayer {
        directory: directory.clone(),
        record,
        _alive: alive,
    };
    Some(HomesLeft {
        task: layer.record.task.clone(),
        profile: layer.record.profile.clone(),
        report,
        layer: Some(layer),
        directory,
    })
}

fn is_fresh(directory: &Path) -> bool {
    let age = std::fs::metadata(directory)
        .and_then(|metadata| metadata.modified())
        .ok()
        .and_then(|time| time.elapsed().ok());
    age.is_none_or(|age| age < FRESH)
}

fn waits_until_unused(directory: &Path) -> bool {
    let until = Instant::now() + PATIENCE;
    while is_used(directory) {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Tells whether a process of the host sees the layer in its mounts or was given it as its home.
fn is_used(directory: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let (Some(name), Some(above)) = (
        directory.file_name(),
        directory.parent().and_then(Path::file_name),
    ) else {
        return true;
    };
    // Mounts are told by their path within their file system, so the beginning may be missing.
    let name = [above.as_bytes(), b"/", name.as_bytes(), b"/home"].concat();
    let own = std::process::id().to_string();
    let holds = |path: PathBuf| {
        std::fs::read(path)
            .is_ok_and(|text| text.windows(name.len()).any(|part| part == name.as_slice()))
    };
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return false;
    };
    processes.flatten().any(|process| {
        let id = process.file_name();
        let is_process = id.as_bytes().first().is_some_and(u8::is_ascii_digit);
        is_process
            && id.as_bytes() != own.as_bytes()
            && (holds(process.path().join("mountinfo")) || holds(process.path().join("environ")))
    })
}
