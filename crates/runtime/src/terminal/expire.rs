//! Removing recordings that were kept for their time, or for which there is no room.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use cofferdam_core::error::Problem;
use cofferdam_core::event::{Subject, event_type};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::runtime::Runtime;
use crate::scribe::Line;

/// A recording that nobody writes any more.
#[derive(Debug)]
struct Recording {
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

impl Runtime {
    /// Removes recordings whose terminal ended longer ago than `kept`, and then the oldest until all
    /// together have at most `room` bytes, and says so in the journal; gives how many. Never one of a
    /// terminal that is open, in whichever process.
    ///
    /// # Errors
    ///
    /// When the journal cannot be written: nothing more is removed then.
    pub fn expire_recordings(&self, kept: Duration, room: u64) -> Result<usize, Problem> {
        let mut ended = self.ended_recordings();
        // The newest first: what is left when the room is full goes.
        ended.sort_by_key(|one| std::cmp::Reverse(one.modified));
        let now = self.plane.ambient().now().as_millisecond();
        let now =
            SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(now).unwrap_or_default());
        let mut taken = 0_u64;
        let mut removed: Vec<Value> = Vec::new();
        for one in ended {
            taken = taken.saturating_add(one.bytes);
            let is_old = now.duration_since(one.modified).is_ok_and(|age| age > kept);
            let why = match (is_old, taken > room) {
                (true, _) => "age",
                (false, true) => "room",
                (false, false) => continue,
            };
            taken -= one.bytes;
            if std::fs::remove_file(&one.path).is_err() {
                continue;
            }
            removed.push(json!({
                "terminal_id": one.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
                "bytes": one.bytes,
                "modified": one
                    .modified
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .ok()
                    .and_then(|age| Timestamp::from_second(age.as_secs() as i64).ok()),
                "why": why,
            }));
        }
        let count = removed.len();
        if count > 0 {
            self.scribe.say(Line::new(
                event_type::TERMINAL_EXPIRED,
                &Subject::default(),
                json!({"removed": removed}),
            ))?;
        }
        Ok(count)
    }

    fn ended_recordings(&self) -> Vec<Recording> {
        let entries = std::fs::read_dir(self.data_dir().join("terminals"));
        let found = entries.into_iter().flatten().flatten().filter_map(|entry| {
            let path = entry.path();
            if path.extension().is_none_or(|end| end != "cast") {
                return None;
            }
            let file = File::open(&path).ok()?;
            // Whoever writes it holds it. Let go of at once: nobody writes one that has ended.
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                return None;
            }
            let about = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some(Recording {
                path,
                bytes: about.len(),
                modified: about.modified().ok()?,
            })
        });
        found.collect()
    }
}
