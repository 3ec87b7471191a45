//! What is done when a task's command has ended: bringing in, telling what changed, removing.

use cofferdam_core::error::Problem;
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::task::{
    ChangeKind, CleanupPolicy, CleanupStatus, MergeStatus, ModifiedFile, TaskRequest,
    WorkspaceStrategy,
};
use cofferdam_exec::workspace::TreeState;
use serde_json::{Value, json};

use super::course::Course;
use super::draft::Draft;
use super::measure::Measured;
use super::overview::TaskState;
use super::place::{self, Place, Prepared, Walls};
use super::request::TaskProgress;
use super::words;
use crate::scribe::to_value;

/// Brings in what was done, and tells what changed.
pub(crate) fn bring_in(
    course: &mut Course<'_>,
    prepared: &mut Prepared,
    asked: &TaskRequest,
    draft: &mut Draft,
    measured: Option<Measured>,
) -> Result<(), Problem> {
    if !draft.touched {
        return Ok(());
    }
    if draft.outcome.is_none() {
        // Set-up failed: there is no work to bring in, unless everything is to go, or to be used
        // again.
        let goes = asked.cleanup_policy == CleanupPolicy::Always
            || asked.workspace_strategy == WorkspaceStrategy::Persistent;
        if !goes {
            return Ok(());
        }
    }
    course.enter(TaskState::Harvesting);
    course.tell(TaskProgress::Harvesting);
    match &mut prepared.place {
        Place::Session => return Ok(()),
        Place::Live => {
            let Some(measured) = measured else {
                course
                    .notes
                    .push("what changed could not be measured".to_owned());
                return Ok(());
            };
            draft.files = measured.files;
            draft.summary = measured.summary;
            draft.verification.tree = measured.tree;
        }
        Place::Tree(_) => harvest(course, prepared, draft)?,
    }
    let shown = if draft.files.is_empty() {
        None
    } else {
        let mut data = file_changes(&draft.files);
        data["task"] = course.task.as_str().into();
        if let Some(outcome) = draft.outcome.as_ref().filter(|_| !draft.is_credited) {
            data["command_id"] = outcome.command_id.as_str().into();
        }
        course.say(event_type::FILE_CHANGED, Severity::Info, data)
    };
    let data = json!({"files": draft.files.len(), "tree": draft.verification.tree});
    course.keep(
        "files_changed",
        draft.summary.text.clone(),
        None,
        shown,
        data,
    );
    Ok(())
}

/// Sorts changed files by what happened to them.
pub(crate) fn file_changes(files: &[ModifiedFile]) -> Value {
    let of = |wanted: ChangeKind| -> Vec<Value> {
        files
            .iter()
            .filter(|file| file.change == wanted)
            .map(|file| match &file.from {
                Some(from) => json!({"from": from, "to": file.path}),
                None => json!(file.path),
            })
            .collect()
    };
    json!({
        "added": of(ChangeKind::Added),
        "modified": of(ChangeKind::Modified),
        "deleted": of(ChangeKind::Deleted),
        "renamed": of(ChangeKind::Renamed),
    })
}

fn harvest(
    course: &mut Course<'_>,
    prepared: &mut Prepared,
    draft: &mut Draft,
) -> Result<(), Problem> {
    let spec = prepared.spec(course.runtime, true)?;
    let requested = draft.isolation.requested;
    // The task's own walls are gone, so nothing of it can be at work any more.
    let enclosure = course
        .runtime
        .plane
        .enclose(spec, requested, &course.subject)?;
    let Place::Tree(tree) = &mut prepared.place else {
        return Ok(());
    };
    tree.record = tree.workspaces.harvest(&tree.record, &Walls(&enclosure))?;
    enclosure.close();
    let record = tree.record.clone();
    place::tell_record(course, "harvested", &record);
    let of = (&course.subject, course.number);
    let said = course.runtime.hold_left(&tree.workspaces, &record, of);
    for text in &said {
        course.tell(TaskProgress::Noted { text: text.clone() });
    }
    course.notes.extend(said);
    let Some(harvest) = record.harvest else {
        return Ok(());
    };
    draft.isolation.branch.clone_from(&harvest.branch);
    draft.files.clone_from(&harvest.modified_files);
    draft.summary.clone_from(&harvest.summary);
    draft.verification.tree = Some(harvest.tree.clone());
    draft.merge = if harvest.branch.is_some() {
        MergeStatus::NotRequested
    } else {
        MergeStatus::Nothing
    };
    if let Some(branch) = &harvest.moved_to {
        let branch = branch.trim_start_matches("refs/heads/");
        course
            .notes
            .push(format!("the task ended on {branch}, not on its own branch"));
    }
    course.notes.extend(words::rescued(&harvest));
    for saved in harvest.saved.iter().filter(|one| !one.is_snapshot()) {
        course
            .notes
            .push(format!("{} is kept under {}", saved.name, saved.reference));
    }
    for unsaved in &harvest.unsaved {
        course
            .notes
            .push(format!("{} is not saved: {}", unsaved.path, unsaved.why));
    }
    for path in &harvest.seeds_changed {
        course.notes.push(format!(
            "{path} was copied in and changed; that is not brought in"
        ));
    }
    Ok(())
}

/// Removes the place where the policy says so and it is proved that nothing is lost.
pub(crate) fn clean_up(
    course: &mut Course<'_>,
    prepared: Prepared,
    asked: &TaskRequest,
    draft: &mut Draft,
) {
    let Place::Tree(tree) = prepared.place else {
        return;
    };
    let tree = *tree;
    let goes = match asked.cleanup_policy {
        CleanupPolicy::Always => true,
        CleanupPolicy::Never => false,
        // Where nothing ran there is nothing to look at either.
        CleanupPolicy::OnSuccess => draft.is_good() || !draft.touched,
    };
    let lasts = asked.workspace_strategy == WorkspaceStrategy::Persistent;
    if !goes || lasts {
        draft.isolation.cleanup_status = CleanupStatus::Kept;
        let why = if lasts {
            "it lasts"
        } else {
            "the cleanup policy keeps it"
        };
        course.say(
            event_type::ISOLATION_REMOVED,
            Severity::Info,
            json!({
                "record": tree.record.record,
                "path": tree.record.tree,
                "status": CleanupStatus::Kept,
                "why": why,
            }),
        );
        return;
    }
    let record = if draft.touched {
        tree.record
    } else {
        place::unused(&tree.record)
    };
    if record.state == TreeState::Ready {
        // It could not be harvested, see the error: it stays.
        draft.isolation.cleanup_status = CleanupStatus::KeptDirty;
        return;
    }
    match tree.workspaces.remove(&record, tree.lease) {
        Ok(receipt) => {
            draft.isolation.cleanup_status = receipt.status();
            let severity = match receipt.status() {
                CleanupStatus::Removed | CleanupStatus::NotNeeded => Severity::Info,
                _ => Severity::Warning,
            };
            let data = to_value(&receipt).unwrap_or_default();
            let pos = course.say(event_type::ISOLATION_REMOVED, severity, data);
            let what = match receipt.status() {
                CleanupStatus::Removed => format!("removed {}", receipt.path),
                _ => format!("{} stays or is not all gone", receipt.path),
            };
            course.keep(
                "removal",
                what,
                None,
                pos,
                json!({"way_back": receipt.way_back}),
            );
        }
        Err(error) => {
            draft.isolation.cleanup_status = CleanupStatus::Pending;
            course
                .notes
                .push(format!("the tree could not be removed: {error}"));
        }
    }
}
