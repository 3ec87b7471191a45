//! Layers that may only narrow: what would widen is left out and told.

use serde::Serialize;

use super::document::{CommandDecision, PolicyDocument, ProviderChoice};
use super::effective::{EffectivePolicy, Layer, Proposal, Sourced};
use super::hosts::HostEntry;
use super::merge::{add, add_own, is_at_least, is_subset, parsed, publishes};
use crate::bytes::BytePath;
use crate::spec::{Access, ProviderKind};

/// Why variables and set-up commands of a project are not taken over by `direct`.
const WITHOUT_WALLS: &str = "it would hold on the host itself, direct has no walls";

struct Narrower<'a> {
    layer: Layer,
    beyond: &'a mut Vec<Proposal>,
}

impl Narrower<'_> {
    fn refuse(&mut self, field: &str, value: &impl Serialize, reason: impl Into<String>) {
        self.beyond.push(Proposal {
            field: field.to_owned(),
            value: serde_json::to_string(value).unwrap_or_default(),
            reason: reason.into(),
        });
    }

    /// Takes a value that is not above the present one.
    fn lower<T: PartialOrd + Copy + Serialize>(
        &mut self,
        field: &str,
        place: &mut Sourced<T>,
        value: Option<T>,
    ) {
        let Some(value) = value else { return };
        if value <= place.value {
            *place = Sourced::new(value, self.layer);
        } else {
            self.refuse(field, &value, "wider than what is in effect");
        }
    }

    /// Takes a bound that is not above the present one; no bound is the largest.
    fn bound<T: PartialOrd + Copy + Serialize>(
        &mut self,
        field: &str,
        place: &mut Option<Sourced<T>>,
        value: Option<T>,
    ) {
        let Some(value) = value else { return };
        if place.is_none_or(|present| value <= present.value) {
            *place = Some(Sourced::new(value, self.layer));
        } else {
            self.refuse(field, &value, "larger than what is in effect");
        }
    }

    /// Takes a list of which every entry is there already; the rest is told.
    fn subset<T: PartialEq + Clone + Serialize>(
        &mut self,
        field: &str,
        place: &mut Vec<Sourced<T>>,
        wanted: Option<&Vec<T>>,
    ) {
        let Some(wanted) = wanted else { return };
        let (kept, beyond): (Vec<_>, Vec<_>) = wanted
            .iter()
            .cloned()
            .partition(|value| place.iter().any(|one| one.value == *value));
        *place = kept
            .into_iter()
            .map(|value| Sourced::new(value, self.layer))
            .collect();
        for value in beyond {
            self.refuse(field, &value, "not among what is allowed");
        }
    }

    /// Takes what may cross the walls. A project file only proposes: what it does not name is none of
    /// its business. A request keeps what it names and may have.
    fn crossings<T: Clone + Serialize>(
        &mut self,
        field: &str,
        place: &mut Vec<Sourced<T>>,
        wanted: Option<Vec<T>>,
        allows: impl Fn(&[T], &T) -> bool,
    ) {
        let Some(wanted) = wanted else { return };
        let allowed = values(place);
        let (kept, beyond): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|one| allows(&allowed, one));
        if self.layer != Layer::Project {
            *place = kept
                .into_iter()
                .map(|value| Sourced::new(value, self.layer))
                .collect();
        }
        for value in beyond {
            self.refuse(field, &value, "only the owner may open the walls");
        }
    }

    /// Takes hosts that what is allowed covers; the rest is told.
    fn hosts(&mut self, place: &mut Vec<Sourced<HostEntry>>, wanted: Option<&Vec<String>>) {
        let Some(wanted) = parsed::<HostEntry>(wanted) else {
            return;
        };
        let (kept, beyond): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .partition(|host| place.iter().any(|one| one.value.covers(host)));
        // Who wants more than there is takes nothing away by saying so.
        if beyond.is_empty() {
            *place = kept
                .into_iter()
                .map(|host| Sourced::new(host, self.layer))
                .collect();
        }
        for host in beyond {
            self.refuse(
                "network_allow",
                &host,
                "not among the hosts that are allowed",
            );
        }
    }

    /// Takes paths that lie at or below a top that was allowed.
    fn paths(
        &mut self,
        field: &str,
        place: &mut Vec<Sourced<BytePath>>,
        wanted: Option<&Vec<BytePath>>,
        tops: &[BytePath],
        workspace: bool,
    ) {
        let Some(wanted) = wanted else { return };
        let mut kept = Vec::new();
        for path in wanted {
            let inside = workspace && is_below_workspace(path);
            if inside || tops.iter().any(|top| path.is_within(top)) {
                kept.push(Sourced::new(path.clone(), self.layer));
            } else {
                self.refuse(field, path, "outside of what is allowed");
            }
        }
        *place = kept;
    }
}

/// Tells whether a path of a policy is relative, and so lies in the workspace.
fn is_below_workspace(path: &BytePath) -> bool {
    let bytes = path.as_bytes();
    !path.is_absolute() && bytes != b"~" && !bytes.starts_with(b"~/")
}

fn values<T: Clone>(list: &[Sourced<T>]) -> Vec<T> {
    list.iter().map(|one| one.value.clone()).collect()
}

