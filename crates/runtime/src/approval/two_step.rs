//! The permission `approval` and a command: tried where nothing can be written, then asked for, then
//! run once more with the right to write the workspace. Never more than once.

use cofferdam_core::approval::{ApprovalKind, ApprovalPreview, Binding, Entitled, RememberedWhat};
use cofferdam_core::authority::Actor;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::operation::{Input, RunCommand};
use cofferdam_core::outcome::{CommandOutcome, Denial, DenialSource, Hint, Status};
use cofferdam_core::plan::looks_secret;
use cofferdam_core::policy::Reviewer;
use cofferdam_core::spec::{Access, Digest, Network, Variable};
use cofferdam_exec::{CommandIo, Control};

use super::{Kind, Permit, Question};
use crate::host::{PolicyRequest, Resolved};
use crate::refusal;
use crate::run::{FrontDoor, Opening, Refused, RunRequest};
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// What programs write when they may not write.
const SIGNS: &[&str] = &[
    "read-only file system",
    "erofs",
    "permission denied",
    "eacces",
    "operation not permitted",
];
/// Most characters of the try's output in a question.
const OUTPUT: usize = 2_000;

impl Runtime {
    /// Runs a command whose writing is asked for.
    ///
    /// Where the try could not be taken back (its output goes to somebody at once, its input is a
    /// stream, it has a key, or it goes on in the background), it is asked before, and the command
    /// runs once.
    pub(crate) fn run_asking(
        &self,
        request: RunRequest<'_>,
        resolved: &Resolved,
        opening: &Opening<'_>,
        told: &mut bool,
    ) -> Result<CommandOutcome, Refused> {
        let asking = Asking::new(&Asked::of(&request), resolved, opening)
            .map_err(|problem| (problem, Some(refusal::requested(&resolved.policy))))?;
        let (policy, command, control) = (
            request.policy.clone(),
            request.command.clone(),
            request.control.clone(),
        );
        let door = request.front_door;
        if !self.could_write(&policy)? {
            // The layers themselves let nothing be written: there is nothing to ask for.
            let request = permitted(request, Permit::of(Kind::Try));
            let outcome = self.run_once(request, opening, told)?;
            self.scribe.record_later(opening.ending(outcome.status));
            return Ok(outcome);
        }
        // What was answered before needs neither a try nor a question.
        let question = asking.question(String::new(), opening);
        if self.would_recall(&question) {
            let permit = self
                .ask(question, &control)
                .map_err(|problem| (problem, Some(refusal::requested(&resolved.policy))))?;
            return self.run_once(permitted(request, permit), opening, told);
        }
        let is_tried = command.idempotency_key.is_none() && door != FrontDoor::ProtocolBackground;
        let input = match &request.io {
            CommandIo::Capture { input } if is_tried => input.clone(),
            _ => return self.ask_before(request, resolved, asking, opening, told),
        };
        let again = |input, permit, control: &Control| {
            let request = RunRequest {
                policy: policy.clone(),
                command: command.clone(),
                front_door: door,
                io: CommandIo::Capture { input },
                control: control.clone(),
            };
            permitted(request, permit)
        };
        let mut first = self.run_once(
            again(input.clone(), Permit::of(Kind::Try), &control),
            opening,
            told,
        )?;
        let sign = sign_in(&first);
        let Some(sign) = sign.filter(|_| first.status == Status::Failed) else {
            self.scribe.record_later(opening.ending(first.status));
            return Ok(first);
        };
        let why = format!("it was tried where nothing can be written, and said {sign:?}");
        let permitted = self.ask_for(asking, why, Some(&first), opening, &control);
        match permitted {
            Ok(permit) => {
                let by = permit.by().map(str::to_owned);
                // It has an id of its own: the try had the one that is known.
                let command = self.command_id();
                let control = control.for_another(command.clone());
                let _held = self.attendance.hold(&command, &control);
                let mut second = self.run_once(again(input, permit, &control), opening, told)?;
                second.hints.push(Hint {
                    text: format!(
                        "this is the second run: the first could write nothing, and {} allowed this one",
                        by.as_deref().unwrap_or("somebody")
                    ),
                    allow: None,
                });
                Ok(second)
            }
            Err(problem) => {
                self.tell_rejection(&mut first, problem, opening);
                Ok(first)
            }
        }
    }

