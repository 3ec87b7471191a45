//! Row 77: what a tool says of itself decides whether somebody is asked before it runs.

use std::path::Path;
use std::sync::{Arc, Mutex};

use cofferdam_core::approval::{ApprovalAnswer, ApprovalAsk, ApprovalKind, Remember};
use cofferdam_core::policy::{Permission, PolicyDocument};
use cofferdam_journal::SystemAmbient;
use cofferdam_runtime::{
    AskOwner, OwnerAnswer, PolicyRequest, Runtime, RuntimeOptions, Surroundings,
};
use cofferdam_server::{OperationHost, OperationTable};
use serde_json::{Value, json};

/// Says yes, and keeps what was asked.
#[derive(Debug, Default)]
struct Yes(Mutex<Vec<ApprovalAsk>>);

impl AskOwner for Yes {
    fn ask(&self, ask: &ApprovalAsk, _is_open: &dyn Fn() -> bool) -> Option<OwnerAnswer> {
        self.0.lock().expect("whole").push(ask.clone());
        Some(OwnerAnswer {
            answer: ApprovalAnswer::Approve,
            remember: Remember::Once,
        })
    }
}

struct Bench {
    _directory: tempfile::TempDir,
    runtime: Arc<Runtime>,
    host: Arc<OperationHost>,
}

impl Bench {
    fn with(permission: Permission, is_owner: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let base = directory.path().canonicalize().expect("real");
        let tools = base.join("home/.config/cofferdam/tools");
        for path in [&base.join("work"), &tools] {
            std::fs::create_dir_all(path).expect("a directory");
        }
        for (name, hints) in [
            ("silent", ""),
            ("reads", "read_only = true"),
            ("changes", "read_only = false\ndestructive = false"),
            ("destroys", "destructive = true"),
        ] {
            let text = format!(
                "schema = 1\nname = \"{name}\"\ndescription = \"says its name\"\n\
                 argv = [\"echo\", \"{name}\"]\n[hints]\n{hints}\n"
            );
            std::fs::write(tools.join(format!("{name}.toml")), text).expect("written");
        }
        let variables = [
            ("HOME", base.join("home").into_os_string()),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
        ];
        let surroundings = Surroundings::new(variables, base.join("work"));
        let mut options = RuntimeOptions::new(surroundings, Arc::new(SystemAmbient::new()));
        options.data_dir = Some(base.join("data"));
        let runtime = Arc::new(Runtime::open(options).expect("a runtime"));
        let policy = PolicyRequest {
            workspace: Some(base.join("work")),
            owner: PolicyDocument {
                permission: Some(permission),
                ..PolicyDocument::default()
            },
            ..PolicyRequest::default()
        };
        let host = OperationHost::open(Arc::clone(&runtime), policy).expect("a workspace");
        let host = if is_owner { host.for_owner() } else { host };
        Self {
            _directory: directory,
            runtime,
            host: Arc::new(host),
        }
    }

    /// Runs a tool; gives what it said, or the code of the refusal.
    fn run(&self, name: &str) -> String {
        let table = OperationTable::new();
        let operation = table.find("tool_run").expect("an operation");
        let request = json!({"name": name});
        match operation.call_value(&self.host.context(), request) {
            Ok(outcome) => match &outcome["stdout"] {
                Value::String(said) => said.trim().to_owned(),
                _ => outcome.to_string(),
            },
            Err(problem) => problem.code.to_string(),
        }
    }
}

#[expect(clippy::print_stdout, reason = "a test that cannot run says so")]
fn has_walls() -> bool {
    let found = Path::new("/usr/bin/bwrap").exists();
    if !found {
        println!("skipped: bubblewrap is not installed");
    }
    found
}

#[test]
fn row_77_an_unannotated_tool_asks_in_readonly() {
    if !has_walls() {
        return;
    }
    let bench = Bench::with(Permission::Readonly, false);
    assert_eq!(bench.run("reads"), "reads");
    assert_eq!(bench.run("changes"), "readonly_denied");
    assert_eq!(bench.run("silent"), "approval_unavailable");
    let yes = Arc::new(Yes::default());
    bench.runtime.on_approval(yes.clone());
    assert_eq!(bench.run("silent"), "silent");
    assert_eq!(bench.run("changes"), "readonly_denied");
    let asked = yes.0.lock().expect("whole");
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].kind, ApprovalKind::Tool);
    assert_eq!(asked[0].preview.command.as_deref(), Some("echo silent"));
    assert!(asked[0].binding.task.is_some());
}

#[test]
fn row_77_what_may_destroy_asks_where_the_rest_does_not() {
    if !has_walls() {
        return;
    }
    let bench = Bench::with(Permission::AutoApproval, false);
    for name in ["reads", "changes", "silent"] {
        assert_eq!(bench.run(name), name);
    }
    assert_eq!(bench.run("destroys"), "approval_unavailable");
    let open = Bench::with(Permission::Unrestricted, false);
    assert_eq!(open.run("destroys"), "destroys");
    // The owner at the keyboard has said so by running it.
    let owner = Bench::with(Permission::Readonly, true);
    assert_eq!(owner.run("silent"), "silent");
    assert_eq!(owner.run("changes"), "readonly_denied");
}
