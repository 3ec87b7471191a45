//! The modes in which an agent's own configuration is changed, and changing it back.
//!
//! What was there before, what was written, and what was put in is noted in the data directory
//! first; the files follow. So every moment at which this may be killed can be undone.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::agents::{Edit, Target, Wish, not_covered, targets};
use super::change::{Change, listed, make, missing};
use super::document::{Document, Kind};
use super::shim;
use crate::arguments::CommandLine;
use crate::arguments::setup::{Agent, Mode, SetupArguments};
use crate::context::Context;
use crate::failure::Ending;
use crate::render::{FAINT, paint};

/// Where it is noted what was written for an agent, below the data directory.
const NOTES: &str = "setup";

/// What was written for an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    schema: u32,
    mode: String,
    files: Vec<File>,
}

/// What was written into one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    path: PathBuf,
    kind: Kind,
    /// All of it; nothing where it was not there.
    before: Option<String>,
    after: String,
    put: Vec<Put>,
    /// Objects and lists that were made for it, the outermost first.
    made: Vec<Vec<String>>,
    /// Directories that were made for it, the outermost first.
    directories: Vec<PathBuf>,
}

/// One thing that was put in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    path: Vec<String>,
    value: Value,
    /// It is one of a list.
    element: bool,
    /// What a switch was before.
    was: Option<Value>,
}

impl Put {
    fn said(&self) -> String {
        let path = self.path.join(".");
        if self.element {
            format!("add {} to {path}", self.value)
        } else {
            format!("set {path} to {}", self.value)
        }
    }
}

fn place(context: &Context, agent: Agent) -> Result<PathBuf, Problem> {
    let name = format!("{}.json", shim::wrapped(agent).name);
    Ok(context.data_dir()?.join(NOTES).join(name))
}

fn note_of(context: &Context, agent: Agent) -> Result<Option<Note>, Problem> {
    let path = place(context, agent)?;
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&path, &error)),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| unreadable(&path, &error))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(
        ErrorCode::Io,
        format!("{} cannot be read: {error}", path.display()),
    )
}

/// Tells in which mode an agent is configured.
pub(super) fn mode_of(context: &Context, agent: Agent) -> Result<Option<Mode>, Problem> {
    let note = note_of(context, agent)?;
    Ok(note.map(|note| {
        if note.mode == Mode::Hook.as_str() {
            Mode::Hook
        } else {
            Mode::Mcp
        }
    }))
}

fn read(path: &Path) -> Result<Option<String>, Problem> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| unreadable(path, &"it is no UTF-8"))
}

/// Puts an agent's configuration into a mode.
pub(super) fn configure(context: &Context, arguments: &SetupArguments, mode: Mode) -> Ending {
    let agent = arguments.agent;
    let name = shim::wrapped(agent).name;
    check_walls(&arguments.walls)?;
    let own = super::own_program()?;
    let wish = Wish {
        agent,
        mode,
        own: super::plain_path(&own)?,
        walls: &arguments.walls,
        data_dir: context
            .other_data_dir()?
            .map(|place| super::plain_path(&place).map(str::to_owned))
            .transpose()?,
        allow: arguments.yes,
    };
    let targets = targets(context, &wish)?;
    let is_done = match note_of(context, agent)? {
        None => false,
        Some(note) if note.mode == mode.as_str() && stands(&note, &targets)? => true,
        Some(note) => {
            return Err(Problem::new(
                ErrorCode::FileConflict,
                format!(
                    "{name} is set up with --mode {} already, in another way",
                    note.mode
                ),
            )
            .with_hint(format!("cofferdam setup {name} --undo, then again"))
            .into());
        }
    };
    let changes = if is_done {
        Vec::new()
    } else {
        let files = targets
            .iter()
            .map(plan)
            .collect::<Result<Vec<File>, Problem>>()?;
        write(context, agent, mode, files)?
    };
    let not_covered = not_covered(&wish);
    let value = json!({
        "agent": name,
        "mode": mode.as_str(),
        "changes": listed(&changes),
        "asks": !wish.allow,
        "not_covered": not_covered,
    });
    context.output.result(&value, |_| {
        let how = match mode {
            Mode::Hook => "its commands go through a session of ours",
            Mode::Mcp | Mode::Wrap => "its own tools are off, and ours are offered",
        };
        let already = if is_done { " already" } else { "" };
        let mut text = format!("{name} is set up{already}: {how}\n");
        text.push_str("It holds for every run of it that begins from now on.\n");
        if !wish.allow {
            text.push_str("It asks as it did before; with --yes it does not ask about what goes through the walls.\n");
        }
        text.push_str("\nNot covered:\n");
        for one in &not_covered {
            let _ = writeln!(text, "  {}", paint(FAINT, one));
        }
        text.push_str(&crate::render::task::next(&[
            "cofferdam policy explain".to_owned(),
            format!("cofferdam setup {name} --undo"),
        ]));
        text
    })?;
    Ok(exit::SUCCESS)
}

