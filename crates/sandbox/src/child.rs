//! What happens between clone and exec, in borrowed memory.
//!
//! Rules of this file: system calls only; no allocation, no lock, no panic, no libc function that
//! keeps state. In particular the identity is changed by raw calls, since libc's own wrappers would
//! carry the change to every thread of the caller.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::ptr;

use crate::error::{Step, last_errno};
use crate::limits::Limit;
use crate::spawn::Identity;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    pub(crate) from: c_int,
    pub(crate) to: c_int,
}

/// Everything the child needs, laid out beforehand. Descriptors are −1 when absent.
pub(crate) struct Plan<'a> {
    pub(crate) paths: *const *const c_char,
    pub(crate) argv: *const *const c_char,
    pub(crate) envp: *const *const c_char,
    /// Sorted by target, targets unique.
    pub(crate) moves: &'a mut [Move],
    pub(crate) program_fd: c_int,
    pub(crate) directory_path: *const c_char,
    pub(crate) directory_fd: c_int,
    pub(crate) landlock_fd: c_int,
    /// `cgroup.procs` of each group to join.
    pub(crate) control_groups: &'a [c_int],
    pub(crate) seccomp: Option<libc::sock_fprog>,
    pub(crate) identity: Option<&'a Identity>,
    pub(crate) limits: &'a [Limit],
    pub(crate) oom_score: Option<&'a [u8]>,
    pub(crate) new_session: bool,
    pub(crate) controlling_terminal: bool,
    pub(crate) drop_capabilities: bool,
    pub(crate) no_new_privileges: bool,
    pub(crate) parent_death_signal: c_int,
    pub(crate) subreaper: bool,
    pub(crate) umask: Option<u32>,
    pub(crate) keeps_signals: bool,
    pub(crate) failure: Option<(Step, i32)>,
}

/// The child's first function; returns only when something failed.
pub(crate) extern "C" fn run(plan: *mut c_void) -> c_int {
    // SAFETY: `clone_and_run` passes a pointer to a `Plan` that nobody else uses while we run.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    let Err(failure) = prepare_and_execute(plan);
    plan.failure = Some(failure);
    // SAFETY: _exit is always allowed; unlike exit it runs nothing of the caller's.
    unsafe { libc::_exit(127) }
}

enum Never {}

type Outcome<T = ()> = Result<T, (Step, i32)>;

fn check(step: Step, result: c_long) -> Outcome<c_long> {
    if result < 0 {
        Err((step, last_errno()))
    } else {
        Ok(result)
    }
}

fn prepare_and_execute(plan: &mut Plan<'_>) -> Outcome<Never> {
    // SAFETY: every call gets either plain numbers or pointers into `plan`, which outlives us; each
    // is a bare system call or a libc wrapper without state.
    unsafe {
        if !plan.keeps_signals {
            reset_signals();
        }
        join_control_group(plan)?;
        if plan.new_session {
            check(Step::Session, libc::setsid().into())?;
        }
        place_descriptors(plan)?;
        if plan.controlling_terminal {
            check(Step::Terminal, libc::ioctl(0, libc::TIOCSCTTY, 0).into())?;
        }
        set_oom_score(plan)?;
        for limit in plan.limits {
            check(Step::Limit, limit.lower().into())?;
        }
        if let Some(mask) = plan.umask {
            libc::umask(mask);
        }
        if let Some(identity) = plan.identity {
            take_identity(identity)?;
        }
        if plan.drop_capabilities {
            check(
                Step::Capabilities,
                crate::capabilities::drop_all_raw().into(),
            )?;
        }
        enter_directory(plan)?;
        // After the identity, since a change of it clears this.
        if plan.parent_death_signal != 0 {
            let result = libc::prctl(libc::PR_SET_PDEATHSIG, plan.parent_death_signal, 0, 0, 0);
            check(Step::Attribute, result.into())?;
        }
        if plan.subreaper {
            let result = libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            check(Step::Attribute, result.into())?;
        }
        if plan.no_new_privileges {
            check(
                Step::Attribute,
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into(),
            )?;
        }
        if plan.landlock_fd >= 0 {
            let result = libc::syscall(libc::SYS_landlock_restrict_self, plan.landlock_fd, 0);
            check(Step::Landlock, result)?;
        }
        unblock_signals();
        if let Some(program) = &plan.seccomp {
            let result = libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                ptr::from_ref(program),
            );
            check(Step::Seccomp, result)?;
        }
        execute(plan)
    }
}

pub(crate) unsafe fn reset_signals() {
    // The kernel's own structure, all zero: the default action, no flags, an empty mask. Raw, since
    // libc refuses the two numbers that it keeps for itself, which may be ignored all the same.
    let default = [0u64; 5];
    // SAFETY: the kernel reads 32 bytes of a local and changes the process's own table.
    unsafe {
        for signal in 1..=64 {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                ptr::null_mut::<c_void>(),
                8usize,
            );
        }
    }
}

