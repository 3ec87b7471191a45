//! Sessions: what is open, who finds it, and when it ends.

mod registry;
mod stamp;

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::id::{CommandId, SessionId};
use cofferdam_core::operation::{
    CommandForm, OpenSession, RunCommand, RunInSession, SessionClosed, SessionJob, SessionJobEnded,
    SessionList, SessionLogPage, SessionMode, SessionResult, SessionView, command_form, variables,
};
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_core::plan::{self, PlannedCommand, WorkspaceView};
use cofferdam_core::policy::PolicyDocument;
use cofferdam_core::spec::Network;
use cofferdam_exec::{CommandIo, Control, Run, Session, SessionEnd, SessionKind, SessionRun};
use serde_json::json;

use crate::approval::{InPlace, Permit};
use crate::decide::decide;
use crate::host::{PolicyRequest, Resolved};
use crate::keeping::Credit;
use crate::participants::Participants;
use crate::refusal;
use crate::run::{FrontDoor, Opening, plan_by};
use crate::runtime::Runtime;
use crate::scribe::Line;
use registry::Entry;
pub(crate) use registry::{Begun, Sessions};
pub(crate) use stamp::Stamp;

/// Seconds without command and job after which a session ends when nobody says another time.
const IDLE_LIMIT: f64 = 3600.0;
/// Seconds after which a session ends when nobody says another time.
const LIFETIME: f64 = 86_400.0;
/// The longest of both that can be asked for, in seconds.
const LONGEST: f64 = 30.0 * 86_400.0;
/// The longest name.
const NAME_BYTES: usize = 64;

/// The walls of a session, and by what they were planned.
#[derive(Debug)]
pub(crate) struct Walls {
    session: Arc<Session>,
    resolved: Arc<Resolved>,
    stamp: Stamp,
}

/// A session as a terminal in it needs it.
#[derive(Debug)]
pub(crate) struct SessionPlace {
    pub(crate) id: SessionId,
    pub(crate) policy: PolicyRequest,
    pub(crate) session: Arc<Session>,
    pub(crate) resolved: Arc<Resolved>,
    pub(crate) held: Begun,
}

impl Runtime {
    /// Opens a session: puts its walls up, and keeps them.
    ///
    /// # Errors
    ///
    /// `session_taken`, `session_limit`, `invalid_request` for a name or time that is none, and
    /// whatever would refuse a command with this policy.
    pub fn open_session(
        &self,
        mut policy: PolicyRequest,
        request: &OpenSession,
        door: FrontDoor,
    ) -> Result<SessionView, Problem> {
        let name = request.name.as_deref().map(check_name).transpose()?;
        let idle_limit = seconds("idle_limit", request.idle_limit, IDLE_LIMIT)?;
        let lifetime = seconds("lifetime", request.lifetime, LIFETIME)?;
        narrow(&mut policy, request);
        let ambient = self.plane.ambient();
        let (time, random) = ambient.id_parts();
        let id = SessionId::new(time, random);
        // Held from here on, so that two cannot have one name.
        let place = self.sessions.reserve(&id, name)?;
        let who = Participants::new(ambient);
        let subject = who.subject();
        let words = name.map_or_else(|| "a session".to_owned(), |name| format!("session {name}"));
        let opening = Opening {
            who: &who,
            words: &words,
            door,
        };
        let walls = self.raise(&policy, request.mode, &opening)?;
        let mut lines = vec![Line::new(
            event_type::SESSION_OPENED,
            &subject,
            json!({
                "session_id": id,
                "name": name,
                "mode": request.mode,
                "idle_limit": idle_limit.as_secs_f64(),
                "lifetime": lifetime.as_secs_f64(),
                "spec_hash": walls.session.spec().hash(),
            }),
        )];
        lines.splice(0..0, opening.lines());
        self.scribe.record(lines)?;
        let entry = Entry::new(
            registry::Terms {
                id,
                name: name.map(str::to_owned),
                mode: request.mode,
                door,
                policy,
                who,
                opened: ambient.now(),
                began: ambient.monotonic(),
                idle_limit,
                lifetime,
            },
            walls,
        );
        let view = self.view_of(&entry);
        place.fill(Arc::new(entry), &self.scribe);
        Ok(view)
    }

