//! A task from request to result.
//!
//! The states are `planned → creating → seeding → setup → running → harvesting → verifying →
//! settled`. What the task did is brought in before it is verified: the checks run on exactly that,
//! and what they change themselves is nobody's work.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::id::CommandId;
use cofferdam_core::operation::{CommandForm, RunCommand};
use cofferdam_core::outcome::{CommandOutcome, Status};
use cofferdam_core::plan;
use cofferdam_core::spec::Access;
use cofferdam_core::task::{IsolationMode, TaskRequest, TaskResult};
use cofferdam_exec::workspace::CheckoutSnapshot;
use cofferdam_exec::{CommandIo, Enclosure, Run};
use serde_json::json;

use super::course::Course;
use super::draft::Draft;
use super::measure::{self, Measured, Snapshot, Store};
use super::overview::TaskState;
use super::place::{self, Place, Prepared, Walls};
use super::request::{TaskProgress, TaskRunRequest};
use super::settle::{bring_in, clean_up, file_changes};
use super::{ledger, verify};
use crate::host::{PolicyRequest, Resolved};
use crate::profile::Agent;
use crate::refusal;
use crate::run::{Opening, fallback, plan_in};
use crate::runtime::Runtime;
use crate::snapshots::kept_changes;

impl Runtime {
    /// Runs a task to its end.
    ///
    /// Whatever happens is in the result, also what refused it before anything was made.
    ///
    /// # Errors
    ///
    /// When the journal cannot take the task, and where a profile is unknown or there is no
    /// repository in which it could work: then there is none.
    pub fn run_task(&self, request: TaskRunRequest<'_>) -> Result<TaskResult, Problem> {
        let TaskRunRequest {
            mut policy,
            task: asked,
            front_door,
            io,
            progress,
            control,
        } = request;
        if let CommandForm::Argv(argv) = &asked.command {
            self.choose_profile(&mut policy, argv);
        }
        self.refuse_early(&policy, &asked)?;
        let mut course = Course::new(self, front_door, control, progress);
        let words = asked.command.summary();
        let opening = Opening {
            who: &course.who.clone(),
            words: if asked.goal.is_empty() {
                &words
            } else {
                &asked.goal
            },
            door: front_door,
        };
        let mut lines = opening.lines();
        lines.extend(course.opening_lines(&asked)?);
        self.scribe.record(lines)?;
        course.number = ledger::number_of(self.journal().as_ref(), &course.task)?;
        let number = course.number;
        course.enter_with(TaskState::Planned, json!({"number": number}));
        let task_id = course.task.clone();
        course.tell(TaskProgress::Planned { task_id, number });

        let requested =
            refusal::asked_for(&policy.owner, cofferdam_core::spec::Network::Restricted);
        let mut draft = Draft::new(&asked, requested);
        drive(&mut course, &mut policy, &asked, io, &mut draft);
        let result = course.conclude(&asked, draft);
        let mut lines = course.closing_lines(&result)?;
        lines.extend(opening.ending(result.status));
        let mut result = result;
        if let Err(problem) = self.scribe.record(lines) {
            result.error.get_or_insert(problem);
        }
        course.tell(TaskProgress::Done);
        Ok(result)
    }
}

