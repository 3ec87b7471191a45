//! The file door: the same boundary as commands, whole changes, and a way back.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{EventFilter, Subject, event_type};
use cofferdam_core::file::{AmbiguousMatch, Replacement};
use cofferdam_core::operation::{
    DeleteFolder, EditFile, Encoding, EntryKind, FileWritten, ListFolder, OnePath, PathAccess,
    PathValidate, ReadFile, RenameFile, RestoreFile, WriteFile, WriteMode,
};
use cofferdam_core::spec::Digest;
use cofferdam_journal::Query;

use super::{Check, Need, Scene, check, hold};
use crate::{FileDoor, FileTerms};

pub(super) const CHECKS: &[Check] = &[
    check(
        "a file is written, read, edited",
        Need::Contract,
        round_trip,
    ),
    check("d3 every byte comes back", Need::Contract, d3_bytes),
    check(
        "row_31 an edit that fails leaves the bytes",
        Need::Contract,
        row_31_failed_edit,
    ),
    check(
        "row_34 a change by somebody else is a conflict",
        Need::Contract,
        row_34_conflict,
    ),
    check(
        "row_33 files and folders are made, renamed, removed, restored",
        Need::Contract,
        row_33_names,
    ),
    check("d4 no path leads out", Need::Contract, d4_outside),
    check(
        "every change is intended and ended in the journal",
        Need::Contract,
        journalled,
    ),
    check(
        "row_35 links are followed within, never out",
        Need::Processes,
        row_35_links,
    ),
    check(
        "row_35 a fifo is not waited for",
        Need::Processes,
        row_35_fifo,
    ),
    check(
        "row_30 mode and symbolic link stay, other names keep their bytes",
        Need::Processes,
        row_30_replace,
    ),
    check(
        "row_35 a raced ancestor never leads out",
        Need::Processes,
        row_35_race,
    ),
    check("protected names are refused", Need::Walls, protected),
    check(
        "a command sees what the door writes, and the door what it writes",
        Need::Processes,
        one_view,
    ),
];

impl Scene<'_> {
    fn door(&self) -> Result<FileDoor<'_>, String> {
        self.enclosure
            .files(&Subject::default(), FileTerms::default())
            .map_err(|problem| problem.to_string())
    }

    fn host(&self, path: &str) -> PathBuf {
        self.candidate.workspace.join(path)
    }
}

pub(super) fn write(path: &str, content: &str) -> WriteFile {
    WriteFile {
        path: BytePath::from(path),
        content: content.to_owned(),
        encoding: Encoding::Utf8,
        mode: WriteMode::Write,
        expected_digest: None,
        durable: false,
    }
}

pub(super) fn edit(path: &str, old: &str, new: &str) -> EditFile {
    EditFile {
        path: BytePath::from(path),
        replacements: vec![Replacement {
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all: false,
        }],
        ambiguous: AmbiguousMatch::Refuse,
        expected_digest: None,
        durable: false,
    }
}

pub(super) fn one(path: &str) -> OnePath {
    OnePath {
        path: BytePath::from(path),
    }
}

pub(super) fn text(door: &FileDoor<'_>, path: &str) -> Result<String, String> {
    let read = door.read(&ReadFile::whole(path)).map_err(told)?;
    read.content.ok_or_else(|| "no content".to_owned())
}

pub(super) fn told(problem: Problem) -> String {
    format!("{}: {problem}", problem.code.as_str())
}

pub(super) fn refused<T: std::fmt::Debug>(
    outcome: Result<T, Problem>,
    wanted: ErrorCode,
) -> Result<(), String> {
    match outcome {
        Err(problem) if problem.code == wanted => Ok(()),
        other => Err(format!("{other:?} instead of {}", wanted.as_str())),
    }
}

fn round_trip(scene: &Scene<'_>) -> Result<(), String> {
    let door = scene.door()?;
    let written = door
        .write(write("notes/a.txt", "one\ntwo\n"))
        .map_err(told)?;
    hold(written.created && written.bytes == 8, &written)?;
    let appended = door
        .write(WriteFile {
            mode: WriteMode::Append,
            ..write("notes/a.txt", "three\n")
        })
        .map_err(told)?;
    hold(
        !appended.created && appended.original_file.is_some() && appended.bytes == 14,
        &appended,
    )?;
    let edited: FileWritten = door.edit(&edit("notes/a.txt", "two", "2")).map_err(told)?;
    hold(edited.replacements == Some(1), &edited)?;
    let content = text(&door, "notes/a.txt")?;
    hold(content == "one\n2\nthree\n", &content)?;
    let range = ReadFile {
        start_line: Some(2),
        end_line: Some(2),
        ..ReadFile::whole("notes/a.txt")
    };
    let read = door.read(&range).map_err(told)?;
    hold(
        read.content.as_deref() == Some("2\n")
            && read.total_lines == 3
            && read.digest == edited.new_file.digest,
        &read,
    )?;
    door.delete_folder(&DeleteFolder {
        path: BytePath::from("notes"),
        recursive: true,
    })
    .map(drop)
    .map_err(told)
}

