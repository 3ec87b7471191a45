//! The seccomp filter: built as data, shown as data, compiled to the kernel's small machine.
//!
//! The filter refuses what no command of an agent needs; everything else passes. It looks at the
//! architecture (another one is ended) and at the x32 bit (refused), so no number has a second
//! meaning. Flags and commands are compared in their low 32 bits, as the kernel reads them.

use serde::{Deserialize, Serialize};

use crate::error::{SandboxError, Step};
use crate::syscalls::number;

/// Says what a level of isolation leaves to its commands; everything off is the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeccompOptions {
    /// Internet sockets (never raw ones). Off where no network namespace stands around it.
    pub internet_sockets: bool,
    /// Unix sockets with names.
    pub unix_sockets: UnixSockets,
    /// `ptrace` and its relatives; the kernel still checks who may trace whom.
    pub ptrace: bool,
    /// New namespaces and mounts, for a sandbox inside the sandbox.
    pub nested_namespaces: bool,
}

impl Default for SeccompOptions {
    /// What goes with network and mount namespaces of its own.
    fn default() -> Self {
        Self {
            internet_sockets: true,
            unix_sockets: UnixSockets::Named,
            ptrace: false,
            nested_namespaces: false,
        }
    }
}

/// Says which Unix sockets can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnixSockets {
    /// All.
    Named,
    /// Only pairs: where connecting to a socket outside cannot be told from one inside.
    ///
    /// A datagram pair can still send to a named datagram socket by `sendmsg`, whose address no filter
    /// can read; programs need such pairs. `connect`, `bind` and `sendto` with an address are refused
    /// as well where Internet sockets are off.
    PairsOnly,
}

/// Says what happens to a call that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It returns "operation not permitted".
    NotPermitted,
    /// It returns "function not implemented", so that callers take their older way.
    NotImplemented,
    /// It returns "address family not supported".
    NoSuchFamily,
}

impl Action {
    pub(crate) fn value(self) -> u32 {
        let errno = match self {
            Self::NotPermitted => libc::EPERM,
            Self::NotImplemented => libc::ENOSYS,
            Self::NoSuchFamily => libc::EAFNOSUPPORT,
        };
        libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()
    }
}

/// Tests one argument of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// The low 32 bits are this.
    Equals(u32),
    /// The low 32 bits under the mask are this.
    MaskedEquals {
        /// The bits that count.
        mask: u32,
        /// What they have to be.
        value: u32,
    },
    /// Any of these bits is set.
    AnyOf(u32),
    /// The low 32 bits are none of these.
    NotOneOf(Vec<u32>),
    /// The low 32 bits are not zero.
    NotZero,
    /// The whole 64 bits are not zero.
    PointerNotNull,
}

/// Holds one condition on a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The argument, 0 to 5.
    pub argument: u8,
    /// What it has to be.
    pub test: Test,
}

/// Refuses one system call when all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The call's name.
    pub syscall: String,
    /// All have to hold; none means always.
    pub when: Vec<Condition>,
    /// What happens then.
    pub action: Action,
}

/// Holds a whole filter: the rules in order, everything else allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The rules; the first that matches decides.
    pub rules: Vec<Rule>,
}

/// Never needed, whatever the policy.
const REFUSED: &[&str] = &[
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "open_by_handle_at",
    "pidfd_getfd",
    "keyctl",
    "add_key",
    "request_key",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "fanotify_init",
    "fanotify_mark",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "swapon",
    "swapoff",
    "iopl",
    "ioperm",
    "syslog",
    "quotactl",
    "quotactl_fd",
    "acct",
    "settimeofday",
    "clock_settime",
    "sethostname",
    "setdomainname",
    "vhangup",
    "lookup_dcookie",
    "nfsservctl",
    "modify_ldt",
];

/// The mount table and namespaces.
const NAMESPACES: &[&str] = &[
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "mount_setattr",
    "setns",
];

const TRACING: &[&str] = &["ptrace", "process_vm_readv", "process_vm_writev", "kcmp"];

