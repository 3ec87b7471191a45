//! `policy …` and the policies that are refused.

use serde_json::json;

use crate::scene::{Scene, has_walls};

#[test]
fn an_unknown_key_names_the_nearest() {
    let scene = Scene::new();
    scene.write("policy.toml", "schema = 1\nnetwrok = \"none\"\n");
    let done = scene
        .run(&["policy", "check", "policy.toml"])
        .expect_code(125);
    assert!(
        done.stderr.contains("error[policy_unknown_key]"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("network"), "{}", done.stderr);
    let said = scene
        .run(&["policy", "check", "policy.toml", "--json"])
        .expect_code(125)
        .json();
    assert_eq!(said["error"]["code"], json!("policy_unknown_key"));
}

#[test]
fn a_good_file_is_good() {
    let scene = Scene::new();
    scene.write("policy.toml", "schema = 1\nnetwork = \"none\"\n");
    scene
        .run(&["policy", "check", "policy.toml"])
        .expect_code(0);
}

#[test]
fn a_policy_that_cannot_be_read_stops_the_run() {
    let scene = Scene::new();
    let done = scene
        .run(&["run", "--policy", "none.toml", "--", "touch", "ran"])
        .expect_code(125);
    assert!(
        done.stderr.contains("error[policy_unreadable]"),
        "{}",
        done.stderr
    );
    assert_eq!(scene.listing(), [""; 0]);
}

#[test]
fn the_schema_is_json() {
    let scene = Scene::new();
    let schema = scene.run(&["policy", "schema"]).expect_code(0).json();
    assert!(schema["properties"]["network"].is_object(), "{schema}");
}

#[test]
fn a_runner_policy_becomes_a_policy_file() {
    let scene = Scene::new();
    scene.write(
        "runner.json",
        r#"{"provider": "bwrap", "mode": "SANDBOX", "net": "DISABLE", "inheritEnv": false,
            "env": {"A": "1"}, "readOnlyPaths": ["/opt"], "writablePaths": ["/srv/out"]}"#,
    );
    let done = scene.run(&["policy", "import", "runner.json"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    scene.write("policy.toml", &done.text());
    scene
        .run(&["policy", "check", "policy.toml"])
        .expect_code(0);
}

#[test]
fn explain_names_the_layer_of_each_value() {
    let scene = Scene::new();
    let said = scene
        .run(&["policy", "explain", "--net", "full", "--json", "--", "true"])
        .expect_code(0)
        .json();
    let network = said["fields"].as_array().and_then(|fields| {
        fields
            .iter()
            .find(|field| field["field"] == "network")
            .cloned()
    });
    assert_eq!(
        network,
        Some(json!({"field": "network", "value": "\"full\"", "layer": "command_line"}))
    );
    let text = scene
        .run(&["policy", "explain", "--", "true"])
        .expect_code(0)
        .text();
    assert!(
        text.contains("git hooks") || text.contains("network"),
        "{text}"
    );
}

#[test]
fn explain_shows_where_each_host_of_dev_was_found() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    scene.git(&["remote", "add", "origin", "https://git.example.org/x.git"]);
    let told = |flags: &[&str]| {
        let words = [&["policy", "explain", "--json"], flags].concat();
        scene.run(&words).expect_code(0).json()
    };
    let names = |list: &serde_json::Value| {
        let list = list.as_array().cloned().unwrap_or_default();
        let of_remote = list
            .into_iter()
            .find(|one| one["rule"] == "git.example.org:443");
        of_remote.map(|one| one["origin"].as_str().unwrap_or_default().to_owned())
    };
    // A plain run has none of them, and is told what it could have.
    let run = told(&[]);
    assert!(
        names(&run["dev"]).is_some_and(|origin| !origin.is_empty()),
        "{run}"
    );
    assert!(run["launch"]["enclosure"]["egress"].is_null());
    let text = scene.run(&["policy", "explain"]).expect_code(0).text();
    assert!(text.contains("What --allow @dev would add"), "{text}");
    // A task has them, and so has an agent.
    for flags in [&["--task"][..], &["--profile", "codex"]] {
        let told = told(flags);
        let allow = &told["launch"]["enclosure"]["egress"]["allow"];
        assert!(
            names(allow).is_some_and(|origin| !origin.is_empty()),
            "{told}"
        );
        assert!(told["dev"].is_null(), "{told}");
    }
}
