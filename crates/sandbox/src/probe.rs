//! Asking the host what really works, by doing what a real run does.

use std::ffi::{CString, OsStr};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use crate::error::{SandboxError, Step};
use crate::spawn::{Identity, Program, Spawn, spawn};
use crate::wait::{ExitStatus, wait_pid};

/// How long a probe may take; it is a matter of milliseconds.
const PROBE: Duration = Duration::from_secs(5);

/// Says why bubblewrap does not put walls up on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum BwrapProblem {
    /// It is not installed, or only inside a directory that is not to be trusted.
    #[error("bubblewrap is not installed")]
    Missing,
    /// A user namespace comes without capabilities, or is refused: AppArmor or a kernel setting.
    #[error("user namespaces of ordinary programs have no rights on this host: {stderr}")]
    UsernsNoCaps {
        /// What bubblewrap said.
        stderr: String,
    },
    /// This process runs under a system-call filter that refuses new namespaces, as in a container
    /// with the usual defaults.
    #[error("the container that this runs in forbids new namespaces: {stderr}")]
    NamespacesFiltered {
        /// What bubblewrap said.
        stderr: String,
    },
    /// A fresh `/proc` is refused, as in a container that covers parts of its own.
    #[error("a fresh /proc cannot be mounted: {stderr}")]
    ProcMountRefused {
        /// What bubblewrap said.
        stderr: String,
    },
    /// Root without CAP_SETFCAP may not map its own id.
    #[error("root without CAP_SETFCAP cannot make a user namespace: {stderr}")]
    RootWithoutSetfcap {
        /// What bubblewrap said.
        stderr: String,
    },
    /// The number of namespaces is used up.
    #[error("the limit of user namespaces is reached: {stderr}")]
    UsernsExhausted {
        /// What bubblewrap said.
        stderr: String,
    },
    /// It does not answer.
    #[error("bubblewrap did not end within {} s", PROBE.as_secs())]
    Hung,
    /// Something else.
    #[error("bubblewrap failed: {stderr}")]
    Failed {
        /// What bubblewrap said.
        stderr: String,
    },
}

impl BwrapProblem {
    /// Gives the stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "bwrap_missing",
            Self::UsernsNoCaps { .. } => "userns_no_caps",
            Self::NamespacesFiltered { .. } => "namespaces_filtered",
            Self::ProcMountRefused { .. } => "proc_mount_refused",
            Self::RootWithoutSetfcap { .. } => "root_without_setfcap",
            Self::UsernsExhausted { .. } => "userns_exhausted",
            Self::Hung => "bwrap_hung",
            Self::Failed { .. } => "bwrap_failed",
        }
    }

    /// Says what to do about it, where there is something.
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Missing => Some("install the package bubblewrap"),
            Self::UsernsNoCaps { .. } => Some(
                "install an AppArmor profile that lets bwrap use user namespaces, or set \
                 kernel.apparmor_restrict_unprivileged_userns=0 (or kernel.unprivileged_userns_clone=1)",
            ),
            Self::NamespacesFiltered { .. } => Some(
                "start the outer container with --security-opt seccomp=unconfined and --security-opt \
                 systempaths=unconfined (where there is AppArmor, also apparmor=unconfined)",
            ),
            Self::ProcMountRefused { .. } => Some(
                "run the outer container with --security-opt systempaths=unconfined, or as an \
                 ordinary user in it",
            ),
            Self::RootWithoutSetfcap { .. } => {
                Some("run as an ordinary user, or add CAP_SETFCAP to the container")
            }
            Self::UsernsExhausted { .. } => {
                Some("raise user.max_user_namespaces, or end what holds them")
            }
            Self::Hung => {
                Some("see what stands as bwrap on PATH: bwrap --version has to end at once")
            }
            Self::Failed { .. } => None,
        }
    }

    /// Reads what bubblewrap said to this caller.
    pub fn from_output(stderr: &str, caller: Caller) -> Self {
        let stderr = stderr.trim().to_owned();
        let says = |text: &str| stderr.contains(text);
        if says("No space left on device") || says("exceeded (ENOSPC)") {
            Self::UsernsExhausted { stderr }
        } else if says("mount proc") {
            Self::ProcMountRefused { stderr }
        } else if says("uid map") && caller.is_root && !caller.may_set_capabilities {
            Self::RootWithoutSetfcap { stderr }
        } else if says("new namespace") && caller.is_filtered {
            Self::NamespacesFiltered { stderr }
        } else if says("RTM_NEWADDR")
            || says("uid map")
            || says("ermission")
            || says("namespace")
            || says("not permitted")
        {
            Self::UsernsNoCaps { stderr }
        } else {
            Self::Failed { stderr }
        }
    }
}