unsafe fn unblock_signals() {
    // SAFETY: a local, initialised set.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

unsafe fn join_control_group(plan: &Plan<'_>) -> Outcome {
    for group in plan.control_groups {
        // SAFETY: writes one byte of a constant.
        let written = unsafe { libc::write(*group, b"0".as_ptr().cast(), 1) };
        check(Step::ControlGroup, written as c_long)?;
    }
    Ok(())
}

unsafe fn place_descriptors(plan: &mut Plan<'_>) -> Outcome {
    let floor = plan.moves.last().map_or(0, |last| last.to).max(2) + 1;
    // Whatever stands where something else shall go is moved out of the way first.
    // SAFETY: fcntl, dup3 and close_range on numbers only.
    unsafe {
        for one in plan.moves.iter_mut() {
            if one.from < floor && one.from != one.to {
                one.from = raise(one.from, floor)?;
            }
        }
        for fd in [
            &mut plan.program_fd,
            &mut plan.directory_fd,
            &mut plan.landlock_fd,
        ] {
            if *fd >= 0 && *fd < floor {
                *fd = raise(*fd, floor)?;
            }
        }
        for one in plan.moves.iter() {
            let result = if one.from == one.to {
                libc::fcntl(one.to, libc::F_SETFD, 0)
            } else {
                libc::dup3(one.from, one.to, 0)
            };
            check(Step::Descriptors, result.into())?;
        }
        let mut next: c_uint = 0;
        for one in plan.moves.iter() {
            let to = one.to.unsigned_abs();
            if to > next {
                close_on_exec(next, to - 1)?;
            }
            next = to + 1;
        }
        close_on_exec(next, c_uint::MAX)
    }
}

unsafe fn raise(fd: c_int, floor: c_int) -> Outcome<c_int> {
    // SAFETY: fcntl on a number.
    let raised = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, floor) };
    check(Step::Descriptors, raised.into())?;
    Ok(raised)
}

unsafe fn close_on_exec(first: c_uint, last: c_uint) -> Outcome {
    const CLOSE_RANGE_CLOEXEC: c_uint = 4;
    // SAFETY: numbers only; nothing is closed before exec.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_CLOEXEC) };
    check(Step::Descriptors, result)?;
    Ok(())
}

unsafe fn set_oom_score(plan: &Plan<'_>) -> Outcome {
    let Some(score) = plan.oom_score else {
        return Ok(());
    };
    // SAFETY: a constant path and bytes of the plan.
    unsafe {
        let fd = libc::open(
            c"/proc/self/oom_score_adj".as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if fd < 0 {
            // Without /proc there is nothing to set; the score only helps the kernel choose.
            return match last_errno() {
                libc::ENOENT => Ok(()),
                errno => Err((Step::OomScore, errno)),
            };
        }
        let written = libc::write(fd, score.as_ptr().cast(), score.len());
        let errno = last_errno();
        libc::close(fd);
        if written < 0 {
            Err((Step::OomScore, errno))
        } else {
            Ok(())
        }
    }
}

unsafe fn take_identity(identity: &Identity) -> Outcome {
    let Identity { uid, gid, groups } = identity;
    // SAFETY: raw calls with numbers and one array of the plan.
    unsafe {
        check(
            Step::Identity,
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()),
        )?;
        check(
            Step::Identity,
            libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid),
        )?;
        check(
            Step::Identity,
            libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid),
        )?;
    }
    Ok(())
}

unsafe fn enter_directory(plan: &Plan<'_>) -> Outcome {
    // SAFETY: a path or a descriptor of the plan.
    let result = unsafe {
        if plan.directory_fd >= 0 {
            libc::fchdir(plan.directory_fd)
        } else if plan.directory_path.is_null() {
            0
        } else {
            libc::chdir(plan.directory_path)
        }
    };
    check(Step::Directory, result.into())?;
    Ok(())
}

unsafe fn execute(plan: &Plan<'_>) -> Outcome<Never> {
    // SAFETY: null-terminated arrays of C strings that the caller keeps alive.
    unsafe {
        if plan.program_fd >= 0 {
            libc::syscall(
                libc::SYS_execveat,
                plan.program_fd,
                c"".as_ptr(),
                plan.argv,
                plan.envp,
                libc::AT_EMPTY_PATH,
            );
            return Err((Step::Execute, last_errno()));
        }
        let mut refusal = libc::ENOENT;
        let mut path = plan.paths;
        while !(*path).is_null() {
            libc::execve(*path, plan.argv, plan.envp);
            match last_errno() {
                // Somewhere else on PATH it may be there, or be executable.
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => refusal = libc::EACCES,
                errno => return Err((Step::Execute, errno)),
            }
            path = path.add(1);
        }
        Err((Step::Execute, refusal))
    }
}
