//! Where a task works: in the user's checkout, reading it only, or in a tree of its own.

use std::path::PathBuf;
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::facts::HostFacts;
use cofferdam_core::outbox::{BRANCH_VARIABLE, REQUESTS_VARIABLE};
use cofferdam_core::plan::{self, WorkspaceView, choose_provider};
use cofferdam_core::policy::{Caches, Layer, PolicyDocument, ProviderChoice, Sourced};
use cofferdam_core::ports::PORT_BASE_VARIABLE;
use cofferdam_core::spec::{Access, EnclosureSpec, Network};
use cofferdam_core::task::{IsolationMode, TaskRequest};
use cofferdam_exec::Enclosure;
use cofferdam_exec::workspace::{
    GitOptions, InsideCall, InsideGit, InsideOutput, Lease, LeftKind, WorkspaceStep, Workspaces,
    WorkspacesOptions, Worktree, WorktreeRecord, WorktreeRequest, requests_folder,
};
use serde_json::{Value, json};

use super::course::Course;
use super::overview::TaskState;
use super::words;
use crate::host::{PolicyRequest, Resolved};
use crate::refusal;
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// Left-behind files that are named one by one.
const LEFT_BEHIND_SHOWN: usize = 20;

/// Where a task works.
#[derive(Debug)]
pub(crate) enum Place {
    /// In the user's own checkout.
    Live,
    /// Nowhere of its own: the workspace is there to be read.
    Session,
    /// In a tree of its own.
    Tree(Box<Tree>),
}

/// A tree of the task's own.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) workspaces: Workspaces,
    pub(crate) record: WorktreeRecord,
    pub(crate) lease: Option<Lease>,
    pub(crate) reused: bool,
}

/// A place with the policy in effect and the facts that its plans are made from.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) resolved: Resolved,
    pub(crate) place: Place,
}

/// Runs the plane's own helpers on a task's tree inside walls.
#[derive(Debug)]
pub(crate) struct Walls<'a>(pub(crate) &'a Enclosure);

impl InsideGit for Walls<'_> {
    fn run(&self, call: &InsideCall) -> Result<InsideOutput, Problem> {
        let top = &self.0.spec().workspace;
        let input = call.input.as_deref();
        self.0
            .run_quiet(&call.argv, &call.environment, top, input, call.timeout)
            .map(|output| InsideOutput {
                code: output.code,
                stdout: output.stdout,
                stderr: output.stderr,
            })
    }
}

impl Runtime {
    /// Refuses what needs no task to be refused: a profile that nobody knows, a tree where there is
    /// no repository. No number is given to such a one.
    pub(crate) fn refuse_early(
        &self,
        policy: &PolicyRequest,
        asked: &TaskRequest,
    ) -> Result<(), Problem> {
        self.profile_of(policy)?;
        if asked.isolation_mode != IsolationMode::Worktree {
            return Ok(());
        }
        let mut here = self.surroundings.directory().to_owned();
        here.extend(&policy.workspace);
        // What looks like a repository is looked at once, when the tree is made.
        if here.ancestors().any(|one| one.join(".git").exists()) {
            return Ok(());
        }
        let resolved = self.look_for_task(policy, None)?;
        let root = resolved.facts.workspace.root.clone();
        Ok(self
            .workspaces(&resolved.facts)?
            .check_repository(root.as_path())?)
    }

