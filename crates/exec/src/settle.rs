//! What planes that died have left behind: found by their leases, put in order, and said.
//!
//! An intent without an outcome is never taken for success: it is settled as `interrupted`. What the
//! command had done to protected names is undone from the snapshot that went out with the intent.

use std::path::Path;

use cofferdam_core::ambient::Ambient;
use cofferdam_core::approval::ApprovalState;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, INTENT_RULES, NewEvent, Severity, event_type};
use cofferdam_core::id::CommandId;
use cofferdam_core::outbox::{OutboxFailed, OutboxReleased};
use cofferdam_core::outcome::Status;
use cofferdam_journal::{DataDir, Journal, JournalError, dead_leases, unsettled};
use cofferdam_sandbox::remove_control_group;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::background;
use crate::container;
use crate::files;
use crate::host::remember_made;
use crate::plane::{new_event, quarantine};
use crate::protect::{self, Change};
use crate::provider::remove_tree;

/// Something that a dead plane had begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settled {
    /// The process that had been the plane.
    pub pid: u32,
    /// The command, when it was one.
    pub command_id: Option<CommandId>,
    /// What was begun, in words.
    pub what: String,
    /// Protected names that are as before again.
    pub undone: Vec<BytePath>,
}

/// Settles every intent of planes that died.
pub(crate) fn dead_planes(
    data: &DataDir,
    journal: &dyn Journal,
    ambient: &dyn Ambient,
) -> Result<Vec<Settled>, Problem> {
    let told = |error: JournalError| error.to_problem();
    let mut all = Vec::new();
    let mut any = false;
    for dead in dead_leases(data).map_err(told)? {
        let mut events = Vec::new();
        for intent in unsettled(journal, dead.record(), INTENT_RULES).map_err(told)? {
            let settled = match intent.kind.as_str() {
                event_type::EXEC_INTENDED => command(data, journal, ambient, &intent, &mut events),
                event_type::ISOLATION_INTENDED => {
                    enclosure(data, ambient, &intent, &mut events);
                    None
                }
                event_type::TERMINAL_STARTED => {
                    terminal(ambient, &intent, &mut events);
                    None
                }
                event_type::APPROVAL_REQUESTED => {
                    approval(ambient, &intent, &mut events);
                    None
                }
                event_type::OUTBOX_RELEASED => {
                    release(ambient, &intent, &mut events);
                    None
                }
                event_type::FILE_INTENDED => {
                    events.push(files::settle(ambient, &intent));
                    None
                }
                _ => None,
            };
            all.extend(settled.map(|one| Settled {
                pid: dead.record().pid,
                ..one
            }));
        }
        if !events.is_empty() {
            journal.append(&events).map_err(told)?;
        }
        container::clear_of(data.path(), dead.record().lease.as_str());
        dead.bury().map_err(told)?;
        any = true;
    }
    if any {
        background::sweep(data.path());
    }
    Ok(all)
}

