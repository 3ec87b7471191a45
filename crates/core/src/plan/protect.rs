//! Protected names: what the host's tools execute or obey, and how each is held.

use super::view::{WorkspaceKind, WorkspaceView};
use crate::facts::{HostFacts, PathKind};
use crate::policy::{EffectivePolicy, has_pattern};
use crate::spec::{Access, Enforce, ProtectedState, Protection, ProviderKind};

/// The rule about what belongs to other linked trees.
const OTHER_TREES: &str = "git directories of other trees";

/// Whether a protected name is a file or a directory where it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// A file.
    File,
    /// A directory with everything below it.
    Directory,
}

/// A protected name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProtectedEntry {
    /// Path below the top of the workspace, or below the git directory.
    pub name: &'static str,
    /// What it is where it exists.
    pub kind: NameKind,
    /// Which rule names it.
    pub rule: &'static str,
}

const fn entry(name: &'static str, kind: NameKind, rule: &'static str) -> ProtectedEntry {
    ProtectedEntry { name, kind, rule }
}

/// Names at the top of the workspace; deeper ones are not obeyed without a question.
pub const TOP_LEVEL_NAMES: &[ProtectedEntry] = &[
    entry(".claude", NameKind::Directory, "start-up files of agents"),
    entry(".codex", NameKind::Directory, "start-up files of agents"),
    entry(".cursor", NameKind::Directory, "start-up files of editors"),
    entry(".mcp.json", NameKind::File, "start-up files of agents"),
    entry(
        ".vscode/tasks.json",
        NameKind::File,
        "start-up files of editors",
    ),
    entry(".envrc", NameKind::File, "start-up files of shells"),
    entry(".cofferdam.toml", NameKind::File, "policy of the project"),
];

/// Names below a git directory. `worktrees` holds the other trees' own directories.
pub const GIT_NAMES: &[ProtectedEntry] = &[
    entry("hooks", NameKind::Directory, "git hooks"),
    entry("config", NameKind::File, "git config"),
    entry("config.worktree", NameKind::File, "git config"),
    entry("info", NameKind::Directory, "git attributes"),
    entry("info/attributes", NameKind::File, "git attributes"),
    entry("commondir", NameKind::File, "git directory pointers"),
    entry("worktrees", NameKind::Directory, OTHER_TREES),
];

/// Lists how each protected name is held by a provider.
pub(super) fn protections(
    policy: &EffectivePolicy,
    view: &WorkspaceView,
    facts: &HostFacts,
    provider: ProviderKind,
) -> Vec<Protection> {
    let can_prevent = provider.has_view();
    let read_only = policy.workspace.value == Access::Read;
    let mut list = Vec::new();
    if matches!(provider, ProviderKind::Direct | ProviderKind::Memory) {
        return list;
    }
    if view.kind == WorkspaceKind::Live {
        for name in &facts.workspace.protected {
            // The host works in its other trees meanwhile: to put them back would undo that.
            if name.rule == OTHER_TREES && !can_prevent {
                continue;
            }
            let enforce = if name.tracked && name.rule != "git hooks" {
                Enforce::Report
            } else if can_prevent && (read_only || is_pinned(name.state)) {
                Enforce::Prevent
            } else {
                Enforce::Undo
            };
            list.push(Protection {
                path: name.path.clone(),
                state: name.state,
                enforce,
                rule: name.rule.clone(),
            });
        }
    }
    for rule in &policy.protect {
        let wanted = rule.value.enforce;
        let Some(fact) = facts
            .paths
            .iter()
            .find(|fact| fact.written == rule.value.path)
        else {
            continue;
        };
        let state = match fact.kind {
            PathKind::Absent => ProtectedState::Absent,
            PathKind::Directory => ProtectedState::Directory,
            PathKind::File | PathKind::Socket | PathKind::Other => ProtectedState::File,
        };
        // What does not exist cannot be pinned; that it is undone is as strong as it gets.
        let enforce = match (wanted, state) {
            (Enforce::Prevent, ProtectedState::Absent) => Enforce::Undo,
            (other, _) => other,
        };
        list.push(Protection {
            path: fact.path.clone(),
            state,
            enforce,
            rule: format!("protect ({})", rule.layer),
        });
    }
    for denied in &policy.deny_read {
        if has_pattern(&denied.value) {
            continue;
        }
        let absent = facts
            .paths
            .iter()
            .find(|fact| fact.written == denied.value && fact.kind == PathKind::Absent);
        if let Some(fact) = absent
            && fact.path.is_within(&facts.workspace.root)
        {
            list.push(Protection {
                path: fact.path.clone(),
                state: ProtectedState::Absent,
                enforce: Enforce::Undo,
                rule: format!("deny_read ({}), absent", denied.layer),
            });
        }
    }
    list
}

/// Tells whether a mount can stand on what is there.
const fn is_pinned(state: ProtectedState) -> bool {
    matches!(state, ProtectedState::File | ProtectedState::Directory)
}
