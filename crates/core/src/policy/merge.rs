//! Laying the layers: owners override up to the ceiling, project and request only narrow.

use std::str::FromStr;

use super::check::check_document;
use super::document::{EnvironmentDocument, PolicyDocument, ProviderChoice};
use super::effective::{EffectivePolicy, Layer, Sourced};
use super::hosts::HostEntry;
use super::narrow::narrow;
use super::reviewer::Reviewer;
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::ports::PublishRule;

/// For each field, what narrower means; the words of the published table.
pub const NARROWING: &[(&str, &str)] = &[
    (
        "provider",
        "one that enforces a superset: direct < landlock < bwrap = auto",
    ),
    ("fallback", "fewer providers"),
    ("network", "none < restricted < full"),
    (
        "network_allow",
        "fewer hosts; a project file only proposes others",
    ),
    ("network_deny", "more hosts"),
    (
        "network_rules",
        "more rules: each layer but the owner's two must let a request through by itself",
    ),
    (
        "secrets",
        "neither: a project file or a request names none, nor where one is found",
    ),
    ("workspace", "read < write"),
    (
        "read",
        "only paths at or below those that could be read or written already",
    ),
    (
        "write",
        "only paths at or below those that could be written already",
    ),
    ("deny_read", "more paths"),
    ("protect", "more names"),
    ("env.inherit", "none < listed < all"),
    ("env.allow", "fewer names"),
    ("env.set", "neither: it holds inside the walls only"),
    ("caches", "none < read_only < private"),
    ("limits", "a smaller number; no number is the largest"),
    ("allow", "false < true, fewer paths"),
    ("reach", "fewer addresses; a project file only proposes"),
    ("publish", "fewer ports; a project file only proposes"),
    (
        "setup",
        "neither, it runs inside the walls; a request may not set it",
    ),
    (
        "commands",
        "more rules that ask or deny; a project file only proposes what allows",
    ),
    (
        "permission",
        "readonly < approval < auto_approval < unrestricted",
    ),
    (
        "reviewer",
        "neither: a managed one stays, a project file or a request names none",
    ),
];

/// A document and the layer that it is.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerDocument {
    /// Which layer.
    pub layer: Layer,
    /// What it says.
    pub document: PolicyDocument,
}

impl LayerDocument {
    /// Joins both.
    pub const fn new(layer: Layer, document: PolicyDocument) -> Self {
        Self { layer, document }
    }
}

/// Lays the layers over `base`, in the order of [`Layer`] whatever their order in the slice.
///
/// # Errors
///
/// `policy_widening` when an owner's layer goes beyond the managed one or a request beyond anything;
/// `unsupported_field`, `policy_contradiction` and `policy_invalid_value` as [`check_document`] says.
/// A project file that would widen is no error: what it wants stands in
/// [`EffectivePolicy::proposals`] and is not followed.
pub fn merge(base: EffectivePolicy, layers: &[LayerDocument]) -> Result<EffectivePolicy, Problem> {
    let mut ordered: Vec<&LayerDocument> = layers.iter().collect();
    ordered.sort_by_key(|layer| layer.layer);
    for layer in &ordered {
        check_document(&layer.document, layer.layer)?;
    }
    let mut policy = base;
    let managed = ordered.iter().filter(|one| one.layer == Layer::Managed);
    for layer in managed.clone() {
        lower(&mut policy, &layer.document);
    }
    for layer in &ordered {
        if matches!(layer.layer, Layer::User | Layer::CommandLine) {
            override_with(&mut policy, &layer.document, layer.layer);
        }
    }
    for layer in managed {
        let mut wider = Vec::new();
        hold_ceiling(&policy, &layer.document, &mut wider);
        if let Some(first) = wider.into_iter().next() {
            return Err(Problem::new(
                ErrorCode::PolicyWidening,
                format!("{} goes beyond the managed policy: {}", first.0, first.1),
            )
            .with_field(first.0)
            .with_hint(
                "ask whoever manages this machine; the ceiling is /etc/cofferdam/policy.toml",
            ));
        }
    }
    for layer in &ordered {
        if layer.layer.only_narrows() {
            let beyond = narrow(&mut policy, &layer.document, layer.layer);
            if layer.layer == Layer::Project {
                policy.proposals.extend(beyond);
            } else if let Some(first) = beyond.into_iter().next() {
                return Err(Problem::new(
                    ErrorCode::PolicyWidening,
                    format!(
                        "a request may only narrow: {}: {}",
                        first.field, first.reason
                    ),
                )
                .with_field(first.field)
                .with_hint("the owner may allow it on the command line or in the user's policy"));
            }
        }
    }
    check_secrets(&policy)?;
    policy.lock_execution();
    Ok(policy)
}