    /// Plans the walls of a session by the policy as it is now, and puts them up.
    fn raise(
        &self,
        policy: &PolicyRequest,
        mode: SessionMode,
        opening: &Opening<'_>,
    ) -> Result<Walls, Problem> {
        let stamp = self.policy_stamp(policy);
        let resolved = self.look(policy, Network::None, None)?;
        let view = WorkspaceView::live(&resolved.facts.workspace);
        let spec = plan::prepare(&resolved.policy, &view, &resolved.facts, &self.scratch())?;
        let requested = refusal::requested(&resolved.policy);
        let kind = match mode {
            SessionMode::Plain => SessionKind::Plain,
            SessionMode::Shell => SessionKind::Shell {
                shell: resolved.facts.shell.clone(),
            },
        };
        let subject = opening.who.subject();
        let enclosure = self.plane.enclose(spec, requested, &subject)?;
        Ok(Walls {
            session: Arc::new(Session::new(enclosure, kind)),
            resolved: Arc::new(resolved),
            stamp,
        })
    }

    /// Gives a session for a terminal in it, held until the guard is dropped, with the policy that
    /// it was opened with and what came of that.
    pub(crate) fn session_place(&self, reference: &str) -> Result<SessionPlace, Problem> {
        let entry = self.sessions.find(reference)?;
        self.follow_policy(&entry)?;
        let (session, resolved) = entry.walls();
        Ok(SessionPlace {
            id: entry.terms.id.clone(),
            policy: entry.terms.policy.clone(),
            session,
            resolved,
            held: entry.hold(),
        })
    }

    pub(crate) fn policy_stamp(&self, policy: &PolicyRequest) -> Stamp {
        // Servers name their workspace, and only they ask whether something has changed.
        let workspace: Option<BytePath> = policy.workspace.as_deref().map(Into::into);
        let mode = workspace.as_ref().map(|one| self.mode_path(one));
        let authorised = workspace.as_ref().map(|one| self.paths_in_effect(one));
        Stamp::take(
            &self.surroundings,
            policy,
            mode,
            authorised.unwrap_or_default(),
        )
    }

