//! What is decided about a command before anything starts.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::commands::{CommandJudgement, CompiledRules, judge, see_argv, see_shell};
use cofferdam_core::decide::Verdict;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::CommandForm;
use cofferdam_core::policy::{EffectivePolicy, Layer, Permission, ProviderChoice};
use cofferdam_core::spec::{Access, EnclosureSpec, ProviderKind};
use serde::Serialize;

use crate::approval::Permit;
use crate::host::{PolicyRequest, Resolved};
use crate::run::FrontDoor;

/// A decision, the rule that fired and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Decision {
    pub(crate) verdict: &'static str,
    pub(crate) rule: String,
    pub(crate) why: String,
}

/// Tells whether writing is asked for: the policy says so, and the request itself wants it.
pub(crate) fn asks_to_write(policy: &EffectivePolicy, request: &PolicyRequest) -> bool {
    let wants_less = request
        .request
        .as_ref()
        .and_then(|layer| layer.workspace)
        .is_some_and(|access| access == Access::Read);
    let is_settled = request.permit.as_ref().is_some_and(Permit::settles_writing);
    // What the layers themselves say about writing is no question: only the permission is.
    policy.permission.value == Permission::Approval
        && policy.workspace.value == Access::Read
        && policy.workspace.layer == policy.permission.layer
        && !is_settled
        && !wants_less
}

/// Decides whether something is started. What it may write was settled when the policy was looked
/// at ([`EffectivePolicy::hold_writes`]): a process always starts, where it can do what is allowed.
pub(crate) fn decide(policy: &EffectivePolicy) -> Decision {
    let layer = policy.permission.layer;
    let held = policy.workspace.value == Access::Read;
    let why = match policy.permission.value {
        Permission::Readonly => "it runs where nothing can be written",
        Permission::Approval if held => {
            "it runs where nothing can be written; writing is asked for"
        }
        Permission::Approval => "writing the workspace was allowed, or its tree is its own",
        Permission::Unrestricted | Permission::AutoApproval => "inside the walls nothing asks",
    };
    Decision {
        verdict: "allow",
        rule: format!("permission ({layer})"),
        why: why.to_owned(),
    }
}

/// Holds a command line against the policy's rules about commands. `root` is the workspace as the
/// command sees it.
pub(crate) fn judge_command(
    policy: &EffectivePolicy,
    provider: ProviderKind,
    form: &CommandForm,
    root: &BytePath,
) -> CommandJudgement {
    let seen = match form {
        CommandForm::Argv(words) => see_argv(words),
        CommandForm::Shell(text) => see_shell(text),
    };
    let rules = CompiledRules::new(&policy.commands);
    let has_walls = provider != ProviderKind::Direct;
    let mut judgement = judge(&rules, &seen, has_walls, Some(root));
    if rules.is_empty() && has_walls {
        // Without rules nobody said that commands are to be told apart.
        judgement.verdict = Verdict::Allow;
        "the policy has no rules about commands".clone_into(&mut judgement.why);
    }
    judgement
}

/// Tells whether somebody may have to be asked about a command that comes by a door.
pub(crate) fn asks_by_rules(policy: &EffectivePolicy, door: FrontDoor) -> bool {
    let may_have_no_walls = policy.provider.value == ProviderChoice::Direct
        || policy.fallback.value.contains(&ProviderKind::Direct);
    !is_owner(door) && (may_have_no_walls || !policy.commands.is_empty())
}

const fn is_owner(door: FrontDoor) -> bool {
    matches!(door, FrontDoor::CommandLine | FrontDoor::Embedded)
}

/// Gives what is found about a command where somebody has to be asked.
pub(crate) fn rule_question(
    resolved: &Resolved,
    spec: &EnclosureSpec,
    form: &CommandForm,
    door: FrontDoor,
) -> Option<CommandJudgement> {
    let policy = &resolved.policy;
    if !asks_by_rules(policy, door) {
        return None;
    }
    let judgement = judge_command(policy, spec.provider, form, &spec.workspace);
    let is_answered = judgement.rule.is_none() && asks_nothing(policy);
    (judgement.verdict == Verdict::Ask && !is_answered).then_some(judgement)
}

/// Decides by the rules about commands, and where nothing holds a command also without any.
///
/// Whoever typed the command at the keyboard has answered what is asked. What no rule names is
/// answered as well where the owner said beforehand that nothing is asked.
///
/// # Errors
///
/// `denied` and `approval_unavailable`, with the rule as their field and its justification.
pub(crate) fn command_rules(
    policy: &EffectivePolicy,
    provider: ProviderKind,
    form: &CommandForm,
    root: &BytePath,
    door: FrontDoor,
) -> Result<Option<CommandJudgement>, Problem> {
    if policy.commands.is_empty() && (is_owner(door) || provider != ProviderKind::Direct) {
        return Ok(None);
    }
    let judgement = judge_command(policy, provider, form, root);
    let rule = judgement.rule.as_ref();
    let name = rule.map_or_else(
        || "commands".to_owned(),
        cofferdam_core::commands::CommandRuleReference::name,
    );
    let instead = rule.and_then(|rule| rule.justification.clone());
    let refuse = |code, why: String, hint: &str| {
        let hint = instead.clone().unwrap_or_else(|| hint.to_owned());
        Err(Problem::new(code, why)
            .with_field(name.clone())
            .with_hint(hint))
    };
    let is_answered = is_owner(door) || (rule.is_none() && asks_nothing(policy));
    match judgement.verdict {
        Verdict::Deny => refuse(
            ErrorCode::Denied,
            judgement.why.clone(),
            "leave it out; cofferdam policy explain -- COMMAND shows what each rule says",
        ),
        Verdict::Ask if !is_answered => refuse(
            ErrorCode::ApprovalUnavailable,
            format!("{}, and there is nobody to ask", judgement.why),
            "the owner may put walls around it (--provider bwrap), allow it by a rule, or say that \
             nothing is asked: --permission unrestricted, or permission in a policy of their own",
        ),
        Verdict::Ask | Verdict::Allow => Ok(Some(judgement)),
    }
}

/// Tells whether the owner said that nothing is asked; what is only the default says nothing.
fn asks_nothing(policy: &EffectivePolicy) -> bool {
    let is_own = matches!(
        policy.permission.layer,
        Layer::Managed | Layer::User | Layer::CommandLine
    );
    is_own && policy.permission.value == Permission::Unrestricted
}