/// Refuses a variable for a secret that there is not.
fn check_secrets(policy: &EffectivePolicy) -> Result<(), Problem> {
    for (variable, secret) in &policy.env.secrets {
        if !policy.secrets.contains_key(&secret.value) {
            return Err(Problem::new(
                ErrorCode::PolicyInvalidValue,
                format!(
                    "env.secrets.{variable} names the secret {:?}, and there is none",
                    secret.value
                ),
            )
            .with_field("env.secrets")
            .with_hint("say in secrets.NAME where it is found and which hosts are told it"));
        }
    }
    Ok(())
}

/// How much a provider enforces; `None` where it cannot be compared.
pub(super) const fn strength(choice: ProviderChoice) -> Option<u8> {
    match choice {
        ProviderChoice::Direct => Some(0),
        ProviderChoice::Landlock => Some(1),
        ProviderChoice::Auto | ProviderChoice::Bwrap => Some(2),
        ProviderChoice::Container | ProviderChoice::Microvm | ProviderChoice::Memory => None,
    }
}

pub(super) fn is_at_least(new: ProviderChoice, old: ProviderChoice) -> bool {
    new == old
        || strength(new)
            .zip(strength(old))
            .is_some_and(|(new, old)| new >= old)
}

pub(super) fn is_subset<T: PartialEq>(new: &[T], old: &[T]) -> bool {
    new.iter().all(|one| old.contains(one))
}

/// Appends what is not there yet, so that laying a layer twice changes nothing.
pub(super) fn add<T: PartialEq + Clone>(
    list: &mut Vec<Sourced<T>>,
    more: Option<&Vec<T>>,
    layer: Layer,
) {
    for value in more.into_iter().flatten() {
        if !list.iter().any(|one| one.value == *value) {
            list.push(Sourced::new(value.clone(), layer));
        }
    }
}

/// Appends what the layer itself has not said yet: that another one says the same is no reason to
/// leave it out.
pub(super) fn add_own<T: PartialEq + Clone>(
    list: &mut Vec<Sourced<T>>,
    more: Option<&Vec<T>>,
    layer: Layer,
) {
    for value in more.into_iter().flatten() {
        let value = Sourced::new(value.clone(), layer);
        if !list.contains(&value) {
            list.push(value);
        }
    }
}

/// Reads values that were checked with the document.
pub(super) fn parsed<T: FromStr>(list: Option<&Vec<String>>) -> Option<Vec<T>> {
    list.map(|list| list.iter().filter_map(|text| text.parse().ok()).collect())
}

/// Tells whether rules allow what another one opens.
pub(super) fn publishes(allowed: &[PublishRule], wanted: PublishRule) -> bool {
    allowed.contains(&wanted) || allowed.contains(&PublishRule::Auto)
}

fn set<T: Clone>(place: &mut Sourced<T>, value: Option<&T>, layer: Layer) {
    if let Some(value) = value {
        *place = Sourced::new(value.clone(), layer);
    }
}

fn set_limit<T: Copy>(place: &mut Option<Sourced<T>>, value: Option<T>, layer: Layer) {
    if let Some(value) = value {
        *place = Some(Sourced::new(value, layer));
    }
}

