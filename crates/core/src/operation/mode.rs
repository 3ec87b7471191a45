//! Requests and results about the mode in which an owner lets a workspace be worked on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::policy::Permission;

/// Asks for the mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GetMode {}

/// A mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Mode {
    /// As the policy says.
    Policy,
    /// With another permission than the policy's.
    Permission {
        /// Which.
        permission: Permission,
    },
    /// A plan is made: nothing can be written but what lies in one folder.
    Plan {
        /// The folder, relative to the workspace or absolute.
        folder: BytePath,
    },
}

/// Sets the mode. What runs goes on as it began; what begins after that is in the new mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetMode {
    /// The mode from now on.
    pub to: Mode,
}

/// The mode of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeView {
    /// The mode.
    pub mode: Mode,
    /// The permission that is in effect with it.
    pub permission: Permission,
}

/// Submits a plan: somebody is asked, and a yes ends the plan mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitPlan {
    /// The file with the plan, in the folder of the plan mode.
    pub path: BytePath,
}
