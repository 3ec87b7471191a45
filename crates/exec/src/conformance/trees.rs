//! Whole trees of processes: what a command leaves behind is ended before the answer.

use std::time::Duration;

use cofferdam_core::outcome::{EndedBy, Status};

use super::{Check, Need, Scene, check, hold};

pub(super) const CHECKS: &[Check] = &[
    check(
        "a command that leaves nothing ended by itself",
        Need::Processes,
        nothing_left,
    ),
    check(
        "b3 a daemon that holds the pipe does not hold the answer",
        Need::Processes,
        b3_daemon,
    ),
    check(
        "b1 the time limit ends the whole tree",
        Need::Processes,
        b1_tree,
    ),
    check(
        "a command that ignores SIGTERM ends all the same",
        Need::Processes,
        ignores_term,
    ),
    check(
        "two hundred sessions are swept",
        Need::Processes,
        many_sessions,
    ),
    check(
        "fc_68 the end of an enclosure ends what runs in it",
        Need::Processes,
        fc_68_end,
    ),
];

/// A duration that only this check uses, so that its processes can be told from all others.
fn unique_sleep() -> String {
    let ambient = cofferdam_journal::SystemAmbient::new();
    let mut random = [0; 8];
    cofferdam_core::ambient::Ambient::fill_random(&ambient, &mut random);
    let number = u64::from_ne_bytes(random) % 1_000_000_000;
    format!("300.{number:09}")
}

/// Counts processes of the host whose command line holds a word.
fn alive(word: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    entries
        .flatten()
        .filter(|entry| {
            let path = entry.path();
            let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let dead = std::fs::read_to_string(path.join("stat")).is_ok_and(|stat| {
                stat.rsplit(')')
                    .next()
                    .is_some_and(|rest| rest.trim_start().starts_with('Z'))
            });
            !dead && line.windows(word.len()).any(|part| part == word.as_bytes())
        })
        .count()
}

/// Waits until no process holds the word any more, at most a second.
fn gone(word: &str) -> bool {
    (0..100).any(|_| {
        let none = alive(word) == 0;
        if !none {
            std::thread::sleep(Duration::from_millis(10));
        }
        none
    })
}

fn nothing_left(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("sleep 0.01 & wait; exit 0");
    hold(
        outcome.ended_by == Some(EndedBy::Itself) && outcome.leftovers.is_empty(),
        &outcome,
    )
}

fn b3_daemon(scene: &Scene<'_>) -> Result<(), String> {
    let sleep = unique_sleep();
    let outcome = scene.sh(&format!("(setsid sleep {sleep} &) ; echo done"));
    let seen = (outcome.status, &*outcome.stdout, outcome.elapsed_ms < 2_000);
    hold(seen == (Status::Completed, "done\n", true), &outcome)?;
    hold(
        outcome.ended_by == Some(EndedBy::Sweep) && !outcome.leftovers.is_empty(),
        &outcome,
    )?;
    hold(alive(&sleep) == 0, &"it is still alive")
}

fn b1_tree(scene: &Scene<'_>) -> Result<(), String> {
    let sleep = unique_sleep();
    let text = format!("setsid setsid sleep {sleep} & nohup sleep {sleep} & sleep {sleep}");
    let mut command = scene.command(&["sh", "-c", &text]);
    command.timeout_ms = Some(150);
    let outcome = scene.run_command(command);
    hold(
        (outcome.status, outcome.elapsed_ms < 3_000) == (Status::Timeout, true),
        &outcome,
    )?;
    hold(alive(&sleep) == 0, &"something is still alive")
}

fn ignores_term(scene: &Scene<'_>) -> Result<(), String> {
    let mut command = scene.command(&[
        "sh",
        "-c",
        "trap '' TERM INT HUP; while :; do sleep 0.05; done",
    ]);
    command.timeout_ms = Some(100);
    let outcome = scene.run_command(command);
    let seen = (
        outcome.status,
        outcome.signal.as_deref(),
        outcome.elapsed_ms < 5_000,
    );
    hold(seen == (Status::Timeout, Some("SIGKILL"), true), &outcome)
}

fn many_sessions(scene: &Scene<'_>) -> Result<(), String> {
    let sleep = unique_sleep();
    let text = format!("i=0; while [ $i -lt 200 ]; do setsid sleep {sleep} & i=$((i+1)); done");
    let outcome = scene.sh(&text);
    hold(outcome.success, &outcome.status)?;
    hold(alive(&sleep) == 0, &alive(&sleep))
}

fn fc_68_end(scene: &Scene<'_>) -> Result<(), String> {
    let candidate = scene.candidate;
    let other = Scene::new(candidate)?;
    let sleep = unique_sleep();
    let text = format!("setsid sleep {sleep} & sleep {sleep}");
    std::thread::scope(|threads| {
        let running = threads.spawn(|| other.sh(&text));
        let started = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            alive(&sleep) >= 2
        });
        other.enclosure.end_now();
        let outcome = running.join().map_err(|_| "the run panicked".to_owned())?;
        hold(started && outcome.status != Status::Completed, &outcome)?;
        hold(gone(&sleep), &"something is still alive")
    })
}