fn d3_bytes(scene: &Scene<'_>) -> Result<(), String> {
    use base64::Engine as _;
    let door = scene.door()?;
    let bytes: Vec<u8> = (0..=255).collect();
    let content = base64::engine::general_purpose::STANDARD.encode(&bytes);
    let written = door
        .write(WriteFile {
            encoding: Encoding::Base64,
            ..write("all-bytes", &content)
        })
        .map_err(told)?;
    hold(written.new_file.digest == Digest::of(&bytes), &written)?;
    let read = door
        .read(&ReadFile {
            encoding: Encoding::Base64,
            ..ReadFile::whole("all-bytes")
        })
        .map_err(told)?;
    hold(read.content.as_deref() == Some(content.as_str()), &read)?;
    let lossy = door.read(&ReadFile::whole("all-bytes")).map_err(told)?;
    hold(lossy.encoding == Encoding::Lossy, &lossy.encoding)?;
    door.delete_file(&one("all-bytes")).map(drop).map_err(told)
}

fn row_31_failed_edit(scene: &Scene<'_>) -> Result<(), String> {
    let door = scene.door()?;
    door.write(write("edited", "a\nb\n")).map_err(told)?;
    let mut request = edit("edited", "a", "A");
    request.replacements.push(Replacement {
        old_string: "absent".to_owned(),
        new_string: "x".to_owned(),
        replace_all: false,
    });
    let Err(problem) = door.edit(&request) else {
        return Err("the edit went through".to_owned());
    };
    let index = problem
        .details
        .as_ref()
        .and_then(|details| details.get("failed_replacement_index"))
        .and_then(serde_json::Value::as_u64);
    hold(
        problem.code == ErrorCode::EditFailed && index == Some(1),
        &problem,
    )?;
    let content = text(&door, "edited")?;
    hold(content == "a\nb\n", &content)?;
    door.delete_file(&one("edited")).map(drop).map_err(told)
}

fn row_34_conflict(scene: &Scene<'_>) -> Result<(), String> {
    let door = scene.door()?;
    let first = door.write(write("shared", "mine")).map_err(told)?;
    door.write(write("shared", "theirs")).map_err(told)?;
    let late = WriteFile {
        expected_digest: Some(first.new_file.digest.clone()),
        ..write("shared", "mine again")
    };
    refused(door.write(late), ErrorCode::FileConflict)?;
    refused(
        door.write(WriteFile {
            expected_digest: Some(first.new_file.digest),
            ..write("absent", "x")
        }),
        ErrorCode::FileConflict,
    )?;
    let content = text(&door, "shared")?;
    hold(content == "theirs", &content)?;
    door.delete_file(&one("shared")).map(drop).map_err(told)
}

fn row_33_names(scene: &Scene<'_>) -> Result<(), String> {
    let door = scene.door()?;
    door.create_folder(&one("room/inner")).map_err(told)?;
    door.create_file(&one("room/empty")).map_err(told)?;
    refused(door.create_file(&one("room/empty")), ErrorCode::FileExists)?;
    door.write(write("room/inner/full", "kept")).map_err(told)?;
    let listed = door
        .list_folder(&ListFolder {
            path: BytePath::from("room"),
            limit: None,
        })
        .map_err(told)?;
    let names: Vec<(String, EntryKind)> = listed
        .entries
        .iter()
        .map(|entry| (entry.name.to_string(), entry.kind))
        .collect();
    hold(
        names
            == [
                ("empty".to_owned(), EntryKind::File),
                ("inner".to_owned(), EntryKind::Folder),
            ],
        &names,
    )?;
    let rename = |from: &str, to: &str| {
        door.rename(&RenameFile {
            path: BytePath::from(from),
            new_path: BytePath::from(to),
        })
    };
    refused(
        rename("room/empty", "room/inner/full"),
        ErrorCode::FileExists,
    )?;
    let moved = rename("room/inner", "room/outer").map_err(told)?;
    let content = text(&door, "room/outer/full")?;
    hold(content == "kept", &content)?;
    let back = |change_id: &str| {
        door.restore(&RestoreFile {
            change_id: change_id.to_owned(),
        })
    };
    back(&moved.change_id).map_err(told)?;
    refused(door.delete_file(&one("room")), ErrorCode::NotAFile)?;
    let plain = DeleteFolder {
        path: BytePath::from("room"),
        recursive: false,
    };
    refused(door.delete_folder(&plain), ErrorCode::FolderNotEmpty)?;
    let all = DeleteFolder {
        recursive: true,
        ..plain
    };
    let gone = door.delete_folder(&all).map_err(told)?;
    hold(gone.changes.len() == 4, &gone)?;
    refused(
        door.read(&ReadFile::whole("room/empty")),
        ErrorCode::FileMissing,
    )?;
    let restored = back(&gone.change_id).map_err(told)?;
    let content = text(&door, "room/inner/full")?;
    hold(content == "kept", &content)?;
    // A way back is a change, and has a way back too.
    back(&restored.change_id).map_err(told)?;
    refused(
        door.read(&ReadFile::whole("room/empty")),
        ErrorCode::FileMissing,
    )?;
    refused(back("chg_nothing"), ErrorCode::ChangeUnknown)
}

