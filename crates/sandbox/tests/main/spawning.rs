//! Spawning: what a child gets, and what it must not get.

use std::os::fd::AsFd;

use cofferdam_sandbox::{
    ControlGroup, ControlTrees, Directory, ExitStatus, GroupLimits, Identity, Limit, Program,
    Resource, Spawn, Step, sealed_program, spawn,
};

use crate::helper::{program, run, words};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn descriptors_go_where_they_shall_even_crosswise() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, name).expect("written");
        std::fs::File::open(path).expect("opened")
    };
    let files: Vec<std::fs::File> = ["a", "b", "c"].into_iter().map(file).collect();
    let low = files
        .iter()
        .map(std::os::fd::AsRawFd::as_raw_fd)
        .collect::<Vec<_>>();
    // Each goes to the number of the next one.
    let mut spec = program(&[
        "sh",
        "-c",
        &format!(
            "cat /dev/fd/{} /dev/fd/{} /dev/fd/{}; ls /dev/fd",
            low[0], low[1], low[2]
        ),
    ]);
    spec.descriptors = (0..3)
        .map(|at| (files[at].as_fd(), low[(at + 1) % 3]))
        .collect();
    let (status, output) = run(spec);
    assert_eq!(status, ExitStatus::Code(0));
    assert!(output.starts_with("cab"), "{output}");
    // Standard streams, three files and the folder that is listed.
    assert_eq!(
        output.trim_start_matches("cab").lines().count(),
        7,
        "{output}"
    );
}

#[test]
fn two_sources_for_one_number_are_refused() {
    let null = std::fs::File::open("/dev/null").expect("null");
    let mut spec = program(&["true"]);
    spec.descriptors = vec![(null.as_fd(), 5), (null.as_fd(), 5)];
    assert_eq!(
        spawn(&spec).map(drop).expect_err("refused").step,
        Step::Prepare
    );
}

#[test]
fn limits_are_lowered_and_never_raised() {
    let mut spec = program(&["sh", "-c", "ulimit -n; ulimit -Hn; ulimit -c"]);
    spec.limits = vec![
        Limit {
            resource: Resource::OpenFiles,
            value: 99,
        },
        Limit {
            resource: Resource::Core,
            value: 0,
        },
    ];
    assert_eq!(run(spec).1, "99\n99\n0\n");
    let (_, before) = run(program(&["sh", "-c", "ulimit -Hn"]));
    let mut spec = program(&["sh", "-c", "ulimit -Hn"]);
    spec.limits = vec![Limit {
        resource: Resource::OpenFiles,
        value: u64::MAX,
    }];
    assert_eq!(run(spec), (ExitStatus::Code(0), before));
}

#[test]
fn directory_mask_session_and_score_are_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("real");
    let script =
        "pwd; umask; cat /proc/self/oom_score_adj; [ $(ps -o sid= -p $$) = $$ ] && echo leader";
    let mut spec = program(&["sh", "-c", script]);
    spec.directory = Some(Directory::Path(
        words(&[path.to_str().expect("text")]).remove(0),
    ));
    spec.umask = Some(0o77);
    spec.oom_score_adjustment = Some(300);
    spec.new_session = true;
    assert_eq!(
        run(spec).1,
        format!("{}\n0077\n300\nleader\n", path.display())
    );
    let open = std::fs::File::open(&path).expect("opened");
    let mut spec = program(&["pwd"]);
    spec.directory = Some(Directory::File(open.as_fd()));
    assert_eq!(run(spec).1, format!("{}\n", path.display()));
}

#[test]
fn errors_name_the_step_and_leave_no_process() {
    let plain = tempfile::NamedTempFile::new().expect("a file");
    let refusal = |spec: &Spawn<'_>| {
        let error = spawn(spec).map(drop).expect_err("refused");
        (error.step, error.errno, error.code())
    };
    assert_eq!(
        refusal(&program(&["/no/such"])),
        (Step::Execute, libc::ENOENT, "not_found")
    );
    assert_eq!(
        refusal(&program(&["no-such-thing"])),
        (Step::Execute, libc::ENOENT, "not_found")
    );
    assert_eq!(
        refusal(&program(&[plain.path().to_str().expect("text")])),
        (Step::Execute, libc::EACCES, "not_executable")
    );
    let mut spec = program(&["true"]);
    spec.directory = Some(Directory::Path(c"/no/such".to_owned()));
    assert_eq!(
        refusal(&spec),
        (Step::Directory, libc::ENOENT, "cwd_missing")
    );
    let mut spec = program(&["true"]);
    spec.controlling_terminal = true;
    let null = std::fs::File::open("/dev/null").expect("null");
    spec.descriptors = vec![(null.as_fd(), 0)];
    assert_eq!(refusal(&spec), (Step::Terminal, libc::ENOTTY, "terminal"));
    let own = std::process::id();
    let left = cofferdam_sandbox::descendants(i32::try_from(own).expect("a pid"));
    // Other tests of this process may have children of their own, but none is called after us.
    assert!(!left.iter().any(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.starts_with("spawning"))
    }));
}