const CLONE_NEW: u32 = 0x7e02_0000;
const CLONE_NEWTIME: u32 = 0x80;
const SOCKET_TYPE: u32 = 0xf;

impl Filter {
    /// Builds the filter that goes with these options.
    pub fn new(options: SeccompOptions) -> Self {
        let mut filter = Self { rules: Vec::new() };
        for name in REFUSED {
            filter.refuse(name, Action::NotPermitted, &[]);
        }
        if !options.ptrace {
            for name in TRACING {
                filter.refuse(name, Action::NotPermitted, &[]);
            }
        }
        if !options.nested_namespaces {
            for name in NAMESPACES {
                filter.refuse(name, Action::NotPermitted, &[]);
            }
            filter.refuse(
                "unshare",
                Action::NotPermitted,
                &[(0, Test::AnyOf(CLONE_NEW | CLONE_NEWTIME))],
            );
            filter.refuse(
                "clone",
                Action::NotPermitted,
                &[(0, Test::AnyOf(CLONE_NEW))],
            );
            // Its flags lie in memory, where no filter can read them; callers fall back to clone.
            filter.refuse("clone3", Action::NotImplemented, &[]);
        }
        filter.refuse(
            "prlimit64",
            Action::NotPermitted,
            &[(0, Test::NotZero), (2, Test::PointerNotNull)],
        );
        for command in [libc::TIOCSTI, libc::TIOCLINUX] {
            let command = u32::try_from(command).unwrap_or(0);
            filter.refuse("ioctl", Action::NotPermitted, &[(1, Test::Equals(command))]);
        }
        filter.sockets(options);
        filter
    }

    fn sockets(&mut self, options: SeccompOptions) {
        let family = |number: i32| number.unsigned_abs();
        let unix = family(libc::AF_UNIX);
        let internet = [family(libc::AF_INET), family(libc::AF_INET6)];
        let netlink = family(libc::AF_NETLINK);
        let known = vec![unix, internet[0], internet[1], netlink];
        self.refuse(
            "socket",
            Action::NoSuchFamily,
            &[(0, Test::NotOneOf(known))],
        );
        self.refuse(
            "socketpair",
            Action::NoSuchFamily,
            &[(0, Test::NotOneOf(vec![unix]))],
        );
        let netlink_other = Test::NotOneOf(vec![family(libc::NETLINK_ROUTE)]);
        self.refuse(
            "socket",
            Action::NotPermitted,
            &[(0, Test::Equals(netlink)), (2, netlink_other)],
        );
        for one in internet {
            if !options.internet_sockets {
                self.refuse("socket", Action::NotPermitted, &[(0, Test::Equals(one))]);
                continue;
            }
            for kind in [libc::SOCK_RAW, 10] {
                let kind = Test::MaskedEquals {
                    mask: SOCKET_TYPE,
                    value: kind.unsigned_abs(),
                };
                self.refuse(
                    "socket",
                    Action::NotPermitted,
                    &[(0, Test::Equals(one)), (1, kind)],
                );
            }
        }
        if options.unix_sockets == UnixSockets::PairsOnly {
            self.refuse("socket", Action::NotPermitted, &[(0, Test::Equals(unix))]);
            if !options.internet_sockets {
                self.refuse("connect", Action::NotPermitted, &[]);
                self.refuse("bind", Action::NotPermitted, &[]);
                self.refuse("sendto", Action::NotPermitted, &[(4, Test::PointerNotNull)]);
            }
        }
    }

    fn refuse(&mut self, syscall: &str, action: Action, when: &[(u8, Test)]) {
        if number(syscall).is_none() {
            // This architecture does not have the call.
            return;
        }
        let when = when
            .iter()
            .map(|(argument, test)| Condition {
                argument: *argument,
                test: test.clone(),
            })
            .collect();
        self.rules.push(Rule {
            syscall: syscall.to_owned(),
            when,
            action,
        });
    }

    /// Compiles the filter for this architecture.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an unknown call, a sixth argument, or a filter that is too long.
    pub fn compile(&self) -> Result<Program, SandboxError> {
        let code = crate::bpf::compile(&self.rules)?;
        Ok(Program { code })
    }
}

