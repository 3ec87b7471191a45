//! Row 64: each permission and each operation of the table: what is asked, and what is changed.

use std::path::Path;
use std::sync::{Arc, Mutex};

use cofferdam_core::approval::{ApprovalAnswer, ApprovalAsk, Remember};
use cofferdam_core::policy::{Permission, PolicyDocument};
use cofferdam_journal::SystemAmbient;
use cofferdam_runtime::{
    AskOwner, OwnerAnswer, PolicyRequest, Runtime, RuntimeOptions, Surroundings,
};
use cofferdam_server::{Operation, OperationHost, OperationTable};
use serde_json::{Value, json};

/// What an operation does to the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Nothing: it looks, or reaches into what is there by an id that nobody has here.
    Nothing,
    /// It changes a file through the file door.
    Change,
    /// It runs a command that writes.
    Run,
    /// The same in a place that was opened before.
    RunInside,
}

use Does::{Change, Nothing, Run, RunInside};

/// A row for every operation: what it does, and with which request.
fn rows() -> Vec<(&'static str, Does, Value)> {
    let none = "cmd_0190000000007000800000000000";
    let command = json!({"command": "echo x > made"});
    vec![
        ("run_command", Run, command.clone()),
        ("run_command_background", Run, command),
        ("describe_environment", Nothing, json!({})),
        ("command_get", Nothing, json!({"command_id": none})),
        ("command_list", Nothing, json!({})),
        ("command_wait", Nothing, json!({"command_id": none})),
        (
            "command_read",
            Nothing,
            json!({"command_id": none, "stream": "stdout"}),
        ),
        ("command_cancel", Nothing, json!({"command_id": none})),
        ("command_poll", Nothing, json!({})),
        (
            "command_check",
            Nothing,
            json!({"command": "echo x > made"}),
        ),
        ("read_file", Nothing, json!({"path": "a.txt"})),
        ("read_files", Nothing, json!({"paths": ["a.txt"]})),
        ("search_files", Nothing, json!({"query": "one"})),
        ("list_folder", Nothing, json!({"path": ""})),
        (
            "path_validate",
            Nothing,
            json!({"path": "a.txt", "access": "write"}),
        ),
        (
            "write_file",
            Change,
            json!({"path": "made", "content": "x"}),
        ),
        (
            "edit_file",
            Change,
            json!({"path": "a.txt", "replacements": [{"old_string": "one", "new_string": "two"}]}),
        ),
        ("create_file", Change, json!({"path": "made"})),
        ("delete_file", Change, json!({"path": "a.txt"})),
        (
            "rename_file",
            Change,
            json!({"path": "a.txt", "new_path": "made"}),
        ),
        ("create_folder", Change, json!({"path": "made"})),
        (
            "delete_folder",
            Change,
            json!({"path": "folder", "recursive": true}),
        ),
        ("restore_file", Nothing, json!({"change_id": "chg_none"})),
        ("tool_list", Nothing, json!({})),
        ("tool_run", Nothing, json!({"name": "none"})),
        ("approval_list", Nothing, json!({})),
        ("approval_get", Nothing, json!({"approval_id": "appr_none"})),
        (
            "approval_answer",
            Nothing,
            json!({"approval_id": "appr_none", "answer": "approve"}),
        ),
        ("approval_remembered", Nothing, json!({})),
        ("approval_forget", Nothing, json!({"rule_id": "rule_none"})),
        ("push", Nothing, json!({"task": "1"})),
        ("pull_request", Nothing, json!({"task": "1", "title": "t"})),
        ("publish", Nothing, json!({"task": "1", "argv": ["true"]})),
        (
            "write_outside",
            Nothing,
            json!({"path": "/nowhere/a", "content": "x"}),
        ),
        ("outbox_list", Nothing, json!({})),
        ("outbox_get", Nothing, json!({"proposal_id": "out_none"})),
        ("outbox_release", Nothing, json!({"task": "1"})),
        ("outbox_refuse", Nothing, json!({"task": "1"})),
        ("mode_get", Nothing, json!({})),
        ("mode_set", Nothing, json!({"to": {"mode": "policy"}})),
        ("plan_submit", Nothing, json!({"path": "a.txt"})),
        ("protected_list", Nothing, json!({})),
        ("protected_release", Nothing, json!({"path": ".envrc"})),
        ("quarantine_list", Nothing, json!({})),
        ("path_authorise", Nothing, json!({"path": "/none"})),
        ("path_authorised", Nothing, json!({})),
        (
            "path_request",
            Nothing,
            json!({"path": "/none", "reason": "to see"}),
        ),
        ("path_revoke", Nothing, json!({"rule_id": "rule_none"})),
        (
            "quarantine_restore",
            Nothing,
            json!({"quarantine_id": "cmd_none/1"}),
        ),
        ("session_open", Nothing, json!({})),
        (
            "session_run",
            RunInside,
            json!({"command": "echo x > made"}),
        ),
        ("session_list", Nothing, json!({})),
        ("session_get", Nothing, json!({"session": "none"})),
        ("session_log", Nothing, json!({"session": "none"})),
        (
            "session_end_job",
            Nothing,
            json!({"session": "none", "command_id": none}),
        ),
        ("session_reset", Nothing, json!({"session": "none"})),
        ("session_close", Nothing, json!({"session": "none"})),
        ("terminal_open", Nothing, json!({"name": "one"})),
        (
            "terminal_input",
            Nothing,
            json!({"name": "none", "text": "x", "output_wait": 0}),
        ),
        (
            "terminal_write",
            Nothing,
            json!({"name": "none", "bytes": "eA=="}),
        ),
        ("terminal_snapshot", Nothing, json!({"name": "none"})),
        (
            "terminal_resize",
            Nothing,
            json!({"name": "none", "rows": 1, "columns": 1}),
        ),
        (
            "terminal_signal",
            Nothing,
            json!({"name": "none", "signal": "INT"}),
        ),
        ("terminal_switch", Nothing, json!({"name": "none"})),
        ("terminal_reset", Nothing, json!({"name": "none"})),
        ("terminal_close", Nothing, json!({"name": "none"})),
        ("terminal_list", Nothing, json!({})),
    ]
}

