//! The plan of an enclosure and of a command in it, as plain data.
//!
//! `policy + workspace + command + HostFacts → LaunchSpec` is a pure function (see the `plan`
//! module); what it gives is printed by `policy explain`, stored as evidence and hashed. A long-lived
//! child belongs to the hash of its enclosure.

mod egress;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
pub use crate::digest::{Digest, DigestSum, EitherSum};
use crate::ports::PortPlan;
pub use egress::{EgressHost, EgressRule, EgressSecret, EgressSpec, EgressTrust, SecretSource};

/// Names what puts the walls up.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// No walls at all.
    Direct,
    /// bubblewrap: namespaces, mounts, seccomp.
    Bwrap,
    /// Landlock and seccomp on each command.
    Landlock,
    /// Docker or Podman.
    Container,
    /// A guest of its own.
    Microvm,
    /// Nothing is real: scripted, for tests.
    Memory,
}

impl ProviderKind {
    /// Gives the word that policies and results use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Bwrap => "bwrap",
            Self::Landlock => "landlock",
            Self::Container => "container",
            Self::Microvm => "microvm",
            Self::Memory => "memory",
        }
    }

    /// Tells whether commands get a view of their own, by mounts, with namespaces around it.
    pub const fn has_view(self) -> bool {
        matches!(self, Self::Bwrap | Self::Container)
    }
}

impl std::fmt::Display for ProviderKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// How much of the network a command sees.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Own loopback where there is a namespace, else no IP sockets.
    None,
    /// None plus the allow-listed hosts.
    Restricted,
    /// The host's network.
    Full,
}

impl Network {
    /// Gives the word that policies and results use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Restricted => "restricted",
            Self::Full => "full",
        }
    }
}

/// Whether something may be written or only read.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read and execute.
    Read,
    /// Read, execute and write.
    Write,
}

/// The uid, gid and groups as whom a command acts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Numeric user.
    pub uid: u32,
    /// Numeric primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// One step of the view that a mount namespace gives, in the order in which they are made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Mount {
    /// Something of the host at a place inside.
    Bind {
        /// Path on the host.
        source: BytePath,
        /// Path inside.
        target: BytePath,
        /// Whether it may be written.
        access: Access,
        /// Whether a missing source is passed over instead of an error.
        optional: bool,
    },
    /// An empty file system in memory.
    Temporary {
        /// Path inside.
        target: BytePath,
        /// Permission bits of its root.
        mode: u32,
    },
    /// An empty directory.
    Directory {
        /// Path inside.
        target: BytePath,
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points.
        link: BytePath,
        /// Path inside.
        target: BytePath,
    },
    /// A file with given content, readable only.
    Content {
        /// Path inside.
        target: BytePath,
        /// What stands in it.
        content: BytePath,
    },
    /// A fresh process file system.
    Proc {
        /// Path inside.
        target: BytePath,
    },
    /// A minimal set of devices, own terminals and shared memory.
    Devices {
        /// Path inside.
        target: BytePath,
    },
    /// Hides a file or directory that a bind would show.
    Mask {
        /// Path inside.
        target: BytePath,
        /// Whether it is a directory.
        directory: bool,
        /// Where it stands on the host, for what may be gone when the walls are put up, such as a
        /// socket: nothing is made there to be hidden.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        passing: Option<BytePath>,
    },
    /// Makes an empty file system that stands here already read-only, not what is mounted below it.
    ReadOnly {
        /// Path inside.
        target: BytePath,
    },
}

impl Mount {
    /// Gives the place inside.
    pub const fn target(&self) -> &BytePath {
        match self {
            Self::Bind { target, .. }
            | Self::Temporary { target, .. }
            | Self::Directory { target, .. }
            | Self::Symlink { target, .. }
            | Self::Content { target, .. }
            | Self::Proc { target }
            | Self::Devices { target }
            | Self::Mask { target, .. }
            | Self::ReadOnly { target } => target,
        }
    }
}