/// Lets an owner's layer replace values and add to lists.
fn override_with(policy: &mut EffectivePolicy, document: &PolicyDocument, layer: Layer) {
    set(&mut policy.provider, document.provider.as_ref(), layer);
    set(&mut policy.fallback, document.fallback.as_ref(), layer);
    set(&mut policy.network, document.network.as_ref(), layer);
    if document.network_allow.as_ref().is_some_and(Vec::is_empty) {
        // Empty is nothing, what is allowed by default included.
        policy.network_allow.clear();
    }
    let hosts = parsed(document.network_allow.as_ref());
    add(&mut policy.network_allow, hosts.as_ref(), layer);
    let hosts = parsed(document.network_deny.as_ref());
    add(&mut policy.network_deny, hosts.as_ref(), layer);
    let rules = document.network_rules.as_ref();
    add_own(&mut policy.network_rules, rules, layer);
    for (name, secret) in document.secrets.iter().flatten() {
        let secret = Sourced::new(secret.clone(), layer);
        policy.secrets.insert(name.clone(), secret);
    }
    set(&mut policy.workspace, document.workspace.as_ref(), layer);
    set(&mut policy.caches, document.caches.as_ref(), layer);
    set(&mut policy.setup, document.setup.as_ref(), layer);
    set(&mut policy.permission, document.permission.as_ref(), layer);
    let is_managed = |one: &Sourced<Reviewer>| one.layer == Layer::Managed;
    if let Some(reviewer) = &document.reviewer
        && !policy.reviewer.as_ref().is_some_and(is_managed)
    {
        policy.reviewer = Some(Sourced::new(reviewer.clone(), layer));
    }
    add(&mut policy.read, document.read.as_ref(), layer);
    add(&mut policy.write, document.write.as_ref(), layer);
    add(&mut policy.deny_read, document.deny_read.as_ref(), layer);
    add(&mut policy.protect, document.protect.as_ref(), layer);
    add(&mut policy.commands, document.commands.as_ref(), layer);
    let reach = parsed(document.reach.as_ref());
    add(&mut policy.reach, reach.as_ref(), layer);
    let publish = parsed(document.publish.as_ref());
    add(&mut policy.publish, publish.as_ref(), layer);
    if let Some(env) = &document.env {
        set(&mut policy.env.inherit, env.inherit.as_ref(), layer);
        add(&mut policy.env.allow, env.allow.as_ref(), layer);
        for (name, value) in env.set.iter().flatten() {
            let value = Sourced::new(value.clone(), layer);
            policy.env.set.insert(name.clone(), value);
        }
        for (name, secret) in env.secrets.iter().flatten() {
            let secret = Sourced::new(secret.clone(), layer);
            policy.env.secrets.insert(name.clone(), secret);
        }
    }
    if let Some(limits) = &document.limits {
        set_limit(&mut policy.limits.memory, limits.memory, layer);
        set_limit(&mut policy.limits.tasks, limits.tasks, layer);
        set_limit(&mut policy.limits.cpu, limits.cpu, layer);
        set_limit(&mut policy.limits.open_files, limits.open_files, layer);
        set_limit(&mut policy.limits.wall, limits.wall, layer);
        set_limit(&mut policy.limits.idle, limits.idle, layer);
        set_limit(&mut policy.limits.output, limits.output, layer);
        set_limit(&mut policy.limits.files, limits.files, layer);
    }
    if let Some(allow) = &document.allow {
        let own = &mut policy.allow;
        set(
            &mut own.nested_sandbox,
            allow.nested_sandbox.as_ref(),
            layer,
        );
        set(&mut own.ptrace, allow.ptrace.as_ref(), layer);
        set(&mut own.signal_peers, allow.signal_peers.as_ref(), layer);
        add(&mut own.sockets, allow.sockets.as_ref(), layer);
    }
}

/// Lowers the defaults to the managed ceiling and adds what it demands; it grants nothing.
fn lower(policy: &mut EffectivePolicy, document: &PolicyDocument) {
    let demands = PolicyDocument {
        // A ceiling that lists paths or names grants none of them.
        network_allow: None,
        read: None,
        write: None,
        setup: None,
        reviewer: None,
        fallback: None,
        reach: None,
        publish: None,
        env: document
            .env
            .clone()
            .map(|env| EnvironmentDocument { allow: None, ..env }),
        allow: None,
        ..document.clone()
    };
    // What the ceiling has wider than the default stays at the default: nobody asked for it.
    let _ = narrow(policy, &demands, Layer::Managed);
    if let Some(hosts) = parsed(document.network_allow.as_ref()) {
        policy.network_ceiling = Some(Sourced::new(hosts, Layer::Managed));
    }
    if let Some(reviewer) = &document.reviewer {
        policy.reviewer = Some(Sourced::new(reviewer.clone(), Layer::Managed));
    }
    if let Some(providers) = document
        .require
        .as_ref()
        .and_then(|one| one.providers.as_ref())
    {
        policy.required_providers = Some(Sourced::new(providers.clone(), Layer::Managed));
    }
}

