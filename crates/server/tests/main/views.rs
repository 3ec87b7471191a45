//! What the views show.

use cofferdam_journal::Journal as _;
use serde_json::{Value, json};

use crate::client::{Running, event, fill};

fn story(server: &Running) {
    server
        .journal
        .append(&[
            event("conversation.started", "", json!({"goal": "mend it", "front_door": "cli"})),
            event("task.created", "task_1", json!({"goal": "mend the parser"})),
            event("message.sent", "task_1", json!({"from": "lead", "to": "mender", "text": "go"})),
            event("exec.intended", "task_1", json!({"command_id": "cmd_1", "argv": ["make"]})),
            event("exec.ended", "task_1", json!({"command_id": "cmd_1", "status": "completed", "return_code": 0, "stdout": "x".repeat(20_000), "elapsed_ms": 7})),
            event("message.sent", "task_1", json!({"from": "mender", "to": "lead", "text": "done"})),
            event("verifier.ended", "task_1", json!({"status": "passed", "checks": [{"check": "make check", "status": "passed"}]})),
        ])
        .expect("room");
}

#[test]
fn c104_each_view_answers() {
    let server = Running::start();
    story(&server);
    let show = |view: &str| {
        let answer = server.view(view);
        assert_eq!(answer.status, 200, "{view}: {}", answer.body);
        let json = answer.json();
        assert_eq!(json["meta"]["window_start"], 1, "{view}");
        assert_eq!(json["meta"]["head"], 7, "{view}");
        assert_eq!(json["meta"]["gap"], false, "{view}");
        let as_of = json["meta"]["as_of"].as_str().expect("a cursor").to_owned();
        assert!(as_of.ends_with(":7"), "{as_of}");
        json["data"].clone()
    };
    let topology = show("topology");
    assert_eq!(topology["roots"][0]["label"], "mend it");
    let evidence = show("tasks/task_1/evidence");
    assert_eq!(
        evidence["commands"][0]["return_code"], 0,
        "a large outcome is put back"
    );
    assert_eq!(show("verifier")["counts"]["passed"], 1);
    let summary = show("runtime-summary");
    assert_eq!(summary["commands"]["by_status"], json!({"completed": 1}));
    assert_eq!(summary["running"]["commands"], json!([]));
    let messages = show("threads/thread_1/messages");
    assert_eq!(messages["messages"][1]["text"], "done");
    assert_eq!(show("events")["events"].as_array().map(Vec::len), Some(7));
    assert_eq!(
        show("runtime-summary?event_type=task")["events"]["total"],
        1
    );
    // What comes later is seen in the next view.
    fill(server.journal.as_ref(), 1);
    assert_eq!(
        server.view("runtime-summary").json()["data"]["events"]["total"],
        8
    );
    for (view, code) in [
        ("tasks/task_9/evidence", "task_unknown"),
        ("tasks/..%2f..%2fx/evidence", "task_unknown"),
        ("threads/thread_9/messages", "no_such_resource"),
        ("threads/x/messages", "no_such_resource"),
        ("nothing", "no_such_resource"),
    ] {
        let answer = server.view(view);
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (404, &json!(code)),
            "{view}"
        );
    }
}

