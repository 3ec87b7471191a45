//! Who acts, for what, where and with which grants: one immutable value.
//!
//! Only the server makes one, from what it knows by itself: nothing that a request says becomes part
//! of it. Fields cannot be changed afterwards; what is less than an authority is made by
//! [`Authority::narrowed`], what is more cannot be made at all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::id::{CommandId, ConversationId, TaskId};
use crate::policy::Layer;
use crate::spec::Access;

/// On whose word something is done.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A request over a protocol, such as an agent's: it may only narrow.
    Protocol,
    /// The plane itself, for its own ends.
    System,
    /// The owner at the keyboard: may widen up to the managed ceiling.
    Owner,
}

impl Actor {
    /// Gives the layer of a policy that this actor's wishes become.
    pub const fn layer(self) -> Layer {
        match self {
            Self::Owner => Layer::CommandLine,
            Self::Protocol | Self::System => Layer::Request,
        }
    }
}

/// Something that was allowed once, no wider than what was shown.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Grant {
    /// Writing at and below a path.
    Write {
        /// The path.
        path: BytePath,
    },
    /// Reading at and below a path.
    Read {
        /// The path.
        path: BytePath,
    },
    /// Exactly the request that has this digest, once.
    Request {
        /// Its SHA-256 in hexadecimal.
        digest: String,
    },
}

/// Who acts, for which task and call, on which root, with which grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Authority {
    actor: Actor,
    conversation: Option<ConversationId>,
    task: Option<TaskId>,
    command: Option<CommandId>,
    root: BytePath,
    /// What the policy in effect opens besides the root.
    places: Vec<(BytePath, Access)>,
    grants: Vec<Grant>,
}

impl Authority {
    /// Makes an authority over a root.
    pub const fn new(actor: Actor, root: BytePath) -> Self {
        Self {
            actor,
            conversation: None,
            task: None,
            command: None,
            root,
            places: Vec::new(),
            grants: Vec::new(),
        }
    }

    /// Gives the same with what the policy in effect opens besides the root.
    #[must_use]
    pub fn reaching(mut self, places: impl IntoIterator<Item = (BytePath, Access)>) -> Self {
        self.places.extend(places);
        self
    }

    /// Tells what may be done at a path by where it lies; of nested places the deepest holds. `None`
    /// where it lies in none.
    pub fn reach_of(&self, path: &BytePath) -> Option<Access> {
        if path.is_within(&self.root) {
            return Some(Access::Write);
        }
        let around = self.places.iter().filter(|(top, _)| path.is_within(top));
        around
            .max_by_key(|(top, access)| (top.depth(), *access))
            .map(|(_, access)| *access)
    }

    /// Gives the same for a conversation and perhaps a task of it.
    #[must_use]
    pub fn acting_for(mut self, conversation: ConversationId, task: Option<TaskId>) -> Self {
        self.conversation = Some(conversation);
        self.task = task;
        self
    }

    /// Gives the same for one call.
    #[must_use]
    pub fn for_call(mut self, command: CommandId) -> Self {
        self.command = Some(command);
        self
    }

    /// Gives the same with something that was allowed. Only the owner's own authority takes it.
    #[must_use]
    pub fn with_grant(mut self, grant: Grant) -> Self {
        if self.actor == Actor::Owner && !self.grants.contains(&grant) {
            self.grants.push(grant);
        }
        self
    }

    /// Gives what a request over a protocol may do in this authority's name: the actor is lowered,
    /// the root lies at or below the present one, and grants stay as they are.
    ///
    /// A root elsewhere leaves the present one.
    #[must_use]
    pub fn narrowed(&self, root: Option<&BytePath>) -> Self {
        let root = root
            .filter(|root| root.is_within(&self.root))
            .unwrap_or(&self.root);
        Self {
            actor: Actor::Protocol,
            root: root.clone(),
            ..self.clone()
        }
    }

    /// Tells on whose word it is.
    pub const fn actor(&self) -> Actor {
        self.actor
    }

    /// Lends the conversation.
    pub const fn conversation(&self) -> Option<&ConversationId> {
        self.conversation.as_ref()
    }

    /// Lends the task.
    pub const fn task(&self) -> Option<&TaskId> {
        self.task.as_ref()
    }

    /// Lends the call.
    pub const fn command(&self) -> Option<&CommandId> {
        self.command.as_ref()
    }

    /// Lends the directory on which it acts.
    pub const fn root(&self) -> &BytePath {
        &self.root
    }

    /// Lends what was allowed.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrowed_authority_never_gains() {
        let own = Authority::new(Actor::Owner, BytePath::from("/w")).with_grant(Grant::Read {
            path: BytePath::from("/data"),
        });
        let less = own.narrowed(Some(&BytePath::from("/w/sub")));
        assert_eq!(less.actor(), Actor::Protocol);
        assert_eq!(less.root(), &BytePath::from("/w/sub"));
        assert_eq!(less.grants(), own.grants());
        assert_eq!(
            less.narrowed(Some(&BytePath::from("/w"))).root(),
            less.root()
        );
        let more = less.clone().with_grant(Grant::Write {
            path: BytePath::from("/"),
        });
        assert_eq!(more, less);
    }
}
