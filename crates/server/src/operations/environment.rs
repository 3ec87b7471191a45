//! What an agent should be told about where it runs (E9).

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{DescribeEnvironment, EnvironmentDescription};
use cofferdam_core::policy::PolicyDocument;
use cofferdam_runtime::FrontDoor;

use super::context::OperationContext;
use super::entry::{Annotations, Operation, Scope};

pub(super) fn operations() -> Vec<Operation> {
    vec![Operation::new(
        "describe_environment",
        "Tell where commands run and what they may",
        "Gives `text` for the prompt of an agent, and the same as fields: the walls in effect and \
             what enforces them, what may be written and read, the network level with its hosts, the \
             limits, the programs that are there. Nothing is started.",
        Scope::Read,
        Annotations::READS,
        describe,
    )]
}

fn describe(
    context: &OperationContext,
    request: DescribeEnvironment,
) -> Result<EnvironmentDescription, Problem> {
    context.describe(&request)
}

impl OperationContext {
    /// Describes where commands run.
    ///
    /// # Errors
    ///
    /// Whatever would refuse every command.
    pub(crate) fn describe(
        &self,
        request: &DescribeEnvironment,
    ) -> Result<EnvironmentDescription, Problem> {
        self.check_workspace(request.workspace.as_deref())?;
        let mut policy = self.policy();
        if request.network.is_some() || request.write_access.is_some() {
            let layer = policy.request.get_or_insert_with(PolicyDocument::default);
            layer.network = request.network.or(layer.network);
            layer.workspace = request.write_access.or(layer.workspace);
        }
        self.runtime()
            .describe_environment(&policy, FrontDoor::Protocol)
    }
}
