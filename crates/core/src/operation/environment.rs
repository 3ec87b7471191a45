//! What an agent should be told about where it runs (E9): as fields, and as text for its prompt.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::limits;
use crate::outcome::{Isolation, IsolationLevel};
use crate::plan::CommandOptions;
use crate::policy::{EffectivePolicy, Permission};
use crate::ports::ReachAddress;
use crate::spec::{
    Access, EnclosureSpec, Enforce, Mechanism, Mount, Network, PathAccess, ProviderKind,
    ResourceLimits,
};

/// A request to describe the environment (E9).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DescribeEnvironment {
    /// As it would be with a narrower network level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// As it would be without the right to write the workspace: `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_access: Option<Access>,
    /// The workspace that is meant; another one than this server's is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// Where commands run and what they may (E9).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentDescription {
    /// All of it in a few plain sentences, for the prompt of an agent.
    pub text: String,
    /// The workspace as commands see it.
    pub workspace: BytePath,
    /// What was asked for, what is in effect, and what enforces it.
    pub isolation: Isolation,
    /// What may be written at and below, the workspace first where it may be.
    pub writable: Vec<BytePath>,
    /// What may be read at and below besides.
    pub readable: Vec<BytePath>,
    /// What lies within those and stays hidden.
    pub hidden: Vec<BytePath>,
    /// Names that stay as they are, and how they are held.
    pub protected: Vec<ProtectedPath>,
    /// The network.
    pub network: NetworkDescription,
    /// Bounds of time, output and resources.
    pub limits: LimitsDescription,
    /// What is asked or refused before anything starts.
    pub permission: Permission,
    /// The shell that runs text, never as a login shell.
    pub shell: BytePath,
    /// Well-known programs that commands find.
    pub tools: Vec<String>,
}

/// A name that stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtectedPath {
    /// Its path.
    pub path: BytePath,
    /// How it is held.
    pub enforce: Enforce,
}

/// How much of the network commands see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkDescription {
    /// The level.
    pub level: Network,
    /// Hosts that are let through where the level is `restricted`.
    pub allowed: Vec<String>,
    /// Hosts that are refused whatever lets them through.
    pub refused: Vec<String>,
    /// Services of the outside that stand at these addresses inside.
    pub reach: Vec<String>,
}

/// Bounds of time, output and resources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsDescription {
    /// Seconds after which a command ends when none are said; nothing is no limit.
    pub default_timeout_seconds: Option<f64>,
    /// Most seconds that can be asked for; more is lowered. Nothing is no cap.
    pub timeout_cap_seconds: Option<f64>,
    /// Seconds without output after which a command ends, where the policy says some.
    pub idle_timeout_seconds: Option<f64>,
    /// Characters of output in a result: its end. The whole stays readable by offset.
    pub output_characters: u64,
    /// Memory, processes, processor time.
    pub resources: ResourceLimits,
}

/// What a description is made from.
#[derive(Debug, Clone, Copy)]
pub struct Described<'a> {
    /// The policy in effect.
    pub policy: &'a EffectivePolicy,
    /// The plan of the place.
    pub spec: &'a EnclosureSpec,
    /// What was asked for.
    pub requested: IsolationLevel,
    /// The shell that runs text.
    pub shell: &'a BytePath,
    /// What the front door decides about commands.
    pub options: CommandOptions,
    /// Well-known programs that commands find.
    pub tools: &'a [String],
}