fn drive(
    course: &mut Course<'_>,
    policy: &mut PolicyRequest,
    asked: &TaskRequest,
    io: CommandIo<'_>,
    draft: &mut Draft,
) {
    if course.control.is_cancelled() {
        draft.fail(crate::run::cancelled());
        return;
    }
    let isolation = &mut draft.isolation;
    let prepared = place::prepare(course, policy, asked, &mut |resolved: &Resolved| {
        isolation.requested = refusal::requested(&resolved.policy);
        if matches!(
            asked.isolation_mode,
            IsolationMode::None | IsolationMode::Sandbox
        ) {
            isolation.workspace_path = Some(resolved.facts.workspace.root.clone());
        }
    });
    let mut prepared = match prepared {
        Ok(prepared) => prepared,
        Err(problem) => {
            draft.fail(problem);
            return;
        }
    };
    if let Place::Tree(tree) = &prepared.place {
        draft.isolation.workspace_path = Some(tree.record.tree.clone());
        draft.isolation.base = Some(tree.record.base.oid.clone());
    }
    let agent = match begin_agent(course, &prepared, policy, asked, &io) {
        Ok(agent) => agent,
        Err(problem) => {
            draft.fail(problem);
            clean_up(course, prepared, asked, draft);
            return;
        }
    };
    let mut kept = Kept::default();
    kept.keep(course, &prepared, When::Before, None);
    let notes = course
        .left_behind
        .iter()
        .chain(&course.notes)
        .cloned()
        .collect();
    course.tell(TaskProgress::WorkspaceReady {
        path: draft.isolation.workspace_path.clone(),
        branch: match &prepared.place {
            Place::Tree(tree) => Some(tree.record.branch.clone()),
            _ => None,
        },
        notes,
    });
    let mut measured = None;
    if let Err(problem) = work(
        course,
        &prepared,
        asked,
        agent.as_ref(),
        io,
        draft,
        &mut Measuring {
            measured: &mut measured,
            kept: &mut kept,
        },
    ) {
        draft.fail(problem);
    }
    // Its walls are gone, so nothing writes to its home any more.
    if let Some(agent) = agent
        && let Err(problem) = agent.settle(course)
    {
        draft.fail(problem);
    }
    let command = draft.outcome.as_ref().map(|one| one.command_id.clone());
    kept.keep(course, &prepared, When::After, command.as_ref());
    if let Err(problem) = super::hosts::keep_hosts(course) {
        draft.fail(problem);
    }
    if let Err(problem) = bring_in(course, &mut prepared, asked, draft, measured) {
        draft.fail(problem);
    }
    let wants_checks = !asked.verify.is_empty()
        && draft.status == Status::Completed
        && draft.error.is_none()
        && !course.control.is_cancelled();
    if wants_checks {
        course.enter(TaskState::Verifying);
        let tree = draft.verification.tree.take();
        draft.verification = verify::verify(course, &prepared, asked, &draft.files, tree);
    } else if course.control.is_cancelled() && draft.status == Status::Completed {
        draft.fail(Problem::new(
            ErrorCode::Cancelled,
            "it was cancelled before it was verified",
        ));
    }
    clean_up(course, prepared, asked, draft);
}

/// What is found out about changes while a task runs.
struct Measuring<'a> {
    measured: &'a mut Option<Measured>,
    kept: &'a mut Kept,
}

/// A moment of a task at which the user's own checkout is kept.
#[derive(Debug, Clone, Copy)]
enum When<'a> {
    Before,
    /// After a set-up step.
    Step(&'a str),
    After,
}

/// The user's own checkout, kept as it is at moments of a task that may write it.
#[derive(Debug, Default)]
struct Kept {
    newest: Option<CheckoutSnapshot>,
    /// Whether the command is one of several, each of which is to have its own changes.
    has_steps: bool,
}

impl Kept {
    const fn is_kept(&self) -> bool {
        self.newest.is_some()
    }

    /// Keeps it; `command` has ended since the moment before, and what changed is its.
    fn keep(
        &mut self,
        course: &mut Course<'_>,
        prepared: &Prepared,
        when: When<'_>,
        command: Option<&CommandId>,
    ) {
        let resolved = &prepared.resolved;
        if !matches!(prepared.place, Place::Live)
            || resolved.policy.workspace.value != Access::Write
        {
            return;
        }
        let (runtime, number) = (course.runtime, course.number);
        let top = resolved.facts.workspace.root.as_path();
        let (word, what) = match when {
            When::Before => ("before", format!("before task {number}")),
            When::After => ("after", format!("after task {number}")),
            When::Step(step) => ("after", format!("task {number} after setup: {step}")),
        };
        let taken = runtime.workspaces(&resolved.facts).and_then(|workspaces| {
            let taken = runtime.take_snapshot_at(&workspaces, top, &what, &course.subject)?;
            let changes = match (&self.newest, &taken) {
                (Some(before), Some(after)) if before.tree != after.tree => {
                    workspaces.snapshot_changes(top, before, after)?
                }
                _ => Vec::new(),
            };
            Ok((taken, changes))
        });
        match taken {
            Ok((Some(snapshot), changes)) => {
                let name = snapshot.name.clone();
                if let (Some(before), Some(command)) = (&self.newest, command)
                    && self.has_steps
                    && !changes.is_empty()
                {
                    let words = match when {
                        When::Step(step) => step,
                        _ => "",
                    };
                    let by = (command, words);
                    let data = kept_changes(&changes, by, &top.into(), (before, &snapshot));
                    course.say(event_type::FILE_CHANGED, Severity::Info, data);
                }
                self.newest = Some(snapshot);
                let summary = match when {
                    When::Before => {
                        course.notes.push(format!(
                            "your files as they were before it are snapshot {name}: \
                             cofferdam undo {name}"
                        ));
                        format!("your files before task {number} are snapshot {name}")
                    }
                    When::After => format!("your files after task {number} are snapshot {name}"),
                    When::Step(_) => return,
                };
                course.keep("snapshot", summary, None, None, json!({"snapshot": name}));
            }
            Ok((None, _)) => {}
            Err(problem) => course
                .notes
                .push(format!("your files {word} it could not be kept: {problem}")),
        }
    }
}

