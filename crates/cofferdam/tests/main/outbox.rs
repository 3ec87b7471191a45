//! The outbox from the command line and over HTTP, with a real remote.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cofferdam_client::Client;
use cofferdam_core::error::{ErrorCode, Problem};
use serde_json::{Value, json};

use crate::scene::{Scene, Server, has_walls};

/// A repository whose `origin` has `main`.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.repository();
    let origin = scene.path("origin.git");
    let origin = origin.to_str().expect("text");
    scene.git(&["init", "-q", "--bare", "-b", "main", origin]);
    scene.git(&["remote", "add", "origin", origin]);
    scene.git(&["push", "-q", "-u", "origin", "main"]);
    scene
}

fn task(scene: &Scene, script: &str) {
    let words = ["task", "run", "--goal", "g", "--", "sh", "-c", script];
    scene.run(&words).expect_code(0);
}

/// What the remote has.
fn remote(scene: &Scene) -> Vec<String> {
    let origin = scene.path("origin.git");
    let origin = origin.to_str().expect("text");
    let words = ["--git-dir", origin, "for-each-ref", "--format=%(refname)"];
    let listed = scene.git(&words);
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn what_is_held_is_shown_and_released_from_the_command_line() {
    if !has_walls() {
        return;
    }
    let scene = scene();
    assert_eq!(
        scene.run(&["outbox"]).expect_code(0).text(),
        "nothing is held\n"
    );
    task(
        &scene,
        "echo two >a.txt; git -c user.name=a -c user.email=a@b commit -qam 'second step'; git push origin HEAD",
    );
    task(&scene, "echo n >new.txt");
    let review = scene.run(&["review", "1", "--stat"]).expect_code(0).text();
    for words in [
        "1 effect held",
        "held      held push cofferdam/1-",
        "next: cofferdam merge 1",
        "cofferdam outbox release 1",
    ] {
        assert!(review.contains(words), "{words}: {review}");
    }
    let held = scene.run(&["push", "2"]).expect_code(0).text();
    assert!(held.contains("asked by a call"), "{held}");
    assert!(held.contains("next: cofferdam outbox show out_"), "{held}");
    let page = scene.run(&["outbox", "--json"]).expect_code(0).json();
    let ids: Vec<&str> = page["held"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["proposal"]["proposal_id"].as_str().expect("an id"))
        .collect();
    assert_eq!(ids.len(), 2, "{page}");
    let shown = scene.run(&["outbox", "show", ids[1]]).expect_code(0).text();
    for words in [
        "asked by the task itself, with git push",
        "second step",
        "origin.git",
        "1 file changed",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(remote(&scene), ["refs/heads/main"]);

    let refused = scene
        .run(&["outbox", "refuse", ids[0], "--reason", "not yet"])
        .expect_code(0);
    assert!(refused.text().starts_with("refused: push "), "{refused:?}");
    let late = scene.run(&["outbox", "release", ids[0]]).expect_code(125);
    assert!(
        late.stderr.contains("error[proposal_decided]"),
        "{}",
        late.stderr
    );
    let done = scene.run(&["outbox", "release", "1"]).expect_code(0);
    let text = done.text();
    assert!(text.starts_with("released: push "), "{text}");
    assert!(text.contains("(as a new branch)"), "{text}");
    let has = remote(&scene);
    assert_eq!(has.len(), 2);
    assert!(has[0].starts_with("refs/heads/cofferdam/1-"), "{has:?}");
    let nothing = scene.run(&["outbox", "release", "1"]).expect_code(125);
    assert!(
        nothing.stderr.contains("error[proposal_unknown]"),
        "{}",
        nothing.stderr
    );
    let all = scene
        .run(&["outbox", "list", "--all"])
        .expect_code(0)
        .text();
    assert!(all.contains("released") && all.contains("refused"), "{all}");
}

#[test]
fn a_merge_is_pushed_with_it_and_a_push_at_once() {
    if !has_walls() {
        return;
    }
    let scene = scene();
    task(&scene, "echo two >a.txt");
    task(&scene, "echo n >new.txt");
    let done = scene
        .run(&["push", "2", "--release", "--json"])
        .expect_code(0);
    assert_eq!(done.json()["success"], json!(true));
    assert_eq!(remote(&scene).len(), 2);
    let done = scene.run(&["merge", "1", "--push"]).expect_code(0).text();
    assert!(done.contains("released: push main"), "{done}");
    let of = |name: &str| scene.git(&["rev-parse", name]);
    assert_eq!(of("main"), of("refs/remotes/origin/main"));
    // Once more says what is so.
    let again = scene.run(&["merge", "1", "--push"]).expect_code(0).text();
    assert!(again.contains("already"), "{again}");
    // What is rejected stays merged and held.
    let other = scene.path("other");
    let origin = scene.path("origin.git");
    let (other, origin) = (
        other.to_str().expect("text"),
        origin.to_str().expect("text"),
    );
    scene.git(&["clone", "-q", origin, other]);
    scene.git(&["-C", other, "commit", "-q", "--allow-empty", "-m", "x"]);
    scene.git(&["-C", other, "push", "-q"]);
    let late = scene.run(&["merge", "2", "--push"]).expect_code(125);
    assert!(
        late.stderr.contains("error[push_failed]"),
        "{}",
        late.stderr
    );
    assert!(
        late.stderr.contains("cofferdam outbox release out_"),
        "{}",
        late.stderr
    );
    let held = scene.run(&["outbox", "--json"]).expect_code(0).json();
    assert_eq!(held["held"][0]["state"], "failed");
    let unknown = scene.run(&["push", "2", "--remote", "nowhere"]);
    let unknown = unknown.expect_code(125);
    assert!(
        unknown.stderr.contains("there are origin"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn row_147_over_http_whoever_works_may_propose_and_only_the_owner_releases() {
    if !has_walls() {
        return;
    }
    let scene = scene();
    task(&scene, "echo two >a.txt");
    let token = |name: &str| {
        let path = scene.path(name);
        std::fs::write(&path, format!("token-of-{name}-0123")).expect("written");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("set");
        path
    };
    let (work, read) = (token("work.token"), token("read.token"));
    let flags = [
        "--work-token-file",
        work.to_str().expect("text"),
        "--read-token-file",
        read.to_str().expect("text"),
    ];
    let _server = Server::start(&scene, &flags);
    let data = scene.path("data");
    let found = cofferdam_client::find_server(&data).expect("there");
    let owner = data.join("server.token");
    let client = |token: &Path| Client::with_token_file(&found.address, token).expect("a token");
    let (owner, work, read) = (client(&owner), client(&work), client(&read));
    let call = |client: &Client, operation: &str, request: Value| {
        client.call::<Value, Value>(operation, &request)
    };
    let code = |outcome: Result<Value, Problem>| outcome.expect_err("it is refused").code;

    // Nor does whoever works write a file outside by asking for it.
    let notes = scene.path("notes.txt");
    let file = json!({"path": notes.to_str().expect("text"), "content": "x"});
    let held = call(&work, "write_outside", file).expect("held");
    let names = json!({"proposal_ids": [held["held"]["proposal"]["proposal_id"]]});
    let refused = call(&work, "outbox_release", names.clone());
    assert_eq!(code(refused), ErrorCode::ScopeMissing);
    assert!(!notes.exists());
    call(&owner, "outbox_release", names).expect("written");
    assert_eq!(std::fs::read_to_string(&notes).expect("read"), "x");

    let push = json!({"task": "1"});
    assert_eq!(
        code(call(&read, "push", push.clone())),
        ErrorCode::ScopeMissing
    );
    for (name, value) in [
        ("force", json!(true)),
        ("branch", json!("main")),
        ("refspec", json!("a:b")),
    ] {
        let forged = json!({"task": "1", name: value});
        assert_eq!(
            code(call(&work, "push", forged)),
            ErrorCode::InvalidRequest,
            "{name}"
        );
    }
    let proposed = call(&work, "push", push).expect("held");
    let id = proposed["held"]["proposal"]["proposal_id"].clone();
    let names = json!({"proposal_ids": [id]});
    for token in [&work, &read] {
        for operation in ["outbox_release", "outbox_refuse"] {
            let refused = call(token, operation, names.clone());
            assert_eq!(code(refused), ErrorCode::ScopeMissing, "{operation}");
        }
        let page = call(token, "outbox_list", json!({})).expect("a page");
        assert_eq!(page["held"][0]["state"], "held");
    }
    assert_eq!(remote(&scene), ["refs/heads/main"]);
    let answer = call(&owner, "outbox_release", names.clone()).expect("sent");
    assert_eq!(answer["success"], json!(true), "{answer}");
    assert_eq!(answer["answers"][0]["held"]["answer"]["door"], "protocol");
    assert_eq!(remote(&scene).len(), 2);
    for operation in ["outbox_release", "outbox_refuse"] {
        let late = call(&owner, operation, names.clone());
        assert_eq!(code(late), ErrorCode::ProposalDecided, "{operation}");
    }
    let got = call(&read, "outbox_get", json!({"proposal_id": id})).expect("there");
    assert_eq!(got["state"], "released");
    let called = scene
        .run(&["call", "outbox_list", "--all", "--json"])
        .expect_code(0);
    assert_eq!(called.json()["held"][0]["state"], "released");
}

#[test]
fn row_147_a_publication_and_a_file_are_shown_and_released_by_one_answer() {
    if !has_walls() {
        return;
    }
    let scene = scene();
    let program = scene.path("registry");
    let log = scene.path("registry.log");
    let text = format!(
        "#!/bin/sh\necho \"$@\" >>{}\necho published\n",
        log.display()
    );
    std::fs::write(&program, text).expect("written");
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, runs).expect("set");
    task(&scene, "echo two >a.txt");
    let program = program.to_str().expect("text");
    let words = ["outbox", "publish", "1", "--", program, "publish", "a b"];
    let held = scene.run(&words).expect_code(0).text();
    for words in ["asked by a call", "runs", "publish 'a b'", "it runs as you"] {
        assert!(held.contains(words), "{words}: {held}");
    }
    let review = scene.run(&["review", "1", "--stat"]).expect_code(0).text();
    assert!(review.contains("held publish "), "{review}");
    // A file is asked for by whoever works, over MCP and HTTP alike, and here by hand.
    let notes = scene.path("notes.txt");
    std::fs::write(&notes, "one\n").expect("written");
    let path = notes.to_str().expect("text");
    let words = [
        "call",
        "write_outside",
        "--path",
        path,
        "--content",
        "two\n",
        "--json",
    ];
    let proposed = scene.run(&words).expect_code(0).json();
    let file = proposed["held"]["proposal"]["proposal_id"]
        .as_str()
        .expect("an id");
    let shown = scene.run(&["outbox", "show", file]).expect_code(0).text();
    for words in ["replace ", "before", "1 -one", "1 +two"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let page = scene.run(&["outbox", "--json"]).expect_code(0).json();
    let ids: Vec<&str> = page["held"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["proposal"]["proposal_id"].as_str().expect("an id"))
        .collect();
    assert_eq!(ids.len(), 2, "{page}");
    assert!(!log.exists());
    assert_eq!(std::fs::read_to_string(&notes).expect("read"), "one\n");
    let words = ["outbox", "release", ids[0], ids[1]];
    let done = scene.run(&words).expect_code(0).text();
    for words in [
        "(the command ended well)",
        "published",
        "(the file holds it)",
    ] {
        assert!(done.contains(words), "{words}: {done}");
    }
    assert_eq!(
        std::fs::read_to_string(&log).expect("read"),
        "publish a b\n"
    );
    assert_eq!(std::fs::read_to_string(&notes).expect("read"), "two\n");
    let words = ["outbox", "pull-request", "1", "--title", "Mend"];
    let refused = scene.run(&words).expect_code(125);
    assert!(
        refused.stderr.contains("error[forge_unknown]"),
        "{}",
        refused.stderr
    );
}
