//! The view of a mount namespace, made from what is shown.

use std::collections::BTreeSet;

use super::environment::GIT_CONFIG_INSIDE;
use super::reach::{Grant, Origin, Reach, Why};
use super::view::{WorkspaceKind, WorkspaceView};
use crate::bytes::BytePath;
use crate::facts::HostFacts;
use crate::policy::EffectivePolicy;
use crate::spec::{Access, CacheOverlay, Digest, EgressSpec, Enforce, Mount, Network, Protection};

/// Where a command's temporary files go inside.
pub(super) const PRIVATE_TMP: &str = "/tmp/private";
/// Home directory inside for those who have none of their own.
pub(super) const HOMELESS: &str = "/tmp/home";

/// Gives the home directory as it is inside.
pub(super) fn inside_home(facts: &HostFacts) -> BytePath {
    if facts.owner.home.is_absolute() && facts.owner.home.depth() > 0 {
        facts.owner.home.clone()
    } else {
        BytePath::from(HOMELESS)
    }
}

/// Orders steps on the same place: what hides comes last.
const fn rank(mount: &Mount) -> u8 {
    match mount {
        Mount::Temporary { .. } | Mount::Proc { .. } | Mount::Devices { .. } => 0,
        Mount::Directory { .. } | Mount::Symlink { .. } => 1,
        Mount::Bind {
            access: Access::Read,
            ..
        } => 2,
        Mount::Bind {
            access: Access::Write,
            ..
        } => 3,
        Mount::Content { .. } => 4,
        Mount::Mask { .. } => 5,
        Mount::ReadOnly { .. } => 6,
    }
}

struct View {
    steps: Vec<Mount>,
    /// Places that are empty file systems which a command may write to.
    writable: Vec<BytePath>,
    /// Empty file systems that are made read-only at the end.
    frozen: BTreeSet<BytePath>,
}

impl View {
    fn temporary(&mut self, target: &BytePath, mode: u32) {
        self.steps.push(Mount::Temporary {
            target: target.clone(),
            mode,
        });
    }

    fn bind(&mut self, path: &BytePath, access: Access, optional: bool) {
        self.steps.push(Mount::Bind {
            source: path.clone(),
            target: path.clone(),
            access,
            optional,
        });
    }

    /// Sees to it that nothing can be made beside something that is shown below a writable place:
    /// what is written there would vanish without a word.
    fn freeze_above(&mut self, target: &BytePath) {
        let top = self
            .writable
            .iter()
            .filter(|top| target.is_within(top))
            .max_by_key(|top| top.depth());
        let Some(top) = top else { return };
        if target.depth() <= top.depth() + 1 {
            return;
        }
        let first = target
            .below(top)
            .and_then(|rest| rest.split(|byte| *byte == b'/').next())
            .map(|name| top.join(name));
        if let Some(first) = first {
            self.frozen.insert(first);
        }
    }
}

/// Gives the mounts in order, and the caches that get a layer of their own.
pub(super) fn mounts(
    policy: &EffectivePolicy,
    view: &WorkspaceView,
    facts: &HostFacts,
    reach: &Reach,
    protections: &[Protection],
    (network, egress): (Network, Option<&EgressSpec>),
) -> (Vec<Mount>, Vec<CacheOverlay>) {
    let home = inside_home(facts);
    let mut built = View {
        steps: Vec::new(),
        writable: Vec::new(),
        frozen: BTreeSet::new(),
    };
    add_base(&mut built, facts, &home, network);
    // What is written to a place that the view brings along does not vanish, and what it holds is to
    // be seen beside whatever is shown below it.
    let brings = |top: &BytePath| {
        let mut extra = view.extra.iter();
        extra.any(|one| one.access == Access::Write && one.target == *top)
    };
    built.writable.retain(|top| !brings(top));
    for grant in &reach.grants {
        add_grant(&mut built, grant);
    }
    for socket in &policy.allow.sockets {
        for fact in super::reach::facts_of(&socket.value, facts) {
            built.bind(&fact.path, Access::Read, true);
        }
    }
    if view.kind == WorkspaceKind::Live {
        add_spellings(&mut built, facts, reach);
    }
    add_pins(&mut built, view, reach, protections);
    for hidden in &reach.hidden {
        let target = &hidden.target;
        let shown = reach.grants.iter().any(|one| target.is_within(&one.target));
        let system = facts.system.iter().any(|one| target.is_within(&one.path));
        let holds_shown = reach
            .grants
            .iter()
            .any(|one| one.target != *target && one.target.is_within(target));
        if hidden.directory && holds_shown {
            // Empty but for what is granted below it.
            built.frozen.insert(target.clone());
        } else if shown || system {
            built.steps.push(Mount::Mask {
                target: target.clone(),
                directory: hidden.directory,
                passing: (hidden.why == Why::Socket).then(|| hidden.source.clone()),
            });
        }
    }
    if !facts.git_config.is_empty() {
        built.steps.push(Mount::Content {
            target: BytePath::from(GIT_CONFIG_INSIDE),
            content: BytePath::from(facts.git_config.as_str()),
        });
    }
    if let Some(trust) = egress.and_then(|egress| egress.trust.as_ref()) {
        // What it holds is not known before the walls go up.
        built.steps.push(Mount::Content {
            target: trust.bundle.clone(),
            content: BytePath::default(),
        });
    }
    (finish(built), caches(reach, facts))
}