/// A cache of the user under a private upper layer: read as it is, written to the side.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheOverlay {
    /// Path inside, and of the lower layer on the host.
    pub path: BytePath,
    /// Directory on the host that holds `upper` and `work` of this workspace.
    pub store: BytePath,
}

/// What a Landlock ruleset of a command allows; everything handled and not named is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LandlockSpec {
    /// Files and directories with what is allowed at and below them. Empty means that file access
    /// is not handled by Landlock (a mount namespace does it).
    pub paths: Vec<PathRule>,
    /// Whether TCP bind and connect are refused.
    pub deny_tcp: bool,
    /// Whether signals stay inside the command's own domain.
    pub scope_signals: bool,
    /// Whether abstract Unix sockets stay inside the command's own domain.
    pub scope_abstract_sockets: bool,
}

/// One path of a Landlock ruleset.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathRule {
    /// File or directory.
    pub path: BytePath,
    /// What is allowed there and below.
    pub access: PathAccess,
}

/// What a Landlock rule allows.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// List a directory, nothing of its files.
    List,
    /// Read files and list directories.
    Read,
    /// Read and execute.
    ReadExecute,
    /// Everything but device nodes.
    Write,
    /// Read, write and ioctl on an existing device, no creation.
    Device,
}

/// Which system calls are refused, by sets that the sandbox crate spells out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeccompSpec {
    /// Whether the filter is put on at all (direct has none).
    pub enabled: bool,
    /// Which socket families exist.
    pub sockets: SocketFamilies,
    /// Whether a command may make namespaces of its own.
    pub nested_sandbox: bool,
    /// Whether a command may trace its own descendants.
    pub ptrace: bool,
}

/// Which socket families a command may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SocketFamilies {
    /// Unix, IPv4, IPv6, routing netlink: the namespace bounds what they reach.
    Namespaced,
    /// Socket pairs only: neither IP nor Unix sockets can be opened.
    PairsOnly,
    /// Unix, IPv4, IPv6 (stream and datagram), routing netlink, on the host's network.
    Host,
    /// As `Host`, but of Unix sockets only pairs: nothing hides the paths of the host's sockets.
    HostPairs,
}

/// How a protected name is held.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Enforce {
    /// It is said, and left.
    Report,
    /// It is undone before the outcome is returned.
    Undo,
    /// It cannot be done.
    Prevent,
}

/// What stood at a protected name when the plan was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProtectedState {
    /// Nothing.
    Absent,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; its target is protected by an entry of its own.
    Symlink,
}

/// A name that the host's tools execute or obey, and how it is held.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Protection {
    /// Path on the host.
    pub path: BytePath,
    /// What stood there.
    pub state: ProtectedState,
    /// How it is held by this provider.
    pub enforce: Enforce,
    /// Which rule asks for it, in words.
    pub rule: String,
}

/// What enforces a part of a policy.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// User namespace without capabilities.
    UserNamespace,
    /// Mount namespace.
    MountNamespace,
    /// Process namespace.
    PidNamespace,
    /// Network namespace.
    NetworkNamespace,
    /// IPC, UTS and cgroup namespaces.
    OtherNamespaces,
    /// Landlock rules.
    Landlock,
    /// seccomp filter.
    Seccomp,
    /// `no_new_privs`.
    NoNewPrivileges,
    /// Control groups.
    Cgroup,
    /// A container engine's own confinement: no capabilities, its filter, a read-only root.
    ContainerEngine,
    /// Resource limits of the process.
    Rlimit,
    /// Snapshot before and comparison after.
    SnapshotUndo,
    /// The keeper's supervisor: the tree ends with the command.
    Supervisor,
    /// The proxy that lets through what is listed.
    EgressProxy,
}

/// Something that was asked for, or that one would expect, and is not enforced here.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// Stable word for it, such as `stat_outside`.
    pub what: String,
    /// Why.
    pub why: String,
}

/// Bounds of resources; `None` is no bound of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceLimits {
    /// Bytes of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Seconds of processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Open files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Bytes of one written file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Bytes of one output stream that are kept; more is counted and dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
}

