//! One command from request to outcome.

use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::decide::Verdict;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::id::CommandId;
use cofferdam_core::operation::{CommandForm, Input, RunCommand};
use cofferdam_core::outcome::{CommandOutcome, Status};
use cofferdam_core::plan::{self, CommandOptions, PlannedCommand, WorkspaceView};
use cofferdam_core::policy::{EffectivePolicy, PolicyDocument};
use cofferdam_core::ports::PORT_BASE_VARIABLE;
use cofferdam_core::profile::Profile;
use cofferdam_core::spec::{Digest, EnclosureSpec, Network, StreamPlan, Variable};
use cofferdam_exec::{CommandIo, Control, PortBase, Run};
use serde_json::json;

use crate::approval::Permit;
use crate::decide::{Decision, asks_by_rules, asks_to_write, command_rules, decide, rule_question};
use crate::host::{PolicyRequest, Resolved};
use crate::idempotency::{self, Claim};
use crate::keeping::Credit;
use crate::participants::Participants;
use crate::profile::Agent;
use crate::refusal;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// By which door a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontDoor {
    /// The owner at the keyboard: no time limit unless one is said.
    CommandLine,
    /// A protocol: 120 s unless said, bounded.
    Protocol,
    /// A protocol that does not wait for the end: no time limit unless said, bounded.
    ProtocolBackground,
    /// An agent's own tool for commands, through a hook: the agent ends what takes it too long, so
    /// there is no time limit but the policy's.
    Hook,
    /// A program that embeds the runtime: as the owner.
    Embedded,
}

impl FrontDoor {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CommandLine => "command_line",
            Self::Protocol | Self::ProtocolBackground | Self::Hook => "protocol",
            Self::Embedded => "embedded",
        }
    }

    pub(crate) const fn options(self, streams: StreamPlan) -> CommandOptions {
        match self {
            Self::CommandLine | Self::Embedded | Self::Hook => {
                CommandOptions::command_line(streams)
            }
            Self::Protocol => CommandOptions {
                streams,
                ..CommandOptions::protocol()
            },
            Self::ProtocolBackground => CommandOptions {
                streams,
                default_timeout: None,
                ..CommandOptions::protocol()
            },
        }
    }
}

/// A request to run one command, with everything around it.
#[derive(Debug)]
pub struct RunRequest<'a> {
    /// Workspace and walls.
    pub policy: PolicyRequest,
    /// The command. Without a `cwd` it starts in the current directory where that lies within the
    /// workspace, else at the top of the workspace.
    pub command: RunCommand,
    /// By which door it came.
    pub front_door: FrontDoor,
    /// Its streams. What [`RunCommand::stdin`] holds is taken where this gives no input.
    pub io: CommandIo<'a>,
    /// By what others reach into it.
    pub control: Control,
}

impl Runtime {
    /// Runs one command to its end.
    ///
    /// Whatever happens is in the outcome: a request that is refused has the status `error` or
    /// `denied` and says why, and the journal has it too.
    pub fn run_command(&self, request: RunRequest<'_>) -> CommandOutcome {
        let who = Participants::new(self.plane.ambient());
        let key = request.command.idempotency_key.clone();
        let words = request.command.command.summary();
        let opening = Opening {
            who: &who,
            words: &words,
            door: request.front_door,
        };
        let id = request.control.preset(|| self.command_id());
        let refused = |problem| {
            let asked = refusal::asked_for(&request.policy.owner, Network::None);
            let isolation = refusal::no_walls(asked, self.uid());
            refusal::outcome(id.clone(), isolation, problem, 0)
        };
        let claim = key.as_deref().map(|key| self.claim(key, &opening, &id));
        let told = match claim {
            None => false,
            Some(Ok(Claim::Mine)) => true,
            Some(Ok(Claim::Theirs(claim))) => match self.outcome_of(&claim) {
                Ok(outcome) => return outcome,
                Err(problem) => return refused(problem),
            },
            Some(Ok(Claim::Cancelled)) => {
                let outcome = refused(idempotency::cancelled());
                return self.tell_refusal(&opening, outcome, false);
            }
            Some(Err(problem)) => return refused(problem),
        };
        self.carry_out(request, &opening, told)
    }

