//! Terminals: opened by the keeper, given to a command as its own.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use cofferdam_keeper::{OpenedTerminal, SpawnRequest, SupervisorClient, SupervisorReply};
use cofferdam_sandbox::{ExitStatus, resize_terminal};

use crate::harness::{Host, request};

fn start(supervisor: &SupervisorClient, terminal: &OpenedTerminal, mut request: SpawnRequest) {
    request.controlling_terminal = true;
    request.env.push(b"PS1=> ".to_vec());
    let slave = terminal.slave.as_fd();
    supervisor
        .spawn(request, &[slave, slave, slave])
        .expect("sent");
}

fn status(supervisor: &SupervisorClient) -> Option<ExitStatus> {
    match supervisor.receive().expect("an answer") {
        SupervisorReply::Exited(exited) => exited.status,
        other => panic!("{other:?}"),
    }
}

/// Reads until the text has come.
fn read_until(master: &mut std::fs::File, text: &str) -> String {
    let mut seen = String::new();
    let mut buffer = [0; 1024];
    while !seen.contains(text) {
        let length = master.read(&mut buffer).expect("output");
        assert!(length > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    seen
}

#[test]
fn a_command_has_a_terminal_of_its_own() {
    let mut host = Host::plain();
    let terminal = host.keeper().open_terminal(33, 99).expect("opened");
    let script = "tty; stty size; ps -o tty= -p $$; echo here > /dev/tty";
    start(host.supervisor(), &terminal, request(&["sh", "-c", script]));
    assert_eq!(status(host.supervisor()), Some(ExitStatus::Code(0)));
    let name = String::from_utf8(terminal.name.clone()).expect("text");
    drop(terminal.slave);
    let mut master = std::fs::File::from(terminal.master);
    let mut seen = Vec::new();
    // At its end a terminal without a slave gives an error.
    let _ = master.read_to_end(&mut seen);
    let seen = String::from_utf8(seen).expect("text");
    let short = name.trim_start_matches("/dev/").to_owned();
    let lines: Vec<&str> = seen.split("\r\n").map(str::trim).collect();
    assert_eq!(lines, [name.as_str(), "33 99", &short, "here", ""]);
    host.close();
}

#[test]
fn control_c_reaches_the_foreground_and_size_changes_are_told() {
    let mut host = Host::plain();
    let terminal = host.keeper().open_terminal(24, 80).expect("opened");
    let script = "trap 'stty size' WINCH; trap 'echo caught; exit 7' INT; echo ready; \
                  while :; do sleep 0.02; done";
    start(host.supervisor(), &terminal, request(&["sh", "-c", script]));
    let mut master = std::fs::File::from(terminal.master);
    read_until(&mut master, "ready");
    resize_terminal(&master, 50, 120).expect("resized");
    read_until(&mut master, "50 120");
    master.write_all(b"\x03").expect("written");
    read_until(&mut master, "caught");
    assert_eq!(status(host.supervisor()), Some(ExitStatus::Code(7)));
    host.close();
}

#[test]
fn job_control_works_in_a_shell() {
    let mut host = Host::plain();
    let terminal = host.keeper().open_terminal(24, 80).expect("opened");
    start(host.supervisor(), &terminal, request(&["sh", "-i"]));
    let mut master = std::fs::File::from(terminal.master);
    read_until(&mut master, ">");
    master
        .write_all(b"sleep 600; echo \"code=$?\"\n")
        .expect("written");
    read_until(&mut master, "code=$?");
    // The shell has to have handed the terminal over first.
    let pause = std::time::Duration::from_millis(100);
    std::thread::sleep(pause);
    master.write_all(b"\x1a").expect("written");
    read_until(&mut master, "code=148");
    master
        .write_all(b"jobs; kill %1; wait; exit 5\nexit 5\n")
        .expect("written");
    read_until(&mut master, "sleep 600");
    assert_eq!(status(host.supervisor()), Some(ExitStatus::Code(5)));
    host.close();
}

#[test]
fn a_terminal_that_is_closed_ends_the_shell() {
    let mut host = Host::plain();
    let terminal = host.keeper().open_terminal(24, 80).expect("opened");
    let mut told = request(&["sh", "-i"]);
    told.announce = true;
    start(host.supervisor(), &terminal, told);
    let started = host.supervisor().receive().expect("an answer");
    assert!(
        matches!(started, SupervisorReply::Started { .. }),
        "{started:?}"
    );
    drop(terminal);
    // Hung up on, or at the end of its input: either way it has ended.
    assert!(status(host.supervisor()).is_some());
    host.close();
}
