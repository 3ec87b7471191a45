//! The private home of an agent: seeded from the real one, compared with it at the end.
//!
//! A layer is a directory of ours, `DIRECTORY/home`, that stands inside in the place of the home
//! directory. What the profile names as state is copied in. When everything of the task has ended,
//! transcripts, databases and listed keys come back into the real home; whatever else changed is
//! reported and is the owner's to apply. The layer is removed after that, and a layer whose process
//! died is settled in the same way by the next start: its record says all that is needed.
//!
//! Where root works for another user, everything is done as that user: no link in a home leads root
//! to what its owner could not reach.

mod answers;
mod apply;
mod collect;
mod document;
mod files;
mod keys;
mod record;
mod rules;
mod secrets;
mod seed;
mod settle;
mod text;
mod write;

use std::fs::File;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::mask::Masker;
use cofferdam_core::profile::{KeyChange, ProfileHome, StateChangeKind};
use cofferdam_core::spec::Identity;

use crate::provider::remove_tree;
use crate::workspace::as_identity;
use record::HomeRecord;

pub use apply::{ApplyState, apply_state};
pub use document::{Document, Format};
pub use settle::{HomesLeft, homes_left};

/// What a layer is made from.
#[derive(Debug)]
pub struct HomeRequest<'a> {
    /// The rules of the profile.
    pub rules: &'a ProfileHome,
    /// The profile's name.
    pub profile: &'a str,
    /// The task that it is for.
    pub task: &'a str,
    /// Where the layer is made; nothing stands there yet.
    pub directory: PathBuf,
    /// The home directory from which it is seeded.
    pub real: PathBuf,
    /// The workspace as the agent sees it.
    pub workspace: &'a BytePath,
    /// Variables of the caller that may put state elsewhere, with their values.
    pub variables: Vec<(String, PathBuf)>,
    /// Whose it is, where that is not this process.
    pub identity: Option<Identity>,
}

/// A private home.
#[derive(Debug)]
pub struct HomeLayer {
    directory: PathBuf,
    record: HomeRecord,
    _alive: File,
}

/// What was copied into a layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seeded {
    /// How many files.
    pub files: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Files with credentials among them, relative to the home directory.
    pub credentials: Vec<BytePath>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// What became of a layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HomeReport {
    /// What came back, relative to the home directory.
    pub came_back: Vec<BytePath>,
    /// What changed and did not come back.
    pub changes: Vec<LayerChange>,
    /// What else is worth a word.
    pub notes: Vec<String>,
}

/// A change of an agent's state that did not come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerChange {
    /// The file, relative to the home directory.
    pub path: BytePath,
    /// The file in the real home.
    pub host: BytePath,
    /// What happened to it.
    pub what: StateChangeKind,
    /// Whether it holds credentials; its content is not here then.
    pub secret: bool,
    /// The keys that changed, for a file of which some keys come back.
    pub keys: Vec<KeyChange>,
    /// What stood there; `None` where nothing did, where it is secret, or too large.
    pub before: Option<Vec<u8>>,
    /// What stands there now; as `before`.
    pub after: Option<Vec<u8>>,
    /// The difference as text, with what looks like a secret masked.
    pub diff: String,
    /// Whether values that are known to be secret stood in the contents; they are masked there.
    pub masked: bool,
}

impl LayerChange {
    /// Masks values in the contents and the difference, each byte by another one.
    pub fn mask(&mut self, masker: &Masker) {
        for content in [&mut self.before, &mut self.after].into_iter().flatten() {
            let (masked, times) = masker.mask_bytes(content);
            if times > 0 {
                *content = masked.into_owned();
                self.masked = true;
            }
        }
        let (masked, times) = masker.mask_bytes(self.diff.as_bytes());
        if times > 0 {
            self.diff = String::from_utf8_lossy(&masked).into_owned();
            self.masked = true;
        }
    }
}

impl HomeLayer {
    /// Makes a layer and copies the agent's state into it.
    ///
    /// # Errors
    ///
    /// `io`, `storage_exhausted`: nothing of it is left then.
    pub fn seed(request: &HomeRequest<'_>) -> Result<(Self, Seeded), Problem> {
        let (record, alive, seeded) = as_identity(request.identity.as_ref(), || {
            let made = seed::seed(request);
            if made.is_err() {
                remove_tree(&request.directory);
            }
            made
        })?;
        let layer = Self {
            directory: request.directory.clone(),
            record,
            _alive: alive,
        };
        Ok((layer, seeded))
    }

    /// Gives the directory that stands in the place of the home directory.
    pub fn home(&self) -> PathBuf {
        self.directory.join(record::HOME)
    }

    /// Brings back what may come back, and tells what else changed. Everything that could write to
    /// the layer must have ended.
    ///
    /// # Errors
    ///
    /// `io` when the real home cannot be written: the layer stays what it is, and this may be called
    /// again.
    pub fn collect(&self) -> Result<HomeReport, Problem> {
        as_identity(self.record.identity.as_ref(), || {
            collect::collect(&self.directory, &self.record)
        })
    }

    /// Removes the layer.
    pub fn remove(self) {
        // A thread that cannot take the identity on leaves it to the next start.
        let _ = as_identity(self.record.identity.as_ref(), || {
            remove_tree(&self.directory);
            Ok::<_, Problem>(())
        });
    }

    /// Lends the directory of the layer with what belongs to it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}
