//! A task from request to result.
//!
//! The states are `planned → creating → seeding → setup → running → harvesting → verifying →
//! settled`. What the task did is brought in before it is verified: the checks run on exactly that,
//! and what they change themselves is nobody's work.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::id::TaskId;
use cofferdam_core::operation::RunCommand;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel, Status};
use cofferdam_core::plan;
use cofferdam_core::task::{
    ChangeKind, CleanupPolicy, CleanupStatus, DiffSummary, IsolationMode, Merge, MergeStatus,
    ModifiedFile, TaskIsolation, TaskRequest, TaskResult, Verification, VerificationStatus,
    WorkspaceStrategy,
};
use cofferdam_exec::workspace::TreeState;
use cofferdam_exec::{CommandIo, Enclosure, Run};
use serde_json::{Value, json};

use super::course::Course;
use super::ledger;
use super::measure::{self, Measured};
use super::overview::TaskState;
use super::place::{self, Place, Prepared, Walls};
use super::request::{TaskProgress, TaskRunRequest};
use super::{verify, words};
use crate::host::{PolicyRequest, Resolved};
use crate::refusal;
use crate::run::{Opening, fallback, plan_in};
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// What is known of a result while it comes about.
pub(crate) struct Draft {
    status: Status,
    isolation: TaskIsolation,
    files: Vec<ModifiedFile>,
    summary: DiffSummary,
    outcome: Option<CommandOutcome>,
    verification: Verification,
    merge: MergeStatus,
    error: Option<Problem>,
    /// Whether anything of the task's, set-up included, ran in its place.
    touched: bool,
}

impl Draft {
    fn new(asked: &TaskRequest, requested: IsolationLevel) -> Self {
        let nothing = refusal::no_walls(requested, 0);
        Self {
            status: Status::Error,
            isolation: TaskIsolation {
                mode: asked.isolation_mode,
                workspace_path: None,
                branch: None,
                base: None,
                cleanup_status: CleanupStatus::NotNeeded,
                requested,
                effective: nothing.effective,
                enforced_by: Vec::new(),
            },
            files: Vec::new(),
            summary: DiffSummary {
                text: words::figures(&DiffSummary::default()),
                ..DiffSummary::default()
            },
            outcome: None,
            verification: verify::skipped(asked),
            merge: MergeStatus::Nothing,
            error: None,
            touched: false,
        }
    }

    fn fail(&mut self, problem: Problem) {
        if self.outcome.is_none() {
            self.status = refusal::status_of(problem.code);
        }
        self.error.get_or_insert(problem);
    }

    fn is_good(&self) -> bool {
        self.status == Status::Completed
            && self.error.is_none()
            && matches!(
                self.verification.status,
                VerificationStatus::Passed | VerificationStatus::Skipped
            )
    }
}