fn command(
    data: &DataDir,
    journal: &dyn Journal,
    ambient: &dyn Ambient,
    intent: &Event,
    events: &mut Vec<NewEvent>,
) -> Option<Settled> {
    let id = intent.data.get("command_id")?.clone();
    let command_id: CommandId = serde_json::from_value(id).ok()?;
    let snapshot = intent.data.get("protected").cloned().unwrap_or(Value::Null);
    let changes = serde_json::from_value(snapshot).map_or_else(
        |_| Vec::new(),
        |snapshot| {
            let quarantine = quarantine(data.path(), &command_id);
            let mut changes = protect::put_back_by_keeper(&snapshot, &quarantine);
            changes.extend(protect::restore(&snapshot, &quarantine));
            changes
        },
    );
    remember_made(data.path(), protect::taken_away(&changes));
    let undone = protect::undone(&changes);
    for change in &changes {
        events.push(undone_event(ambient, intent, &command_id, change));
    }
    let mut told = json!({
        "command_id": command_id,
        "status": Status::Interrupted,
        "undone": undone,
    });
    if let (Some(told), Value::Object(kept)) = (
        told.as_object_mut(),
        background::adopt_abandoned(data.path(), journal, &command_id),
    ) {
        told.extend(kept);
    }
    events.push(new_event(
        ambient,
        &intent.subject(),
        event_type::EXEC_SETTLED,
        Severity::Warning,
        told,
    ));
    let what = intent
        .data
        .get("argv")
        .and_then(Value::as_array)
        .map(|words| {
            words
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .unwrap_or_default();
    Some(Settled {
        pid: 0,
        command_id: Some(command_id),
        what,
        undone,
    })
}

fn undone_event(
    ambient: &dyn Ambient,
    intent: &Event,
    command_id: &CommandId,
    change: &Change,
) -> NewEvent {
    new_event(
        ambient,
        &intent.subject(),
        event_type::FILE_UNDONE,
        Severity::Warning,
        json!({
            "command_id": command_id,
            "path": change.path,
            "rule": change.rule,
            "what": change.what,
            "undone": change.undone,
        }),
    )
}

fn enclosure(data: &DataDir, ambient: &dyn Ambient, intent: &Event, events: &mut Vec<NewEvent>) {
    let Some(id) = intent.data.get("enclosure_id") else {
        return;
    };
    let scratch = intent
        .data
        .get("scratch")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let removed = BytePath::parse(scratch).is_ok_and(|path| remove_scratch(data, path.as_path()));
    let mut data = json!({
        "enclosure_id": id,
        "reason": "plane_died",
        "scratch_removed": removed,
    });
    // Written down before they were made, under a name that nobody else has.
    let groups = intent.data.get("control_groups").and_then(Value::as_array);
    if let Some(groups) = groups {
        let gone = groups
            .iter()
            .filter_map(|one| BytePath::parse(one.as_str()?).ok())
            .filter(|path| remove_control_group(path.as_path()))
            .count();
        data["control_groups_removed"] = json!(gone == groups.len());
    }
    events.push(new_event(
        ambient,
        &intent.subject(),
        event_type::ISOLATION_ENDED,
        Severity::Warning,
        data,
    ));
}

fn terminal(ambient: &dyn Ambient, intent: &Event, events: &mut Vec<NewEvent>) {
    let of = |key: &str| intent.data.get(key).cloned().unwrap_or(Value::Null);
    events.push(new_event(
        ambient,
        &intent.subject(),
        event_type::TERMINAL_CLOSED,
        Severity::Warning,
        json!({
            "terminal_id": of("terminal_id"),
            "name": of("name"),
            "reason": Status::Interrupted,
        }),
    ));
}

/// Whoever waited for the answer is gone: what was asked is not done any more.
fn approval(ambient: &dyn Ambient, intent: &Event, events: &mut Vec<NewEvent>) {
    let Some(id) = intent.data.get("approval_id") else {
        return;
    };
    events.push(new_event(
        ambient,
        &intent.subject(),
        event_type::APPROVAL_RESOLVED,
        Severity::Warning,
        json!({"approval_id": id, "state": ApprovalState::Interrupted}),
    ));
}

/// Says of what was on its way out that nobody knows whether it got through. It waits again only
/// where doing it twice is the same as doing it once.
fn release(ambient: &dyn Ambient, intent: &Event, events: &mut Vec<NewEvent>) {
    let Ok(released) = serde_json::from_value::<OutboxReleased>(intent.data.clone()) else {
        return;
    };
    let (code, hint) = if released.once {
        (
            ErrorCode::EffectFailed,
            "look whether it did; where it did not, propose it anew yourself",
        )
    } else {
        (
            ErrorCode::PushFailed,
            "release it again: what is there already is not done twice",
        )
    };
    let problem = Problem::new(
        code,
        "the process that carried it out died: whether it got through is not known",
    )
    .with_hint(hint);
    let data = OutboxFailed {
        proposal_id: released.proposal_id,
        release_id: released.release_id,
        problem,
        unknown: released.once,
    };
    let Ok(data) = serde_json::to_value(&data) else {
        return;
    };
    events.push(new_event(
        ambient,
        &intent.subject(),
        event_type::OUTBOX_FAILED,
        Severity::Warning,
        data,
    ));
}

/// Removes a scratch directory that is provably ours: a child of a directory named `scratch` in a
/// data directory, and no link.
fn remove_scratch(data: &DataDir, path: &Path) -> bool {
    let ours = path.parent().is_some_and(|parent| {
        parent.file_name().is_some_and(|name| name == "scratch")
            && (parent.parent() == Some(data.path())
                || parent
                    .parent()
                    .and_then(Path::file_name)
                    .is_some_and(|name| name == "cofferdam"))
    });
    if !ours || !std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return false;
    }
    remove_tree(path);
    !path.exists()
}