    /// Runs one command in a session, to its end.
    ///
    /// # Errors
    ///
    /// `session_unknown`, and `invalid_request` and its like for a command that is none. Whatever
    /// happens to the command itself is in the result.
    pub fn run_in_session(
        &self,
        request: RunInSession,
        control: &Control,
    ) -> Result<SessionResult, Problem> {
        let entry = self.sessions.find(&request.session)?;
        let form = command_form(request.command, request.argv)?;
        let words = form.summary();
        let script = match &form {
            CommandForm::Shell(text) => Some(text.clone()),
            CommandForm::Argv(_) => None,
        };
        let has_directory = request.cwd.is_some();
        let running = entry.begin(control);
        let who = entry.terms.who.another(self.plane.ambient());
        let subject = who.subject();
        let opening = Opening {
            who: &who,
            words: &words,
            door: entry.terms.door,
        };
        let mut command = RunCommand::new(form);
        command.timeout = request.timeout;
        command.idle_timeout = request.idle_timeout;
        command.env = variables(request.env);
        let input = request.stdin.map(String::into_bytes);
        let cwd = request.cwd.map(BytePath::from);
        let mut relaunched = false;
        let mut permit: Option<Permit> = None;
        let (session, resolved, planned) = loop {
            relaunched |= self.follow_policy(&entry)? | entry.take_reset();
            let (session, resolved) = entry.walls();
            command.cwd = Some(match &cwd {
                Some(cwd) => cwd.clone(),
                None => session.spec().workspace.clone(),
            });
            let planned = if permit.is_none() {
                let asked = InPlace {
                    resolved: &resolved,
                    spec: session.spec(),
                    command: &command,
                    input: input.as_deref(),
                };
                match self.ask_in_place(&asked, &opening, control) {
                    // While it was asked the policy may have become another.
                    Ok(Some(answered)) => {
                        permit = Some(answered);
                        continue;
                    }
                    Ok(None) => plan_in_session(
                        &resolved,
                        &session,
                        &command,
                        (opening.door, false),
                        input.is_some(),
                    ),
                    Err(problem) => Err(problem),
                }
            } else {
                plan_in_session(
                    &resolved,
                    &session,
                    &command,
                    (opening.door, true),
                    input.is_some(),
                )
            };
            let planned = planned.inspect_err(|problem| {
                let data = json!({
                    "operation": "session_run",
                    "session_id": entry.terms.id,
                    "verdict": "refuse",
                    "problem": problem,
                });
                let denied = Line::new(event_type::POLICY_DENIED, &subject, data);
                self.scribe.record_later(vec![denied]);
            })?;
            break (session, resolved, planned);
        };
        let decision = decide(&resolved.policy);
        self.scribe.record_later(vec![Line::new(
            event_type::POLICY_DECIDED,
            &subject,
            json!({
                "operation": "session_run",
                "session_id": entry.terms.id,
                "verdict": decision.verdict,
                "rule": decision.rule,
                "why": decision.why,
                "clamps": planned.clamps,
                "commands": planned.judgement,
                "answered_by": permit.as_ref().and_then(Permit::by),
            }),
        )]);
        let kept = self
            .kept_command(&resolved, opening.door, || Credit {
                session: Some(entry.terms.id.clone()),
                ..opening.credit()
            })
            .map(Arc::new);
        if let Some(kept) = &kept {
            // Where it waits for its turn, not before that has come.
            let kept = Arc::clone(kept);
            control.when_intended(move || kept.begin());
        }
        let patience = planned.spec.timeout_ms.map(Duration::from_millis);
        let end = session.run(SessionRun {
            run: Run {
                command: planned.spec,
                subject: subject.clone(),
                io: CommandIo::Capture { input },
                control: control.clone(),
                timeout_clamped: !planned.clamps.is_empty(),
            },
            script,
            shell: resolved.facts.shell.clone(),
            has_directory,
            patience,
            aside: request.aside,
        });
        drop(running);
        let SessionEnd {
            outcome,
            session_reset,
            directory,
            state_saved,
            state_reason,
        } = end;
        if session_reset {
            self.tell_reset(&entry, "walls_lost");
        }
        if let Some(kept) = kept {
            kept.end(&outcome.command_id);
        }
        Ok(SessionResult {
            session_id: entry.terms.id.clone(),
            session_reset: session_reset || relaunched,
            cwd: directory,
            state_saved,
            state_reason,
            result: closed_meanwhile(outcome, &entry),
        })
    }

    /// Puts other walls up where the policy changed and asks for others: true when it did. A policy
    /// that cannot be read leaves those that stand.
    fn follow_policy(&self, entry: &Entry) -> Result<bool, Problem> {
        let stamp = self.policy_stamp(&entry.terms.policy);
        if entry.has_stamp(&stamp) {
            return Ok(false);
        }
        let _following = entry.following();
        if entry.has_stamp(&stamp) {
            return Ok(false);
        }
        let policy = &entry.terms.policy;
        let Ok(resolved) = self.look(policy, Network::None, None) else {
            return Ok(false);
        };
        let view = WorkspaceView::live(&resolved.facts.workspace);
        let (session, _) = entry.walls();
        // The same private place, which is no part of the hash but of paths.
        let scratch = self.scratch();
        let spec = plan::prepare(&resolved.policy, &view, &resolved.facts, &scratch)?;
        if spec.hash() == session.spec().hash() {
            entry.replace_policy(resolved, stamp);
            return Ok(false);
        }
        let requested = refusal::requested(&resolved.policy);
        let subject = entry.terms.who.subject();
        let enclosure = self.plane.enclose(spec, requested, &subject)?;
        let next = Session::succeed(&session, enclosure);
        entry.replace_walls(Walls {
            session: Arc::new(next),
            resolved: Arc::new(resolved),
            stamp,
        });
        session.end();
        self.tell_reset(entry, "policy_changed");
        Ok(true)
    }