/// Holds a compiled filter, ready to be loaded.
#[derive(Clone)]
pub struct Program {
    code: Vec<libc::sock_filter>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Program({} instructions)", self.code.len())
    }
}

impl Program {
    /// Counts the instructions.
    pub fn len(&self) -> usize {
        self.code.len()
    }

    /// Tells whether there is no instruction, which never happens to a compiled filter.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// Gives the instructions as bytes, in the form that `bwrap --seccomp` and others read.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.code.len() * 8);
        for one in &self.code {
            bytes.extend_from_slice(&one.code.to_ne_bytes());
            bytes.extend_from_slice(&[one.jt, one.jf]);
            bytes.extend_from_slice(&one.k.to_ne_bytes());
        }
        bytes
    }

    /// The kernel's form; valid as long as `self`.
    pub(crate) fn as_raw(&self) -> libc::sock_fprog {
        libc::sock_fprog {
            // `compile` refuses anything longer than 4096.
            len: u16::try_from(self.code.len()).unwrap_or(0),
            filter: self.code.as_ptr().cast_mut(),
        }
    }

    /// Loads the filter into the calling thread, for good. Sets `no_new_privs`.
    pub fn load_self(&self) -> Result<(), SandboxError> {
        crate::capabilities::set_no_new_privileges()?;
        let raw = self.as_raw();
        // SAFETY: the structure points to instructions that live through the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &raw const raw,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(SandboxError::last(Step::Seccomp))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(options: SeccompOptions) -> String {
        let lines: Vec<String> = Filter::new(options)
            .rules
            .iter()
            .filter(|rule| !rule.when.is_empty() || rule.action != Action::NotPermitted)
            .map(|rule| {
                let when: Vec<String> = rule
                    .when
                    .iter()
                    .map(|one| format!("{} {:x?}", one.argument, one.test))
                    .collect();
                format!("{} {:?} {}", rule.syscall, rule.action, when.join(", "))
                    .trim_end()
                    .to_owned()
            })
            .collect();
        lines.join("\n")
    }

    #[test]
    fn the_filter_is_shown_as_data() {
        insta::assert_snapshot!(lines(SeccompOptions::default()), @r"
        unshare NotPermitted 0 AnyOf(7e020080)
        clone NotPermitted 0 AnyOf(7e020000)
        clone3 NotImplemented
        prlimit64 NotPermitted 0 NotZero, 2 PointerNotNull
        ioctl NotPermitted 1 Equals(5412)
        ioctl NotPermitted 1 Equals(541c)
        socket NoSuchFamily 0 NotOneOf([1, 2, a, 10])
        socketpair NoSuchFamily 0 NotOneOf([1])
        socket NotPermitted 0 Equals(10), 2 NotOneOf([0])
        socket NotPermitted 0 Equals(2), 1 MaskedEquals { mask: f, value: 3 }
        socket NotPermitted 0 Equals(2), 1 MaskedEquals { mask: f, value: a }
        socket NotPermitted 0 Equals(a), 1 MaskedEquals { mask: f, value: 3 }
        socket NotPermitted 0 Equals(a), 1 MaskedEquals { mask: f, value: a }
        ");
    }

    #[test]
    fn the_filter_is_short_on_every_path() {
        let program = Filter::new(SeccompOptions::default())
            .compile()
            .expect("it compiles");
        assert!(program.len() < 512, "{}", program.len());
        assert_eq!(program.to_bytes().len(), program.len() * 8);
    }

    #[test]
    fn what_cannot_be_compiled_is_refused() {
        let with = |rule: Rule| Filter { rules: vec![rule] }.compile().map(drop);
        let rule = |syscall: &str, argument| Rule {
            syscall: syscall.to_owned(),
            when: vec![Condition {
                argument,
                test: Test::NotZero,
            }],
            action: Action::NotPermitted,
        };
        assert!(with(rule("ioctl", 5)).is_ok());
        assert!(with(rule("ioctl", 6)).is_err());
        assert!(with(rule("no_such_call", 0)).is_err());
    }
}