/// How many are asked, and whether the workspace is changed, when everything is refused.
const fn expected(permission: Permission, does: Does) -> (usize, bool) {
    match (permission, does) {
        (_, Nothing) | (Permission::Readonly, _) | (Permission::Approval, RunInside) => (0, false),
        (Permission::Approval, Change | Run) => (1, false),
        (Permission::AutoApproval | Permission::Unrestricted, _) => (0, true),
    }
}

/// An owner who refuses everything.
#[derive(Debug, Default)]
struct Refuses(Mutex<usize>);

impl AskOwner for Refuses {
    fn ask(&self, _ask: &ApprovalAsk, _is_open: &dyn Fn() -> bool) -> Option<OwnerAnswer> {
        *self.0.lock().expect("whole") += 1;
        Some(OwnerAnswer {
            answer: ApprovalAnswer::Reject,
            remember: Remember::Once,
        })
    }
}

fn host(place: &Path, permission: Permission) -> Arc<OperationHost> {
    let workspace = place.join("work");
    let folder = workspace.join("folder");
    std::fs::create_dir_all(folder).expect("a workspace");
    std::fs::write(workspace.join("a.txt"), "one\n").expect("written");
    let home = place.join("home");
    std::fs::create_dir_all(&home).expect("a home");
    let variables: [(std::ffi::OsString, std::ffi::OsString); 2] = [
        ("HOME".into(), home.into_os_string()),
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
    ];
    let surroundings = Surroundings::new(variables, &workspace);
    let mut options = RuntimeOptions::new(surroundings, Arc::new(SystemAmbient::new()));
    options.data_dir = Some(place.join("data"));
    let runtime = Arc::new(Runtime::open(options).expect("a runtime"));
    let policy = PolicyRequest {
        workspace: Some(workspace),
        owner: PolicyDocument {
            permission: Some(permission),
            ..PolicyDocument::default()
        },
        ..PolicyRequest::default()
    };
    Arc::new(OperationHost::open(runtime, policy).expect("a workspace"))
}

/// Everything in the workspace: names and contents.
fn look(place: &Path) -> Vec<(String, String)> {
    let mut all: Vec<_> = std::fs::read_dir(place.join("work"))
        .expect("listed")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let content = std::fs::read_to_string(&path).unwrap_or_default();
            (path.display().to_string(), content)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn row_64_every_operation_has_its_row_and_asks_and_changes_what_it_says() {
    let table = OperationTable::new();
    let mut named: Vec<&str> = table.iter().map(Operation::name).collect();
    let rows = rows();
    let mut rowed: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
    named.sort_unstable();
    rowed.sort_unstable();
    assert_eq!(named, rowed, "each operation needs a row above");
    for (name, does, _) in &rows {
        let told = table.find(name).expect("an entry").annotations();
        let changes = !told.read_only;
        assert!(
            changes || *does == Nothing,
            "{name} says that it only reads"
        );
    }
    let probe = tempfile::tempdir().expect("a directory");
    let described = host(
        &probe.path().canonicalize().expect("real"),
        Permission::Readonly,
    )
    .context()
    .runtime()
    .explain(&PolicyRequest::default(), None);
    if described.is_err() {
        println!("skipped: there are no walls here");
        return;
    }
    for permission in [
        Permission::Readonly,
        Permission::Approval,
        Permission::AutoApproval,
        Permission::Unrestricted,
    ] {
        for (name, does, request) in &rows {
            let place = tempfile::tempdir().expect("a directory");
            let place = place.path().canonicalize().expect("a real path");
            let host = host(&place, permission);
            let context = host.context();
            let refuses = Arc::new(Refuses::default());
            context.runtime().on_approval(refuses.clone());
            let call = |name: &str, request: Value| {
                let operation = table.find(name).expect("an entry");
                operation.call_value(&context, request)
            };
            let mut request = request.clone();
            if *does == RunInside {
                let opened = call("session_open", json!({})).expect("a session");
                request["session"] = opened["session_id"].clone();
            }
            if *name == "edit_file" {
                call("read_file", json!({"path": "a.txt"})).expect("read before");
            }
            let before = look(&place);
            let result = call(name, request);
            let asked = *refuses.0.lock().expect("whole");
            let changed = look(&place) != before;
            let is_read = result
                .as_ref()
                .err()
                .is_none_or(|problem| !problem.message.contains("cannot be read"));
            assert!(is_read, "{name}: {result:?}");
            assert_eq!(
                (asked, changed),
                expected(permission, *does),
                "{name} under {permission:?}: {result:?}"
            );
            if *does == Change && !changed {
                let code = result.expect_err("refused").code.as_str();
                let wanted = match permission {
                    Permission::Readonly => "readonly_denied",
                    _ => "approval_rejected",
                };
                assert_eq!(code, wanted, "{name}");
            }
            context.runtime().end_lasting("over");
        }
    }
}
