//! Opening a terminal: its rights are decided and planned once, and stay as they are.

use std::sync::Arc;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Subject, event_type};
use cofferdam_core::id::SessionId;
use cofferdam_core::operation::{
    CommandForm, RunCommand, TerminalName, TerminalOpen, TerminalOpened, variables,
};
use cofferdam_core::outcome::{IsolationLevel, Status};
use cofferdam_core::plan::{self, CommandOptions, WorkspaceView};
use cofferdam_core::policy::PolicyDocument;
use cofferdam_core::spec::{
    Access, CommandSpec, EnclosureSpec, Network, ProviderKind, StreamPlan, Variable,
};
use cofferdam_exec::terminal::{Terminal, TerminalOptions};
use cofferdam_exec::{Control, Session, TerminalSize};
use serde_json::json;

use super::registry::Entry;
use super::size_of;
use crate::approval::{InPlace, Permit};
use crate::decide::{command_rules, decide};
use crate::host::{PolicyRequest, Resolved};
use crate::participants::Participants;
use crate::refusal;
use crate::run::{FrontDoor, Opening, check_directory, narrow};
use crate::runtime::Runtime;
use crate::scribe::Line;
use crate::session::SessionPlace;

/// A request to open a terminal, with everything around it.
#[derive(Debug, Clone)]
pub struct TerminalRequest {
    /// Workspace and walls.
    pub policy: PolicyRequest,
    /// The request itself.
    pub open: TerminalOpen,
    /// By which door it came.
    pub front_door: FrontDoor,
    /// By what whoever waits for an answer about it is reached.
    pub control: Control,
}

/// Who asks for a terminal.
#[derive(Clone, Copy)]
struct Asked<'a> {
    name: &'a TerminalName,
    opening: &'a Opening<'a>,
    control: &'a Control,
}

/// What a terminal was opened with, and stays with.
#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    pub(super) name: TerminalName,
    pub(super) policy: PolicyRequest,
    pub(super) policy_digest: String,
    pub(super) spec: EnclosureSpec,
    pub(super) requested: IsolationLevel,
    pub(super) command: CommandSpec,
    pub(super) write_access: Access,
    pub(super) record: bool,
    pub(super) session: Option<SessionId>,
}

impl Runtime {
    /// Opens a terminal behind walls. What it may is fixed by that: nothing widens it later.
    ///
    /// # Errors
    ///
    /// `terminal_exists`, `terminal_limit`, those of the policy, of the walls, and of starting a
    /// command.
    pub fn terminal_open(&self, request: TerminalRequest) -> Result<TerminalOpened, Problem> {
        let TerminalRequest {
            mut policy,
            open,
            front_door,
            control,
        } = request;
        let size = size_of(open.rows, open.columns)?;
        let _reserved = self.terminals.reserve(&open.name)?;
        let mut command = RunCommand::new(CommandForm::Argv(
            open.argv.iter().map(|word| word.as_str().into()).collect(),
        ));
        command.cwd = open.cwd.as_deref().map(BytePath::from);
        command.env = variables(open.env.clone());
        command.network = open.network;
        command.write_access = open.write_access;
        narrow(&mut policy, &command);
        let who = Participants::new(self.plane.ambient());
        let words = if open.argv.is_empty() {
            format!("terminal {}", open.name)
        } else {
            format!("terminal {}: {}", open.name, command.command.summary())
        };
        let opening = Opening {
            who: &who,
            words: &words,
            door: front_door,
        };
        let place = open
            .session
            .as_deref()
            .map(|session| self.place_of(session, &open))
            .transpose()?;
        self.scribe.record_later(opening.lines());
        let asked = Asked {
            name: &open.name,
            opening: &opening,
            control: &control,
        };
        let planned = match &place {
            None => self
                .look(&policy, Network::None, None)
                .and_then(|resolved| self.plan_terminal(&asked, policy, &resolved, None, command)),
            Some(place) => {
                let session = Some(&*place.session);
                let (policy, resolved) = (place.policy.clone(), &place.resolved);
                self.plan_terminal(&asked, policy, resolved, session, command)
            }
        };
        let mut lines = Vec::new();
        let (fixed, decided) = match planned {
            Ok(planned) => planned,
            Err(problem) => {
                lines.push(Line::new(
                    event_type::POLICY_DENIED,
                    &who.subject(),
                    json!({"operation": "terminal_open", "verdict": "refuse", "problem": problem}),
                ));
                lines.extend(opening.ending(Status::Denied));
                self.scribe.record_later(lines);
                return Err(problem);
            }
        };
        lines.push(Line::new(
            event_type::POLICY_DECIDED,
            &who.subject(),
            decided,
        ));
        self.scribe.record_later(lines);
        let fixed = Fixed {
            record: open.record,
            session: place.as_ref().map(|place| place.id.clone()),
            ..fixed
        };
        let terminal = match self.start_terminal(&fixed, size, &who.subject()) {
            Ok(terminal) => terminal,
            Err(problem) => {
                self.scribe.record_later(opening.ending(Status::Error));
                return Err(problem);
            }
        };
        let held = place.map(|place| place.held);
        let entry = Arc::new(Entry::new(
            open.name, fixed, who, front_door, terminal, held,
        ));
        self.terminals.add(Arc::clone(&entry));
        Ok(self.opened(&entry))
    }

