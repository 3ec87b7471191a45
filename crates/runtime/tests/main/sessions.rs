//! Sessions as a front door opens them.

use std::time::{Duration, Instant};

use cofferdam_core::error::ErrorCode;
use cofferdam_core::event::event_type;
use cofferdam_core::operation::{OpenSession, RunInSession, SessionMode, SessionResult};
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::ProviderChoice;
use cofferdam_core::spec::Network;
use cofferdam_exec::Control;
use cofferdam_runtime::{FrontDoor, PolicyRequest, Runtime};

use crate::support::{Desk, events, has_walls, provider};

fn at(desk: &Desk, choice: ProviderChoice) -> PolicyRequest {
    PolicyRequest {
        workspace: Some(desk.repo.clone()),
        ..provider(choice)
    }
}

fn named(name: &str) -> OpenSession {
    OpenSession {
        name: Some(name.to_owned()),
        ..OpenSession::default()
    }
}

fn sh(runtime: &Runtime, session: &str, text: &str) -> SessionResult {
    let request = RunInSession {
        session: session.to_owned(),
        command: Some(text.to_owned()),
        ..RunInSession::default()
    };
    runtime
        .run_in_session(request, &Control::new())
        .expect("a result")
}

fn code<T: std::fmt::Debug>(result: Result<T, cofferdam_core::error::Problem>) -> ErrorCode {
    result.expect_err("refused").code
}

#[test]
fn a_session_is_found_by_name_and_id_until_it_is_closed() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    let policy = at(&desk, ProviderChoice::Direct);
    let view = runtime
        .open_session(policy.clone(), &named("work"), FrontDoor::Protocol)
        .expect("opened");
    assert_eq!((view.mode, view.idle_limit), (SessionMode::Shell, 3600.0));
    let taken = runtime.open_session(policy, &named("work"), FrontDoor::Protocol);
    assert_eq!(code(taken), ErrorCode::SessionTaken);

    let end = sh(
        &runtime,
        "work",
        "mkdir -p sub; cd sub; export A=1; sleep 60 &",
    );
    assert!(end.result.success, "{end:?}");
    let end = sh(&runtime, view.session_id.as_str(), "echo $A; pwd");
    let here = desk.repo.join("sub").display().to_string();
    assert_eq!(end.result.stdout, format!("1\n{here}\n"), "{end:?}");

    let seen = runtime.session("work").expect("open");
    assert_eq!((seen.commands, seen.running, seen.jobs.len()), (2, 0, 1));
    assert_eq!(seen.cwd.to_string(), here);
    let job = &seen.jobs[0];
    let ended = runtime.end_session_job("work", &job.command_id);
    assert!(ended.expect("open").ended);
    assert_eq!(runtime.session("work").expect("open").jobs, []);

    let closed = runtime.close_session("work").expect("open");
    assert_eq!(closed.session_id, view.session_id);
    assert_eq!(code(runtime.session("work")), ErrorCode::SessionUnknown);
    assert_eq!(runtime.sessions().sessions, []);
    let told = events(&runtime);
    let of_session: Vec<&str> = told
        .iter()
        .filter(|event| event.conversation.as_ref() == Some(&view.conversation_id))
        .map(|event| event.kind.as_str())
        .filter(|kind| kind.starts_with("exec.") || kind.starts_with("session."))
        .filter(|kind| *kind != event_type::EXEC_STARTED)
        .collect();
    assert_eq!(
        of_session,
        [
            "session.opened",
            "exec.intended",
            "exec.ended",
            "exec.intended",
            "exec.ended",
            "session.ended"
        ]
    );
}

#[test]
fn closing_a_session_cancels_what_runs_in_it() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    let policy = at(&desk, ProviderChoice::Direct);
    let open = OpenSession {
        mode: SessionMode::Plain,
        ..named("work")
    };
    runtime
        .open_session(policy, &open, FrontDoor::Protocol)
        .expect("opened");
    std::thread::scope(|threads| {
        let running = threads.spawn(|| sh(&runtime, "work", "touch begun; sleep 300"));
        while !desk.repo.join("begun").exists() {
            std::thread::yield_now();
        }
        let closed = runtime.close_session("work").expect("open");
        assert_eq!(closed.cancelled, 1);
        let end = running.join().expect("ends");
        assert!(!end.result.success, "{end:?}");
        assert!(end.result.elapsed_ms < 10_000, "{end:?}");
    });
}

#[test]
fn a_session_that_nobody_uses_ends_and_one_with_a_job_does_not() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    let policy = at(&desk, ProviderChoice::Direct);
    let short = |name: &str| OpenSession {
        idle_limit: Some(0.2),
        ..named(name)
    };
    for name in ["idle", "busy"] {
        runtime
            .open_session(policy.clone(), &short(name), FrontDoor::Protocol)
            .expect("opened");
    }
    sh(&runtime, "busy", "sleep 60 &");
    let until = Instant::now() + Duration::from_secs(10);
    while runtime.session("idle").is_ok() && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(code(runtime.session("idle")), ErrorCode::SessionUnknown);
    assert_eq!(runtime.session("busy").expect("open").jobs.len(), 1);
    let reason = loop {
        let told = events(&runtime);
        let ended = told
            .iter()
            .find(|event| event.kind == event_type::SESSION_ENDED);
        if let Some(ended) = ended {
            break ended.data["reason"].clone();
        }
        assert!(Instant::now() < until, "its end is not told");
    };
    assert_eq!(reason, "idle_limit");

    let brief = OpenSession {
        lifetime: Some(0.1),
        ..named("brief")
    };
    runtime
        .open_session(policy, &brief, FrontDoor::Protocol)
        .expect("opened");
    let until = Instant::now() + Duration::from_secs(10);
    while runtime.session("brief").is_ok() && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(code(runtime.session("brief")), ErrorCode::SessionUnknown);
}

