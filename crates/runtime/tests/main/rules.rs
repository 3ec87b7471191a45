//! Rules about commands where commands run: row 13.

use std::path::Path;
use std::sync::{Arc, Mutex};

use cofferdam_core::approval::{ApprovalAnswer, ApprovalAsk, Remember};
use cofferdam_core::error::ErrorCode;
use cofferdam_core::operation::{
    OpenSession, RunCommand, RunInSession, TerminalName, TerminalOpen,
};
use cofferdam_core::outcome::{CommandOutcome, DenialSource, Status};
use cofferdam_core::policy::{
    CommandDecision, CommandRule, Permission, PolicyDocument, ProviderChoice,
};
use cofferdam_exec::{CommandIo, Control};
use cofferdam_runtime::{
    AskOwner, FrontDoor, OwnerAnswer, PolicyRequest, RunRequest, Runtime, TerminalRequest,
};

use crate::support::{Desk, events, has_walls};

fn rule(command: &[&str], decision: CommandDecision) -> CommandRule {
    CommandRule {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        has: Vec::new(),
        decision,
        justification: Some("there is another way".to_owned()),
        matches: Vec::new(),
        not_match: Vec::new(),
    }
}

fn policy(provider: ProviderChoice) -> PolicyDocument {
    PolicyDocument {
        provider: Some(provider),
        commands: Some(vec![
            rule(&["touch"], CommandDecision::Deny),
            rule(&["mkdir"], CommandDecision::Ask),
            rule(&["cat"], CommandDecision::Allow),
        ]),
        ..PolicyDocument::default()
    }
}

fn run_by(
    runtime: &Runtime,
    owner: PolicyDocument,
    door: FrontDoor,
    command: RunCommand,
) -> CommandOutcome {
    runtime.run_command(RunRequest {
        policy: PolicyRequest {
            owner,
            ..PolicyRequest::default()
        },
        command,
        front_door: door,
        io: CommandIo::Capture { input: None },
        control: Control::new(),
    })
}

fn shell(text: &str) -> RunCommand {
    RunCommand::shell(text)
}

#[test]
fn row_13_a_denied_command_never_starts_and_says_which_rule() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let outcome = run_by(
        &runtime,
        policy(ProviderChoice::Direct),
        FrontDoor::CommandLine,
        shell("cat /dev/null && bash -c 'touch made'"),
    );
    assert_eq!(outcome.status, Status::Denied);
    assert_eq!(outcome.exit_code(), 126);
    let denial = outcome.denials.first().expect("a denial");
    assert_eq!(denial.source, DenialSource::Policy);
    assert_eq!(denial.rule, "commands (command_line): touch");
    assert_eq!(denial.instead, "there is another way");
    assert!(denial.subject.contains("touch made"), "{}", denial.subject);
    assert!(!desk.repo.join("made").exists());
}

#[test]
fn row_13_without_walls_an_ask_is_answered_by_whoever_typed_it_only() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    for text in ["mkdir made", "cp /dev/null made", "$X made"] {
        let asked = run_by(
            &runtime,
            policy(ProviderChoice::Direct),
            FrontDoor::Protocol,
            shell(text),
        );
        assert_eq!(asked.status, Status::Denied, "{text}");
        let problem = asked.error.expect("a reason");
        assert_eq!(problem.code, ErrorCode::ApprovalUnavailable, "{text}");
        assert_eq!(asked.denials.len(), 1, "{text}");
        assert!(!desk.repo.join("made").exists(), "{text}");
    }
    let typed = run_by(
        &runtime,
        policy(ProviderChoice::Direct),
        FrontDoor::CommandLine,
        shell("mkdir made"),
    );
    assert_eq!(typed.status, Status::Completed, "{:?}", typed.error);
    assert!(desk.repo.join("made").is_dir());
    // What a rule allows runs for everybody.
    let allowed = policy(ProviderChoice::Direct);
    let outcome = run_by(
        &runtime,
        allowed,
        FrontDoor::Protocol,
        shell("cat /dev/null"),
    );
    assert_eq!(outcome.status, Status::Completed);
}

