//! The runtime itself: what every operation has in common.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::decide::Ground;
use cofferdam_core::error::Problem;
use cofferdam_core::mask::Masker;
use cofferdam_core::operation::{Mode, RunCommand};
use cofferdam_core::plan::{self, CommandOptions, WorkspaceView};
use cofferdam_core::policy::{EffectivePolicy, Explanation};
use cofferdam_core::spec::{LaunchSpec, Network, StreamPlan};
use cofferdam_exec::host::{self, Surroundings};
use cofferdam_exec::{Plane, PlaneOptions, Pool, PoolCounts, PoolOptions, Settled};
use cofferdam_journal::{DataDir, Journal, SqliteJournal};

use crate::approval::{AskOwner, Permit, ReviewByUrl, TaskAnswers, Watchers};
use crate::background::Attendance;
use crate::decide::judge_command;
use crate::host::{HostDoor, LookRequest, PolicyRequest, Resolved};
use crate::mode::{SeenModes, in_mode};
use crate::options::RuntimeOptions;
use crate::scribe::Scribe;
use crate::session::{Sessions, Stamp};
use crate::system::SystemHost;

/// An owner who is at hand.
#[derive(Clone)]
pub(crate) struct Asked(pub(crate) Arc<dyn AskOwner>);

impl std::fmt::Debug for Asked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Asked")
    }
}

/// Carries out operations for one caller. Shared by reference between threads.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) plane: Plane,
    pub(crate) scribe: Scribe,
    pub(crate) surroundings: Surroundings,
    pub(crate) data_dir: PathBuf,
    pub(crate) sessions: Sessions,
    pub(crate) pool: Pool,
    pub(crate) known: crate::known::KnownPlans,
    pub(crate) files: crate::files::Files,
    pub(crate) attendance: Attendance,
    host: Box<dyn HostDoor>,
    /// Who is asked first.
    pub(crate) ask_owner: Mutex<Option<Asked>>,
    /// In which modes something last began.
    pub(crate) seen_modes: SeenModes,
    /// Whether somebody looks at the questions that wait.
    pub(crate) is_attended: AtomicBool,
    /// Who watches what is asked.
    pub(crate) watchers: Watchers,
    /// What was answered for tasks.
    pub(crate) task_answers: TaskAnswers,
    /// By what reviewers that are services are reached.
    pub(crate) review_by_url: OnceLock<Arc<dyn ReviewByUrl>>,
    /// Keys of requests that somebody carries out, or has.
    pub(crate) claims: Mutex<crate::idempotency::Claims>,
    /// What is worth a word about agents that ran as single commands.
    notes: Mutex<Vec<String>>,
    pub(crate) terminals: crate::terminal::Registry,
    /// How the files of the policy were when they were last looked at.
    policy_seen: Mutex<Option<Stamp>>,
    /// Who is told of them at once.
    on_note: OnceLock<NoteHook>,
    /// Checkouts that are kept after commands over a protocol.
    pub(crate) keeping: crate::keeping::Keeping,
}

/// Is told what is worth a word.
struct NoteHook(Box<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for NoteHook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("NoteHook")
    }
}

fn with_data_dir(surroundings: &Surroundings, path: PathBuf) -> Surroundings {
    let variables = surroundings
        .variables()
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .chain([("COFFERDAM_DATA_DIR".into(), path.into_os_string())]);
    Surroundings::new(variables, surroundings.directory())
}

