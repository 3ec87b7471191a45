//! What is decided about an operation before anything starts: allow, ask or deny.
//!
//! One table, permission × operation × where it happens. Inside walls around a tree of the task's own
//! nothing asks; what would cross them does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::approval::{ApprovalKind, Entitled};
use crate::authority::{Authority, Grant};
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::policy::{EffectivePolicy, Permission};
use crate::spec::{Access, Digest};
use crate::tool::ToolHints;

/// What an operation would do, as far as a decision needs it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// A command runs (E1, E2).
    RunCommand {
        /// Its words.
        argv: Vec<BytePath>,
    },
    /// A session or a terminal opens: a place for more than one command (E7).
    Open,
    /// A file is read (E5).
    ReadFile {
        /// Its path.
        path: BytePath,
    },
    /// A file is made, changed or removed (E3, E4, E6).
    ChangeFile {
        /// Its path.
        path: BytePath,
    },
    /// A host that no rule allows is reached.
    ReachHost {
        /// Its name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// One command runs without walls.
    FullAccess {
        /// Its words.
        argv: Vec<BytePath>,
    },
    /// A tool is used that somebody else wrote.
    UseTool {
        /// Its name.
        name: String,
        /// What is said of it by whoever the owner trusts to say so; nothing of a tool of others.
        hints: ToolHints,
        /// Where it does its work.
        place: ToolPlace,
    },
    /// The environment is described (E9) or a path judged (E8): nothing happens.
    Describe,
}

/// Where a tool does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolPlace {
    /// As a command of ours, behind the same walls: what it may not do, it cannot.
    Walls,
    /// In a program that is asked to do it: what is said of it is all that is known.
    Elsewhere,
}

impl Operation {
    /// Digests the exact request: an answer to a question is bound to it.
    pub fn digest(&self) -> Digest {
        let text = serde_json::to_string(self).expect("an operation holds no map with odd keys");
        Digest::sha256(text.as_bytes())
    }

    /// Tells what a question about it is about.
    pub const fn kind(&self) -> ApprovalKind {
        match self {
            Self::ReadFile { .. } | Self::ChangeFile { .. } => ApprovalKind::FileChange,
            Self::ReachHost { .. } => ApprovalKind::Host,
            Self::FullAccess { .. } => ApprovalKind::FullAccess,
            Self::UseTool { .. } => ApprovalKind::Tool,
            Self::RunCommand { .. } | Self::Open | Self::Describe => ApprovalKind::Command,
        }
    }
}

/// In which tree something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// The owner's own checkout.
    Checkout,
    /// A worktree or a sandbox of the task's own: what is changed is looked at before it is merged.
    Apart,
}

/// Whether an operation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It goes on.
    Allow,
    /// Somebody who is entitled answers first.
    Ask,
    /// It does not go on.
    Deny,
}

impl Verdict {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A verdict, the rule that fired and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Which rule it is, with its layer.
    pub rule: String,
    /// Why, in one plain sentence.
    pub why: String,
    /// What the walls let a process do to the workspace, where one is started.
    pub access: Access,
    /// The code of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// Who must answer, where it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entitled: Option<Entitled>,
    /// The digest of the exact request.
    pub request: Digest,
}

impl Decision {
    /// Tells whether a command is tried where it cannot write, and writing is asked for.
    pub const fn is_a_try(&self, permission: Permission) -> bool {
        matches!(
            (self.verdict, self.access, permission),
            (Verdict::Allow, Access::Read, Permission::Approval)
        )
    }

    /// Gives the failure of an operation that does not go on, where nobody is asked; `None` when it
    /// does go on.
    pub fn problem(&self) -> Option<Problem> {
        let hint = "say permission = \"unrestricted\": the walls hold all the same";
        let code = match self.verdict {
            Verdict::Allow => return None,
            Verdict::Ask => ErrorCode::ApprovalUnavailable,
            Verdict::Deny => self.code.unwrap_or(ErrorCode::Denied),
        };
        let problem = Problem::new(code, self.why.clone()).with_field(self.rule.clone());
        Some(if code == ErrorCode::PathOutside {
            problem
        } else {
            problem.with_hint(hint)
        })
    }
}

