//! Landlock and seccomp, built by the keeper and put on each command.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cofferdam_keeper::{Setup, SupervisorReply};
use cofferdam_sandbox::{
    Access, ExitStatus, LANDLOCK_ABI_WANTED, LandlockPlan, PathRule, SeccompOptions, Swept,
    UnixSockets, landlock_abi,
};

use crate::harness::{Host, begin, count, mark, null, request, run, wait_until};

#[expect(clippy::print_stdout, reason = "a skipped test says why")]
pub(crate) fn landlock_is_there() -> bool {
    let abi = landlock_abi();
    if abi < LANDLOCK_ABI_WANTED {
        println!("skipped: Landlock has version {abi} here, {LANDLOCK_ABI_WANTED} is wanted");
    }
    abi >= LANDLOCK_ABI_WANTED
}

pub(crate) fn rule(path: &str, access: Access) -> PathRule {
    PathRule {
        path: path.as_bytes().to_vec(),
        access,
    }
}

pub(crate) fn walls(workspace: &Path) -> Setup {
    let mut files: Vec<PathRule> = ["/usr", "/bin", "/lib", "/lib64", "/etc"]
        .iter()
        .map(|path| rule(path, Access::ReadExecute))
        .collect();
    files.push(rule("/proc", Access::Read));
    files.push(rule("/dev/null", Access::Device));
    files.push(PathRule {
        path: workspace.as_os_str().as_bytes().to_vec(),
        access: Access::Write,
    });
    Setup {
        listeners: Vec::new(),
        mounts: Vec::new(),
        drop_capabilities: true,
        landlock: LandlockPlan {
            files: Some(files),
            deny_tcp: true,
            scope_signals: true,
            scope_abstract_sockets: true,
        },
        seccomp: Some(SeccompOptions {
            internet_sockets: false,
            unix_sockets: UnixSockets::PairsOnly,
            ptrace: false,
            nested_namespaces: false,
        }),
    }
}

#[test]
fn a_command_is_behind_the_walls_and_the_supervisor_is_safe_from_it() {
    if !landlock_is_there() {
        return;
    }
    let (inside, outside) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    std::fs::write(outside.path().join("secret"), "planted").expect("written");
    let mut host = Host::start(&walls(inside.path()), 1);
    let script = format!(
        "cat {o}/secret; echo x > {o}/new; echo fine > {w}/new; \
         kill -9 $PPID || echo safe; cat {w}/new; \
         grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/self/status",
        o = outside.path().display(),
        w = inside.path().display()
    );
    let done = host.run(&["sh", "-c", &script]);
    let text = String::from_utf8(done.stdout).expect("text");
    assert!(!text.contains("planted"), "{text}");
    assert!(text.contains("safe\nfine\n"), "{text}");
    assert!(text.contains("NoNewPrivs:\t1\nSeccomp:\t2\n"), "{text}");
    assert!(text.contains("CapEff:\t0000000000000000\n"), "{text}");
    assert!(!outside.path().join("new").exists());
    host.close();
}

#[test]
fn one_command_may_get_a_path_more_and_the_next_does_not() {
    if !landlock_is_there() {
        return;
    }
    let (inside, more) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    std::fs::write(more.path().join("text"), "granted").expect("written");
    let path = more.path().to_str().expect("text");
    let mut host = Host::start(&walls(inside.path()), 1);
    let command = format!("cat {path}/text");
    let mut wider = request(&["sh", "-c", &command]);
    wider.extra_paths = vec![rule(path, Access::Read)];
    assert_eq!(run(host.supervisor(), wider).stdout, b"granted");
    let done = host.run(&["sh", "-c", &command]);
    assert_ne!(done.stdout, b"granted");
    assert_eq!(done.exited().status, Some(ExitStatus::Code(1)));
    host.close();
}

#[test]
fn the_out_of_memory_score_is_set_although_the_supervisor_is_not_dumpable() {
    let mut host = Host::plain();
    let mut scored = request(&["sh", "-c", "sleep 0.05; cat /proc/self/oom_score_adj"]);
    scored.oom_score_adjustment = Some(500);
    assert_eq!(run(host.supervisor(), scored).stdout, b"500\n");
    host.close();
}

#[test]
fn a_path_that_is_not_there_is_told() {
    if !landlock_is_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = walls(folder.path());
    let files = setup.landlock.files.as_mut().expect("rules");
    files.push(rule("/no/such/path", Access::Read));
    let (ours, theirs) = cofferdam_sandbox::message_pair().expect("a channel");
    let process = crate::harness::start_program(theirs.as_fd());
    drop(theirs);
    let keeper = cofferdam_keeper::KeeperClient::new(ours);
    let (ready, supervisors) = keeper.hello(&setup, 1).expect("a greeting");
    assert_eq!(ready.skipped_paths, [b"/no/such/path".to_vec()]);
    keeper.end().expect("sent");
    drop(supervisors);
    cofferdam_sandbox::wait_pid(process.pid).expect("it leaves");
}

#[test]
fn a_supervisor_that_hangs_is_ended_with_its_tree() {
    let mut host = Host::start(&Setup::default(), 0);
    let (pid, supervisor) = host.keeper().new_supervisor().expect("a supervisor");
    let mark = mark();
    begin(
        &supervisor,
        request(&["sh", "-c", &format!("setsid sleep {mark} & sleep {mark}")]),
    );
    wait_until("the tree stands", || count(&mark) >= 2);
    cofferdam_sandbox::signal_pid(pid, 19).expect("stopped");
    host.keeper().end_child(pid).expect("ended");
    assert_eq!(count(&mark), 0);
    host.close();
}

#[test]
fn a_fork_bomb_is_ended() {
    let mut host = Host::plain();
    let mark = mark();
    let script =
        format!("f() {{ setsid sh -c 'sleep {mark} & sleep {mark}' & }}; while :; do f; done");
    let supervisor = host.supervisor();
    begin(supervisor, request(&["sh", "-c", &script]));
    wait_until("it has begun", || count(&mark) >= 50);
    supervisor.end_tree().expect("sent");
    match supervisor.receive().expect("an answer") {
        SupervisorReply::Exited(exited) => {
            assert_eq!(exited.swept, Swept::Ended);
            assert!(exited.leftovers.len() <= 64 && exited.leftover_count > 50);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(count(&mark), 0);
    host.close();
}

#[test]
fn a_listener_made_by_the_keeper_is_used_outside() {
    let mut host = Host::plain();
    let any = "127.0.0.1:0".parse().expect("an address");
    let (address, socket) = host.keeper().listen(any).expect("it listens");
    let listener = std::net::TcpListener::from(socket);
    assert_eq!(listener.local_addr().expect("bound"), address);
    let _client = std::net::TcpStream::connect(address).expect("connected");
    listener.accept().expect("accepted");
    assert!(
        host.keeper()
            .listen("192.0.2.1:1".parse().expect("an address"))
            .is_err()
    );
    host.keeper().ping().expect("it lives");
    let _ = null();
    host.close();
}
