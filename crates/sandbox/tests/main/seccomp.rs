//! The filter: each class of refused calls, and what has to go on working.

use std::ffi::c_long;
use std::io::Error;

use cofferdam_sandbox::{Filter, SeccompOptions, SeccompProgram, UnixSockets};

use crate::helper::{ATTEMPT, attempt, program, run};

type Attempt = fn() -> c_long;

/// One raw call; its arguments are chosen so that nothing happens where it is allowed.
macro_rules! call {
    ($number:expr $(, $argument:expr)*) => {{
        // SAFETY: numbers, null pointers and constants; the process does nothing else.
        || unsafe { libc::syscall($number $(, i64::from($argument))*) }
    }};
}

const NEW_USER: c_long = 0x1000_0000;

const REFUSED: &[(&str, Attempt)] = &[
    ("io_uring_setup", call!(libc::SYS_io_uring_setup, 0, 0)),
    (
        "io_uring_enter",
        call!(libc::SYS_io_uring_enter, -1, 0, 0, 0, 0, 0),
    ),
    ("mount", call!(libc::SYS_mount, 0, 0, 0, 0, 0)),
    ("umount2", call!(libc::SYS_umount2, 0, 0)),
    ("pivot_root", call!(libc::SYS_pivot_root, 0, 0)),
    ("chroot", call!(libc::SYS_chroot, 0)),
    ("fsopen", call!(libc::SYS_fsopen, 0, 0)),
    ("open_tree", call!(libc::SYS_open_tree, -1, 0, 0)),
    ("move_mount", call!(libc::SYS_move_mount, -1, 0, -1, 0, 0)),
    (
        "mount_setattr",
        call!(libc::SYS_mount_setattr, -1, 0, 0, 0, 0),
    ),
    ("setns", call!(libc::SYS_setns, -1, 0)),
    ("unshare_user", call!(libc::SYS_unshare, NEW_USER)),
    ("unshare_time", call!(libc::SYS_unshare, 0x80)),
    (
        "clone_user",
        call!(libc::SYS_clone, NEW_USER | 0x11, 0, 0, 0, 0),
    ),
    (
        "open_by_handle_at",
        call!(libc::SYS_open_by_handle_at, -1, 0, 0),
    ),
    ("ptrace", call!(libc::SYS_ptrace, 0x4206, 1, 0, 0)),
    (
        "process_vm_readv",
        call!(libc::SYS_process_vm_readv, 1, 0, 0, 0, 0, 0),
    ),
    ("pidfd_getfd", call!(libc::SYS_pidfd_getfd, -1, 0, 0)),
    ("keyctl", call!(libc::SYS_keyctl, 0, -3, 0)),
    ("add_key", call!(libc::SYS_add_key, 0, 0, 0, 0, 0)),
    ("bpf", call!(libc::SYS_bpf, 0, 0, 0)),
    (
        "perf_event_open",
        call!(libc::SYS_perf_event_open, 0, 0, -1, -1, 0),
    ),
    ("userfaultfd", call!(libc::SYS_userfaultfd, 1)),
    ("fanotify_init", call!(libc::SYS_fanotify_init, 4, 0)),
    ("init_module", call!(libc::SYS_init_module, 0, 0, 0)),
    ("kexec_load", call!(libc::SYS_kexec_load, 0, 0, 0, 0xff00)),
    ("reboot", call!(libc::SYS_reboot, 0, 0, 0, 0)),
    ("swapon", call!(libc::SYS_swapon, 0, 0)),
    ("syslog", call!(libc::SYS_syslog, 10, 0, 0)),
    ("prlimit_other", call!(libc::SYS_prlimit64, 1, 7, 8, 0)),
    ("ioctl_sti", call!(libc::SYS_ioctl, 0, 0x5412, 0)),
    (
        "ioctl_sti_high",
        call!(libc::SYS_ioctl, 0, 0x1_0000_5412_i64, 0),
    ),
    ("ioctl_linux", call!(libc::SYS_ioctl, 0, 0x541c, 0)),
    ("raw_socket", call!(libc::SYS_socket, 2, 3, 1)),
    (
        "raw_socket6_flags",
        call!(libc::SYS_socket, 10, 3 | 0o2_000_000, 58),
    ),
    ("netlink_audit", call!(libc::SYS_socket, 16, 3, 9)),
    ("netlink_uevent", call!(libc::SYS_socket, 16, 2, 15)),
];

const NO_FAMILY: &[(&str, Attempt)] = &[
    ("vsock", call!(libc::SYS_socket, 40, 1, 0)),
    (
        "vsock_high",
        call!(libc::SYS_socket, 0x1_0000_0028_i64, 1, 0),
    ),
    ("packet", call!(libc::SYS_socket, 17, 2, 0)),
    ("alg", call!(libc::SYS_socket, 38, 5, 0)),
    ("xdp", call!(libc::SYS_socket, 44, 3, 0)),
    ("tipc_pair", call!(libc::SYS_socketpair, 30, 5, 0, 0)),
];

const ALLOWED: &[(&str, Attempt)] = &[
    ("getpid", call!(libc::SYS_getpid)),
    ("unshare_files", call!(libc::SYS_unshare, 0x400)),
    ("prlimit_own", call!(libc::SYS_prlimit64, 0, 7, 0, 0)),
    ("netlink_route", call!(libc::SYS_socket, 16, 3, 0)),
    ("a_thread", || {
        std::thread::spawn(|| ()).join().map_or(-1, |()| 0)
    }),
];