#[test]
fn row_13_without_walls_and_rules_a_protocol_asks_and_the_owner_may_have_answered() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let bare = PolicyDocument {
        provider: Some(ProviderChoice::Direct),
        ..PolicyDocument::default()
    };
    let asked = run_by(
        &runtime,
        bare.clone(),
        FrontDoor::Protocol,
        shell("touch a"),
    );
    assert_eq!(asked.status, Status::Denied);
    let problem = asked.error.expect("a reason");
    assert_eq!(problem.code, ErrorCode::ApprovalUnavailable);
    assert!(
        problem
            .hint
            .is_some_and(|hint| hint.contains("--permission unrestricted"))
    );
    assert!(!desk.repo.join("a").exists());
    // Whoever typed it has answered, and so has an owner who said beforehand that nothing is asked.
    let typed = run_by(
        &runtime,
        bare.clone(),
        FrontDoor::CommandLine,
        shell("true"),
    );
    assert_eq!(typed.status, Status::Completed);
    let unasked = PolicyDocument {
        permission: Some(Permission::Unrestricted),
        ..bare.clone()
    };
    let outcome = run_by(
        &runtime,
        unasked.clone(),
        FrontDoor::Protocol,
        shell("touch a"),
    );
    assert_eq!(outcome.status, Status::Completed, "{:?}", outcome.error);
    // That is no answer to a rule that asks, and nothing that a request may say.
    let with_rules = PolicyDocument {
        permission: Some(Permission::Unrestricted),
        ..policy(ProviderChoice::Direct)
    };
    let outcome = run_by(
        &runtime,
        with_rules,
        FrontDoor::Protocol,
        shell("mkdir made"),
    );
    assert_eq!(outcome.status, Status::Denied);
    let by_request = runtime.run_command(RunRequest {
        policy: PolicyRequest {
            owner: bare,
            request: Some(PolicyDocument {
                permission: Some(Permission::Unrestricted),
                ..PolicyDocument::default()
            }),
            ..PolicyRequest::default()
        },
        command: shell("touch b"),
        front_door: FrontDoor::Protocol,
        io: CommandIo::Capture { input: None },
        control: Control::new(),
    });
    assert_ne!(by_request.status, Status::Completed);
    assert!(!desk.repo.join("b").exists());
}

#[test]
fn row_13_sessions_and_terminals_are_judged_as_commands_are() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let asked = PolicyRequest {
        workspace: Some(desk.repo.clone()),
        owner: policy(ProviderChoice::Direct),
        ..PolicyRequest::default()
    };
    let open = OpenSession {
        name: Some("work".to_owned()),
        ..OpenSession::default()
    };
    runtime
        .open_session(asked.clone(), &open, FrontDoor::Protocol)
        .expect("opened");
    let run = |text: &str| {
        let request = RunInSession {
            session: "work".to_owned(),
            command: Some(text.to_owned()),
            ..RunInSession::default()
        };
        runtime.run_in_session(request, &Control::new())
    };
    for (text, code) in [
        ("cat /dev/null; touch made", ErrorCode::Denied),
        ("mkdir made", ErrorCode::ApprovalUnavailable),
        ("cp /dev/null made", ErrorCode::ApprovalUnavailable),
    ] {
        let refused = run(text).expect_err("refused");
        assert_eq!(refused.code, code, "{text}");
        assert!(!desk.repo.join("made").exists(), "{text}");
    }
    assert!(run("cat /dev/null").expect("a result").result.success);
    let terminal = |argv: &[&str]| {
        let name = TerminalName::parse("one").expect("a name");
        runtime.terminal_open(TerminalRequest {
            policy: asked.clone(),
            open: TerminalOpen {
                argv: argv.iter().map(|word| (*word).to_owned()).collect(),
                ..TerminalOpen::new(name)
            },
            front_door: FrontDoor::Protocol,
            control: Control::new(),
        })
    };
    let refused = terminal(&["touch", "made"]).expect_err("refused");
    assert_eq!(refused.code, ErrorCode::Denied);
    let asked = terminal(&[]).expect_err("refused");
    assert_eq!(asked.code, ErrorCode::ApprovalUnavailable);
    terminal(&["cat"]).expect("opened");
}

/// Answers every question from now on, and counts them.
#[derive(Debug)]
struct Says {
    yes: bool,
    asked: Mutex<Vec<String>>,
}

impl AskOwner for Says {
    fn ask(&self, ask: &ApprovalAsk, _: &dyn Fn() -> bool) -> Option<OwnerAnswer> {
        let mut asked = self.asked.lock().expect("whole");
        asked.push(ask.preview.command.clone().unwrap_or_default());
        Some(OwnerAnswer {
            answer: if self.yes {
                ApprovalAnswer::Approve
            } else {
                ApprovalAnswer::Reject
            },
            remember: Remember::Once,
        })
    }
}