/// Makes the private home of the agent whose profile was named or found.
fn begin_agent(
    course: &mut Course<'_>,
    prepared: &Prepared,
    policy: &PolicyRequest,
    asked: &TaskRequest,
    io: &CommandIo<'_>,
) -> Result<Option<Agent>, Problem> {
    let runtime = course.runtime;
    let Some(profile) = runtime.profile_of(policy)? else {
        return Ok(None);
    };
    let has_terminal = matches!(io, CommandIo::Terminal { .. });
    let task = course.task.to_string();
    let agent = Agent::begin(
        runtime,
        profile,
        &prepared.resolved,
        &task,
        &asked.command,
        has_terminal,
    )?;
    agent.announce(course);
    Ok(Some(agent))
}

/// Puts the walls up, runs set-up and the command, and takes the walls down.
fn work(
    course: &mut Course<'_>,
    prepared: &Prepared,
    asked: &TaskRequest,
    agent: Option<&Agent>,
    io: CommandIo<'_>,
    draft: &mut Draft,
    measuring: &mut Measuring<'_>,
) -> Result<(), Problem> {
    let runtime = course.runtime;
    let resolved = &prepared.resolved;
    let spec = match agent {
        Some(agent) => agent.spec(runtime, resolved, prepared.view())?,
        None => prepared.spec(runtime, false)?,
    };
    let cwd = prepared.directory(&spec, asked.cwd.as_ref());
    let command = agent.map_or(&asked.command, |agent| &agent.command);
    let main = RunCommand {
        cwd: Some(cwd.clone()),
        env: agent.map_or_else(Vec::new, |agent| agent.environment.clone()),
        timeout: asked.timeout,
        idle_timeout: asked.idle_timeout,
        ..RunCommand::new(command.clone())
    };
    let root = prepared.directory(&spec, Some(&resolved.facts.workspace.root));
    let mut steps: Vec<(&str, &BytePath)> = Vec::new();
    if matches!(prepared.place, Place::Tree(_)) {
        let of_policy = &resolved.policy.setup.value;
        steps.extend(of_policy.iter().map(|step| (step.as_str(), &root)));
    }
    steps.extend(asked.setup.iter().map(|step| (step.as_str(), &cwd)));
    // What cannot be run is refused before set-up has its effect; set-up may make the directory.
    match plan_in(resolved, &spec, &main, course.door, &io) {
        Err(problem) if problem.code == ErrorCode::CwdMissing && !steps.is_empty() => {
            for step in &mut steps {
                step.1 = &root;
            }
        }
        planned => drop(planned?),
    }
    let who = course.who.clone();
    let opening = Opening {
        who: &who,
        words: "",
        door: course.door,
    };
    if let Some(line) = fallback(resolved, &spec, &opening) {
        course.say(event_type::ISOLATION_FALLBACK, Severity::Warning, line.data);
    }
    if course.control.is_cancelled() {
        return Err(crate::run::cancelled());
    }
    let requested = draft.isolation.requested;
    let enclosure = runtime.plane.enclose(spec, requested, &course.subject)?;
    let isolation = enclosure.isolation();
    draft.isolation.effective = isolation.effective;
    draft.isolation.enforced_by = isolation.enforced_by;
    if let Place::Tree(tree) = &prepared.place
        && tree.reused
    {
        draft.touched = true;
        tree.workspaces.attach(&tree.record, &Walls(&enclosure))?;
    }
    // A tree is measured whole at its end; what set-up made is told apart where there is one.
    let is_tree = matches!(prepared.place, Place::Tree(_));
    let mut before = match prepared.place {
        Place::Live => measure::snapshot(&enclosure, Store::Apart),
        Place::Tree(_) if !steps.is_empty() => measure::snapshot(&enclosure, Store::Own),
        _ => None,
    };
    draft.is_credited = (is_tree || measuring.kept.is_kept()) && !steps.is_empty();
    measuring.kept.has_steps = !steps.is_empty();
    course.enter_with(
        TaskState::Setup,
        json!({"effective": draft.isolation.effective}),
    );
    let of = steps.len();
    for (index, (step, directory)) in steps.into_iter().enumerate() {
        course.tell(TaskProgress::Setup {
            step: index + 1,
            of,
            command: step.to_owned(),
        });
        draft.touched = true;
        let command = set_up(course, resolved, &enclosure, step, directory)?;
        if let Place::Tree(tree) = &prepared.place {
            let after = credit(course, &enclosure, before.as_ref(), &command);
            if let Some(after) = after
                .as_ref()
                .filter(|after| before.as_ref() != Some(after))
            {
                let what = format!("task {} after setup: {step}", course.number);
                let base = tree.record.measured_from();
                measure::keep(&enclosure, after, base, index + 1, &what);
            }
            before = after;
        } else {
            let kept = &mut *measuring.kept;
            kept.keep(course, prepared, When::Step(step), Some(&command));
        }
    }
    course.enter(TaskState::Running);
    course.tell(TaskProgress::Running {
        command: command.summary(),
    });
    if course.control.is_cancelled() {
        return Err(crate::run::cancelled());
    }
    let touched = std::mem::replace(&mut draft.touched, true);
    let mut outcome = course.run_in(resolved, &enclosure, &main, io)?;
    if never_ran(&outcome) {
        draft.touched = touched;
    }
    course.keep_command("command", &asked.command.summary(), &mut outcome);
    draft.status = outcome.status;
    if !matches!(outcome.status, Status::Completed | Status::Failed)
        && let Some(problem) = &outcome.error
    {
        draft.error.get_or_insert(problem.clone());
    }
    if is_tree {
        credit(course, &enclosure, before.as_ref(), &outcome.command_id);
    } else if let Some(before) = before {
        *measuring.measured = measure::since(&enclosure, &before);
    }
    draft.outcome = Some(outcome);
    enclosure.close();
    Ok(())
}

