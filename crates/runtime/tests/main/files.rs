//! Files as a front door asks for them.

use cofferdam_core::authority::{Actor, Authority};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::event_type;
use cofferdam_core::file::Replacement;
use cofferdam_core::operation::{
    DeleteFolder, EditFile, Encoding, ListFolder, OnePath, PathAccess, PathValidate, QuotaUse,
    ReadFile, RenameFile, RestoreFile, WriteFile, WriteMode,
};
use cofferdam_core::policy::{ByteSize, LimitDocument, ProviderChoice};
use cofferdam_core::spec::{Access, Digest};
use cofferdam_exec::Control;
use cofferdam_runtime::{FileRequest, FrontDoor, PolicyRequest, Runtime};

use crate::crash::die;
use crate::support::{Desk, events, has_walls, options, provider, rerun, told};

fn asked(desk: &Desk, choice: ProviderChoice, actor: Actor) -> FileRequest {
    FileRequest {
        policy: PolicyRequest {
            workspace: Some(desk.repo.clone()),
            ..provider(choice)
        },
        authority: Authority::new(actor, BytePath::from(desk.repo.as_path())),
        front_door: FrontDoor::Protocol,
        control: Control::new(),
    }
}

fn protocol(desk: &Desk) -> FileRequest {
    asked(desk, ProviderChoice::Direct, Actor::Protocol)
}

fn write(path: &str, content: &str) -> WriteFile {
    WriteFile {
        path: BytePath::from(path),
        content: content.to_owned(),
        encoding: Encoding::Utf8,
        mode: WriteMode::Write,
        expected_digest: None,
        durable: false,
    }
}

fn edit(path: &str, old: &str, new: &str) -> EditFile {
    EditFile {
        path: BytePath::from(path),
        replacements: vec![Replacement {
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all: false,
        }],
        ambiguous: cofferdam_core::file::AmbiguousMatch::default(),
        expected_digest: None,
        durable: false,
    }
}

fn one(path: &str) -> OnePath {
    OnePath {
        path: BytePath::from(path),
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Problem>) -> ErrorCode {
    result.expect_err("refused").code
}

fn text(runtime: &Runtime, who: &FileRequest, path: &str) -> String {
    let read = runtime.read_file(who, &ReadFile::whole(path));
    read.expect("read").content.expect("a content")
}

#[test]
fn row_34_a_file_is_read_before_it_is_changed() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let who = protocol(&desk);
    let refused = runtime.edit_file(&who, &edit("a.txt", "one", "two"));
    assert_eq!(code(refused), ErrorCode::FileUnread);
    let refused = runtime.write_file(&who, write("a.txt", "new"));
    assert_eq!(code(refused), ErrorCode::FileUnread);
    assert_eq!(desk.read("a.txt"), "one\n");

    assert_eq!(text(&runtime, &who, "a.txt"), "one\n");
    let written = runtime.edit_file(&who, &edit("a.txt", "one", "two"));
    assert_eq!(written.expect("edited").replacements, Some(1));
    // An own change is known.
    runtime
        .edit_file(&who, &edit("a.txt", "two", "three"))
        .expect("edited");
    desk.write("a.txt", "somebody else\n");
    let refused = runtime.edit_file(&who, &edit("a.txt", "somebody", "nobody"));
    assert_eq!(code(refused), ErrorCode::FileConflict);
    assert_eq!(desk.read("a.txt"), "somebody else\n");

    let digest = runtime
        .read_file(&who, &ReadFile::whole("b.txt"))
        .expect("read")
        .digest;
    let other = desk.runtime();
    let told = WriteFile {
        expected_digest: Some(digest),
        ..write("b.txt", "told\n")
    };
    other.write_file(&who, told).expect("written");
    // A name takes what is known of it along.
    runtime
        .rename_file(
            &who,
            &RenameFile {
                path: "b.txt".into(),
                new_path: "c.txt".into(),
            },
        )
        .expect("renamed");
    let refused = runtime.write_file(&who, write("c.txt", "x"));
    assert_eq!(code(refused), ErrorCode::FileConflict);
    // The owner answers for himself.
    let owner = asked(&desk, ProviderChoice::Direct, Actor::Owner);
    runtime
        .write_file(&owner, write("Makefile", "all:\n"))
        .expect("written");
}

