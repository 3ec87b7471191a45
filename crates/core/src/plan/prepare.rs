//! From a policy to the plan of an enclosure.

use super::choose::choose_provider;
use super::egress::{egress, git_config};
use super::environment::{Surround, environment};
use super::mounts::mounts;
use super::protect::protections;
use super::reach::{Reach, Why, has_layers, reach, refuse_sockets};
use super::rules::landlock;
use super::view::WorkspaceView;
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::facts::HostFacts;
use crate::policy::{Caches, EffectivePolicy};
use crate::ports::PortPlan;
use crate::spec::{
    EnclosureSpec, Enforce, Gap, LandlockSpec, Mechanism, Mount, Network, ProviderKind,
    ResourceLimits, SeccompSpec, SocketFamilies,
};

/// The interface of Landlock from which signals and abstract sockets can be kept inside.
const SCOPES_SINCE: u32 = 6;

/// Where private places lie when root works for somebody else.
const SHARED_SCRATCH: &str = "/run/cofferdam/scratch";

/// Plans an enclosure. `scratch` is a directory that is made for it and removed with it.
///
/// # Errors
///
/// The wished provider's problem when it does not work here and nothing may take its place,
/// `unenforceable` for what it cannot hold, `policy_widening` for what the managed layer requires.
pub fn prepare(
    policy: &EffectivePolicy,
    view: &WorkspaceView,
    facts: &HostFacts,
    scratch: &BytePath,
) -> Result<EnclosureSpec, Problem> {
    // The caller's data directory is closed to everybody else.
    let scratch = &if facts.acts_for_another() {
        BytePath::from(SHARED_SCRATCH).join(scratch.file_name())
    } else {
        scratch.clone()
    };
    let decision = choose_provider(policy, facts)?;
    let provider = decision.provider;
    if !matches!(provider, ProviderKind::Direct | ProviderKind::Memory) {
        refuse_sockets(policy, facts)?;
    }
    let network = decision.network;
    let has_mounts = provider.has_view();
    let view = if has_mounts || provider == ProviderKind::Memory {
        view.clone()
    } else {
        view.in_place()
    };
    let egress = egress(policy, facts, provider, network);
    // Only who has a way out is told of it.
    let with_ways;
    let facts = match &egress {
        Some(egress) => {
            with_ways = HostFacts {
                git_config: git_config(egress, facts),
                ..facts.clone()
            };
            &with_ways
        }
        None => facts,
    };
    let reach = reach(policy, &view, facts, provider)?;
    if provider == ProviderKind::Landlock {
        refuse_holes(&reach)?;
    }
    let protections = protections(policy, &view, facts, provider);
    let scopes = facts.landlock_abi >= SCOPES_SINCE;
    let (steps, caches) = match provider {
        ProviderKind::Bwrap | ProviderKind::Container => {
            let out = (network, egress.as_ref());
            mounts(policy, &view, facts, &reach, &protections, out)
        }
        ProviderKind::Landlock | ProviderKind::Direct => {
            (private_places(provider, facts, scratch), Vec::new())
        }
        _ => (Vec::new(), Vec::new()),
    };
    let landlock = match provider {
        ProviderKind::Landlock => landlock(
            facts,
            &reach,
            network,
            !policy.allow.signal_peers.value,
            scratch,
        ),
        ProviderKind::Bwrap | ProviderKind::Container => LandlockSpec {
            paths: Vec::new(),
            deny_tcp: false,
            scope_signals: scopes && !policy.allow.signal_peers.value,
            scope_abstract_sockets: scopes,
        },
        _ => LandlockSpec::default(),
    };
    let seccomp = SeccompSpec {
        enabled: provider.has_view() || provider == ProviderKind::Landlock,
        sockets: match (provider, network) {
            (ProviderKind::Landlock, Network::Full) => SocketFamilies::HostPairs,
            (ProviderKind::Landlock, _) => SocketFamilies::PairsOnly,
            (
                ProviderKind::Bwrap | ProviderKind::Container,
                Network::None | Network::Restricted,
            ) => SocketFamilies::Namespaced,
            _ => SocketFamilies::Host,
        },
        nested_sandbox: policy.allow.nested_sandbox.value,
        ptrace: policy.allow.ptrace.value,
    };
    let mut gaps = gaps(policy, facts, &reach, provider, network);
    if !has_mounts && !protections.is_empty() {
        gaps.push(gap(
            "protected_names",
            "changes of protected names are undone, not prevented",
        ));
    }
    let ports = ports(policy, facts, (provider, network), &mut gaps)?;
    let limits = limits(policy);
    let enforced_by = mechanisms(
        provider,
        network,
        scopes,
        protections.iter().any(|one| one.enforce == Enforce::Undo),
        limits != ResourceLimits::default(),
    );
    Ok(EnclosureSpec {
        provider,
        program: facts
            .providers
            .iter()
            .find(|one| one.provider == provider)
            .and_then(|one| one.program.clone()),
        workspace: view.inside.clone(),
        workspace_source: view.source.clone(),
        identity: facts.owner.identity.clone(),
        // What is private stands in file systems of the view where there is one.
        scratch: if has_mounts || provider == ProviderKind::Memory {
            BytePath::default()
        } else {
            scratch.clone()
        },
        mounts: steps,
        caches,
        network,
        ports,
        landlock,
        seccomp,
        protections,
        environment: environment(
            policy,
            &view,
            facts,
            &Surround {
                reach: &reach,
                egress: egress.as_ref(),
                provider,
                scratch,
            },
        ),
        egress,
        limits,
        enforced_by,
        gaps,
    })
}

