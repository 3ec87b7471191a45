//! The policy document: what stands in a file, on a command line or in a request.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::requests::NetworkRule;
use super::reviewer::Reviewer;
use super::secret::SecretDocument;
use crate::bytes::BytePath;
use crate::spec::{Access, Enforce, Network, ProviderKind};

/// The version of the document that this program reads and writes.
pub const POLICY_SCHEMA: u32 = 1;

/// One layer's wishes; a field that is absent says nothing.
///
/// Paths are absolute, begin with `~/` (the owner's home directory), or are relative to the top of
/// the workspace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyDocument {
    /// Version of this format: 1. Required in files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<u32>,
    /// What puts the walls up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderChoice>,
    /// Providers to take, in order, where the first does not work on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<ProviderKind>>,
    /// How much of the network a command sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Hosts that `restricted` lets through: `example.com`, `*.example.com` for what lies below,
    /// `**.example.com` for both, each with or without `:PORT`, and `@dev` for what package clients
    /// and the repository's remotes use here. An empty list allows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_allow: Option<Vec<String>>,
    /// Hosts that are refused whatever allows them, in the same forms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_deny: Option<Vec<String>>,
    /// Rules over single requests: to a host that one of them is about, only what they let through
    /// passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_rules: Option<Vec<NetworkRule>>,
    /// Secrets by name: hosts are told their values, commands see placeholders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BTreeMap<String, SecretDocument>>,
    /// Whether the workspace may be written (the default) or only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Access>,
    /// Paths that may be read besides the workspace, system directories and toolchains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<BytePath>>,
    /// Paths that may be written besides the workspace and private temporary places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<BytePath>>,
    /// Paths that may not be read, or patterns below the workspace (`*.pem`, `secrets/**`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny_read: Option<Vec<BytePath>>,
    /// Names that must stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protect: Option<Vec<ProtectRule>>,
    /// What a command finds in its environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<EnvironmentDocument>,
    /// How package caches of the user are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caches: Option<Caches>,
    /// Bounds of resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitDocument>,
    /// Exceptions from what every command is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<AllowDocument>,
    /// Ports of the inside that are opened on loopback outside: `auto`, `3000`, `8080:3000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<Vec<String>>,
    /// Services on loopback outside that stand at the same address inside: `127.0.0.1:5432`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Vec<String>>,
    /// Shell commands that prepare a fresh tree of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<Vec<String>>,
    /// Files that are copied into a fresh tree of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<Vec<BytePath>>,
    /// Rules about single commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<CommandRule>>,
    /// Which operations ask before they act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    /// Who may answer in the owner's place, and whose word full access needs besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reviewer: Option<Reviewer>,
    /// Name of a set of values for a well-known agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What must be in effect whatever the other layers say; in the managed file only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require: Option<RequireDocument>,
}

/// A provider by name, or the choice of it left open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderChoice {
    /// bwrap; another one only where `fallback` names it.
    Auto,
    /// No walls at all.
    Direct,
    /// bubblewrap.
    Bwrap,
    /// Landlock and seccomp.
    Landlock,
    /// Docker or Podman.
    Container,
    /// A guest of its own.
    Microvm,
    /// Nothing is real.
    Memory,
}

impl ProviderChoice {
    /// Gives the provider that is tried first.
    pub const fn first(self) -> ProviderKind {
        match self {
            Self::Auto | Self::Bwrap => ProviderKind::Bwrap,
            Self::Direct => ProviderKind::Direct,
            Self::Landlock => ProviderKind::Landlock,
            Self::Container => ProviderKind::Container,
            Self::Microvm => ProviderKind::Microvm,
            Self::Memory => ProviderKind::Memory,
        }
    }

    /// Gives the provider that is named, `None` for `auto`.
    pub const fn named(self) -> Option<ProviderKind> {
        match self {
            Self::Auto => None,
            other => Some(other.first()),
        }
    }
}

impl From<ProviderKind> for ProviderChoice {
    fn from(kind: ProviderKind) -> Self {
        match kind {
            ProviderKind::Direct => Self::Direct,
            ProviderKind::Bwrap => Self::Bwrap,
            ProviderKind::Landlock => Self::Landlock,
            ProviderKind::Container => Self::Container,
            ProviderKind::Microvm => Self::Microvm,
            ProviderKind::Memory => Self::Memory,
        }
    }
}

/// A name that must stay as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtectRule {
    /// The path, with everything below it.
    pub path: BytePath,
    /// How it is held; `prevent` is refused where the provider cannot.
    #[serde(default = "prevent")]
    pub enforce: Enforce,
}

const fn prevent() -> Enforce {
    Enforce::Prevent
}

