//! What a task changed, command by command.
//!
//! git runs inside the walls with a private index. In the user's own checkout it has a private store of
//! objects in the enclosure's own temporary directory, too: neither the user's index nor the user's
//! repository is written. In a tree of the task's own the objects lie in its own git directory, so
//! that the state after a command can be kept there.

use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::task::{ChangeKind, DiffSummary, ModifiedFile};
use cofferdam_exec::Enclosure;

use super::words;

const TIMEOUT: Duration = Duration::from_mins(5);

/// Puts the whole tree, new files too, into a tree object and prints its id. The store may lie in
/// memory, so a file of half a GiB ends the attempt.
const SNAPSHOT: &str = r#"set -e
ulimit -f 1048576
top=$(git rev-parse --show-toplevel)
objects=$(git rev-parse --path-format=absolute --git-path objects)
index=$(git rev-parse --path-format=absolute --git-path index)
store=${TMPDIR:-/tmp}/cofferdam-measure
mkdir -p "$store"
test -e "$store/index" || { test ! -e "$index" || cp -p "$index" "$store/index"; }
export GIT_INDEX_FILE="$store/index"
if test "$1" = apart; then
  mkdir -p "$store/objects"
  export GIT_OBJECT_DIRECTORY="$store/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="$objects"
fi
cd "$top"
git -c core.hooksPath=/dev/null -c core.fsmonitor=false add --all --ignore-errors -- . 2>/dev/null || :
git write-tree
"#;

/// Prints the differences between two such trees.
const DIFFERENCE: &str = r#"set -e
objects=$(git rev-parse --path-format=absolute --git-path objects)
store=${TMPDIR:-/tmp}/cofferdam-measure
if test -d "$store/objects"; then
  export GIT_OBJECT_DIRECTORY="$store/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="$objects"
fi
exec git -c core.quotePath=false diff-tree -r -z -M --no-ext-diff --no-textconv --raw --numstat "$1" "$2"
"#;

/// Keeps a tree in the task's own git directory, from where it comes in with the task's branch.
const KEEP: &str = r#"set -e
for name in GIT_AUTHOR GIT_COMMITTER; do
  export "${name}_NAME=cofferdam" "${name}_EMAIL=cofferdam@localhost"
done
commit=$(git -c commit.gpgSign=false commit-tree -p "$2" -m "$4" "$1")
git -c core.hooksPath=/dev/null update-ref "refs/cofferdam/snapshots/$3" "$commit"
"#;

/// Where the objects of a tree are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// Apart from the repository, and gone with the enclosure.
    Apart,
    /// In the task's own git directory.
    Own,
}

/// The tree as it was at one moment, by git's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) tree: String,
    store: Store,
}

impl Snapshot {
    /// Gives another tree of the same place.
    pub(crate) const fn at(&self, tree: String) -> Self {
        Self {
            tree,
            store: self.store,
        }
    }
}

/// What changed between two moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) files: Vec<ModifiedFile>,
    pub(crate) summary: DiffSummary,
    pub(crate) tree: Option<String>,
}

fn shell(enclosure: &Enclosure, script: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let argv: Vec<BytePath> = ["/bin/sh", "-c", script, "sh"]
        .iter()
        .chain(arguments)
        .map(|word| BytePath::from(*word))
        .collect();
    let top = &enclosure.spec().workspace;
    let output = enclosure.run_quiet(&argv, &[], top, None, TIMEOUT).ok()?;
    (output.code == Some(0)).then_some(output.stdout)
}

/// Remembers the tree; `None` where there is no repository, or git cannot be run inside.
pub(crate) fn snapshot(enclosure: &Enclosure, store: Store) -> Option<Snapshot> {
    let where_to = match store {
        Store::Apart => "apart",
        Store::Own => "own",
    };
    let output = shell(enclosure, SNAPSHOT, &[where_to])?;
    let text = String::from_utf8(output).ok()?.trim().to_owned();
    let good = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    good.then_some(Snapshot { tree: text, store })
}

