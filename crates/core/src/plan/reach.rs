//! What is shown to a command besides system directories: one list, whatever the provider.

use super::view::{WorkspaceKind, WorkspaceView};
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::facts::{GitFacts, HostFacts, PathFact, PathKind, Toolchain};
use crate::policy::{Caches, EffectivePolicy, Layer, Sourced};
use crate::spec::{Access, Gap, Network, ProviderKind};

/// Something of the host that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    /// Where it lies.
    pub(super) source: BytePath,
    /// Where it stands inside.
    pub(super) target: BytePath,
    /// Whether it may be written.
    pub(super) access: Access,
    /// Whether it may be missing.
    pub(super) optional: bool,
    /// Why it is shown.
    pub(super) origin: Origin,
}

/// Why something is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It is the workspace, or belongs to its view.
    Workspace,
    /// It is part of the repository.
    Git,
    /// It belongs to a toolchain.
    Toolchain,
    /// The policy names it.
    Policy,
}

/// Something that is not shown although what holds it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hidden {
    /// Where it lies.
    pub(super) source: BytePath,
    /// Where it would stand inside.
    pub(super) target: BytePath,
    /// Whether it is a directory.
    pub(super) directory: bool,
    /// Why it is hidden.
    pub(super) why: Why,
}

/// Why something is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The policy denies it.
    Denied,
    /// It is an environment file that git does not hold.
    EnvFile,
    /// It holds a toolchain's credentials.
    Credential,
    /// It is the data directory: the journal of others' work, and their trees.
    OwnData,
    /// It is a Unix socket of the host that nobody granted.
    Socket,
}

/// Everything that is shown, and what could not be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// In no order.
    pub(super) grants: Vec<Grant>,
    /// Caches that get a layer of their own where the provider has one.
    pub(super) caches: Vec<BytePath>,
    /// What is hidden below those.
    pub(super) hidden: Vec<Hidden>,
    /// What was named and is not there.
    pub(super) gaps: Vec<Gap>,
}

impl Reach {
    fn hide(&mut self, path: &BytePath, view: &WorkspaceView, directory: bool, why: Why) {
        if let Some(target) = view.place(path) {
            self.hidden.push(Hidden {
                source: path.clone(),
                target,
                directory,
                why,
            });
        }
    }

    fn add(&mut self, path: &BytePath, access: Access, optional: bool, origin: Origin) {
        self.grants.push(Grant {
            source: path.clone(),
            target: path.clone(),
            access,
            optional,
            origin,
        });
    }
}

/// Gives the facts about a path that a policy names; a pattern may have several, or none.
pub(super) fn facts_of<'a>(
    written: &'a BytePath,
    facts: &'a HostFacts,
) -> impl Iterator<Item = &'a PathFact> {
    facts
        .paths
        .iter()
        .filter(move |fact| fact.written == *written)
}

/// Tells whether caches get a layer of their own.
pub(super) fn has_layers(
    policy: &EffectivePolicy,
    facts: &HostFacts,
    provider: ProviderKind,
) -> bool {
    // A layer lies in the caller's data directory, which another user cannot enter.
    provider == ProviderKind::Bwrap
        && facts.overlay
        && policy.caches.value == Caches::Private
        && !facts.acts_for_another()
}

/// Tells whether the caches of one toolchain get a layer of their own.
pub(super) fn has_layer(
    toolchain: &Toolchain,
    policy: &EffectivePolicy,
    facts: &HostFacts,
    provider: ProviderKind,
) -> bool {
    (toolchain.in_use || policy.network.value != Network::None)
        && has_layers(policy, facts, provider)
}

/// Tells whether the caches of a toolchain are shown: one that has to be written and cannot be is
/// worse than none.
pub(super) fn is_cache_shown(
    toolchain: &Toolchain,
    policy: &EffectivePolicy,
    layered: bool,
) -> bool {
    policy.caches.value != Caches::None && (layered || !toolchain.needs_cache)
}

