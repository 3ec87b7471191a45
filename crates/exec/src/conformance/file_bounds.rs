//! What bounds the file door: a quota, how much is kept for the way back, and what has reached the disk.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::ErrorCode;
use cofferdam_core::event::{EventFilter, Subject, event_type};
use cofferdam_core::limits;
use cofferdam_core::operation::{
    DeleteFolder, FileBounds, FilesChanged, QuotaUse, ReadFile, RestoreFile, WriteFile,
};
use cofferdam_core::spec::Digest;
use cofferdam_journal::Query;

use super::files::{edit, one, refused, text, told, write};
use super::{Check, Need, Scene, check, hold};
use crate::{FileDoor, FileTerms};

pub(super) const CHECKS: &[Check] = &[
    check("row_38 the quota holds", Need::Contract, row_38_quota),
    check(
        "row_39 what is kept is bounded, and what went is said",
        Need::Contract,
        row_39_bounded,
    ),
    check(
        "d1 a file of any size is there once it is said so",
        Need::Contract,
        d1_durable,
    ),
];

fn door<'e>(scene: &'e Scene<'_>, bounds: FileBounds) -> Result<FileDoor<'e>, String> {
    let terms = FileTerms {
        bounds,
        ..FileTerms::default()
    };
    (scene.enclosure.files(&Subject::default(), terms)).map_err(|problem| problem.to_string())
}

fn row_38_quota(scene: &Scene<'_>) -> Result<(), String> {
    let of = |quota| {
        door(
            scene,
            FileBounds {
                quota_bytes: Some(quota),
                ..FileBounds::default()
            },
        )
    };
    let used = |quota: Option<QuotaUse>| quota.map(|quota| quota.used_bytes);
    let first = of(u64::MAX)?.write(write("quota/a", "12345"));
    let first = used(first.map_err(told)?.quota).ok_or("no use is told")?;
    let limit = first + 10;
    let narrow = of(limit)?;
    let second = narrow.write(write("quota/b", "0123456789")).map_err(told)?;
    hold(used(second.quota) == Some(limit), &second)?;

    // Not a byte more, by no operation; nothing is changed then.
    let Err(problem) = narrow.write(write("quota/c", "x")) else {
        return Err("a byte went beyond the quota".to_owned());
    };
    let wanted = serde_json::json!({
        "limit_bytes": limit,
        "used_bytes": limit,
        "needed_bytes": 1,
    });
    hold(
        problem.code == ErrorCode::QuotaExceeded && problem.details.as_deref() == Some(&wanted),
        &problem,
    )?;
    refused(
        narrow.read(&ReadFile::whole("quota/c")),
        ErrorCode::FileMissing,
    )?;
    refused(
        narrow.edit(&edit("quota/a", "1", "11")),
        ErrorCode::QuotaExceeded,
    )?;
    let content = text(&narrow, "quota/a")?;
    hold(content == "12345", &content)?;

    // What is shorter or goes makes room, and what comes back takes it.
    let shorter = narrow.edit(&edit("quota/a", "345", "")).map_err(told)?;
    hold(used(shorter.quota) == Some(limit - 3), &shorter)?;
    let gone: FilesChanged = narrow.delete_file(&one("quota/b")).map_err(told)?;
    hold(used(gone.quota) == Some(limit - 13), &gone)?;
    narrow.write(write("quota/c", "0123")).map_err(told)?;
    let back = RestoreFile {
        change_id: gone.change_id,
    };
    refused(narrow.restore(&back), ErrorCode::QuotaExceeded)?;
    narrow.delete_file(&one("quota/c")).map_err(told)?;
    let restored = narrow.restore(&back).map_err(told)?;
    hold(used(restored.quota) == Some(limit - 3), &restored)?;
    remove(&narrow, "quota")
}

fn row_39_bounded(scene: &Scene<'_>) -> Result<(), String> {
    let door = door(
        scene,
        FileBounds {
            versions: 2,
            ..FileBounds::default()
        },
    )?;
    let mut changes = Vec::new();
    for content in ["39, first", "39, second", "39, third", "39, fourth"] {
        let written = door.write(write("kept/file", content)).map_err(told)?;
        changes.push(RestoreFile {
            change_id: written.change_id,
        });
    }
    // The newest two came back; each way back keeps what it replaces, and the older one goes.
    door.restore(&changes[3]).map_err(told)?;
    let content = text(&door, "kept/file")?;
    hold(content == "39, third", &content)?;
    refused(door.restore(&changes[2]), ErrorCode::ContentExpired)?;
    let content = text(&door, "kept/file")?;
    hold(content == "39, third", &content)?;
    let filter = EventFilter {
        event_type: Some(event_type::FILE_EXPIRED.to_owned()),
        ..EventFilter::default()
    };
    let journal = scene.candidate.plane.journal();
    let page = journal
        .read(&Query::of(filter))
        .map_err(|error| error.to_string())?;
    let told_of = |content: &str| {
        let digest = Digest::of(content.as_bytes());
        page.events.iter().any(|event| {
            let removed = event.data["removed"].as_array();
            removed.is_some_and(|all| all.iter().any(|one| one["version"] == digest.as_str()))
        })
    };
    hold(
        told_of("39, first") && told_of("39, second") && !told_of("39, third"),
        &page.events,
    )?;
    let verified = journal.verify().map_err(|error| error.to_string())?;
    hold(verified.fault.is_none(), &verified)?;
    remove(&door, "kept")
}

fn d1_durable(scene: &Scene<'_>) -> Result<(), String> {
    let door = door(scene, FileBounds::default())?;
    let durable = |path: &str, content: &str| WriteFile {
        durable: true,
        ..write(path, content)
    };
    for size in [0, 18 * 1024, 19 * 1024, 16 * 1024 * 1024 + 1] {
        let content = "x".repeat(size);
        let written = door.write(durable("said/so", &content)).map_err(told)?;
        let wanted = Digest::of(content.as_bytes());
        hold(
            written.bytes == size as u64 && written.new_file.digest == wanted,
            &written,
        )?;
        let read = door.read(&ReadFile {
            max_chars: Some(usize::MAX),
            ..ReadFile::whole("said/so")
        });
        let read = read.map_err(told)?;
        hold(
            read.content.as_deref() == Some(content.as_str()) && read.digest == wanted,
            &(size, read.bytes),
        )?;
    }
    // What is too large is not there, and that is said.
    let bytes = usize::try_from(limits::FILE_WRITE_BYTES).unwrap_or(usize::MAX);
    let large = durable("said/larger", &"x".repeat(bytes + 1));
    refused(door.write(large), ErrorCode::FileTooLarge)?;
    refused(
        door.read(&ReadFile::whole("said/larger")),
        ErrorCode::FileMissing,
    )?;
    // At the top, too, and by an edit.
    door.write(durable("said-at-the-top", "a")).map_err(told)?;
    let mut request = edit("said-at-the-top", "a", "b");
    request.durable = true;
    door.edit(&request).map_err(told)?;
    door.delete_file(&one("said-at-the-top")).map_err(told)?;
    remove(&door, "said")
}

fn remove(door: &FileDoor<'_>, folder: &str) -> Result<(), String> {
    door.delete_folder(&DeleteFolder {
        path: BytePath::from(folder),
        recursive: true,
    })
    .map(drop)
    .map_err(told)
}
