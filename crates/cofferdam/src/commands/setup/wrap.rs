//! The wrap mode, in which the plain name of an agent runs it as a task.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use serde_json::json;

use super::change::{Change, listed, make, missing};
use super::{marks, shim};
use crate::arguments::setup::{Agent, SetupArguments};
use crate::context::Context;
use crate::failure::Ending;
use crate::render::{FAINT, PLACE, STRONG, paint};

/// Where scripts of the agents' names lie, below the home directory.
const SHIMS: &str = ".local/bin/cofferdam-shims";
/// The file among them that names the directories that were made for them.
const MADE: &str = ".made";

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

/// Puts the script before the agent.
pub(super) fn wrap(context: &Context, arguments: &SetupArguments) -> Ending {
    let places = Places::find(context)?;
    let wrapped = shim::wrapped(arguments.agent);
    let own = super::own_program()?;
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
        "changes": listed(&changes),
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

/// Tells whether the script of an agent is there.
pub(super) fn is_wrapped(context: &Context, agent: Agent) -> bool {
    Places::find(context)
        .is_ok_and(|places| places.shims.join(shim::wrapped(agent).program).exists())
}

/// Takes away what was written.
pub(super) fn undo(context: &Context, agent: Agent) -> Ending {
    let places = Places::find(context)?;
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
        "changes": listed(&changes),
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
