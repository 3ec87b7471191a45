//! Landlock: rules on paths, TCP and scopes that a process puts on itself.
//!
//! Rules bind to inodes, so a ruleset is built where the paths mean what they shall mean: inside the
//! walls. It is a descriptor, built once and entered by each child.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::{SandboxError, Step, at_step};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const MAKE_SYM: u64 = 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

/// What a rule on something that is no directory may carry.
const FILE_RIGHTS: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
/// Everything that is governed. Device nodes are governed and never granted.
const ALL: u64 = (1 << 16) - 1;
const WRITE: u64 = WRITE_FILE
    | TRUNCATE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER;
const _: () = assert!(WRITE & (MAKE_CHAR | MAKE_BLOCK) == 0);

const BIND_TCP: u64 = 1;
const CONNECT_TCP: u64 = 2;
const SCOPE_ABSTRACT_UNIX: u64 = 1;
const SCOPE_SIGNAL: u64 = 2;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// The interface version from which every kind of rule in a [`LandlockPlan`] is enforced.
pub const LANDLOCK_ABI_WANTED: u32 = 6;

/// Says what may be done at a path and, where it is a directory, below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Listing directories, nothing of their files.
    List,
    /// Reading files and listing directories.
    Read,
    /// Reading and executing.
    ReadExecute,
    /// Everything: reading, executing, writing, making, removing, renaming; no device nodes.
    Write,
    /// Using an existing device: reading, writing and asking it (`ioctl`).
    Device,
}

impl Access {
    fn rights(self, directory: bool) -> u64 {
        let rights = match self {
            Self::List => READ_DIR,
            Self::Read => READ_FILE | READ_DIR,
            Self::ReadExecute => READ_FILE | READ_DIR | EXECUTE,
            Self::Write => READ_FILE | READ_DIR | EXECUTE | WRITE,
            Self::Device => READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV,
        };
        if directory {
            rights
        } else {
            rights & FILE_RIGHTS
        }
    }
}

/// Allows an access at one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathRule {
    /// The path, bytes as the kernel knows them.
    pub path: Vec<u8>,
    /// What may be done there.
    pub access: Access,
}

/// Describes a Landlock domain; what is not allowed in a governed area is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LandlockPlan {
    /// The allowed paths; `None` leaves files ungoverned.
    pub files: Option<Vec<PathRule>>,
    /// Refuses binding and connecting TCP sockets.
    pub deny_tcp: bool,
    /// Refuses signals to processes outside of the domain.
    pub scope_signals: bool,
    /// Refuses abstract Unix sockets made outside of the domain.
    pub scope_abstract_sockets: bool,
}

impl LandlockPlan {
    /// Gives the lowest interface version that enforces all of this plan.
    pub const fn needed_abi(&self) -> u32 {
        if self.scope_signals || self.scope_abstract_sockets {
            6
        } else if self.deny_tcp {
            4
        } else if self.files.is_some() {
            3
        } else {
            1
        }
    }

    /// Tells whether the plan governs nothing.
    pub const fn is_empty(&self) -> bool {
        self.files.is_none()
            && !self.deny_tcp
            && !self.scope_signals
            && !self.scope_abstract_sockets
    }
}

/// Holds a built ruleset.
#[derive(Debug)]
pub struct Ruleset {
    /// The ruleset, to be entered by a child; close-on-exec.
    pub fd: OwnedFd,
    /// Paths of the plan that were not there or not reachable, and so are not allowed.
    pub skipped: Vec<Vec<u8>>,
}

#[repr(C)]
struct RulesetAttribute {
    files: u64,
    net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// Asks the kernel for its Landlock interface version; 0 when it is absent or switched off.
pub fn landlock_abi() -> u32 {
    // SAFETY: with this flag the kernel wants no attribute and a size of 0.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttribute>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

/// Builds the ruleset of a plan.
///
/// # Errors
///
/// `ENOSYS` when the kernel is too old for any part of the plan: nothing is left out silently.
pub fn build_ruleset(plan: &LandlockPlan) -> Result<Ruleset, SandboxError> {
    let abi = landlock_abi();
    if abi < plan.needed_abi() {
        return Err(SandboxError::new(Step::Landlock, libc::ENOSYS));
    }
    let governed = match abi {
        0..=4 => ALL & !IOCTL_DEV,
        _ => ALL,
    };
    let attribute = RulesetAttribute {
        files: if plan.files.is_some() { governed } else { 0 },
        net: if plan.deny_tcp {
            BIND_TCP | CONNECT_TCP
        } else {
            0
        },
        scoped: if plan.scope_signals { SCOPE_SIGNAL } else { 0 }
            | if plan.scope_abstract_sockets {
                SCOPE_ABSTRACT_UNIX
            } else {
                0
            },
    };
    let size = match abi {
        0..=3 => 8usize,
        4..=5 => 16,
        _ => size_of::<RulesetAttribute>(),
    };
    // SAFETY: the attribute is at least `size` bytes and lives through the call.
    let fd = unsafe {
        let fd = libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attribute,
            size,
            0u32,
        );
        if fd < 0 {
            return Err(SandboxError::last(Step::Landlock));
        }
        // A descriptor always fits.
        #[expect(clippy::cast_possible_truncation, reason = "descriptors are C ints")]
        OwnedFd::from_raw_fd(fd as i32)
    };
    let mut skipped = Vec::new();
    for rule in plan.files.iter().flatten() {
        if !add_path(&fd, rule, governed)? {
            skipped.push(rule.path.clone());
        }
    }
    Ok(Ruleset { fd, skipped })
}

fn add_path(ruleset: &OwnedFd, rule: &PathRule, governed: u64) -> Result<bool, SandboxError> {
    let at = |errno| SandboxError::at(Step::Landlock, &rule.path, errno);
    let path = CString::new(rule.path.clone()).map_err(|_| at(libc::EINVAL))?;
    let opened = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let file = match opened {
        Ok(file) => file,
        Err(
            rustix::io::Errno::NOENT
            | rustix::io::Errno::NOTDIR
            | rustix::io::Errno::ACCESS
            | rustix::io::Errno::LOOP,
        ) => return Ok(false),
        Err(errno) => return Err(at(errno.raw_os_error())),
    };
    let stat = rustix::fs::fstat(&file).map_err(at_step(Step::Landlock))?;
    let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let allowed = rule.access.rights(directory) & governed;
    if allowed == 0 {
        return Ok(true);
    }
    let beneath = PathBeneath {
        allowed,
        parent: file.as_raw_fd(),
    };
    // SAFETY: the attribute has the kernel's packed layout and lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const beneath,
            0u32,
        )
    };
    if result == 0 {
        Ok(true)
    } else {
        Err(at(crate::error::last_errno()))
    }
}

/// Enters a ruleset in the calling thread, for good. Sets `no_new_privs`.
pub fn restrict_self(ruleset: &Ruleset) -> Result<(), SandboxError> {
    crate::capabilities::set_no_new_privileges()?;
    // SAFETY: numbers only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_restrict_self,
            ruleset.fd.as_raw_fd(),
            0u32,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(SandboxError::last(Step::Landlock))
    }
}