#[test]
fn row_13_sessions_and_terminals_ask_where_somebody_looks_at_questions() {
    for yes in [false, true] {
        let desk = Desk::with_repository();
        let runtime = desk.runtime();
        let owner = Arc::new(Says {
            yes,
            asked: Mutex::default(),
        });
        runtime.on_approval(Arc::clone(&owner) as Arc<dyn AskOwner>);
        let asked = PolicyRequest {
            workspace: Some(desk.repo.clone()),
            owner: policy(ProviderChoice::Direct),
            ..PolicyRequest::default()
        };
        let open = OpenSession {
            name: Some("work".to_owned()),
            ..OpenSession::default()
        };
        runtime
            .open_session(asked.clone(), &open, FrontDoor::Protocol)
            .expect("opened");
        let run = |text: &str| {
            let request = RunInSession {
                session: "work".to_owned(),
                command: Some(text.to_owned()),
                ..RunInSession::default()
            };
            runtime.run_in_session(request, &Control::new())
        };
        // A denial is no question, and what is allowed is none either.
        assert_eq!(
            run("touch made").expect_err("refused").code,
            ErrorCode::Denied
        );
        assert!(run("cat /dev/null").expect("a result").result.success);
        assert!(owner.asked.lock().expect("whole").is_empty());
        let answered = run("mkdir made");
        let name = TerminalName::parse("one").expect("a name");
        let terminal = runtime.terminal_open(TerminalRequest {
            policy: asked.clone(),
            open: TerminalOpen {
                argv: ["cp", "/dev/null", "copied"].map(str::to_owned).to_vec(),
                ..TerminalOpen::new(name)
            },
            front_door: FrontDoor::Protocol,
            control: Control::new(),
        });
        let words = owner.asked.lock().expect("whole").clone();
        assert_eq!(words, ["mkdir made", "terminal one: cp /dev/null copied"]);
        assert_eq!(desk.repo.join("made").exists(), yes);
        if yes {
            assert!(answered.expect("a result").result.success);
            terminal.expect("opened");
            let told = events(&runtime);
            let decided = told.iter().find(|event| {
                event.kind == "policy.decided" && event.data["commands"]["verdict"] == "ask"
            });
            let by = decided.map(|event| event.data["answered_by"].clone());
            assert!(
                by.is_some_and(|by| by.as_str().is_some_and(|by| !by.is_empty())),
                "{decided:#?}"
            );
        } else {
            assert_eq!(answered.expect_err("no").code, ErrorCode::ApprovalRejected);
            assert_eq!(terminal.expect_err("no").code, ErrorCode::ApprovalRejected);
        }
        // The same again is another question: nothing was remembered.
        let again = run("mkdir made");
        assert_eq!(owner.asked.lock().expect("whole").len(), 3);
        assert_eq!(again.is_ok(), yes);
    }
}

#[test]
fn row_13_behind_walls_what_no_rule_names_runs_and_is_written_down() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let outcome = run_by(
        &runtime,
        policy(ProviderChoice::Bwrap),
        FrontDoor::Protocol,
        shell("cp /dev/null made; $NOTHING"),
    );
    assert_eq!(outcome.status, Status::Completed, "{:?}", outcome.error);
    let events = events(&runtime);
    let decided = events
        .iter()
        .find(|one| one.kind == "policy.decided")
        .expect("a decision");
    let judgement = &decided.data["commands"];
    assert_eq!(judgement["verdict"], "allow");
    assert_eq!(judgement["walls"], true);
    assert_eq!(judgement["advisory"], true);
    assert_eq!(judgement["commands"][0]["judged"], "unmatched");
    assert_eq!(judgement["unclear"].as_array().map(Vec::len), Some(1));
}

/// The harness's own file is neither flagged nor broken.
#[test]
fn row_13_a_harness_finds_its_working_directory() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let file = desk.home.join("claude-1a2b-cwd");
    let file: &Path = &file;
    let script = format!(
        "source {}/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true && shopt -u extglob 2>/dev/null || true && eval 'cat /dev/null' && pwd -P >| {}",
        desk.home.display(),
        file.display()
    );
    let outcome = run_by(
        &runtime,
        policy(ProviderChoice::Direct),
        FrontDoor::Protocol,
        RunCommand::argv(["/bin/bash", "-c", &script]),
    );
    assert_eq!(outcome.status, Status::Completed, "{:?}", outcome.error);
    let written = std::fs::read_to_string(file).expect("the harness's file");
    let real = desk.repo.canonicalize().expect("a directory");
    assert_eq!(Path::new(written.trim_end()), real);
}

#[test]
fn e10_a_check_starts_nothing_and_tells_the_clamp() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let asked = PolicyRequest {
        owner: policy(ProviderChoice::Direct),
        ..PolicyRequest::default()
    };
    let command = RunCommand {
        timeout: Some(9999.0),
        ..shell("cat a | touch made")
    };
    let check = runtime
        .check_command(&asked, &command, FrontDoor::Protocol)
        .expect("a check");
    assert_eq!(check.verdict.as_str(), "deny");
    assert_eq!(check.timeout_ms, Some(3_600_000));
    assert_eq!(check.clamps.len(), 1);
    let judged: Vec<_> = check
        .judgement
        .commands
        .iter()
        .map(|one| one.judged.as_str())
        .collect();
    assert_eq!(judged, ["allow", "deny"]);
    assert!(!desk.repo.join("made").exists());
}
