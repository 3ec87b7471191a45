//! Terminals over HTTP: operations, the events of them in order, and what they write as it comes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::policy::{Permission, PolicyDocument, ProviderChoice};
use cofferdam_journal::SystemAmbient;
use cofferdam_runtime::{PolicyRequest, Runtime, RuntimeOptions, Surroundings};
use cofferdam_server::OperationHost;
use serde_json::{Value, json};

use crate::client::{Frames, Running, options};

/// A server with a workspace of its own, without walls.
fn start() -> Running {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut options, journal) = options(&directory);
    let base = directory.path().canonicalize().expect("a path");
    for name in ["home", "work"] {
        std::fs::create_dir(base.join(name)).expect("made");
    }
    let surroundings = Surroundings::new(
        [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", base.join("home").into_os_string()),
        ],
        base.join("work"),
    );
    let runtime = Runtime::open(RuntimeOptions {
        data_dir: Some(base.join("data")),
        journal: Some(journal.clone()),
        ..RuntimeOptions::new(surroundings, Arc::new(SystemAmbient::new()))
    })
    .expect("opened");
    let policy = PolicyRequest {
        owner: PolicyDocument {
            provider: Some(ProviderChoice::Direct),
            permission: Some(Permission::Unrestricted),
            ..PolicyDocument::default()
        },
        ..PolicyRequest::default()
    };
    options.operations = OperationHost::open(Arc::new(runtime), policy).map(Arc::new);
    Running::run(options, journal, directory)
}

fn called(server: &Running, operation: &str, request: &Value) -> Value {
    let answer = server.call(operation, request);
    assert_eq!(answer.status, 200, "{operation}: {}", answer.body);
    answer.json()
}

/// Reads frames until one of this kind; gives all bytes of output on the way, and its data.
fn until(frames: &mut Frames, kind: &str) -> (Vec<u8>, Value) {
    let mut bytes = Vec::new();
    loop {
        let frame = frames.named().expect("more frames");
        if frame.event == kind {
            return (bytes, frame.data);
        }
        if frame.event == "output" {
            let text = frame.data["bytes"].as_str().expect("base64");
            bytes.extend(STANDARD.decode(text).expect("base64"));
        }
    }
}

#[test]
fn row_28_a_terminal_is_followed_over_sse_and_its_events_come_in_order() {
    let server = start();
    let mut events = server.stream("", None);
    let opened = called(&server, "terminal_open", &json!({"name": "one"}));
    assert_eq!(opened["terminal"]["state"], "ready");
    let mut first = server.stream_of("/api/v1/terminals/one/stream", None);
    let mut second = server.stream_of("/api/v1/terminals/one/stream?from=0", None);
    let request = json!({"text": "echo fol''lowed", "output_wait": 20});
    let typed = called(&server, "terminal_input", &request);
    assert_eq!(typed["status"], "completed", "{typed}");
    let bytes = STANDARD.encode(b"echo wri''tten\r");
    called(&server, "terminal_write", &json!({"bytes": bytes}));
    let wait = json!({"output_wait": 20});
    called(&server, "terminal_input", &wait);
    called(
        &server,
        "terminal_resize",
        &json!({"rows": 30, "columns": 100}),
    );
    let screen = called(&server, "terminal_snapshot", &json!({}));
    assert!(screen["text"].as_str().expect("text").contains("\nwritten"));
    let (_, size) = until(&mut first, "resized");
    assert_eq!(size["columns"], 100);
    called(&server, "terminal_close", &json!({}));
    until(&mut first, "closed");
    let (bytes, _) = until(&mut second, "closed");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.contains("followed\r\n") && text.contains("written\r\n"));
    let mut kinds = Vec::new();
    while kinds.last().map(String::as_str) != Some("terminal.closed") {
        let frame = events.named().expect("more events");
        if frame.event.starts_with("terminal.") {
            kinds.push(frame.event);
        }
    }
    kinds.dedup();
    let place = |kind: &str| kinds.iter().position(|one| one == kind).expect(kind);
    assert_eq!(place("terminal.started"), 0);
    assert!(place("terminal.input") < place("terminal.resized"));
    assert!(place("terminal.resized") < place("terminal.closed"));
    assert!(kinds.contains(&"terminal.output".to_owned()));
    let gone = server.get("/api/v1/terminals/one/stream");
    assert_eq!(gone.json()["code"], "terminal_unknown");
}

#[test]
fn c11_who_comes_too_late_is_told_what_is_missing() {
    let server = start();
    called(&server, "terminal_open", &json!({"name": "one"}));
    let request = json!({"text": "seq 1 80000", "output_wait": 60});
    let typed = called(&server, "terminal_input", &request);
    assert_eq!(typed["status"], "completed");
    assert_eq!(typed["truncated"], true);
    let mut late = server.stream_of("/api/v1/terminals/one/stream?from=0", None);
    let (_, gap) = until(&mut late, "gap");
    assert_eq!(gap["from"], 0);
    let kept = gap["to"].as_u64().expect("a number");
    assert!(kept > 200_000, "{gap}");
}