#[test]
fn what_is_no_session_and_no_command_is_refused() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    let policy = at(&desk, ProviderChoice::Direct);
    for name in ["", "a b", "../x", "sess_1"] {
        let refused = runtime.open_session(policy.clone(), &named(name), FrontDoor::Protocol);
        assert_eq!(code(refused), ErrorCode::InvalidRequest, "{name:?}");
    }
    let timeless = OpenSession {
        idle_limit: Some(0.0),
        ..OpenSession::default()
    };
    let refused = runtime.open_session(policy.clone(), &timeless, FrontDoor::Protocol);
    assert_eq!(code(refused), ErrorCode::InvalidTimeout);
    // What was refused holds no name and no place.
    let missing = PolicyRequest {
        workspace: Some(desk.repo.join("nowhere")),
        ..policy.clone()
    };
    let refused = runtime.open_session(missing, &named("work"), FrontDoor::Protocol);
    assert_eq!(code(refused), ErrorCode::WorkspaceMissing);
    runtime
        .open_session(policy, &named("work"), FrontDoor::Protocol)
        .expect("opened");
    let run = |request: RunInSession| runtime.run_in_session(request, &Control::new());
    let nothing = RunInSession {
        session: "work".to_owned(),
        ..RunInSession::default()
    };
    assert_eq!(code(run(nothing.clone())), ErrorCode::InvalidRequest);
    let outside = RunInSession {
        command: Some("true".to_owned()),
        cwd: Some("/etc".to_owned()),
        ..nothing.clone()
    };
    assert_eq!(code(run(outside)), ErrorCode::CwdOutside);
    let elsewhere = RunInSession {
        command: Some("true".to_owned()),
        session: "other".to_owned(),
        ..nothing
    };
    assert_eq!(code(run(elsewhere)), ErrorCode::SessionUnknown);
    assert_eq!(runtime.session("work").expect("open").running, 0);
}

#[test]
fn a_session_only_narrows_and_says_what_holds() {
    if !has_walls() {
        return;
    }
    let desk = Desk::new();
    let runtime = desk.runtime();
    let mut policy = at(&desk, ProviderChoice::Bwrap);
    policy.owner.network = Some(Network::Full);
    let open = OpenSession {
        network: Some(Network::None),
        write_access: Some(cofferdam_core::spec::Access::Read),
        ..named("work")
    };
    let view = runtime
        .open_session(policy, &open, FrontDoor::Protocol)
        .expect("opened");
    assert_eq!(view.isolation.effective.network, Network::None);
    let end = sh(
        &runtime,
        "work",
        "touch f; echo private > /tmp/x; cat /tmp/x",
    );
    assert_eq!(end.result.stdout, "private\n", "{end:?}");
    assert!(!desk.repo.join("f").exists());
    assert_eq!(
        sh(&runtime, "work", "cat /tmp/x").result.stdout,
        "private\n"
    );
}

#[test]
fn a_change_of_the_policy_puts_up_other_walls_and_keeps_the_place() {
    if !has_walls() {
        return;
    }
    let desk = Desk::new();
    let runtime = desk.runtime();
    let policy = at(&desk, ProviderChoice::Bwrap);
    runtime
        .open_session(policy, &named("work"), FrontDoor::Protocol)
        .expect("opened");
    let end = sh(
        &runtime,
        "work",
        "mkdir sub; cd sub; export A=1; touch f && echo yes",
    );
    assert_eq!(end.result.stdout, "yes\n", "{end:?}");
    let file = desk.home.join(".config/cofferdam/policy.toml");
    std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");

    // What changes nothing about the walls leaves them.
    std::fs::write(&file, "schema = 1\n").expect("written");
    assert!(!sh(&runtime, "work", "true").session_reset);
    // A file that cannot be read leaves them, too.
    std::fs::write(&file, "schema = 1\nnonsense").expect("written");
    assert!(!sh(&runtime, "work", "true").session_reset);

    std::fs::write(&file, "schema = 1\nworkspace = \"read\"\n").expect("written");
    let end = sh(&runtime, "work", "echo $A; touch g || echo no; pwd");
    assert!(end.session_reset, "{end:?}");
    let here = desk.repo.join("sub").display().to_string();
    assert_eq!(end.result.stdout, format!("1\nno\n{here}\n"), "{end:?}");
    let end = sh(&runtime, "work", "true");
    assert_eq!(
        (end.session_reset, end.result.status),
        (false, Status::Completed)
    );
}