fn add_base(built: &mut View, facts: &HostFacts, home: &BytePath, network: Network) {
    // What stands in the root itself is made by the provider, as an empty file system.
    built.frozen.insert(BytePath::from("/"));
    for path in &facts.system {
        if path.path.is_within(&BytePath::from("/run")) && network != Network::Full {
            // Only names of hosts are looked up by way of /run.
            continue;
        }
        match &path.link {
            Some(link) => built.steps.push(Mount::Symlink {
                link: link.clone(),
                target: path.path.clone(),
            }),
            None => built.bind(&path.path, Access::Read, true),
        }
    }
    for secret in &facts.system_secrets {
        built.steps.push(Mount::Mask {
            target: secret.path.clone(),
            directory: secret.directory,
            passing: None,
        });
    }
    built.steps.push(Mount::Proc {
        target: BytePath::from("/proc"),
    });
    if facts.owner.identity.uid == 0 {
        // The kernel's settings belong to the uid, and root keeps its own inside.
        built.bind(&BytePath::from("/proc/sys"), Access::Read, true);
    }
    let devices = BytePath::from("/dev");
    built.steps.push(Mount::Devices {
        target: devices.clone(),
    });
    built.frozen.insert(devices);
    let mut places = vec![
        (BytePath::from("/tmp"), 0o1777),
        (BytePath::from("/var/tmp"), 0o1777),
        (BytePath::from("/run"), 0o755),
        (BytePath::from("/dev/shm"), 0o1777),
    ];
    places.push((home.clone(), 0o700));
    for (path, mode) in places {
        if !built.writable.contains(&path) {
            built.temporary(&path, mode);
            built.writable.push(path);
        }
    }
    built.steps.push(Mount::Directory {
        target: BytePath::from(PRIVATE_TMP),
        mode: 0o700,
    });
}

fn add_grant(built: &mut View, grant: &Grant) {
    if grant.origin != Origin::Toolchain {
        built.freeze_above(&grant.target);
    }
    built.steps.push(Mount::Bind {
        source: grant.source.clone(),
        target: grant.target.clone(),
        access: grant.access,
        optional: grant.optional,
    });
}

/// Makes the other spellings of the workspace lead to it.
fn add_spellings(built: &mut View, facts: &HostFacts, reach: &Reach) {
    for spelling in &facts.workspace.spellings {
        let is_shown = reach
            .grants
            .iter()
            .any(|one| spelling.is_within(&one.target))
            || facts
                .system
                .iter()
                .any(|one| one.link.is_none() && spelling.is_within(&one.path));
        if !is_shown {
            built.freeze_above(spelling);
            built.steps.push(Mount::Symlink {
                link: facts.workspace.root.clone(),
                target: spelling.clone(),
            });
        }
    }
}

