//! Status, exit code and errors.

use std::time::Duration;

use cofferdam_core::error::ErrorCode;
use cofferdam_core::outcome::Status;

use super::{Check, Need, Scene, check, hold};
use crate::{CommandIo, Control};

pub(super) const CHECKS: &[Check] = &[
    check("exit 0 is completed", Need::Contract, completed),
    check("another exit code is failed", Need::Contract, failed),
    check(
        "a missing program is not_found and exit 127",
        Need::Contract,
        not_found,
    ),
    check(
        "a directory is not executable and exit 126",
        Need::Processes,
        not_executable,
    ),
    check("a missing directory is named", Need::Processes, cwd_missing),
    check("the time limit ends a command", Need::Contract, timeout),
    check(
        "silence beyond the idle limit ends a command",
        Need::Contract,
        idle_timeout,
    ),
    check(
        "cancelled before the start, nothing starts",
        Need::Contract,
        cancelled_before,
    ),
    check(
        "interrupted before the start, nothing starts",
        Need::Contract,
        interrupted_before,
    ),
    check(
        "cancelled while running",
        Need::Contract,
        cancelled_meanwhile,
    ),
    check("a signal ends it and is named", Need::Processes, signalled),
    check("a sent signal arrives", Need::Processes, signal_arrives),
    check("commands run at the same time", Need::Contract, at_once),
    check(
        "one bad command does not poison the next",
        Need::Contract,
        not_poisoned,
    ),
    check("arguments arrive unchanged", Need::Processes, arguments),
    check(
        "a long argument list arrives",
        Need::Processes,
        many_arguments,
    ),
];

fn completed(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.run(&["true"]);
    let seen = (
        outcome.status,
        outcome.return_code,
        outcome.success,
        outcome.exit_code(),
    );
    hold(seen == (Status::Completed, Some(0), true, 0), &outcome)
}

fn failed(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("exit 3");
    let seen = (
        outcome.status,
        outcome.return_code,
        outcome.success,
        outcome.exit_code(),
    );
    hold(seen == (Status::Failed, Some(3), false, 3), &outcome)
}

fn not_found(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.run(&["/no/such/program"]);
    let code = outcome.error.as_ref().map(|problem| problem.code);
    let seen = (
        outcome.status,
        code,
        outcome.return_code,
        outcome.exit_code(),
    );
    hold(
        seen == (Status::Error, Some(ErrorCode::NotFound), None, 127),
        &outcome,
    )
}

fn not_executable(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.run(&["/usr"]);
    let code = outcome.error.as_ref().map(|problem| problem.code);
    hold(
        (code, outcome.exit_code()) == (Some(ErrorCode::NotExecutable), 126),
        &outcome,
    )
}

fn cwd_missing(scene: &Scene<'_>) -> Result<(), String> {
    let mut command = scene.command(&["true"]);
    command.cwd = command.cwd.join("no-such-directory");
    let outcome = scene.run_command(command);
    let code = outcome.error.as_ref().map(|problem| problem.code);
    hold(
        (code, outcome.exit_code()) == (Some(ErrorCode::CwdMissing), 125),
        &outcome,
    )
}

fn timeout(scene: &Scene<'_>) -> Result<(), String> {
    let mut command = scene.command(&["sleep", "300"]);
    command.timeout_ms = Some(100);
    let outcome = scene.run_command(command);
    let seen = (
        outcome.status,
        outcome.exit_code(),
        outcome.elapsed_ms < 3_000,
    );
    hold(seen == (Status::Timeout, 124, true), &outcome)
}

fn idle_timeout(scene: &Scene<'_>) -> Result<(), String> {
    let mut command = scene.command(&["sleep", "300"]);
    command.timeout_ms = None;
    command.idle_timeout_ms = Some(100);
    let outcome = scene.run_command(command);
    hold(
        (outcome.status, outcome.elapsed_ms < 3_000) == (Status::Timeout, true),
        &outcome,
    )
}

