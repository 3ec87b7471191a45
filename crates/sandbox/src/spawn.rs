//! Starting a process: `clone(CLONE_VM | CLONE_VFORK | CLONE_PIDFD)` and nothing else.
//!
//! The child borrows the caller's memory until it executes the program, while the calling thread is
//! suspended. Everything it needs is laid out before; between clone and exec it makes system calls
//! and touches no allocator, no lock and no thread-local data. A failing step is written into the
//! shared memory, so the caller learns which one and why, and no process is left.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::child;
use crate::error::{SandboxError, Step, last_errno};
use crate::limits::Limit;
use crate::seccomp::Program as SeccompProgram;

/// Where the child's few frames live: 64 KiB, of which some 4 are used.
const STACK_WORDS: usize = 64 * 1024 / 16;

/// Names the program to execute.
#[derive(Debug, Clone)]
pub enum Program<'a> {
    /// These paths in turn, as the new process sees them; the first that is there is executed. A
    /// relative path counts from the working directory.
    Paths(Vec<CString>),
    /// An open file, which need not have a name (a sealed memory file, say).
    File(BorrowedFd<'a>),
}

/// Names the directory in which the program starts.
#[derive(Debug, Clone)]
pub enum Directory<'a> {
    /// A path, as the new process sees it.
    Path(CString),
    /// An open directory.
    File(BorrowedFd<'a>),
}

/// Says as whom the program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// All supplementary groups.
    pub groups: Vec<u32>,
}

/// Describes a process to start.
///
/// The descriptors of the new process are exactly those in `descriptors`: everything else that the
/// caller has open is closed, whatever its flags.
#[derive(Debug, Clone)]
pub struct Spawn<'a> {
    /// What is executed.
    pub program: Program<'a>,
    /// The arguments, the program's own name first.
    pub arguments: Vec<CString>,
    /// The whole environment, each as `NAME=value`.
    pub environment: Vec<CString>,
    /// The working directory; the caller's when absent.
    pub directory: Option<Directory<'a>>,
    /// What is open in the new process, and under which number.
    pub descriptors: Vec<(BorrowedFd<'a>, RawFd)>,
    /// Another identity to take on; needs the privilege to.
    pub identity: Option<Identity>,
    /// Becomes the leader of a session of its own.
    pub new_session: bool,
    /// Takes descriptor 0 as controlling terminal; implies a session of its own.
    pub controlling_terminal: bool,
    /// Resource limits, which can only be lowered: a higher value leaves the present hard limit.
    pub limits: Vec<Limit>,
    /// The out-of-memory score adjustment, −1000 to 1000; lowering needs a privilege. A caller that
    /// is not dumpable cannot have it set this way unless it is root, see [`crate::OwnOomScore`].
    pub oom_score_adjustment: Option<i16>,
    /// Gives up every capability and the bounding set.
    pub drop_capabilities: bool,
    /// Sets `no_new_privs`; implied by Landlock and seccomp.
    pub no_new_privileges: bool,
    /// A Landlock ruleset to enter.
    pub landlock: Option<BorrowedFd<'a>>,
    /// A seccomp filter to load.
    pub seccomp: Option<&'a SeccompProgram>,
    /// The signal sent to the child when the calling **thread** ends.
    pub parent_death_signal: Option<i32>,
    /// Takes in orphaned descendants.
    pub subreaper: bool,
    /// The file creation mask.
    pub umask: Option<u32>,
    /// Leaves the actions of signals as the caller has them, who has called
    /// [`crate::default_signals`] and set none since. Saves a system call for each.
    pub keeps_signals: bool,
    /// `cgroup.procs` of a control group to join, open for writing.
    pub control_groups: Vec<BorrowedFd<'a>>,
}

impl Spawn<'_> {
    /// Describes a process with an empty environment, no descriptors and nothing else asked for.
    pub fn new(program: Program<'_>, arguments: Vec<CString>) -> Spawn<'_> {
        Spawn {
            program,
            arguments,
            environment: Vec::new(),
            directory: None,
            descriptors: Vec::new(),
            identity: None,
            new_session: false,
            controlling_terminal: false,
            limits: Vec::new(),
            oom_score_adjustment: None,
            drop_capabilities: false,
            no_new_privileges: false,
            landlock: None,
            seccomp: None,
            parent_death_signal: None,
            subreaper: false,
            umask: None,
            keeps_signals: false,
            control_groups: Vec::new(),
        }
    }
}

/// Holds a process that was started. Dropping it does not end or reap the process.
#[derive(Debug)]
pub struct Spawned {
    /// Its process id.
    pub pid: i32,
    /// A handle that stays right when the id is used again; close-on-exec.
    pub pidfd: OwnedFd,
}

/// Gives the paths at which a program of this name may be, as `execvp` would try them.
///
/// A name with a slash is a path of its own. An empty piece of `PATH` is the working directory.
/// `None` when the name is empty or holds a NUL byte.
pub fn candidates(name: &[u8], path: Option<&[u8]>) -> Option<Vec<CString>> {
    if name.is_empty() {
        return None;
    }
    if name.contains(&b'/') {
        return Some(vec![CString::new(name).ok()?]);
    }
    path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin")
        .split(|byte| *byte == b':')
        .map(|piece| {
            let mut whole = piece.to_vec();
            if !whole.is_empty() {
                whole.push(b'/');
            }
            whole.extend_from_slice(name);
            CString::new(whole).ok()
        })
        .collect()
}

