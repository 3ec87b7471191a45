//! Signals to the program, and what is left when it is killed.

use std::io::Read as _;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{Scene, has_walls, processes_with, until, wait};

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a pid");
    kill_process(pid, signal).expect("it runs");
}

/// Starts a command and waits until it has written its first word.
fn started(scene: &Scene, arguments: &[&str]) -> Child {
    let mut child = scene
        .command(arguments)
        .spawn()
        .expect("the program starts");
    let mut word = [0; 5];
    child
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut word)
        .expect("the first word");
    assert_eq!(&word, b"ready");
    child
}

#[test]
fn the_first_signal_goes_to_the_command() {
    if !has_walls() {
        return;
    }
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let scene = Scene::new();
        let mut child = started(
            &scene,
            &["run", "--", "sh", "-c", "echo ready; exec sleep 300"],
        );
        send(&child, signal);
        assert_eq!(wait(&mut child).code(), Some(code));
    }
}

#[test]
fn the_command_may_answer_the_first_signal_itself() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = started(&scene, &["run", "--", "sh", "-c", script]);
    send(&child, Signal::TERM);
    assert_eq!(wait(&mut child).code(), Some(7));
}

#[test]
fn the_second_signal_ends_it() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let script = "trap '' INT TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = started(&scene, &["run", "--", "sh", "-c", script]);
    let start = std::time::Instant::now();
    send(&child, Signal::INT);
    // The same signal twice at once is one signal: wait until the first was taken.
    while child.try_wait().expect("a child").is_none() && start.elapsed().as_secs() < 4 {
        send(&child, Signal::INT);
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    assert_eq!(wait(&mut child).code(), Some(130));
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}

#[test]
fn fc_68_nothing_survives_a_kill() {
    if !has_walls() {
        return;
    }
    for (number, provider) in ["bwrap", "landlock"].into_iter().enumerate() {
        let scene = Scene::new();
        scene.repository();
        let before = scene.listing();
        let mark = format!("300.{}{number}", std::process::id());
        let script = format!("(setsid sleep {mark} &); echo ready; sleep {mark}");
        let mut child = started(
            &scene,
            &["run", "--provider", provider, "--", "sh", "-c", &script],
        );
        assert!(
            until(|| processes_with(&mark).len() >= 2),
            "{provider}: it never ran"
        );
        child.kill().expect("it runs");
        let _ = child.wait();
        let killed = std::time::Instant::now();
        assert!(
            until(|| processes_with(&mark).is_empty()),
            "{provider}: survivors"
        );
        assert!(
            killed.elapsed().as_millis() < 1_000,
            "{provider}: {:?}",
            killed.elapsed()
        );
        assert_eq!(scene.listing(), before, "{provider}");
        let done = scene
            .run(&["run", "--provider", provider, "--", "true"])
            .expect_code(0);
        assert!(
            done.stderr.contains("settled"),
            "{provider}: {}",
            done.stderr
        );
        let again = scene
            .run(&["run", "--provider", provider, "--", "true"])
            .expect_code(0);
        assert_eq!(again.stderr, "", "{provider}");
        scene.run(&["journal", "verify"]).expect_code(0);
    }
}