impl EnvironmentDescription {
    /// Describes a place from its plan: nothing is looked at.
    pub fn new(made_from: Described<'_>) -> Self {
        let Described {
            policy,
            spec,
            requested,
            shell,
            options,
            tools,
        } = made_from;
        let paths = Paths::of(spec);
        let egress = spec.egress.as_ref();
        let rules = |hosts: &[crate::spec::EgressHost]| -> Vec<String> {
            hosts.iter().map(|host| host.rule.clone()).collect()
        };
        let wall = policy.limits.wall.map(|one| one.value.get());
        let least = |left: Option<f64>, right: Option<f64>| match (left, right) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (one, other) => one.or(other),
        };
        let cap = least(options.timeout_cap, wall);
        let mut described = Self {
            text: String::new(),
            workspace: spec.workspace.clone(),
            isolation: Isolation {
                requested,
                effective: IsolationLevel {
                    provider: Some(spec.provider),
                    network: spec.network,
                },
                enforced_by: spec.enforced_by.clone(),
                gaps: spec.gaps.clone(),
                uid: spec.identity.uid,
            },
            writable: paths.writable,
            readable: paths.readable,
            hidden: paths.hidden,
            protected: spec
                .protections
                .iter()
                .map(|one| ProtectedPath {
                    path: one.path.clone(),
                    enforce: one.enforce,
                })
                .collect(),
            network: NetworkDescription {
                level: spec.network,
                allowed: egress.map(|one| rules(&one.allow)).unwrap_or_default(),
                refused: egress.map(|one| rules(&one.deny)).unwrap_or_default(),
                reach: policy
                    .reach
                    .iter()
                    .map(|one| ReachAddress::to_string(&one.value))
                    .collect(),
            },
            limits: LimitsDescription {
                default_timeout_seconds: least(options.default_timeout, cap),
                timeout_cap_seconds: cap,
                idle_timeout_seconds: policy.limits.idle.map(|one| one.value.get()),
                output_characters: limits::OUTPUT_CHARACTERS as u64,
                resources: spec.limits.clone(),
            },
            permission: policy.permission.value,
            shell: shell.clone(),
            tools: tools.to_vec(),
        };
        described.text = described.told();
        described
    }

    /// Tells the fields in plain sentences.
    fn told(&self) -> String {
        let mut text = String::new();
        let provider = self.isolation.effective.provider;
        let _ = match provider {
            Some(ProviderKind::Direct) | None => writeln!(
                text,
                "Your commands run directly on this machine (provider direct): no walls are around them."
            ),
            Some(provider) => writeln!(
                text,
                "Your commands run behind walls (provider {provider}), enforced by {}.",
                joined(self.isolation.enforced_by.iter().map(|one| word(*one)), 12)
            ),
        };
        let _ = writeln!(text, "Workspace: {}. Commands start there.", self.workspace);
        let _ = if self.writable.is_empty() {
            writeln!(text, "You may write nothing.")
        } else {
            writeln!(
                text,
                "You may write: {}.",
                joined(self.writable.iter().map(ToString::to_string), 12)
            )
        };
        let _ = writeln!(
            text,
            "You may read besides: {}. What is not named does not exist for your commands.",
            joined(self.readable.iter().map(ToString::to_string), 16)
        );
        if !self.hidden.is_empty() {
            let hidden = self.hidden.iter().map(ToString::to_string);
            let _ = writeln!(text, "Hidden: {}.", joined(hidden, 8));
        }
        if !self.protected.is_empty() {
            let names = self.protected.iter().map(|one| one.path.to_string());
            let _ = writeln!(
                text,
                "These stay as they are, a change is refused or undone: {}.",
                joined(names, 12)
            );
        }
        self.tell_network(&mut text);
        self.tell_limits(&mut text);
        let _ = match self.permission {
            Permission::Unrestricted | Permission::AutoApproval => {
                writeln!(text, "Nothing is asked before a command starts.")
            }
            Permission::Approval => writeln!(text, "Each change is asked for before it happens."),
            Permission::Readonly => writeln!(text, "Nothing may be changed; commands are refused."),
        };
        if !self.tools.is_empty() {
            let tools = self.tools.iter().cloned();
            let _ = writeln!(text, "Programs: {}.", joined(tools, usize::MAX));
        }
        let _ = write!(
            text,
            "A result's `denials` name what was refused and what to do instead; trying the same again changes nothing."
        );
        text
    }

    fn tell_network(&self, text: &mut String) {
        let network = &self.network;
        let _ = match network.level {
            Network::None => writeln!(text, "Network: none but the place's own loopback."),
            Network::Full => writeln!(text, "Network: that of this machine."),
            Network::Restricted if network.allowed.is_empty() => {
                writeln!(text, "Network: no host may be reached.")
            }
            Network::Restricted => writeln!(
                text,
                "Network: only {}, through the proxy in HTTP_PROXY and HTTPS_PROXY.",
                joined(network.allowed.iter().cloned(), 24)
            ),
        };
        if !network.reach.is_empty() {
            let reach = joined(network.reach.iter().cloned(), 12);
            let _ = writeln!(text, "Services that can be reached as well: {reach}.");
        }
    }

    fn tell_limits(&self, text: &mut String) {
        let limits = &self.limits;
        let mut parts = Vec::new();
        match (limits.default_timeout_seconds, limits.timeout_cap_seconds) {
            (Some(default), Some(cap)) => parts.push(format!(
                "{default} s for a command unless you ask for more, {cap} s at most"
            )),
            (Some(default), None) => parts.push(format!("{default} s for a command")),
            (None, Some(cap)) => parts.push(format!("{cap} s for a command")),
            (None, None) => parts.push("no time limit".to_owned()),
        }
        if let Some(idle) = limits.idle_timeout_seconds {
            parts.push(format!("{idle} s without output"));
        }
        let resources = &limits.resources;
        if let Some(bytes) = resources.memory_bytes {
            parts.push(format!("{} MiB of memory", bytes / (1024 * 1024)));
        }
        if let Some(tasks) = resources.tasks {
            parts.push(format!("{tasks} processes"));
        }
        if let Some(seconds) = resources.cpu_seconds {
            parts.push(format!("{seconds} s of processor time"));
        }
        parts.push(format!(
            "the last {} characters of output in a result",
            limits.output_characters
        ));
        let _ = writeln!(text, "Limits: {}.", parts.join(", "));
    }
}

