//! From a request about walls to a policy in effect and facts about the host.

use std::fmt::Debug;
use std::path::PathBuf;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::facts::HostFacts;
use cofferdam_core::policy::{EffectivePolicy, PolicyDocument};
use cofferdam_core::spec::Access;

use crate::approval::Permit;

/// What the owner says about workspace and walls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyRequest {
    /// The workspace; else the git top level of the current directory, or that directory.
    pub workspace: Option<PathBuf>,
    /// A policy file in place of the user's own.
    pub policy_file: Option<PathBuf>,
    /// What the owner at the keyboard wants: may widen up to the managed ceiling.
    pub owner: PolicyDocument,
    /// What a request over a protocol wants: may only narrow.
    pub request: Option<PolicyDocument>,
    /// What was approved for this one request. Only the runtime makes one.
    pub permit: Option<Permit>,
}

/// What is to be looked at.
#[derive(Debug)]
pub struct LookRequest<'a> {
    /// What the owner says.
    pub policy: &'a PolicyRequest,
    /// What holds when no layer says anything.
    pub base: EffectivePolicy,
    /// The data directory.
    pub data_dir: &'a std::path::Path,
    /// Where the tree really lies, when a task has one of its own in the workspace's place.
    pub tree: Option<&'a std::path::Path>,
    /// Gives what the owner has authorised for a workspace, by its top.
    pub authorised: &'a dyn Authorised,
}

/// Knows which paths the owner has authorised for a workspace.
pub trait Authorised: Debug {
    /// Gives each path with what may be done there.
    fn paths(&self, workspace: &BytePath) -> Vec<(BytePath, Access)>;
}

/// A policy in effect and what it is laid over.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The policy.
    pub policy: EffectivePolicy,
    /// The host and the workspace.
    pub facts: HostFacts,
    /// The current directory where it lies within the workspace, else the top of the workspace.
    pub cwd: BytePath,
}

/// Looks at the host: finds the workspace, reads the layers of the policy, gathers the facts.
///
/// A program that embeds the runtime may bring its own, so that nothing of the machine is looked at.
pub trait HostDoor: Debug + Send + Sync {
    /// Resolves a request.
    ///
    /// # Errors
    ///
    /// `workspace_refused`, `workspace_missing` and those of reading and laying policies.
    fn look(&self, request: LookRequest<'_>) -> Result<Resolved, Problem>;

    /// Finds the workspace of a request and nothing more.
    ///
    /// # Errors
    ///
    /// `workspace_refused`, `workspace_missing`.
    fn workspace(&self, request: LookRequest<'_>) -> Result<BytePath, Problem> {
        Ok(self.look(request)?.facts.workspace.root)
    }
}
