//! What would happen to a command line (E10).

use cofferdam_core::decide::Verdict;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{CommandCheck, RunCommand};
use cofferdam_core::plan::{self, WorkspaceView};
use cofferdam_core::spec::{Network, StreamPlan};

use crate::decide::{command_rules, judge_command};
use crate::host::PolicyRequest;
use crate::run::FrontDoor;
use crate::runtime::Runtime;

impl Runtime {
    /// Tells what would happen to a command; nothing is started.
    ///
    /// # Errors
    ///
    /// Whatever would refuse the command, but for what is decided about it: that is the answer.
    pub fn check_command(
        &self,
        policy: &PolicyRequest,
        command: &RunCommand,
        door: FrontDoor,
    ) -> Result<CommandCheck, Problem> {
        let resolved = self.look(policy, Network::None, None)?;
        let view = WorkspaceView::live(&resolved.facts.workspace);
        let enclosure = plan::prepare(&resolved.policy, &view, &resolved.facts, &self.scratch())?;
        let mut command = command.clone();
        command.cwd.get_or_insert_with(|| resolved.cwd.clone());
        let planned = plan::plan_command(
            &resolved.policy,
            &enclosure,
            &resolved.facts,
            &command,
            door.options(StreamPlan::Pipes),
        )?;
        let provider = enclosure.provider;
        let root = &enclosure.workspace;
        let judgement = judge_command(&resolved.policy, provider, &command.command, root);
        let refused = command_rules(&resolved.policy, provider, &command.command, root, door).err();
        let (verdict, why) = match refused {
            Some(problem) if problem.code == ErrorCode::Denied => (Verdict::Deny, problem.message),
            Some(problem) => (Verdict::Ask, problem.message),
            None => (Verdict::Allow, judgement.why.clone()),
        };
        Ok(CommandCheck {
            verdict,
            why,
            judgement,
            provider,
            network: enclosure.network,
            timeout_ms: planned.spec.timeout_ms,
            clamps: planned.clamps,
        })
    }
}
