//! Files over HTTP.

use std::os::unix::fs::symlink;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::spec::Digest;
use serde_json::{Value, json};

use crate::operations::Scene;

fn good(scene: &Scene, operation: &str, body: &Value) -> Value {
    let answer = scene.call(operation, body);
    assert_eq!(answer.status, 200, "{operation}: {}", answer.body);
    answer.json()
}

fn code(scene: &Scene, operation: &str, body: &Value) -> String {
    let answer = scene.call(operation, body);
    assert!(answer.status >= 400, "{operation} {body}: {}", answer.body);
    answer.json()["code"].as_str().expect("a code").to_owned()
}

#[test]
fn d1_what_is_said_to_be_written_is_there() {
    let scene = Scene::start();
    let mib = 1024 * 1024;
    for size in [0, 18 * 1024, 19 * 1024, 16 * mib + 1] {
        let bytes: Vec<u8> = (0..size)
            .map(|number: usize| (number % 251) as u8)
            .collect();
        let name = format!("d1/{size}");
        let written = good(
            &scene,
            "write_file",
            &json!({"path": name, "content": STANDARD.encode(&bytes), "encoding": "base64"}),
        );
        assert_eq!(written["bytes"], size);
        assert_eq!(written["new_file"]["digest"], Digest::of(&bytes).as_str());
        let there = std::fs::read(scene.workspace.join(&name)).expect("there");
        assert!(there == bytes, "{size}");
        let read = good(&scene, "read_file", &json!({"path": name, "max_chars": 1}));
        assert_eq!(read["digest"], written["new_file"]["digest"]);
    }
}

#[test]
fn d3_every_byte_comes_back_and_loss_is_said() {
    let scene = Scene::start();
    let bytes: Vec<u8> = (0..=255).collect();
    std::fs::write(scene.workspace.join("all"), &bytes).expect("written");
    let read = good(
        &scene,
        "read_file",
        &json!({"path": "all", "encoding": "base64"}),
    );
    assert_eq!(read["content"], STANDARD.encode(&bytes));
    let read = good(&scene, "read_file", &json!({"path": "all"}));
    assert_eq!(read["encoding"], "lossy");
    let lossy = json!({"path": "new", "content": "x", "encoding": "lossy"});
    assert_eq!(code(&scene, "write_file", &lossy), "invalid_request");
}

#[test]
fn d4_no_path_leads_out() {
    let scene = Scene::start();
    let outside = scene.workspace.parent().expect("a parent").join("outside");
    std::fs::write(&outside, "secret").expect("written");
    symlink(&outside, scene.workspace.join("link")).expect("linked");
    symlink("..", scene.workspace.join("up")).expect("linked");
    let long = "x".repeat(4096);
    let deep = format!("{}end", "a/".repeat(2048));
    for (path, wanted) in [
        ("../outside", "path_outside"),
        ("/etc/passwd", "path_outside"),
        ("link", "path_outside"),
        ("up/outside", "path_outside"),
        ("a\u{0}b", "invalid_request"),
        (&long, "invalid_request"),
        (&deep, "invalid_request"),
    ] {
        assert_eq!(
            code(&scene, "read_file", &json!({"path": path})),
            wanted,
            "{path}"
        );
        let write = json!({"path": path, "content": "x"});
        assert_eq!(code(&scene, "write_file", &write), wanted, "{path}");
        assert_eq!(
            code(&scene, "create_file", &json!({"path": path})),
            if path == "link" {
                "file_exists"
            } else {
                wanted
            },
            "{path}"
        );
    }
    assert_eq!(std::fs::read(&outside).expect("there"), b"secret");
}

#[test]
fn d6_an_edit_says_what_it_did_or_that_it_did_nothing() {
    let scene = Scene::start();
    let file = scene.workspace.join("f");
    std::fs::write(&file, "one\ntwo\ntwo\n").expect("written");
    let edit = |old: &str, more: &Value| {
        let mut group = json!({"old_string": old, "new_string": "three"});
        group
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().expect("an object"));
        json!({"path": "f", "replacements": [group]})
    };
    let nothing = json!({});
    assert_eq!(
        code(&scene, "edit_file", &edit("one", &nothing)),
        "file_unread"
    );
    let read = good(&scene, "read_file", &json!({"path": "f"}));
    let answer = scene.call("edit_file", &edit("absent", &nothing));
    assert_eq!(answer.json()["code"], "edit_failed");
    assert_eq!(answer.json()["details"]["failed_replacement_index"], 0);
    assert_eq!(answer.json()["details"]["write_performed"], false);
    assert_eq!(
        code(&scene, "edit_file", &edit("two", &nothing)),
        "edit_failed"
    );
    assert_eq!(std::fs::read(&file).expect("there"), b"one\ntwo\ntwo\n");
    let all = json!({"replace_all": true});
    let edited = good(&scene, "edit_file", &edit("two", &all));
    assert_eq!(edited["replacements"], 2);
    assert_eq!(edited["original_file"]["digest"], read["digest"]);
    assert_ne!(edited["new_file"]["digest"], read["digest"]);
    assert_eq!(std::fs::read(&file).expect("there"), b"one\nthree\nthree\n");

    let change = edited["change_id"].clone();
    good(&scene, "restore_file", &json!({"change_id": change}));
    assert_eq!(std::fs::read(&file).expect("there"), b"one\ntwo\ntwo\n");
}

