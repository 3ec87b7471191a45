//! In which mode the workspace is worked on.

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{GetMode, ModeView, SetMode, SubmitPlan};

use super::entry::{Annotations, Operation, Scope};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "mode_get",
            "Tell the mode and the permission in effect",
            "Gives the mode that the owner has set: `policy` as the policy says, `permission` with \
             another one, or `plan`, in which nothing can be written but one folder.",
            Scope::Read,
            Annotations::READS,
            |context, _: GetMode| -> Result<ModeView, Problem> {
                context.runtime().mode(&context.policy())
            },
        ),
        Operation::new(
            "mode_set",
            "Set the mode in the owner's name",
            "What runs goes on as it began; what begins after that is in the new mode. What the managed \
             policy does not allow is refused. Only the owner's token has the scope for it; agents that \
             ask over MCP have no such tool.",
            Scope::Answer,
            Annotations::CHANGES,
            |context, request: SetMode| -> Result<ModeView, Problem> {
                context.runtime().set_mode(&context.policy(), &request)
            },
        ),
        Operation::new(
            "plan_submit",
            "Put a plan to the owner",
            "In the plan mode: asks the owner whether the plan in a file of the plan folder is to be \
             carried out, and waits for the answer. A yes ends the plan mode; a no is \
             `approval_rejected`, with the reason.",
            Scope::Execute,
            Annotations::CHANGES,
            |context, request: SubmitPlan| -> Result<ModeView, Problem> {
                context.runtime().submit_plan(&context.files(), &request)
            },
        ),
    ]
}