#[test]
fn row_36_what_may_not_be_read_is_refused_where_no_walls_hide_it() {
    let desk = Desk::with_repository();
    desk.write(".env", "KEY=1\n");
    desk.write("deep/er/.env.local", "KEY=2\n");
    desk.write(".env.example", "KEY=\n");
    desk.write("tracked/.env", "KEY=3\n");
    desk.git(&["add", "tracked/.env"]);
    std::os::unix::fs::symlink(".env", desk.repo.join("link")).expect("linked");
    let runtime = desk.runtime();
    let mut choices = vec![ProviderChoice::Direct];
    if has_walls() {
        choices.push(ProviderChoice::Bwrap);
    }
    for choice in choices {
        let who = asked(&desk, choice, Actor::Protocol);
        for path in [".env", "deep/er/.env.local", "link", "./deep/../.env"] {
            let read = runtime.read_file(&who, &ReadFile::whole(path));
            assert_eq!(code(read), ErrorCode::Denied, "{path} {choice:?}");
            let verdict = runtime
                .path_validate(
                    &who,
                    &PathValidate {
                        path: path.into(),
                        access: PathAccess::Read,
                    },
                )
                .expect("a verdict");
            assert!(!verdict.allowed, "{verdict:?}");
        }
        let renamed = runtime.rename_file(
            &who,
            &RenameFile {
                path: ".env".into(),
                new_path: "open".into(),
            },
        );
        assert_eq!(code(renamed), ErrorCode::Denied);
        let whole = DeleteFolder {
            path: "deep".into(),
            recursive: true,
        };
        assert_eq!(code(runtime.delete_folder(&who, &whole)), ErrorCode::Denied);
        assert_eq!(
            code(runtime.delete_file(&who, &one(".env"))),
            ErrorCode::Denied
        );
        assert_eq!(text(&runtime, &who, ".env.example"), "KEY=\n");
        assert_eq!(text(&runtime, &who, "tracked/.env"), "KEY=3\n");
    }
    assert_eq!(desk.read("deep/er/.env.local"), "KEY=2\n");
    let told = events(&runtime);
    let denied = told
        .iter()
        .filter(|event| event.kind == event_type::POLICY_DENIED)
        .count();
    assert!(denied >= 7, "{denied}");
}

#[test]
fn row_33_everything_is_refused_outside_of_the_root() {
    let desk = Desk::with_repository();
    let outside = desk.home.join("secret");
    std::fs::write(&outside, "s").expect("written");
    std::os::unix::fs::symlink(&outside, desk.repo.join("out")).expect("linked");
    std::os::unix::fs::symlink(&desk.home, desk.repo.join("home")).expect("linked");
    let runtime = desk.runtime();
    let who = protocol(&desk);
    let absolute = outside.display().to_string();
    let sibling = format!("{}-evil/x", desk.repo.display());
    for path in [
        "../home/secret",
        &absolute,
        "home/secret",
        "a/../../x",
        &sibling,
    ] {
        let what = format!("{path}: ");
        let refused = |code: ErrorCode| assert_eq!(code, ErrorCode::PathOutside, "{what}");
        refused(code(runtime.read_file(&who, &ReadFile::whole(path))));
        refused(code(runtime.write_file(&who, write(path, "x"))));
        refused(code(runtime.edit_file(&who, &edit(path, "a", "b"))));
        refused(code(runtime.create_file(&who, &one(path))));
        refused(code(runtime.create_folder(&who, &one(path))));
        refused(code(runtime.delete_file(&who, &one(path))));
        let folder = DeleteFolder {
            path: path.into(),
            recursive: true,
        };
        refused(code(runtime.delete_folder(&who, &folder)));
        let list = ListFolder {
            path: path.into(),
            limit: None,
        };
        refused(code(runtime.list_folder(&who, &list)));
        for (from, to) in [(path, "b2.txt"), ("b.txt", path)] {
            let rename = RenameFile {
                path: from.into(),
                new_path: to.into(),
            };
            refused(code(runtime.rename_file(&who, &rename)));
        }
    }
    assert_eq!(std::fs::read(&outside).expect("there"), b"s");
    assert_eq!(
        code(runtime.read_file(&who, &ReadFile::whole("out"))),
        ErrorCode::PathOutside
    );
    // A link is removed itself, never what it leads to.
    runtime.delete_file(&who, &one("out")).expect("removed");
    assert!(outside.exists());
}