/// Refuses flags that `cofferdam mcp` would refuse: the agent would only see that it does not start.
fn check_walls(walls: &[String]) -> Result<(), Problem> {
    let words = ["cofferdam", "mcp"]
        .into_iter()
        .chain(walls.iter().map(String::as_str));
    CommandLine::try_parse_from(words)
        .map(drop)
        .map_err(|error| {
            let said = error.to_string();
            let first = said.lines().next().unwrap_or_default();
            Problem::new(
                ErrorCode::InvalidRequest,
                first.trim_start_matches("error: ").to_owned(),
            )
            .with_field("walls")
            .with_hint("behind -- stand flags of `cofferdam mcp`, see cofferdam mcp --help")
        })
}

/// Tells whether everything that would be put in stands where it was put.
fn stands(note: &Note, targets: &[Target]) -> Result<bool, Problem> {
    for target in targets {
        let Some(text) = read(&target.path)? else {
            return Ok(false);
        };
        if let Some(whole) = &target.whole {
            if *whole != text {
                return Ok(false);
            }
            continue;
        }
        let document = parse(&target.path, target.kind, &text)?;
        for edit in &target.edits {
            let is_there = match edit {
                Edit::Own(path, value) | Edit::Switch(path, value) => {
                    document.get(path).as_ref() == Some(value)
                }
                Edit::Element(path, value) => document.holds(path, value),
                Edit::Last(path, value) => {
                    let there = document.get(path);
                    is_same(there.as_ref(), &with_last(there.as_ref(), value))
                }
            };
            if !is_there {
                return Ok(false);
            }
        }
    }
    // And nothing else than that, such as another flag of before.
    let is_meant = |file: &File, put: &Put| {
        targets.iter().any(|target| {
            target.path == file.path && target.edits.iter().any(|edit| edit.path() == put.path)
        })
    };
    Ok(note
        .files
        .iter()
        .all(|file| file.put.iter().all(|put| is_meant(file, put))))
}

fn parse(path: &Path, kind: Kind, text: &str) -> Result<Document, Problem> {
    Document::read(kind, text).map_err(|why| {
        Problem::new(
            ErrorCode::InvalidRequest,
            format!("{} is not understood: {why}", path.display()),
        )
        .with_hint("mend it first; nothing was changed")
    })
}

/// Compares with the order of fields, which counts here.
fn is_same(left: Option<&Value>, right: &Value) -> bool {
    let text = |value: &Value| serde_json::to_string(value).unwrap_or_default();
    left.is_some_and(|left| text(left) == text(right))
}

/// Puts switches behind all others; the order of an object counts.
fn with_last(was: Option<&Value>, switches: &Value) -> Value {
    let mut all = match was {
        Some(Value::Object(fields)) => fields.clone(),
        Some(other) => serde_json::Map::from_iter([("*".to_owned(), other.clone())]),
        None => serde_json::Map::new(),
    };
    for (name, value) in switches.as_object().into_iter().flatten() {
        all.shift_remove(name);
        all.insert(name.clone(), value.clone());
    }
    Value::Object(all)
}