    /// Opens the trees of whoever owns the workspace.
    pub(crate) fn workspaces(&self, facts: &HostFacts) -> Result<Workspaces, Problem> {
        let variable = |name: &str| self.surroundings.get(name).map(BytePath::from);
        let is_own = facts.owner.identity.uid == facts.caller.identity.uid;
        // Where root works for somebody, the trees lie where that user can reach them.
        let trees = if is_own {
            self.data_dir.join("worktrees")
        } else {
            let home: PathBuf = facts.owner.home.as_path().to_owned();
            home.join(".local/share/cofferdam/worktrees")
        };
        let owner = self.surroundings.variables().iter();
        let owner = owner
            .filter(|_| is_own)
            .map(|(name, value)| (name.as_os_str().into(), value.as_os_str().into()));
        let git = GitOptions {
            owner: owner.collect(),
            search_path: variable("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
            refused: vec![facts.workspace.root.clone(), trees.clone().into()],
            home: facts.owner.home.clone(),
            xdg_config_home: variable("XDG_CONFIG_HOME").filter(|_| is_own),
            config_global: variable("GIT_CONFIG_GLOBAL").filter(|_| is_own),
            config_system: variable("GIT_CONFIG_SYSTEM").filter(|_| is_own),
        };
        let mut options = WorkspacesOptions::new(trees, git);
        options.identity = (!is_own).then(|| facts.owner.identity.clone());
        Ok(Workspaces::open(options)?)
    }

    /// Resolves the walls of a task: `restricted` where nobody names a level, and `none`, which is
    /// less, where the provider has no restricted network.
    pub(crate) fn look_for_task(
        &self,
        policy: &PolicyRequest,
        tree: Option<&std::path::Path>,
    ) -> Result<Resolved, Problem> {
        let resolved = self.look(policy, Network::Restricted, tree)?;
        if resolved.policy.network.is_asked_for() {
            return Ok(resolved);
        }
        match choose_provider(&resolved.policy, &resolved.facts) {
            Err(problem) if problem.field.as_deref() == Some("network") => {
                self.look(policy, Network::None, tree)
            }
            _ => Ok(resolved),
        }
    }
}

/// Refuses what cannot be meant, before anything is made.
pub(crate) fn check(asked: &TaskRequest) -> Result<(), Problem> {
    use cofferdam_core::task::{Carry, VerifyFrom, WorkspaceStrategy};
    let mode = asked.isolation_mode;
    let needs_tree = |field: &str, what: &str| {
        Problem::new(
            ErrorCode::InvalidRequest,
            format!(
                "{what} needs a tree of the task's own, not isolation {}",
                mode.as_str()
            ),
        )
        .with_field(field)
        .with_hint("leave it out, or take --isolation worktree")
    };
    if mode != IsolationMode::Worktree {
        if asked.workspace_strategy == WorkspaceStrategy::Persistent {
            return Err(needs_tree("workspace_strategy", "a persistent workspace"));
        }
        if asked.carry != Carry::None {
            return Err(needs_tree("carry", "carrying work in"));
        }
        if asked.verify_from == VerifyFrom::Base {
            return Err(needs_tree(
                "verify_from",
                "verifying with files of the base",
            ));
        }
    }
    for (field, value) in [
        ("timeout", asked.timeout),
        ("idle_timeout", asked.idle_timeout),
        ("verify_timeout", asked.verify_timeout),
    ] {
        plan::plan_timeout(field, value, None, &[], &mut Vec::new())?;
    }
    Ok(())
}

/// Finds or makes the place of a task, and gives it ports of its own.
pub(crate) fn prepare(
    course: &mut Course<'_>,
    policy: &mut PolicyRequest,
    asked: &TaskRequest,
    tell: &mut dyn FnMut(&Resolved),
) -> Result<Prepared, Problem> {
    check(asked)?;
    let mut prepared = find(course, policy, asked, tell)?;
    if let Some(first) = course.port_base() {
        let set = &mut prepared.resolved.policy.env.set;
        set.entry(PORT_BASE_VARIABLE.to_owned())
            .or_insert_with(|| Sourced::new(first.to_string(), Layer::BuiltIn));
    }
    if let Place::Tree(tree) = &prepared.place {
        let branch = Sourced::new(tree.record.branch.clone(), Layer::BuiltIn);
        let set = &mut prepared.resolved.policy.env.set;
        set.insert(BRANCH_VARIABLE.to_owned(), branch);
        let folder = Sourced::new(requests_folder(), Layer::BuiltIn);
        set.insert(REQUESTS_VARIABLE.to_owned(), folder);
    }
    Ok(prepared)
}

fn find(
    course: &mut Course<'_>,
    policy: &mut PolicyRequest,
    asked: &TaskRequest,
    tell: &mut dyn FnMut(&Resolved),
) -> Result<Prepared, Problem> {
    if asked.isolation_mode == IsolationMode::Session {
        let layer = policy.request.get_or_insert_with(PolicyDocument::default);
        layer.workspace = Some(Access::Read);
        course.notes.push(
            "isolation session: the checkout is there to be read only, results go to its output"
                .to_owned(),
        );
    }
    let resolved = course.runtime.look_for_task(policy, None)?;
    tell(&resolved);
    if asked.isolation_mode == IsolationMode::Sandbox
        && resolved.policy.provider.value == ProviderChoice::Direct
    {
        return Err(Problem::new(
            ErrorCode::PolicyContradiction,
            "isolation sandbox is the provider's walls, and provider direct has none",
        )
        .with_field("provider")
        .with_hint("take --provider bwrap, or --isolation none"));
    }
    // What the provider cannot hold is refused before a tree is made.
    choose_provider(&resolved.policy, &resolved.facts)?;
    course.enter_with(
        TaskState::Creating,
        json!({"requested": refusal::requested(&resolved.policy)}),
    );
    match asked.isolation_mode {
        IsolationMode::None | IsolationMode::Sandbox => Ok(Prepared {
            resolved,
            place: Place::Live,
        }),
        IsolationMode::Session => Ok(Prepared {
            resolved,
            place: Place::Session,
        }),
        IsolationMode::Worktree => {
            let tree = make_tree(course, &resolved, asked)?;
            let path = tree.record.tree.as_path().to_owned();
            let resolved = course.runtime.look_for_task(policy, Some(&path));
            match resolved {
                Ok(resolved) => Ok(Prepared {
                    resolved,
                    place: Place::Tree(Box::new(tree)),
                }),
                Err(problem) => {
                    // Nothing ran in it: it goes again, and if it cannot, the journal knows of it.
                    let _ = tree.workspaces.remove(&unused(&tree.record), tree.lease);
                    Err(problem)
                }
            }
        }
    }
}

/// Says of a tree that nothing ever ran in it, which is what lets it go without a harvest.
pub(crate) fn unused(record: &WorktreeRecord) -> WorktreeRecord {
    WorktreeRecord {
        state: cofferdam_exec::workspace::TreeState::Making,
        ..record.clone()
    }
}

fn make_tree(
    course: &mut Course<'_>,
    resolved: &Resolved,
    asked: &TaskRequest,
) -> Result<Tree, Problem> {
    let workspaces = course.runtime.workspaces(&resolved.facts)?;
    let mut random = [0; 16];
    course.runtime.plane.ambient().fill_random(&mut random);
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let worker = match &asked.worker {
        Some(name) => name.clone(),
        None => words::worker_name(&asked.goal),
    };
    let request = WorktreeRequest {
        workspace: resolved.facts.workspace.root.clone(),
        record: course.task.to_string(),
        run: format!("{}-{}", course.number, &nonce[..6]),
        nonce,
        worker,
        carry: asked.carry,
        strategy: asked.workspace_strategy,
        base: None,
    };
    let mut refused = None;
    let made = workspaces.create(&request, &mut |step| {
        if refused.is_none() {
            refused = tell_step(course, &step).err();
        }
    });
    let Worktree {
        record,
        left_behind,
        lease,
        reused,
    } = made?;
    tell_record(course, "recorded", &record);
    if let Some(problem) = refused.or_else(|| course.trouble.clone()) {
        let _ = workspaces.remove(&unused(&record), Some(lease));
        return Err(problem);
    }
    for one in left_behind.iter().take(LEFT_BEHIND_SHOWN) {
        let (what, flag) = match one.kind {
            LeftKind::Modified => ("changes of", "--carry tracked"),
            LeftKind::Untracked => ("the new", "--carry all"),
            LeftKind::Submodule => ("changes inside the submodule", "no flag"),
        };
        course
            .left_behind
            .push(format!("{what} {} ({flag})", one.path));
    }
    if let Some(more) = left_behind.len().checked_sub(LEFT_BEHIND_SHOWN + 1) {
        course.left_behind.push(format!("and {} more", more + 1));
    }
    if !left_behind.is_empty() {
        let paths: Vec<_> = left_behind.iter().map(|one| &one.path).take(1000).collect();
        course.keep(
            "left_behind",
            format!(
                "{} of your uncommitted files are not in the tree",
                left_behind.len()
            ),
            None,
            None,
            json!({"paths": paths}),
        );
    }
    course.notes.extend(record.notes.iter().cloned());
    if let (Some(behind), Some(upstream)) = (record.base.behind, &record.base.upstream)
        && behind > 0
    {
        let upstream = upstream.trim_start_matches("refs/remotes/");
        course.notes.push(format!(
            "the base is {behind} commits behind {upstream}, as last fetched"
        ));
    }
    Ok(Tree {
        workspaces,
        record,
        lease: Some(lease),
        reused,
    })
}

fn tell_step(course: &mut Course<'_>, step: &WorkspaceStep) -> Result<(), Problem> {
    let mut data = to_value(step)?;
    match step {
        WorkspaceStep::Intended { record } => describe(&mut data, record),
        WorkspaceStep::CheckedOut { .. } => course.enter(TaskState::Seeding),
        _ => {}
    }
    let severity = match step {
        WorkspaceStep::RolledBack { .. } => Severity::Warning,
        WorkspaceStep::Ready { .. } => Severity::Info,
        _ => Severity::Debug,
    };
    course.say(event_type::ISOLATION_WORKSPACE, severity, data);
    Ok(())
}

fn describe(data: &mut Value, record: &WorktreeRecord) {
    data["path"] = json!(record.tree);
    data["branch"] = json!(record.branch);
    data["base"] = json!(record.base.oid);
}

/// Writes down what is known about a tree now.
pub(crate) fn tell_record(course: &mut Course<'_>, step: &str, record: &WorktreeRecord) {
    let written =
        record_line(&course.subject, step, record).and_then(|line| course.runtime.scribe.say(line));
    if let Err(problem) = written {
        course.trouble.get_or_insert(problem);
    }
}

/// Says what is known about a tree.
pub(crate) fn record_line(
    subject: &Subject,
    step: &str,
    record: &WorktreeRecord,
) -> Result<Line, Problem> {
    let mut data = json!({"step": step, "record": to_value(record)?});
    describe(&mut data, record);
    Ok(Line::new(event_type::ISOLATION_WORKSPACE, subject, data))
}

impl Prepared {
    /// Gives the workspace as commands shall see it.
    pub(crate) fn view(&self) -> WorkspaceView {
        match &self.place {
            Place::Live | Place::Session => WorkspaceView::live(&self.resolved.facts.workspace),
            Place::Tree(tree) => tree_view(&tree.workspaces, &tree.record),
        }
    }