/// What may be written, read, and not seen, by a plan.
#[derive(Debug, Default)]
struct Paths {
    writable: Vec<BytePath>,
    readable: Vec<BytePath>,
    hidden: Vec<BytePath>,
}

impl Paths {
    fn of(spec: &EnclosureSpec) -> Self {
        let mut paths = Self::default();
        if spec.provider == ProviderKind::Direct {
            paths.writable.push(spec.workspace.clone());
            paths.writable.push(BytePath::from("/"));
            return paths;
        }
        let has_view = spec.enforced_by.contains(&Mechanism::MountNamespace)
            || spec.provider == ProviderKind::Memory;
        if has_view {
            for mount in &spec.mounts {
                match mount {
                    Mount::Bind { target, access, .. } => match access {
                        Access::Write => paths.writable.push(target.clone()),
                        Access::Read => paths.readable.push(target.clone()),
                    },
                    Mount::Temporary { target, .. } => paths.writable.push(target.clone()),
                    Mount::Mask { target, .. } => paths.hidden.push(target.clone()),
                    Mount::ReadOnly { target } => paths.writable.retain(|one| one != target),
                    Mount::Directory { .. }
                    | Mount::Symlink { .. }
                    | Mount::Content { .. }
                    | Mount::Proc { .. }
                    | Mount::Devices { .. } => {}
                }
            }
        } else {
            for rule in &spec.landlock.paths {
                match rule.access {
                    PathAccess::Write => paths.writable.push(rule.path.clone()),
                    PathAccess::Read | PathAccess::ReadExecute => {
                        paths.readable.push(rule.path.clone());
                    }
                    PathAccess::List | PathAccess::Device => {}
                }
            }
        }
        paths.writable = outermost(paths.writable, &spec.workspace);
        paths.readable = outermost(paths.readable, &spec.workspace);
        // A single file that is shown within a directory that may be read says nothing more.
        let readable = std::mem::take(&mut paths.readable);
        let is_below = |path: &BytePath| paths.writable.iter().any(|top| path.is_within(top));
        paths.readable = readable
            .into_iter()
            .filter(|path| !is_below(path))
            .collect();
        paths
    }
}

/// Leaves out what lies below another one, puts the workspace first, and sorts the rest.
fn outermost(paths: Vec<BytePath>, workspace: &BytePath) -> Vec<BytePath> {
    let sorted: BTreeSet<BytePath> = paths.into_iter().collect();
    let mut kept: Vec<BytePath> = Vec::new();
    for path in sorted {
        let is_below = kept.iter().any(|top| path.is_within(top));
        if !is_below || path == *workspace {
            kept.push(path);
        }
    }
    kept.sort_by_key(|path| path != workspace);
    kept
}

/// Joins a few, and says how many there are besides.
fn joined(parts: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let count = parts.len();
    if count == 0 {
        return "nothing".to_owned();
    }
    let mut text = parts.take(most).collect::<Vec<_>>().join(", ");
    if count > most {
        let _ = write!(text, " and {} more", count - most);
    }
    text
}

const fn mechanism(one: Mechanism) -> &'static str {
    match one {
        Mechanism::UserNamespace => "a user namespace",
        Mechanism::MountNamespace => "a mount namespace",
        Mechanism::PidNamespace => "a process namespace",
        Mechanism::NetworkNamespace => "a network namespace",
        Mechanism::OtherNamespaces => "IPC, UTS and cgroup namespaces",
        Mechanism::Landlock => "Landlock",
        Mechanism::Seccomp => "seccomp",
        Mechanism::NoNewPrivileges => "no_new_privs",
        Mechanism::Cgroup => "control groups",
        Mechanism::ContainerEngine => "a container engine without capabilities",
        Mechanism::Rlimit => "resource limits",
        Mechanism::SnapshotUndo => "undoing of changes to protected names",
        Mechanism::Supervisor => "a supervisor",
        Mechanism::EgressProxy => "a proxy",
    }
}

fn word(one: Mechanism) -> String {
    mechanism(one).to_owned()
}
