//! The one error of this crate.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Names what was being done when the kernel refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Preparing arguments (a NUL byte in one, no program, too many descriptors).
    Prepare,
    /// Making the new process.
    Clone,
    /// Becoming the leader of a session.
    Session,
    /// Moving descriptors to their numbers.
    Descriptors,
    /// Lowering a resource limit.
    Limit,
    /// Setting the out-of-memory score.
    OomScore,
    /// Joining a control group.
    ControlGroup,
    /// Taking on another identity.
    Identity,
    /// Giving capabilities up.
    Capabilities,
    /// Entering the working directory.
    Directory,
    /// Taking the controlling terminal.
    Terminal,
    /// A process attribute: no new privileges, parent-death signal, subreaper, dumpable.
    Attribute,
    /// Building or entering a Landlock domain.
    Landlock,
    /// Building or loading a seccomp filter.
    Seccomp,
    /// Executing the program.
    Execute,
    /// Waiting for a process.
    Wait,
    /// Sending a signal.
    Signal,
    /// Reading `/proc`.
    Processes,
    /// Sending or receiving on a socket.
    Message,
    /// Making or sealing anonymous memory.
    Memory,
    /// Opening or inspecting a file.
    File,
    /// Mounting or unmounting.
    Mount,
    /// Listening on an address.
    Listen,
}

impl Step {
    /// Gives the stable word for the step.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Clone => "clone",
            Self::Session => "session",
            Self::Descriptors => "descriptors",
            Self::Limit => "limit",
            Self::OomScore => "oom_score",
            Self::ControlGroup => "control_group",
            Self::Identity => "identity",
            Self::Capabilities => "capabilities",
            Self::Directory => "directory",
            Self::Terminal => "terminal",
            Self::Attribute => "attribute",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Execute => "execute",
            Self::Wait => "wait",
            Self::Signal => "signal",
            Self::Processes => "processes",
            Self::Message => "message",
            Self::Memory => "memory",
            Self::File => "file",
            Self::Mount => "mount",
            Self::Listen => "listen",
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Tells which step failed, on what, and the kernel's reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step} failed{}: {}", on(.path.as_ref()), errno_text(*.errno))]
pub struct SandboxError {
    /// What was being done.
    pub step: Step,
    /// The path it was done to, where there is one.
    pub path: Option<PathBuf>,
    /// The kernel's error number.
    pub errno: i32,
}

fn on(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| format!(" on {}", path.display()))
}

fn errno_text(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

impl SandboxError {
    /// Makes an error from a step and an error number.
    pub const fn new(step: Step, errno: i32) -> Self {
        Self {
            step,
            path: None,
            errno,
        }
    }

    /// Makes an error that names a path.
    pub fn at(step: Step, path: &[u8], errno: i32) -> Self {
        Self {
            step,
            path: Some(PathBuf::from(OsStr::from_bytes(path))),
            errno,
        }
    }

    /// Makes an error from the calling thread's last error number.
    pub(crate) fn last(step: Step) -> Self {
        Self::new(step, last_errno())
    }

    /// Gives the stable code: `not_found`, `not_executable`, `cwd_missing` or `spawn_failed` for
    /// what concerns the start of a program, else the step's own word.
    pub fn code(&self) -> &'static str {
        match (self.step, self.errno) {
            (Step::Execute, libc::ENOENT | libc::ENOTDIR) => "not_found",
            (Step::Execute, libc::EACCES | libc::ENOEXEC | libc::EISDIR | libc::EPERM) => {
                "not_executable"
            }
            (Step::Directory, libc::ENOENT | libc::ENOTDIR) => "cwd_missing",
            (Step::Execute | Step::Directory | Step::Clone, _) => "spawn_failed",
            (step, _) => step.as_str(),
        }
    }
}

pub(crate) fn last_errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Turns rustix's error into ours, with the step that was being done.
pub(crate) fn at_step(step: Step) -> impl Fn(rustix::io::Errno) -> SandboxError {
    move |error| SandboxError::new(step, error.raw_os_error())
}