/// What matters of the one who starts bubblewrap for reading what it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caller {
    /// It is started as root.
    pub is_root: bool,
    /// It has CAP_SETFCAP, without which root may not map its own id.
    pub may_set_capabilities: bool,
    /// It inherits a seccomp filter: whoever started us had one put on.
    pub is_filtered: bool,
}

impl Caller {
    /// Looks at this process; `is_root` is said by whoever knows as whom bubblewrap is started.
    pub fn of_this_process(is_root: bool) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::from_status(&status, is_root)
    }

    fn from_status(status: &str, is_root: bool) -> Self {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim())
        };
        let capabilities = value("CapEff:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        Self {
            is_root,
            may_set_capabilities: capabilities.is_some_and(|mask| mask >> CAP_SETFCAP & 1 == 1),
            is_filtered: value("Seccomp:") == Some("2"),
        }
    }
}

/// The number of the capability, see capabilities(7).
const CAP_SETFCAP: u32 = 31;

/// Finds a program in a search path, never below one of the `distrusted` directories and never by a
/// relative piece. Gives its real, absolute path.
pub fn find_program(name: &str, path: &OsStr, distrusted: &[&Path]) -> Option<PathBuf> {
    path.as_bytes()
        .split(|byte| *byte == b':')
        .map(|piece| Path::new(OsStr::from_bytes(piece)))
        .filter(|piece| piece.is_absolute())
        .filter_map(|piece| piece.join(name).canonicalize().ok())
        .find(|found| {
            !distrusted.iter().any(|top| found.starts_with(top))
                && std::fs::metadata(found)
                    .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
}

/// Asks bubblewrap for its version, such as `0.8.0`.
pub fn bwrap_version(program: &Path) -> Option<String> {
    let (status, output) = run(program, &["--version"], None).ok()?;
    let version = output.split_ascii_whitespace().nth(1)?.to_owned();
    (status == ExitStatus::Code(0)).then_some(version)
}

/// Puts bubblewrap's walls up as a real run does, around a program that does nothing.
pub fn probe_bwrap(program: &Path, identity: Option<&Identity>) -> Result<(), BwrapProblem> {
    let words = [
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
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
        "--",
        "/bin/true",
    ];
    let root = identity.map_or_else(
        || rustix::process::geteuid().is_root(),
        |identity| identity.uid == 0,
    );
    match run(program, &words, identity) {
        Ok((ExitStatus::Code(0), _)) => Ok(()),
        // The walls stood; only the program was not where we looked for it.
        Ok((_, output)) if output.contains("execvp") => Ok(()),
        Ok((_, output)) => Err(BwrapProblem::from_output(
            &output,
            Caller::of_this_process(root),
        )),
        Err(error) if error.errno == libc::ENOENT => Err(BwrapProblem::Missing),
        Err(error) if error.errno == libc::ETIMEDOUT => Err(BwrapProblem::Hung),
        Err(error) => Err(BwrapProblem::Failed {
            stderr: error.to_string(),
        }),
    }
}

/// Runs a program with no input and gives how it ended and what it wrote, at most 64 KiB.
fn run(
    program: &Path,
    words: &[&str],
    identity: Option<&Identity>,
) -> Result<(ExitStatus, String), SandboxError> {
    let failed = |error: std::io::Error| {
        SandboxError::new(Step::File, error.raw_os_error().unwrap_or(libc::EIO))
    };
    let invalid = |_| SandboxError::new(Step::Prepare, libc::EINVAL);
    let null = std::fs::File::open("/dev/null").map_err(failed)?;
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    let path = CString::new(program.as_os_str().as_bytes()).map_err(invalid)?;
    let arguments = std::iter::once("bwrap")
        .chain(words.iter().copied())
        .map(CString::new)
        .collect::<Result<Vec<_>, _>>();
    let mut spec = Spawn::new(Program::Paths(vec![path]), arguments.map_err(invalid)?);
    spec.environment = vec![c"LC_ALL=C".to_owned()];
    spec.descriptors = vec![(null.as_fd(), 0), (writer.as_fd(), 1), (writer.as_fd(), 2)];
    spec.new_session = true;
    spec.identity = identity.cloned();
    // This thread waits for it below.
    spec.parent_death_signal = Some(libc::SIGKILL);
    let child = spawn(&spec)?;
    drop(writer);
    let in_time = ends_within(&child.pidfd, PROBE);
    if !in_time {
        // It leads a group of its own, and is not yet taken away.
        if let Some(group) = rustix::process::Pid::from_raw(child.pid) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
    let ended = wait_pid(child.pid)?;
    if !in_time {
        return Err(SandboxError::new(Step::Wait, libc::ETIMEDOUT));
    }
    // It has ended, and what it said is in the pipe; whoever else holds that is not waited for.
    rustix::io::ioctl_fionbio(&reader, true).map_err(|errno| failed(errno.into()))?;
    let mut output = Vec::new();
    match reader.take(64 * 1024).read_to_end(&mut output) {
        Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(failed(error)),
        _ => {}
    }
    Ok((ended.status, String::from_utf8_lossy(&output).into_owned()))
}

/// Waits for the end of a process; gives whether it came in time.
fn ends_within(pidfd: &OwnedFd, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let time = rustix::event::Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&time)) {
            Err(rustix::io::Errno::INTR) if !left.is_zero() => {}
            Ok(0) | Err(_) => return false,
            Ok(_) => return true,
        }
    }
}

