//! Policy: the strict document, its layers, and what results from them.
//!
//! A [`PolicyDocument`] is what one layer says. [`merge`] lays the layers over the built-in values
//! and gives an [`EffectivePolicy`], in which every value knows its layer. Reading files is not done
//! here: [`read_policy`] takes text.

mod authorise;
mod check;
mod document;
mod effective;
mod explain;
mod hold;
mod hosts;
mod import;
mod merge;
mod narrow;
mod read;
mod requests;
mod reviewer;
mod secret;
mod store;

pub use authorise::{WantedPath, check_authorisation, check_outside_file};
pub use check::check_document;
pub(crate) use check::has_pattern;
pub use document::{
    AllowDocument, ByteSize, Caches, CommandDecision, CommandRule, EnvironmentDocument, Inherit,
    LimitDocument, POLICY_SCHEMA, Permission, PolicyDocument, ProtectRule, ProviderChoice,
    RequireDocument, Seconds,
};
pub use effective::{
    EffectiveAllow, EffectiveEnvironment, EffectiveLimits, EffectivePolicy, Layer, Proposal,
    Sourced,
};
pub use explain::{Explanation, FieldExplanation, RuleExplanation};
pub(crate) use hosts::covers;
pub use hosts::{HostEntry, HostSet};
pub use import::import_runner_policy;
pub use merge::{LayerDocument, NARROWING, merge};
pub(crate) use read::unknown_key;
pub use read::{PolicyFormat, policy_schema, read_policy};
pub use requests::{NetworkRule, RequestAccess};
pub use reviewer::Reviewer;
pub use secret::{PLACEHOLDER_PREFIX, SecretDocument, SecretForm, placeholder};
pub use store::{PolicyChange, PolicyStore, PolicyVersion};
