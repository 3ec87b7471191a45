//! The keeper as first process inside of bubblewrap.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cofferdam_keeper::{KeeperClient, Setup, SupervisorClient};
use cofferdam_sandbox::{
    ExitStatus, LandlockPlan, Program, SeccompOptions, SetupMount, Spawn, Spawned, find_program,
    message_pair, probe_bwrap, sealed_program, spawn, wait_pid,
};

use crate::harness::{begin, count, mark, null, request, run, wait_until};

#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn bwrap() -> Option<PathBuf> {
    let Some(program) = find_program("bwrap", "/usr/bin:/usr/local/bin".as_ref(), &[]) else {
        println!("skipped: bubblewrap is not installed");
        return None;
    };
    if let Err(problem) = probe_bwrap(&program, None) {
        println!("skipped: {problem}");
        return None;
    }
    Some(program)
}

struct Inside {
    process: Spawned,
    keeper: Option<KeeperClient>,
    supervisors: Vec<SupervisorClient>,
}

fn start(program: &Path, workspace: &Path, extra: &[&str]) -> (Spawned, KeeperClient) {
    let own = std::fs::read(env!("CARGO_BIN_EXE_cofferdam-keeper")).expect("read");
    let own: OwnedFd = sealed_program("cofferdam-keeper", &own).expect("sealed");
    let workspace = workspace.to_str().expect("text");
    let mut words = vec![
        "bwrap",
        "--unshare-all",
        "--unshare-user",
        "--die-with-parent",
        "--as-pid-1",
        "--cap-drop",
        "ALL",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--bind",
        workspace,
        workspace,
    ];
    words.extend(extra);
    words.extend(["--", "/proc/self/fd/4", "3"]);
    let path = program.to_str().expect("text");
    let strings = |all: &[&str]| {
        all.iter()
            .map(|one| std::ffi::CString::new(*one).expect("no NUL"))
            .collect::<Vec<_>>()
    };
    let mut spec = Spawn::new(Program::Paths(strings(&[path])), strings(&words));
    let (ours, theirs) = message_pair().expect("a channel");
    let null = null();
    let stderr = std::io::stderr();
    spec.descriptors = vec![
        (null.as_fd(), 0),
        (stderr.as_fd(), 1),
        (stderr.as_fd(), 2),
        (theirs.as_fd(), 3),
        (own.as_fd(), 4),
    ];
    spec.new_session = true;
    let process = spawn(&spec).expect("bubblewrap starts");
    drop(theirs);
    (process, KeeperClient::new(ours))
}

fn enclose(program: &Path, workspace: &Path, extra: &[&str], setup: &Setup) -> Inside {
    enclose_with(program, workspace, extra, setup, 1)
}

fn enclose_with(
    program: &Path,
    workspace: &Path,
    extra: &[&str],
    setup: &Setup,
    supervisors: usize,
) -> Inside {
    let (process, keeper) = start(program, workspace, extra);
    let (ready, supervisors) = keeper.hello(setup, supervisors).expect("a greeting");
    assert_eq!(ready.pid, 1);
    Inside {
        process,
        keeper: Some(keeper),
        supervisors,
    }
}

impl Inside {
    fn output(&self, script: &str) -> String {
        let done = run(&self.supervisors[0], request(&["sh", "-c", script]));
        String::from_utf8(done.stdout).expect("text")
    }

    fn close(mut self) {
        self.keeper = None;
        self.supervisors.clear();
        wait_pid(self.process.pid).expect("bubblewrap leaves");
    }
}

fn setup() -> Setup {
    Setup {
        drop_capabilities: true,
        landlock: LandlockPlan {
            scope_signals: cofferdam_sandbox::landlock_abi() >= 6,
            ..LandlockPlan::default()
        },
        seccomp: Some(SeccompOptions::default()),
        ..Setup::default()
    }
}

