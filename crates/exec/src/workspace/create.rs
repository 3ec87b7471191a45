//! Making a task's tree: a saga whose every step is reported, and taken back when a later one fails.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;

use cofferdam_core::task::{Carry, WorkspaceStrategy};

use super::names::{self, PERSISTENT};
use super::populate::{self, CHECKOUT, Parts};
use super::record::{Base, LeftBehind, TreeState, WorkspaceStep, WorktreeRecord, WorktreeRequest};
use super::saga::{Made, make_exclusively};
use super::store::{Lease, save_references};
use super::survey::{base_age, checkout_of};
use super::{
    Places, WorkspaceError, Workspaces, as_identity, carry, make_private, persistent,
    repository_name, seed, submodule,
};
use crate::git::{
    Configuration, GitError, RefChange, Reference, Repository, RepositoryLock, discover,
};

/// A tree that is ready for a task.
#[derive(Debug)]
pub struct Worktree {
    /// What has to be known about it later.
    pub record: WorktreeRecord,
    /// What of the user's checkout is not in it.
    pub left_behind: Vec<LeftBehind>,
    /// Held while the task lives; [`Workspaces::remove`] takes it back.
    pub lease: Lease,
    /// Whether [`Workspaces::attach`] has to be called once walls stand around it.
    pub reused: bool,
}

/// Takes steps as they happen.
pub(super) type Steps<'a> = dyn FnMut(WorkspaceStep) + Send + 'a;

impl Workspaces {
    /// Makes a tree for a task.
    ///
    /// Each step is reported through `step` before the next begins, [`WorkspaceStep::Intended`]
    /// before anything is made. When it fails, exactly what this attempt made is taken back.
    pub fn create(
        &self,
        request: &WorktreeRequest,
        step: &mut dyn FnMut(WorkspaceStep),
    ) -> Result<Worktree, WorkspaceError> {
        let Some(identity) = &self.identity else {
            // Steps are reported from this very thread.
            return Creation {
                workspaces: self,
                request,
            }
            .run(&mut Direct(step));
        };
        // The work is done in a thread that acts as the owner; steps are told to the caller, whose
        // journal the owner may not be able to write.
        let (told, steps) = mpsc::sync_channel::<WorkspaceStep>(0);
        let (done, acknowledged) = mpsc::sync_channel::<()>(0);
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let mut relay = move |step: WorkspaceStep| {
                    if told.send(step).is_ok() {
                        let _ = acknowledged.recv();
                    }
                };
                as_identity(Some(identity), || {
                    Creation {
                        workspaces: self,
                        request,
                    }
                    .run(&mut Relayed(&mut relay))
                })
            });
            for one in steps {
                step(one);
                let _ = done.send(());
            }
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Where steps go.
trait Tell {
    fn tell(&mut self, step: WorkspaceStep);
}

struct Direct<'a>(&'a mut dyn FnMut(WorkspaceStep));

impl Tell for Direct<'_> {
    fn tell(&mut self, step: WorkspaceStep) {
        (self.0)(step);
    }
}

struct Relayed<'a>(&'a mut Steps<'a>);

impl Tell for Relayed<'_> {
    fn tell(&mut self, step: WorkspaceStep) {
        (self.0)(step);
    }
}

struct Creation<'a> {
    workspaces: &'a Workspaces,
    request: &'a WorktreeRequest,
}

/// What was found out before anything is made.
struct Survey {
    repository: Repository,
    configuration: Configuration,
    references: Vec<Reference>,
}

