//! `setup`: the wrap mode, in which the plain name of an agent runs it as a task.

mod marks;
mod shim;

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::outcome::Status;
use serde_json::json;

use crate::arguments::review::{Agent, SetupArguments};
use crate::context::Context;
use crate::failure::Ending;
use crate::launch;
use crate::render::{FAINT, PLACE, STRONG, paint};

/// Where scripts of the agents' names lie, below the home directory.
const SHIMS: &str = ".local/bin/cofferdam-shims";
/// The file among them that names the directories that were made for them.
const MADE: &str = ".made";

/// One change, printed before it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
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

/// Where things lie for this user.
#[derive(Debug)]
struct Places {
    home: PathBuf,
    shims: PathBuf,
    /// The start-up file of the user's shell, and how that shell says where programs are.
    start_up: (PathBuf, marks::Shell),
    /// Every start-up file into which a line may have been put.
    all_start_up: Vec<PathBuf>,
}

impl Places {
    fn find(context: &Context) -> Result<Self, Problem> {
        let home = context.home().ok_or_else(|| {
            Problem::new(ErrorCode::InvalidRequest, "there is no home directory")
                .with_hint("set HOME")
        })?;
        let directory = |name: &str, other: PathBuf| {
            let named = context.variable(name).map(PathBuf::from);
            named.filter(|path| path.is_absolute()).unwrap_or(other)
        };
        let zsh = directory("ZDOTDIR", home.clone()).join(".zshrc");
        let fish = directory("XDG_CONFIG_HOME", home.join(".config")).join("fish/config.fish");
        let bash = home.join(".bashrc");
        let other = home.join(".profile");
        let shell = context.variable("SHELL").map(Path::new);
        let start_up = match shell.and_then(Path::file_name).map(OsStr::as_bytes) {
            Some(b"zsh") => (zsh.clone(), marks::Shell::Posix),
            Some(b"fish") => (fish.clone(), marks::Shell::Fish),
            Some(b"bash") => (bash.clone(), marks::Shell::Posix),
            _ => (other.clone(), marks::Shell::Posix),
        };
        Ok(Self {
            shims: home.join(SHIMS),
            home,
            start_up,
            all_start_up: vec![bash, zsh, fish, other],
        })
    }

    fn line(&self) -> String {
        self.start_up.1.line(&self.shims)
    }
}

/// Carries out `setup`.
pub(crate) fn setup(context: &Context, arguments: &SetupArguments) -> Ending {
    let places = Places::find(context)?;
    if arguments.undo {
        return undo(context, &places, arguments.agent);
    }
    let wrapped = shim::wrapped(arguments.agent);
    let own = std::env::current_exe().map_err(|error| {
        Problem::new(
            ErrorCode::Internal,
            format!("this program does not know where it lies: {error}"),
        )
    })?;
    let path = places.shims.join(wrapped.program);
    let content = shim::script(&wrapped, &own)?;
    let mut changes = Vec::new();
    match fs::read_to_string(&path) {
        Ok(there) if there == content => {}
        Ok(there) if !shim::is_ours(&there) => return Err(foreign(&path).into()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(foreign(&path).into());
        }
        _ => changes.push(Change::Script { path, content }),
    }
    if !places.shims.exists() {
        let made: String = missing(&places.shims)
            .iter()
            .map(|path| format!("{}\n", path.display()))
            .collect();
        changes.insert(
            0,
            Change::Write {
                path: places.shims.join(MADE),
                content: made.into_bytes(),
                what: "note which directories are made, so that --undo removes them".to_owned(),
            },
        );
    }
    if arguments.yes {
        changes.extend(start_up_change(&places)?);
    }
    make(context, &changes)?;
    let in_path = is_in_path(context, &places.shims);
    let line = places.line();
    let not_covered = shim::not_covered(&wrapped);
    let value = json!({
        "agent": wrapped.program,
        "changes": changes.iter().map(|change| json!({"path": change.path(), "what": change.to_string()})).collect::<Vec<_>>(),
        "path_line": line,
        "in_path": in_path,
        "not_covered": not_covered,
    });
    context.output.result(&value, |_| {
        let mut text = if changes.is_empty() {
            format!("{} is wrapped already\n", wrapped.program)
        } else {
            format!("{} is wrapped\n", wrapped.program)
        };
        if arguments.yes {
            text.push_str("\nIt holds in every shell that is started from now on.\n");
        } else if !in_path {
            let _ = writeln!(
                text,
                "\nIt holds once this line is in {} (or run setup again with --yes):\n\n    {}",
                paint(PLACE, places.start_up.0.display()),
                paint(STRONG, &line),
            );
        }
        text.push_str("\nNot covered:\n");
        for one in &not_covered {
            let _ = writeln!(text, "  {}", paint(FAINT, one));
        }
        text.push_str(&crate::render::task::next(&[
            format!("COFFERDAM_WRAP=off {}", wrapped.program),
            format!("cofferdam setup {} --undo", wrapped.name),
        ]));
        text
    })?;
    Ok(exit::SUCCESS)
}

