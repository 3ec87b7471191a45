//! What is known about the host, gathered once by one function and passed on as a value.
//!
//! Facts are serialisable so that a plan can be made again from a stored value, on any machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::error::Problem;
use crate::spec::{Identity, ProviderKind, Variable};

/// Everything that a plan may depend on besides policy, workspace and command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    /// Kernel release, such as `6.18.0`.
    pub kernel: String,
    /// Who calls.
    pub caller: Person,
    /// Whose workspace it is; differs from the caller only where root works for somebody.
    pub owner: Person,
    /// The data directory of the caller.
    pub data_dir: BytePath,
    /// What each provider can do here.
    pub providers: Vec<ProviderFacts>,
    /// Landlock ABI, 0 where there is none.
    pub landlock_abi: u32,
    /// Whether overlays can be mounted in a user namespace.
    pub overlay: bool,
    /// System paths that exist, to be shown read-only: directories and links.
    pub system: Vec<SystemPath>,
    /// Files and directories below the system paths that must not be read.
    pub system_secrets: Vec<SystemSecret>,
    /// What stands in the directories above those secrets, for a provider that can only allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system_listings: Vec<Listing>,
    /// Toolchains found in the owner's home directory and elsewhere.
    pub toolchains: Vec<Toolchain>,
    /// Variables of the caller that the allow-list lets through, by name.
    pub environment: Vec<Variable>,
    /// Names of variables of the caller that look like secrets; values never stand here.
    pub secret_names: Vec<String>,
    /// The workspace and what was found in it.
    pub workspace: WorkspaceFacts,
    /// The paths that the policy names, as they are on this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathFact>,
    /// Content of a global git configuration for use inside: identity, aliases, harmless settings.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub git_config: String,
    /// Hosts that were found here, where the policy asks for them.
    #[serde(default, skip_serializing_if = "NetworkFacts::is_empty")]
    pub network: NetworkFacts,
    /// Unix sockets of the host that stand in what is shown.
    #[serde(default, skip_serializing_if = "SocketFacts::is_empty")]
    pub sockets: SocketFacts,
    /// The shell that runs text, by absolute path.
    #[serde(default = "plain_shell")]
    pub shell: BytePath,
}

fn plain_shell() -> BytePath {
    BytePath::from("/bin/sh")
}

/// Unix sockets of the host that stand where commands will look.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SocketFacts {
    /// Absolute paths, links resolved, sorted.
    pub found: Vec<BytePath>,
    /// Directories that hold too much to be looked through.
    pub unseen: Vec<BytePath>,
}

impl SocketFacts {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Hosts that were found on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkFacts {
    /// What the set `@dev` holds here.
    pub dev: Vec<FoundHost>,
    /// What files of the workspace name: proposals, allowed to nobody.
    pub proposed: Vec<FoundHost>,
    /// What somebody allowed for this repository when asked.
    pub remembered_allow: Vec<FoundHost>,
    /// What somebody refused for this repository for good when asked.
    pub remembered_deny: Vec<FoundHost>,
    /// Remotes that git reaches by ssh.
    pub ssh_remotes: Vec<SshRemote>,
    /// Settings of package clients that name those hosts, without credentials.
    pub client_settings: Vec<Variable>,
    /// Names that the policy wants to reach, by this machine's list of hosts.
    pub names: Vec<LocalName>,
    /// The machine's file of root certificates, where the policy needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roots: Option<BytePath>,
    /// Further files of certificates that variables of the caller name, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more_roots: Vec<BytePath>,
}

impl NetworkFacts {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A host and where its name was found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FoundHost {
    /// The host with its port, as a rule.
    pub rule: String,
    /// Where it was found, such as `npm: ~/.npmrc`.
    pub origin: String,
}

/// A name that this machine's list of hosts knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LocalName {
    /// The name, in lowercase.
    pub name: String,
    /// Its address.
    pub address: std::net::IpAddr,
}

/// A remote that git reaches by ssh.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SshRemote {
    /// The host.
    pub host: String,
    /// What the remote's address begins with, up to the path: `git@example.com:`.
    pub prefix: String,
}