impl Runtime {
    /// Opens the data directory, the journal and the plane.
    ///
    /// # Errors
    ///
    /// `data_dir_refused`, and those of opening the journal.
    pub fn open(options: RuntimeOptions) -> Result<Self, Problem> {
        let RuntimeOptions {
            data_dir,
            surroundings,
            ambient,
            patience,
            journal,
            host: door,
            script,
        } = options;
        let surroundings = match data_dir {
            // Found where every other place looks for it too.
            Some(path) => with_data_dir(&surroundings, path),
            None => surroundings,
        };
        let path = host::data_dir(&surroundings)?;
        let directory = DataDir::open(path).map_err(|error| error.to_problem())?;
        let journal: Arc<dyn Journal> = match journal {
            Some(journal) => journal,
            None => Arc::new(
                SqliteJournal::open_with_patience(&directory, Arc::clone(&ambient), patience)
                    .map_err(|error| error.to_problem())?,
            ),
        };
        let data_dir = directory.path().to_owned();
        let masker = Masker::new(
            host::secret_values(&surroundings)
                .into_iter()
                .map(|(_, value)| value),
        );
        let plane = Plane::open(PlaneOptions {
            data: Some(directory),
            journal,
            ambient,
            masker,
            script,
        })?;
        plane.set_caller(surroundings.clone());
        let scribe = Scribe::new(plane.clone());
        let host = door.unwrap_or_else(|| {
            Box::new(SystemHost {
                surroundings: surroundings.clone(),
            })
        });
        let watchers = Watchers::new(&data_dir);
        let pool = Pool::new(plane.clone(), PoolOptions::default());
        Ok(Self {
            plane,
            scribe,
            surroundings,
            data_dir,
            sessions: Sessions::default(),
            pool,
            known: crate::known::KnownPlans::default(),
            files: crate::files::Files::default(),
            attendance: Attendance::default(),
            host,
            ask_owner: Mutex::default(),
            seen_modes: SeenModes::default(),
            is_attended: AtomicBool::new(false),
            watchers,
            task_answers: TaskAnswers::default(),
            review_by_url: OnceLock::new(),
            claims: Mutex::default(),
            notes: Mutex::default(),
            terminals: crate::terminal::Registry::default(),
            policy_seen: Mutex::default(),
            on_note: OnceLock::new(),
            keeping: crate::keeping::Keeping::default(),
        })
    }

    /// Says who is told at once what is worth a word about agents that run as single commands: what
    /// is switched off and which credentials they can read before they begin, what they changed of
    /// their own state after they ended. Only the first who asks is told.
    pub fn on_note(&self, hook: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.on_note.set(NoteHook(Box::new(hook)));
    }