fn d4_outside(scene: &Scene<'_>) -> Result<(), String> {
    let door = scene.door()?;
    let secret = format!("{}/secret", scene.outside());
    for path in ["../x", "a/../../x", "/etc/passwd", secret.as_str()] {
        refused(door.read(&ReadFile::whole(path)), ErrorCode::PathOutside)?;
        refused(door.write(write(path, "x")), ErrorCode::PathOutside)?;
        refused(door.delete_file(&one(path)), ErrorCode::PathOutside)?;
        let verdict = door
            .validate(&PathValidate {
                path: BytePath::from(path),
                access: PathAccess::Read,
            })
            .map_err(told)?;
        hold(!verdict.allowed && verdict.real_path.is_none(), &verdict)?;
    }
    refused(
        door.read(&ReadFile::whole("a\0b")),
        ErrorCode::InvalidRequest,
    )?;
    let long = "n".repeat(4096);
    refused(door.write(write(&long, "x")), ErrorCode::InvalidRequest)
}

fn journalled(scene: &Scene<'_>) -> Result<(), String> {
    let door = scene.door()?;
    let written = door.write(write("told", "x")).map_err(told)?;
    let failed = door.edit(&edit("told", "y", "z"));
    refused(failed, ErrorCode::EditFailed)?;
    let of = |kind: &str| {
        let filter = EventFilter {
            event_type: Some(kind.to_owned()),
            ..EventFilter::default()
        };
        let page = scene
            .candidate
            .plane
            .journal()
            .read(&Query::of(filter).backward().limit(1))
            .map_err(|error| error.to_string())?;
        let id = |event: &cofferdam_core::event::Event| event.data["change_id"].clone();
        Ok::<_, String>(page.events.first().map(id))
    };
    let wanted = Some(serde_json::Value::String(written.change_id));
    let seen = (of(event_type::FILE_INTENDED)?, of(event_type::FILE_ENDED)?);
    hold(seen == (wanted.clone(), wanted), &seen)?;
    door.delete_file(&one("told")).map(drop).map_err(told)
}

fn row_35_links(scene: &Scene<'_>) -> Result<(), String> {
    let io = |error: std::io::Error| error.to_string();
    let door = scene.door()?;
    std::fs::create_dir_all(scene.host("real/deep")).map_err(io)?;
    std::fs::write(scene.host("real/deep/file"), "old").map_err(io)?;
    symlink("real/deep", scene.host("near")).map_err(io)?;
    symlink("near/file", scene.host("nearer")).map_err(io)?;
    let secret = format!("{}/secret", scene.outside());
    symlink(&secret, scene.host("far")).map_err(io)?;
    symlink(scene.outside(), scene.host("away")).map_err(io)?;
    symlink("loop", scene.host("loop")).map_err(io)?;
    door.write(write("nearer", "new")).map_err(told)?;
    let written = std::fs::read_to_string(scene.host("real/deep/file")).map_err(io)?;
    hold(written == "new", &written)?;
    hold(scene.host("nearer").is_symlink(), &"the link was replaced")?;
    let verdict = door
        .validate(&PathValidate {
            path: BytePath::from("nearer"),
            access: PathAccess::Write,
        })
        .map_err(told)?;
    hold(
        verdict.allowed
            && verdict.relative_path == Some(BytePath::from("real/deep/file"))
            && verdict.kind == Some(EntryKind::File),
        &verdict,
    )?;
    for path in ["far", "away/secret", "away/new", "loop"] {
        refused(door.write(write(path, "x")), ErrorCode::PathOutside)?;
        refused(door.read(&ReadFile::whole(path)), ErrorCode::PathOutside)?;
    }
    // A link is removed as a link, whatever it leads to.
    door.delete_file(&one("far")).map_err(told)?;
    let kept = std::fs::read_to_string(secret).map_err(io)?;
    hold(!kept.is_empty() && !scene.host("away/new").exists(), &kept)?;
    for name in ["near", "nearer", "away", "loop"] {
        std::fs::remove_file(scene.host(name)).map_err(io)?;
    }
    std::fs::remove_dir_all(scene.host("real")).map_err(io)
}

