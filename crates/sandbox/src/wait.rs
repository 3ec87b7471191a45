//! Waiting for processes, with what they used.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{SandboxError, Step, last_errno};

/// Tells how a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It left with this code, 0 to 255.
    Code(i32),
    /// A signal ended it.
    Signal {
        /// The signal's number.
        number: i32,
        /// A core file was written.
        core_dumped: bool,
    },
}

/// Tells what a process, and those of its descendants that were waited for, used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time in user mode, in microseconds.
    pub user_microseconds: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_microseconds: u64,
    /// Largest resident set of any single process, in KiB.
    pub max_resident_kib: u64,
}

impl Usage {
    /// Adds what another process used: times are summed, the resident set is the larger one.
    pub fn add(&mut self, other: Self) {
        self.user_microseconds += other.user_microseconds;
        self.system_microseconds += other.system_microseconds;
        self.max_resident_kib = self.max_resident_kib.max(other.max_resident_kib);
    }
}

/// Holds one ended process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// Its process id.
    pub pid: i32,
    /// How it ended.
    pub status: ExitStatus,
    /// What it used.
    pub usage: Usage,
}

/// Tells what waiting for any child brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reap {
    /// A child had ended and is taken away now.
    Ended(Reaped),
    /// There are children, none has ended.
    Running,
    /// There is no child at all.
    NoChild,
}

/// Takes away one ended child, whichever, without waiting.
pub fn reap_any() -> Result<Reap, SandboxError> {
    wait4(-1, libc::WNOHANG)
}

/// Waits until this child has ended, and takes it away.
pub fn wait_pid(pid: i32) -> Result<Reaped, SandboxError> {
    match wait4(pid, 0)? {
        Reap::Ended(reaped) => Ok(reaped),
        Reap::Running | Reap::NoChild => Err(SandboxError::new(Step::Wait, libc::ECHILD)),
    }
}

/// Takes this child away if it has ended.
pub fn try_wait_pid(pid: i32) -> Result<Option<Reaped>, SandboxError> {
    match wait4(pid, libc::WNOHANG)? {
        Reap::Ended(reaped) => Ok(Some(reaped)),
        Reap::Running => Ok(None),
        Reap::NoChild => Err(SandboxError::new(Step::Wait, libc::ECHILD)),
    }
}

fn wait4(pid: i32, options: i32) -> Result<Reap, SandboxError> {
    loop {
        let mut status = 0;
        // SAFETY: a zeroed rusage is a valid value, and both pointers are to locals.
        let (result, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (
                libc::wait4(pid, &raw mut status, options, &raw mut usage),
                usage,
            )
        };
        return match result {
            0 => Ok(Reap::Running),
            -1 => match last_errno() {
                libc::EINTR => continue,
                libc::ECHILD => Ok(Reap::NoChild),
                errno => Err(SandboxError::new(Step::Wait, errno)),
            },
            pid => Ok(Reap::Ended(Reaped {
                pid,
                status: decode(status),
                usage: used(&usage),
            })),
        };
    }
}

fn decode(status: i32) -> ExitStatus {
    if libc::WIFEXITED(status) {
        ExitStatus::Code(libc::WEXITSTATUS(status))
    } else {
        ExitStatus::Signal {
            number: libc::WTERMSIG(status),
            core_dumped: libc::WCOREDUMP(status),
        }
    }
}

fn used(usage: &libc::rusage) -> Usage {
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Usage {
        user_microseconds: micros(usage.ru_utime),
        system_microseconds: micros(usage.ru_stime),
        max_resident_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    }
}

/// Sends a signal through a handle, so that it can never meet a process that got the id later.
pub fn signal_pidfd(pidfd: BorrowedFd<'_>, signal: i32) -> Result<(), SandboxError> {
    // SAFETY: numbers, and a null pointer that stands for "as kill(2) would".
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(SandboxError::last(Step::Signal))
    }
}

/// Sends a signal to one process id. Only right for children that were not waited for yet.
pub fn signal_pid(pid: i32, signal: i32) -> Result<(), SandboxError> {
    if pid <= 0 {
        return Err(SandboxError::new(Step::Signal, libc::EINVAL));
    }
    // SAFETY: numbers only.
    if unsafe { libc::kill(pid, signal) } == 0 {
        Ok(())
    } else {
        Err(SandboxError::last(Step::Signal))
    }
}

/// Waits until a child ends, somebody sends SIGCHLD otherwise, or the time is over.
///
/// SIGCHLD has to be blocked in the calling thread, see [`crate::ChildSignals`].
pub(crate) fn pause_for_child(at_most: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(0),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // SAFETY: a local, initialised set and time; the information is not asked for.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const time);
    }
}