fn cancelled_before(scene: &Scene<'_>) -> Result<(), String> {
    let control = Control::new();
    control.cancel();
    let io = CommandIo::Capture { input: None };
    let outcome = scene.run_with(scene.command(&["sleep", "300"]), io, control);
    hold(
        (outcome.status, outcome.return_code) == (Status::Cancelled, None),
        &outcome,
    )
}

fn interrupted_before(scene: &Scene<'_>) -> Result<(), String> {
    let control = Control::new();
    control.signal(15);
    let io = CommandIo::Capture { input: None };
    let outcome = scene.run_with(scene.command(&["sleep", "300"]), io, control);
    hold(
        (outcome.status, outcome.return_code) == (Status::Cancelled, None),
        &outcome,
    )
}

fn cancelled_meanwhile(scene: &Scene<'_>) -> Result<(), String> {
    let control = Control::new();
    let other = control.clone();
    let outcome = std::thread::scope(|threads| {
        threads.spawn(move || {
            // At whatever moment this comes, the answer is the same.
            std::thread::sleep(Duration::from_millis(20));
            other.cancel();
        });
        let io = CommandIo::Capture { input: None };
        scene.run_with(scene.command(&["sleep", "300"]), io, control)
    });
    hold(
        (outcome.status, outcome.elapsed_ms < 3_000) == (Status::Cancelled, true),
        &outcome,
    )
}

fn signalled(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("kill -9 $$");
    let seen = (
        outcome.status,
        outcome.signal.as_deref(),
        outcome.exit_code(),
    );
    hold(seen == (Status::Failed, Some("SIGKILL"), 137), &outcome)
}

fn signal_arrives(scene: &Scene<'_>) -> Result<(), String> {
    let control = Control::new();
    let text = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done";
    let mut sink = SignalWhenReady {
        control: control.clone(),
    };
    let io = CommandIo::Stream {
        input: None,
        sink: &mut sink,
    };
    let outcome = scene.run_with(scene.command(&["sh", "-c", text]), io, control);
    hold(outcome.return_code == Some(7), &outcome)
}

struct SignalWhenReady {
    control: Control,
}

impl crate::OutputSink for SignalWhenReady {
    fn write(&mut self, _stream: crate::Stream, _bytes: &[u8]) -> std::io::Result<()> {
        self.control.signal(15);
        Ok(())
    }
}

fn at_once(scene: &Scene<'_>) -> Result<(), String> {
    let outcomes = std::thread::scope(|threads| {
        let running: Vec<_> = (0..8)
            .map(|_| threads.spawn(|| scene.run(&["sleep", "0.2"])))
            .collect();
        running
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect::<Vec<_>>()
    });
    let all_good = outcomes
        .iter()
        .all(|one| one.as_ref().is_ok_and(|one| one.success));
    hold(all_good, &outcomes)
}

fn not_poisoned(scene: &Scene<'_>) -> Result<(), String> {
    timeout(scene)?;
    not_found(scene)?;
    cancelled_before(scene)?;
    let outcome = scene.run(&["echo", "fine"]);
    hold(
        (outcome.success, &*outcome.stdout) == (true, "fine\n"),
        &outcome,
    )
}

fn arguments(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.run(&["printf", "%s|", "a b", "", "'\"$x", "*", "\u{e9}\n"]);
    hold(outcome.stdout == "a b||'\"$x|*|\u{e9}\n|", &outcome)
}

fn many_arguments(scene: &Scene<'_>) -> Result<(), String> {
    let long = "x".repeat(1000);
    let mut words = vec!["sh", "-c", "echo $#", "sh"];
    words.extend(std::iter::repeat_n(&*long, 1000));
    let outcome = scene.run(&words);
    hold(
        outcome.stdout == "1000\n",
        &(outcome.status, outcome.error, outcome.stdout),
    )
}
