//! Outcomes of what never ran.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::CommandId;
use cofferdam_core::outcome::{
    CommandOutcome, Denial, DenialSource, Isolation, IsolationLevel, Status,
};
use cofferdam_core::policy::{EffectivePolicy, PolicyDocument, ProviderChoice};
use cofferdam_core::spec::Network;

/// Gives the walls that an owner asked for, as far as that is known before the layers are laid.
pub(crate) fn asked_for(document: &PolicyDocument, default: Network) -> IsolationLevel {
    IsolationLevel {
        provider: document.provider.and_then(ProviderChoice::named),
        network: document.network.unwrap_or(default),
    }
}

/// Refuses to open what would outlive a server that ends.
pub(crate) fn stopping() -> Problem {
    Problem::new(
        ErrorCode::ServerUnreachable,
        "the server is being stopped, and opens nothing more",
    )
}

/// Gives the walls that a policy asks for.
pub(crate) const fn requested(policy: &EffectivePolicy) -> IsolationLevel {
    IsolationLevel {
        provider: policy.provider.value.named(),
        network: policy.network.value,
    }
}

/// Gives the isolation of what never ran: no walls were put up, and nothing saw a network.
pub(crate) const fn no_walls(requested: IsolationLevel, uid: u32) -> Isolation {
    Isolation {
        requested,
        effective: IsolationLevel {
            provider: None,
            network: Network::None,
        },
        enforced_by: Vec::new(),
        gaps: Vec::new(),
        uid,
    }
}

/// Gives the outcome of a command that was refused before anything started.
pub(crate) fn outcome(
    command_id: CommandId,
    isolation: Isolation,
    problem: Problem,
    elapsed_ms: u64,
) -> CommandOutcome {
    let mut outcome = CommandOutcome::never_ran(command_id, isolation, problem, elapsed_ms);
    if let (Status::Denied, Some(problem)) = (outcome.status, &outcome.error) {
        outcome.denials = vec![Denial {
            source: DenialSource::Policy,
            rule: problem.field.clone().unwrap_or_default(),
            subject: problem.message.clone(),
            instead: problem.hint.clone().unwrap_or_default(),
            askable: false,
            will_not_change: true,
        }];
    }
    outcome
}
