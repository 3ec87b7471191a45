//! One command from request to outcome.

use cofferdam_core::error::ErrorCode;
use cofferdam_core::operation::{Input, RunCommand};
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::{PolicyDocument, ProviderChoice};
use cofferdam_core::spec::{Access, Network, ProviderKind};
use cofferdam_runtime::PolicyRequest;

use crate::support::{Desk, events, has_walls, kinds, provider, run};

#[test]
fn a_command_runs_behind_walls_and_the_journal_tells_of_it() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let outcome = run(
        &runtime,
        PolicyRequest::default(),
        RunCommand::shell("echo out; echo err >&2; exit 3"),
    );
    assert_eq!(outcome.status, Status::Failed, "{outcome:?}");
    assert_eq!(outcome.return_code, Some(3));
    assert_eq!((&*outcome.stdout, &*outcome.stderr), ("out\n", "err\n"));
    assert_eq!(
        outcome.isolation.effective.provider,
        Some(ProviderKind::Bwrap)
    );
    assert_eq!(outcome.isolation.requested.provider, None);
    assert_eq!(outcome.isolation.effective.network, Network::None);
    // The last words of a line of work are written at the latest when the plane ends.
    drop(runtime);
    let events = events(&desk.runtime());
    let first: Vec<_> = kinds(&events)
        .into_iter()
        .filter(|kind| !kind.starts_with("log."))
        .collect();
    assert_eq!(first.first(), Some(&"conversation.started"), "{first:?}");
    for event in events.iter().filter(|event| event.area() != "log") {
        assert!(event.conversation.is_some(), "{event:?}");
        assert!(
            event.root_agent.is_some() && event.op.is_some(),
            "{event:?}"
        );
    }
    assert_eq!(first.last(), Some(&"conversation.ended"));
}

#[test]
fn standard_input_of_the_request_is_given() {
    if !has_walls() {
        return;
    }
    let desk = Desk::new();
    let runtime = desk.runtime();
    let command = RunCommand {
        stdin: Input::Bytes("hello".into()),
        ..RunCommand::argv(["cat"])
    };
    let outcome = run(&runtime, PolicyRequest::default(), command);
    assert_eq!(outcome.stdout, "hello", "{outcome:?}");
}

#[test]
fn c14_the_same_key_starts_one_process() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    let command = RunCommand {
        idempotency_key: Some("once".to_owned()),
        ..RunCommand::shell("echo run >>log; cat log")
    };
    let direct = provider(ProviderChoice::Direct);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| run(&runtime, direct.clone(), command.clone())))
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(desk.read("log"), "run\n");
    assert!(outcomes[0].success, "{outcomes:?}");
    for outcome in &outcomes {
        assert_eq!(outcome, &outcomes[0]);
    }
    // Another process, later.
    drop(runtime);
    let again = run(&desk.runtime(), direct, command);
    assert_eq!(again, outcomes[0]);
    assert_eq!(desk.read("log"), "run\n");
}

#[test]
fn a_request_can_only_narrow() {
    if !has_walls() {
        return;
    }
    let desk = Desk::new();
    let runtime = desk.runtime();
    let command = RunCommand {
        write_access: Some(Access::Read),
        ..RunCommand::shell("echo x >f")
    };
    let outcome = run(&runtime, PolicyRequest::default(), command);
    assert_eq!(outcome.status, Status::Failed, "{outcome:?}");
    assert!(!desk.repo.join("f").exists());
    let command = RunCommand {
        network: Some(Network::Full),
        ..RunCommand::argv(["true"])
    };
    let outcome = run(&runtime, PolicyRequest::default(), command);
    assert_eq!(outcome.status, Status::Error);
    assert_eq!(outcome.error.unwrap().code, ErrorCode::PolicyWidening);
}

#[test]
fn refusals_are_outcomes_and_are_written_down() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    let code = |policy: PolicyRequest, command: RunCommand| {
        let outcome = run(&runtime, policy, command);
        assert_eq!(outcome.status, Status::Error, "{outcome:?}");
        assert!(!outcome.success && outcome.return_code.is_none());
        let last = events(&runtime)
            .into_iter()
            .rev()
            .find(|event| event.kind == "exec.ended");
        assert_eq!(
            last.unwrap().data["command_id"],
            outcome.command_id.as_str()
        );
        outcome.error.unwrap().code
    };
    let refused = PolicyRequest {
        workspace: Some("/".into()),
        ..PolicyRequest::default()
    };
    assert_eq!(
        code(refused, RunCommand::argv(["true"])),
        ErrorCode::WorkspaceRefused
    );
    let missing = PolicyRequest {
        policy_file: Some("no.toml".into()),
        ..PolicyRequest::default()
    };
    assert_eq!(
        code(missing, RunCommand::argv(["true"])),
        ErrorCode::PolicyUnreadable
    );
    let explicit = PolicyRequest {
        owner: PolicyDocument {
            network: Some(Network::None),
            ..provider(ProviderChoice::Direct).owner
        },
        ..PolicyRequest::default()
    };
    assert_eq!(
        code(explicit, RunCommand::argv(["true"])),
        ErrorCode::Unenforceable
    );
    let direct = || provider(ProviderChoice::Direct);
    let outside = RunCommand {
        cwd: Some("..".into()),
        ..RunCommand::argv(["true"])
    };
    assert_eq!(code(direct(), outside), ErrorCode::CwdOutside);
    let nowhere = RunCommand {
        cwd: Some("no/such".into()),
        ..RunCommand::argv(["true"])
    };
    assert_eq!(code(direct(), nowhere), ErrorCode::CwdMissing);
    std::os::unix::fs::symlink("/usr", desk.repo.join("link")).unwrap();
    let led_out = RunCommand {
        cwd: Some("link".into()),
        ..RunCommand::argv(["true"])
    };
    assert_eq!(code(direct(), led_out), ErrorCode::CwdOutside);
    let timeout = RunCommand {
        timeout: Some(0.0),
        ..RunCommand::argv(["true"])
    };
    assert_eq!(code(direct(), timeout), ErrorCode::InvalidTimeout);
    let outcome = run(&runtime, direct(), RunCommand::argv(["/no/such/program"]));
    assert_eq!(outcome.exit_code(), 127);
}

#[test]
fn secrets_do_not_stand_in_the_journal() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    let direct = provider(ProviderChoice::Direct);
    let outcome = run(&runtime, direct, RunCommand::shell("echo s3cret-value"));
    assert!(outcome.success, "{outcome:?}");
    for event in events(&runtime) {
        let text = serde_json::to_string(&event).unwrap();
        assert!(!text.contains("s3cret-value"), "{text}");
    }
}

#[test]
fn explain_starts_nothing() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    let command = RunCommand::argv(["true"]);
    let direct = provider(ProviderChoice::Direct);
    let told = runtime.explain(&direct, Some(&command)).unwrap();
    assert_eq!(told.launch.enclosure.provider, ProviderKind::Direct);
    assert_eq!(told.launch.command.cwd, desk.repo.as_path().into());
    assert!(
        kinds(&events(&runtime))
            .iter()
            .all(|kind| kind.starts_with("log."))
    );
}