    fn tell_reset(&self, entry: &Entry, reason: &str) {
        let line = Line::new(
            event_type::SESSION_RESET,
            &entry.terms.who.subject(),
            json!({"session_id": entry.terms.id, "reason": reason}),
        );
        self.scribe
            .record_later(vec![line.severity(Severity::Warning)]);
    }

    /// Lists every session that is open, the oldest first.
    pub fn sessions(&self) -> SessionList {
        let entries = self.sessions.all();
        SessionList {
            sessions: entries.iter().map(|entry| self.view_of(entry)).collect(),
        }
    }

    /// Looks at one session.
    ///
    /// # Errors
    ///
    /// `session_unknown`.
    pub fn session(&self, reference: &str) -> Result<SessionView, Problem> {
        Ok(self.view_of(self.sessions.find(reference)?.as_ref()))
    }

    /// Gives what background jobs of a session wrote after the end of their commands; of one that
    /// has ended, by its id, what nobody has read yet.
    ///
    /// # Errors
    ///
    /// `session_unknown`, also for the end of what one that has ended wrote.
    pub fn session_log(&self, reference: &str, offset: u64) -> Result<SessionLogPage, Problem> {
        let found = self.sessions.find(reference);
        let ended = match &found {
            Ok(_) => None,
            Err(_) => self.sessions.find_ended(reference),
        };
        let log = match ended {
            None => found?.walls().0.log(offset),
            Some(entry) => {
                let log = entry.walls().0.log(offset);
                if log.bytes.is_empty() {
                    found?;
                }
                log
            }
        };
        Ok(SessionLogPage {
            offset: log.offset,
            text: String::from_utf8_lossy(&log.bytes).into_owned(),
            next_offset: log.next_offset,
        })
    }

    /// Ends what one command of a session left running.
    ///
    /// # Errors
    ///
    /// `session_unknown`.
    pub fn end_session_job(
        &self,
        reference: &str,
        command: &CommandId,
    ) -> Result<SessionJobEnded, Problem> {
        let (session, _) = self.sessions.find(reference)?.walls();
        let jobs = session.jobs();
        let of_command = jobs.iter().find(|job| job.command == *command);
        let ended = of_command.is_some_and(|job| session.end_job(job));
        Ok(SessionJobEnded { ended })
    }

    /// Ends everything in a session and begins it anew, at the top of the workspace.
    ///
    /// # Errors
    ///
    /// `session_unknown`, and those of putting walls up.
    pub fn reset_session(&self, reference: &str) -> Result<SessionView, Problem> {
        let entry = self.sessions.find(reference)?;
        entry.cancel_commands();
        let (session, _) = entry.walls();
        session.reset()?;
        self.tell_reset(&entry, "asked");
        Ok(self.view_of(&entry))
    }

    /// Ends a session and everything in it, and nothing else.
    ///
    /// # Errors
    ///
    /// `session_unknown`.
    pub fn close_session(&self, reference: &str) -> Result<SessionClosed, Problem> {
        let entry = self.sessions.take(reference)?;
        Ok(registry::close(&entry, "closed", &self.scribe))
    }

    /// Closes every session.
    pub(crate) fn close_sessions(&self, reason: &str) {
        std::thread::scope(|scope| {
            for entry in self.sessions.all() {
                let id = entry.terms.id.clone();
                // Somebody else may have been faster.
                if let Ok(entry) = self.sessions.take(id.as_str()) {
                    scope.spawn(move || registry::close(&entry, reason, &self.scribe));
                }
            }
        });
    }

