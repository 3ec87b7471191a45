//! Command lines before they run (E10), and tools of the owner's own.

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{CommandCheck, CommandCheckRequest, ListTools, ToolList, ToolRun};
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_runtime::{FrontDoor, Tools};

use super::OperationTable;
use super::context::OperationContext;
use super::entry::{Annotations, Operation, Scope};
use super::run::carry_out;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "command_check",
            "Tell what would happen to a command, without running it",
            "Reads a command line with the grammar of the shell and tells each simple command in it, also \
         behind pipes, substitutions, `bash -c`, `xargs`, `sudo` and their like, with the policy's rule \
         that fires for it. `verdict` says whether run_command would run it now. Rules about commands \
         are advice: the walls are what holds.",
            Scope::Read,
            Annotations::READS,
            command_check,
        ),
        Operation::new(
            "tool_list",
            "List the owner's own tools",
            "Gives each command template with the schema of its arguments: those that come with the program, \
         those of the owner, and those that the workspace proposes, which `tool_run` refuses until the \
         owner accepts them. Over MCP each runnable one is also a tool of its own name.",
            Scope::Read,
            Annotations::READS,
            tool_list,
        ),
        Operation::new(
            "tool_run",
            "Run one of the owner's own tools and wait for its end",
            "Puts the arguments into the tool's command and runs it as run_command would, with its policy, \
         rules and limits. Each argument becomes one word, or a part of one, unchanged; no shell reads \
         it. An argument that is wrong or missing is refused before anything starts, with its name in \
         `field`. Where the permission holds changes back, what the tool says of itself decides \
         whether the owner is asked first. The result is that of run_command.",
            Scope::Execute,
            Annotations::RUNS,
            tool_run,
        ),
    ]
}

fn tool_list(context: &OperationContext, request: ListTools) -> Result<ToolList, Problem> {
    context.check_workspace(request.workspace.as_deref())?;
    Ok(context.tools().views())
}

fn tool_run(context: &OperationContext, request: ToolRun) -> Result<CommandOutcome, Problem> {
    context.check_workspace(request.workspace.as_deref())?;
    let tools = context.tools();
    let tool = tools.find(&request.name)?;
    let who = context.files();
    context.runtime().permit_tool(&who, tool, &request)?;
    carry_out(context, request.into_command(tool)?)
}

impl OperationContext {
    /// Reads the tools of the owner, of the program and of the workspace. None has the name of an
    /// operation.
    pub(crate) fn tools(&self) -> Tools {
        let table = OperationTable::new();
        self.runtime().tools(self.workspace().as_path(), |name| {
            table.find(name).is_some()
        })
    }
}

fn command_check(
    context: &OperationContext,
    request: CommandCheckRequest,
) -> Result<CommandCheck, Problem> {
    context.check_workspace(request.workspace.as_deref())?;
    let mut command = request.into_command()?;
    command
        .cwd
        .get_or_insert_with(|| context.workspace().clone());
    let policy = context.policy();
    context
        .runtime()
        .check_command(&policy, &command, FrontDoor::Protocol)
}