/// A variable of the environment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Its name.
    pub name: BytePath,
    /// Its value.
    pub value: BytePath,
}

/// The place behind walls.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnclosureSpec {
    /// What puts the walls up.
    pub provider: ProviderKind,
    /// The program that does it, by absolute path, for providers that need one (bubblewrap).
    pub program: Option<BytePath>,
    /// The workspace as commands see it.
    pub workspace: BytePath,
    /// The workspace on the host.
    pub workspace_source: BytePath,
    /// As whom commands act.
    pub identity: Identity,
    /// Directory on the host, made and removed with the enclosure, that holds what is private to
    /// it: `home` and `tmp` where there is no mount namespace. Left out of the hash.
    pub scratch: BytePath,
    /// The view, in order. Without a mount namespace: directories and contents below the scratch
    /// directory only, which are made there as they are.
    pub mounts: Vec<Mount>,
    /// Caches under a private upper layer.
    pub caches: Vec<CacheOverlay>,
    /// The network level in effect.
    pub network: Network,
    /// Ports that cross the walls.
    #[serde(default, skip_serializing_if = "PortPlan::is_empty")]
    pub ports: PortPlan,
    /// The way out to allowed hosts, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressSpec>,
    /// What Landlock allows each command.
    pub landlock: LandlockSpec,
    /// What seccomp refuses each command.
    pub seccomp: SeccompSpec,
    /// Names that are held.
    pub protections: Vec<Protection>,
    /// The environment that every command begins with.
    pub environment: Vec<Variable>,
    /// Bounds of the whole.
    pub limits: ResourceLimits,
    /// What enforces all this.
    pub enforced_by: Vec<Mechanism>,
    /// What is not enforced.
    pub gaps: Vec<Gap>,
}

impl EnclosureSpec {
    /// Gives the same place with another scratch directory, wherever that is named.
    pub fn relocated(&self, scratch: &BytePath) -> Self {
        if self.scratch.is_empty() {
            return self.clone();
        }
        let inside = |path: &BytePath| {
            serde_json::to_string(path)
                .expect("a path is a string")
                .trim_matches('"')
                .to_owned()
        };
        let text = serde_json::to_string(self).expect("a spec holds no map with odd keys");
        let text = text.replace(&inside(&self.scratch), &inside(scratch));
        serde_json::from_str(&text).expect("what was a spec is one with another path")
    }

    /// Digests everything but the scratch directory: two specs with one hash are the same place.
    pub fn hash(&self) -> Digest {
        let text = serde_json::to_string(self).expect("a spec holds no map with odd keys");
        let scratch = serde_json::to_string(&self.scratch).expect("a path is a string");
        let inner = scratch.trim_matches('"');
        let text = if inner.is_empty() {
            text
        } else {
            text.replace(inner, "{scratch}")
        };
        Digest::sha256(text.as_bytes())
    }
}

/// Where the standard streams of a command come from and go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamPlan {
    /// Standard input is empty; two pipes of ours take the output.
    Pipes,
    /// As pipes, and standard input is a pipe of ours that the caller fills.
    PipesWithInput,
    /// A terminal of the command's own.
    Terminal,
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// The program and its arguments, at least one.
    pub argv: Vec<BytePath>,
    /// Directory as the command sees it, within the workspace.
    pub cwd: BytePath,
    /// What is added to, or replaces part of, the enclosure's environment.
    pub environment: Vec<Variable>,
    /// The streams.
    pub streams: StreamPlan,
    /// Milliseconds until the tree is ended; `None` is no limit.
    pub timeout_ms: Option<u64>,
    /// Milliseconds without output until the tree is ended.
    pub idle_timeout_ms: Option<u64>,
    /// Bounds of this command.
    pub limits: ResourceLimits,
}

/// All that is needed to start one command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    /// Where.
    pub enclosure: EnclosureSpec,
    /// What.
    pub command: CommandSpec,
}