/// Tells whether a command was not even begun.
fn never_ran(outcome: &CommandOutcome) -> bool {
    let code = outcome.error.as_ref().map(|problem| problem.code);
    outcome.status == Status::Error
        && matches!(
            code,
            Some(ErrorCode::NotFound | ErrorCode::NotExecutable | ErrorCode::SpawnFailed)
        )
}

/// Tells which files one command of several changed; gives the state after it.
fn credit(
    course: &mut Course<'_>,
    enclosure: &Enclosure,
    before: Option<&Snapshot>,
    command: &CommandId,
) -> Option<Snapshot> {
    let before = before?;
    let measured = measure::since(enclosure, before)?;
    if !measured.files.is_empty() {
        let mut data = file_changes(&measured.files);
        data["command_id"] = command.as_str().into();
        course.say(event_type::FILE_CHANGED, Severity::Info, data);
    }
    measured.tree.map(|tree| before.at(tree))
}

fn set_up(
    course: &mut Course<'_>,
    resolved: &Resolved,
    enclosure: &Enclosure,
    step: &str,
    cwd: &BytePath,
) -> Result<CommandId, Problem> {
    let request = RunCommand {
        cwd: Some(cwd.clone()),
        ..RunCommand::shell(step)
    };
    let io = CommandIo::Capture { input: None };
    let mut outcome = course.run_in(resolved, enclosure, &request, io)?;
    course.keep_command("setup", step, &mut outcome);
    if outcome.status == Status::Completed {
        return Ok(outcome.command_id);
    }
    if outcome.status == Status::Cancelled {
        return Err(crate::run::cancelled());
    }
    let how = match (outcome.return_code, &outcome.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => signal.clone(),
        (None, None) => outcome.status.to_string(),
    };
    let said = verify::tail(outcome.output.trim_end(), 600);
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    };
    Err(Problem::new(
        ErrorCode::SetupFailed,
        format!("set-up step {step:?} failed with {how}{said}"),
    )
    .with_hint("the command was not started; put the step right and run the task again"))
}

impl Course<'_> {
    /// Runs one command of the task in an enclosure.
    pub(crate) fn run_in(
        &mut self,
        resolved: &Resolved,
        enclosure: &Enclosure,
        request: &RunCommand,
        io: CommandIo<'_>,
    ) -> Result<CommandOutcome, Problem> {
        let planned: plan::PlannedCommand =
            plan_in(resolved, enclosure.spec(), request, self.door, &io)?;
        Ok(enclosure.run(Run {
            command: planned.spec,
            subject: self.subject.clone(),
            io,
            control: self.control.clone(),
            timeout_clamped: !planned.clamps.is_empty(),
        }))
    }
}