/// Landlock only adds: what is denied must not lie in what is allowed.
fn refuse_holes(reach: &Reach) -> Result<(), Problem> {
    let hole = reach.hidden.iter().find(|hidden| {
        hidden.why == Why::Denied
            && reach
                .grants
                .iter()
                .any(|grant| hidden.source.is_within(&grant.source))
    });
    let own = reach.hidden.iter().find(|hidden| {
        hidden.why == Why::OwnData
            && reach
                .grants
                .iter()
                .any(|grant| hidden.source.is_within(&grant.source))
    });
    if let Some(own) = own {
        return Err(Problem::new(
            ErrorCode::Unenforceable,
            format!(
                "landlock cannot hide the data directory {}, which lies inside of what is allowed",
                own.source
            ),
        )
        .with_hint("grant less, take it out of PATH, or choose --provider bwrap"));
    }
    match hole {
        Some(hidden) => Err(Problem::new(
            ErrorCode::Unenforceable,
            format!(
                "landlock cannot hold deny_read: {} lies inside of what is allowed",
                hidden.source
            ),
        )
        .with_field("deny_read")
        .with_hint("choose --provider bwrap")),
        None => Ok(()),
    }
}

/// Directories and files below the scratch directory, where there is no mount namespace.
fn private_places(provider: ProviderKind, facts: &HostFacts, scratch: &BytePath) -> Vec<Mount> {
    let directory = |name: &str| Mount::Directory {
        target: scratch.join(name),
        mode: 0o700,
    };
    let mut places = vec![directory("tmp")];
    if provider == ProviderKind::Landlock {
        places.push(directory("home"));
        if !facts.git_config.is_empty() {
            places.push(Mount::Content {
                target: scratch.join("gitconfig"),
                content: BytePath::from(facts.git_config.as_str()),
            });
        }
    }
    places
}

/// Plans what crosses the walls; where there is no network of its own, nothing has to.
fn ports(
    policy: &EffectivePolicy,
    facts: &HostFacts,
    (provider, network): (ProviderKind, Network),
    gaps: &mut Vec<Gap>,
) -> Result<PortPlan, Problem> {
    let known = |name: &str| -> Vec<std::net::IpAddr> {
        let names = facts.network.names.iter().filter(|one| one.name == name);
        names.map(|one| one.address).collect()
    };
    let reach = policy.reach.iter();
    let values = PortPlan {
        reach: reach
            .map(|one| one.value.resolved(known))
            .collect::<Result<_, _>>()?,
        publish: policy.publish.iter().map(|one| one.value).collect(),
    };
    let is_apart = match provider {
        ProviderKind::Direct | ProviderKind::Landlock => false,
        _ => network != Network::Full,
    };
    if is_apart {
        return Ok(values);
    }
    if !values.reach.is_empty() {
        let why = "the host's network is there: every address is reached, named or not";
        gaps.push(gap("reach", why));
    }
    if !values.publish.is_empty() {
        let why = "the host's network is there: every port is open outside, named or not";
        gaps.push(gap("publish", why));
    }
    Ok(PortPlan::default())
}

fn limits(policy: &EffectivePolicy) -> ResourceLimits {
    let own = &policy.limits;
    ResourceLimits {
        memory_bytes: own.memory.map(|one| one.value.0),
        tasks: own.tasks.map(|one| one.value),
        cpu_seconds: own.cpu.map(|one| one.value.get().ceil() as u64),
        open_files: own.open_files.map(|one| one.value),
        file_bytes: None,
        output_bytes: own.output.map(|one| one.value.0),
    }
}