    /// Runs a command whose key is this caller's; `told` says whether its line of work has begun in
    /// the journal.
    pub(crate) fn carry_out(
        &self,
        request: RunRequest<'_>,
        opening: &Opening<'_>,
        mut told: bool,
    ) -> CommandOutcome {
        let began = self.plane.ambient().monotonic();
        let asked = refusal::asked_for(&request.policy.owner, Network::None);
        let id = request.control.preset(|| self.command_id());
        let _held = self.attendance.hold(&id, &request.control);
        match self.run_once(request, opening, &mut told) {
            Ok(outcome) => outcome,
            Err((problem, requested)) => {
                let elapsed = self.plane.ambient().monotonic().saturating_sub(began);
                let isolation = refusal::no_walls(requested.unwrap_or(asked), self.uid());
                let outcome = refusal::outcome(id, isolation, problem, elapsed.as_millis() as u64);
                self.tell_refusal(opening, outcome, told)
            }
        }
    }

    /// Runs a command by a plan that is known, or one that is made for it.
    pub(crate) fn run_once(
        &self,
        request: RunRequest<'_>,
        opening: &Opening<'_>,
        told: &mut bool,
    ) -> Result<CommandOutcome, Refused> {
        let mut request = request;
        if let Some(reason) = request.command.full_access.take() {
            return self.run_full(request, &reason, opening, told);
        }
        // A server runs many commands of one plan, a command line one. What was approved is one.
        let is_one_of_many = request.front_door == FrontDoor::Protocol
            && request.policy.permit.is_none()
            && matches!(
                request.policy.owner.profile.as_deref(),
                None | Some(cofferdam_core::profile::NO_PROFILE)
            );
        if is_one_of_many {
            self.run_known(request, opening, told)
        } else {
            self.run_inner(request, opening, told)
        }
    }

    fn run_inner(
        &self,
        request: RunRequest<'_>,
        opening: &Opening<'_>,
        told: &mut bool,
    ) -> Result<CommandOutcome, Refused> {
        let RunRequest {
            mut policy,
            mut command,
            front_door,
            io,
            control,
        } = request;
        let early = |problem| (problem, None);
        narrow(&mut policy, &command);
        self.plane.get_ready();
        let profile = self.profile_of(&policy).map_err(early)?;
        let resolved = if profile.is_some() {
            self.look_for_task(&policy, None).map_err(early)?
        } else {
            self.look(&policy, Network::None, None).map_err(early)?
        };
        let requested = refusal::requested(&resolved.policy);
        let refused = |problem| (problem, Some(requested));
        let decision = decide(&resolved.policy);
        if asks_to_write(&resolved.policy, &policy) {
            let request = RunRequest {
                policy,
                command,
                front_door,
                io,
                control,
            };
            return self.run_asking(request, &resolved, opening, told);
        }
        let answered = policy.permit.as_ref().is_some_and(Permit::settles_rules);
        if !answered && self.answers_questions() && asks_by_rules(&resolved.policy, front_door) {
            let view = WorkspaceView::live(&resolved.facts.workspace);
            let spec = plan::prepare(&resolved.policy, &view, &resolved.facts, &self.scratch())
                .map_err(refused)?;
            if let Some(judgement) = rule_question(&resolved, &spec, &command.command, front_door) {
                let request = RunRequest {
                    policy,
                    command,
                    front_door,
                    io,
                    control,
                };
                return self.run_rule_asking(request, &resolved, &judgement, opening, told);
            }
        }
        let is_try = policy.permit.as_ref().is_some_and(Permit::is_try);
        let io = with_input(io, &mut command.stdin);
        command.cwd.get_or_insert_with(|| resolved.cwd.clone());
        let _ports = own_ports(&resolved, &mut command);
        let agent = match profile {
            Some(profile) => Some(
                self.begin_agent(profile, &resolved, &mut command, &io)
                    .map_err(refused)?,
            ),
            None => None,
        };
        let view = WorkspaceView::live(&resolved.facts.workspace);
        let spec = match &agent {
            Some(agent) => agent.spec(self, &resolved, view),
            None => plan::prepare(&resolved.policy, &view, &resolved.facts, &self.scratch()),
        };
        let planned = spec.and_then(|spec| {
            let planned = plan_answered(&resolved, &spec, &command, front_door, &io, answered)?;
            if control.is_cancelled() {
                return Err(cancelled());
            }
            Ok((spec, planned))
        });
        let (spec, planned) = match planned {
            Ok(planned) => planned,
            Err(problem) => {
                // Nothing ran in its home.
                if let Some(agent) = agent {
                    agent.remove();
                }
                return Err(refused(problem));
            }
        };
        let subject = opening.who.subject();
        let mut lines = if *told { Vec::new() } else { opening.lines() };
        lines.push(decided(
            opening,
            &decision,
            &resolved.policy,
            &spec,
            &planned,
            (&spec.hash(), &resolved.policy.digest()),
        ));
        lines.extend(fallback(&resolved, &spec, opening));
        lines.extend(agent.as_ref().map(|agent| agent.line(&subject)));
        // With the intent of the enclosure, in one step.
        self.scribe.record_later(lines);
        *told = true;
        let kept = self.kept_command(&resolved, front_door, || opening.credit());
        if let Some(kept) = &kept {
            kept.begin();
        }
        let run = Run {
            command: planned.spec,
            subject: subject.clone(),
            io,
            control,
            timeout_clamped: !planned.clamps.is_empty(),
        };
        let mut has_ending = false;
        let mut outcome = self.plane.run_once(spec, requested, run, |outcome| {
            // What an agent's home has to say comes before.
            has_ending = agent.is_none() && !is_try;
            if has_ending {
                self.scribe.events(opening.ending(outcome.status))
            } else {
                Vec::new()
            }
        });
        if let Some(kept) = kept {
            kept.end(&outcome.command_id);
        }
        if let Some(agent) = agent
            && let Err(problem) = agent.settle_alone(self, &subject)
        {
            outcome.error.get_or_insert(problem);
        }
        if !has_ending && !is_try {
            self.scribe.record_later(opening.ending(outcome.status));
        }
        Ok(outcome)
    }

