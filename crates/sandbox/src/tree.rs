//! Descendants of a subreaper: finding, signalling and ending them.
//!
//! A subreaper gets every orphan of its tree, so ending its children again and again until there is
//! none ends the whole tree, whatever sessions, groups or double forks it made.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{SandboxError, Step};
use crate::wait::{Reap, Usage, pause_for_child, reap_any, signal_pid};

/// Names a process that was still there when its leader had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Its process id, in the process namespace of whoever swept.
    pub pid: i32,
    /// Its short name, at most 15 bytes.
    pub name: Vec<u8>,
}

/// Tells how a sweep went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Swept {
    /// There was nothing to end.
    NothingLeft,
    /// Everything that was left is ended.
    Ended,
    /// Time ran out with processes still there: whatever encloses them has to go.
    Deadline,
}

/// Tells what a sweep found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// How it went.
    pub swept: Swept,
    /// What was ended, each process once.
    pub leftovers: Vec<Leftover>,
    /// What the ended processes used.
    pub usage: Usage,
}

/// Lists the children of the calling process, which has one thread.
pub fn children() -> Result<Vec<i32>, SandboxError> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    match children_of(own) {
        Some(children) => Ok(children),
        None => children_by_parent(own),
    }
}

/// Reads what the kernel lists for every thread of a process; `None` where it does not list.
fn children_of(pid: i32) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let mut path = thread.ok()?.path();
        path.push("children");
        let text = std::fs::read_to_string(path).ok()?;
        found.extend(
            text.split_ascii_whitespace()
                .filter_map(|word| word.parse::<i32>().ok()),
        );
    }
    Some(found)
}

/// Finds children by looking at every process, for kernels that do not list them.
fn children_by_parent(parent: i32) -> Result<Vec<i32>, SandboxError> {
    let entries = std::fs::read_dir("/proc").map_err(|error| {
        SandboxError::at(
            Step::Processes,
            b"/proc",
            error.raw_os_error().unwrap_or(libc::EIO),
        )
    })?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| stat_of(*pid).is_some_and(|(_, above)| above == parent))
        .collect())
}

/// The state letter and the parent of a process.
fn stat_of(pid: i32) -> Option<(u8, i32)> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, a closing bracket too: what counts comes after the last one.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut words = stat
        .get(end + 1..)?
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let state = *words.next()?.first()?;
    let parent = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    Some((state, parent))
}

fn name_of(pid: i32) -> Vec<u8> {
    let mut name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name
}

fn has_ended(pid: i32) -> bool {
    stat_of(pid).is_none_or(|(state, _)| matches!(state, b'Z' | b'X'))
}

/// Lists a process's descendants, nearest first. A picture of one moment.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = vec![];
    let mut next = children_of(pid).unwrap_or_else(|| children_by_parent(pid).unwrap_or_default());
    while let Some(one) = next.pop() {
        if !found.contains(&one) {
            found.push(one);
            next.extend(
                children_of(one).unwrap_or_else(|| children_by_parent(one).unwrap_or_default()),
            );
        }
    }
    found
}

/// Names everything that lives below the calling process. A picture of one moment.
pub fn living() -> Vec<Leftover> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    descendants(own)
        .into_iter()
        .filter(|pid| !has_ended(*pid))
        .map(|pid| Leftover {
            pid,
            name: name_of(pid),
        })
        .collect()
}

/// Sends a signal to a child and everything below it; gives the number of processes that got it.
pub fn signal_tree(leader: i32, signal: i32) -> usize {
    // Below first: a leader that ends would hand its children to us, not lose them, but a leader
    // that starts more while it is still running would.
    let below = descendants(leader);
    std::iter::once(leader)
        .chain(below)
        .filter(|pid| signal_pid(*pid, signal).is_ok())
        .count()
}

/// Waits until there is no child any more, at most this long. True when there is none.
///
/// Used where processes that are about to end by themselves shall be let. SIGCHLD has to be blocked.
pub fn wait_for_no_child(at_most: Duration, usage: &mut Usage) -> Result<bool, SandboxError> {
    let deadline = Instant::now() + at_most;
    loop {
        match reap_any()? {
            Reap::Ended(reaped) => usage.add(reaped.usage),
            Reap::NoChild => return Ok(true),
            Reap::Running => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(false);
                }
                pause_for_child(left);
            }
        }
    }
}