fn mechanisms(
    provider: ProviderKind,
    network: Network,
    scopes: bool,
    undoes: bool,
    limited: bool,
) -> Vec<Mechanism> {
    let mut list = match provider {
        ProviderKind::Bwrap | ProviderKind::Container => {
            let own = match provider {
                ProviderKind::Bwrap => Mechanism::UserNamespace,
                _ => Mechanism::ContainerEngine,
            };
            let mut list = vec![
                own,
                Mechanism::MountNamespace,
                Mechanism::PidNamespace,
                Mechanism::OtherNamespaces,
                Mechanism::Seccomp,
                Mechanism::NoNewPrivileges,
                Mechanism::Supervisor,
            ];
            if network != Network::Full {
                list.push(Mechanism::NetworkNamespace);
            }
            if network == Network::Restricted {
                list.push(Mechanism::EgressProxy);
            }
            if scopes {
                list.push(Mechanism::Landlock);
            }
            list
        }
        ProviderKind::Landlock => vec![
            Mechanism::Landlock,
            Mechanism::Seccomp,
            Mechanism::NoNewPrivileges,
            Mechanism::Supervisor,
        ],
        ProviderKind::Direct => vec![Mechanism::Supervisor],
        _ => Vec::new(),
    };
    if undoes {
        list.push(Mechanism::SnapshotUndo);
    }
    if limited && provider != ProviderKind::Memory {
        list.push(Mechanism::Rlimit);
    }
    list.sort_unstable();
    list
}

fn gap(what: &str, why: impl Into<String>) -> Gap {
    Gap {
        what: what.to_owned(),
        why: why.into(),
    }
}

/// What Landlock would hold beside the namespaces.
fn without_scopes(network: Network) -> Vec<Gap> {
    let mut list = vec![gap(
        "supervisor_signals",
        "a command may end its own supervisor; the enclosure is then closed",
    )];
    if network == Network::Full {
        list.push(gap(
            "abstract_sockets",
            "abstract Unix sockets of the host are open",
        ));
    }
    list
}

fn gaps(
    policy: &EffectivePolicy,
    facts: &HostFacts,
    reach: &Reach,
    provider: ProviderKind,
    network: Network,
) -> Vec<Gap> {
    let mut list = reach.gaps.clone();
    match provider {
        ProviderKind::Direct => {
            list.push(gap(
                "no_walls",
                "direct confines nothing: every file can be reached",
            ));
            list.push(gap("network", "the host's network is reachable"));
        }
        ProviderKind::Landlock => {
            list.push(gap(
                "stat_outside",
                "existence and size of files outside can be seen",
            ));
            list.push(gap(
                "chmod_outside",
                "mode, times and attributes of own files outside can be changed",
            ));
            list.push(gap(
                "private_shm",
                "there is no shared memory of its own, so there is none",
            ));
            list.push(gap("pid_visibility", "processes of the host are listed"));
            list.push(gap(
                "unix_sockets",
                "Unix sockets are pairs only: this kernel's Landlock does not tell whose a socket is",
            ));
            if network == Network::None {
                list.push(gap(
                    "loopback",
                    "there is no loopback of its own, so there is none",
                ));
            }
            if facts.owner.identity.uid == 0 {
                list.push(gap(
                    "kernel_pages",
                    "root can open /proc/kpagecount and its like",
                ));
            }
            if reach.hidden.iter().any(|one| one.why == Why::EnvFile) {
                list.push(gap("env_files", ".env files of the workspace can be read"));
            }
        }
        ProviderKind::Bwrap | ProviderKind::Container if network == Network::Full => {
            list.push(gap(
                "unix_sockets",
                "with the host's network, sockets that programs of the host have in the workspace and in what may be written are not told from a command's own, and are reached",
            ));
            if facts.landlock_abi < SCOPES_SINCE {
                list.extend(without_scopes(network));
            }
        }
        ProviderKind::Bwrap | ProviderKind::Container if facts.landlock_abi < SCOPES_SINCE => {
            list.extend(without_scopes(network));
        }
        _ => {}
    }
    let is_walled = provider.has_view() || provider == ProviderKind::Landlock;
    if is_walled
        && policy.caches.value == Caches::Private
        && !has_layers(policy, facts, provider)
        && facts.toolchains.iter().any(|one| !one.caches.is_empty())
    {
        list.push(gap(
            "caches",
            "package caches have no layer of their own here: they can be read, not added to",
        ));
    }
    if !policy.secrets.is_empty() && (network == Network::Full || provider == ProviderKind::Direct)
    {
        list.push(gap(
            "secrets",
            "hosts are told no secrets, and their variables are not there: requests are seen with network = \"restricted\" only",
        ));
    }
    if policy.limits.memory.is_some() || policy.limits.cpu.is_some() {
        list.push(gap(
            "limits",
            "processor time, and memory where no control group can be made, are bounded for each process by itself: the result says which",
        ));
    }
    list
}
