//! Commands: how they start, what they give back, how they and their trees end.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cofferdam_keeper::{
    ChannelError, ClientError, Setup, SignalTarget, SpawnRequest, SupervisorReply,
};
use cofferdam_sandbox::{ExitStatus, SandboxError, Step, Swept, signal_pid};

use crate::harness::{Host, begin, count, mark, null, request, run, wait_until};

/// A tree that uses every way to get out of sight: a session of its own, a double fork, nohup.
fn hiding_tree(mark: &str) -> String {
    format!(
        "sleep {mark} & setsid sleep {mark} & (setsid sh -c '(sleep {mark} &) ; sleep {mark}' &) ; \
         nohup sleep {mark} >/dev/null 2>&1 & (sleep {mark} &)"
    )
}

#[test]
fn true_and_false_give_their_codes() {
    let mut host = Host::plain();
    let done = host.run(&["true"]).exited();
    assert_eq!(
        (done.status, done.swept),
        (Some(ExitStatus::Code(0)), Swept::NothingLeft)
    );
    assert_eq!(
        host.run(&["false"]).exited().status,
        Some(ExitStatus::Code(1))
    );
    assert_eq!(
        host.run(&["sh", "-c", "exit 77"]).exited().status,
        Some(ExitStatus::Code(77))
    );
    host.close();
}

#[test]
fn output_comes_as_it_was_written() {
    let mut host = Host::plain();
    let done = host.run(&["sh", "-c", "printf 'a\\377\\000b'; pwd; echo $0 >&2"]);
    assert_eq!(done.stdout, b"a\xff\0b/\nsh\n");
    host.close();
}

#[test]
fn fc_93_what_is_not_there_is_told_apart_from_what_cannot_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "echo no\n").expect("written");
    let plain = plain.to_str().expect("text");
    let mut host = Host::plain();
    let refusal = |argv: &[&str]| match host.run(argv).reply {
        SupervisorReply::Failed(failure) => SandboxError::from(failure),
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(&["no-such-program-anywhere"]).code(), "not_found");
    assert_eq!(refusal(&["/no/such/program"]).code(), "not_found");
    assert_eq!(refusal(&[plain]).code(), "not_executable");
    assert_eq!(refusal(&["/"]).code(), "not_executable");
    let error = refusal(&[""]);
    assert_eq!((error.step, error.code()), (Step::Execute, "not_found"));
    // And it serves on.
    assert_eq!(
        host.run(&["true"]).exited().status,
        Some(ExitStatus::Code(0))
    );
    host.close();
}

#[test]
fn a_missing_directory_is_told() {
    let mut host = Host::plain();
    let mut wrong = request(&["true"]);
    wrong.cwd = b"/no/such/folder".to_vec();
    match run(host.supervisor(), wrong).reply {
        SupervisorReply::Failed(failure) => {
            assert_eq!(SandboxError::from(failure).code(), "cwd_missing");
        }
        other => panic!("{other:?}"),
    }
    host.close();
}

#[test]
fn a_command_has_only_the_descriptors_it_was_given() {
    let mut host = Host::plain();
    let done = host.run(&["sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"]);
    // The fourth is the folder that ls itself reads.
    assert_eq!(done.stdout, b"0 1 2 3 ");
    host.close();
}

#[test]
fn nothing_of_the_callers_signals_or_limits_comes_along() {
    let mut host = Host::plain();
    let done = host.run(&["grep", "-E", "^Sig(Blk|Ign)|^NoNew", "/proc/self/status"]);
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(
        text,
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nNoNewPrivs:\t0\n"
    );
    host.close();
}

#[test]
fn a_signal_ends_the_command_and_is_told() {
    let mut host = Host::plain();
    let mark = mark();
    let pid = begin(host.supervisor(), request(&["sleep", &mark]));
    host.supervisor()
        .signal(SignalTarget::Leader, 15)
        .expect("sent");
    match host.supervisor().receive().expect("an answer") {
        SupervisorReply::Exited(exited) => {
            assert_eq!(exited.pid, pid);
            let status = ExitStatus::Signal {
                number: 15,
                core_dumped: false,
            };
            assert_eq!(exited.status, Some(status));
        }
        other => panic!("{other:?}"),
    }
    host.close();
}

#[test]
fn fc_66_what_a_command_leaves_behind_is_ended_and_named() {
    let mut host = Host::plain();
    let mark = mark();
    let done = run(
        host.supervisor(),
        request(&["sh", "-c", &format!("{} ; exit 3", hiding_tree(&mark))]),
    );
    let exited = done.exited();
    assert_eq!(exited.status, Some(ExitStatus::Code(3)));
    assert_eq!(exited.swept, Swept::Ended);
    assert_eq!(count(&mark), 0);
    assert!(
        exited.leftovers.iter().any(|left| left.name == b"sleep"),
        "{:?}",
        exited.leftovers
    );
    host.close();
}

#[test]
fn descendants_may_end_by_themselves_where_there_is_time() {
    let mut host = Host::plain();
    let mut patient = request(&["sh", "-c", "(sleep 0.05; echo late) &"]);
    patient.linger_milliseconds = 5000;
    let done = run(host.supervisor(), patient);
    assert_eq!(done.stdout, b"late\n");
    assert_eq!(done.exited().swept, Swept::NothingLeft);
    host.close();
}