    /// Makes the private home of an agent for one command, and completes that command.
    fn begin_agent(
        &self,
        profile: Profile,
        resolved: &Resolved,
        command: &mut RunCommand,
        io: &CommandIo<'_>,
    ) -> Result<Agent, Problem> {
        let has_terminal = matches!(io, CommandIo::Terminal { .. });
        let name = self.command_id().to_string();
        let form = command.command.clone();
        let agent = Agent::begin(self, profile, resolved, &name, &form, has_terminal)?;
        command.command = agent.command.clone();
        command.env.extend(agent.environment.iter().cloned());
        self.note(&agent.said);
        Ok(agent)
    }

    /// Writes a refusal down. A journal that cannot be written does not change what is returned.
    pub(crate) fn tell_refusal(
        &self,
        opening: &Opening<'_>,
        mut outcome: CommandOutcome,
        told: bool,
    ) -> CommandOutcome {
        let subject = opening.who.subject();
        let mut lines = if told { Vec::new() } else { opening.lines() };
        let problem = outcome.error.clone();
        let kind = if outcome.status == Status::Denied {
            event_type::POLICY_DENIED
        } else {
            event_type::POLICY_DECIDED
        };
        let data = match outcome.denials.first() {
            Some(denial) => to_value(denial),
            None => Ok(json!({
                "operation": "run_command",
                "verdict": "refuse",
                "rule": problem.as_ref().and_then(|one| one.field.clone()),
                "why": problem.as_ref().map(|one| one.message.clone()),
                "problem": problem,
            })),
        };
        let ended = to_value(&outcome);
        if let (Ok(data), Ok(ended)) = (data, ended) {
            lines.push(Line::new(kind, &subject, data).severity(Severity::Warning));
            lines
                .push(Line::new(event_type::EXEC_ENDED, &subject, ended).severity(Severity::Error));
        }
        lines.extend(opening.ending(outcome.status));
        if let Err(problem) = self.scribe.record(lines) {
            outcome.error.get_or_insert(problem);
        }
        outcome
    }

    pub(crate) fn command_id(&self) -> CommandId {
        let (time, random) = self.plane.ambient().id_parts();
        CommandId::new(time, random)
    }

    /// Gives the uid as whom this process acts, for outcomes of what never ran.
    #[expect(
        clippy::unused_self,
        reason = "one day the caller's, told by the front door"
    )]
    pub(crate) fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }
}