impl Creation<'_> {
    fn run(&self, tell: &mut dyn Tell) -> Result<Worktree, WorkspaceError> {
        let request = self.request;
        names::check("worker", &request.worker)?;
        names::check("run", &request.run)?;
        let git = &self.workspaces.git;
        let found = discover(git, request.workspace.as_path())?;
        let repository = found.repository;
        let (base, mut branch) = match &request.base {
            None => (found.head, found.branch),
            Some(revision) => (git.commit(&repository, revision)?, None),
        };
        let (configuration, references) = std::thread::scope(|scope| {
            let configuration = scope.spawn(|| git.configuration(&repository));
            let references =
                git.references(&repository, &["refs/heads", "refs/tags", "refs/remotes"]);
            let configuration = configuration
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, GitError>((configuration?, references?))
        })?;
        if let Some(revision) = &request.base {
            let full = format!("refs/heads/{}", revision.trim_start_matches("refs/heads/"));
            branch = references
                .iter()
                .map(|one| &one.name)
                .find(|name| **name == full)
                .cloned();
        }
        let survey = Survey {
            repository,
            configuration,
            references,
        };
        let record = self.record(&survey, base, branch);
        self.refuse_taken(&survey, &record)?;
        // What is slow on a large checkout, and nobody waits for yet, runs beside the making.
        std::thread::scope(|scope| {
            let repository = &survey.repository;
            let left = scope.spawn(|| carry::left_behind(git, repository, request.carry));
            let reference = record.base.reference.clone();
            let age = scope.spawn(move || base_age(git, repository, reference.as_deref()));
            let mut worktree = self.make(&survey, record, tell)?;
            let join = std::panic::resume_unwind;
            match left.join().unwrap_or_else(|panic| join(panic)) {
                Ok(left) => worktree.left_behind = left,
                Err(error) => {
                    let note = format!("what is left behind could not be listed: {error}");
                    worktree.record.notes.push(note);
                }
            }
            let age = age.join().unwrap_or_else(|panic| join(panic));
            let base = &mut worktree.record.base;
            (base.committed_at, base.upstream) = (age.committed_at, age.upstream);
            (base.behind, base.ahead, base.fetched_at) = (age.behind, age.ahead, age.fetched_at);
            // The tree is there and recorded as ready; the age of the base is for people only.
            let _ = worktree.record.save(&self.places(&worktree.record));
            let path = worktree.record.tree.clone();
            tell.tell(WorkspaceStep::Ready { path });
            Ok(worktree)
        })
    }

    fn places(&self, record: &WorktreeRecord) -> Places {
        self.workspaces.places(&record.repository)
    }

    fn record(&self, survey: &Survey, base: String, branch: Option<String>) -> WorktreeRecord {
        let request = self.request;
        let repository = &survey.repository;
        let name = repository_name(&repository.common_dir);
        let run = match request.strategy {
            WorkspaceStrategy::Ephemeral => request.run.as_str(),
            WorkspaceStrategy::Persistent => PERSISTENT,
        };
        let tree = self.workspaces.places(&name).tree(run, &request.worker);
        let mut notes = Vec::new();
        let filters = survey.configuration.names("filter");
        if !filters.is_empty() {
            notes.push(format!(
                "filters are off in the tree ({}): files are as git stores them",
                filters.join(", ")
            ));
        }
        WorktreeRecord {
            record: request.record.clone(),
            nonce: request.nonce.clone(),
            run: request.run.clone(),
            worker: request.worker.clone(),
            top: repository.top.clone().into(),
            git_dir: repository.git_dir.clone().into(),
            common_dir: repository.common_dir.clone().into(),
            object_format: repository.object_format.clone(),
            prefix: repository.prefix.clone().into(),
            repository: name,
            tree: tree.into(),
            identity: None,
            branch: format!("cofferdam/{}/{}", request.run, request.worker),
            base: Base {
                oid: base,
                reference: branch,
                committed_at: None,
                upstream: None,
                behind: None,
                ahead: None,
                fetched_at: None,
            },
            carried: None,
            strategy: request.strategy,
            state: TreeState::Making,
            continues: None,
            seeds: Vec::new(),
            notes,
            harvest: None,
        }
    }

    /// Refuses when the branch exists or cannot exist beside another, and says what holds it.
    fn refuse_taken(&self, survey: &Survey, record: &WorktreeRecord) -> Result<(), WorkspaceError> {
        let own = record.branch_reference();
        let below = format!("{own}/");
        let run = format!("refs/heads/cofferdam/{}", record.run);
        let in_the_way = survey.references.iter().find(|one| {
            one.name == own
                || one.name == "refs/heads/cofferdam"
                || one.name == run
                || one.name.starts_with(&below)
        });
        match in_the_way {
            None => Ok(()),
            Some(taken) => Err(self.branch_taken(&survey.repository, record, &taken.name)),
        }
    }

    fn branch_taken(
        &self,
        repository: &Repository,
        record: &WorktreeRecord,
        name: &str,
    ) -> WorkspaceError {
        let branch = name.trim_start_matches("refs/heads/").to_owned();
        let places = self.places(record);
        let held = WorktreeRecord::load(&places.record(&record.run, &record.worker));
        let by = match held {
            Ok(Some(held)) => format!("{} has it, in {}", held.record, held.tree),
            _ => match checkout_of(&self.workspaces.git, repository, name) {
                Ok(Some(path)) => format!("it is checked out in {}", path.display()),
                _ => format!("{branch} exists in the repository"),
            },
        };
        WorkspaceError::BranchTaken {
            branch: record.branch.clone(),
            by,
        }
    }

    fn make(
        &self,
        survey: &Survey,
        mut record: WorktreeRecord,
        tell: &mut dyn Tell,
    ) -> Result<Worktree, WorkspaceError> {
        let places = self.places(&record);
        for directory in [
            places.top.clone(),
            places.incoming(),
            places.trash(),
            places.borrowed(),
        ] {
            make_private(&directory)?;
        }
        if record.strategy == WorkspaceStrategy::Persistent
            && let Some(lease) = persistent::take_over(self.workspaces, &places, &mut record)?
        {
            tell.tell(WorkspaceStep::Intended {
                record: Box::new(record.clone()),
            });
            self.hold_base(survey, &record)?;
            let (reference, base) = (record.base_reference(), record.base.oid.clone());
            tell.tell(WorkspaceStep::BaseHeld { reference, base });
            return Ok(Worktree {
                record,
                left_behind: Vec::new(),
                lease,
                reused: true,
            });
        }
        tell.tell(WorkspaceStep::Intended {
            record: Box::new(record.clone()),
        });
        let mut made = Made::default();
        match self.make_steps(survey, &mut record, &places, &mut made, tell) {
            Ok(lease) => Ok(Worktree {
                record,
                left_behind: Vec::new(),
                lease,
                reused: false,
            }),
            Err(error) => {
                let left = self.workspaces.take_back(&survey.repository, &made);
                tell.tell(WorkspaceStep::RolledBack {
                    why: error.to_string(),
                    left,
                });
                Err(error)
            }
        }
    }

    fn make_steps(
        &self,
        survey: &Survey,
        record: &mut WorktreeRecord,
        places: &Places,
        made: &mut Made,
        tell: &mut dyn Tell,
    ) -> Result<Lease, WorkspaceError> {
        let git = &self.workspaces.git;
        let repository = &survey.repository;
        let tree = record.tree_path().to_path_buf();
        // The record first: whoever finds the rest after a crash knows by it what it is.
        let run_part = tree.parent().and_then(Path::file_name).unwrap_or_default();
        let directory = places
            .top
            .join(".records")
            .join(run_part)
            .join(&record.worker);
        make_exclusively(&directory).map_err(|error| directory_taken(error, record))?;
        made.records.push(directory.clone());
        let Some(lease) = Lease::take_soon(&directory)? else {
            return Err(WorkspaceError::Live {
                worker: record.worker.clone(),
            });
        };
        record.save(places)?;
        save_references(&directory, &survey.references)?;

        self.hold_base(survey, record)?;
        let (reference, base) = (record.base_reference(), record.base.oid.clone());
        made.references.push((reference.clone(), base.clone()));
        tell.tell(WorkspaceStep::BaseHeld { reference, base });

        make_exclusively(&tree)?;
        made.trees.push(tree.clone());
        let metadata = tree
            .metadata()
            .map_err(WorkspaceError::file("looking at", &tree))?;
        record.identity = Some((metadata.dev(), metadata.ino()));
        record.save(places)?;
        let git_dir = tree.join(".git");
        self.workspaces.write_git_directory(
            survey_parts(survey),
            &survey.references,
            record,
            &git_dir,
        )?;
        tell.tell(WorkspaceStep::Prepared {
            path: record.tree.clone(),
        });

        self.workspaces.check_out(&survey.configuration, &tree)?;
        tell.tell(WorkspaceStep::CheckedOut {
            branch: record.branch.clone(),
        });

        if self.request.carry != Carry::None {
            let configuration = &survey.configuration;
            let carried =
                carry::carry_in(git, repository, record, configuration, self.request.carry)?;
            if let Some(commit) = carried {
                git.on(&tree.join(".git"), &tree)
                    .args(["read-tree", "-m", "-u", &record.base.oid, &commit])
                    .timeout(CHECKOUT)
                    .output()?;
                let branch = tree.join(".git").join(record.branch_reference());
                std::fs::write(&branch, format!("{commit}\n"))
                    .map_err(WorkspaceError::file("writing the branch", &branch))?;
                record.carried = Some(commit.clone());
                tell.tell(WorkspaceStep::Carried { commit });
            }
        }
        if tree.join(".gitmodules").is_file() {
            submodule::populate(git, survey_parts(survey), record, places)?;
        }
        if repository.top.join(seed::FILE).is_file() {
            seed::plant(git, repository, record)?;
            let files = record.seeds.len() as u64;
            tell.tell(WorkspaceStep::Seeded { files });
        }
        populate::verify(record, &survey.configuration)?;
        record.state = TreeState::Ready;
        record.save(places)?;
        Ok(lease)
    }

    /// Makes the reference that keeps the base from being collected, and reserves the name.
    fn hold_base(&self, survey: &Survey, record: &WorktreeRecord) -> Result<(), WorkspaceError> {
        let workspaces = self.workspaces;
        let name = record.base_reference();
        let change = RefChange::create(name.as_str(), record.base.oid.as_str());
        let _lock = RepositoryLock::take(&workspaces.locks(), &survey.repository.common_dir)?;
        let made =
            workspaces
                .git
                .change_references(&survey.repository, "cofferdam: base", &[change]);
        match made {
            Err(GitError::RefMoved { .. }) => {
                Err(self.branch_taken(&survey.repository, record, &name))
            }
            other => Ok(other?),
        }
    }
}

fn directory_taken(error: WorkspaceError, record: &WorktreeRecord) -> WorkspaceError {
    match error {
        WorkspaceError::DirectoryTaken { path } => match WorktreeRecord::load(&path) {
            Ok(Some(held)) => WorkspaceError::BranchTaken {
                branch: record.branch.clone(),
                by: format!("{} has it, in {}", held.record, held.tree),
            },
            _ => WorkspaceError::DirectoryTaken { path },
        },
        other => other,
    }
}

fn survey_parts(survey: &Survey) -> Parts<'_> {
    Parts {
        repository: &survey.repository,
        configuration: &survey.configuration,
    }
}