    /// Tells whether an answer could change what the command may write.
    fn could_write(&self, policy: &PolicyRequest) -> Result<bool, Refused> {
        let allowed = PolicyRequest {
            permit: Some(Permit::of(Kind::Write(String::new()))),
            ..policy.clone()
        };
        // The network makes no difference to what may be written.
        let resolved = self.look(&allowed, Network::None, None);
        resolved
            .map(|resolved| resolved.policy.workspace.value == Access::Write)
            .map_err(|problem| (problem, None))
    }

    fn ask_before(
        &self,
        request: RunRequest<'_>,
        resolved: &Resolved,
        asking: Asking,
        opening: &Opening<'_>,
        told: &mut bool,
    ) -> Result<CommandOutcome, Refused> {
        let why = "the policy asks before each change, and this command cannot be tried first";
        let control = request.control.clone();
        if !*told {
            self.scribe.record_later(opening.lines());
            *told = true;
        }
        let permit = self
            .ask_for(asking, why.to_owned(), None, opening, &control)
            .map_err(|problem| (problem, Some(refusal::requested(&resolved.policy))))?;
        self.run_once(permitted(request, permit), opening, told)
    }

    fn ask_for(
        &self,
        asking: Asking,
        why: String,
        first: Option<&CommandOutcome>,
        opening: &Opening<'_>,
        control: &Control,
    ) -> Result<Permit, Problem> {
        let mut question = asking.question(why, opening);
        question.preview.output = first.map(|first| tail(&first.output));
        self.ask(question, control)
    }

    /// Says that a try stays one.
    pub(super) fn tell_rejection(
        &self,
        outcome: &mut CommandOutcome,
        problem: Problem,
        opening: &Opening<'_>,
    ) {
        if problem.code == ErrorCode::Cancelled {
            outcome.status = Status::Cancelled;
        } else {
            outcome.status = Status::Denied;
        }
        let denial = Denial {
            source: DenialSource::Policy,
            rule: "approval".to_owned(),
            subject: problem.message.clone(),
            instead: problem.hint.clone().unwrap_or_default(),
            askable: false,
            will_not_change: problem.code == ErrorCode::ApprovalRejected,
        };
        let subject = opening.who.subject();
        let mut lines = Vec::new();
        if let Ok(data) = to_value(&denial) {
            let line = Line::new(event_type::POLICY_DENIED, &subject, data);
            lines.push(line.severity(Severity::Warning));
        }
        lines.extend(opening.ending(outcome.status));
        self.scribe.record_later(lines);
        outcome.denials.push(denial);
        outcome.error = Some(problem);
    }
}

/// Gives a request what was approved for it; what was approved before stays.
pub(super) fn permitted(request: RunRequest<'_>, permit: Permit) -> RunRequest<'_> {
    let rules = request.policy.permit.and_then(|before| before.rules);
    RunRequest {
        policy: PolicyRequest {
            permit: Some(Permit {
                rules: permit.rules.or(rules),
                ..permit
            }),
            ..request.policy
        },
        ..request
    }
}

/// What somebody asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) command: &'a RunCommand,
    /// What it reads, where that is known.
    pub(super) input: Option<&'a [u8]>,
    pub(super) door: FrontDoor,
}

impl<'a> Asked<'a> {
    pub(super) fn of(request: &'a RunRequest<'_>) -> Self {
        Self {
            command: &request.command,
            input: match &request.io {
                CommandIo::Capture { input } => input.as_deref(),
                _ => None,
            },
            door: request.front_door,
        }
    }
}

/// What is asked about a command: to what the answer is bound, what is shown, what is remembered.
pub(super) struct Asking {
    pub(super) kind: ApprovalKind,
    pub(super) summary: String,
    pub(super) binding: Binding,
    pub(super) preview: ApprovalPreview,
    pub(super) entitled: Entitled,
    pub(super) remember: Option<RememberedWhat>,
    pub(super) reviewer: Option<Reviewer>,
}