/// Finds what one file becomes.
fn plan(target: &Target) -> Result<File, Problem> {
    let before = read(&target.path)?;
    let conflict = |what: String| {
        Problem::new(
            ErrorCode::FileConflict,
            format!("{} {what}", target.path.display()),
        )
        .with_hint("take it out first; nothing was changed")
    };
    let mut file = File {
        path: target.path.clone(),
        kind: target.kind,
        before: before.clone(),
        after: String::new(),
        put: Vec::new(),
        made: Vec::new(),
        directories: target.path.parent().map(missing).unwrap_or_default(),
    };
    if let Some(whole) = &target.whole {
        if before.is_some() {
            return Err(conflict("is there already".to_owned()));
        }
        file.after.clone_from(whole);
        return Ok(file);
    }
    let mut document = parse(&target.path, target.kind, before.as_deref().unwrap_or(""))?;
    for edit in &target.edits {
        let path = edit.path();
        let was = document.get(path);
        let last;
        let (value, element, is_there) = match edit {
            Edit::Own(_, value) => {
                if was.is_some() {
                    return Err(conflict(format!("has {} of its own", path.join("."))));
                }
                (value, false, false)
            }
            Edit::Switch(_, value) => (value, false, was.as_ref() == Some(value)),
            Edit::Element(_, value) => (value, true, document.holds(path, value)),
            Edit::Last(_, value) => {
                last = with_last(was.as_ref(), value);
                (&last, false, is_same(was.as_ref(), &last))
            }
        };
        if is_there {
            continue;
        }
        let parents = if element { path.len() } else { path.len() - 1 };
        for end in 1..=parents {
            let container = path[..end].to_vec();
            if document.get(&container).is_none() && !file.made.contains(&container) {
                file.made.push(container);
            }
        }
        let is_put = if element {
            document.append(path, value)
        } else {
            document.set(path, value)
        };
        if !is_put {
            let path = path.join(".");
            return Err(conflict(format!(
                "has something else where {path} would stand"
            )));
        }
        file.put.push(Put {
            path: path.to_vec(),
            value: value.clone(),
            element,
            was: was.filter(|_| !element),
        });
    }
    file.after = document.text();
    Ok(file)
}

fn write(
    context: &Context,
    agent: Agent,
    mode: Mode,
    files: Vec<File>,
) -> Result<Vec<Change>, Problem> {
    let changes: Vec<Change> = files
        .iter()
        .filter(|file| file.before.as_ref() != Some(&file.after))
        .map(|file| Change::Write {
            path: file.path.clone(),
            content: file.after.clone().into_bytes(),
            what: if file.kind == Kind::Whole {
                format!(
                    "write it:\n    {}",
                    file.after.trim_end().replace('\n', "\n    ")
                )
            } else {
                file.put
                    .iter()
                    .map(Put::said)
                    .collect::<Vec<_>>()
                    .join("\n    ")
            },
        })
        .collect();
    let note = Note {
        schema: 1,
        mode: mode.as_str().to_owned(),
        files,
    };
    keep(context, agent, &note)?;
    make(context, &changes)?;
    Ok(changes)
}