/// Narrows a policy by a document and gives what was not followed because it would widen.
pub(super) fn narrow(
    policy: &mut EffectivePolicy,
    document: &PolicyDocument,
    layer: Layer,
) -> Vec<Proposal> {
    let mut beyond = Vec::new();
    let mut narrower = Narrower {
        layer,
        beyond: &mut beyond,
    };
    if let Some(choice) = document.provider {
        if is_at_least(choice, policy.provider.value) {
            policy.provider = Sourced::new(choice, layer);
        } else {
            narrower.refuse(
                "provider",
                &choice,
                "enforces less than the one in effect, or cannot be compared with it",
            );
        }
    }
    if let Some(fallback) = &document.fallback {
        if is_subset(fallback, &policy.fallback.value) {
            policy.fallback = Sourced::new(fallback.clone(), layer);
        } else {
            narrower.refuse("fallback", fallback, "names a provider that is not allowed");
        }
    }
    narrower.lower("network", &mut policy.network, document.network);
    narrower.hosts(&mut policy.network_allow, document.network_allow.as_ref());
    let denied = parsed(document.network_deny.as_ref());
    add(&mut policy.network_deny, denied.as_ref(), layer);
    let rules = document.network_rules.as_ref();
    add_own(&mut policy.network_rules, rules, layer);
    for name in document.secrets.iter().flatten().map(|(name, _)| name) {
        narrower.refuse("secrets", name, "only the owner names secrets");
    }
    let env = document.env.iter();
    for (name, _) in env.flat_map(|env| env.secrets.iter().flatten()) {
        narrower.refuse("env.secrets", name, "only the owner names secrets");
    }
    // What holds inside the walls only is no widening, unless there are none.
    let is_walled = layer == Layer::Managed
        || (policy.provider.value != ProviderChoice::Direct
            && !policy.fallback.value.contains(&ProviderKind::Direct));

    let workspace_was_writable = policy.workspace.value == Access::Write;
    let writable = values(&policy.write);
    let mut readable = values(&policy.read);
    readable.extend(writable.iter().cloned());
    narrower.lower("workspace", &mut policy.workspace, document.workspace);
    narrower.paths(
        "read",
        &mut policy.read,
        document.read.as_ref(),
        &readable,
        true,
    );
    narrower.paths(
        "write",
        &mut policy.write,
        document.write.as_ref(),
        &writable,
        workspace_was_writable,
    );
    add(&mut policy.deny_read, document.deny_read.as_ref(), layer);
    add(&mut policy.protect, document.protect.as_ref(), layer);

    if let Some(env) = &document.env {
        narrower.lower("env.inherit", &mut policy.env.inherit, env.inherit);
        narrower.subset("env.allow", &mut policy.env.allow, env.allow.as_ref());
        for (name, value) in env.set.iter().flatten() {
            if is_walled {
                let value = Sourced::new(value.clone(), layer);
                policy.env.set.insert(name.clone(), value);
            } else {
                narrower.refuse("env.set", name, WITHOUT_WALLS);
            }
        }
    }
    narrower.lower("caches", &mut policy.caches, document.caches);
    if let Some(limits) = &document.limits {
        let own = &mut policy.limits;
        narrower.bound("limits.memory", &mut own.memory, limits.memory);
        narrower.bound("limits.tasks", &mut own.tasks, limits.tasks);
        narrower.bound("limits.cpu", &mut own.cpu, limits.cpu);
        narrower.bound("limits.open_files", &mut own.open_files, limits.open_files);
        narrower.bound("limits.wall", &mut own.wall, limits.wall);
        narrower.bound("limits.idle", &mut own.idle, limits.idle);
        narrower.bound("limits.output", &mut own.output, limits.output);
        narrower.bound("limits.files", &mut own.files, limits.files);
    }
    if let Some(allow) = &document.allow {
        let own = &mut policy.allow;
        narrower.lower(
            "allow.nested_sandbox",
            &mut own.nested_sandbox,
            allow.nested_sandbox,
        );
        narrower.lower("allow.ptrace", &mut own.ptrace, allow.ptrace);
        narrower.lower(
            "allow.signal_peers",
            &mut own.signal_peers,
            allow.signal_peers,
        );
        narrower.subset("allow.sockets", &mut own.sockets, allow.sockets.as_ref());
    }
    narrower.crossings(
        "reach",
        &mut policy.reach,
        parsed(document.reach.as_ref()),
        <[_]>::contains,
    );
    narrower.crossings(
        "publish",
        &mut policy.publish,
        parsed(document.publish.as_ref()),
        |allowed, wanted| publishes(allowed, *wanted),
    );
    if let Some(setup) = &document.setup {
        if layer == Layer::Request {
            narrower.refuse("setup", setup, "a request brings no commands of its own");
        } else if !is_walled {
            narrower.refuse("setup", setup, WITHOUT_WALLS);
        } else {
            policy.setup = Sourced::new(setup.clone(), layer);
        }
    }
    if let Some(reviewer) = &document.reviewer {
        narrower.refuse("reviewer", reviewer, "only the owner says who answers");
    }
    if let Some(rules) = &document.commands {
        let (allowing, stricter): (Vec<_>, Vec<_>) = rules
            .iter()
            .cloned()
            .partition(|rule| rule.decision == CommandDecision::Allow);
        add(&mut policy.commands, Some(&stricter), layer);
        for rule in allowing {
            narrower.refuse("commands", &rule, "only the owner may allow a command");
        }
    }
    narrower.lower("permission", &mut policy.permission, document.permission);
    beyond
}
