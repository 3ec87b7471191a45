//! What a keeper on the host is told, so that it can put protected names back where the plane dies.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cofferdam_core::id::CommandId;
use cofferdam_keeper::{UNDO_HEAD, UndoName, UndoNode, UndoTable};
use rustix::fs::{MemfdFlags, memfd_create};

use super::kept::note_origin_of_keeper;
use super::{Change, Name, Node, Snapshot, What};

/// A memory file that is shared with a keeper: how many commands run, and what stood before them.
#[derive(Debug)]
pub(crate) struct LastUndo {
    file: File,
    /// Where directories for what is in the way are made.
    quarantine: Vec<u8>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: u64,
    told: Option<Snapshot>,
}

impl LastUndo {
    /// Makes one, with what the keeper is to inherit. `None` where there are no memory files: then
    /// the next start puts back what there is to put back.
    pub(crate) fn make(quarantine: &Path) -> Option<(Self, OwnedFd)> {
        let file = File::from(memfd_create("names", MemfdFlags::CLOEXEC).ok()?);
        let theirs = file.try_clone().ok()?.into();
        let made = Self {
            file,
            quarantine: quarantine.as_os_str().as_bytes().to_vec(),
            state: Mutex::default(),
        };
        Some((made, theirs))
    }

    /// Tells that a command begins, and what stands before it.
    pub(crate) fn begin(&self, snapshot: &Snapshot, command: &CommandId) {
        let mut state = self.state();
        if state.told.as_ref() != Some(snapshot) {
            state.told = self.tell(snapshot).map(|()| snapshot.clone());
        }
        // What was not told is not lost: the next start looks at every name.
        if state.told.is_some() {
            state.running += 1;
            self.head(state.running, command.as_str());
        }
    }

    /// Tells that one has ended, and that the plane has looked at every name.
    pub(crate) fn over(&self, command: &CommandId) {
        let mut state = self.state();
        state.running = state.running.saturating_sub(1);
        self.head(state.running, command.as_str());
    }

    /// Tells that the place is ended in order: the plane lives and looks itself.
    pub(crate) fn leave(&self) {
        self.state().running = 0;
        self.head(0, "");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, snapshot: &Snapshot) -> Option<()> {
        let table = UndoTable {
            quarantine: self.quarantine.clone(),
            names: snapshot.names.iter().map(line).collect(),
        };
        let text = table.to_bytes()?;
        self.file.set_len(UNDO_HEAD as u64).ok()?;
        self.file.write_all_at(&text, UNDO_HEAD as u64).ok()
    }

    fn head(&self, running: u64, directory: &str) {
        let _ = self
            .file
            .write_all_at(&UndoTable::head(running, directory), 0);
    }
}

fn line(name: &Name) -> UndoName {
    UndoName {
        path: name.path.as_bytes().to_vec(),
        existing: name.existing as u32,
        was: if name.undo {
            node(&name.was)
        } else {
            UndoNode::Unknown
        },
    }
}

fn node(node: &Node) -> UndoNode {
    match node {
        Node::Absent => UndoNode::Absent,
        Node::File { mode, content } => UndoNode::File {
            mode: *mode,
            content: content.as_bytes().to_vec(),
        },
        Node::Symlink { target } => UndoNode::Symlink {
            target: target.as_bytes().to_vec(),
        },
        Node::Directory { mode, entries } => UndoNode::Directory {
            mode: *mode,
            entries: entries
                .iter()
                .map(|(name, inner)| (name.as_bytes().to_vec(), self::node(inner)))
                .collect(),
        },
        Node::LargeFile { .. } | Node::Other { .. } => UndoNode::Unknown,
    }
}

/// Finds what a keeper has put back, by what it left in the quarantine.
pub(crate) fn put_back_by_keeper(snapshot: &Snapshot, quarantine: &Path) -> Vec<Change> {
    let mut lines: Vec<usize> = std::fs::read_dir(quarantine)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            note_origin_of_keeper(snapshot, quarantine, name.as_bytes());
            let rest = name.to_str()?.strip_prefix("keeper-")?;
            rest.split('-').next()?.parse().ok()
        })
        .collect();
    lines.sort_unstable();
    lines.dedup();
    let named = lines
        .into_iter()
        .filter_map(|line| snapshot.names.get(line));
    named
        .map(|name| Change {
            path: name.path.clone(),
            rule: name.rule.clone(),
            what: if name.was == Node::Absent {
                What::Created
            } else {
                What::Changed
            },
            undone: true,
        })
        .collect()
}