/// Tells whether a memory file can be executed here: some hosts forbid it.
pub fn probe_memory_exec() -> Result<(), SandboxError> {
    let script = crate::memory::sealed_program("cofferdam-probe", b"#!/bin/sh\n")?;
    // A script by descriptor needs its name for the interpreter, so it may not be close-on-exec.
    let mut spec = Spawn::new(
        Program::Paths(vec![c"/proc/self/fd/9".to_owned()]),
        vec![c"probe".to_owned()],
    );
    let null = std::fs::File::open("/dev/null").map_err(|error| {
        SandboxError::new(Step::File, error.raw_os_error().unwrap_or(libc::EIO))
    })?;
    spec.descriptors = vec![
        (null.as_fd(), 0),
        (null.as_fd(), 1),
        (null.as_fd(), 2),
        (script.as_fd(), 9),
    ];
    wait_pid(spawn(&spec)?.pid).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bubblewrap_says_has_a_reason() {
        let bare = Caller::default();
        let root = Caller {
            is_root: true,
            ..bare
        };
        let full_root = Caller {
            may_set_capabilities: true,
            ..root
        };
        let contained = Caller {
            is_filtered: true,
            ..bare
        };
        let reason = |text, caller| BwrapProblem::from_output(text, caller).code();
        assert_eq!(
            reason(
                "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted\n",
                bare
            ),
            "userns_no_caps"
        );
        assert_eq!(
            reason("bwrap: setting up uid map: Permission denied", bare),
            "userns_no_caps"
        );
        assert_eq!(
            reason("bwrap: setting up uid map: Operation not permitted", root),
            "root_without_setfcap"
        );
        assert_eq!(
            reason(
                "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
                bare
            ),
            "proc_mount_refused"
        );
        // Bubblewrap can say the same for another reason where root lacks nothing.
        assert_eq!(
            reason(
                "bwrap: setting up uid map: Operation not permitted",
                full_root
            ),
            "userns_no_caps"
        );
        let forbidden = "bwrap: No permissions to create new namespace, likely because the kernel \
                         does not allow non-privileged user namespaces.";
        assert_eq!(reason(forbidden, contained), "namespaces_filtered");
        assert_eq!(reason(forbidden, bare), "userns_no_caps");
        assert_eq!(
            reason(
                "bwrap: Creating new namespace failed: nesting depth or \
                 /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
                bare
            ),
            "userns_exhausted"
        );
        assert_eq!(
            reason("bwrap: Unknown option --as-pid-1", bare),
            "bwrap_failed"
        );
    }

    #[test]
    fn the_caller_is_read_from_its_status() {
        let status = "Name:\tx\nCapEff:\t00000000a80425fb\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let caller = Caller::from_status(status, true);
        assert_eq!(
            caller,
            Caller {
                is_root: true,
                may_set_capabilities: true,
                is_filtered: true
            }
        );
        let poor = "CapEff:\t00000000280425fb\nSeccomp:\t0\n";
        assert_eq!(Caller::from_status(poor, false), Caller::default());
    }
}