/// A path that the policy names, as it is on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathFact {
    /// As the policy has it: absolute, from `~/`, or relative to the workspace; perhaps a pattern.
    pub written: BytePath,
    /// Absolute path, links not followed.
    pub path: BytePath,
    /// Where it really is, when that is another path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<BytePath>,
    /// What stands there.
    pub kind: PathKind,
}

/// What stands at a path, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathKind {
    /// Nothing.
    Absent,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A Unix socket.
    Socket,
    /// Something else.
    Other,
}

impl HostFacts {
    /// Tells whether commands act as somebody else than the caller: root works for them.
    pub fn acts_for_another(&self) -> bool {
        self.caller.identity.uid != self.owner.identity.uid
    }
}

/// A user of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Person {
    /// Numeric ids.
    pub identity: Identity,
    /// Login name, or the number as text.
    pub name: String,
    /// Home directory.
    pub home: BytePath,
}

/// What one provider can do on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderFacts {
    /// Which one.
    pub provider: ProviderKind,
    /// Why it cannot be used; `None` when it can.
    pub problem: Option<Problem>,
    /// The program that it needs, by absolute path, found outside the workspace.
    pub program: Option<BytePath>,
    /// Version of that program, as it prints it.
    pub version: Option<String>,
}

/// A system path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemPath {
    /// Where it is.
    pub path: BytePath,
    /// Where it points, when it is a symbolic link (`/bin` on a merged system).
    pub link: Option<BytePath>,
}

/// Something in a system directory that is not for reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemSecret {
    /// Where it is.
    pub path: BytePath,
    /// Whether it is a directory.
    pub directory: bool,
}

/// A directory and what stands in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    /// The directory.
    pub path: BytePath,
    /// Absolute paths of its entries, sorted.
    pub entries: Vec<BytePath>,
}

/// A toolchain outside the system directories, without its credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Toolchain {
    /// Its name, such as `cargo`.
    pub name: String,
    /// Files and directories to be shown read-only.
    pub read: Vec<BytePath>,
    /// Directories that are caches: shown, and written to the side.
    pub caches: Vec<BytePath>,
    /// Whether the tool fails where it cannot write to its cache: then an empty one is better.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_cache: bool,
    /// Whether the workspace looks like a project of this tool. One that does not and has no network
    /// adds nothing to a cache, and is spared the layer, which costs milliseconds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
    /// Files below those that hold credentials and stay hidden.
    pub secrets: Vec<BytePath>,
    /// Variables that name its places.
    pub environment: Vec<Variable>,
}

/// What was found in and around the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceFacts {
    /// Its real path.
    pub root: BytePath,
    /// Other spellings of it that were used, such as a path through a symbolic link.
    pub spellings: Vec<BytePath>,
    /// The repository around it, when there is one.
    pub git: Option<GitFacts>,
    /// Protected names at the top level with what stands there, absent ones included.
    pub protected: Vec<ProtectedName>,
    /// `.env` files that are not in the index.
    pub env_files: Vec<BytePath>,
}

/// A protected name and what stands there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtectedName {
    /// Absolute path on the host.
    pub path: BytePath,
    /// What stands there.
    pub state: crate::spec::ProtectedState,
    /// Which rule names it, such as `git hooks`.
    pub rule: String,
    /// Whether git's index holds it, or something below it.
    pub tracked: bool,
}

/// The repository around a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitFacts {
    /// Top level of the working tree.
    pub top_level: BytePath,
    /// The git directory of this tree.
    pub git_dir: BytePath,
    /// The git directory that linked trees share; equals `git_dir` in a plain checkout.
    pub common_dir: BytePath,
    /// Whether the tree is a linked one.
    pub linked: bool,
    /// Where hooks are looked for, absolute.
    pub hooks_path: BytePath,
    /// Content of a global configuration for use inside: identity, aliases and harmless settings.
    pub portable_config: String,
    /// Settings that were left out because they point to the host, by key.
    pub left_out: Vec<String>,
}