#[test]
fn row_33_nothing_is_changed_in_a_workspace_that_is_only_read() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut who = asked(&desk, ProviderChoice::Bwrap, Actor::Protocol);
    who.policy.owner.workspace = Some(Access::Read);
    assert_eq!(text(&runtime, &who, "a.txt"), "one\n");
    for path in ["n", "a.txt", "new/n"] {
        let refused = runtime.write_file(&who, write(path, "x"));
        assert_eq!(code(refused), ErrorCode::Denied, "{path}");
    }
    let verdict = runtime
        .path_validate(
            &who,
            &PathValidate {
                path: "n".into(),
                access: PathAccess::Write,
            },
        )
        .expect("a verdict");
    assert!(!verdict.allowed, "{verdict:?}");
    assert_eq!(desk.read("a.txt"), "one\n");
}

#[test]
fn row_39_a_change_is_taken_back_also_after_a_restart() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let who = protocol(&desk);
    text(&runtime, &who, "a.txt");
    let written = runtime
        .write_file(&who, write("a.txt", "new\n"))
        .expect("written");
    let removed = runtime.delete_file(&who, &one("b.txt")).expect("removed");
    drop(runtime);
    let runtime = desk.runtime();
    for change in [written.change_id, removed.change_id] {
        runtime
            .restore_file(&who, &RestoreFile { change_id: change })
            .expect("restored");
    }
    assert_eq!(desk.read("a.txt"), "one\n");
    assert_eq!(desk.read("b.txt"), "b\nb\nb\nb\n");
}

#[test]
fn row_39_a_link_that_was_removed_comes_back_and_goes_again() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let who = protocol(&desk);
    for (name, target) in [
        ("within", "a.txt"),
        ("away", "/nowhere/at all"),
        ("sub/deep", "../b.txt"),
    ] {
        let link = desk.repo.join(name);
        std::fs::create_dir_all(link.parent().expect("a desk")).expect("a desk");
        std::os::unix::fs::symlink(target, &link).expect("a link");
        let restore = |id: String| runtime.restore_file(&who, &RestoreFile { change_id: id });
        let removed = runtime.delete_file(&who, &one(name)).expect("removed");
        assert!(link.symlink_metadata().is_err());
        // What stands there by now is not replaced.
        std::fs::write(&link, "mine").expect("a file");
        let conflict = restore(removed.change_id.clone());
        assert_eq!(code(conflict), ErrorCode::FileConflict);
        std::fs::remove_file(&link).expect("a file");
        let back = restore(removed.change_id).expect("restored");
        assert_eq!(
            link.read_link().expect("a link"),
            std::path::Path::new(target)
        );
        // One that leads elsewhere by now is not taken away, one as it was left is.
        std::fs::remove_file(&link).expect("a link");
        std::os::unix::fs::symlink("elsewhere", &link).expect("a link");
        assert_eq!(
            code(restore(back.change_id.clone())),
            ErrorCode::FileConflict
        );
        std::fs::remove_file(&link).expect("a link");
        std::os::unix::fs::symlink(target, &link).expect("a link");
        restore(back.change_id).expect("taken back");
        assert!(link.symlink_metadata().is_err());
    }
    assert_eq!(desk.read("a.txt"), "one\n");
}

#[test]
fn row_38_the_quota_of_the_policy_holds_also_after_a_restart() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut who = protocol(&desk);
    who.policy.owner.limits = Some(LimitDocument {
        files: Some(ByteSize(10)),
        ..LimitDocument::default()
    });
    let written = runtime.write_file(&who, write("new", "0123456"));
    let quota = written.expect("written").quota;
    let wanted = QuotaUse {
        used_bytes: 7,
        limit_bytes: 10,
    };
    assert_eq!(quota, Some(wanted));
    drop(runtime);
    let runtime = desk.runtime();
    let refused = runtime.write_file(&who, write("newer", "0123"));
    assert_eq!(code(refused), ErrorCode::QuotaExceeded);
    assert!(!desk.repo.join("newer").exists());
    let changed = runtime.delete_file(&who, &one("new")).expect("removed");
    assert_eq!(changed.quota.map(|quota| quota.used_bytes), Some(0));
    runtime
        .write_file(&who, write("newer", "0123456789"))
        .expect("written");
}