#[test]
fn commands_run_inside_and_see_little() {
    let Some(program) = bwrap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let inside = enclose(&program, folder.path(), &[], &setup());
    let seen = inside
        .output("ls /proc | grep -c '^[0-9]*$'; grep CapBnd /proc/self/status; ls /proc/self/fd");
    let lines: Vec<&str> = seen.lines().collect();
    let processes: usize = lines[0].parse().expect("a number");
    // Keeper, supervisor, shell, ls and grep.
    assert!(processes <= 5, "{seen}");
    assert_eq!(lines[1], "CapBnd:\t0000000000000000");
    assert_eq!(lines[2..], ["0", "1", "2", "3"]);
    let path = folder.path().join("made");
    assert_eq!(
        inside
            .output(&format!(
                "echo x > {}; echo y > /etc/no; echo z",
                path.display()
            ))
            .lines()
            .last(),
        Some("z")
    );
    assert!(path.exists());
    inside.close();
}

#[test]
fn terminals_have_names_inside() {
    let Some(program) = bwrap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let inside = enclose(&program, folder.path(), &[], &setup());
    let terminal = inside
        .keeper
        .as_ref()
        .expect("there")
        .open_terminal(24, 80)
        .expect("opened");
    assert_eq!(terminal.name, b"/dev/pts/0");
    let mut wanted = request(&["sh", "-c", "tty && echo fine > /dev/tty"]);
    wanted.controlling_terminal = true;
    let slave = terminal.slave.as_fd();
    inside.supervisors[0]
        .spawn(wanted, &[slave, slave, slave])
        .expect("sent");
    inside.supervisors[0].receive().expect("an answer");
    let mut buffer = [0; 256];
    let mut seen = String::new();
    while !seen.contains("fine") {
        let length = rustix::io::read(&terminal.master, &mut buffer).expect("output");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    assert_eq!(seen.lines().next(), Some("/dev/pts/0"));
    drop(terminal);
    inside.close();
}

#[test]
fn sockets_and_their_lists_are_those_of_the_inside() {
    let Some(program) = bwrap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let inside = enclose(&program, folder.path(), &[], &setup());
    let keeper = inside.keeper.as_ref().expect("there");
    let tables = keeper.open_socket_tables(false).expect("lists");
    let listed = |port: u16| {
        let mut text = vec![0; 64 * 1024];
        let length = rustix::io::pread(&tables[0], &mut text[..], 0).expect("a list");
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        text.contains(&format!("0100007F:{port:04X} 00000000:0000 0A"))
    };
    let any = "127.0.0.1:0".parse().expect("an address");
    let (address, listener) = keeper.listen(any).expect("it listens");
    // The list is read anew each time, and is not that of the outside.
    assert!(listed(address.port()));
    let listener = std::net::TcpListener::from(listener);
    let socket = keeper.open_socket(false).expect("a socket");
    rustix::net::connect(&socket, &address).expect("connected inside");
    listener.accept().expect("accepted");
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "not from outside"
    );
    drop((listener, socket));
    assert!(!listed(address.port()));
    drop(tables);
    inside.close();
}

#[test]
fn the_end_of_the_channel_ends_the_namespace() {
    let Some(program) = bwrap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let inside = enclose(&program, folder.path(), &[], &setup());
    let mark = mark();
    begin(
        &inside.supervisors[0],
        request(&["sh", "-c", &format!("setsid sleep {mark} & sleep {mark}")]),
    );
    wait_until("the tree stands", || count(&mark) >= 2);
    inside.close();
    wait_until("nothing is left", || count(&mark) == 0);
}