impl Runtime {
    /// Runs a task to its end.
    ///
    /// Whatever happens is in the result, also what refused it before anything was made.
    ///
    /// # Errors
    ///
    /// Only when the journal cannot take the task: then there is none.
    pub fn run_task(&self, request: TaskRunRequest<'_>) -> Result<TaskResult, Problem> {
        let TaskRunRequest {
            mut policy,
            task: asked,
            front_door,
            io,
            progress,
            control,
        } = request;
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
    if let Err(problem) = work(course, &prepared, asked, io, draft, &mut measured) {
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

/// Puts the walls up, runs set-up and the command, and takes the walls down.
fn work(
    course: &mut Course<'_>,
    prepared: &Prepared,
    asked: &TaskRequest,
    io: CommandIo<'_>,
    draft: &mut Draft,
    measured: &mut Option<Measured>,
) -> Result<(), Problem> {
    let runtime = course.runtime;
    let resolved = &prepared.resolved;
    crate::decide::decide(&resolved.policy)?;
    let spec = prepared.spec(runtime, false)?;
    let cwd = prepared.directory(&spec, asked.cwd.as_ref());
    let main = RunCommand {
        cwd: Some(cwd.clone()),
        timeout: asked.timeout,
        idle_timeout: asked.idle_timeout,
        ..RunCommand::new(asked.command.clone())
    };
    // What cannot be run is refused before set-up has its effect.
    plan_in(resolved, &spec, &main, course.door, &io)?;
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
    let before = match prepared.place {
        Place::Live => measure::snapshot(&enclosure),
        _ => None,
    };
    course.enter_with(
        TaskState::Setup,
        json!({"effective": draft.isolation.effective}),
    );
    let mut steps: Vec<&String> = Vec::new();
    if matches!(prepared.place, Place::Tree(_)) {
        steps.extend(&resolved.policy.setup.value);
    }
    steps.extend(&asked.setup);
    let of = steps.len();
    for (index, step) in steps.into_iter().enumerate() {
        course.tell(TaskProgress::Setup {
            step: index + 1,
            of,
            command: step.clone(),
        });
        draft.touched = true;
        set_up(course, resolved, &enclosure, step, &cwd)?;
    }
    course.enter(TaskState::Running);
    course.tell(TaskProgress::Running {
        command: asked.command.summary(),
    });
    if course.control.is_cancelled() {
        return Err(crate::run::cancelled());
    }
    draft.touched = true;
    let mut outcome = course.run_in(resolved, &enclosure, &main, io)?;
    course.keep_command("command", &asked.command.summary(), &mut outcome);
    draft.status = outcome.status;
    if !matches!(outcome.status, Status::Completed | Status::Failed)
        && let Some(problem) = &outcome.error
    {
        draft.error.get_or_insert(problem.clone());
    }
    draft.outcome = Some(outcome);
    if let Some(before) = before {
        *measured = measure::since(&enclosure, &before);
    }
    enclosure.close();
    Ok(())
}

fn set_up(
    course: &mut Course<'_>,
    resolved: &Resolved,
    enclosure: &Enclosure,
    step: &str,
    cwd: &cofferdam_core::bytes::BytePath,
) -> Result<(), Problem> {
    let request = RunCommand {
        cwd: Some(cwd.clone()),
        ..RunCommand::shell(step)
    };
    let io = CommandIo::Capture { input: None };
    let mut outcome = course.run_in(resolved, enclosure, &request, io)?;
    course.keep_command("setup", step, &mut outcome);
    if outcome.status == Status::Completed {
        return Ok(());
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

/// Brings in what was done, and tells what changed.
fn bring_in(
    course: &mut Course<'_>,
    prepared: &mut Prepared,
    asked: &TaskRequest,
    draft: &mut Draft,
    measured: Option<Measured>,
) -> Result<(), Problem> {
    if !draft.touched {
        return Ok(());
    }
    if draft.outcome.is_none() {
        // Set-up failed: there is no work to bring in, unless everything is to go, or to be used
        // again.
        let goes = asked.cleanup_policy == CleanupPolicy::Always
            || asked.workspace_strategy == WorkspaceStrategy::Persistent;
        if !goes {
            return Ok(());
        }
    }
    course.enter(TaskState::Harvesting);
    course.tell(TaskProgress::Harvesting);
    match &mut prepared.place {
        Place::Session => return Ok(()),
        Place::Live => {
            let Some(measured) = measured else {
                course
                    .notes
                    .push("what changed could not be measured".to_owned());
                return Ok(());
            };
            draft.files = measured.files;
            draft.summary = measured.summary;
            draft.verification.tree = measured.tree;
        }
        Place::Tree(_) => harvest(course, prepared, draft)?,
    }
    let shown = if draft.files.is_empty() {
        None
    } else {
        let mut data = file_changes(&course.task, &draft.files);
        if let Some(outcome) = &draft.outcome {
            data["command_id"] = outcome.command_id.as_str().into();
        }
        course.say(event_type::FILE_CHANGED, Severity::Info, data)
    };
    let data = json!({"files": draft.files.len(), "tree": draft.verification.tree});
    course.keep(
        "files_changed",
        draft.summary.text.clone(),
        None,
        shown,
        data,
    );
    Ok(())
}

/// Sorts changed files by what happened to them.
fn file_changes(task: &TaskId, files: &[ModifiedFile]) -> Value {
    let of = |wanted: ChangeKind| -> Vec<Value> {
        files
            .iter()
            .filter(|file| file.change == wanted)
            .map(|file| match &file.from {
                Some(from) => json!({"from": from, "to": file.path}),
                None => json!(file.path),
            })
            .collect()
    };
    json!({
        "task": task,
        "added": of(ChangeKind::Added),
        "modified": of(ChangeKind::Modified),
        "deleted": of(ChangeKind::Deleted),
        "renamed": of(ChangeKind::Renamed),
    })
}

fn harvest(
    course: &mut Course<'_>,
    prepared: &mut Prepared,
    draft: &mut Draft,
) -> Result<(), Problem> {
    let spec = prepared.spec(course.runtime, true)?;
    let requested = draft.isolation.requested;
    // The task's own walls are gone, so nothing of it can be at work any more.
    let enclosure = course
        .runtime
        .plane
        .enclose(spec, requested, &course.subject)?;
    let Place::Tree(tree) = &mut prepared.place else {
        return Ok(());
    };
    tree.record = tree.workspaces.harvest(&tree.record, &Walls(&enclosure))?;
    enclosure.close();
    let record = tree.record.clone();
    place::tell_record(course, "harvested", &record);
    let Some(harvest) = record.harvest else {
        return Ok(());
    };
    draft.isolation.branch.clone_from(&harvest.branch);
    draft.files.clone_from(&harvest.modified_files);
    draft.summary.clone_from(&harvest.summary);
    draft.verification.tree = Some(harvest.tree.clone());
    draft.merge = if harvest.branch.is_some() {
        MergeStatus::NotRequested
    } else {
        MergeStatus::Nothing
    };
    if let Some(branch) = &harvest.moved_to {
        let branch = branch.trim_start_matches("refs/heads/");
        course
            .notes
            .push(format!("the task ended on {branch}, not on its own branch"));
    }
    for saved in &harvest.saved {
        course
            .notes
            .push(format!("{} is kept under {}", saved.name, saved.reference));
    }
    for unsaved in &harvest.unsaved {
        course
            .notes
            .push(format!("{} is not saved: {}", unsaved.path, unsaved.why));
    }
    for path in &harvest.seeds_changed {
        course.notes.push(format!(
            "{path} was copied in and changed; that is not brought in"
        ));
    }
    Ok(())
}

/// Removes the place where the policy says so and it is proved that nothing is lost.
fn clean_up(course: &mut Course<'_>, prepared: Prepared, asked: &TaskRequest, draft: &mut Draft) {
    let Place::Tree(tree) = prepared.place else {
        return;
    };
    let tree = *tree;
    let goes = match asked.cleanup_policy {
        CleanupPolicy::Always => true,
        CleanupPolicy::Never => false,
        // Where nothing ran there is nothing to look at either.
        CleanupPolicy::OnSuccess => draft.is_good() || !draft.touched,
    };
    let lasts = asked.workspace_strategy == WorkspaceStrategy::Persistent;
    if !goes || lasts {
        draft.isolation.cleanup_status = CleanupStatus::Kept;
        let why = if lasts {
            "it lasts"
        } else {
            "the cleanup policy keeps it"
        };
        course.say(
            event_type::ISOLATION_REMOVED,
            Severity::Info,
            json!({
                "record": tree.record.record,
                "path": tree.record.tree,
                "status": CleanupStatus::Kept,
                "why": why,
            }),
        );
        return;
    }
    let record = if draft.touched {
        tree.record
    } else {
        place::unused(&tree.record)
    };
    if record.state == TreeState::Ready {
        // It could not be harvested, see the error: it stays.
        draft.isolation.cleanup_status = CleanupStatus::KeptDirty;
        return;
    }
    match tree.workspaces.remove(&record, tree.lease) {
        Ok(receipt) => {
            draft.isolation.cleanup_status = receipt.status();
            let severity = match receipt.status() {
                CleanupStatus::Removed | CleanupStatus::NotNeeded => Severity::Info,
                _ => Severity::Warning,
            };
            let data = to_value(&receipt).unwrap_or_default();
            let pos = course.say(event_type::ISOLATION_REMOVED, severity, data);
            let what = match receipt.status() {
                CleanupStatus::Removed => format!("removed {}", receipt.path),
                _ => format!("{} stays or is not all gone", receipt.path),
            };
            course.keep(
                "removal",
                what,
                None,
                pos,
                json!({"way_back": receipt.way_back}),
            );
        }
        Err(error) => {
            draft.isolation.cleanup_status = CleanupStatus::Pending;
            course
                .notes
                .push(format!("the tree could not be removed: {error}"));
        }
    }
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

    fn opening_lines(&self, asked: &TaskRequest) -> Result<Vec<Line>, Problem> {
        let mut created = to_value(asked)?;
        created["lease"] = self.runtime.plane.lease().as_str().into();
        let name = asked
            .worker
            .clone()
            .unwrap_or_else(|| words::worker_name(&asked.goal));
        let message = if asked.goal.is_empty() {
            asked.command.summary()
        } else {
            asked.goal.clone()
        };
        Ok(vec![
            Line::new(event_type::TASK_CREATED, &self.subject, created),
            Line::new(
                event_type::AGENT_STARTED,
                &self.subject,
                json!({"name": name, "role": "worker", "parent": self.who.root}),
            ),
            Line::new(
                event_type::MESSAGE_SENT,
                &self.subject,
                json!({"from": self.who.root, "to": self.worker, "text": message}),
            ),
        ])
    }

    fn closing_lines(&self, result: &TaskResult) -> Result<Vec<Line>, Problem> {
        let severity = match (result.status, result.exit_code()) {
            (_, 0) => Severity::Info,
            (Status::Error | Status::Denied | Status::Interrupted, _) => Severity::Error,
            _ => Severity::Warning,
        };
        Ok(vec![
            Line::new(
                event_type::MESSAGE_SENT,
                &self.subject,
                json!({"from": self.worker, "to": self.who.root, "text": result.summary}),
            ),
            Line::new(event_type::TASK_ENDED, &self.subject, to_value(result)?).severity(severity),
            Line::new(
                event_type::AGENT_ENDED,
                &self.subject,
                json!({"status": result.status}),
            ),
        ])
    }

    fn conclude(&mut self, asked: &TaskRequest, draft: Draft) -> TaskResult {
        for note in std::mem::take(&mut self.notes) {
            self.say(event_type::LOG_LINE, Severity::Info, json!({"text": note}));
        }
        self.enter(TaskState::Settled);
        let mut result = TaskResult {
            task_id: self.task.clone(),
            conversation_id: self.who.conversation.clone(),
            number: self.number,
            goal: asked.goal.clone(),
            status: draft.status,
            summary: String::new(),
            isolation: draft.isolation,
            modified_files: draft.files,
            git_diff_summary: draft.summary,
            task_result: draft.outcome,
            verification: draft.verification,
            merge: Merge {
                status: draft.merge,
                oid: None,
                conflicts: Vec::new(),
            },
            evidence: std::mem::take(&mut self.evidence),
            left_behind: std::mem::take(&mut self.left_behind),
            error: draft.error.or_else(|| self.trouble.clone()),
            next: Vec::new(),
        };
        result.summary = words::sentence(&result);
        result.next = words::next(&result);
        result
    }
}
