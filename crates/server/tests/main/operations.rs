//! Operations over HTTP: who may, what is refused before any effect, and what a call means.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::policy::{Permission, PolicyDocument, ProviderChoice};
use cofferdam_core::spec::Network;
use cofferdam_journal::SystemAmbient;
use cofferdam_runtime::{PolicyRequest, Runtime, RuntimeOptions, Surroundings};
use cofferdam_server::{OperationHost, ServerOptions};
use serde_json::{Value, json};

use crate::client::{Answer, Running};

/// A server with a workspace, on the provider that works everywhere.
pub(crate) struct Scene {
    server: Running,
    pub(crate) workspace: PathBuf,
    read_token: String,
    work_token: String,
}

pub(crate) fn host(workspace: PathBuf, data: PathBuf) -> Arc<OperationHost> {
    let home = workspace.parent().expect("a parent").join("home");
    std::fs::create_dir_all(&home).expect("a home");
    let variables: [(OsString, OsString); 2] = [
        ("HOME".into(), home.into_os_string()),
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
    ];
    let surroundings = Surroundings::new(variables, &workspace);
    let mut options = RuntimeOptions::new(surroundings, Arc::new(SystemAmbient::new()));
    options.data_dir = Some(data);
    let runtime = Arc::new(Runtime::open(options).expect("a runtime"));
    let policy = PolicyRequest {
        workspace: Some(workspace),
        owner: PolicyDocument {
            provider: Some(ProviderChoice::Direct),
            permission: Some(Permission::Unrestricted),
            network: Some(Network::Full),
            ..PolicyDocument::default()
        },
        ..PolicyRequest::default()
    };
    Arc::new(OperationHost::open(runtime, policy).expect("a workspace"))
}

impl Scene {
    pub(crate) fn start() -> Self {
        let mut workspace = PathBuf::new();
        let read_token = "only-for-reading-0123".to_owned();
        let work_token = "only-for-working-0123".to_owned();
        let server = Running::start_as(|options: &mut ServerOptions, directory| {
            workspace = directory.join("work");
            std::fs::create_dir(&workspace).expect("a directory");
            workspace = workspace.canonicalize().expect("a real path");
            let file = directory.join("read.token");
            std::fs::write(&file, &read_token).expect("written");
            let private = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&file, private).expect("set");
            options.read_token_file = Some(file);
            let file = directory.join("work.token");
            std::fs::write(&file, &work_token).expect("written");
            let private = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&file, private).expect("set");
            options.work_token_file = Some(file);
            options.operations = Ok(host(workspace.clone(), options.data.path().to_owned()));
        });
        Self {
            server,
            workspace,
            read_token,
            work_token,
        }
    }

    fn text(&self, operation: &str, more: &str, body: &str) -> String {
        let length = body.len();
        let target = format!("/api/v1/{operation}");
        let more = format!("{more}Content-Length: {length}\r\n");
        self.server.request("POST", &target, &more) + body
    }

    pub(crate) fn call(&self, operation: &str, body: &Value) -> Answer {
        let json = "Content-Type: application/json\r\n";
        self.server
            .send(&self.text(operation, json, &body.to_string()))
    }
}

#[test]
fn a_command_runs_and_its_result_is_the_outcome() {
    let scene = Scene::start();
    let answer = scene.call(
        "run_command",
        &json!({"command": "pwd; echo no >&2; exit 3"}),
    );
    assert_eq!(answer.status, 200, "{}", answer.body);
    let outcome = answer.json();
    assert_eq!(outcome["status"], "failed");
    assert_eq!(outcome["return_code"], 3);
    assert_eq!(
        outcome["stdout"],
        format!("{}\n", scene.workspace.display())
    );
    assert_eq!(outcome["stderr"], "no\n");
    assert_eq!(outcome["timeout_ms"], 120_000);
    let answer = scene.call("run_command", &json!({"argv": ["printf", "%s", r"a\.b"]}));
    assert_eq!(answer.json()["stdout"], r"a\.b");
}