/// Gives the change of the start-up file, unless the line is there.
fn start_up_change(places: &Places) -> Result<Option<Change>, Problem> {
    let (path, _) = &places.start_up;
    let there = match fs::read(path) {
        Ok(there) => Some(there),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(Problem::new(
                ErrorCode::Io,
                format!("{} cannot be read: {error}", path.display()),
            ));
        }
    };
    let line = places.line();
    Ok(
        marks::with_block(there.as_deref(), &line).map(|content| Change::Write {
            path: path.clone(),
            content,
            what: format!("add between two marks at its end: {line}"),
        }),
    )
}

fn undo(context: &Context, places: &Places, agent: Agent) -> Ending {
    let wrapped = shim::wrapped(agent);
    let path = places.shims.join(wrapped.program);
    let mut changes = Vec::new();
    match fs::read_to_string(&path) {
        Ok(there) if shim::is_ours(&there) => changes.push(Change::Remove(path.clone())),
        Ok(_) => return Err(foreign(&path).into()),
        Err(_) => {}
    }
    let others = others(&places.shims, wrapped.program);
    if others.is_empty() {
        for file in &places.all_start_up {
            let Ok(there) = fs::read(file) else { continue };
            match marks::without_block(&there) {
                marks::Without::Same => {}
                marks::Without::Gone => changes.push(Change::Remove(file.clone())),
                marks::Without::Text(content) => changes.push(Change::Write {
                    path: file.clone(),
                    content,
                    what: "take away what stands between the marks".to_owned(),
                }),
            }
        }
        if let Ok(made) = fs::read_to_string(places.shims.join(MADE)) {
            changes.push(Change::Remove(places.shims.join(MADE)));
            // The innermost first, and nothing outside of the home directory.
            let mut directories: Vec<PathBuf> = made.lines().map(PathBuf::from).collect();
            directories.sort();
            changes.extend(
                directories
                    .into_iter()
                    .rev()
                    .filter(|path| places.shims.starts_with(path) && path.starts_with(&places.home))
                    .map(Change::RemoveDirectory),
            );
        }
    }
    make(context, &changes)?;
    let value = json!({
        "agent": wrapped.program,
        "changes": changes.iter().map(|change| json!({"path": change.path(), "what": change.to_string()})).collect::<Vec<_>>(),
        "still_wrapped": others,
    });
    context.output.result(&value, |_| {
        if changes.is_empty() {
            return format!("{} is not wrapped: nothing to take away\n", wrapped.program);
        }
        let mut text = format!("{} is as it was before\n", wrapped.program);
        if !others.is_empty() {
            let _ = writeln!(
                text,
                "still wrapped, so the line for PATH stays: {}",
                others.join(", ")
            );
        }
        text
    })?;
    Ok(exit::SUCCESS)
}

/// Lists the other scripts that lie there.
fn others(shims: &Path, program: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(shims) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != program && name != MADE)
        .collect();
    names.sort();
    names
}

/// Lists the directories that have to be made for one, the outermost first.
fn missing(directory: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = directory
        .ancestors()
        .take_while(|path| !path.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

fn is_in_path(context: &Context, shims: &Path) -> bool {
    context
        .variable("PATH")
        .is_some_and(|path| std::env::split_paths(path).any(|one| one == shims))
}

fn foreign(path: &Path) -> Problem {
    Problem::new(
        ErrorCode::InvalidRequest,
        format!("{} was not written by `cofferdam setup`", path.display()),
    )
    .with_hint("move it away first")
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
fn make(context: &Context, changes: &[Change]) -> Result<(), Problem> {
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