/// What a command finds in its environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvironmentDocument {
    /// How much of the caller's environment comes along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherit: Option<Inherit>,
    /// Names that come along in addition; a trailing `*` stands for any ending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Variables with their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<BTreeMap<String, String>>,
    /// Variables that hold the placeholder of a secret, by the name of the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BTreeMap<String, String>>,
}

/// How much of the caller's environment a command inherits.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Inherit {
    /// Nothing but what every program needs (PATH, HOME, locale, temporary directory).
    None,
    /// The built-in list and the names in `allow`.
    Listed,
    /// Everything whose name does not look like a secret, and the names in `allow`.
    All,
}

/// How package caches of the user are shown.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Caches {
    /// Not at all.
    None,
    /// They can be read, nothing can be added.
    ReadOnly,
    /// They can be read; what is written goes to a layer of this workspace's own.
    Private,
}

/// Bounds of resources.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitDocument {
    /// Memory of a whole enclosure, in bytes; of each process where no control group can be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Processes and threads of a whole enclosure; of the user where no control group can be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Processor time of one process, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Seconds>,
    /// Open files of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Time until a command is ended, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<Seconds>,
    /// Time without output until a command is ended, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Seconds>,
    /// Bytes of one output stream that are kept; more is counted and dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<ByteSize>,
    /// Bytes that the files of the workspace may hold more than before, by what file operations do;
    /// what commands write does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<ByteSize>,
    /// Bytes written to disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteSize>,
}

/// Exceptions from what every command is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AllowDocument {
    /// Namespaces of a command's own, as container tools and browsers need them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested_sandbox: Option<bool>,
    /// Tracing of a command's own descendants, as debuggers need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptrace: Option<bool>,
    /// Signals between the commands of one session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_peers: Option<bool>,
    /// Unix sockets of the host that may be connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Vec<BytePath>>,
    /// Devices of the host that may be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<BytePath>>,
}

/// A rule about single commands. It advises: the walls are what holds.
///
/// Each word may be several alternatives (`push|pull`) and hold `*` for any run of characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRule {
    /// Words that the command begins with, the program first: its name, or a path.
    pub command: Vec<String>,
    /// Words of which each stands somewhere after them; `-f` is also found in `-rf`, `--force` in
    /// `--force=yes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub has: Vec<String>,
    /// What happens then.
    pub decision: CommandDecision,
    /// Why, for whoever is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub justification: Option<String>,
    /// Command lines for which it fires; checked when the policy is read.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    /// Command lines for which it does not fire; checked when the policy is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_match: Vec<String>,
}

/// What a rule about commands decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandDecision {
    /// It runs.
    Allow,
    /// Somebody is asked.
    Ask,
    /// It does not run.
    Deny,
}

/// Which operations ask before they act.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Nothing is changed: commands, sessions and terminals run where nothing can be written.
    Readonly,
    /// Every change of the checkout is asked for: a command is tried without the right to write it.
    Approval,
    /// What crosses the walls is asked for.
    AutoApproval,
    /// Nothing is asked; the walls decide.
    Unrestricted,
}

impl Permission {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Readonly => "readonly",
            Self::Approval => "approval",
            Self::AutoApproval => "auto_approval",
            Self::Unrestricted => "unrestricted",
        }
    }
}

/// What must be in effect whatever the other layers say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RequireDocument {
    /// The provider in effect must be one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub providers: Option<Vec<ProviderKind>>,
}

/// A number of bytes, written as a number or with a unit: `512MiB`, `4GB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const UNITS: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("B", 1),
];

impl ByteSize {
    /// Reads `512MiB` and the like.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (digits, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
            .unwrap_or((text, 1));
        let number: u64 = digits.trim().parse().ok()?;
        number.checked_mul(factor).map(Self)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a number of bytes, such as 1048576 or \"512MiB\"")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ByteSize, E> {
                u64::try_from(value)
                    .map(ByteSize)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<ByteSize, E> {
                ByteSize::parse(value)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a number of bytes, or one with a unit such as \"512MiB\" or \"4GB\"",
            "oneOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^[0-9]+ ?([KMGT]i?B?|kB|B)?$"}
            ]
        })
    }
}

/// A time in seconds, above zero.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Seconds(f64);

impl Seconds {
    /// Takes a number of seconds that is finite and above zero.
    pub fn new(seconds: f64) -> Option<Self> {
        (seconds.is_finite() && seconds > 0.0).then_some(Self(seconds))
    }

    /// Gives the number.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Gives whole milliseconds, at least one.
    pub fn milliseconds(self) -> u64 {
        ((self.0 * 1000.0).ceil() as u64).max(1)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        Self::new(number)
            .ok_or_else(|| de::Error::custom("a number of seconds must be finite and above zero"))
    }
}

impl JsonSchema for Seconds {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Seconds".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "exclusiveMinimum": 0, "description": "seconds"})
    }
}