#[test]
fn f1_what_a_web_page_can_send_has_no_effect() {
    let scene = Scene::start();
    let body = r#"{"command": "touch made"}"#;
    let json = "Content-Type: application/json\r\n";
    let good = scene.text("run_command", json, body);
    let host = format!("Host: {}", scene.server.address);
    let port = scene.server.address.port();
    for (request, status, code) in [
        (
            scene.text("run_command", "", body),
            415,
            "unsupported_media_type",
        ),
        (
            scene.text("run_command", "Content-Type: text/plain\r\n", body),
            415,
            "unsupported_media_type",
        ),
        (
            scene.text(
                "run_command",
                "Content-Type: application/x-www-form-urlencoded\r\n",
                body,
            ),
            415,
            "unsupported_media_type",
        ),
        (
            scene.text(
                "run_command",
                "Content-Type: application/json\r\nContent-Type: text/plain\r\n",
                body,
            ),
            415,
            "unsupported_media_type",
        ),
        (
            good.replace(&host, &format!("Host: evil.example:{port}")),
            403,
            "origin_refused",
        ),
        (
            good.replace(&host, &format!("{host}\r\nOrigin: http://evil.example")),
            403,
            "origin_refused",
        ),
        (
            good.replace(&host, &format!("{host}\r\nSec-Fetch-Site: cross-site")),
            403,
            "origin_refused",
        ),
        (good.replace("Bearer ", "Bearer x"), 401, "unauthorized"),
        (good.replace("POST ", "PUT "), 405, "method_not_allowed"),
        (good.replace("POST ", "GET "), 405, "method_not_allowed"),
    ] {
        let answer = scene.server.send(&request);
        assert_eq!(answer.status, status, "{request}\n{}", answer.body);
        assert_eq!(answer.json()["code"], code, "{request}");
        assert!(answer.head.contains("application/problem+json"));
    }
    assert!(!scene.workspace.join("made").exists());
    assert_eq!(scene.server.send(&good).status, 200);
    assert!(scene.workspace.join("made").exists());
}