/// Decides about an operation.
pub fn decide(
    policy: &EffectivePolicy,
    authority: &Authority,
    ground: Ground,
    operation: &Operation,
) -> Decision {
    let permission = policy.permission.value;
    let rule = format!("permission ({})", policy.permission.layer);
    let base = Decision {
        verdict: Verdict::Allow,
        rule,
        why: "it changes nothing".to_owned(),
        access: writes(permission, ground).min(policy.workspace.value),
        code: None,
        entitled: None,
        request: operation.digest(),
    };
    let allow = |why: &str| Decision {
        why: why.to_owned(),
        ..base.clone()
    };
    let ask = |why: &str, entitled| Decision {
        verdict: Verdict::Ask,
        why: why.to_owned(),
        entitled: Some(entitled),
        ..base.clone()
    };
    let deny = |code, why: &str| Decision {
        verdict: Verdict::Deny,
        why: why.to_owned(),
        code: Some(code),
        ..base.clone()
    };
    if is_granted(authority, operation, &base.request) {
        return Decision {
            rule: "grant".to_owned(),
            ..allow("it was allowed before")
        };
    }
    // A reviewer speaks for the owner where the owner said so.
    let one = if permission == Permission::AutoApproval {
        Entitled::Either
    } else {
        Entitled::Owner
    };
    match operation {
        Operation::ReadFile { path } | Operation::ChangeFile { path }
            if authority.reach_of(path).is_none() =>
        {
            // The door leads to the workspace and to what a policy opens, whatever anybody says.
            Decision {
                rule: "root".to_owned(),
                ..deny(
                    ErrorCode::PathOutside,
                    "the path lies outside of the workspace",
                )
            }
        }
        Operation::Describe | Operation::ReadFile { .. } => base,
        Operation::ChangeFile { path }
            if permission != Permission::Readonly
                && authority.reach_of(path) == Some(Access::Read) =>
        {
            Decision {
                rule: "read".to_owned(),
                ..deny(ErrorCode::Denied, "the path is open for reading only")
            }
        }
        Operation::ChangeFile { .. } => match (permission, ground) {
            (Permission::Readonly, _) => deny(
                ErrorCode::ReadonlyDenied,
                "the policy lets nothing be changed",
            ),
            (Permission::Approval, Ground::Checkout) => {
                ask("the policy asks before each change", one)
            }
            _ => allow("inside the walls nothing asks"),
        },
        Operation::RunCommand { .. } | Operation::Open => match (permission, ground) {
            (Permission::Readonly, _) => allow("it runs where nothing can be written"),
            (Permission::Approval, Ground::Checkout) => match operation {
                Operation::Open => allow("it opens where nothing can be written"),
                _ => allow("it is tried where nothing can be written; writing is asked for"),
            },
            _ => allow("inside the walls nothing asks"),
        },
        Operation::UseTool { hints, place, .. } => {
            match use_tool(permission, ground, *hints, *place) {
                ToolSaid::Allow(why) => allow(why),
                ToolSaid::Ask(why) => ask(why, one),
                ToolSaid::Deny => deny(
                    ErrorCode::ReadonlyDenied,
                    "the policy lets nothing be changed, and the tool says that it changes something",
                ),
            }
        }
        Operation::ReachHost { .. } => match permission {
            Permission::Readonly | Permission::Unrestricted => {
                deny(ErrorCode::Denied, "no rule allows the host")
            }
            Permission::Approval | Permission::AutoApproval => ask("no rule allows the host", one),
        },
        Operation::FullAccess { .. } => match permission {
            Permission::Readonly => deny(
                ErrorCode::ReadonlyDenied,
                "the policy lets nothing be changed",
            ),
            _ => ask("it would run without walls", Entitled::Both),
        },
    }
}

