//! The workspace as commands shall see it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::facts::WorkspaceFacts;
use crate::spec::Access;

/// Whose tree a workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceKind {
    /// The user's own checkout: names that the host's tools obey are held.
    Live,
    /// A tree made for a task: nothing of the host obeys it, so nothing in it is held.
    Own,
}

/// Something more that stands inside besides the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViewBind {
    /// Where it lies on the host.
    pub source: BytePath,
    /// Where it stands inside; without a mount namespace it stands at its source.
    pub target: BytePath,
    /// Whether it may be written.
    pub access: Access,
}

/// The workspace as commands shall see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceView {
    /// Where it stands inside, when the provider can put it elsewhere than where it lies.
    pub inside: BytePath,
    /// Where it lies on the host.
    pub source: BytePath,
    /// Whose tree it is.
    pub kind: WorkspaceKind,
    /// What else stands inside, such as the objects that a task's repository borrows.
    pub extra: Vec<ViewBind>,
}

impl WorkspaceView {
    /// Gives the user's own checkout at its own path.
    pub fn live(facts: &WorkspaceFacts) -> Self {
        Self {
            inside: facts.root.clone(),
            source: facts.root.clone(),
            kind: WorkspaceKind::Live,
            extra: Vec::new(),
        }
    }

    /// Gives a tree made for a task, which stands inside where the user's repository stands.
    pub fn own(inside: BytePath, source: BytePath) -> Self {
        Self {
            inside,
            source,
            kind: WorkspaceKind::Own,
            extra: Vec::new(),
        }
    }

    /// Adds something that stands inside.
    #[must_use]
    pub fn with(mut self, source: BytePath, target: BytePath, access: Access) -> Self {
        self.extra.push(ViewBind {
            source,
            target,
            access,
        });
        self
    }

    /// Gives the place inside of something on the host; `None` where the workspace stands instead.
    pub(super) fn place(&self, path: &BytePath) -> Option<BytePath> {
        if let Some(rest) = path.below(&self.source) {
            Some(if rest.is_empty() {
                self.inside.clone()
            } else {
                self.inside.join(rest)
            })
        } else if path.is_within(&self.inside) {
            None
        } else {
            Some(path.clone())
        }
    }

    /// Gives the same view for a provider that has no mount namespace: everything at its source.
    #[must_use]
    pub(super) fn in_place(&self) -> Self {
        Self {
            inside: self.source.clone(),
            source: self.source.clone(),
            kind: self.kind,
            extra: self
                .extra
                .iter()
                .map(|bind| ViewBind {
                    target: bind.source.clone(),
                    ..bind.clone()
                })
                .collect(),
        }
    }
}