#[test]
fn row_112_workspace_and_principal_are_the_servers() {
    let scene = Scene::start();
    let own = scene.workspace.display().to_string();
    let answer = scene.call("run_command", &json!({"command": "true", "workspace": own}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let other = json!({"command": "touch made", "workspace": "/usr"});
    let answer = scene.call("run_command", &other);
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["code"], "workspace_mismatch");
    for (field, value) in [
        ("actor", json!("owner")),
        ("principal", json!("root")),
        ("grants", json!([{"kind": "write", "path": "/"}])),
        ("authority", json!({})),
        ("policy", json!({"network": "full"})),
        ("provider", json!("direct")),
    ] {
        let answer = scene.call(
            "run_command",
            &json!({"command": "touch made", field: value}),
        );
        assert_eq!(answer.status, 400, "{field}: {}", answer.body);
        assert_eq!(answer.json()["code"], "invalid_request");
        assert_eq!(answer.json()["field"], field);
    }
    assert!(!scene.workspace.join("made").exists());
}

#[test]
fn row_48_a_request_narrows_and_never_widens() {
    let scene = Scene::start();
    // Direct walls hold nothing: what is asked to be narrower is refused, never passed over.
    let answer = scene.call(
        "run_command",
        &json!({"command": "touch made", "network": "none"}),
    );
    assert_eq!(
        answer.json()["error"]["code"],
        "unenforceable",
        "{}",
        answer.body
    );
    assert!(!scene.workspace.join("made").exists());
}

#[test]
fn wrong_requests_have_the_status_that_says_so() {
    let scene = Scene::start();
    for (operation, body, status, code) in [
        ("run_command", json!({}), 400, "invalid_request"),
        ("run_command", json!([]), 400, "invalid_request"),
        (
            "run_command",
            json!({"command": "true", "timeout": 0}),
            400,
            "invalid_timeout",
        ),
        (
            "run_command",
            json!({"command": "true", "cwd": "../.."}),
            400,
            "cwd_outside",
        ),
        ("run_everything", json!({}), 404, "operation_unknown"),
    ] {
        let answer = scene.call(operation, &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert_eq!(answer.json()["code"], code, "{body}");
    }
}

#[test]
fn the_token_for_work_runs_commands_and_answers_nothing() {
    let scene = Scene::start();
    let json = "Content-Type: application/json\r\n";
    let token = &scene.server.token;
    let with = |operation: &str, body: &str| {
        let text = scene.text(operation, json, body);
        scene.server.send(&text.replace(token, &scene.work_token))
    };
    assert_eq!(with("run_command", r#"{"command": "true"}"#).status, 200);
    assert_eq!(with("approval_list", "{}").status, 200);
    for (operation, body) in [
        (
            "approval_answer",
            r#"{"approval_id": "appr_none", "answer": "approve"}"#,
        ),
        ("approval_forget", r#"{"rule_id": "rule_none"}"#),
        ("mode_set", r#"{"to": {"mode": "policy"}}"#),
        ("outbox_release", r#"{"task": "1"}"#),
        ("outbox_refuse", r#"{"task": "1"}"#),
    ] {
        let answer = with(operation, body);
        assert_eq!(answer.status, 403, "{operation}");
        assert_eq!(answer.json()["code"], "scope_missing");
    }
    let own = scene.call(
        "approval_answer",
        &json!({"approval_id": "appr_none", "answer": "approve"}),
    );
    assert_eq!(own.json()["code"], "approval_unknown");
}

#[test]
fn the_token_for_reading_starts_nothing() {
    let scene = Scene::start();
    let json = "Content-Type: application/json\r\n";
    let token = &scene.server.token;
    let with = |operation: &str, body: &str| {
        let text = scene.text(operation, json, body);
        scene.server.send(&text.replace(token, &scene.read_token))
    };
    let answer = with("run_command", r#"{"command": "touch made"}"#);
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["code"], "scope_missing");
    assert!(!scene.workspace.join("made").exists());
    let answer = with("describe_environment", "{}");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let text = answer.json()["text"].to_string();
    for word in ["direct", "may write", "Network", "Limits"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn row_14_the_same_key_twice_starts_one_process() {
    let scene = Scene::start();
    let body = json!({"command": "echo x >> lines", "idempotency_key": "one"});
    let first = scene.call("run_command", &body).json();
    let second = scene.call("run_command", &body).json();
    assert_eq!(first["command_id"], second["command_id"]);
    let lines = std::fs::read_to_string(scene.workspace.join("lines")).expect("written");
    assert_eq!(lines, "x\n");
}

#[test]
fn b4_a_caller_that_goes_away_ends_its_command() {
    let scene = Scene::start();
    let body = r#"{"command": "echo $$ > pid.new; mv pid.new pid; sleep 300; touch late"}"#;
    let json = "Content-Type: application/json\r\n";
    let mut stream = scene.server.connect();
    let request = scene.text("run_command", json, body);
    stream.write_all(request.as_bytes()).expect("sent");
    let file = scene.workspace.join("pid");
    wait_for(|| file.exists());
    let pid = std::fs::read_to_string(&file).expect("a pid");
    let process = PathBuf::from("/proc").join(pid.trim());
    assert!(process.exists());
    drop(stream);
    wait_for(|| !process.exists());
    // The next one works.
    let answer = scene.call("run_command", &json!({"command": "echo next"}));
    assert_eq!(answer.json()["stdout"], "next\n");
    assert!(!scene.workspace.join("late").exists());
}

#[test]
fn long_calls_leave_room_for_short_ones() {
    let scene = Scene::start();
    let json = "Content-Type: application/json\r\n";
    let body = r#"{"command": "echo x >> begun; while [ ! -e go ]; do sleep 0.05; done"}"#;
    let mut streams = Vec::new();
    for _ in 0..24 {
        let mut stream = scene.server.connect();
        let request = scene.text("run_command", json, body);
        stream.write_all(request.as_bytes()).expect("sent");
        streams.push(stream);
    }
    let begun = scene.workspace.join("begun");
    wait_for(|| std::fs::read(&begun).is_ok_and(|text| text.len() == 48));
    assert_eq!(scene.server.view("runtime-summary").status, 200);
    let answer = scene.call("run_command", &json!({"command": "echo short; touch go"}));
    assert_eq!(answer.json()["stdout"], "short\n");
    for mut stream in streams {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        assert!(text.contains("\"completed\""), "{text}");
    }
}

/// Waits until something holds.
fn wait_for(mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "it never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}