fn row_35_fifo(scene: &Scene<'_>) -> Result<(), String> {
    let made = scene.sh("mkfifo pipe");
    hold(made.return_code == Some(0), &made)?;
    let door = scene.door()?;
    refused(door.read(&ReadFile::whole("pipe")), ErrorCode::NotAFile)?;
    refused(door.write(write("pipe", "x")), ErrorCode::NotAFile)?;
    std::fs::remove_file(scene.host("pipe")).map_err(|error| error.to_string())
}

fn row_30_replace(scene: &Scene<'_>) -> Result<(), String> {
    let io = |error: std::io::Error| error.to_string();
    let made = scene.sh("printf old > script && chmod 750 script && ln script twin");
    hold(made.return_code == Some(0), &made)?;
    let before = std::fs::metadata(scene.host("script")).map_err(io)?;
    let door = scene.door()?;
    door.write(write("script", "new")).map_err(told)?;
    let after = std::fs::metadata(scene.host("script")).map_err(io)?;
    hold(
        after.permissions().mode() & 0o7777 == 0o750
            && (after.uid(), after.gid()) == (before.uid(), before.gid()),
        &after,
    )?;
    let twin = std::fs::read_to_string(scene.host("twin")).map_err(io)?;
    hold(twin == "old", &twin)?;
    let left: Vec<_> = std::fs::read_dir(&scene.candidate.workspace)
        .map_err(io)?
        .filter_map(|entry| entry.ok().map(|entry| entry.file_name()))
        .filter(|name| name.as_encoded_bytes().starts_with(b".cofferdam"))
        .collect();
    hold(left.is_empty(), &left)?;
    std::fs::remove_file(scene.host("script")).map_err(io)?;
    std::fs::remove_file(scene.host("twin")).map_err(io)
}

/// Rounds of the race; the walls and the kernel decide each anew.
const RACE_ROUNDS: u32 = 300;

fn row_35_race(scene: &Scene<'_>) -> Result<(), String> {
    let io = |error: std::io::Error| error.to_string();
    std::fs::create_dir(scene.host("spot")).map_err(io)?;
    symlink(scene.outside(), scene.host("lure")).map_err(io)?;
    let owner = std::fs::metadata(&scene.candidate.workspace).map_err(io)?;
    std::os::unix::fs::chown(scene.host("spot"), Some(owner.uid()), Some(owner.gid()))
        .map_err(io)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (spot, lure) = (scene.host("spot"), scene.host("lure"));
    let swapper = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &spot,
                    rustix::fs::CWD,
                    &lure,
                    rustix::fs::RenameFlags::EXCHANGE,
                );
            }
        }
    });
    let door = scene.door()?;
    let mut read = Ok(());
    for _ in 0..RACE_ROUNDS {
        let _ = door.write(write("spot/planted", "x"));
        if let Ok(found) = door.read(&ReadFile::whole("spot/secret")) {
            read = Err(format!("read outside: {found:?}"));
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let _ = swapper.join();
    let escaped = scene.candidate.outside.join("planted").exists();
    for name in ["spot", "lure"] {
        let path = scene.host(name);
        if path.is_symlink() {
            std::fs::remove_file(path).map_err(io)?;
        } else {
            std::fs::remove_dir_all(path).map_err(io)?;
        }
    }
    read?;
    hold(!escaped, &"a file was written outside")
}

fn protected(scene: &Scene<'_>) -> Result<(), String> {
    let io = |error: std::io::Error| error.to_string();
    let door = scene.door()?;
    symlink(".mcp.json", scene.host("innocent")).map_err(io)?;
    for path in [".mcp.json", ".claude/settings.json", "innocent"] {
        refused(door.write(write(path, "{}")), ErrorCode::Denied)?;
    }
    std::fs::remove_file(scene.host("innocent")).map_err(io)?;
    hold(
        !scene.host(".mcp.json").exists() && !scene.host(".claude").exists(),
        &"something was made",
    )
}

fn one_view(scene: &Scene<'_>) -> Result<(), String> {
    let door = scene.door()?;
    door.write(write("from-door", "door")).map_err(told)?;
    let seen = scene.sh("cat from-door; printf command > from-command");
    hold(seen.stdout == "door", &seen)?;
    let content = text(&door, "from-command")?;
    hold(content == "command", &content)?;
    for path in ["from-door", "from-command"] {
        door.delete_file(&one(path)).map_err(told)?;
    }
    Ok(())
}
