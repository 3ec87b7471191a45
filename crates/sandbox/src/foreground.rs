//! Who has a terminal, and whether it waits to be typed at: facts of the kernel, from its master.
//!
//! Nothing that a program prints has any say here. What is asked is which process group is in the
//! foreground, in which system call its processes sleep, and whether what was typed has been read.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::OpenptFlags;
use rustix::termios::LocalModes;

use crate::error::{SandboxError, Step, at_step};

/// Most processes of a foreground group that are looked at.
const MOST_PROCESSES: usize = 128;
/// Most threads of one process that are looked at.
const MOST_THREADS: usize = 32;
/// The device number of `/dev/tty`, whoever opens it.
const CONTROLLING_TERMINAL: u64 = 5 << 8;

/// Looks at one terminal from outside.
///
/// The other end is opened for each look only: as long as somebody holds it, the master does not
/// tell that everybody else has gone.
#[derive(Debug)]
pub struct ForegroundWatch {
    master: OwnedFd,
    device: u64,
}

/// What was seen of a terminal at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForegroundLook {
    /// The first process of the terminal's session, as the caller counts.
    pub leader: Option<i32>,
    /// The process group in the foreground.
    pub group: Option<i32>,
    /// Bytes that were typed and that nobody has read; whole lines where lines are read.
    pub unread: u64,
    /// Whether the terminal gathers lines.
    pub lines: bool,
    /// Whether what is typed is shown.
    pub echo: bool,
    /// What the foreground sleeps in.
    pub sleep: ForegroundSleep,
    /// Name of the program in the foreground.
    pub name: Option<String>,
    /// Which file the first process of the session executes, as device and inode.
    pub program: Option<(u64, u64)>,
}

impl ForegroundLook {
    /// Tells whether the foreground is the session's first process itself, a shell for instance.
    pub const fn is_leader(&self) -> bool {
        matches!((self.leader, self.group), (Some(leader), Some(group)) if leader == group)
    }
}

/// What the processes in the foreground sleep in, as far as the terminal is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForegroundSleep {
    /// One reads the terminal, this many bytes at most.
    Read(u64),
    /// One waits for events without a time limit.
    Poll,
    /// One waits for events for a while.
    PollFor,
    /// None waits for the terminal.
    Elsewhere,
    /// The kernel does not let us see it; whether all of them sleep.
    Hidden {
        /// Whether none of them runs.
        asleep: bool,
    },
}

impl ForegroundWatch {
    /// Begins to watch the terminal of a master.
    ///
    /// # Errors
    ///
    /// When the other end cannot be opened.
    pub fn new(master: OwnedFd) -> Result<Self, SandboxError> {
        let step = at_step(Step::Terminal);
        let device = rustix::fs::fstat(&peer(&master).map_err(&step)?)
            .map_err(&step)?
            .st_rdev;
        Ok(Self { master, device })
    }

    /// Lends the master.
    pub fn master(&self) -> &OwnedFd {
        &self.master
    }

    /// Tells whether there is output that nobody has taken. Everything that was written before is
    /// seen: asking makes the kernel pass on what is under way.
    pub fn has_output(&self) -> bool {
        is_readable(&self.master)
    }

    /// Looks at the terminal now. What was typed before has arrived by then.
    pub fn look(&self) -> ForegroundLook {
        let slave = peer(&self.master);
        let unread = slave.as_ref().map_or(0, |slave| {
            // Asking makes the kernel pass on what is under way.
            is_readable(slave);
            rustix::io::ioctl_fionread(slave).unwrap_or_default()
        });
        let pid = |found: rustix::io::Result<rustix::process::Pid>| {
            found.ok().map(|pid| pid.as_raw_nonzero().get())
        };
        let leader = pid(rustix::termios::tcgetsid(&self.master));
        let group = pid(rustix::termios::tcgetpgrp(&self.master));
        let sleep = match (leader, group) {
            (Some(leader), Some(group)) if leader == group => self.sleep_of(&[leader]),
            (Some(leader), Some(group)) => self.sleep_of(&members(leader, group)),
            _ => ForegroundSleep::Elsewhere,
        };
        // After that: a program sets them before it waits, and what was seen earlier were another's.
        let modes = slave
            .and_then(|slave| rustix::termios::tcgetattr(&slave).map(|now| now.local_modes))
            .unwrap_or(LocalModes::ICANON | LocalModes::ECHO);
        let name = group.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        let program = leader
            .and_then(|pid| fs::metadata(format!("/proc/{pid}/exe")).ok())
            .map(|file| (file.dev(), file.ino()));
        ForegroundLook {
            leader,
            group,
            unread,
            lines: modes.contains(LocalModes::ICANON),
            echo: modes.contains(LocalModes::ECHO),
            sleep,
            name: name.map(|name| name.trim_end().to_owned()),
            program,
        }
    }

