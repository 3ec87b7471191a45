//! Outcomes of what never ran.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::CommandId;
use cofferdam_core::outcome::{
    CommandOutcome, Denial, DenialSource, Isolation, IsolationLevel, OutputReference, Status,
    StreamEncoding, Usage,
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

/// Tells whether a problem is somebody's no, rather than a failure.
pub(crate) const fn status_of(code: ErrorCode) -> Status {
    match code {
        ErrorCode::Denied | ErrorCode::ApprovalUnavailable => Status::Denied,
        ErrorCode::Cancelled => Status::Cancelled,
        _ => Status::Error,
    }
}

/// Gives the outcome of a command that was refused before anything started.
pub(crate) fn outcome(
    command_id: CommandId,
    isolation: Isolation,
    problem: Problem,
    elapsed_ms: u64,
) -> CommandOutcome {
    let status = status_of(problem.code);
    let denials = if status == Status::Denied {
        vec![Denial {
            source: DenialSource::Policy,
            rule: problem.field.clone().unwrap_or_default(),
            subject: problem.message.clone(),
            instead: problem.hint.clone().unwrap_or_default(),
            askable: false,
            will_not_change: true,
        }]
    } else {
        Vec::new()
    };
    let nothing = || OutputReference {
        bytes: 0,
        digest: None,
        dropped: 0,
    };
    CommandOutcome {
        command_id,
        success: false,
        status,
        output: String::new(),
        stdout: String::new(),
        stderr: String::new(),
        stdout_encoding: StreamEncoding::Utf8,
        stderr_encoding: StreamEncoding::Utf8,
        return_code: None,
        signal: None,
        truncated: false,
        elapsed_ms,
        isolation,
        published: Vec::new(),
        denials,
        hints: Vec::new(),
        stdout_full: nothing(),
        stderr_full: nothing(),
        leftovers: Vec::new(),
        ended_by: None,
        usage: Usage::default(),
        timeout_ms: None,
        timeout_clamped: false,
        undone: Vec::new(),
        error: Some(problem),
    }
}
