//! Saving the files of a task whose own git directory is gone or of no use.
//!
//! A fresh git directory of ours takes its place: it knows the base and nothing else, so what the
//! tree holds becomes one commit on it. git runs on it inside the walls, as on the task's own.

use std::collections::HashMap;

use cofferdam_core::bytes::BytePath;

use super::harvest::Outside;
use super::inside::{GIT_DIR, Inside};
use super::populate::Parts;
use super::record::{Harvest, Unsaved, WorktreeRecord};
use super::{WorkspaceError, Workspaces, files};

impl Workspaces {
    /// Harvests the files of a tree by way of a git directory of ours; gives the record as it holds
    /// then, and what came out.
    ///
    /// Where the task's own git directory is gone, ours stays in its place. Where it is there, it is
    /// left as it is and counts as unsaved, so that the tree stays.
    pub(super) fn rescue(
        &self,
        record: &WorktreeRecord,
        inside: Inside<'_>,
        outside: &Outside<'_>,
        why: &WorkspaceError,
    ) -> Result<(WorktreeRecord, Harvest), WorkspaceError> {
        if !record.is_same_directory() {
            return Err(WorkspaceError::rejected(
                "another directory stands at its path",
            ));
        }
        // The commit of what was carried in was in the store that is lost.
        let record = WorktreeRecord {
            carried: None,
            ..record.clone()
        };
        let name = format!(".git-cofferdam-{}", record.nonce);
        let path = record.tree_path().join(&name);
        let of = Parts {
            repository: outside.repository,
            configuration: outside.configuration,
        };
        self.acting(|| {
            // What a rescue that was cut off may have left.
            let _ = files::remove_tree(&path);
            self.write_git_directory(of, &[], &record, &path)
        })?;
        let inside = Inside {
            git_dir: &name,
            ..inside
        };
        let harvest = inside
            .output(
                "reading the base",
                &["read-tree", &record.base.oid],
                &[],
                None,
            )
            .and_then(|_| self.harvest_from(&record, inside, outside, &HashMap::new()));
        let own = record.tree_path().join(GIT_DIR);
        let is_gone = own
            .symlink_metadata()
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        self.acting(|| {
            if !is_gone || harvest.is_err() || std::fs::rename(&path, &own).is_err() {
                // It holds nothing that is not in the user's repository by now.
                let _ = files::remove_tree(&path);
            }
            Ok(())
        })?;
        let mut harvest = harvest?;
        let is_ours = |path: &BytePath| path.as_bytes().starts_with(name.as_bytes());
        harvest.ignored.retain(|path| !is_ours(path));
        harvest.rescued = Some(if is_gone {
            "it removed its git directory".to_owned()
        } else {
            harvest.unsaved.push(Unsaved {
                path: GIT_DIR.into(),
                why: "the task's own git directory is of no use".to_owned(),
            });
            why.to_string()
        });
        Ok((record, harvest))
    }
}