    /// Finds the strongest claim to the terminal among processes.
    fn sleep_of(&self, processes: &[i32]) -> ForegroundSleep {
        let mut found = ForegroundSleep::Elsewhere;
        let (mut hidden, mut awake) = (false, false);
        for pid in processes {
            for thread in threads(*pid) {
                let base = format!("/proc/{pid}/task/{thread}");
                awake |= is_awake(&base);
                match fs::read_to_string(format!("{base}/syscall")) {
                    Ok(text) => match self.claim(*pid, &text) {
                        read @ Some(ForegroundSleep::Read(_)) => return read.unwrap_or(found),
                        Some(ForegroundSleep::Poll) => found = ForegroundSleep::Poll,
                        Some(other) if found == ForegroundSleep::Elsewhere => found = other,
                        _ => {}
                    },
                    Err(error) => {
                        hidden |= error.kind() == std::io::ErrorKind::PermissionDenied
                            || error.raw_os_error() == Some(libc::EPERM);
                    }
                }
            }
        }
        if hidden && found == ForegroundSleep::Elsewhere {
            return ForegroundSleep::Hidden { asleep: !awake };
        }
        found
    }

    /// Reads one line of `/proc/PID/syscall`: the number, six arguments, stack and instruction.
    fn claim(&self, pid: i32, text: &str) -> Option<ForegroundSleep> {
        let mut words = text.split_ascii_whitespace();
        let number: i64 = words.next()?.parse().ok()?;
        let arguments: Vec<u64> = words
            .take(6)
            .filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())
            .collect();
        let argument = |index: usize| arguments.get(index).copied();
        let poll = |endless: bool| {
            Some(if endless {
                ForegroundSleep::Poll
            } else {
                ForegroundSleep::PollFor
            })
        };
        match kind_of(number)? {
            Kind::Read => self
                .is_terminal(pid, argument(0)?)
                .then(|| ForegroundSleep::Read(argument(2).unwrap_or_default())),
            Kind::WaitMilliseconds(index) => poll(argument(index)? & 0xffff_ffff == 0xffff_ffff),
            Kind::WaitPointer(index) => poll(argument(index)? == 0),
        }
    }

    fn is_terminal(&self, pid: i32, descriptor: u64) -> bool {
        fs::metadata(format!("/proc/{pid}/fd/{descriptor}"))
            .is_ok_and(|file| file.rdev() == self.device || file.rdev() == CONTROLLING_TERMINAL)
    }
}

/// How a system call can wait for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    /// For events; this argument is a time limit in milliseconds.
    WaitMilliseconds(usize),
    /// For events; this argument points to a time limit.
    WaitPointer(usize),
}

fn kind_of(number: i64) -> Option<Kind> {
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_poll => return Some(Kind::WaitMilliseconds(2)),
        libc::SYS_select => return Some(Kind::WaitPointer(4)),
        libc::SYS_epoll_wait => return Some(Kind::WaitMilliseconds(3)),
        _ => {}
    }
    match number {
        libc::SYS_read | libc::SYS_readv => Some(Kind::Read),
        libc::SYS_pselect6 => Some(Kind::WaitPointer(4)),
        libc::SYS_ppoll => Some(Kind::WaitPointer(2)),
        libc::SYS_epoll_pwait => Some(Kind::WaitMilliseconds(3)),
        libc::SYS_epoll_pwait2 => Some(Kind::WaitPointer(3)),
        _ => None,
    }
}

/// Opens the other end of a terminal.
fn peer(master: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    rustix::pty::ioctl_tiocgptpeer(master, flags)
}

fn is_readable(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
        && fds[0].revents().contains(PollFlags::IN)
}

/// Lists the processes of a group: of what is below a process, and the group's own first.
fn members(leader: i32, group: i32) -> Vec<i32> {
    let mut waiting = vec![leader];
    let mut seen = BTreeSet::from([leader]);
    let mut found = vec![group];
    while let Some(pid) = waiting.pop() {
        if pid != group && group_of(pid) == Some(group) {
            found.push(pid);
        }
        for thread in threads(pid) {
            let Ok(children) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children"))
            else {
                continue;
            };
            for child in children.split_ascii_whitespace() {
                if let Ok(child) = child.parse()
                    && seen.len() < MOST_PROCESSES
                    && seen.insert(child)
                {
                    waiting.push(child);
                }
            }
        }
    }
    found
}

/// Sends a signal to a process group in the foreground of a terminal. A group whose first process
/// is still there, but in another session than the terminal's, is another one of the same number.
///
/// # Errors
///
/// The kernel's: that there is no such group, for instance.
pub fn signal_group(group: i32, leader: Option<i32>, number: i32) -> Result<(), SandboxError> {
    let step = at_step(Step::Terminal);
    let session = fs::read_to_string(format!("/proc/{group}/stat"))
        .ok()
        .and_then(|stat| after_name(&stat)?.nth(3)?.parse::<i32>().ok());
    if group <= 1 || (session.is_some() && session != leader) {
        return Err(SandboxError::new(Step::Terminal, libc::ESRCH));
    }
    // SAFETY: numbers only.
    let sent = unsafe { libc::kill(-group, number) };
    if sent == 0 {
        return Ok(());
    }
    Err(step(rustix::io::Errno::from_raw_os_error(
        crate::error::last_errno(),
    )))
}

fn threads(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .take(MOST_THREADS)
        .collect()
}

/// Gives what follows the name in a line of `/proc/PID/stat`: state, parent, group, session, …
fn after_name(stat: &str) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

fn group_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    after_name(&stat)?.nth(2)?.parse().ok()
}

fn is_awake(base: &str) -> bool {
    fs::read_to_string(format!("{base}/stat"))
        .ok()
        .is_some_and(|stat| after_name(&stat).and_then(|mut words| words.next()) == Some("R"))
}