pub(crate) type Refused = (Problem, Option<cofferdam_core::outcome::IsolationLevel>);

/// What is told of a line of work before and after the command itself.
pub(crate) struct Opening<'a> {
    pub(crate) who: &'a Participants,
    pub(crate) words: &'a str,
    pub(crate) door: FrontDoor,
}

impl Opening<'_> {
    /// Gives what is said of the command where its changes are kept.
    pub(crate) fn credit(&self) -> Credit {
        Credit {
            words: self.words.to_owned(),
            session: None,
            subject: self.who.subject(),
        }
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        let subject = self.who.subject();
        vec![
            Line::new(
                event_type::CONVERSATION_STARTED,
                &subject,
                json!({"goal": self.words, "front_door": self.door.as_str()}),
            ),
            Line::new(
                event_type::AGENT_STARTED,
                &subject,
                json!({"name": "owner", "role": "root", "parent": null}),
            ),
        ]
    }

    pub(crate) fn ending(&self, status: Status) -> Vec<Line> {
        let subject = self.who.subject();
        vec![
            Line::new(event_type::AGENT_ENDED, &subject, json!({"status": status})),
            Line::new(
                event_type::CONVERSATION_ENDED,
                &subject,
                json!({"status": status}),
            ),
        ]
    }
}

pub(crate) fn cancelled() -> Problem {
    Problem::new(ErrorCode::Cancelled, "it was cancelled before it started")
}

/// Puts what a request narrows into the layer that may only narrow.
pub(crate) fn narrow(policy: &mut PolicyRequest, command: &RunCommand) {
    if command.network.is_none() && command.write_access.is_none() {
        return;
    }
    let layer = policy.request.get_or_insert_with(PolicyDocument::default);
    if let Some(network) = command.network {
        layer.network = Some(layer.network.map_or(network, |own| own.min(network)));
    }
    if let Some(access) = command.write_access {
        layer.workspace = Some(layer.workspace.map_or(access, |own| own.min(access)));
    }
}

/// Gives a command whose ports are opened outside some that nobody else has there, as tasks have; they
/// are its own as long as what is given here lives.
pub(crate) fn own_ports(resolved: &Resolved, command: &mut RunCommand) -> Option<PortBase> {
    let is_said = |one: &Variable| one.name.as_bytes() == PORT_BASE_VARIABLE.as_bytes();
    let is_set =
        command.env.iter().any(is_said) || resolved.policy.env.set.contains_key(PORT_BASE_VARIABLE);
    if resolved.policy.publish.is_empty() || is_set {
        return None;
    }
    let base = PortBase::take(&resolved.facts.workspace.root.to_text())?;
    command.env.push(Variable {
        name: PORT_BASE_VARIABLE.into(),
        value: base.first().to_string().into(),
    });
    Some(base)
}

/// Takes the request's own input where the front door gives none.
pub(crate) fn with_input<'a>(io: CommandIo<'a>, stdin: &mut Input) -> CommandIo<'a> {
    match (io, std::mem::take(stdin)) {
        (CommandIo::Capture { input: None }, Input::Bytes(bytes)) => CommandIo::Capture {
            input: Some(bytes.into_bytes()),
        },
        (io, _) => io,
    }
}

pub(crate) const fn streams(io: &CommandIo<'_>) -> StreamPlan {
    match io {
        CommandIo::Terminal { .. } | CommandIo::Lent { .. } => StreamPlan::Terminal,
        CommandIo::Capture { input: Some(_) } | CommandIo::Stream { input: Some(_), .. } => {
            StreamPlan::PipesWithInput
        }
        CommandIo::Capture { input: None } | CommandIo::Stream { input: None, .. } => {
            StreamPlan::Pipes
        }
    }
}

/// Plans a command of a request, after its directory was looked at and the rules about commands were
/// asked: whatever starts a command passes here.
pub(crate) fn plan_in(
    resolved: &Resolved,
    spec: &EnclosureSpec,
    command: &RunCommand,
    door: FrontDoor,
    io: &CommandIo<'_>,
) -> Result<PlannedCommand, Problem> {
    plan_answered(resolved, spec, command, door, io, false)
}

