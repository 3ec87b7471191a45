//! Single keys that come back.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cofferdam_core::error::Problem;
use cofferdam_core::profile::{KeyRule, StateChangeKind};

use super::Collector;
use crate::home::document::{Document, Format};
use crate::home::files::{open_in, problem};
use crate::home::keys::{self, Merged};
use crate::home::record::SEED;
use crate::home::write::{self, Content};

/// Bytes of a file of which keys come back.
const KEYS_BYTES: u64 = 32 << 20;

impl Collector<'_> {
    /// Brings single keys back, and tells which others changed.
    pub(super) fn keys(&mut self, path: &Path, rule: &KeyRule, file: &File) -> Result<(), Problem> {
        let format = Format::of(path);
        let name = format.as_str();
        let seed = std::fs::read(self.directory.join(SEED).join(path)).ok();
        let seed = seed
            .and_then(|text| Document::read(format, &text))
            .unwrap_or_else(|| Document::empty(format));
        let failed = |error: io::Error| problem("read", path, &error);
        let layer = write::read_whole(file, KEYS_BYTES)
            .map_err(failed)?
            .and_then(|text| Document::read(format, &text));
        let Some(layer) = layer else {
            let what = self.added_or_modified(path);
            self.report.notes.push(format!(
                "~/{} is no {name} any more; nothing of it came back",
                path.display()
            ));
            self.change(path, what, None, None, Vec::new());
            return Ok(());
        };
        let (seed, layer) = (seed.value(), layer.value());
        let (top, below) = self.record.host(path);
        let existing = open_in(&top, &below);
        let (mut real, mode) = match &existing {
            Ok(None) => (Document::empty(format), None),
            Ok(Some((file, metadata))) => {
                let text = write::read_whole(file, KEYS_BYTES).map_err(failed)?;
                let Some(document) = text.and_then(|text| Document::read(format, &text)) else {
                    self.report.notes.push(format!(
                        "~/{} cannot be read as {name}; nothing was brought back into it",
                        path.display()
                    ));
                    return Ok(());
                };
                (document, Some(metadata.mode()))
            }
            Err(error) => {
                self.report.notes.push(format!(
                    "~/{} cannot be opened ({error}); nothing was brought back into it",
                    path.display()
                ));
                return Ok(());
            }
        };
        match keys::merge(rule, &seed, &layer, &real.value()) {
            Merged::Same => {}
            Merged::New(pairs) => {
                for (key, value) in &pairs {
                    real.set(key, Some(value));
                }
                self.put(path, &Content::Bytes(&real.bytes()), mode, true)
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
}
