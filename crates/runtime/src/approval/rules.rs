//! Commands that a rule asks about: asked before anything starts.

use cofferdam_core::approval::Entitled;
use cofferdam_core::commands::CommandJudgement;
use cofferdam_core::error::Problem;
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_core::policy::Permission;

use super::two_step::{Asking, permitted, short};
use super::{Kind, Permit};
use crate::host::Resolved;
use crate::refusal;
use crate::run::{Opening, Refused, RunRequest};
use crate::runtime::Runtime;

impl Runtime {
    /// Asks about a command that a rule asks about, and runs it when somebody said yes.
    pub(crate) fn run_rule_asking(
        &self,
        request: RunRequest<'_>,
        resolved: &Resolved,
        judgement: &CommandJudgement,
        opening: &Opening<'_>,
        told: &mut bool,
    ) -> Result<CommandOutcome, Refused> {
        let refused = |problem: Problem| (problem, Some(refusal::requested(&resolved.policy)));
        let mut asking = Asking::new(&request, resolved, opening).map_err(refused)?;
        asking.summary = format!("run {}", short(opening.words));
        // What it may write is as the policy says.
        asking.preview.writes.clear();
        if resolved.policy.permission.value == Permission::AutoApproval {
            asking.entitled = Entitled::Either;
        }
        if !*told {
            self.scribe.record_later(opening.lines());
            *told = true;
        }
        let question = asking.question(judgement.why.clone(), opening);
        let permit = self.ask(question, &request.control).map_err(refused)?;
        let rules = Permit {
            rules: permit.by().map(str::to_owned),
            ..Permit::of(Kind::AsDecided)
        };
        self.run_once(permitted(request, rules), opening, told)
    }
}