    /// Gives the place of a session, whose walls are as they are.
    fn place_of(&self, session: &str, open: &TerminalOpen) -> Result<SessionPlace, Problem> {
        let narrowed = [
            ("network", open.network.is_some()),
            ("write_access", open.write_access.is_some()),
        ];
        if let Some((field, _)) = narrowed.iter().find(|(_, is_said)| *is_said) {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("{field} of a terminal in a session is that of the session"),
            )
            .with_field(*field)
            .with_hint("leave it out, or open a narrower session"));
        }
        self.session_place(session)
    }

    fn plan_terminal(
        &self,
        asked: &Asked<'_>,
        policy: PolicyRequest,
        resolved: &Resolved,
        session: Option<&Session>,
        mut command: RunCommand,
    ) -> Result<(Fixed, serde_json::Value), Problem> {
        let requested = refusal::requested(&resolved.policy);
        let decision = decide(&resolved.policy);
        command.cwd.get_or_insert_with(|| match session {
            None => resolved.cwd.clone(),
            Some(session) => session.directory(),
        });
        let shell = resolved.facts.shell.to_string();
        if command.command == CommandForm::Argv(Vec::new()) {
            command.command = CommandForm::Argv(interactive(&shell));
        }
        let mut environment = environment(&shell);
        environment.retain(|one| command.env.iter().all(|own| own.name != one.name));
        command.env.splice(0..0, environment);
        let spec = if let Some(session) = session {
            session.spec().clone()
        } else {
            let view = WorkspaceView::live(&resolved.facts.workspace);
            plan::prepare(&resolved.policy, &view, &resolved.facts, &self.scratch())?
        };
        let Asked {
            name,
            opening,
            control,
        } = *asked;
        let permit = self.ask_in_place(
            &InPlace {
                resolved,
                spec: &spec,
                command: &command,
                input: None,
            },
            opening,
            control,
        )?;
        // Whoever was asked has answered, as at the keyboard.
        let door = match &permit {
            Some(_) => FrontDoor::Embedded,
            None => opening.door,
        };
        // What is typed into it later is nobody's to judge: the walls hold it.
        let judgement = command_rules(
            &resolved.policy,
            spec.provider,
            &command.command,
            &spec.workspace,
            door,
        )?;
        let planned = plan::plan_command(
            &resolved.policy,
            &spec,
            &resolved.facts,
            &command,
            // A terminal lives until somebody closes it, unless the policy says otherwise.
            CommandOptions::command_line(StreamPlan::Terminal),
        )?;
        if spec.provider != ProviderKind::Memory {
            check_directory(&spec, &planned.spec.cwd)?;
        }
        let decided = json!({
            "operation": "terminal_open",
            "name": name,
            "verdict": decision.verdict,
            "rule": decision.rule,
            "why": decision.why,
            "provider": spec.provider,
            "network": spec.network,
            "spec_hash": spec.hash(),
            "policy": resolved.policy.digest(),
            "commands": judgement,
            "answered_by": permit.as_ref().and_then(Permit::by),
        });
        let fixed = Fixed {
            name: name.clone(),
            policy,
            policy_digest: resolved.policy.digest().to_string(),
            requested,
            command: planned.spec,
            write_access: resolved.policy.workspace.value,
            record: true,
            session: None,
            spec,
        };
        Ok((fixed, decided))
    }

    /// Starts the program of a terminal in walls that stand, or are put up.
    pub(super) fn start_terminal(
        &self,
        fixed: &Fixed,
        size: TerminalSize,
        subject: &Subject,
    ) -> Result<Terminal, Problem> {
        let hash = fixed.spec.hash().to_string();
        let enclosure = match &fixed.session {
            Some(session) => {
                let place = self.session_place(session.as_str())?;
                Arc::clone(place.session.enclosure())
            }
            None => self.terminals.enclosure(&hash, || {
                self.plane
                    .enclose(fixed.spec.clone(), fixed.requested, subject)
            })?,
        };
        Terminal::open(
            enclosure,
            TerminalOptions {
                name: fixed.name.clone(),
                command: fixed.command.clone(),
                size,
                subject: subject.clone(),
                record: fixed.record,
                about: json!({
                    "write_access": fixed.write_access,
                    "network": fixed.spec.network,
                    "provider": fixed.spec.provider,
                    "spec_hash": hash,
                }),
            },
        )
    }

    /// Closes a terminal that the policy in effect would not open like this any more.
    pub(super) fn check_crossing(&self, entry: &Arc<Entry>) -> Result<(), Problem> {
        let fixed = &entry.fixed;
        let now = self.look(&fixed.policy, Network::None, None);
        let crossed = match &now {
            Ok(resolved) if resolved.policy.digest().to_string() == fixed.policy_digest => false,
            // What is not readable now was read then: a bad file changes nothing that runs.
            Err(_) => false,
            Ok(resolved) => {
                let view = WorkspaceView::live(&resolved.facts.workspace);
                plan::prepare(&resolved.policy, &view, &resolved.facts, &self.scratch())
                    .map_or(true, |spec| spec.hash() != fixed.spec.hash())
            }
        };
        if !crossed {
            return Ok(());
        }
        self.close_entry(entry, "policy_changed");
        Err(Problem::new(
            ErrorCode::TerminalEnded,
            format!(
                "terminal {} was closed: the policy has changed what it may do",
                entry.name
            ),
        )
        .with_hint("open it again under the policy that is in effect now"))
    }
}