/// Ends all children of the calling process, and what falls to it, but those to be spared.
///
/// The caller has one thread, is a subreaper and has SIGCHLD blocked. A process that is already
/// ended and only waits to be taken away is no leftover. Ended children are handed to `on_reaped`.
pub fn sweep(
    deadline: Duration,
    spared: &BTreeSet<i32>,
    mut on_reaped: impl FnMut(crate::wait::Reaped),
) -> Result<Sweep, SandboxError> {
    let deadline = Instant::now() + deadline;
    let mut seen = BTreeSet::new();
    let mut sweep = Sweep {
        swept: Swept::NothingLeft,
        leftovers: Vec::new(),
        usage: Usage::default(),
    };
    loop {
        let none = loop {
            match reap_any()? {
                Reap::Ended(reaped) => {
                    sweep.usage.add(reaped.usage);
                    on_reaped(reaped);
                }
                Reap::Running => break false,
                Reap::NoChild => break true,
            }
        };
        if none {
            return Ok(sweep);
        }
        let mut alive = false;
        for pid in children()?.into_iter().filter(|pid| !spared.contains(pid)) {
            alive = true;
            if seen.insert(pid) && !has_ended(pid) {
                sweep.leftovers.push(Leftover {
                    pid,
                    name: name_of(pid),
                });
                sweep.swept = Swept::Ended;
            }
            // A child that has ended meanwhile keeps its id until it is taken away, so this can
            // meet nobody else.
            let _ = signal_pid(pid, libc::SIGKILL);
        }
        if !alive {
            return Ok(sweep);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            sweep.swept = Swept::Deadline;
            return Ok(sweep);
        }
        pause_for_child(left.min(Duration::from_millis(1)));
    }
}

/// Blocks SIGCHLD in this thread and gives it out as a descriptor that can be polled.
#[derive(Debug)]
pub struct ChildSignals {
    fd: OwnedFd,
}

impl ChildSignals {
    /// Blocks the signal and opens the descriptor.
    pub fn new() -> Result<Self, SandboxError> {
        // SAFETY: a local, initialised set; a fresh descriptor that nobody else knows.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(SandboxError::last(Step::Signal));
            }
            Ok(Self {
                fd: OwnedFd::from_raw_fd(fd),
            })
        }
    }

    /// Takes away what is waiting in the descriptor.
    pub fn drain(&self) {
        let mut buffer = [0u8; size_of::<libc::signalfd_siginfo>()];
        while rustix::io::read(&self.fd, &mut buffer[..]).is_ok_and(|read| read > 0) {}
    }
}

impl AsFd for ChildSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs `body` in a copy of the calling process and gives the copy's id.
///
/// The copy holds no descriptor but 0 to 2 and `kept`, and leaves with the code that `body` gives;
/// nothing of the caller's is dropped in it. `body` may only use descriptors that are kept.
///
/// # Errors
///
/// `EBUSY` when the caller has more than one thread: the copy could meet locks that others held.
pub fn fork_and_run(
    kept: &[BorrowedFd<'_>],
    body: impl FnOnce() -> i32,
) -> Result<i32, SandboxError> {
    let threads = std::fs::metadata("/proc/self/task")
        .map(|folder| std::os::unix::fs::MetadataExt::nlink(&folder).saturating_sub(2))
        .map_err(|error| {
            SandboxError::new(Step::Clone, error.raw_os_error().unwrap_or(libc::EIO))
        })?;
    if threads != 1 {
        return Err(SandboxError::new(Step::Clone, libc::EBUSY));
    }
    // SAFETY: this is the only thread, so the copy finds no lock held by another.
    match unsafe { libc::fork() } {
        -1 => Err(SandboxError::last(Step::Clone)),
        0 => {
            close_all_but(kept);
            let code = body();
            // SAFETY: always allowed; runs no destructor, so that no owner of a descriptor that was
            // closed above closes it again.
            unsafe { libc::_exit(code) }
        }
        pid => Ok(pid),
    }
}

/// For a process that has no other owners of descriptors yet, or never returns to them.
pub(crate) fn close_all_but(kept: &[BorrowedFd<'_>]) {
    let mut numbers: Vec<u32> = kept
        .iter()
        .map(|fd| fd.as_raw_fd().unsigned_abs())
        .collect();
    numbers.sort_unstable();
    let mut next = 3;
    for number in numbers {
        if number > next {
            close_range(next, number - 1);
        }
        next = next.max(number + 1);
    }
    close_range(next, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: called where no owner of what is closed is ever met again, see `close_all_but`.
    unsafe {
        libc::syscall(libc::SYS_close_range, first, last, 0);
    }
}
