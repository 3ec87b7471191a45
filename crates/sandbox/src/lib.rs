//! Linux mechanisms of Cofferdam.
//!
//! How a process is started ([`spawn()`]), walled in ([`build_ruleset`], [`Filter`]), waited for and
//! ended with everything below it ([`sweep`]), and how descriptors and files travel. What shall be
//! allowed to whom is decided elsewhere; this crate only does it, or says which step failed. It is
//! synchronous, and the only crate of the project with `unsafe` code.
//!
//! ```
//! use cofferdam_sandbox::{Program, Spawn, candidates, spawn, wait_pid, ExitStatus};
//!
//! let program = candidates(b"true", Some(b"/usr/bin:/bin")).expect("a name");
//! let spec = Spawn::new(Program::Paths(program), vec![c"true".to_owned()]);
//! let child = spawn(&spec).expect("started");
//! assert_eq!(wait_pid(child.pid).expect("a child of ours").status, ExitStatus::Code(0));
//! ```
//!
//! The design is told in `ARCHITECTURE.md`.

#![cfg(target_os = "linux")]

mod beneath;
mod bpf;
#[cfg(feature = "plan")]
mod bwrap;
mod capabilities;
mod cgroup;
mod child;
#[cfg(feature = "plan")]
mod container;
mod error;
mod foreground;
mod landlock;
mod limits;
mod memory;
mod message;
mod mounts;
mod probe;
mod real;
mod seccomp;
mod spawn;
mod syscalls;
mod terminal;
mod traces;
mod tree;
mod wait;

pub use beneath::{Create, Entry, FileKind, Metadata, OpenHow, Replaced, Root, Temporary};
#[cfg(feature = "plan")]
pub use bwrap::{
    BwrapArguments, BwrapStart, OVERLAY_CAPABILITIES, bwrap_arguments, landlock_plan,
    low_listeners, seccomp_options, setup_mounts, start_bwrap,
};
pub use capabilities::{
    drop_all_capabilities, set_dumpable, set_no_new_privileges, set_process_name, set_subreaper,
};
pub use cgroup::{
    ControlGroup, ControlTrees, GroupDirectory, GroupEvents, GroupLimits, GroupPlan, Hierarchy,
    remove_control_group,
};
#[cfg(feature = "plan")]
pub use container::{CONTAINER_STAGING, ContainerMount, ContainerPlan, RootEntry, container_plan};
pub use error::{SandboxError, Step};
pub use foreground::{ForegroundLook, ForegroundSleep, ForegroundWatch, signal_group};
pub use landlock::{
    Access, LANDLOCK_ABI_WANTED, LandlockPlan, PathRule, Ruleset, build_ruleset, landlock_abi,
    restrict_self,
};
pub use limits::{Limit, OwnOomScore, Resource};
pub use memory::{read_memory, sealed_memory, sealed_program};
pub use message::{
    MAX_DESCRIPTORS, message_pair, peer_is_gone, receive_message, send_message, take_inherited,
    take_inherited_channel,
};
pub use mounts::{SetupMount, apply_mounts};
pub use probe::{
    BwrapProblem, Caller, bwrap_version, find_program, probe_bwrap, probe_memory_exec,
};
pub use real::RealPath;
pub use seccomp::{
    Action, Condition, Filter, Program as SeccompProgram, Rule, SeccompOptions, Test, UnixSockets,
};
pub use spawn::{Directory, Identity, Program, Spawn, Spawned, candidates, default_signals, spawn};
pub use terminal::{Terminal, open_terminal, resize_terminal};
pub use traces::traces;
pub use tree::{
    ChildSignals, Leftover, Sweep, Swept, children, descendants, fork_and_run, living, signal_tree,
    sweep, wait_for_no_child,
};
pub use wait::{
    ExitStatus, Reap, Reaped, Usage, reap_any, signal_pid, signal_pidfd, try_wait_pid, wait_pid,
};
