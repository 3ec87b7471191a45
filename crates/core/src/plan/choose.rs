//! Which provider puts the walls up, and what it is refused for.

use crate::error::{ErrorCode, Problem};
use crate::facts::HostFacts;
use crate::policy::{EffectivePolicy, ProviderChoice, Sourced};
use crate::spec::{Access, Enforce, Network, ProviderKind};

/// The provider in effect and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderDecision {
    /// The provider in effect.
    pub provider: ProviderKind,
    /// The network level in effect.
    pub network: Network,
    /// Why the one that was wished for is not it; `None` when it is.
    pub fell_back: Option<Problem>,
}

/// Chooses the provider: the wished one, or the first of `fallback` that works here.
///
/// # Errors
///
/// The wished provider's own problem when nothing else is allowed, `unenforceable` when the provider
/// in effect cannot hold what somebody asked for.
pub fn choose_provider(
    policy: &EffectivePolicy,
    facts: &HostFacts,
) -> Result<ProviderDecision, Problem> {
    let wished = policy.provider.value.first();
    let mut first_problem = None;
    let candidates = std::iter::once(wished).chain(policy.fallback.value.iter().copied());
    for candidate in candidates {
        if let Some(problem) = unavailable(candidate, facts) {
            first_problem.get_or_insert(problem);
            continue;
        }
        check_required(policy, candidate)?;
        check_enforceable(policy, candidate, facts)?;
        return Ok(ProviderDecision {
            provider: candidate,
            network: effective_network(policy, candidate),
            fell_back: first_problem,
        });
    }
    Err(first_problem.map_or_else(
        || Problem::new(ErrorCode::ProviderUnavailable, "no provider is named"),
        |problem| with_way_out(problem, policy, facts),
    ))
}

/// Gives the reason for which a provider cannot be used here.
fn unavailable(kind: ProviderKind, facts: &HostFacts) -> Option<Problem> {
    match facts.providers.iter().find(|one| one.provider == kind) {
        Some(found) => found.problem.clone(),
        None if matches!(kind, ProviderKind::Direct | ProviderKind::Memory) => None,
        None => Some(Problem::new(
            ErrorCode::ProviderUnavailable,
            format!("this version has no provider {kind}"),
        )),
    }
}

/// Adds what the owner may do when the hint of the problem does not help.
fn with_way_out(mut problem: Problem, policy: &EffectivePolicy, facts: &HostFacts) -> Problem {
    let landlock_works = unavailable(ProviderKind::Landlock, facts).is_none();
    let wished = policy.provider.value.first();
    if wished == ProviderKind::Bwrap && landlock_works && policy.fallback.value.is_empty() {
        let way = "landlock works here: choose it with --provider landlock, or accept it once with \
                   cofferdam doctor --accept";
        problem.hint = Some(match problem.hint {
            Some(hint) => format!("{hint}; {way}"),
            None => way.to_owned(),
        });
    }
    problem
}

fn check_required(policy: &EffectivePolicy, kind: ProviderKind) -> Result<(), Problem> {
    match &policy.required_providers {
        Some(required) if !required.value.contains(&kind) => {
            let names: Vec<_> = required.value.iter().map(|one| one.as_str()).collect();
            Err(Problem::new(
                ErrorCode::PolicyWidening,
                format!(
                    "the managed policy requires {}, {kind} would be in effect",
                    names.join(" or ")
                ),
            )
            .with_field("require.providers"))
        }
        _ => Ok(()),
    }
}

fn effective_network(policy: &EffectivePolicy, kind: ProviderKind) -> Network {
    match kind {
        // Nobody asked for less, see the check.
        ProviderKind::Direct => Network::Full,
        _ => policy.network.value,
    }
}

fn unenforceable(kind: ProviderKind, field: &str, why: impl std::fmt::Display) -> Problem {
    Problem::new(
        ErrorCode::Unenforceable,
        format!("{kind} cannot hold {field}: {why}"),
    )
    .with_field(field)
}

fn check_enforceable(
    policy: &EffectivePolicy,
    kind: ProviderKind,
    facts: &HostFacts,
) -> Result<(), Problem> {
    if !policy.network_deny.is_empty() && effective_network(policy, kind) == Network::Full {
        return Err(Problem::new(
            ErrorCode::UnsupportedField,
            "hosts cannot be denied where the network is the host's",
        )
        .with_field("network_deny")
        .with_hint("choose --net restricted with --provider bwrap, or leave the list out"));
    }
    if !policy.network_rules.is_empty() && effective_network(policy, kind) == Network::Full {
        return Err(Problem::new(
            ErrorCode::UnsupportedField,
            "requests are not seen where the network is the host's",
        )
        .with_field("network_rules")
        .with_hint("choose --net restricted with --provider bwrap, or leave the rules out"));
    }
    match kind {
        ProviderKind::Direct => check_direct(policy),
        ProviderKind::Landlock => check_landlock(policy, facts),
        ProviderKind::Bwrap => check_bwrap(policy, facts),
        ProviderKind::Container => check_container(policy),
        ProviderKind::Microvm | ProviderKind::Memory => Ok(()),
    }
}

