//! What is decided about a command before anything starts.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::policy::{EffectivePolicy, Permission};
use serde::Serialize;

/// A decision, the rule that fired and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Decision {
    pub(crate) verdict: &'static str,
    pub(crate) rule: String,
    pub(crate) why: String,
}

/// Decides about a command: inside the walls nothing asks, so all that is left is the permission.
pub(crate) fn decide(policy: &EffectivePolicy) -> Result<Decision, Problem> {
    let layer = policy.permission.layer;
    match policy.permission.value {
        Permission::Unrestricted | Permission::AutoApproval => Ok(Decision {
            verdict: "allow",
            rule: format!("permission ({layer})"),
            why: "inside the walls nothing asks".to_owned(),
        }),
        Permission::Approval => Err(Problem::new(
            ErrorCode::ApprovalUnavailable,
            "the policy asks before each command, and this version has nobody to ask",
        )
        .with_field("permission")
        .with_hint("say permission = \"unrestricted\": the walls hold all the same")),
        Permission::Readonly => Err(Problem::new(
            ErrorCode::Denied,
            "the policy lets nothing be run",
        )
        .with_field("permission")
        .with_hint("say permission = \"unrestricted\" and workspace = \"read\"")),
    }
}