/// Notes in the data directory what is about to be written.
fn keep(context: &Context, agent: Agent, note: &Note) -> Result<(), Problem> {
    let path = place(context, agent)?;
    let failed = |error: std::io::Error| {
        Problem::new(
            ErrorCode::Io,
            format!("{} cannot be written: {error}", path.display()),
        )
    };
    cofferdam_journal::DataDir::open(context.data_dir()?).map_err(|error| error.to_problem())?;
    let directory = path.parent().unwrap_or(&path);
    fs::create_dir_all(directory).map_err(failed)?;
    let text = serde_json::to_vec_pretty(note).map_err(|error| failed(error.into()))?;
    // Whole or not at all; readable by nobody else, as what it holds may be secret.
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    std::io::Write::write_all(&mut file, &text).map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Says that there is nothing to take away.
pub(super) fn nothing_to_undo(context: &Context, agent: Agent, mode: Mode) -> Ending {
    let name = shim::wrapped(agent).name;
    let value = json!({"agent": name, "mode": mode.as_str(), "changes": []});
    context.output.result(&value, |_| {
        format!(
            "{name} is not set up with --mode {}: nothing to take away\n",
            mode.as_str()
        )
    })?;
    Ok(exit::SUCCESS)
}

/// Puts back what was there.
pub(super) fn undo(context: &Context, agent: Agent, mode: Mode) -> Ending {
    let Some(note) = note_of(context, agent)? else {
        return nothing_to_undo(context, agent, mode);
    };
    // All of it is known before the first is changed.
    let mut changes = Vec::new();
    let mut refused = Vec::new();
    let mut kept = Vec::new();
    for file in &note.files {
        match back(file)? {
            Back::Same => {}
            Back::Before(change) => changes.push(change),
            Back::Only(change) => {
                kept.push(file.path.clone());
                changes.push(change);
            }
            Back::Changed(what) => refused.push(what),
        }
        changes.extend(
            file.directories
                .iter()
                .rev()
                .cloned()
                .map(Change::RemoveDirectory),
        );
    }
    if !refused.is_empty() {
        return Err(Problem::new(
            ErrorCode::FileConflict,
            format!("somebody has changed it meanwhile: {}", refused.join("; ")),
        )
        .with_hint(format!(
            "take it out yourself; what was there before is in {}",
            place(context, agent)?.display()
        ))
        .into());
    }
    make(context, &changes)?;
    let path = place(context, agent)?;
    fs::remove_file(&path).map_err(|error| {
        Problem::new(
            ErrorCode::Io,
            format!("{} cannot be removed: {error}", path.display()),
        )
    })?;
    // Where it is the last one.
    let _ = path.parent().map(fs::remove_dir);
    let name = shim::wrapped(agent).name;
    let value = json!({
        "agent": name,
        "mode": mode.as_str(),
        "changes": listed(&changes),
        "changed_meanwhile": kept,
    });
    context
        .output
        .result(&value, |_| {
            let mut text = format!("{name} is as it was before\n");
            for path in &kept {
                let _ = writeln!(
                    text,
                    "{} was changed meanwhile: only what setup had put in was taken out",
                    path.display()
                );
            }
            text
        })
        .map(|()| exit::SUCCESS)
}

/// What becomes of one file.
enum Back {
    /// It is as it was.
    Same,
    /// It becomes what it was, to the byte.
    Before(Change),
    /// Somebody else changed it: only what was put in is taken out.
    Only(Change),
    /// Somebody changed what was put in.
    Changed(String),
}

fn back(file: &File) -> Result<Back, Problem> {
    let now = read(&file.path)?;
    if now == file.before {
        return Ok(Back::Same);
    }
    let Some(now) = now else {
        // Nothing of ours is there any more.
        return Ok(Back::Same);
    };
    if now == file.after {
        return Ok(Back::Before(match &file.before {
            None => Change::Remove(file.path.clone()),
            Some(before) => Change::Write {
                path: file.path.clone(),
                content: before.clone().into_bytes(),
                what: "put back what was there".to_owned(),
            },
        }));
    }
    let shown = file.path.display();
    if file.kind == Kind::Whole {
        return Ok(Back::Changed(format!("{shown} is another")));
    }
    let mut document = match parse(&file.path, file.kind, &now) {
        Ok(document) => document,
        Err(problem) => return Ok(Back::Changed(problem.message)),
    };
    let mut taken = Vec::new();
    for put in &file.put {
        let path = put.path.join(".");
        if put.element {
            if document.holds(&put.path, &put.value) {
                document.take_out(&put.path, &put.value);
                taken.push(format!("take {} out of {path}", put.value));
            }
            continue;
        }
        match document.get(&put.path) {
            // Somebody took it out already.
            None => {}
            Some(value) if value == put.value => {
                if let Some(was) = &put.was {
                    document.set(&put.path, was);
                    taken.push(format!("put {path} back to {was}"));
                } else {
                    document.remove(&put.path);
                    taken.push(format!("take {path} out"));
                }
            }
            Some(value) => return Ok(Back::Changed(format!("{shown} has {path} = {value}"))),
        }
    }
    for made in file.made.iter().rev() {
        let is_empty = match document.get(made) {
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(fields)) => fields.is_empty(),
            _ => false,
        };
        if is_empty {
            document.remove(made);
        }
    }
    if taken.is_empty() {
        return Ok(Back::Same);
    }
    Ok(Back::Only(Change::Write {
        path: file.path.clone(),
        content: document.text().into_bytes(),
        what: taken.join("\n    "),
    }))
}