/// Gives the words of an interactive shell that reads nobody's start-up files.
fn interactive(shell: &str) -> Vec<BytePath> {
    let mut words = vec![BytePath::from(shell)];
    if is_bash(shell) {
        words.extend(["--noprofile", "--norc"].map(BytePath::from));
    }
    words.push(BytePath::from("-i"));
    words
}

fn is_bash(shell: &str) -> bool {
    shell.rsplit('/').next() == Some("bash")
}

/// Gives the variables that a terminal begins with beside those of the walls.
fn environment(shell: &str) -> Vec<Variable> {
    let mut pairs = vec![
        ("TERM", "xterm-256color"),
        // An empty name is no file: what is typed here is nobody's history.
        ("HISTFILE", ""),
    ];
    if is_bash(shell) {
        pairs.push(("PS1", r"\w \$ "));
    }
    pairs
        .into_iter()
        .map(|(name, value)| Variable {
            name: BytePath::from(name),
            value: BytePath::from(value),
        })
        .collect()
}

impl TerminalRequest {
    /// Asks for nothing but a name, in this workspace with these walls.
    pub fn new(policy: PolicyRequest, name: TerminalName) -> Self {
        Self {
            policy,
            open: TerminalOpen::new(name),
            front_door: FrontDoor::Embedded,
            control: Control::new(),
        }
    }

    /// Narrows what the terminal may.
    #[must_use]
    pub fn narrowed(mut self, layer: PolicyDocument) -> Self {
        self.policy.request = Some(layer);
        self
    }
}
