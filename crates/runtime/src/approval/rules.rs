//! Commands that a rule asks about: asked before anything starts.

use cofferdam_core::approval::Entitled;
use cofferdam_core::commands::CommandJudgement;
use cofferdam_core::error::Problem;
use cofferdam_core::operation::RunCommand;
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_core::policy::Permission;
use cofferdam_core::spec::EnclosureSpec;
use cofferdam_exec::Control;

use super::two_step::{Asked, Asking, permitted, short};
use super::{Kind, Permit};
use crate::decide::rule_question;
use crate::host::Resolved;
use crate::refusal;
use crate::run::{Opening, Refused, RunRequest};
use crate::runtime::Runtime;

/// What is started in a place that stands.
#[derive(Clone, Copy)]
pub(crate) struct InPlace<'a> {
    pub(crate) resolved: &'a Resolved,
    pub(crate) spec: &'a EnclosureSpec,
    /// The command as it was asked for.
    pub(crate) command: &'a RunCommand,
    /// What it reads, where it reads something.
    pub(crate) input: Option<&'a [u8]>,
}

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
        if !*told {
            self.scribe.record_later(opening.lines());
            *told = true;
        }
        let permit = self
            .ask_by_rule(
                &Asked::of(&request),
                resolved,
                judgement,
                opening,
                &request.control,
            )
            .map_err(refused)?;
        let rules = Permit {
            rules: permit.by().map(str::to_owned),
            ..Permit::of(Kind::AsDecided)
        };
        self.run_once(permitted(request, rules), opening, told)
    }

    /// Asks about what is started in a place that stands, where a rule asks about it and somebody
    /// looks at questions; gives what allowed it. `None` where nothing is asked, or nobody is there to
    /// be asked, and then the rule refuses it.
    pub(crate) fn ask_in_place(
        &self,
        request: &InPlace<'_>,
        opening: &Opening<'_>,
        control: &Control,
    ) -> Result<Option<Permit>, Problem> {
        let InPlace {
            resolved,
            spec,
            command,
            input,
        } = *request;
        if !self.answers_questions() {
            return Ok(None);
        }
        let Some(judgement) = rule_question(resolved, spec, &command.command, opening.door) else {
            return Ok(None);
        };
        let asked = Asked {
            command,
            input,
            door: opening.door,
        };
        self.ask_by_rule(&asked, resolved, &judgement, opening, control)
            .map(Some)
    }

    fn ask_by_rule(
        &self,
        asked: &Asked<'_>,
        resolved: &Resolved,
        judgement: &CommandJudgement,
        opening: &Opening<'_>,
        control: &Control,
    ) -> Result<Permit, Problem> {
        let mut asking = Asking::new(asked, resolved, opening)?;
        asking.summary = format!("run {}", short(opening.words));
        // What it may write is as the policy says.
        asking.preview.writes.clear();
        if resolved.policy.permission.value == Permission::AutoApproval {
            asking.entitled = Entitled::Either;
        }
        let question = asking.question(judgement.why.clone(), opening);
        self.ask(question, control)
    }
}
