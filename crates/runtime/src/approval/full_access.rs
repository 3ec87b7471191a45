//! One command without walls, for which two say yes: the owner and the reviewer.

use cofferdam_core::approval::{ApprovalKind, Entitled};
use cofferdam_core::authority::Authority;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::decide::{Ground, Operation, decide};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::CommandForm;
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_core::plan::{self, WorkspaceView};
use cofferdam_core::policy::{Permission, ProviderChoice};
use cofferdam_core::spec::Network;

use super::two_step::{Asked, Asking, permitted, short};
use super::{Kind, Permit};
use crate::host::PolicyRequest;
use crate::refusal;
use crate::run::{Opening, Refused, RunRequest};
use crate::runtime::Runtime;

impl Runtime {
    /// Runs a command without walls, once, when both have approved it.
    pub(crate) fn run_full(
        &self,
        request: RunRequest<'_>,
        reason: &str,
        opening: &Opening<'_>,
        told: &mut bool,
    ) -> Result<CommandOutcome, Refused> {
        let early = |problem| (problem, None);
        let resolved = self
            .look(&request.policy, Network::None, None)
            .map_err(early)?;
        let refused = |problem: Problem| (problem, Some(refusal::requested(&resolved.policy)));
        let mut asking = Asking::new(&Asked::of(&request), &resolved, opening).map_err(refused)?;
        let operation = Operation::FullAccess {
            argv: words(&request.command.command),
        };
        let authority = Authority::new(asking.binding.actor, asking.binding.root.clone());
        let decision = decide(&resolved.policy, &authority, Ground::Checkout, &operation);
        if decision.entitled != Some(Entitled::Both) {
            let problem = decision.problem().unwrap_or_else(|| {
                Problem::new(ErrorCode::Denied, "nobody decides about full access")
            });
            return Err(refused(problem));
        }
        // What a managed policy forbids is not asked for.
        let open = full_access(request.policy.clone());
        let wide = self.look(&open, Network::Full, None).map_err(refused)?;
        let view = WorkspaceView::live(&wide.facts.workspace);
        plan::prepare(&wide.policy, &view, &wide.facts, &self.scratch()).map_err(refused)?;
        asking.kind = ApprovalKind::FullAccess;
        asking.summary = format!("run without walls: {}", short(opening.words));
        asking.entitled = Entitled::Both;
        asking.remember = None;
        asking.preview.network = Some(wide.policy.network.value);
        asking.preview.writes = vec![BytePath::from("/")];
        if !*told {
            self.scribe.record_later(opening.lines());
            *told = true;
        }
        let why = format!("it says that it cannot do without: {reason}");
        let permit = self
            .ask(asking.question(why, opening), &request.control)
            .map_err(refused)?;
        let by = permit.by().unwrap_or_default().to_owned();
        let request = RunRequest {
            policy: open,
            ..request
        };
        self.run_once(
            permitted(request, Permit::of(Kind::Full(by))),
            opening,
            told,
        )
    }
}

/// Takes the walls away, as far as the managed layer and the request itself let it.
fn full_access(policy: PolicyRequest) -> PolicyRequest {
    let mut open = policy;
    open.owner.provider = Some(ProviderChoice::Direct);
    open.owner.network = Some(Network::Full);
    open.owner.permission = Some(Permission::Unrestricted);
    open
}

fn words(form: &CommandForm) -> Vec<BytePath> {
    match form {
        CommandForm::Argv(words) => words.clone(),
        CommandForm::Shell(text) => vec![BytePath::from_bytes(text.as_bytes())],
    }
}