    /// Takes those words where nobody is told at once.
    pub fn take_notes(&self) -> Vec<String> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut notes)
    }

    pub(crate) fn note(&self, more: &[String]) {
        if let Some(NoteHook(tell)) = self.on_note.get() {
            for one in more {
                tell(one);
            }
            return;
        }
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.extend_from_slice(more);
    }

    /// Notes how the files of the policy are; gives how they were.
    pub(crate) fn seen_policy(&self, now: Stamp) -> Option<Stamp> {
        let mut seen = self
            .policy_seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        seen.replace(now)
    }

    /// Tells what the ready places for commands over a protocol have done.
    pub fn pool_counts(&self) -> PoolCounts {
        self.pool.counts()
    }

    /// Lends the plane.
    pub const fn plane(&self) -> &Plane {
        &self.plane
    }

    /// Lists what planes that died had left, as it was settled when this one was opened.
    pub fn settled(&self) -> &[Settled] {
        self.plane.settled()
    }

    /// Lends the journal.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        self.plane.journal()
    }

    /// Lends the data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Resolves workspace, policy and facts; `network` is the level where no layer names one, `tree`
    /// the tree of a task in the workspace's place.
    pub(crate) fn look(
        &self,
        policy: &PolicyRequest,
        network: Network,
        tree: Option<&Path>,
    ) -> Result<Resolved, Problem> {
        match self.mode_for(policy)? {
            Mode::Policy => self.look_in(policy, &Mode::Policy, network, tree),
            mode => self.look_in(&in_mode(policy, &mode), &mode, network, tree),
        }
    }

    /// Resolves a request that has what its mode says.
    pub(crate) fn look_in(
        &self,
        policy: &PolicyRequest,
        mode: &Mode,
        network: Network,
        tree: Option<&Path>,
    ) -> Result<Resolved, Problem> {
        let mut base = EffectivePolicy::built_in().with_default_network(network);
        if let Some(profile) = self.profile_of(policy)? {
            self.lay_profile(&profile, &mut base);
        }
        let mut resolved = self.host.look(LookRequest {
            policy,
            base,
            data_dir: &self.data_dir,
            tree,
            authorised: self,
        })?;
        let ground = match tree {
            Some(_) => Ground::Apart,
            None => Ground::Checkout,
        };
        let is_granted = policy.permit.as_ref().is_some_and(Permit::is_write);
        resolved.policy.hold_writes(ground, is_granted);
        if let Mode::Plan { folder } = mode {
            resolved.policy.hold_plan(folder);
        }
        Ok(resolved)
    }

    /// Finds the workspace that a request means, as its real path.
    ///
    /// # Errors
    ///
    /// `workspace_refused`, `workspace_missing`.
    pub fn workspace(&self, policy: &PolicyRequest) -> Result<BytePath, Problem> {
        self.host.workspace(LookRequest {
            policy,
            base: EffectivePolicy::built_in(),
            data_dir: &self.data_dir,
            tree: None,
            authorised: self,
        })
    }

    /// Names a scratch directory for one enclosure; the plane makes and removes it.
    pub(crate) fn scratch(&self) -> BytePath {
        let (time, random) = self.plane.ambient().id_parts();
        let name = cofferdam_core::id::EnclosureId::new(time, random);
        self.data_dir.join("scratch").join(name.as_str()).into()
    }

    /// Tells for each value of the policy which layer gave it, and the launch that results; nothing
    /// is started. Without a profile it also tells what `--allow @dev` would add.
    ///
    /// # Errors
    ///
    /// Whatever would refuse the command.
    pub fn explain(
        &self,
        policy: &PolicyRequest,
        command: Option<&RunCommand>,
    ) -> Result<Explanation, Problem> {
        let has_profile = self.profile_of(policy)?.is_some();
        let resolved = if has_profile {
            self.look_for_task(policy, None)?
        } else {
            self.look(policy, Network::None, None)?
        };
        let explanation = self.explain_in(&resolved, command)?;
        if has_profile {
            return Ok(explanation);
        }
        // What the owner may not have is not offered either.
        let mut wider = policy.clone();
        wider.owner.network = Some(Network::Restricted);
        let hosts = wider.owner.network_allow.get_or_insert_default();
        hosts.push("@dev".to_owned());
        match self.look(&wider, Network::Restricted, None) {
            Ok(wider) => Ok(explanation.with_dev(&wider.facts.network.dev)),
            Err(_) => Ok(explanation),
        }
    }

    /// Tells the same of a task's command: hosts of `@dev` are allowed by default there, and are
    /// listed with where each was found.
    ///
    /// # Errors
    ///
    /// Whatever would refuse the command.
    pub fn explain_task(
        &self,
        policy: &PolicyRequest,
        command: Option<&RunCommand>,
    ) -> Result<Explanation, Problem> {
        let resolved = self.look_for_task(policy, None)?;
        self.explain_in(&resolved, command)
    }

    fn explain_in(
        &self,
        resolved: &Resolved,
        command: Option<&RunCommand>,
    ) -> Result<Explanation, Problem> {
        let view = WorkspaceView::live(&resolved.facts.workspace);
        let enclosure = plan::prepare(&resolved.policy, &view, &resolved.facts, &self.scratch())?;
        let nothing = RunCommand::argv(["true"]);
        let mut request = command.unwrap_or(&nothing).clone();
        request.cwd.get_or_insert_with(|| resolved.cwd.clone());
        let planned = plan::plan_command(
            &resolved.policy,
            &enclosure,
            &resolved.facts,
            &request,
            CommandOptions::command_line(StreamPlan::Pipes),
        )?;
        let judgement = command.map(|command| {
            let provider = enclosure.provider;
            let root = &enclosure.workspace;
            judge_command(&resolved.policy, provider, &command.command, root)
        });
        let launch = LaunchSpec {
            enclosure,
            command: planned.spec,
        };
        let proposed = &resolved.facts.network.proposed;
        let explanation = Explanation::new(&resolved.policy, launch).with_proposed(proposed);
        Ok(match judgement {
            Some(judgement) => explanation.with_commands(judgement),
            None => explanation,
        })
    }
}

impl Runtime {
    /// Tells whether the plane that holds a lease lives: its file is there, and locked.
    pub(crate) fn is_alive(&self, lease: &str) -> bool {
        if lease == self.plane.lease().as_str() {
            return true;
        }
        // The name of a file, never a path.
        if lease.contains('/') {
            return false;
        }
        let path = self.data_dir.join("leases").join(lease);
        std::fs::File::open(path).is_ok_and(|file| {
            matches!(
                file.try_lock_shared(),
                Err(std::fs::TryLockError::WouldBlock)
            )
        })
    }
}