const SOCKETS: &[(&str, Attempt)] = &[
    ("unix", call!(libc::SYS_socket, 1, 1, 0)),
    ("inet", call!(libc::SYS_socket, 2, 1, 0)),
    ("inet_udp", call!(libc::SYS_socket, 2, 2, 0)),
    ("inet6", call!(libc::SYS_socket, 10, 1, 0)),
    ("connect", call!(libc::SYS_connect, -1, 0, 0)),
    ("sendto_address", call!(libc::SYS_sendto, -1, 0, 0, 0, 8, 0)),
    ("sendto", call!(libc::SYS_sendto, -1, 0, 0, 0, 0, 0)),
    ("pair", || {
        let mut pair = [0; 2];
        // SAFETY: two descriptors are written into a local.
        unsafe { libc::syscall(libc::SYS_socketpair, 1, 1, 0, pair.as_mut_ptr()) }
    }),
    ("datagram_pair", || {
        let mut pair = [0; 2];
        // SAFETY: two descriptors are written into a local.
        unsafe { libc::syscall(libc::SYS_socketpair, 1, 2 | 0x80000, 0, pair.as_mut_ptr()) }
    }),
];

const OTHER_ENTRIES: &[(&str, Attempt)] = &[
    ("clone3", call!(libc::SYS_clone3, 0, 0)),
    ("x32", call!(0x4000_0000 + 39)),
    #[cfg(target_arch = "x86_64")]
    ("int80", || {
        let result: i32;
        // SAFETY: getpid by the 32-bit entry changes nothing but the result register.
        unsafe {
            std::arch::asm!("int 0x80", inlateout("eax") 20 => result, options(nostack));
        }
        result.into()
    }),
];

fn filter(options: SeccompOptions) -> SeccompProgram {
    Filter::new(options).compile().expect("it compiles")
}

fn with(filter: Option<&SeccompProgram>, name: &str) -> i32 {
    attempt(name, |spec| {
        spec.seccomp = filter.cloned().map(|filter| &*Box::leak(Box::new(filter)));
    })
}

/// Not a test of its own: what a child does when it is asked to try something.
#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::exit,
    reason = "the child is told by a variable, and tells by its code"
)]
fn the_attempt_itself() {
    let Ok(name) = std::env::var(ATTEMPT) else {
        return;
    };
    let all = [REFUSED, NO_FAMILY, ALLOWED, SOCKETS, OTHER_ENTRIES].concat();
    let (_, attempt) = all
        .iter()
        .find(|(own, _)| *own == name)
        .expect("a known attempt");
    let code = if attempt() < 0 {
        Error::last_os_error().raw_os_error().unwrap_or(255)
    } else {
        0
    };
    std::process::exit(code);
}

#[test]
fn every_refused_call_returns_its_error() {
    let filter = filter(SeccompOptions::default());
    for (name, _) in REFUSED {
        assert_eq!(with(Some(&filter), name), libc::EPERM, "{name}");
    }
    for (name, _) in NO_FAMILY {
        assert_eq!(with(Some(&filter), name), libc::EAFNOSUPPORT, "{name}");
    }
    for (name, _) in ALLOWED {
        assert_eq!(with(Some(&filter), name), 0, "{name}");
    }
}

#[test]
fn fc_53_the_same_calls_pass_without_the_filter() {
    // What an ordinary user may do anyway, so that the test above shows the filter at work.
    for name in ["ioctl_sti", "ioctl_sti_high"] {
        assert_eq!(with(None, name), libc::ENOTTY, "{name}");
    }
    assert_eq!(with(None, "keyctl"), 0);
    assert_eq!(with(None, "vsock_high"), with(None, "vsock"));
}

#[test]
fn other_entries_into_the_kernel_lead_nowhere() {
    let filter = filter(SeccompOptions::default());
    assert_eq!(with(Some(&filter), "clone3"), libc::ENOSYS);
    assert_eq!(with(Some(&filter), "x32"), libc::EPERM);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(with(Some(&filter), "int80"), -libc::SIGSYS);
    }
}

#[test]
fn sockets_follow_the_options() {
    let outcome = |options: SeccompOptions| {
        let filter = filter(options);
        SOCKETS
            .iter()
            .map(|(name, _)| with(Some(&filter), name))
            .collect::<Vec<_>>()
    };
    let (open, no, bad) = (0, libc::EPERM, libc::EBADF);
    assert_eq!(
        outcome(SeccompOptions::default()),
        [open, open, open, open, bad, bad, bad, open, open]
    );
    let pairs = SeccompOptions {
        unix_sockets: UnixSockets::PairsOnly,
        ..Default::default()
    };
    assert_eq!(
        outcome(pairs),
        [no, open, open, open, bad, bad, bad, open, open]
    );
    let none = SeccompOptions {
        internet_sockets: false,
        ..pairs
    };
    assert_eq!(outcome(none), [no, no, no, no, no, no, bad, open, open]);
}

#[test]
fn tracing_and_nesting_can_be_granted() {
    let traced = filter(SeccompOptions {
        ptrace: true,
        ..Default::default()
    });
    assert_ne!(with(Some(&traced), "process_vm_readv"), libc::EPERM);
    let nested = filter(SeccompOptions {
        nested_namespaces: true,
        ..Default::default()
    });
    assert_eq!(with(Some(&nested), "fsopen"), with(None, "fsopen"));
    assert_eq!(with(Some(&nested), "keyctl"), libc::EPERM);
}

#[test]
fn ordinary_programs_work_behind_the_filter() {
    let filter = filter(SeccompOptions::default());
    let mut spec = program(&[
        "sh",
        "-c",
        "(echo a; echo b) | sort -r | tr '\\n' ' '; exit 4",
    ]);
    spec.seccomp = Some(&filter);
    let (status, output) = run(spec);
    assert_eq!(
        (output.as_str(), status),
        ("b a ", cofferdam_sandbox::ExitStatus::Code(4))
    );
}