/// Pins what is prevented: a read-only mount on it, and a mount on every directory between it and
/// what is shown, so that none of them can be moved away with what it holds.
fn add_pins(built: &mut View, view: &WorkspaceView, reach: &Reach, protections: &[Protection]) {
    let mut held = BTreeSet::new();
    for protection in protections {
        if protection.enforce != Enforce::Prevent {
            continue;
        }
        let path = &protection.path;
        let shown = reach
            .grants
            .iter()
            .filter(|one| one.access == Access::Write && path.is_within(&one.source))
            .max_by_key(|one| one.source.depth());
        let Some(shown) = shown else { continue };
        let inside = |path: &BytePath| match path.below(&shown.source) {
            Some(rest) => shown.target.join(rest),
            None => path.clone(),
        };
        let mut above = path.parent();
        while let Some(directory) = above {
            let is_below_top =
                directory.is_within(&shown.source) && directory.depth() > shown.source.depth();
            if !is_below_top {
                break;
            }
            if held.insert(directory.clone()) {
                built.steps.push(Mount::Bind {
                    source: directory.clone(),
                    target: inside(&directory),
                    access: Access::Write,
                    optional: false,
                });
            }
            above = directory.parent();
        }
        if held.insert(path.clone()) && *path != view.source {
            built.steps.push(Mount::Bind {
                source: path.clone(),
                target: inside(path),
                access: Access::Read,
                optional: false,
            });
        }
    }
    // A directory that is itself pinned needs no writable mount on it.
    let pinned: BTreeSet<BytePath> = protections
        .iter()
        .filter(|one| one.enforce == Enforce::Prevent)
        .map(|one| one.path.clone())
        .collect();
    built.steps.retain(|step| match step {
        Mount::Bind {
            source,
            access: Access::Write,
            ..
        } => !pinned.contains(source) || reach.grants.iter().any(|one| one.source == *source),
        _ => true,
    });
}

fn caches(reach: &Reach, facts: &HostFacts) -> Vec<CacheOverlay> {
    if !facts.overlay {
        return Vec::new();
    }
    let workspace = Digest::sha256(facts.workspace.root.as_bytes());
    let store = facts
        .data_dir
        .join("caches")
        .join(&workspace.as_str()[..16]);
    reach
        .caches
        .iter()
        .map(|path| CacheOverlay {
            path: path.clone(),
            store: store.join(&Digest::sha256(path.as_bytes()).as_str()[..16]),
        })
        .collect()
}

/// Orders the steps so that a directory comes before what stands in it, and freezes at the end.
fn finish(built: View) -> Vec<Mount> {
    let mut steps = built.steps;
    for path in &built.frozen {
        let stands = steps.iter().any(|step| {
            step.target() == path && matches!(step, Mount::Temporary { .. } | Mount::Devices { .. })
        });
        if !stands && path.depth() > 0 {
            steps.push(Mount::Temporary {
                target: path.clone(),
                mode: 0o755,
            });
        }
    }
    steps.sort_by(|left, right| {
        let key = |step: &Mount| (step.target().depth(), step.target().clone(), rank(step));
        key(left).cmp(&key(right))
    });
    steps.dedup();
    // Of two binds of the same thing at one place the later, writable one would stand anyway.
    let mut kept: Vec<Mount> = Vec::with_capacity(steps.len());
    for step in steps {
        if let (
            Some(Mount::Bind {
                source: one,
                target: at,
                ..
            }),
            Mount::Bind { source, target, .. },
        ) = (kept.last(), &step)
            && one == source
            && at == target
        {
            kept.pop();
        }
        kept.push(step);
    }
    // A masked directory hides what would stand in it.
    let masked: Vec<BytePath> = kept
        .iter()
        .filter_map(|step| match step {
            Mount::Mask {
                target,
                directory: true,
                ..
            } => Some(target.clone()),
            _ => None,
        })
        .collect();
    kept.retain(|step| {
        !matches!(step, Mount::Mask { .. })
            || !masked
                .iter()
                .any(|top| step.target() != top && step.target().is_within(top))
    });
    let mut frozen: Vec<BytePath> = built.frozen.into_iter().collect();
    frozen.sort_by_key(|path| std::cmp::Reverse(path.depth()));
    kept.extend(frozen.into_iter().map(|target| Mount::ReadOnly { target }));
    kept
}