enum ToolSaid {
    Allow(&'static str),
    Ask(&'static str),
    Deny,
}

/// Decides about a tool by what is said of it. What is not said is taken for the worse.
const fn use_tool(
    permission: Permission,
    ground: Ground,
    hints: ToolHints,
    place: ToolPlace,
) -> ToolSaid {
    // Who says both is not believed.
    let reads = matches!(hints.read_only, Some(true)) && !matches!(hints.destructive, Some(true));
    // Behind walls the network level holds what reaches out.
    let reaches_out =
        matches!(place, ToolPlace::Elsewhere) && matches!(hints.open_world, Some(true));
    match (permission, place) {
        (Permission::Unrestricted, _) => ToolSaid::Allow("nothing is asked"),
        (Permission::Readonly, _) => match hints.read_only {
            Some(true) if reads && reaches_out => {
                ToolSaid::Ask("the tool only reads, and reaches the world outside")
            }
            Some(true) if reads => ToolSaid::Allow("the tool only reads"),
            Some(false) => ToolSaid::Deny,
            Some(true) | None => ToolSaid::Ask(
                "the policy lets nothing be changed, and the tool does not say whether it only reads",
            ),
        },
        (Permission::Approval | Permission::AutoApproval, ToolPlace::Walls)
            if matches!(ground, Ground::Apart) =>
        {
            ToolSaid::Allow("inside the walls nothing asks")
        }
        (Permission::Approval, ToolPlace::Walls) => {
            ToolSaid::Allow("it is tried where nothing can be written; writing is asked for")
        }
        (Permission::AutoApproval, ToolPlace::Walls) => {
            if matches!(hints.destructive, Some(true)) {
                ToolSaid::Ask("the tool says that something may be lost by it")
            } else {
                ToolSaid::Allow("inside the walls nothing asks")
            }
        }
        (Permission::Approval, ToolPlace::Elsewhere) => {
            if reads && !reaches_out {
                ToolSaid::Allow("the tool only reads")
            } else {
                ToolSaid::Ask("the policy asks before anything is changed")
            }
        }
        (Permission::AutoApproval, ToolPlace::Elsewhere) => {
            let stays =
                matches!(hints.destructive, Some(false)) && matches!(hints.open_world, Some(false));
            if (reads && !reaches_out) || stays {
                ToolSaid::Allow("the tool only reads, or adds to what is its own")
            } else {
                ToolSaid::Ask(
                    "the tool does not say that nothing is lost and nothing reached by it",
                )
            }
        }
    }
}

/// Gives what the walls let a process do to the workspace before anybody was asked.
pub const fn writes(permission: Permission, ground: Ground) -> Access {
    match (permission, ground) {
        (Permission::Readonly, _) | (Permission::Approval, Ground::Checkout) => Access::Read,
        _ => Access::Write,
    }
}

fn is_granted(authority: &Authority, operation: &Operation, request: &Digest) -> bool {
    authority
        .grants()
        .iter()
        .any(|grant| match (grant, operation) {
            (Grant::Request { digest }, _) => digest == request.as_str(),
            (Grant::Write { path: top }, Operation::ChangeFile { path })
            | (
                Grant::Read { path: top } | Grant::Write { path: top },
                Operation::ReadFile { path },
            ) => path.is_within(top),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::authority::Actor;
    use crate::policy::{Layer, Sourced};

    const PERMISSIONS: [Permission; 4] = [
        Permission::Readonly,
        Permission::Approval,
        Permission::AutoApproval,
        Permission::Unrestricted,
    ];

    fn with(permission: Permission) -> EffectivePolicy {
        EffectivePolicy {
            permission: Sourced::new(permission, Layer::User),
            ..EffectivePolicy::built_in()
        }
    }

    fn operations() -> Vec<(&'static str, Operation)> {
        let argv = vec![BytePath::from("true")];
        let path = |path: &str| BytePath::from(path);
        vec![
            ("run", Operation::RunCommand { argv: argv.clone() }),
            ("open", Operation::Open),
            ("read", Operation::ReadFile { path: path("/w/a") }),
            ("change", Operation::ChangeFile { path: path("/w/a") }),
            (
                "read outside",
                Operation::ReadFile {
                    path: path("/w-evil/a"),
                },
            ),
            (
                "change outside",
                Operation::ChangeFile {
                    path: path("/w-evil/a"),
                },
            ),
            (
                "host",
                Operation::ReachHost {
                    host: "example.com".to_owned(),
                    port: 443,
                },
            ),
            ("full access", Operation::FullAccess { argv }),
            ("describe", Operation::Describe),
        ]
    }

    #[test]
    fn row_64_each_permission_decides_for_each_operation_on_each_ground() {
        let authority = Authority::new(Actor::Protocol, BytePath::from("/w"));
        let mut table = String::new();
        for ground in [Ground::Checkout, Ground::Apart] {
            for (name, operation) in operations() {
                let _ = write!(table, "{ground:?} {name}:");
                for permission in PERMISSIONS {
                    let said = decide(&with(permission), &authority, ground, &operation);
                    let detail = match said.verdict {
                        Verdict::Allow => match said.access {
                            Access::Read => "(ro)",
                            Access::Write => "",
                        }
                        .to_owned(),
                        Verdict::Ask => format!("({:?})", said.entitled.expect("who")),
                        Verdict::Deny => format!("({})", said.code.expect("why")),
                    };
                    let _ = write!(table, " {}{detail}", said.verdict.as_str());
                }
                table.push('\n');
            }
        }
        insta::assert_snapshot!(table, @r"
        Checkout run: allow(ro) allow(ro) allow allow
        Checkout open: allow(ro) allow(ro) allow allow
        Checkout read: allow(ro) allow(ro) allow allow
        Checkout change: deny(readonly_denied) ask(Owner) allow allow
        Checkout read outside: deny(path_outside) deny(path_outside) deny(path_outside) deny(path_outside)
        Checkout change outside: deny(path_outside) deny(path_outside) deny(path_outside) deny(path_outside)
        Checkout host: deny(denied) ask(Owner) ask(Either) deny(denied)
        Checkout full access: deny(readonly_denied) ask(Both) ask(Both) ask(Both)
        Checkout describe: allow(ro) allow(ro) allow allow
        Apart run: allow(ro) allow allow allow
        Apart open: allow(ro) allow allow allow
        Apart read: allow(ro) allow allow allow
        Apart change: deny(readonly_denied) allow allow allow
        Apart read outside: deny(path_outside) deny(path_outside) deny(path_outside) deny(path_outside)
        Apart change outside: deny(path_outside) deny(path_outside) deny(path_outside) deny(path_outside)
        Apart host: deny(denied) ask(Owner) ask(Either) deny(denied)
        Apart full access: deny(readonly_denied) ask(Both) ask(Both) ask(Both)
        Apart describe: allow(ro) allow allow allow
        ");
    }

    #[test]
    fn row_77_what_is_said_of_a_tool_decides_in_each_permission() {
        let authority = Authority::new(Actor::Protocol, BytePath::from("/w"));
        let mut table = String::new();
        let said = [None, Some(false), Some(true)];
        for place in [ToolPlace::Walls, ToolPlace::Elsewhere] {
            for read_only in said {
                for (destructive, open_world) in [
                    (None, None),
                    (Some(false), Some(false)),
                    (Some(true), Some(false)),
                    (Some(false), Some(true)),
                ] {
                    let hints = ToolHints {
                        read_only,
                        destructive,
                        open_world,
                    };
                    let name = "tool".to_owned();
                    let operation = Operation::UseTool { name, hints, place };
                    let word =
                        |said: Option<bool>| said.map_or('?', |said| if said { 'y' } else { 'n' });
                    let _ = write!(
                        table,
                        "{place:?} reads {} destroys {} open {}:",
                        word(read_only),
                        word(destructive),
                        word(open_world)
                    );
                    for permission in PERMISSIONS {
                        let said =
                            decide(&with(permission), &authority, Ground::Checkout, &operation);
                        assert_eq!(operation.kind(), ApprovalKind::Tool);
                        let _ = write!(table, " {}", said.verdict.as_str());
                    }
                    table.push('\n');
                }
            }
        }
        insta::assert_snapshot!(table, @r"
        Walls reads ? destroys ? open ?: ask allow allow allow
        Walls reads ? destroys n open n: ask allow allow allow
        Walls reads ? destroys y open n: ask allow ask allow
        Walls reads ? destroys n open y: ask allow allow allow
        Walls reads n destroys ? open ?: deny allow allow allow
        Walls reads n destroys n open n: deny allow allow allow
        Walls reads n destroys y open n: deny allow ask allow
        Walls reads n destroys n open y: deny allow allow allow
        Walls reads y destroys ? open ?: allow allow allow allow
        Walls reads y destroys n open n: allow allow allow allow
        Walls reads y destroys y open n: ask allow ask allow
        Walls reads y destroys n open y: allow allow allow allow
        Elsewhere reads ? destroys ? open ?: ask ask ask allow
        Elsewhere reads ? destroys n open n: ask ask allow allow
        Elsewhere reads ? destroys y open n: ask ask ask allow
        Elsewhere reads ? destroys n open y: ask ask ask allow
        Elsewhere reads n destroys ? open ?: deny ask ask allow
        Elsewhere reads n destroys n open n: deny ask allow allow
        Elsewhere reads n destroys y open n: deny ask ask allow
        Elsewhere reads n destroys n open y: deny ask ask allow
        Elsewhere reads y destroys ? open ?: allow allow allow allow
        Elsewhere reads y destroys n open n: allow allow allow allow
        Elsewhere reads y destroys y open n: ask ask ask allow
        Elsewhere reads y destroys n open y: ask ask ask allow
        ");
    }

    #[test]
    fn a_path_that_a_policy_opens_is_read_or_changed_as_it_says() {
        let authority = Authority::new(Actor::Protocol, BytePath::from("/w")).reaching([
            (BytePath::from("/data"), Access::Write),
            (BytePath::from("/data/deep"), Access::Read),
        ]);
        let code = |permission, path: &str, change| {
            let path = BytePath::from(path);
            let operation = if change {
                Operation::ChangeFile { path }
            } else {
                Operation::ReadFile { path }
            };
            decide(&with(permission), &authority, Ground::Checkout, &operation).code
        };
        let open = Permission::Unrestricted;
        assert_eq!(code(open, "/data/deep/a", false), None);
        assert_eq!(code(open, "/data/deep/a", true), Some(ErrorCode::Denied));
        assert_eq!(code(open, "/data/a", true), None);
        assert_eq!(code(open, "/database", false), Some(ErrorCode::PathOutside));
        let code = code(Permission::Readonly, "/data/deep/a", true);
        assert_eq!(code, Some(ErrorCode::ReadonlyDenied));
    }

    #[test]
    fn row_75_every_refusal_has_a_stable_code_and_says_which_rule() {
        let authority = Authority::new(Actor::Protocol, BytePath::from("/w"));
        for ground in [Ground::Checkout, Ground::Apart] {
            for permission in PERMISSIONS {
                for (name, operation) in operations() {
                    let said = decide(&with(permission), &authority, ground, &operation);
                    let problem = said.problem();
                    assert_eq!(problem.is_none(), said.verdict == Verdict::Allow, "{name}");
                    assert_eq!(said.code.is_some(), said.verdict == Verdict::Deny, "{name}");
                    assert!(problem.is_none_or(|one| one.field == Some(said.rule)));
                }
            }
        }
    }

    #[test]
    fn a_grant_covers_exactly_what_was_shown() {
        let change = |path: &str| Operation::ChangeFile {
            path: BytePath::from(path),
        };
        let authority =
            Authority::new(Actor::Owner, BytePath::from("/w")).with_grant(Grant::Request {
                digest: change("/w/a").digest().0,
            });
        let policy = with(Permission::Approval);
        let verdict = |one| decide(&policy, &authority, Ground::Checkout, &one).verdict;
        assert_eq!(verdict(change("/w/a")), Verdict::Allow);
        assert_eq!(verdict(change("/w/b")), Verdict::Ask);
    }
}
