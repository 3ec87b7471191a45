//! The wrap mode: what it writes, and that nothing of it is left.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::scene::{Finished, Scene, finish};

/// Everything below a directory: what it is, its mode and what it holds.
fn tree(directory: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(place) = left.pop() {
        for entry in fs::read_dir(&place).expect("readable") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("there");
            let content = if metadata.is_dir() {
                left.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).expect("readable")
            };
            let mode = metadata.permissions().mode();
            found.insert(path.display().to_string(), (mode, content));
        }
    }
    found
}

fn setup(scene: &Scene, arguments: &[&str]) -> Finished {
    let mut command = scene.command(&[&["setup"], arguments].concat());
    command.env("SHELL", "/bin/bash");
    finish(command)
}

#[test]
fn what_was_set_up_is_taken_away_to_the_byte() {
    let scene = Scene::new();
    let home = scene.path("home");
    for (case, content) in ["alias ll='ls -l'\n", "no line end", ""].iter().enumerate() {
        fs::write(home.join(".bashrc"), content).expect("writable");
        fs::set_permissions(home.join(".bashrc"), fs::Permissions::from_mode(0o640)).expect("ours");
        if case == 2 {
            fs::create_dir_all(home.join(".local/bin")).expect("writable");
        }
        let before = tree(&home);
        let done = setup(&scene, &["claude", "--yes"]).expect_code(0);
        // Each change is said before it is made.
        for said in ["write ", ".bashrc", "cofferdam-shims/claude", "#!/bin/sh"] {
            assert!(done.stderr.contains(said), "{said}: {}", done.stderr);
        }
        assert!(done.text().contains("Not covered:"), "{}", done.text());
        let bashrc = fs::read_to_string(home.join(".bashrc")).expect("readable");
        assert!(bashrc.starts_with(content), "{bashrc}");
        assert!(bashrc.contains("cofferdam-shims:$PATH"), "{bashrc}");
        // Twice is once.
        let whole = tree(&home);
        setup(&scene, &["claude", "--yes"]).expect_code(0);
        assert_eq!(tree(&home), whole);
        // The line stays as long as somebody needs it.
        setup(&scene, &["codex"]).expect_code(0);
        setup(&scene, &["claude", "--undo"]).expect_code(0);
        let bashrc = fs::read_to_string(home.join(".bashrc")).expect("readable");
        assert!(bashrc.contains("cofferdam-shims"), "{bashrc}");
        setup(&scene, &["codex", "--undo"]).expect_code(0);
        assert_eq!(tree(&home), before, "case {case}");
    }
}

#[test]
fn without_a_yes_only_the_script_is_written_and_the_line_is_said() {
    let scene = Scene::new();
    let home = scene.path("home");
    let said = setup(&scene, &["opencode", "--json"]).expect_code(0).json();
    assert_eq!(crate::scene::list(&home), [".local"]);
    let line = said["path_line"].as_str().expect("a line");
    assert!(line.contains("cofferdam-shims:$PATH"), "{line}");
    assert_eq!(said["in_path"], json!(false));
    assert!(
        said["not_covered"]
            .as_array()
            .is_some_and(|list| list.len() > 2)
    );
    setup(&scene, &["opencode", "--undo"]).expect_code(0);
    assert_eq!(crate::scene::list(&home), [""; 0]);
}

#[test]
fn a_script_of_somebody_else_is_left_alone() {
    let scene = Scene::new();
    let shims = scene.path("home/.local/bin/cofferdam-shims");
    fs::create_dir_all(&shims).expect("writable");
    fs::write(shims.join("gemini"), "#!/bin/sh\nexec other\n").expect("writable");
    let before = tree(&shims);
    for arguments in [&["gemini"][..], &["gemini", "--undo"]] {
        let done = setup(&scene, arguments).expect_code(125);
        assert!(
            done.stderr.contains("error[invalid_request]"),
            "{}",
            done.stderr
        );
    }
    assert_eq!(tree(&shims), before);
}

#[test]
fn the_script_finds_the_real_program_behind_itself() {
    let scene = Scene::new();
    setup(&scene, &["codex"]).expect_code(0);
    let real = scene.path("home/real");
    fs::create_dir(&real).expect("writable");
    let program = real.join("codex");
    fs::write(&program, "#!/bin/sh\necho real \"$@\"\n").expect("writable");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    let shims = scene.path("home/.local/bin/cofferdam-shims");
    let call = |arguments: &[&str], wrap: Option<&str>| {
        let mut command = scene.program(shims.join("codex").as_os_str(), arguments);
        let path = format!("{}:{}:/usr/bin:/bin", shims.display(), real.display());
        command.env("PATH", path);
        if let Some(wrap) = wrap {
            command.env("COFFERDAM_WRAP", wrap);
        }
        finish(command)
    };
    // What is the owner's own business runs as before.
    assert_eq!(
        call(&["--version"], None).expect_code(0).text(),
        "real --version\n"
    );
    assert_eq!(
        call(&["login", "x"], None).expect_code(0).text(),
        "real login x\n"
    );
    assert_eq!(
        call(&["do it"], Some("off")).expect_code(0).text(),
        "real do it\n"
    );
    // Everything else is a task, which needs a repository.
    let done = call(&["do it"], None).expect_code(125);
    assert!(
        done.stderr.contains("error[not_a_repository]"),
        "{}",
        done.stderr
    );
}
