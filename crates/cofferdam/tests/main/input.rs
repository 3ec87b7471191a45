//! Bad input that must come out right: a typed error, and nothing runs.

use std::os::unix::fs::PermissionsExt as _;

use crate::scene::{Scene, finish, has_walls};

#[track_caller]
fn refused(scene: &Scene, arguments: &[&str], code: &str) {
    let done = scene.run(arguments).expect_code(125);
    assert!(
        done.stderr.contains(&format!("error[{code}]")),
        "{}",
        done.stderr
    );
    assert!(!scene.work().join("ran").exists(), "it ran");
}

#[test]
fn places_that_are_no_workspace() {
    let scene = Scene::new();
    let home = scene.path("home");
    let home = home.to_str().expect("text");
    refused(
        &scene,
        &["run", "--workspace", "/", "--", "touch", "ran"],
        "workspace_refused",
    );
    refused(
        &scene,
        &["run", "--workspace", home, "--", "touch", "ran"],
        "workspace_refused",
    );
    refused(
        &scene,
        &["run", "--workspace", "missing", "--", "touch", "ran"],
        "workspace_missing",
    );
}

#[test]
fn a_directory_outside_the_workspace() {
    let scene = Scene::new();
    refused(
        &scene,
        &["run", "--cwd", "/usr", "--", "touch", "ran"],
        "cwd_outside",
    );
    refused(
        &scene,
        &["run", "--cwd", "missing", "--", "touch", "ran"],
        "cwd_missing",
    );
    std::os::unix::fs::symlink("/usr", scene.work().join("way-out")).expect("a link");
    refused(
        &scene,
        &["run", "--cwd", "way-out", "--", "touch", "ran"],
        "cwd_outside",
    );
}

#[test]
fn time_limits_that_are_none() {
    let scene = Scene::new();
    for limit in ["0", "-1", "nan", "inf"] {
        refused(
            &scene,
            &["run", "--timeout", limit, "--", "touch", "ran"],
            "invalid_timeout",
        );
    }
}

#[test]
fn a_broken_bwrap_is_named() {
    let scene = Scene::new();
    let fake = scene.path("fake");
    std::fs::create_dir(&fake).expect("a directory");
    let script = "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n";
    std::fs::write(fake.join("bwrap"), script).expect("writable");
    std::fs::set_permissions(fake.join("bwrap"), std::fs::Permissions::from_mode(0o755))
        .expect("ours");
    let mut command = scene.command(&["run", "--", "touch", "ran"]);
    let path = format!("{}:/usr/bin:/bin", fake.display());
    command.env("PATH", path);
    let done = finish(command).expect_code(125);
    assert!(done.stderr.contains("error["), "{}", done.stderr);
    assert!(done.stderr.contains("hint:"), "{}", done.stderr);
    assert!(!scene.work().join("ran").exists(), "it ran");
}

#[test]
fn providers_of_later_versions() {
    let scene = Scene::new();
    let done = scene
        .run(&["run", "--provider", "microvm", "--", "touch", "ran"])
        .expect_code(125);
    assert!(done.stderr.contains("error["), "{}", done.stderr);
}

#[test]
fn nothing_is_left_in_the_workspace() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let before = scene.listing();
    scene.run(&["run", "--", "true"]).expect_code(0);
    assert_eq!(scene.listing(), before);
    assert_eq!(crate::scene::list(&scene.path("tmp")), [""; 0]);
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
}

#[test]
fn fc_33_commit_works() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    std::fs::write(
        scene.path("home/.gitconfig"),
        "[user]\n\tname = Test\n\temail = t@example.org\n",
    )
    .expect("ours");
    scene.write("b.txt", "two\n");
    scene
        .run(&[
            "run",
            "--",
            "sh",
            "-c",
            "git add -A && git commit -qm change",
        ])
        .expect_code(0);
    assert_eq!(scene.git(&["log", "--format=%s %an", "-1"]), "change Test");
}

#[test]
fn fc_14_a_planted_hook_is_gone_before_the_answer() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let script = "printf '#!/bin/sh\\n' >.git/hooks/pre-commit; mkdir -p .claude; echo x >.claude/settings.json";
    scene.run(&["run", "--", "sh", "-c", script]);
    assert!(
        !scene.work().join(".git/hooks/pre-commit").exists(),
        "the hook is there"
    );
    assert!(
        !scene.work().join(".claude").exists(),
        "the agent's settings are there"
    );
}

#[test]
fn paths_and_variables_that_are_given() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let out = scene.path("out");
    let place = out.to_str().expect("text");
    let script = "echo $A-$B >\"$1/y\"; cat \"$1/y\"";
    let words = [
        "run", "--rw", place, "--env", "A=1", "--env", "B", "--", "sh", "-c", script, "sh", place,
    ];
    let done = scene.run(&words).expect_code(125);
    assert!(
        done.stderr.contains("error[invalid_request]"),
        "{}",
        done.stderr
    );
    std::fs::create_dir(&out).expect("a directory");
    let mut command = scene.command(&words);
    command.env("B", "2");
    assert_eq!(finish(command).expect_code(0).text(), "1-2\n");
    let closed = [
        "run",
        "--ro",
        place,
        "--",
        "sh",
        "-c",
        "echo x >\"$1/z\"",
        "sh",
        place,
    ];
    assert_ne!(scene.run(&closed).code, Some(0));
    assert!(!out.join("z").exists());
}

#[test]
fn the_data_directory_is_hidden_whatever_is_granted_around_it() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.run(&["run", "--", "true"]).expect_code(0);
    let data = scene.path("data").display().to_string();
    let above = scene.path("").display().to_string();
    let text = format!("ls -A {data} | wc -l");
    let done = scene.run(&["run", "--ro", &above, "--", "sh", "-c", &text]);
    assert_eq!(done.expect_code(0).stdout, b"0\n");
    let landlock = [
        "run",
        "--provider",
        "landlock",
        "--ro",
        &above,
        "--",
        "true",
    ];
    let done = scene.run(&landlock).expect_code(125);
    assert!(
        done.stderr.contains("error[unenforceable]"),
        "{}",
        done.stderr
    );
}

#[test]
fn system_directories_are_no_workspace_and_no_network_allows_no_host() {
    let scene = Scene::new();
    for directory in ["/etc", "/proc", "/usr", "/usr/bin"] {
        let done = scene
            .run(&["run", "--workspace", directory, "--", "true"])
            .expect_code(125);
        assert!(
            done.stderr.contains("error[workspace_refused]"),
            "{}",
            done.stderr
        );
    }
    let both = [
        "run",
        "--net",
        "none",
        "--allow",
        "example.com",
        "--",
        "true",
    ];
    let done = scene.run(&both).expect_code(125);
    assert!(
        done.stderr.contains("error[policy_contradiction]"),
        "{}",
        done.stderr
    );
}