#[test]
fn a_layer_over_a_cache_takes_what_is_written() {
    let Some(program) = bwrap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let [cache, store, work] = ["cache", "store", "work"].map(|name| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("made");
        path.to_str().expect("text").to_owned()
    });
    std::fs::write(format!("{cache}/old"), "lower").expect("written");
    let staging = "/tmp/staging";
    let mut extra = vec!["--ro-bind", &cache, &cache, "--bind", &store, staging];
    for capability in [
        "CAP_SYS_ADMIN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
        "CAP_CHOWN",
        "CAP_FSETID",
    ] {
        extra.extend(["--cap-add", capability]);
    }
    let mut setup = setup();
    let bytes = |text: String| text.into_bytes();
    setup.mounts = vec![
        SetupMount::Overlay {
            lower: bytes(cache.clone()),
            upper: bytes(format!("{staging}/upper")),
            work: bytes(format!("{staging}/work")),
            target: bytes(cache.clone()),
        },
        SetupMount::Detach {
            target: bytes(staging.to_owned()),
        },
    ];
    let inside = enclose(&program, Path::new(&work), &extra, &setup);
    let seen = inside.output(&format!(
        "cat {cache}/old; echo new > {cache}/old; echo more > {cache}/added; cat {cache}/old; \
         ls -A {staging}; mount -t tmpfs none {cache} 2>/dev/null || echo closed; \
         grep CapEff /proc/self/status"
    ));
    assert_eq!(seen, "lowernew\nclosed\nCapEff:\t0000000000000000\n");
    let done = run(
        &inside.supervisors[0],
        request(&["rm", &format!("{cache}/old")]),
    );
    assert_eq!(done.exited().status, Some(ExitStatus::Code(0)));
    inside.close();
    assert_eq!(
        std::fs::read_to_string(format!("{cache}/old")).expect("read"),
        "lower"
    );
    assert_eq!(
        std::fs::read_to_string(format!("{store}/upper/added")).expect("read"),
        "more\n"
    );
    assert!(!Path::new(&format!("{cache}/added")).exists());
    // The kernel leaves it closed; an ordinary user could not remove the folder.
    for closed in ["work", "work/incompat", "work/incompat/volatile"] {
        let closed = format!("{store}/work/{closed}");
        std::fs::set_permissions(closed, PermissionsExt::from_mode(0o700)).expect("opened");
    }
}

#[test]
fn the_only_command_runs_under_the_first_process_itself() {
    let Some(program) = bwrap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut inside = enclose_with(&program, folder.path(), &[], &setup(), 0);
    let only = inside
        .keeper
        .as_ref()
        .expect("there")
        .last_supervisor()
        .expect("sent");
    inside.supervisors.push(only);
    let mark = mark();
    let script = format!("kill -9 1 2>/dev/null; echo $PPID; setsid sleep {mark} & exit 6");
    let done = run(&inside.supervisors[0], request(&["sh", "-c", &script]));
    assert_eq!(done.stdout, b"1\n");
    let exited = done.exited();
    assert_eq!(exited.status, Some(ExitStatus::Code(6)));
    assert_eq!(exited.leftover_count, 1);
    assert_eq!(count(&mark), 0);
    // Closing the keeper's channel alone ends it, too.
    begin(&inside.supervisors[0], request(&["sleep", &mark]));
    inside.keeper = None;
    wait_pid(inside.process.pid).expect("bubblewrap leaves");
    wait_until("nothing is left", || count(&mark) == 0);
}

#[test]
fn a_set_up_that_fails_is_told() {
    let Some(program) = bwrap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = setup();
    setup.mounts = vec![SetupMount::Detach {
        target: b"/proc".to_vec(),
    }];
    let (process, keeper) = start(&program, folder.path(), &[]);
    assert!(keeper.begin_hello(&setup, 0).expect("sent").is_empty());
    let only = keeper.last_supervisor().expect("sent");
    let null = null();
    let all = [null.as_fd(), null.as_fd(), null.as_fd()];
    let _ = only.spawn(request(&["true"]), &all);
    assert!(only.receive().is_err());
    let refusal = keeper.finish_hello().expect_err("refused");
    assert_eq!(refusal.code(), "mount");
    drop(keeper);
    wait_pid(process.pid).expect("bubblewrap leaves");
}
