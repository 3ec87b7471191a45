//! What commands over a protocol changed in a checkout, command by command.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, EventFilter, event_type};
use cofferdam_core::limits;
use cofferdam_core::spec::Network;
use cofferdam_core::task::ChangeKind;
use cofferdam_journal::Query;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::reading::text;
use crate::host::PolicyRequest;
use crate::runtime::Runtime;

/// What commands changed in a checkout, as far as its snapshots reach back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandsReview {
    /// The top of the checkout.
    pub top: BytePath,
    /// The session whose commands alone are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Every command that changed something, oldest first.
    pub commands: Vec<CommandChange>,
    /// Every file that was changed, with the commands that did, oldest first.
    pub files: Vec<FileCommands>,
    /// The next commands.
    pub next: Vec<String>,
}

/// What one command changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandChange {
    /// Its id.
    pub command_id: String,
    /// What ran, one line.
    pub command: String,
    /// Its session, where it ran in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// When that was noted.
    pub time: Timestamp,
    /// How many commands ran while it was changed: where it is more than one, it may be another's.
    pub commands_at_once: u64,
    /// The files.
    pub files: Vec<ChangedName>,
    /// The snapshot of the files before.
    pub before: String,
    /// The snapshot of the files after.
    pub after: String,
    /// Position of the event that says it.
    pub pos: u64,
}

/// A file that a command changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedName {
    /// Its path, below the top.
    pub path: String,
    /// What happened to it.
    pub change: ChangeKind,
    /// Its name before, where it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// A file and the commands that changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileCommands {
    /// Its path, below the top.
    pub path: String,
    /// The commands, oldest first.
    pub commands: Vec<String>,
}

impl Runtime {
    /// Tells which command over a protocol changed which file of the checkout around a directory, of
    /// those whose snapshots are still there; of one session where one is named.
    ///
    /// # Errors
    ///
    /// `session_unknown`; when there is no repository, git fails, or the journal cannot be read.
    pub fn review_commands(
        &self,
        directory: &Path,
        session: Option<&str>,
    ) -> Result<CommandsReview, Problem> {
        let policy = PolicyRequest {
            workspace: Some(directory.to_owned()),
            ..PolicyRequest::default()
        };
        let resolved = self.look(&policy, Network::None, None)?;
        let top = resolved.facts.workspace.root.clone();
        let session_id = session.map(|name| self.session_of(name)).transpose()?;
        let known: HashMap<String, String> = self
            .snapshots(directory)?
            .into_iter()
            .map(|one| (one.name, one.oid))
            .collect();
        let mut commands = Vec::new();
        self.backwards(event_type::FILE_CHANGED, |event| {
            let data = &event.data;
            if text(data, &["top"]).as_deref() != Some(top.to_text().as_ref()) {
                return true;
            }
            let Some(change) = change(event) else {
                return true;
            };
            let is_there = known.get(&change.after) == text(data, &["after_oid"]).as_ref();
            let is_meant = session_id.is_none() || session_id == change.session_id;
            if is_there && is_meant {
                commands.push(change);
            }
            // Older ones than the oldest snapshot are gone too.
            is_there || commands.is_empty()
        })?;
        commands.reverse();
        let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for one in &commands {
            for file in &one.files {
                let by = files.entry(file.path.clone()).or_default();
                if by.last() != Some(&one.command_id) {
                    by.push(one.command_id.clone());
                }
            }
        }
        let next = match (commands.first(), commands.last()) {
            (Some(first), Some(last)) => vec![
                format!("cofferdam undo {}", last.before),
                format!("cofferdam undo {}", first.before),
                "cofferdam undo --list".to_owned(),
            ],
            _ => Vec::new(),
        };
        let mut next = next;
        next.dedup();
        Ok(CommandsReview {
            top,
            session_id,
            commands,
            files: files
                .into_iter()
                .map(|(path, commands)| FileCommands { path, commands })
                .collect(),
            next,
        })
    }

    /// Finds the session that a text names, also one that has ended; the newest of that name.
    fn session_of(&self, name: &str) -> Result<String, Problem> {
        let mut found = None;
        self.backwards(event_type::SESSION_OPENED, |event| {
            let id = text(&event.data, &["session_id"]);
            let is_it = [id.clone(), text(&event.data, &["name"])]
                .iter()
                .any(|one| one.as_deref() == Some(name));
            if is_it {
                found = id;
            }
            !is_it
        })?;
        found.ok_or_else(|| {
            Problem::new(
                ErrorCode::SessionUnknown,
                format!("there was no session {name:?}"),
            )
            .with_field("session")
            .with_hint("`cofferdam review --commands` shows those of all sessions")
        })
    }

    /// Reads events of one kind, the newest first, for as long as somebody wants more.
    fn backwards(
        &self,
        kind: &str,
        mut wants_more: impl FnMut(&Event) -> bool,
    ) -> Result<(), Problem> {
        let filter = EventFilter {
            event_type: Some(kind.to_owned()),
            ..EventFilter::default()
        };
        let mut query = Query::of(filter)
            .backward()
            .limit(limits::PAGE_EVENTS_CAP)
            .resolved();
        loop {
            let page = self
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            for event in &page.events {
                if !wants_more(event) {
                    return Ok(());
                }
            }
            match page.next() {
                Some(pos) => query.after = Some(pos),
                None => return Ok(()),
            }
        }
    }
}

fn change(event: &Event) -> Option<CommandChange> {
    let data = &event.data;
    Some(CommandChange {
        command_id: text(data, &["command_id"])?,
        command: text(data, &["command"]).unwrap_or_default(),
        session_id: text(data, &["session_id"]),
        time: event.time,
        commands_at_once: data
            .get("commands_at_once")
            .and_then(Value::as_u64)
            .unwrap_or(1),
        files: names(data),
        before: text(data, &["before"])?,
        after: text(data, &["after"])?,
        pos: event.pos,
    })
}

fn names(data: &Value) -> Vec<ChangedName> {
    let kinds = [
        ("added", ChangeKind::Added),
        ("modified", ChangeKind::Modified),
        ("deleted", ChangeKind::Deleted),
        ("renamed", ChangeKind::Renamed),
    ];
    let mut names = Vec::new();
    for (key, change) in kinds {
        for one in data
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let path = one
                .as_str()
                .map(str::to_owned)
                .or_else(|| text(one, &["to"]));
            names.extend(path.map(|path| ChangedName {
                path,
                change,
                from: text(one, &["from"]),
            }));
        }
    }
    names
}