    /// Plans an enclosure around the place; `helper` is one for the plane's own work on the tree.
    pub(crate) fn spec(&self, runtime: &Runtime, helper: bool) -> Result<EnclosureSpec, Problem> {
        let mut policy = self.resolved.policy.clone();
        if helper {
            policy.workspace.value = Access::Write;
            // It runs git, which has no use for them; each is a layer that would be mounted.
            policy.caches.value = Caches::None;
        }
        plan::prepare(
            &policy,
            &self.view(),
            &self.resolved.facts,
            &runtime.scratch(),
        )
    }

    /// Gives the directory of a command: the wished one, at the same place inside.
    pub(crate) fn directory(&self, spec: &EnclosureSpec, wished: Option<&BytePath>) -> BytePath {
        let facts = &self.resolved.facts.workspace;
        let Place::Tree(tree) = &self.place else {
            return wished.unwrap_or(&self.resolved.cwd).clone();
        };
        let named = wished.unwrap_or(&self.resolved.cwd);
        let full = facts.root.join(named.as_bytes());
        let real = full
            .as_path()
            .canonicalize()
            .map_or(full.clone(), BytePath::from);
        let below = real
            .below(&tree.record.top)
            .or_else(|| full.below(&tree.record.top));
        let Some(rest) = below else {
            // Outside of the repository: refused when the command is planned.
            return full;
        };
        let inside = spec.workspace.join(rest);
        let is_there = tree.record.tree.join(rest).as_path().is_dir();
        if wished.is_none() && !is_there {
            return spec.workspace.clone();
        }
        if rest.is_empty() {
            spec.workspace.clone()
        } else {
            inside
        }
    }
}

/// Gives a task's tree as commands shall see it: at the path of the user's repository.
pub(crate) fn tree_view(workspaces: &Workspaces, record: &WorktreeRecord) -> WorkspaceView {
    let plan = workspaces.plan(record);
    plan.borrowed
        .iter()
        .fold(WorkspaceView::own(plan.top, plan.tree), |view, borrowed| {
            view.with(
                borrowed.source.clone(),
                borrowed.inside.clone(),
                Access::Read,
            )
        })
}

/// Time that a helper of the plane's own may take in a tree.
pub(crate) const HELPER_TIMEOUT: Duration = Duration::from_mins(5);