/// Collects what is shown.
pub(super) fn reach(
    policy: &EffectivePolicy,
    view: &WorkspaceView,
    facts: &HostFacts,
    provider: ProviderKind,
) -> Result<Reach, Problem> {
    let mut reach = Reach::default();
    reach.grants.push(Grant {
        source: view.source.clone(),
        target: view.inside.clone(),
        access: policy.workspace.value,
        optional: false,
        origin: Origin::Workspace,
    });
    for bind in &view.extra {
        reach.grants.push(Grant {
            source: bind.source.clone(),
            target: bind.target.clone(),
            access: bind.access,
            optional: false,
            origin: Origin::Workspace,
        });
    }
    if view.kind == WorkspaceKind::Live
        && let Some(git) = &facts.workspace.git
    {
        add_repository(&mut reach, git, &view.source, policy.workspace.value);
    }
    add_toolchains(&mut reach, policy, view, facts, provider);
    for (paths, access) in [(&policy.read, Access::Read), (&policy.write, Access::Write)] {
        for path in paths {
            add_named(&mut reach, path, access, view, facts)?;
        }
    }
    for denied in &policy.deny_read {
        for fact in facts_of(&denied.value, facts) {
            if fact.kind == PathKind::Absent {
                continue;
            }
            let path = fact.real.as_ref().unwrap_or(&fact.path);
            reach.hide(path, view, fact.kind == PathKind::Directory, Why::Denied);
        }
        if facts_of(&denied.value, facts).all(|fact| fact.kind == PathKind::Absent) {
            reach.gaps.push(Gap {
                what: "rule_matches_nothing".to_owned(),
                why: format!("deny_read {} matches nothing yet", denied.value),
            });
        }
    }
    for secret in policy.secrets.values() {
        for fact in secret
            .value
            .file
            .iter()
            .flat_map(|file| facts_of(file, facts))
        {
            let path = fact.real.as_ref().unwrap_or(&fact.path);
            if fact.kind != PathKind::Absent {
                reach.hide(path, view, false, Why::Denied);
            }
        }
    }
    if view.kind == WorkspaceKind::Live {
        for file in &facts.workspace.env_files {
            if !is_granted_by_owner(file, policy, facts) {
                reach.hide(file, view, false, Why::EnvFile);
            }
        }
    }
    reach.hide(&facts.data_dir, view, true, Why::OwnData);
    hide_sockets(&mut reach, policy, facts);
    Ok(reach)
}

/// Hides the sockets that stand in what is shown: no mount on a directory keeps anybody from
/// connecting to what stands in it.
fn hide_sockets(reach: &mut Reach, policy: &EffectivePolicy, facts: &HostFacts) {
    let granted = |socket: &BytePath| {
        let mut granted = policy.allow.sockets.iter();
        granted.any(|one| {
            facts_of(&one.value, facts).any(|fact| {
                fact.path == *socket || fact.real.as_ref().is_some_and(|real| real == socket)
            })
        })
    };
    let hidden: Vec<Hidden> = facts
        .sockets
        .found
        .iter()
        .filter(|socket| !granted(socket))
        .flat_map(|socket| {
            let grants = reach.grants.iter();
            grants.filter_map(|grant| {
                let below = socket
                    .below(&grant.source)
                    .filter(|rest| !rest.is_empty())?;
                Some(Hidden {
                    source: socket.clone(),
                    target: grant.target.join(below),
                    directory: false,
                    why: Why::Socket,
                })
            })
        })
        .collect();
    reach.hidden.extend(hidden);
    for top in &facts.sockets.unseen {
        reach.gaps.push(Gap {
            what: "unix_sockets".to_owned(),
            why: format!("{top} holds too many directories to look for sockets in all of them"),
        });
    }
}

/// File names of sockets by which an engine does anything as root.
const ENGINES: &[&[u8]] = &[
    b"docker.sock",
    b"docker.raw.sock",
    b"podman.sock",
    b"containerd.sock",
    b"buildkitd.sock",
    b"crio.sock",
];