#[test]
fn c100_pages_are_the_whole_list() {
    let server = Running::start();
    story(&server);
    fill(server.journal.as_ref(), 250);
    for query in [
        "",
        "&event_type=log",
        "&conversation_id=conv_1&from=2020-01-01T00:00:00Z",
        "&thread_id=thread_1",
    ] {
        let mut positions = Vec::new();
        let mut cursor = String::new();
        loop {
            let answer = server.view(&format!("events?limit=40{query}{cursor}"));
            assert_eq!(answer.status, 200, "{}", answer.body);
            let json = answer.json();
            let events = json["data"]["events"].as_array().expect("events");
            positions.extend(events.iter().filter_map(|event| event["pos"].as_u64()));
            match json["data"]["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let expected: Vec<u64> = match query {
            "&event_type=log" => (8..=257).collect(),
            "&thread_id=thread_1" => vec![3, 6],
            _ => (1..=257).collect(),
        };
        assert_eq!(positions, expected, "{query}");
    }
    let first = server.view("threads/thread_1/messages?limit=1").json();
    assert_eq!(first["data"]["messages"].as_array().map(Vec::len), Some(1));
    let next = first["data"]["next_cursor"].as_str().expect("more");
    let second = server
        .view(&format!("threads/thread_1/messages?limit=1&cursor={next}"))
        .json();
    assert_eq!(second["data"]["messages"][0]["text"], "done");
    assert_eq!(second["data"]["next_cursor"], Value::Null);
}

#[test]
fn c100_wrong_parameters_are_named() {
    let server = Running::start();
    fill(server.journal.as_ref(), 3);
    let head = server.journal.head().expect("a head");
    let future = format!("events?cursor={}:4", head.epoch);
    for (view, status, code, field) in [
        ("events?from=yesterday", 400, "invalid_time", "from"),
        (
            "topology?to=2026-02-30T00:00:00Z",
            400,
            "invalid_time",
            "to",
        ),
        ("events?cursor=nonsense", 400, "invalid_cursor", "cursor"),
        ("events?cursor=ffff:1", 409, "invalid_cursor", "cursor"),
        (future.as_str(), 409, "invalid_cursor", "cursor"),
        ("stream?cursor=nonsense", 400, "invalid_cursor", "cursor"),
        ("events?limit=0", 400, "invalid_request", "limit"),
        ("events?agent_id=x", 400, "invalid_request", "agent_id"),
        ("events?colour=red", 400, "invalid_request", "colour"),
        ("events?limit=1&limit=2", 400, "invalid_request", "limit"),
        ("verifier?limit=1", 400, "invalid_request", "limit"),
    ] {
        let answer = server.view(view);
        assert_eq!(answer.status, status, "{view}: {}", answer.body);
        assert!(answer.head.contains("application/problem+json"));
        let problem = answer.json();
        assert_eq!(
            (&problem["code"], &problem["field"]),
            (&json!(code), &json!(field)),
            "{view}"
        );
        assert_eq!(problem["status"], status, "{view}");
    }
}

#[test]
fn c101_a_lost_beginning_is_told() {
    let server = Running::start();
    fill(server.journal.as_ref(), 20);
    let epoch = server.journal.head().expect("a head").epoch;
    server.view("runtime-summary");
    server.journal.retain_from(11).expect("trimmed");
    let meta = |view: &str| server.view(view).json()["meta"].clone();
    let page = meta(&format!("events?cursor={epoch}:5"));
    assert_eq!(
        (&page["gap"], &page["window_start"], &page["head"]),
        (&json!(true), &json!(11), &json!(21))
    );
    assert_eq!(meta(&format!("events?cursor={epoch}:10"))["gap"], false);
    assert_eq!(meta("runtime-summary")["gap"], true);
    // The same as a fresh fold: ten lines and what retention said.
    let summary = server.view("runtime-summary").json();
    assert_eq!(summary["data"]["events"]["total"], 11);
}

#[test]
fn the_document_tells_of_every_view() {
    let server = Running::start();
    let document = server.get("/api/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    for view in [
        "events",
        "topology",
        "tasks/{task_id}/evidence",
        "threads/{thread_id}/messages",
        "verifier",
        "runtime-summary",
        "stream",
    ] {
        let path = format!("/api/agents/visibility/{view}");
        assert!(document["paths"][&path]["get"].is_object(), "{path}");
        assert_eq!(
            document["paths"][&path]
                .as_object()
                .map(serde_json::Map::len),
            Some(1)
        );
    }
}

#[test]
fn head_gives_the_head_only() {
    let server = Running::start();
    let answer = server.send(&server.request("HEAD", "/api/agents/visibility/topology", ""));
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
}