#[test]
fn row_34_a_file_is_expected_by_its_sha256_too() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let who = protocol(&desk);
    let expecting = |digest| WriteFile {
        expected_digest: Some(digest),
        ..write("a.txt", "two\n")
    };
    let refused = runtime.write_file(&who, expecting(Digest::sha256(b"two\n")));
    assert_eq!(code(refused), ErrorCode::FileConflict);
    let written = runtime.write_file(&who, expecting(Digest::sha256(b"one\n")));
    assert_eq!(
        written.expect("written").new_file.digest,
        Digest::of(b"two\n")
    );
}

#[test]
fn names_are_bytes_through_every_operation() {
    use std::os::unix::ffi::OsStrExt as _;
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let who = protocol(&desk);
    let name = BytePath::from_bytes(b"n\xff\xfe\n ame".to_vec());
    let request = WriteFile {
        path: name.clone(),
        ..write("", "bytes")
    };
    runtime.write_file(&who, request).expect("written");
    let on_disk = desk.repo.join(std::ffi::OsStr::from_bytes(name.as_bytes()));
    assert_eq!(std::fs::read(on_disk).expect("there"), b"bytes");
    let list = ListFolder {
        path: BytePath::default(),
        limit: None,
    };
    let listed = runtime.list_folder(&who, &list).expect("listed");
    assert!(listed.entries.iter().any(|entry| entry.name == name));
    let read = runtime.read_file(&who, &ReadFile::whole(name.clone()));
    assert_eq!(read.expect("read").path, name);
    runtime
        .delete_file(&who, &OnePath { path: name })
        .expect("removed");
}

/// Bytes of the file that is written while its writer is killed.
const LARGE: usize = 4 * 1024 * 1024;

/// Writes a file again and again until it is killed, see [`rerun`].
#[test]
#[ignore = "the child of another test"]
fn child() {
    let (Some(top), Some(stage)) = (told("COFFERDAM_TEST_DESK"), told("COFFERDAM_TEST_STAGE"))
    else {
        return;
    };
    let top = std::path::PathBuf::from(top);
    let repo = top.join("repo");
    let runtime = Runtime::open(options(&top.join("home"), &top.join("data"), &repo)).unwrap();
    let who = FileRequest {
        policy: PolicyRequest {
            workspace: Some(repo.clone()),
            ..provider(ProviderChoice::Direct)
        },
        authority: Authority::new(Actor::Protocol, BytePath::from(repo.as_path())),
        front_door: FrontDoor::Protocol,
        control: Control::new(),
    };
    text(&runtime, &who, "large");
    let wait = std::time::Duration::from_micros(stage.parse().unwrap());
    std::thread::spawn(move || {
        std::thread::sleep(wait);
        die();
    });
    for letter in ["b", "a"].into_iter().cycle() {
        let request = write("large", &letter.repeat(LARGE));
        runtime.write_file(&who, request).unwrap();
    }
}

#[test]
fn row_30_killed_while_it_writes_leaves_old_or_new_and_is_settled() {
    let desk = Desk::with_repository();
    let mut interrupted = 0;
    // Twelve moments; more of them where a busy machine let each fall between two writes.
    for round in 0..60 {
        if round >= 12 && interrupted > 0 {
            break;
        }
        desk.write("large", "a".repeat(LARGE));
        let moment = round % 12 * 45_000 + round / 12 * 7_900 + 500;
        let status = rerun(&desk, "files::child", &moment.to_string());
        assert_eq!(status.code(), None, "it was to die");
        let runtime = desk.runtime();
        // Its keeper may still be leaving.
        let content = std::fs::read(desk.repo.join("large")).expect("there");
        let first = content.first().copied();
        assert_eq!(content.len(), LARGE);
        assert!(content.iter().all(|byte| Some(*byte) == first), "a mixture");
        let all = events(&runtime);
        let of_kind = |kind: &str| -> Vec<String> {
            let mut found: Vec<String> = all
                .iter()
                .filter(|event| event.kind == kind)
                .map(|event| event.data["change_id"].to_string())
                .collect();
            found.sort();
            found
        };
        let ended = of_kind(event_type::FILE_ENDED);
        assert_eq!(of_kind(event_type::FILE_INTENDED), ended, "{round}");
        interrupted = all
            .iter()
            .filter(|event| event.kind == event_type::FILE_ENDED)
            .filter(|event| event.data["status"] == "interrupted")
            .count();
        drop(runtime);
        let left: Vec<_> = std::fs::read_dir(&desk.repo)
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name())
            .filter(|name| name.to_string_lossy().starts_with(".cofferdam-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(interrupted > 0, "no write was cut off");
}