/// Collects what of a policy lies beyond a managed document.
fn hold_ceiling(
    policy: &EffectivePolicy,
    ceiling: &PolicyDocument,
    wider: &mut Vec<(&'static str, String)>,
) {
    let mut say = |field, text: String| wider.push((field, text));
    if let Some(most) = ceiling.provider
        && !is_at_least(policy.provider.value, most)
    {
        say("provider", format!("it wants at least {}", most.first()));
    }
    if let Some(most) = &ceiling.fallback
        && !is_subset(&policy.fallback.value, most)
    {
        say("fallback", "it names fewer providers".to_owned());
    }
    if let Some(most) = ceiling.network
        && policy.network.value > most
    {
        say("network", format!("it allows at most {}", most.as_str()));
    }
    if let Some(most) = parsed::<HostEntry>(ceiling.network_allow.as_ref())
        && let Some(host) = policy
            .network_allow
            .iter()
            .filter(|one| one.is_asked_for() && matches!(one.value, HostEntry::Rule(_)))
            .find(|one| !most.iter().any(|top| top.covers(&one.value)))
    {
        say("network_allow", format!("it does not allow {}", host.value));
    }
    if let Some(most) = ceiling.workspace
        && policy.workspace.value > most
    {
        say("workspace", "it allows reading only".to_owned());
    }
    let outside = |paths: &[Sourced<BytePath>], most: &[BytePath]| {
        paths
            .iter()
            .find(|path| !most.iter().any(|top| path.value.is_within(top)))
            .map(|path| path.value.to_string())
    };
    if let Some(most) = &ceiling.read
        && let Some(path) = outside(&policy.read, most)
    {
        say("read", format!("it does not allow {path}"));
    }
    if let Some(most) = &ceiling.write
        && let Some(path) = outside(&policy.write, most)
    {
        say("write", format!("it does not allow {path}"));
    }
    if let Some(most) = ceiling.caches
        && policy.caches.value > most
    {
        say("caches", "it allows less".to_owned());
    }
    if let Some(most) = parsed(ceiling.reach.as_ref())
        && let Some(over) = policy.reach.iter().find(|one| !most.contains(&one.value))
    {
        say("reach", format!("it does not allow {}", over.value));
    }
    if let Some(most) = parsed(ceiling.publish.as_ref())
        && let Some(over) = policy
            .publish
            .iter()
            .find(|one| !publishes(&most, one.value))
    {
        say("publish", format!("it does not allow {}", over.value));
    }
    if let Some(most) = ceiling.permission
        && policy.permission.value > most
    {
        say("permission", "it asks more".to_owned());
    }
    if let Some(env) = &ceiling.env {
        if env
            .inherit
            .is_some_and(|most| policy.env.inherit.value > most)
        {
            say("env.inherit", "it inherits less".to_owned());
        }
        if let Some(most) = &env.allow
            && let Some(name) = policy
                .env
                .allow
                .iter()
                .find(|one| !most.contains(&one.value))
        {
            say("env.allow", format!("it does not allow {}", name.value));
        }
    }
    if let Some(limits) = &ceiling.limits {
        let own = &policy.limits;
        let over = |field, over: bool| over.then_some(field);
        wider.extend(
            [
                over("limits.memory", exceeds(own.memory, limits.memory)),
                over("limits.tasks", exceeds(own.tasks, limits.tasks)),
                over("limits.cpu", exceeds(own.cpu, limits.cpu)),
                over(
                    "limits.open_files",
                    exceeds(own.open_files, limits.open_files),
                ),
                over("limits.wall", exceeds(own.wall, limits.wall)),
                over("limits.idle", exceeds(own.idle, limits.idle)),
                over("limits.output", exceeds(own.output, limits.output)),
                over("limits.files", exceeds(own.files, limits.files)),
            ]
            .into_iter()
            .flatten()
            .map(|field| (field, "it has a smaller number".to_owned())),
        );
    }
    if let Some(allow) = &ceiling.allow {
        let own = &policy.allow;
        let mut over = |field, most: Option<bool>, own: bool| {
            if most == Some(false) && own {
                wider.push((field, "it says no".to_owned()));
            }
        };
        over(
            "allow.nested_sandbox",
            allow.nested_sandbox,
            own.nested_sandbox.value,
        );
        over("allow.ptrace", allow.ptrace, own.ptrace.value);
        over(
            "allow.signal_peers",
            allow.signal_peers,
            own.signal_peers.value,
        );
        if let Some(most) = &allow.sockets
            && own.sockets.iter().any(|one| !most.contains(&one.value))
        {
            wider.push(("allow.sockets", "it names fewer sockets".to_owned()));
        }
    }
}

fn exceeds<T: PartialOrd + Copy>(own: Option<Sourced<T>>, most: Option<T>) -> bool {
    most.is_some_and(|most| own.is_none_or(|own| own.value > most))
}