fn check_direct(policy: &EffectivePolicy) -> Result<(), Problem> {
    let kind = ProviderKind::Direct;
    let hint = "choose --provider bwrap, or leave the restriction out";
    let no_walls = "it has no walls";
    if policy.network.is_asked_for() && policy.network.value != Network::Full {
        let level = format!("network = \"{}\"", policy.network.value.as_str());
        let problem = Problem::new(
            ErrorCode::Unenforceable,
            format!("{kind} cannot hold {level}: {no_walls}"),
        );
        return Err(problem.with_field("network").with_hint(hint));
    }
    let fields: [(&str, bool); 5] = [
        (
            "workspace",
            policy.workspace.is_asked_for() && policy.workspace.value == Access::Read,
        ),
        ("deny_read", !policy.deny_read.is_empty()),
        ("read", !policy.read.is_empty()),
        ("protect", has_strong_rule(policy, Enforce::Report)),
        ("limits.tasks", policy.limits.tasks.is_some()),
    ];
    for (field, asked) in fields {
        if asked {
            return Err(unenforceable(kind, field, no_walls).with_hint(hint));
        }
    }
    Ok(())
}

/// Tells whether a rule of the owner wants more than `most`.
fn has_strong_rule(policy: &EffectivePolicy, most: Enforce) -> bool {
    policy.protect.iter().any(|rule| rule.value.enforce > most)
}

fn check_landlock(policy: &EffectivePolicy, facts: &HostFacts) -> Result<(), Problem> {
    let kind = ProviderKind::Landlock;
    if policy.network.value == Network::Restricted {
        return Err(unenforceable(
            kind,
            "network",
            "restricted needs a network of its own, port rules hold for every address",
        )
        .with_hint("choose --net none or --net full, or --provider bwrap"));
    }
    let crossings = [
        ("reach", policy.reach.is_empty()),
        ("publish", policy.publish.is_empty()),
    ];
    for (field, empty) in crossings {
        if policy.network.value != Network::Full && !empty {
            return Err(
                unenforceable(kind, field, "it gives no loopback, only no sockets at all")
                    .with_hint("choose --provider bwrap, or --net full, which needs neither"),
            );
        }
    }
    // A rule of Landlock cannot be taken back below an allowed directory.
    if let Some(denied) = policy
        .deny_read
        .iter()
        .find(|one| denies_inside(one, policy, facts))
    {
        return Err(unenforceable(
            kind,
            "deny_read",
            format!("{} lies inside of what is allowed", denied.value),
        )
        .with_hint("choose --provider bwrap, or keep the file outside of the workspace"));
    }
    if has_strong_rule(policy, Enforce::Undo) {
        return Err(
            unenforceable(kind, "protect", "it can undo a change, not prevent it")
                .with_hint("say enforce = \"undo\", or choose --provider bwrap"),
        );
    }
    if !policy.allow.sockets.is_empty() {
        return Err(unenforceable(
            kind,
            "allow.sockets",
            "it cannot tell one Unix socket from another",
        )
        .with_hint("choose --provider bwrap"));
    }
    if policy.limits.tasks.is_some() {
        return Err(unenforceable(
            kind,
            "limits.tasks",
            "the bound would count every process of the user",
        )
        .with_hint("choose --provider bwrap"));
    }
    Ok(())
}

/// Tells whether a denied path lies at or below something that is shown.
fn denies_inside(
    denied: &Sourced<crate::bytes::BytePath>,
    policy: &EffectivePolicy,
    facts: &HostFacts,
) -> bool {
    let absolute = |written: &crate::bytes::BytePath| {
        facts
            .paths
            .iter()
            .find(|fact| fact.written == *written)
            .map(|fact| fact.path.clone())
    };
    // A pattern speaks about the workspace.
    let Some(path) = absolute(&denied.value) else {
        return true;
    };
    let granted = policy.read.iter().chain(&policy.write);
    granted
        .filter_map(|one| absolute(&one.value))
        .chain(facts.system.iter().map(|one| one.path.clone()))
        .chain(facts.toolchains.iter().flat_map(|one| one.read.clone()))
        .chain(facts.toolchains.iter().flat_map(|one| one.caches.clone()))
        .chain([facts.workspace.root.clone()])
        .any(|top| path.is_within(&top))
}

fn check_bwrap(policy: &EffectivePolicy, facts: &HostFacts) -> Result<(), Problem> {
    if policy.limits.tasks.is_some() && facts.owner.identity.uid == 0 {
        return Err(unenforceable(
            ProviderKind::Bwrap,
            "limits.tasks",
            "the kernel does not bound the number of root's processes without a control group",
        )
        .with_hint("run as an ordinary user, or leave the limit out"));
    }
    Ok(())
}

fn check_container(policy: &EffectivePolicy) -> Result<(), Problem> {
    if policy.allow.nested_sandbox.value {
        return Err(unenforceable(
            ProviderKind::Container,
            "allow.nested_sandbox",
            "the engine's own filter refuses namespaces inside",
        )
        .with_hint("choose --provider bwrap"));
    }
    Ok(())
}

impl ProviderDecision {
    /// Tells whether another provider than the wished one is in effect.
    pub fn is_fallback(&self, wished: ProviderChoice) -> bool {
        wished.first() != self.provider
    }
}