#[test]
fn files_are_made_listed_renamed_and_removed() {
    let scene = Scene::start();
    good(&scene, "create_folder", &json!({"path": "a/b"}));
    good(&scene, "create_file", &json!({"path": "a/b/c"}));
    assert_eq!(
        code(&scene, "create_file", &json!({"path": "a/b/c"})),
        "file_exists"
    );
    good(
        &scene,
        "rename_file",
        &json!({"path": "a/b/c", "new_path": "a/d"}),
    );
    let listed = good(&scene, "list_folder", &json!({"path": "a"}));
    assert_eq!(
        listed["entries"],
        json!([{"name": "b", "kind": "folder"}, {"name": "d", "kind": "file"}])
    );
    let verdict = good(
        &scene,
        "path_validate",
        &json!({"path": "a/../a/d", "access": "write"}),
    );
    assert_eq!(
        (&verdict["allowed"], &verdict["relative_path"]),
        (&json!(true), &json!("a/d"))
    );
    let verdict = good(&scene, "path_validate", &json!({"path": "../x"}));
    assert_eq!(verdict["allowed"], false);
    assert_eq!(
        code(&scene, "delete_folder", &json!({"path": "a"})),
        "folder_not_empty"
    );
    good(&scene, "delete_file", &json!({"path": "a/d"}));
    good(
        &scene,
        "delete_folder",
        &json!({"path": "a", "recursive": true}),
    );
    assert!(!scene.workspace.join("a").exists());
    let unknown = json!({"path": "a", "as_root": true});
    assert_eq!(code(&scene, "read_file", &unknown), "invalid_request");
}

#[test]
fn row_29_an_image_comes_whole_and_text_is_no_media() {
    let scene = Scene::start();
    let image = b"\x89PNG\r\n\x1a\nand so on";
    std::fs::write(scene.workspace.join("i.txt"), image).expect("written");
    std::fs::write(scene.workspace.join("t.png"), "text").expect("written");
    let read = good(
        &scene,
        "read_file",
        &json!({"path": "i.txt", "type": "media"}),
    );
    assert_eq!(read["media"]["mime_type"], "image/png");
    assert_eq!(read["media"]["base64"], STANDARD.encode(image));
    let text = json!({"path": "t.png", "type": "media"});
    assert_eq!(code(&scene, "read_file", &text), "not_a_file");
}

#[test]
fn many_files_are_read_at_once_and_each_has_its_own_failure() {
    let scene = Scene::start();
    let names: Vec<String> = (0..300).map(|number| format!("f{number}")).collect();
    for name in &names {
        std::fs::write(scene.workspace.join(name), name.repeat(40)).expect("written");
    }
    std::fs::write(scene.workspace.join("large"), "x".repeat(400_000)).expect("written");
    std::fs::write(scene.workspace.join(".env"), "KEY=1").expect("written");
    let mut paths = names.clone();
    paths.extend(["large", "../out", ".env", "absent"].map(str::to_owned));
    let read = good(&scene, "read_files", &json!({"paths": paths}));
    let files = read["files"].as_array().expect("a list");
    for (name, file) in names.iter().zip(files) {
        assert_eq!(file["read"]["content"], name.repeat(40));
    }
    assert_eq!(files[300]["read"]["char_count"], 50_000);
    assert_eq!(files[300]["read"]["truncated"], true);
    let codes: Vec<&Value> = files[301..]
        .iter()
        .map(|file| &file["problem"]["code"])
        .collect();
    assert_eq!(codes, ["path_outside", "denied", "file_missing"]);
    // What was read so may be changed.
    good(
        &scene,
        "write_file",
        &json!({"path": "f7", "content": "new"}),
    );
    assert_eq!(
        code(&scene, "read_files", &json!({"paths": []})),
        "invalid_request"
    );
}
