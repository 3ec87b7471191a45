//! What Landlock allows a command where there is no mount namespace.

use super::reach::{Origin, Reach};
use crate::bytes::BytePath;
use crate::facts::HostFacts;
use crate::spec::{Access, LandlockSpec, Network, PathAccess, PathRule};

/// Devices that every command may use; terminals are added by whoever makes them.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Gives the rules of a command without a mount namespace.
pub(super) fn landlock(
    facts: &HostFacts,
    reach: &Reach,
    network: Network,
    scope_signals: bool,
    scratch: &BytePath,
) -> LandlockSpec {
    let mut paths = Vec::new();
    let mut allow = |path: BytePath, access: PathAccess| paths.push(PathRule { path, access });
    for system in facts.system.iter().filter(|one| one.link.is_none()) {
        allow_around(&system.path, facts, &mut allow);
    }
    allow(BytePath::from("/proc"), PathAccess::Read);
    for device in DEVICES {
        allow(BytePath::from(*device), PathAccess::Device);
    }
    for grant in &reach.grants {
        let access = match grant.access {
            Access::Read => PathAccess::ReadExecute,
            Access::Write => PathAccess::Write,
        };
        // A rule cannot be taken back, so a toolchain is allowed around its secrets.
        let holds_secret = grant.origin == Origin::Toolchain
            && reach
                .hidden
                .iter()
                .any(|hidden| hidden.source.is_within(&grant.source));
        if !holds_secret {
            allow(grant.source.clone(), access);
        }
    }
    allow(scratch.join("home"), PathAccess::Write);
    allow(scratch.join("tmp"), PathAccess::Write);
    allow(scratch.join("gitconfig"), PathAccess::Read);
    paths.sort_by(|left, right| {
        left.path
            .cmp(&right.path)
            .then(right.access.cmp(&left.access))
    });
    paths.dedup_by(|later, kept| later.path == kept.path);
    LandlockSpec {
        paths,
        deny_tcp: network != Network::Full,
        scope_signals,
        scope_abstract_sockets: true,
    }
}

/// Allows a directory, or where it holds secrets, each of its entries that is none.
fn allow_around(path: &BytePath, facts: &HostFacts, allow: &mut impl FnMut(BytePath, PathAccess)) {
    if facts
        .system_secrets
        .iter()
        .any(|secret| secret.path == *path)
    {
        return;
    }
    let holds_secret = facts
        .system_secrets
        .iter()
        .any(|secret| secret.path.is_within(path));
    if !holds_secret {
        allow(path.clone(), PathAccess::ReadExecute);
        return;
    }
    allow(path.clone(), PathAccess::List);
    let listing = facts.system_listings.iter().find(|one| one.path == *path);
    for entry in listing.iter().flat_map(|one| &one.entries) {
        allow_around(entry, facts, allow);
    }
}