/// Keeps a tree under a number, as a commit on the base; what cannot be kept is not.
pub(crate) fn keep(enclosure: &Enclosure, kept: &Snapshot, base: &str, number: usize, what: &str) {
    if kept.store == Store::Own {
        let number = number.to_string();
        // The task may have made its git directory useless, which its end will tell.
        let _ = shell(enclosure, KEEP, &[&kept.tree, base, &number, what]);
    }
}

/// Compares the tree as it is with what is remembered.
pub(crate) fn since(enclosure: &Enclosure, before: &Snapshot) -> Option<Measured> {
    let after = snapshot(enclosure, before.store)?;
    let output = shell(enclosure, DIFFERENCE, &[&before.tree, &after.tree])?;
    let mut measured = parse(&output)?;
    measured.tree = Some(after.tree);
    Some(measured)
}

/// Reads `--raw --numstat -z`: first every raw entry, then the figures in the same order.
fn parse(output: &[u8]) -> Option<Measured> {
    let mut fields = output
        .split(|byte| *byte == 0)
        .filter(|field| !field.is_empty())
        .peekable();
    let mut files = Vec::new();
    while fields.peek().is_some_and(|field| field.starts_with(b":")) {
        let raw = fields.next()?;
        let status = raw.rsplit(|byte| *byte == b' ').next()?.first()?;
        let first = BytePath::from_bytes(fields.next()?);
        let (path, from, change) = match status {
            b'A' => (first, None, ChangeKind::Added),
            b'D' => (first, None, ChangeKind::Deleted),
            b'R' | b'C' => (
                BytePath::from_bytes(fields.next()?),
                Some(first),
                if *status == b'R' {
                    ChangeKind::Renamed
                } else {
                    ChangeKind::Added
                },
            ),
            _ => (first, None, ChangeKind::Modified),
        };
        files.push(ModifiedFile {
            path,
            change,
            from: from.filter(|_| change == ChangeKind::Renamed),
            binary: false,
            added_lines: 0,
            removed_lines: 0,
            untracked: false,
        });
    }
    let mut summary = DiffSummary::default();
    for file in &mut files {
        let figures = fields.next()?;
        let mut columns = figures.splitn(3, |byte| *byte == b'\t');
        let (added, removed, path) = (columns.next()?, columns.next()?, columns.next()?);
        if path.is_empty() {
            // A renamed file has both of its names in fields of their own.
            fields.next()?;
            fields.next()?;
        }
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
        match (number(added), number(removed)) {
            (Some(added), Some(removed)) => {
                file.added_lines = added;
                file.removed_lines = removed;
                summary.insertions += added;
                summary.deletions += removed;
            }
            _ => file.binary = true,
        }
    }
    summary.files = files.len() as u64;
    summary.text = words::figures(&summary);
    Some(Measured {
        files,
        summary,
        tree: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_and_figures_belong_together() {
        let output = b":100644 100644 a b M\0a.txt\0:000000 100644 0 c A\0b in\0:100644 100644 d d R100\0old\0new\0\x31\t2\ta.txt\0-\t-\tb in\0\x30\t0\t\0old\0new\0";
        let measured = parse(output).unwrap();
        let told: Vec<_> = measured
            .files
            .iter()
            .map(|file| {
                (
                    file.path.to_string(),
                    file.change,
                    file.binary,
                    file.added_lines,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("a.txt".to_owned(), ChangeKind::Modified, false, 1),
                ("b in".to_owned(), ChangeKind::Added, true, 0),
                ("new".to_owned(), ChangeKind::Renamed, false, 0),
            ]
        );
        assert_eq!(measured.files[2].from, Some("old".into()));
        assert_eq!(
            measured.summary.text,
            "3 files, 1 line added, 2 lines removed"
        );
        assert_eq!(parse(b"").unwrap().summary.files, 0);
    }
}
