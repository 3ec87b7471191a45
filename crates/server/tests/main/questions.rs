//! Questions over HTTP: who may answer, who counts as watching, and what "this task" means there.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::policy::{Permission, PolicyDocument};
use cofferdam_journal::SystemAmbient;
use cofferdam_runtime::{PolicyRequest, Runtime, RuntimeOptions, Surroundings};
use cofferdam_server::{OperationHost, ServerOptions};
use serde_json::{Value, json};

use crate::client::{Answer, Running};

const TOKENS: [(&str, &str); 2] = [
    ("read", "only-for-reading-0123"),
    ("work", "only-for-working-0123"),
];

/// A server under `approval`, whose questions somebody may look at.
struct Asking {
    server: Running,
    workspace: PathBuf,
    runtime: Arc<Runtime>,
}

impl Asking {
    fn start() -> Self {
        let mut kept = None;
        let server = Running::start_as(|options: &mut ServerOptions, directory| {
            let directory = directory.canonicalize().expect("real");
            let workspace = directory.join("work");
            for path in [&workspace, &directory.join("home")] {
                std::fs::create_dir(path).expect("a directory");
            }
            let token = |name: &str, text: &str| {
                let file = directory.join(name);
                std::fs::write(&file, text).expect("written");
                let private = std::fs::Permissions::from_mode(0o600);
                std::fs::set_permissions(&file, private).expect("set");
                Some(file)
            };
            options.read_token_file = token("read.token", TOKENS[0].1);
            options.work_token_file = token("work.token", TOKENS[1].1);
            let variables = [
                ("HOME", directory.join("home").into_os_string()),
                ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ];
            let surroundings = Surroundings::new(variables, &workspace);
            let mut runtime = RuntimeOptions::new(surroundings, Arc::new(SystemAmbient::new()));
            runtime.data_dir = Some(options.data.path().to_owned());
            let runtime = Arc::new(Runtime::open(runtime).expect("a runtime"));
            runtime.attend_questions();
            let policy = PolicyRequest {
                workspace: Some(workspace.clone()),
                owner: PolicyDocument {
                    permission: Some(Permission::Approval),
                    ..PolicyDocument::default()
                },
                ..PolicyRequest::default()
            };
            let host = OperationHost::open(Arc::clone(&runtime), policy).expect("a workspace");
            options.operations = Ok(Arc::new(host));
            kept = Some((workspace, runtime));
        });
        let (workspace, runtime) = kept.expect("made");
        Self {
            server,
            workspace,
            runtime,
        }
    }

    fn call_as(&self, token: &str, operation: &str, body: &Value) -> Answer {
        let body = body.to_string();
        let more = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        let target = format!("/api/v1/{operation}");
        let text = self.server.request("POST", &target, &more);
        self.server
            .send(&(text.replace(&self.server.token, token) + &body))
    }

    /// Waits for the question that stands open.
    fn question(&self) -> Value {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let listed = self.call_as(TOKENS[1].1, "approval_list", &json!({}));
            if let Some(one) = listed.json()["approvals"].get(0) {
                return one.clone();
            }
            assert!(Instant::now() < until, "nothing is asked");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        let target = format!("/api/agents/visibility/events?event_type={kind}");
        let page = self.server.get(&target).json();
        page["data"]["events"].as_array().expect("events").clone()
    }
}

fn write(content: &str) -> Value {
    json!({"path": "a.txt", "content": content})
}

#[test]
fn this_task_is_answered_over_http_and_every_step_names_the_task() {
    if !Path::new("/usr/bin/bwrap").exists() {
        println!("skipped: bubblewrap is not installed");
        return;
    }
    let scene = Asking::start();
    let work = TOKENS[1].1;
    let task = std::thread::scope(|threads| {
        let asked = threads.spawn(|| scene.call_as(work, "write_file", &write("one")));
        let question = scene.question();
        let id = question["ask"]["approval_id"].clone();
        let answer = json!({"approval_id": id, "answer": "approve", "remember": "task"});
        for (name, token) in TOKENS {
            let refused = scene.call_as(token, "approval_answer", &answer);
            assert_eq!(refused.status, 403, "{name}: {}", refused.body);
            assert_eq!(refused.json()["code"], "scope_missing");
        }
        assert_eq!(
            scene.question()["ask"]["approval_id"],
            id,
            "it is still open"
        );
        let said = scene.server.call("approval_answer", &answer);
        assert_eq!(said.status, 200, "{}", said.body);
        let done = asked.join().expect("an answer");
        assert_eq!(done.status, 200, "{}", done.body);
        question["ask"]["binding"]["task"].clone()
    });
    // The same again is not asked: the task of work in a checkout is the process that asks.
    let again = scene.call_as(work, "write_file", &write("two"));
    assert_eq!(again.status, 200, "{}", again.body);
    let content = std::fs::read_to_string(scene.workspace.join("a.txt")).expect("written");
    assert_eq!(content, "two");
    let remembered = scene
        .call_as(work, "approval_remembered", &json!({}))
        .json();
    let rule = remembered["remembered"][0]["rule_id"]
        .as_str()
        .or(remembered["remembered"][0]["remembered"]["rule_id"].as_str())
        .expect("a line")
        .to_owned();
    let forget = json!({"rule_id": rule});
    assert_eq!(scene.server.call("approval_forget", &forget).status, 200);

    assert!(
        task.as_str().is_some_and(|id| id.starts_with("task_")),
        "{task}"
    );
    let listed = json!({"task_id": task, "all": true});
    let listed = scene.call_as(work, "approval_list", &listed).json();
    assert_eq!(listed["approvals"].as_array().map(Vec::len), Some(1));
    let events = scene.events("approval");
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|one| one["type"].as_str())
        .collect();
    for step in [
        "requested",
        "answered",
        "resolved",
        "used",
        "remembered",
        "recalled",
        "forgotten",
    ] {
        assert!(
            kinds.contains(&&*format!("approval.{step}")),
            "{step}: {kinds:?}"
        );
    }
    for event in &events {
        assert_eq!(event["task"], task, "{event}");
    }
    // It is no task that somebody gave, so nobody sees one.
    let topology = scene.server.view("topology").body;
    assert!(
        !topology.contains(task.as_str().expect("an id")),
        "{topology}"
    );
}

#[test]
fn only_the_owners_token_counts_as_watching() {
    let scene = Asking::start();
    for (name, token) in TOKENS {
        let listed = scene.call_as(token, "approval_list", &json!({}));
        assert_eq!(listed.status, 200, "{name}");
        let target = "/api/agents/visibility/stream";
        let text = scene.server.request("GET", target, "");
        let mut stream = scene.server.connect();
        let request = text.replace(&scene.server.token, token);
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("sent");
        let mut first = [0; 12];
        std::io::Read::read_exact(&mut stream, &mut first).expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 200", "{name}");
        assert!(!scene.runtime.approvals_are_watched(), "{name}");
    }
    assert_eq!(scene.server.call("approval_list", &json!({})).status, 200);
    assert!(scene.runtime.approvals_are_watched());
}