/// Plans a command; `answered` says that what is asked about it was answered.
fn plan_answered(
    resolved: &Resolved,
    spec: &EnclosureSpec,
    command: &RunCommand,
    door: FrontDoor,
    io: &CommandIo<'_>,
    answered: bool,
) -> Result<PlannedCommand, Problem> {
    let by = (door, answered);
    plan_by(resolved, spec, command, &command.command, by, io)
}

/// The same for a command that is carried out in another form than it was asked for in: rules about
/// commands judge what was asked for.
pub(crate) fn plan_by(
    resolved: &Resolved,
    spec: &EnclosureSpec,
    command: &RunCommand,
    asked: &CommandForm,
    (door, answered): (FrontDoor, bool),
    io: &CommandIo<'_>,
) -> Result<PlannedCommand, Problem> {
    if command.full_access.is_some() {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            "full access is for a single command that somebody waits for",
        )
        .with_field("full_access")
        .with_hint("run it with run_command"));
    }
    let mut planned = plan::plan_command(
        &resolved.policy,
        spec,
        &resolved.facts,
        command,
        door.options(streams(io)),
    )?;
    planned.judgement = command_rules(
        &resolved.policy,
        spec.provider,
        asked,
        &spec.workspace,
        // Whoever was asked has answered, as at the keyboard.
        if answered { FrontDoor::Embedded } else { door },
    )?;
    if spec.provider != cofferdam_core::spec::ProviderKind::Memory {
        check_directory(spec, &planned.spec.cwd)?;
    }
    Ok(planned)
}

/// Refuses a directory that is none, or that a link leads out of the workspace.
pub(crate) fn check_directory(spec: &EnclosureSpec, cwd: &BytePath) -> Result<(), Problem> {
    let Some(rest) = cwd.below(&spec.workspace) else {
        return Ok(());
    };
    if rest.is_empty() {
        return Ok(());
    }
    let place = spec.workspace_source.join(rest);
    let real = place
        .as_path()
        .canonicalize()
        .ok()
        .filter(|path| path.is_dir());
    let Some(real) = real else {
        return Err(
            Problem::new(ErrorCode::CwdMissing, format!("{cwd} is no directory"))
                .with_field("cwd")
                .with_hint("make it first, or name another one"),
        );
    };
    let top = spec.workspace_source.as_path();
    let top = top.canonicalize().unwrap_or_else(|_| Path::to_owned(top));
    if real.starts_with(&top) {
        return Ok(());
    }
    Err(Problem::new(
        ErrorCode::CwdOutside,
        format!("{cwd} is a link that leads out of the workspace"),
    )
    .with_field("cwd"))
}

pub(crate) fn decided(
    opening: &Opening<'_>,
    decision: &Decision,
    policy: &EffectivePolicy,
    spec: &EnclosureSpec,
    planned: &PlannedCommand,
    (spec_hash, policy_digest): (&Digest, &Digest),
) -> Line {
    let mut data = json!({
            "operation": "run_command",
            "verdict": decision.verdict,
            "rule": decision.rule,
            "why": decision.why,
            "provider": spec.provider,
            "network": spec.network,
            "spec_hash": spec_hash,
            "policy": policy_digest,
            "proposals": policy.proposals,
            "clamps": planned.clamps,
    });
    if let Some(judgement) = &planned.judgement {
        data["commands"] = json!(judgement);
        if judgement.verdict == Verdict::Ask {
            data["answered_by"] = json!(opening.door.as_str());
        }
    }
    Line::new(event_type::POLICY_DECIDED, &opening.who.subject(), data)
}

/// Tells that another provider than the wished one is in effect.
pub(crate) fn fallback(
    resolved: &Resolved,
    spec: &EnclosureSpec,
    opening: &Opening<'_>,
) -> Option<Line> {
    let wished = resolved.policy.provider.value.first();
    (wished != spec.provider).then(|| {
        let why = resolved
            .facts
            .providers
            .iter()
            .find(|one| one.provider == wished)
            .and_then(|one| one.problem.clone());
        Line::new(
            event_type::ISOLATION_FALLBACK,
            &opening.who.subject(),
            json!({"from": wished, "to": spec.provider, "why": why}),
        )
        .severity(Severity::Warning)
    })
}