/// Refuses what nothing inside may have, and sockets that are named as if they were files.
pub(super) fn refuse_sockets(policy: &EffectivePolicy, facts: &HostFacts) -> Result<(), Problem> {
    let fields = [
        ("read", &policy.read),
        ("write", &policy.write),
        ("allow.sockets", &policy.allow.sockets),
    ];
    for (field, paths) in fields {
        for named in paths {
            for fact in facts_of(&named.value, facts) {
                let real = fact.real.as_ref().unwrap_or(&fact.path);
                let is_engine = [&fact.path, real]
                    .iter()
                    .any(|path| ENGINES.contains(&path.file_name()));
                let refused = |message: String| {
                    Problem::new(ErrorCode::SocketRefused, message).with_field(field)
                };
                if is_engine && fact.kind != PathKind::Directory {
                    return Err(refused(format!(
                        "{} is never handed inside: whoever reaches it is root on this machine",
                        fact.path
                    ))
                    .with_hint("take it out of the policy; run what needs it outside"));
                }
                if fact.kind == PathKind::Socket && field != "allow.sockets" {
                    return Err(refused(format!("{} is a socket, not a file", fact.path))
                        .with_hint(
                            "a read-only mount does not hold it: name it in allow.sockets",
                        ));
                }
            }
        }
    }
    Ok(())
}

/// Tells whether an owner's layer grants exactly this path.
fn is_granted_by_owner(path: &BytePath, policy: &EffectivePolicy, facts: &HostFacts) -> bool {
    policy
        .read
        .iter()
        .chain(&policy.write)
        .filter(|one| matches!(one.layer, Layer::User | Layer::CommandLine))
        .any(|one| facts_of(&one.value, facts).any(|fact| fact.path == *path))
}

fn add_named(
    reach: &mut Reach,
    named: &Sourced<BytePath>,
    access: Access,
    view: &WorkspaceView,
    facts: &HostFacts,
) -> Result<(), Problem> {
    let field = match access {
        Access::Read => "read",
        Access::Write => "write",
    };
    for fact in facts_of(&named.value, facts) {
        if fact.kind == PathKind::Absent {
            if named.layer == Layer::CommandLine {
                let text = format!("{} does not exist", fact.path);
                return Err(Problem::new(ErrorCode::InvalidRequest, text)
                    .with_field(field)
                    .with_hint("make it first, or leave it out"));
            }
            reach.gaps.push(Gap {
                what: "rule_matches_nothing".to_owned(),
                why: format!("{field} {} does not exist", fact.path),
            });
            continue;
        }
        let source = fact.real.as_ref().unwrap_or(&fact.path);
        // Where the path is a link, both spellings lead there.
        let mut targets = vec![source];
        if fact.real.is_some() {
            targets.push(&fact.path);
        }
        for target in targets.into_iter().filter_map(|path| view.place(path)) {
            reach.grants.push(Grant {
                source: source.clone(),
                target,
                access,
                optional: false,
                origin: Origin::Policy,
            });
        }
    }
    Ok(())
}

fn add_toolchains(
    reach: &mut Reach,
    policy: &EffectivePolicy,
    view: &WorkspaceView,
    facts: &HostFacts,
    provider: ProviderKind,
) {
    for toolchain in &facts.toolchains {
        let layered = has_layer(toolchain, policy, facts, provider);
        for path in &toolchain.read {
            reach.add(path, Access::Read, true, Origin::Toolchain);
        }
        if is_cache_shown(toolchain, policy, layered) {
            for path in &toolchain.caches {
                reach.add(path, Access::Read, true, Origin::Toolchain);
                if layered {
                    reach.caches.push(path.clone());
                }
            }
        }
        for secret in &toolchain.secrets {
            reach.hide(secret, view, false, Why::Credential);
        }
    }
}

/// Shows what git needs besides the working tree.
fn add_repository(reach: &mut Reach, git: &GitFacts, workspace: &BytePath, access: Access) {
    if !git.top_level.is_within(workspace) {
        // A directory within a repository: git sees the rest as it is.
        reach.add(&git.top_level, Access::Read, false, Origin::Git);
    }
    if git.linked {
        if !git.common_dir.is_within(workspace) {
            reach.add(&git.common_dir, Access::Read, false, Origin::Git);
        }
        for name in ["objects", "refs", "logs"] {
            let path = git.common_dir.join(name);
            reach.add(&path, access, true, Origin::Git);
        }
        reach.add(&git.git_dir, access, false, Origin::Git);
    } else if !git.git_dir.is_within(workspace) {
        reach.add(&git.git_dir, access, false, Origin::Git);
    }
}
