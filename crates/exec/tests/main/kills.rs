//! SIGKILL of whoever stands between the plane and a command.

use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_core::error::ErrorCode;
use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel, Status};
use cofferdam_core::spec::{Network, ProviderKind};
use rustix::process::{Pid, Signal, kill_process};

use crate::smoke::{capture, command, plane, spec};

fn children(pid: u32) -> Vec<u32> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .filter_map(|one| one.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn descendants(pid: u32) -> Vec<u32> {
    children(pid)
        .into_iter()
        .flat_map(|one| [vec![one], descendants(one)].concat())
        .collect()
}

fn line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

fn dead(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z'))
    })
}

fn wait_until(what: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Ends the process that is `above` steps above the command's leader, while the command runs.
fn killed_above(provider: ProviderKind, above: usize) -> (CommandOutcome, Vec<u32>) {
    let data = tempfile::tempdir().expect("a directory");
    let workspace = tempfile::tempdir().expect("a directory");
    let plane = plane(data.path());
    let level = IsolationLevel {
        provider: Some(provider),
        network: Network::None,
    };
    let enclosure = plane
        .enclose(spec(provider, workspace.path()), level, &Subject::default())
        .expect("walls");
    let mark = format!("301.{}{above}", std::process::id());
    let text = format!("setsid sleep {mark} & sleep {mark}");
    let words = ["sh", "-c", &text];
    let (outcome, tree) = std::thread::scope(|threads| {
        let running = threads.spawn(|| capture(&enclosure, command(workspace.path(), &words)));
        let own = std::process::id();
        let sleeps = || {
            descendants(own)
                .into_iter()
                .filter(|pid| line(*pid).starts_with("sleep"))
                .count()
        };
        assert!(wait_until(|| sleeps() == 2), "the command runs");
        let tree = descendants(own);
        let leader = tree
            .iter()
            .copied()
            .find(|pid| line(*pid).starts_with("sh "))
            .expect("sh");
        let mut victim = leader;
        for _ in 0..above {
            victim = tree
                .iter()
                .copied()
                .find(|pid| children(*pid).contains(&victim))
                .expect("something is above");
        }
        kill_process(Pid::from_raw(victim as i32).expect("a pid"), Signal::KILL).expect("ended");
        (running.join().expect("an outcome"), tree)
    });
    let sleeps: Vec<u32> = tree
        .into_iter()
        .filter(|pid| line(*pid).contains(&mark))
        .collect();
    let again = capture(&enclosure, command(workspace.path(), &["echo", "again"]));
    assert_eq!(again.stdout, "again\n", "the next command works: {again:?}");
    (outcome, sleeps)
}

/// Tells whether the walls can be put up here, and says why not.
fn is_there(provider: ProviderKind) -> bool {
    let there = provider != ProviderKind::Bwrap || Path::new("/usr/bin/bwrap").exists();
    if !there {
        println!("skipped: bubblewrap is not installed");
    }
    there
}

fn lost_and_swept(provider: ProviderKind, above: usize) {
    if !is_there(provider) {
        return;
    }
    let (outcome, sleeps) = killed_above(provider, above);
    assert_eq!(outcome.status, Status::Error, "{outcome:?}");
    let code = outcome.error.as_ref().map(|problem| problem.code);
    assert_eq!(code, Some(ErrorCode::EnclosureLost), "{outcome:?}");
    assert!(outcome.elapsed_ms < 10_000);
    assert!(
        wait_until(|| sleeps.iter().all(|pid| dead(*pid))),
        "nothing survives"
    );
}

#[test]
fn the_leader_killed_is_a_signal() {
    if !is_there(ProviderKind::Bwrap) {
        return;
    }
    let (outcome, sleeps) = killed_above(ProviderKind::Bwrap, 0);
    assert_eq!(outcome.signal.as_deref(), Some("SIGKILL"), "{outcome:?}");
    assert!(sleeps.iter().all(|pid| dead(*pid)));
}

#[test]
fn a_supervisor_killed_in_bwrap_is_an_error_and_nothing_survives() {
    lost_and_swept(ProviderKind::Bwrap, 1);
}

#[test]
fn the_keeper_killed_in_bwrap_is_an_error_and_nothing_survives() {
    lost_and_swept(ProviderKind::Bwrap, 2);
}

#[test]
fn bubblewrap_killed_is_an_error_and_nothing_survives() {
    lost_and_swept(ProviderKind::Bwrap, 3);
}

#[test]
fn a_supervisor_killed_on_the_host_is_an_error_and_nothing_survives() {
    lost_and_swept(ProviderKind::Landlock, 1);
}

#[test]
fn the_keeper_killed_on_the_host_is_an_error_and_nothing_survives() {
    lost_and_swept(ProviderKind::Landlock, 2);
}
