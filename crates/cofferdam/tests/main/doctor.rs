//! `doctor`, and what it writes down.

use serde_json::json;

use crate::scene::{Scene, finish};

#[test]
fn each_provider_stands_in_the_table() {
    let scene = Scene::new();
    let done = scene.run(&["doctor"]);
    for provider in ["direct", "bwrap", "landlock", "memory"] {
        assert!(done.text().contains(provider), "{}", done.text());
    }
    let said = scene.run(&["doctor", "--json"]).json();
    let works = said["default_works"].as_bool().expect("a truth");
    assert_eq!(done.code, Some(if works { 0 } else { 125 }));
}

#[test]
fn a_missing_bwrap_is_named_with_the_change_that_helps() {
    let scene = Scene::new();
    let empty = scene.path("empty");
    std::fs::create_dir(&empty).expect("a directory");
    let mut command = scene.command(&["doctor", "--json"]);
    command.env("PATH", &empty);
    let said = finish(command).expect_code(125).json();
    assert_eq!(said["default_works"], json!(false));
    let bwrap = said["providers"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["provider"] == "bwrap").cloned())
        .expect("bwrap is there");
    assert_eq!(bwrap["problem"]["code"], json!("bwrap_missing"));
    assert!(bwrap["problem"]["hint"].is_string(), "{bwrap}");
    // Nobody says yes: everything is printed, and nothing is changed.
    let mut command = scene.command(&["doctor", "--fix"]);
    command.env("PATH", &empty);
    let done = finish(command);
    assert_ne!(done.code, Some(0));
    if said["changes"]
        .as_array()
        .is_some_and(|changes| !changes.is_empty())
    {
        assert!(done.stderr.contains("bubblewrap"), "{}", done.stderr);
        assert!(done.stderr.contains("error[denied]"), "{}", done.stderr);
    }
}

#[test]
fn an_accepted_fallback_is_taken_and_said_each_time() {
    let scene = Scene::new();
    let landlock = scene.run(&["run", "--provider", "landlock", "--", "true"]);
    if landlock.code != Some(0) {
        crate::scene::skipped(&format!(
            "landlock does not work here: {}",
            landlock.stderr.trim()
        ));
        return;
    }
    let empty = scene.path("empty");
    std::fs::create_dir(&empty).expect("a directory");
    let without_bwrap = || {
        let mut command = scene.command(&["run", "--", "/bin/echo", "ran"]);
        command.env("PATH", &empty);
        finish(command)
    };
    let refused = without_bwrap().expect_code(125);
    assert!(
        refused.stderr.contains("doctor --accept"),
        "{}",
        refused.stderr
    );
    assert_eq!(refused.text(), "");
    scene
        .run(&["doctor", "--accept", "landlock"])
        .expect_code(0);
    let again = scene
        .run(&["doctor", "--accept", "landlock", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(again["changed"], json!(false));
    let taken = without_bwrap().expect_code(0);
    assert_eq!(taken.text(), "ran\n");
    assert!(
        taken.stderr.contains("landlock instead of bwrap"),
        "{}",
        taken.stderr
    );
    let events = scene
        .run(&["events", "--type", "isolation.fallback", "--json"])
        .json();
    assert_eq!(events["data"]["events"].as_array().map(Vec::len), Some(1));
}