    /// Puts other walls up for every session whose walls the policy would not put up any more, and
    /// takes those down for which it has none; gives how many.
    pub(crate) fn relaunch_crossed_sessions(&self) -> usize {
        let mut crossed = 0;
        for entry in self.sessions.all() {
            match self.follow_policy(&entry) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => {
                    // The next command is told why it cannot run.
                    entry.walls().0.end();
                    self.tell_reset(&entry, "policy_changed");
                }
            }
            entry.note_reset();
            crossed += 1;
        }
        crossed
    }

    fn view_of(&self, entry: &Entry) -> SessionView {
        let (session, _) = entry.walls();
        let jobs = session.jobs();
        let terms = &entry.terms;
        let now = self.plane.ambient().monotonic();
        let progress = entry.progress();
        let is_idle = progress.running == 0 && jobs.is_empty();
        let lifetime = jiff::SignedDuration::try_from(terms.lifetime).unwrap_or_default();
        SessionView {
            session_id: terms.id.clone(),
            name: terms.name.clone(),
            mode: terms.mode,
            cwd: session.directory(),
            conversation_id: terms.who.conversation.clone(),
            opened: terms.opened,
            commands: progress.commands,
            running: progress.running,
            jobs: jobs
                .into_iter()
                .map(|job| SessionJob {
                    command_id: job.command,
                    processes: job.processes,
                })
                .collect(),
            standing: session.is_standing(),
            idle_limit: terms.idle_limit.as_secs_f64(),
            idle: if is_idle {
                now.saturating_sub(progress.last_end).as_secs_f64()
            } else {
                0.0
            },
            ends: terms.opened.checked_add(lifetime).unwrap_or(terms.opened),
            isolation: session.isolation(),
        }
    }
}

/// Plans a command as the session carries it out, a script as its shell; rules judge what was asked.
fn plan_in_session(
    resolved: &Resolved,
    session: &Session,
    command: &RunCommand,
    by: (FrontDoor, bool),
    has_input: bool,
) -> Result<PlannedCommand, Problem> {
    let carried = match &command.command {
        CommandForm::Shell(_) => RunCommand {
            command: CommandForm::Argv(vec![resolved.facts.shell.clone()]),
            ..command.clone()
        },
        CommandForm::Argv(_) => command.clone(),
    };
    let spec = session.spec();
    let input = has_input.then(Vec::new);
    let io = CommandIo::Capture { input };
    plan_by(resolved, spec, &carried, &command.command, by, &io)
}

/// A command whose session was closed under it was cancelled, and did not lose its place.
fn closed_meanwhile(mut outcome: CommandOutcome, entry: &Entry) -> CommandOutcome {
    if entry.is_closed()
        && let Some(problem) = &mut outcome.error
        && problem.code == ErrorCode::EnclosureLost
    {
        "the session was closed".clone_into(&mut problem.message);
    }
    outcome
}

fn narrow(policy: &mut PolicyRequest, request: &OpenSession) {
    let layer = policy.request.get_or_insert_with(PolicyDocument::default);
    if let Some(network) = request.network {
        layer.network = Some(layer.network.map_or(network, |own| own.min(network)));
    }
    if let Some(access) = request.write_access {
        layer.workspace = Some(layer.workspace.map_or(access, |own| own.min(access)));
    }
}

fn check_name(name: &str) -> Result<&str, Problem> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_id = name.starts_with("sess_");
    if (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(good) && !is_id {
        return Ok(name);
    }
    Err(Problem::new(
        ErrorCode::InvalidRequest,
        format!("{name:?} is no name of a session"),
    )
    .with_field("name")
    .with_hint("take 1 to 64 letters, digits, -, _ and ., and not the form of an id"))
}

fn seconds(field: &str, wanted: Option<f64>, default: f64) -> Result<Duration, Problem> {
    let wanted = wanted.unwrap_or(default);
    if wanted.is_finite() && wanted > 0.0 && wanted <= LONGEST {
        return Ok(Duration::from_secs_f64(wanted));
    }
    Err(Problem::new(
        ErrorCode::InvalidTimeout,
        format!("{field} must be above zero and at most {LONGEST} seconds, it is {wanted}"),
    )
    .with_field(field)
    .with_hint("leave it out for the default"))
}
