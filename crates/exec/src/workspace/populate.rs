//! What a task's tree is filled with: a git directory of its own, and the files of its base.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::borrow::borrow_objects;
use super::gitdir::{GitDirectory, MARKER};
use super::store::marker_text;
use super::{WorkspaceError, Workspaces, WorktreeRecord, files};
use crate::git::{Configuration, Reference, Repository};

/// A checkout of a large tree takes its time.
pub(super) const CHECKOUT: Duration = Duration::from_hours(1);

/// The user's repository and its configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) repository: &'a Repository,
    pub(crate) configuration: &'a Configuration,
}

impl Workspaces {
    /// Writes a git directory for a task's tree to a path where nothing stands yet.
    pub(super) fn write_git_directory(
        &self,
        of: Parts<'_>,
        references: &[Reference],
        record: &WorktreeRecord,
        git_dir: &Path,
    ) -> Result<(), WorkspaceError> {
        let (repository, configuration) = (of.repository, of.configuration);
        let places = self.places(&record.repository);
        let borrowed = borrow_objects(&places, "objects", &repository.objects)?;
        let read = |path: PathBuf| std::fs::read(path).ok();
        let sparse = configuration
            .is_on("core.sparsecheckout")
            .then(|| read(repository.git_dir.join("info/sparse-checkout")))
            .flatten();
        let branch = record.branch_reference();
        let paths: Vec<&Path> = borrowed.iter().map(PathBuf::as_path).collect();
        let others = |one: &&Reference| !one.name.starts_with("refs/heads/cofferdam/");
        let references: Vec<Reference> = references.iter().filter(others).cloned().collect();
        let attributes = read(repository.common_dir.join("info/attributes"));
        let shallow = read(repository.common_dir.join("shallow"));
        let mut exclude = self.excludes(of);
        if let Some(name) = git_dir.file_name().filter(|name| *name != ".git") {
            exclude.push(b'/');
            exclude.extend_from_slice(name.as_bytes());
            exclude.push(b'\n');
        }
        let directory = GitDirectory {
            borrowed: &paths,
            object_format: &repository.object_format,
            configuration,
            references: &references,
            head: &format!("ref: {branch}"),
            branch: Some((&branch, &record.base.oid)),
            exclude: &exclude,
            attributes: attributes.as_deref(),
            sparse: sparse.as_deref(),
            shallow: shallow.as_deref(),
            work_tree: None,
        };
        directory
            .write(git_dir)
            .map_err(WorkspaceError::file("writing git directory", git_dir))?;
        let marker = git_dir.join(MARKER);
        std::fs::write(&marker, marker_text(record))
            .map_err(WorkspaceError::file("writing the marker", &marker))
    }

    /// What the user's checkout ignores beyond its `.gitignore` files is ignored in the tree too.
    fn excludes(&self, of: Parts<'_>) -> Vec<u8> {
        let mut text = Vec::new();
        let global =
            of.configuration
                .text("core.excludesfile")
                .map(|path| match path.strip_prefix("~/") {
                    Some(rest) => self.git.home().join(rest),
                    None => PathBuf::from(path),
                });
        let global = global.unwrap_or_else(|| self.git.default_excludes());
        for path in [global, of.repository.common_dir.join("info/exclude")] {
            if let Ok(content) = std::fs::read(path) {
                text.extend_from_slice(&content);
                text.push(b'\n');
            }
        }
        text
    }

    /// Fills a tree with the files of its branch.
    pub(super) fn check_out(
        &self,
        configuration: &Configuration,
        tree: &Path,
    ) -> Result<(), WorkspaceError> {
        let call = self
            .git
            .on(&tree.join(".git"), tree)
            .args(["read-tree", "-m", "-u", "HEAD"]);
        without_filters(call, configuration)
            .timeout(CHECKOUT)
            .output()?;
        Ok(())
    }
}

/// Puts filter drivers off for a call: a smudge program that is missing, or one that would fetch,
/// has no say about whether a tree can be made.
pub(super) fn without_filters<'a>(
    mut call: crate::git::GitCall<'a>,
    configuration: &Configuration,
) -> crate::git::GitCall<'a> {
    for name in configuration.names("filter") {
        for (key, value) in [
            ("smudge", ""),
            ("process", ""),
            ("clean", ""),
            ("required", "false"),
        ] {
            call = call.setting(format!("filter.{name}.{key}={value}"));
        }
    }
    call
}

/// Looks at a tree that was just made: what git reported is not taken for granted.
pub(super) fn verify(
    record: &WorktreeRecord,
    configuration: &Configuration,
) -> Result<(), WorkspaceError> {
    let tree = record.tree_path();
    let wrong = |why: &str| {
        Err(WorkspaceError::NotAsMade {
            path: tree.to_path_buf(),
            why: why.to_owned(),
        })
    };
    let head = std::fs::read(tree.join(".git/HEAD")).unwrap_or_default();
    if head != format!("ref: {}\n", record.branch_reference()).into_bytes() {
        return wrong("its HEAD is not on the task's branch");
    }
    let Ok(mut index) = File::open(tree.join(".git/index")) else {
        return wrong("it has no index");
    };
    let mut header = [0; 12];
    if std::io::Read::read_exact(&mut index, &mut header).is_err() || &header[..4] != b"DIRC" {
        return wrong("its index cannot be read");
    }
    let entries = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let sparse = configuration.is_on("core.sparsecheckout");
    let has_files = files::holds_more_than(tree, ".git").unwrap_or(false);
    if entries > 0 && !sparse && !has_files {
        return wrong("its files are not there");
    }
    Ok(())
}
