//! Many commands in one place: what goes from one to the next, and what does not.

use std::time::Duration;

use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{IsolationLevel, Status};

use super::{Check, Need, Scene, check, hold};
use crate::{CommandIo, Control, Run, Session, SessionEnd, SessionKind, SessionRun};

pub(super) const CHECKS: &[Check] = &[
    check(
        "each command of a session has its own outcome",
        Need::Contract,
        own_outcomes,
    ),
    check(
        "a time limit in a session does not spoil the next command",
        Need::Contract,
        not_spoilt,
    ),
    check(
        "directory and exported variables go from one command to the next",
        Need::Processes,
        state_goes_on,
    ),
    check(
        "whatever a command does to its shell is over with it",
        Need::Processes,
        shell_is_fresh,
    ),
    check(
        "an unfinished script is said and runs nothing",
        Need::Processes,
        unfinished,
    ),
    check(
        "a background job lives on and does not hold the answer",
        Need::Processes,
        job_lives_on,
    ),
    check(
        "the end of a session takes its jobs along",
        Need::Contract,
        end_takes_all,
    ),
];

const SHELL: &str = "/bin/sh";

fn open(scene: &Scene<'_>, kind: SessionKind) -> Result<Session, String> {
    let candidate = scene.candidate;
    let spec = (candidate.spec)(&candidate.workspace, candidate.provider);
    let level = IsolationLevel {
        provider: Some(candidate.provider),
        network: spec.network,
    };
    candidate
        .plane
        .enclose(spec, level, &Subject::default())
        .map(|enclosure| Session::new(enclosure, kind))
        .map_err(|problem| format!("no enclosure: {problem}"))
}

fn shell(scene: &Scene<'_>) -> Result<Session, String> {
    let shell = SHELL.into();
    open(scene, SessionKind::Shell { shell })
}

fn run(scene: &Scene<'_>, session: &Session, words: &[&str], limit: u64) -> SessionEnd {
    request(scene, session, words, None, limit)
}

fn sh(scene: &Scene<'_>, session: &Session, script: &str) -> SessionEnd {
    request(scene, session, &["unused"], Some(script), 30_000)
}

fn request(
    scene: &Scene<'_>,
    session: &Session,
    words: &[&str],
    script: Option<&str>,
    limit: u64,
) -> SessionEnd {
    let mut command = scene.command(words);
    command.timeout_ms = Some(limit);
    session.run(SessionRun {
        run: Run {
            command,
            subject: Subject::default(),
            io: CommandIo::Capture { input: None },
            control: Control::new(),
            timeout_clamped: false,
        },
        script: script.map(str::to_owned),
        shell: SHELL.into(),
        has_directory: false,
        patience: Some(Duration::from_secs(30)),
        aside: false,
    })
}

fn own_outcomes(scene: &Scene<'_>) -> Result<(), String> {
    let session = open(scene, SessionKind::Plain)?;
    let good = run(scene, &session, &["echo", "one"], 30_000);
    let bad = run(scene, &session, &["false"], 30_000);
    let seen = (
        good.outcome.stdout.as_str(),
        bad.outcome.return_code,
        good.outcome.command_id == bad.outcome.command_id,
        good.session_reset || bad.session_reset,
    );
    hold(seen == ("one\n", Some(1), false, false), &(&good, &bad))
}

fn not_spoilt(scene: &Scene<'_>) -> Result<(), String> {
    let session = shell(scene)?;
    let late = run(scene, &session, &["sleep", "300"], 100);
    hold(late.outcome.status == Status::Timeout, &late)?;
    let next = run(scene, &session, &["echo", "fine"], 30_000);
    let seen = (next.outcome.stdout.as_str(), next.session_reset);
    hold(seen == ("fine\n", false), &next)
}

fn state_goes_on(scene: &Scene<'_>) -> Result<(), String> {
    let session = shell(scene)?;
    let first = sh(
        scene,
        &session,
        "mkdir -p state; cd state; export A='x y'; B=2; exit 3",
    );
    hold(
        first.outcome.return_code == Some(3) && first.state_saved,
        &first,
    )?;
    let next = sh(scene, &session, "echo \"$A ${B-no}\"; basename \"$PWD\"");
    hold(next.outcome.stdout == "x y no\nstate\n", &next)
}

fn shell_is_fresh(scene: &Scene<'_>) -> Result<(), String> {
    let session = shell(scene)?;
    for script in [
        "set -e; false",
        "exec false",
        "set -u; echo $NOPE",
        "kill -9 $$",
    ] {
        let end = sh(scene, &session, script);
        hold(end.outcome.status == Status::Failed, &end)?;
        let next = sh(scene, &session, "echo fine");
        hold(
            next.outcome.stdout == "fine\n" && !next.session_reset,
            &next,
        )?;
    }
    Ok(())
}

fn unfinished(scene: &Scene<'_>) -> Result<(), String> {
    let session = shell(scene)?;
    let end = sh(scene, &session, "echo ran; echo 'abc");
    let code = end.outcome.error.as_ref().map(|problem| problem.code);
    let seen = (code, end.outcome.stdout.as_str());
    hold(
        seen == (Some(cofferdam_core::error::ErrorCode::SyntaxIncomplete), ""),
        &end,
    )
}

fn job_lives_on(scene: &Scene<'_>) -> Result<(), String> {
    let session = shell(scene)?;
    let end = sh(scene, &session, "sleep 60 & echo now");
    let seen = (
        end.outcome.stdout.as_str(),
        end.outcome.kept.len(),
        end.outcome.elapsed_ms < 3_000,
    );
    hold(seen == ("now\n", 1, true), &end)?;
    let next = sh(scene, &session, "echo next");
    hold(next.outcome.stdout == "next\n", &next)?;
    let jobs = session.jobs();
    hold(jobs.len() == 1, &jobs)?;
    hold(session.end_job(&jobs[0]), &jobs)?;
    hold(session.jobs().is_empty(), &session.jobs())
}

fn end_takes_all(scene: &Scene<'_>) -> Result<(), String> {
    let session = open(scene, SessionKind::Plain)?;
    session.end();
    let end = run(scene, &session, &["true"], 30_000);
    let code = end.outcome.error.as_ref().map(|problem| problem.code);
    hold(
        code == Some(cofferdam_core::error::ErrorCode::EnclosureLost),
        &end,
    )?;
    // The place of the check itself is another one.
    hold(scene.run(&["true"]).success, &"the neighbour")
}
