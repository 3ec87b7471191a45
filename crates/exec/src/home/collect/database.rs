//! Databases that come back, with what belongs to them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::profile::StateChangeKind;
use rustix::fs::{FlockOperation, fcntl_lock};

use super::Collector;
use crate::home::files::{open_beneath, open_in, problem};
use crate::home::record::Stamp;
use crate::home::rules::DATABASE_PARTS;
use crate::home::write::{self, Content};

impl Collector<'_> {
    /// Brings a database back with what belongs to it, where nobody else has it open or changed it.
    pub(super) fn database(&mut self, main: &str) -> Result<(), Problem> {
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
}
