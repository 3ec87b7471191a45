//! The policy in effect: every value with the layer that gave it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::{
    ByteSize, Caches, CommandRule, Inherit, Permission, ProtectRule, ProviderChoice, Seconds,
};
use super::hosts::{HostEntry, HostSet};
use super::requests::NetworkRule;
use super::reviewer::Reviewer;
use super::secret::SecretDocument;
use crate::bytes::BytePath;
use crate::ports::{PublishRule, ReachAddress};
use crate::spec::{Access, Digest, Network, ProviderKind};

/// Where a value of a policy comes from, in the order in which layers are laid.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The program itself.
    BuiltIn,
    /// The file of whoever manages the machine: a ceiling.
    Managed,
    /// The user's file.
    User,
    /// The owner at the keyboard.
    CommandLine,
    /// The file in the workspace: it may only narrow.
    Project,
    /// A request over a protocol: it may only narrow.
    Request,
}

impl Layer {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built_in",
            Self::Managed => "managed",
            Self::User => "user",
            Self::CommandLine => "command_line",
            Self::Project => "project",
            Self::Request => "request",
        }
    }

    /// Tells whether the layer may only narrow.
    pub const fn only_narrows(self) -> bool {
        matches!(self, Self::Project | Self::Request)
    }
}

impl std::fmt::Display for Layer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A value and the layer that gave it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Who gave it.
    pub layer: Layer,
}

impl<T> Sourced<T> {
    /// Joins a value and its layer.
    pub const fn new(value: T, layer: Layer) -> Self {
        Self { value, layer }
    }

    /// Tells whether somebody asked for it, rather than that it is the default.
    pub const fn is_asked_for(&self) -> bool {
        !matches!(self.layer, Layer::BuiltIn)
    }
}

/// A wish of the project file that would widen, and so was not followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// The field.
    pub field: String,
    /// What it wants, as JSON text.
    pub value: String,
    /// Why it is not followed by itself.
    pub reason: String,
}

/// The policy that results from all layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EffectivePolicy {
    /// What puts the walls up.
    pub provider: Sourced<ProviderChoice>,
    /// What may take its place.
    pub fallback: Sourced<Vec<ProviderKind>>,
    /// Providers of which the one in effect must be one.
    pub required_providers: Option<Sourced<Vec<ProviderKind>>>,
    /// The network level.
    pub network: Sourced<Network>,
    /// Hosts that `restricted` lets through.
    #[serde(default)]
    pub network_allow: Vec<Sourced<HostEntry>>,
    /// Hosts that are refused whatever allows them.
    #[serde(default)]
    pub network_deny: Vec<Sourced<HostEntry>>,
    /// Rules over single requests; those of the owner's layers add up, of all others each layer must
    /// let a request through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_rules: Vec<Sourced<NetworkRule>>,
    /// Secrets that hosts are told, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Sourced<SecretDocument>>,
    /// Hosts beyond which the managed layer lets nobody go, whatever a set holds or somebody answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_ceiling: Option<Sourced<Vec<HostEntry>>>,
    /// Whether the workspace may be written.
    pub workspace: Sourced<Access>,
    /// Further paths that may be read.
    pub read: Vec<Sourced<BytePath>>,
    /// Further paths that may be written.
    pub write: Vec<Sourced<BytePath>>,
    /// Paths and patterns that may not be read.
    pub deny_read: Vec<Sourced<BytePath>>,
    /// Names that must stay as they are, besides the built-in ones.
    pub protect: Vec<Sourced<ProtectRule>>,
    /// The environment.
    pub env: EffectiveEnvironment,
    /// How caches are shown.
    pub caches: Sourced<Caches>,
    /// Bounds of resources.
    pub limits: EffectiveLimits,
    /// Exceptions.
    pub allow: EffectiveAllow,
    /// Services of the outside that stand inside.
    pub reach: Vec<Sourced<ReachAddress>>,
    /// Ports of the inside that are opened outside.
    pub publish: Vec<Sourced<PublishRule>>,
    /// Shell commands that prepare a fresh tree.
    pub setup: Sourced<Vec<String>>,
    /// Rules about single commands, in the order of the layers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Sourced<CommandRule>>,
    /// Which operations ask.
    pub permission: Sourced<Permission>,
    /// Who may answer in the owner's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewer: Option<Sourced<Reviewer>>,
    /// Wishes of the project file that would widen.
    pub proposals: Vec<Proposal>,
}