/// Starts a process and returns once the program runs.
///
/// # Errors
///
/// Returns the step that failed and the kernel's error number; nothing is left running then.
pub fn spawn(spec: &Spawn<'_>) -> Result<Spawned, SandboxError> {
    let refuse = |errno| SandboxError::new(Step::Prepare, errno);
    if spec.arguments.is_empty() {
        return Err(refuse(libc::EINVAL));
    }
    let argv = pointers(&spec.arguments);
    let envp = pointers(&spec.environment);
    let (paths, program_fd) = match &spec.program {
        Program::Paths(paths) if paths.is_empty() => return Err(refuse(libc::EINVAL)),
        Program::Paths(paths) => (pointers(paths), -1),
        Program::File(file) => (vec![ptr::null()], file.as_raw_fd()),
    };
    let mut moves: Vec<child::Move> = spec
        .descriptors
        .iter()
        .map(|(source, target)| child::Move {
            from: source.as_raw_fd(),
            to: *target,
        })
        .collect();
    moves.sort_by_key(|one| one.to);
    if moves.iter().any(|one| one.to < 0) || moves.windows(2).any(|two| two[0].to == two[1].to) {
        return Err(refuse(libc::EINVAL));
    }
    let (directory_path, directory_fd) = match &spec.directory {
        None => (ptr::null(), -1),
        Some(Directory::Path(path)) => (path.as_ptr(), -1),
        Some(Directory::File(file)) => (ptr::null(), file.as_raw_fd()),
    };
    let oom_score = spec
        .oom_score_adjustment
        .map(|score| CString::new(score.to_string()))
        .transpose()
        .map_err(|_| refuse(libc::EINVAL))?;
    let groups: Vec<RawFd> = spec.control_groups.iter().map(AsRawFd::as_raw_fd).collect();
    let mut plan = child::Plan {
        paths: paths.as_ptr(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        moves: &mut moves,
        program_fd,
        directory_path,
        directory_fd,
        landlock_fd: spec.landlock.map_or(-1, |fd| fd.as_raw_fd()),
        control_groups: &groups,
        seccomp: spec.seccomp.map(SeccompProgram::as_raw),
        identity: spec.identity.as_ref(),
        limits: &spec.limits,
        oom_score: oom_score.as_deref().map(CStr::to_bytes),
        new_session: spec.new_session || spec.controlling_terminal,
        controlling_terminal: spec.controlling_terminal,
        drop_capabilities: spec.drop_capabilities,
        no_new_privileges: spec.no_new_privileges
            || spec.landlock.is_some()
            || spec.seccomp.is_some(),
        parent_death_signal: spec.parent_death_signal.unwrap_or(0),
        subreaper: spec.subreaper,
        umask: spec.umask,
        keeps_signals: spec.keeps_signals,
        failure: None,
    };
    let spawned = clone_and_run(&mut plan)?;
    match plan.failure {
        None => Ok(spawned),
        Some((step, errno)) => {
            // The child has already left by _exit; this only takes its status away.
            let _ = crate::wait::wait_pid(spawned.pid);
            Err(match (step, &spec.program, &spec.directory) {
                (Step::Execute, Program::Paths(paths), _) => {
                    SandboxError::at(step, paths[0].to_bytes(), errno)
                }
                (Step::Directory, _, Some(Directory::Path(path))) => {
                    SandboxError::at(step, path.to_bytes(), errno)
                }
                _ => SandboxError::new(step, errno),
            })
        }
    }
}

/// Gives every signal of this process its default action.
///
/// For a program of one thread that has no handlers: what it starts then needs no resetting.
pub fn default_signals() {
    // SAFETY: no handler of the caller's is lost, since it has none, see above.
    unsafe { child::reset_signals() }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings
        .iter()
        .map(|one| one.as_ptr())
        .chain([ptr::null()])
        .collect()
}

fn clone_and_run(plan: &mut child::Plan<'_>) -> Result<Spawned, SandboxError> {
    let mut stack: Vec<u128> = Vec::with_capacity(STACK_WORDS);
    let mut pidfd: c_int = -1;
    let changes_identity = plan.identity.is_some();
    // SAFETY: `stack` is 16-byte aligned memory of STACK_WORDS words that outlives the child's use
    // of it, since CLONE_VFORK suspends this thread until the child has executed or left. `plan`
    // outlives it for the same reason, and nobody else touches it meanwhile. All signals are
    // blocked in this thread, so no handler can run in the child on the shared memory. The child
    // does nothing but system calls (see `child::run`).
    let (result, errno) = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let dumpable = if changes_identity {
            libc::prctl(libc::PR_GET_DUMPABLE)
        } else {
            -1
        };
        let top = stack.as_mut_ptr().add(STACK_WORDS).cast::<c_void>();
        let result = libc::clone(
            child::run,
            top,
            libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD,
            ptr::from_mut(plan).cast::<c_void>(),
            &raw mut pidfd,
        );
        let errno = last_errno();
        if dumpable == 1 {
            // A change of identity in the child marks the shared memory as not dumpable; that was
            // meant for the child, which has memory of its own by now.
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        (result, errno)
    };
    if result < 0 {
        return Err(SandboxError::new(Step::Clone, errno));
    }
    // SAFETY: the kernel has just put this descriptor into our table, and nobody else knows it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Spawned { pid: result, pidfd })
}