#[test]
fn ending_a_tree_takes_everything_that_hides() {
    let mut host = Host::plain();
    let mark = mark();
    let script = format!("{} ; exec sleep {mark}", hiding_tree(&mark));
    begin(host.supervisor(), request(&["sh", "-c", &script]));
    wait_until("the tree stands", || count(&mark) >= 6);
    let began = Instant::now();
    host.supervisor().end_tree().expect("sent");
    match host.supervisor().receive().expect("an answer") {
        SupervisorReply::Exited(exited) => {
            assert_eq!(exited.swept, Swept::Ended);
            assert!(matches!(
                exited.status,
                Some(ExitStatus::Signal { number: 9, .. })
            ));
            assert!(exited.leftover_count >= 5);
        }
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(count(&mark), 0);
    // Ending twice is harmless, and the supervisor serves on.
    host.supervisor().end_tree().expect("sent");
    assert_eq!(
        host.run(&["true"]).exited().status,
        Some(ExitStatus::Code(0))
    );
    host.close();
}

#[test]
fn two_hundred_processes_are_ended() {
    let mut host = Host::plain();
    let mark = mark();
    let script = format!("i=0; while [ $i -lt 200 ]; do setsid sleep {mark} & i=$((i+1)); done");
    let exited = run(host.supervisor(), request(&["sh", "-c", &script])).exited();
    assert_eq!(exited.swept, Swept::Ended);
    // A few may still have been the shell's own copies when the sweep met them.
    assert!(exited.leftover_count >= 150, "{}", exited.leftover_count);
    assert_eq!(count(&mark), 0);
    host.close();
}

#[test]
fn fc_68_when_the_plane_is_gone_everything_ends() {
    let mut host = Host::plain();
    let mark = mark();
    let script = format!("{} ; exec sleep {mark}", hiding_tree(&mark));
    begin(host.supervisor(), request(&["sh", "-c", &script]));
    wait_until("the tree stands", || count(&mark) >= 6);
    let took = host.close();
    assert_eq!(count(&mark), 0);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_supervisor_that_its_command_ends_is_swept_by_the_keeper() {
    let mut host = Host::plain();
    let mark = mark();
    let script = format!("setsid sleep {mark} & sleep 0.05; kill -9 $PPID; exec sleep {mark}");
    begin(host.supervisor(), request(&["sh", "-c", &script]));
    let gone = host.supervisor().receive();
    assert!(
        matches!(gone, Err(ClientError::Channel(ChannelError::Closed))),
        "{gone:?}"
    );
    wait_until("the keeper has swept", || count(&mark) == 0);
    host.keeper().ping().expect("the keeper lives");
    let (_, another) = host.keeper().new_supervisor().expect("a new one");
    assert_eq!(
        run(&another, request(&["true"])).exited().status,
        Some(ExitStatus::Code(0))
    );
    drop(another);
    host.close();
}

#[test]
fn when_keeper_and_supervisor_are_killed_the_other_supervisor_still_ends_its_tree() {
    let mut host = Host::start(&Setup::default(), 2);
    let mark = mark();
    begin(&host.supervisors[1], request(&["sleep", &mark]));
    signal_pid(host.process.pid, 9).expect("killed");
    host.supervisors.clear();
    wait_until("the supervisor has swept", || count(&mark) == 0);
    host.close();
}

#[test]
fn arguments_longer_than_a_message_arrive() {
    let mut host = Host::plain();
    let long: Vec<u8> = std::iter::repeat_n(b'x', 100_000).collect();
    let request = SpawnRequest {
        argv: vec![
            b"sh".to_vec(),
            b"-c".to_vec(),
            b"echo ${#1} ${#2}".to_vec(),
            b"sh".to_vec(),
            long.clone(),
            long,
        ],
        ..request(&[])
    };
    assert_eq!(run(host.supervisor(), request).stdout, b"100000 100000\n");
    host.close();
}

#[test]
fn a_second_command_waits_for_nobody_but_is_refused() {
    let mut host = Host::plain();
    let mark = mark();
    begin(host.supervisor(), request(&["sleep", &mark]));
    let null = null();
    let all = [null.as_fd(), null.as_fd(), null.as_fd()];
    host.supervisor()
        .spawn(request(&["true"]), &all)
        .expect("sent");
    match host.supervisor().receive().expect("an answer") {
        SupervisorReply::Failed(failure) => assert_eq!(failure.step, Step::Prepare),
        other => panic!("{other:?}"),
    }
    host.close();
    assert_eq!(count(&mark), 0);
}

#[test]
fn many_commands_in_a_row_leave_nothing_open() {
    let mut host = Host::plain();
    for _ in 0..300 {
        assert_eq!(
            host.run(&["true"]).exited().status,
            Some(ExitStatus::Code(0))
        );
    }
    let done = host.run(&["sh", "-c", "ls /proc/$PPID/fd | wc -l"]);
    // Not dumpable: only root may look, and everybody else sees nothing.
    let text = String::from_utf8_lossy(&done.stdout);
    let open: usize = text
        .trim()
        .lines()
        .last()
        .unwrap_or("")
        .parse()
        .unwrap_or(0);
    assert!(open < 16, "{open}");
    host.close();
}
