//! Changes of a user's files, said before they are made.

use std::fmt;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::outcome::Status;
use serde_json::{Value, json};

use crate::context::Context;
use crate::launch;

/// One change, printed before it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Writes a file that is executed.
    Script { path: PathBuf, content: String },
    /// Writes or replaces a file, with its mode as it is.
    Write {
        path: PathBuf,
        content: Vec<u8>,
        what: String,
    },
    /// Removes a file of ours.
    Remove(PathBuf),
    /// Removes a directory of ours, when nothing is in it.
    RemoveDirectory(PathBuf),
}

impl Change {
    fn path(&self) -> &Path {
        match self {
            Self::Script { path, .. }
            | Self::Write { path, .. }
            | Self::Remove(path)
            | Self::RemoveDirectory(path) => path,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path().display();
        match self {
            Self::Script { content, .. } => {
                write!(formatter, "write {path}:")?;
                content
                    .lines()
                    .try_for_each(|line| write!(formatter, "\n    {line}"))
            }
            Self::Write { what, .. } => write!(formatter, "change {path}: {what}"),
            Self::Remove(_) => write!(formatter, "remove {path}"),
            Self::RemoveDirectory(_) => write!(formatter, "remove the empty directory {path}"),
        }
    }
}

/// Lists the directories that have to be made for one, the outermost first.
pub(super) fn missing(directory: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = directory
        .ancestors()
        .take_while(|path| !path.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

/// Lists changes for programs.
pub(super) fn listed(changes: &[Change]) -> Value {
    changes
        .iter()
        .map(|change| json!({"path": change.path(), "what": change.to_string()}))
        .collect()
}

/// Writes a file with a mode, by way of another that takes its place.
const SCRIPT: &str = r#"set -e
mkdir -p "$(dirname "$1")"
trap 'rm -f "$1.cofferdam-new"' EXIT
cat >"$1.cofferdam-new"
chmod 755 "$1.cofferdam-new"
mv -f "$1.cofferdam-new" "$1""#;
/// The same with the mode and owner of the file that is there, where it really lies.
const WRITE: &str = r#"set -e
mkdir -p "$(dirname "$1")"
to=$(readlink -f "$1")
trap 'rm -f "$to.cofferdam-new"' EXIT
if test -e "$to"; then cp -p "$to" "$to.cofferdam-new"; fi
cat >"$to.cofferdam-new"
mv -f "$to.cofferdam-new" "$to""#;

/// Prints each change, then makes it.
pub(super) fn make(context: &Context, changes: &[Change]) -> Result<(), Problem> {
    for change in changes {
        context.output.note(&change.to_string());
        let (script, input) = match change {
            Change::Script { content, .. } => (SCRIPT, content.clone().into_bytes()),
            Change::Write { content, .. } => (WRITE, content.clone()),
            Change::Remove(_) => ("rm -f \"$1\"", Vec::new()),
            // One that holds something by now stays.
            Change::RemoveDirectory(_) => ("rmdir \"$1\" 2>/dev/null || :", Vec::new()),
        };
        let words = ["/bin/sh", "-c", script, "sh"]
            .into_iter()
            .map(BytePath::from)
            .chain([BytePath::from(change.path())])
            .collect();
        let outcome = launch::without_walls(context, words, Some(input))?;
        if outcome.status != Status::Completed {
            let why = outcome.output.trim().to_owned();
            return Err(Problem::new(
                ErrorCode::Io,
                format!("{} cannot be changed", change.path().display()),
            )
            .with_hint(why));
        }
    }
    Ok(())
}
