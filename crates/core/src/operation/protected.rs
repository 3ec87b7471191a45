//! Requests and results about protected names: how each is held, and what was taken away there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::spec::ProtectedState;

/// Lists the protected names of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListProtected {}

/// Who answers for what stands at a protected name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProtectedBy {
    /// It is held: commands cannot change it, or what they change is put back.
    Walls,
    /// Git holds it, and held it when it was first seen: a change stands in the diff.
    Git,
    /// Git holds it by now, but did not when it was first seen, so it is held as before until the
    /// owner releases it.
    Withheld,
}

impl ProtectedBy {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Walls => "walls",
            Self::Git => "git",
            Self::Withheld => "withheld",
        }
    }
}

/// A protected name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtectedLine {
    /// Absolute path on the host.
    pub path: BytePath,
    /// Which rule names it.
    pub rule: String,
    /// What stands there.
    pub state: ProtectedState,
    /// Who answers for it.
    pub by: ProtectedBy,
}

/// The protected names of a workspace, and its `.env` files that are withheld.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtectedPage {
    /// Each name, absent ones included.
    pub names: Vec<ProtectedLine>,
}

/// Lets git decide about a name from now on that it did not hold when it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseProtected {
    /// The name: absolute, or below the top of the workspace.
    pub path: BytePath,
}

/// A name that was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtectedReleased {
    /// Absolute path on the host.
    pub path: BytePath,
}

/// Lists what was taken away at protected names of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuarantine {}

/// Something that a command had put at a protected name, and that was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quarantined {
    /// Names it.
    pub quarantine_id: String,
    /// Where it stood.
    pub path: BytePath,
    /// What it is.
    pub state: ProtectedState,
    /// Length of a file, in bytes.
    pub bytes: u64,
    /// Where it lies now.
    pub kept: BytePath,
}

/// What was taken away, the newest command first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuarantinePage {
    /// Each of them.
    pub quarantined: Vec<Quarantined>,
}

/// Puts something back where a command had put it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreQuarantined {
    /// Which.
    pub quarantine_id: String,
}