/// The environment in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EffectiveEnvironment {
    /// How much comes along.
    pub inherit: Sourced<Inherit>,
    /// Names that come along in addition.
    pub allow: Vec<Sourced<String>>,
    /// Variables with values.
    pub set: BTreeMap<String, Sourced<String>>,
    /// Variables that hold the placeholder of a secret, by the name of the secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Sourced<String>>,
}

/// The bounds in effect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EffectiveLimits {
    /// Memory.
    pub memory: Option<Sourced<ByteSize>>,
    /// Processes and threads.
    pub tasks: Option<Sourced<u64>>,
    /// Processor time of one process.
    pub cpu: Option<Sourced<Seconds>>,
    /// Open files of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<Sourced<u64>>,
    /// Time until a command is ended.
    pub wall: Option<Sourced<Seconds>>,
    /// Time without output until a command is ended.
    pub idle: Option<Sourced<Seconds>>,
    /// Bytes of one output stream that are kept.
    pub output: Option<Sourced<ByteSize>>,
    /// Bytes that file operations may add to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Sourced<ByteSize>>,
}

/// The exceptions in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EffectiveAllow {
    /// Namespaces of a command's own.
    pub nested_sandbox: Sourced<bool>,
    /// Tracing of own descendants.
    pub ptrace: Sourced<bool>,
    /// Signals between the commands of one session.
    pub signal_peers: Sourced<bool>,
    /// Unix sockets of the host.
    pub sockets: Vec<Sourced<BytePath>>,
}

impl EffectivePolicy {
    /// Gives what holds when no layer says anything: bwrap, no network, the workspace writable.
    pub fn built_in() -> Self {
        const fn plain<T>(value: T) -> Sourced<T> {
            Sourced::new(value, Layer::BuiltIn)
        }
        Self {
            provider: plain(ProviderChoice::Auto),
            fallback: plain(Vec::new()),
            required_providers: None,
            network: plain(Network::None),
            network_allow: Vec::new(),
            network_deny: Vec::new(),
            network_rules: Vec::new(),
            secrets: BTreeMap::new(),
            network_ceiling: None,
            workspace: plain(Access::Write),
            read: Vec::new(),
            write: Vec::new(),
            deny_read: Vec::new(),
            protect: Vec::new(),
            env: EffectiveEnvironment {
                inherit: plain(Inherit::Listed),
                allow: Vec::new(),
                set: BTreeMap::new(),
                secrets: BTreeMap::new(),
            },
            caches: plain(Caches::Private),
            limits: EffectiveLimits::default(),
            allow: EffectiveAllow {
                nested_sandbox: plain(false),
                ptrace: plain(false),
                signal_peers: plain(false),
                sockets: Vec::new(),
            },
            reach: Vec::new(),
            publish: Vec::new(),
            setup: plain(Vec::new()),
            commands: Vec::new(),
            permission: plain(Permission::Unrestricted),
            reviewer: None,
            proposals: Vec::new(),
        }
    }

    /// Gives the same with another network level as the default, as `task run` has it. Where that
    /// is `restricted`, the hosts of `@dev` are allowed by default.
    #[must_use]
    pub fn with_default_network(mut self, network: Network) -> Self {
        self.network = Sourced::new(network, Layer::BuiltIn);
        if network == Network::Restricted {
            return self.with_default_hosts([HostEntry::Set(HostSet::Dev)]);
        }
        self
    }

    /// Gives the same with hosts that are allowed by default, as tasks and profiles have them. An
    /// empty list of an owner's layer takes them away again.
    #[must_use]
    pub fn with_default_hosts(mut self, hosts: impl IntoIterator<Item = HostEntry>) -> Self {
        for host in hosts {
            if !self.network_allow.iter().any(|one| one.value == host) {
                self.network_allow.push(Sourced::new(host, Layer::BuiltIn));
            }
        }
        self
    }

    /// Digests every value and its layer.
    pub fn digest(&self) -> Digest {
        let text = serde_json::to_string(self).expect("a policy holds no map with odd keys");
        Digest::sha256(text.as_bytes())
    }
}