impl Asking {
    pub(super) fn new(
        request: &Asked<'_>,
        resolved: &Resolved,
        opening: &Opening<'_>,
    ) -> Result<Self, Problem> {
        let root = resolved.facts.workspace.root.clone();
        let command = request.command;
        let cwd = command.cwd.clone().unwrap_or_else(|| resolved.cwd.clone());
        let (exact, input) = digest(command, request.input)?;
        // Time limits and keys do not make another command of it.
        let alike = RunCommand {
            cwd: Some(cwd.clone()),
            timeout: None,
            idle_timeout: None,
            idempotency_key: None,
            ..command.clone()
        };
        let (alike, _) = digest(&alike, request.input)?;
        Ok(Self {
            kind: ApprovalKind::Command,
            summary: format!("let {} write {root}", short(opening.words)),
            binding: Binding {
                actor: match request.door {
                    FrontDoor::CommandLine | FrontDoor::Embedded => Actor::Owner,
                    FrontDoor::Protocol | FrontDoor::ProtocolBackground | FrontDoor::Hook => {
                        Actor::Protocol
                    }
                },
                task: None,
                call: Some(opening.who.operation.clone()),
                root: root.clone(),
                digest: exact,
            },
            preview: ApprovalPreview {
                command: Some(opening.words.to_owned()),
                cwd: Some(cwd),
                env: command.env.iter().map(shown_variable).collect(),
                network: Some(resolved.policy.network.value),
                writes: vec![root],
                bytes: input,
                ..ApprovalPreview::default()
            },
            entitled: Entitled::Owner,
            remember: Some(RememberedWhat::Command {
                command: opening.words.to_owned(),
                digest: alike,
            }),
            reviewer: resolved
                .policy
                .reviewer
                .as_ref()
                .map(|one| one.value.clone()),
        })
    }

    pub(super) fn question(&self, why: String, opening: &Opening<'_>) -> Question {
        Question {
            kind: self.kind,
            summary: self.summary.clone(),
            why,
            binding: self.binding.clone(),
            preview: self.preview.clone(),
            entitled: self.entitled,
            remember: self.remember.clone(),
            reviewer: self.reviewer.clone(),
            subject: opening.who.subject(),
        }
    }
}

/// Shows a variable; of what looks like a secret only the name.
fn shown_variable(one: &Variable) -> String {
    let name = one.name.to_text();
    if looks_secret(&name) {
        format!("{name}=…")
    } else {
        format!("{name}={}", one.value)
    }
}

/// Digests the exact request, its input included, and tells how long that is.
fn digest(command: &RunCommand, input: Option<&[u8]>) -> Result<(Digest, Option<u64>), Problem> {
    let mut bytes = to_value(command)?.to_string().into_bytes();
    let mut length = match &command.stdin {
        Input::Bytes(input) => Some(input.as_bytes().len() as u64),
        Input::Null => None,
    };
    if let Some(input) = input {
        bytes.push(0);
        bytes.extend_from_slice(input);
        length = Some(input.len() as u64);
    }
    Ok((Digest::sha256(&bytes), length))
}

/// Finds a sign in a command's output that it could not write.
fn sign_in(outcome: &CommandOutcome) -> Option<&'static str> {
    let text = format!("{}\n{}", outcome.stderr, outcome.stdout).to_lowercase();
    SIGNS.iter().find(|sign| text.contains(**sign)).copied()
}

fn tail(text: &str) -> String {
    let skip = text.chars().count().saturating_sub(OUTPUT);
    text.chars().skip(skip).collect()
}

pub(super) fn short(words: &str) -> String {
    let line: String = words
        .chars()
        .map(|sign| if sign.is_control() { ' ' } else { sign })
        .take(120)
        .collect();
    if words.chars().count() > 120 {
        format!("{line}…")
    } else {
        line
    }
}
