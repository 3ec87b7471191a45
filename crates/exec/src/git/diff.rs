//! The differences between two trees, as facts.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::task::{ChangeKind, DiffSummary, ModifiedFile};

use super::{Git, GitError, Repository};

const GITLINK: &[u8] = b"160000";

/// What differs between two trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TreeDiff {
    /// Every file.
    pub(crate) files: Vec<ModifiedFile>,
    /// In figures.
    pub(crate) summary: DiffSummary,
    /// Paths at which another commit of another repository stands, or a repository that is new.
    pub(crate) gitlinks: Vec<BytePath>,
}

/// Compares two trees or commits of a repository, renames found.
pub(crate) fn diff_trees(
    git: &Git,
    repository: &Repository,
    from: &str,
    to: &str,
) -> Result<TreeDiff, GitError> {
    let output = git
        .on(&repository.git_dir, &repository.top)
        .args([
            "diff-tree",
            "-r",
            "-z",
            "-M",
            "-l2000",
            "--raw",
            "--numstat",
        ])
        .args([
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=none",
            from,
            to,
            "--",
        ])
        .output()?;
    parse(&output).ok_or(GitError::Unreadable {
        command: "diff-tree",
    })
}

/// Reads raw records, then the figures, which come in the same order.
fn parse(output: &[u8]) -> Option<TreeDiff> {
    let mut diff = TreeDiff::default();
    let mut fields = output.split(|byte| *byte == 0).peekable();
    while let Some(field) = fields.next_if(|field| field.first() == Some(&b':')) {
        let mut words = field[1..].split(|byte| *byte == b' ');
        let (old_mode, new_mode) = (words.next()?, words.next()?);
        let (old_oid, new_oid) = (words.next()?, words.next()?);
        let letter = *words.next()?.first()?;
        let first = BytePath::from_bytes(fields.next()?);
        let (change, from, path) = match letter {
            b'A' => (ChangeKind::Added, None, first),
            b'D' => (ChangeKind::Deleted, None, first),
            b'R' => (
                ChangeKind::Renamed,
                Some(first),
                BytePath::from_bytes(fields.next()?),
            ),
            b'C' => (
                ChangeKind::Added,
                None,
                BytePath::from_bytes(fields.next()?),
            ),
            _ => (ChangeKind::Modified, None, first),
        };
        if new_mode == GITLINK && (old_mode != GITLINK || old_oid != new_oid) {
            diff.gitlinks.push(path.clone());
        }
        diff.files.push(ModifiedFile {
            path,
            change,
            from,
            binary: false,
            added_lines: 0,
            removed_lines: 0,
            untracked: false,
        });
    }
    let mut number = 0;
    while let Some(field) = fields.next() {
        if field.is_empty() {
            continue;
        }
        let mut words = field.splitn(3, |byte| *byte == b'\t');
        let (added, removed, mut path) = (words.next()?, words.next()?, words.next()?);
        if path.is_empty() {
            // A rename: the two paths follow.
            fields.next()?;
            path = fields.next()?;
        }
        let is_it = |file: &ModifiedFile| file.path.as_bytes() == path;
        if !diff.files.get(number).is_some_and(is_it) {
            number = diff.files.iter().position(is_it)?;
        }
        let file = diff.files.get_mut(number)?;
        number += 1;
        if added == b"-" {
            file.binary = true;
        } else {
            file.added_lines = std::str::from_utf8(added).ok()?.parse().ok()?;
            file.removed_lines = std::str::from_utf8(removed).ok()?.parse().ok()?;
        }
    }
    diff.summary = summarise(&diff.files);
    Some(diff)
}

/// Adds the figures up.
fn summarise(files: &[ModifiedFile]) -> DiffSummary {
    let count = files.len() as u64;
    let insertions = files.iter().map(|file| file.added_lines).sum();
    let deletions = files.iter().map(|file| file.removed_lines).sum();
    let text = match count {
        0 => "no changes".to_owned(),
        1 => format!("1 file changed, +{insertions} \u{2212}{deletions}"),
        _ => format!("{count} files changed, +{insertions} \u{2212}{deletions}"),
    };
    DiffSummary {
        files: count,
        insertions,
        deletions,
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renames_binaries_and_odd_names_are_read() {
        let z = "0000000";
        let output = [
            format!(
                ":100644 100644 {z} 1111111 M\0a\tb\n\0:100644 100644 {z} {z} R090\0old\0new\0"
            ),
            format!(":000000 100644 {z} 1111111 A\0bin\0:000000 160000 {z} 1111111 A\0sub\0"),
            "2\t1\ta\tb\n\0".to_owned() + "1\t0\t\0old\0new\0-\t-\tbin\0" + "1\t0\tsub\0",
        ]
        .concat();
        let diff = parse(output.as_bytes()).unwrap();
        assert_eq!(diff.gitlinks, [BytePath::from("sub")]);
        assert_eq!(diff.files[0].path, BytePath::from("a\tb\n"));
        assert_eq!(diff.files[1].from, Some(BytePath::from("old")));
        assert_eq!(
            (diff.files[1].change, diff.files[1].added_lines),
            (ChangeKind::Renamed, 1)
        );
        assert!(diff.files[2].binary);
        insta::assert_snapshot!(diff.summary.text, @"4 files changed, +4 −1");
    }
}