#[test]
fn a_script_without_interpreter_line_is_not_executable() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("script");
    std::fs::write(&path, "echo no\n").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    let error = spawn(&program(&[path.to_str().expect("text")]))
        .map(drop)
        .expect_err("refused");
    assert_eq!(
        (error.errno, error.code()),
        (libc::ENOEXEC, "not_executable")
    );
}

#[test]
fn a_program_without_a_name_runs() {
    let content = std::fs::read("/bin/echo").expect("read");
    let file = sealed_program("echo", &content).expect("sealed");
    let spec = Spawn::new(
        Program::File(file.as_fd()),
        words(&["echo", "from", "memory"]),
    );
    assert_eq!(run(spec), (ExitStatus::Code(0), "from memory\n".to_owned()));
    assert!(rustix::io::write(&file, b"x").is_err(), "sealed");
}

#[test]
fn capabilities_and_privileges_can_be_given_up() {
    let mut spec = program(&[
        "grep",
        "-E",
        "^(CapEff|CapPrm|CapAmb|NoNewPrivs)",
        "/proc/self/status",
    ]);
    spec.drop_capabilities = true;
    spec.no_new_privileges = true;
    let none = "0000000000000000";
    assert_eq!(
        run(spec).1,
        format!("CapPrm:\t{none}\nCapEff:\t{none}\nCapAmb:\t{none}\nNoNewPrivs:\t1\n")
    );
}

#[test]
fn another_identity_is_taken_on() {
    if !is_root() {
        println!("skipped: only root may take on another identity");
        return;
    }
    let mut spec = program(&["id"]);
    spec.identity = Some(Identity {
        uid: 12345,
        gid: 23456,
        groups: vec![34567],
    });
    let (_, output) = run(spec);
    assert_eq!(output, "uid=12345 gid=23456 groups=23456,34567\n");
    // The caller stays what it was, to others as well.
    assert!(is_root());
    assert!(std::fs::File::open("/proc/self/mem").is_ok());
    assert_eq!(
        rustix::process::dumpable_behavior().expect("known"),
        rustix::process::DumpableBehavior::Dumpable
    );
}

#[test]
fn many_threads_may_spawn_at_once() {
    let threads: Vec<_> = (0..8)
        .map(|number| {
            std::thread::spawn(move || {
                for round in 0..25 {
                    let text = format!("{number} {round}");
                    assert_eq!(run(program(&["echo", &text])).1, format!("{text}\n"));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn own_group(name: &str, limits: GroupLimits) -> Option<ControlGroup> {
    let name = format!("{name}-{}", std::process::id());
    let plan = ControlTrees::find().plan(&name, limits);
    let made = plan.as_ref().map(ControlGroup::create);
    match made {
        Some(Ok(group)) => Some(group),
        other => {
            println!("skipped: no control group of our own here: {other:?}");
            None
        }
    }
}

const LIMITS: GroupLimits = GroupLimits {
    memory: Some(64 << 20),
    tasks: Some(16),
};

#[test]
fn a_control_group_ends_everything_in_it() {
    let Some(group) = own_group("test-kill", LIMITS) else {
        return;
    };
    let mut spec = program(&[
        "sh",
        "-c",
        "setsid sleep 600 & setsid sleep 600 & exec sleep 600",
    ]);
    spec.control_groups = group.processes();
    let child = spawn(&spec).expect("started");
    assert!(!group.is_empty());
    group.kill();
    let status = cofferdam_sandbox::wait_pid(child.pid).expect("ours").status;
    assert!(matches!(status, ExitStatus::Signal { number: 9, .. }));
    drop(group);
    // Its name is free again, so it is gone.
    drop(own_group("test-kill", LIMITS).expect("made again"));
}

#[test]
fn b10_a_control_group_bounds_tasks_and_memory_and_counts() {
    let Some(group) = own_group("test-bounds", LIMITS) else {
        return;
    };
    if group.tasks().is_some() {
        let mut spec = program(&[
            "sh",
            "-c",
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 600 & done",
        ]);
        spec.control_groups = group.processes();
        let child = spawn(&spec).expect("started");
        cofferdam_sandbox::wait_pid(child.pid).expect("ours");
        assert!(group.events().refused_tasks > 0);
        while !group.is_empty() {
            group.kill();
        }
    }
    if group.memory().is_some() {
        let mut spec = program(&["sh", "-c", "a=x; while :; do a=$a$a; done"]);
        spec.control_groups = group.processes();
        let child = spawn(&spec).expect("started");
        let status = cofferdam_sandbox::wait_pid(child.pid).expect("ours").status;
        assert!(matches!(status, ExitStatus::Signal { number: 9, .. }));
        assert!(group.events().oom_kills > 0);
    }
}
