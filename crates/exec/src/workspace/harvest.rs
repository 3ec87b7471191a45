//! Bringing in what a task did.
//!
//! The task's git directory is hostile: its configuration, attributes, hooks and objects may be
//! anything. So git runs on it only inside the walls, where it can do no more than the task could;
//! what comes out is a pack and a few object ids, checked outside as if they came from a stranger.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::task::WorkspaceStrategy;

use super::incoming::Incoming;
use super::inside::{GIT_DIR, Inside, InsideGit, good, read_oid};
use super::inspect::{Found, in_progress, look};
use super::record::{Harvest, Saved, TreeState, Unsaved, WorktreeRecord};
use super::store::read_references;
use super::{WorkspaceError, Workspaces, carry, files, outbox, seed};
use crate::git::{
    Configuration, GitError, RefChange, Reference, Repository, RepositoryLock, diff_trees,
};

/// Name of the private index and the pack in a task's git directory.
const SCRATCH: &str = "cofferdam-scratch";

/// More references than this of one task are no honest work.
const MOST_SAVED: usize = 500;

/// What is known of the user's repository.
pub(super) struct Outside<'a> {
    pub(super) repository: &'a Repository,
    pub(super) configuration: &'a Configuration,
    /// References whose objects need not be packed.
    pub(super) known: &'a [Reference],
}

/// What is to be brought in.
struct Snapshot {
    commit: String,
    uncommitted: bool,
    unsaved: Vec<Unsaved>,
}

impl Workspaces {
    /// Brings in what a task did: its commits, and its uncommitted work as one commit more.
    ///
    /// To be called when nothing of the task runs any more. Afterwards the branch is in the user's
    /// repository, other branches, tags and stash entries of the task are under
    /// `refs/cofferdam/saved/<run>/<worker>/`, and the record says all of it. A task that changed
    /// nothing leaves no branch. When something is not as it should be, the user's repository is as
    /// before and the tree stays.
    pub fn harvest(
        &self,
        record: &WorktreeRecord,
        walls: &dyn InsideGit,
    ) -> Result<WorktreeRecord, WorkspaceError> {
        if record.state != TreeState::Ready {
            return Err(WorkspaceError::State {
                why: "the tree has nothing to harvest".to_owned(),
            });
        }
        let repository = record.user_repository();
        let program = self.git.program();
        let inside = Inside {
            git: &program,
            walls,
            git_dir: GIT_DIR,
        };
        let read = || {
            let prefixes = [
                "refs/heads",
                "refs/tags",
                "refs/remotes",
                "refs/cofferdam/base",
            ];
            let places = self.places(&record.repository);
            Ok((
                self.git.configuration(&repository)?,
                self.git.references(&repository, &prefixes)?,
                read_references(&record.record_directory(&places)),
            ))
        };
        let (found, outside) = std::thread::scope(|scope| {
            let found = scope.spawn(|| look(inside, record));
            let outside = self.acting(read);
            let found = found
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (found, outside)
        });
        let (configuration, known, given) = outside?;
        let outside = Outside {
            repository: &repository,
            configuration: &configuration,
            known: &known,
        };
        let harvested =
            found.and_then(|found| self.harvest_found(record, inside, &outside, &given, &found));
        let (record, harvest) = match harvested {
            Ok(harvest) => (record.clone(), harvest),
            // Its own git directory is of no use; its files are.
            Err(error @ WorkspaceError::HarvestRejected { .. }) => self
                .rescue(record, inside, &outside, &error)
                .map_err(|_| error)?,
            Err(error) => return Err(error),
        };
        let mut notes = record.notes.clone();
        if record.strategy == WorkspaceStrategy::Persistent
            && let Err(error) = self.settle_persistent(&harvest.commit, walls)
        {
            // What it did is brought in; the next task of this worker will hear of it again.
            notes.push(format!(
                "the tree could not be put in order for the next task: {error}"
            ));
        }
        let done = WorktreeRecord {
            state: TreeState::Harvested,
            harvest: Some(harvest),
            notes,
            ..record
        };
        self.acting(|| {
            done.save(&self.places(&done.repository))?;
            if done.strategy == WorkspaceStrategy::Persistent {
                // They were this task's, not the next one's.
                outbox::clear_requests(&done);
            }
            Ok(())
        })?;
        Ok(done)
    }

    /// Harvests by way of one git directory in the tree.
    pub(super) fn harvest_from(
        &self,
        record: &WorktreeRecord,
        inside: Inside<'_>,
        outside: &Outside<'_>,
        given: &HashMap<String, String>,
    ) -> Result<Harvest, WorkspaceError> {
        let found = look(inside, record)?;
        self.harvest_found(record, inside, outside, given, &found)
    }

    /// Harvests what was found.
    fn harvest_found(
        &self,
        record: &WorktreeRecord,
        inside: Inside<'_>,
        outside: &Outside<'_>,
        given: &HashMap<String, String>,
        found: &Found,
    ) -> Result<Harvest, WorkspaceError> {
        let person = carry::person(outside.configuration);
        let snapshot = take_snapshot(inside, record, found, &person)?;
        let saved = to_save(record, found, &snapshot, given)?;
        let tips: Vec<&str> = std::iter::once(snapshot.commit.as_str())
            .chain(saved.iter().map(|one| one.oid.as_str()))
            .collect();
        let pack = pack(inside, record, &tips, outside.known)?;
        let seeds_changed = seed::changed(record);
        let harvest = self.acting(|| {
            let pushes = outbox::pushes(record, outside.configuration);
            let requests = outbox::left_requests(record);
            self.bring_in(
                record,
                outside.repository,
                inside.git_dir,
                (found, &snapshot, &saved),
                pack.as_deref(),
            )
            .map(|harvest| Harvest {
                pushes,
                requests,
                ..harvest
            })
        })?;
        sweep_scratch(&record.tree_path().join(inside.git_dir), pack.as_deref());
        Ok(Harvest {
            seeds_changed,
            ..harvest
        })
    }

    /// Checks the pack, moves it in, and moves the references.
    fn bring_in(
        &self,
        record: &WorktreeRecord,
        repository: &Repository,
        git_dir: &str,
        (found, snapshot, saved): (&Found, &Snapshot, &[Saved]),
        pack: Option<&str>,
    ) -> Result<Harvest, WorkspaceError> {
        let places = self.places(&record.repository);
        let incoming = match pack {
            Some(_) => Incoming::open(&places.incoming(), &record.nonce, repository)?,
            None => Incoming::nothing(repository),
        };
        if let Some(name) = pack {
            let path = PathBuf::from(format!("{git_dir}/{SCRATCH}-{name}.pack"));
            let top = files::open_directory(record.tree_path())
                .map_err(|error| WorkspaceError::rejected(format!("the tree: {error}")))?;
            let file = files::open_beneath(std::os::fd::AsFd::as_fd(&top), &path)
                .map_err(|error| WorkspaceError::rejected(format!("its pack: {error}")))?;
            incoming.take(&self.git, &file, self.pack_bound)?;
        }
        let mut tips: Vec<&str> = vec![&snapshot.commit];
        tips.extend(saved.iter().map(|one| one.oid.as_str()));
        incoming.check_connected(&self.git, &tips)?;
        let is_changed = snapshot.commit != record.measured_from();
        let tree = incoming.tree_of(&self.git, &snapshot.commit)?;
        let descends_from_base =
            incoming.descends(&self.git, &record.base.oid, &snapshot.commit)?;
        let own_commits = incoming
            .count(&self.git, record.measured_from(), &snapshot.commit)?
            .saturating_sub(u64::from(snapshot.uncommitted));

        let _lock = RepositoryLock::take(&self.locks(), &repository.common_dir)?;
        incoming.move_in()?;
        let branch = record.branch_reference();
        let there = self.references_of(record, repository)?;
        let mut commit = snapshot.commit.clone();
        let mut changes = Vec::new();
        match there.get(&branch) {
            None if is_changed => changes.push(RefChange::create(&branch, &commit)),
            None => {}
            // An earlier harvest was cut off after the references had moved.
            Some(before) if incoming.same_work(&self.git, before, &commit)? => {
                commit.clone_from(before);
            }
            Some(before) => {
                return Err(WorkspaceError::BranchTaken {
                    branch: record.branch.clone(),
                    by: format!("somebody made it while the task ran, at {before}"),
                });
            }
        }
        for one in saved {
            match there.get(&one.reference) {
                None => changes.push(RefChange::create(&one.reference, &one.oid)),
                Some(before) if *before == one.oid => {}
                Some(before) => {
                    changes.push(RefChange::update(&one.reference, &one.oid, before));
                }
            }
        }
        // The branch holds the base now, where it descends from it.
        if let Some(base) = there.get(&record.base_reference())
            && descends_from_base
        {
            changes.push(RefChange::delete(record.base_reference(), base));
        }
        match self
            .git
            .change_references(repository, "cofferdam: task", &changes)
        {
            Err(GitError::RefMoved { stderr }) => {
                return Err(WorkspaceError::BranchTaken {
                    branch: record.branch.clone(),
                    by: format!("somebody made it while the task ran ({stderr})"),
                });
            }
            other => other?,
        }

        let mut diff = diff_trees(&self.git, repository, record.measured_from(), &tree)?;
        for file in &mut diff.files {
            file.untracked = found.status.untracked.contains(file.path.as_bytes());
        }
        let mut unsaved = found.status.unsaved.clone();
        unsaved.extend(snapshot.unsaved.iter().cloned());
        for path in diff.gitlinks {
            if !unsaved.iter().any(|one| one.path == path) {
                let why = "a repository of its own stands there".to_owned();
                unsaved.push(Unsaved { path, why });
            }
        }
        let changed: HashSet<&[u8]> = diff.files.iter().map(|file| file.path.as_bytes()).collect();
        let is_committed = |seed: &&super::Seed| changed.contains(seed.path.as_bytes());
        let seeds_committed = record
            .seeds
            .iter()
            .filter(is_committed)
            .map(|seed| seed.path.clone())
            .collect();
        let own = found.head_branch.as_deref();
        let moved_to = match own {
            Some(name) if name == branch => None,
            Some(name) => Some(name.to_owned()),
            None => Some("HEAD".to_owned()),
        };
        Ok(Harvest {
            commit,
            tree,
            branch: is_changed.then(|| record.branch.clone()),
            own_commits,
            uncommitted: snapshot.uncommitted,
            moved_to,
            descends_from_base,
            saved: saved.to_vec(),
            unsaved,
            ignored: found.status.ignored.clone(),
            seeds_changed: Vec::new(),
            seeds_committed,
            in_progress: in_progress(record.tree_path(), git_dir),
            pushes: Vec::new(),
            requests: Vec::new(),
            rescued: None,
            modified_files: diff.files,
            summary: diff.summary,
        })
    }

    /// Gives the references of the user's repository that belong to a task.
    fn references_of(
        &self,
        record: &WorktreeRecord,
        repository: &Repository,
    ) -> Result<HashMap<String, String>, WorkspaceError> {
        let (branch, base) = (record.branch_reference(), record.base_reference());
        let found = self
            .git
            .references(repository, &[&branch, &base, &record.saved_prefix()])?;
        Ok(found.into_iter().map(|one| (one.name, one.oid)).collect())
    }

    /// Deletes a reference of ours where it stands.
    pub(super) fn release(
        &self,
        repository: &Repository,
        reference: &str,
    ) -> Result<(), WorkspaceError> {
        if let Some(oid) = self.git.reference(repository, reference)? {
            let change = RefChange::delete(reference, oid);
            self.git
                .change_references(repository, "cofferdam", &[change])?;
        }
        Ok(())
    }
}

/// Makes a commit of what is not committed, with a private index; or takes the last commit.
fn take_snapshot(
    inside: Inside<'_>,
    record: &WorktreeRecord,
    found: &Found,
    (name, email): &(String, String),
) -> Result<Snapshot, WorkspaceError> {
    let last = |commit: &String, unsaved| Snapshot {
        commit: commit.clone(),
        uncommitted: false,
        unsaved,
    };
    if let (false, Some(head)) = (found.status.dirty, &found.head) {
        return Ok(last(head, Vec::new()));
    }
    let index = format!("{}/{SCRATCH}-index", inside.git_dir);
    let own = format!("{}/index", inside.git_dir);
    let environment = [("GIT_INDEX_FILE", index.as_str())];
    // A copy keeps what git knows about unchanged files, so that only changed ones are read; it keeps
    // its time too, by which git knows which files it has to look at again.
    let copy = [
        "/bin/sh",
        "-c",
        "rm -f \"$1\"; test ! -e \"$2\" || cp -p \"$2\" \"$1\"",
        "sh",
    ];
    let argv = copy
        .into_iter()
        .chain([index.as_str(), own.as_str()])
        .map(BytePath::from)
        .collect();
    good("copying the index", inside.run(argv, &[], None)?)?;
    let arguments = ["add", "--all", "--sparse", "--ignore-errors", "--", ":/"];
    let added = inside.git(&arguments, &environment, None)?;
    let mut unsaved = Vec::new();
    if added.code == Some(1) {
        // Some files could not be read; the others are saved, and the tree stays.
        let said = String::from_utf8_lossy(&added.stderr);
        let why = said.lines().next().unwrap_or("git add failed").to_owned();
        unsaved.push(Unsaved {
            path: ".".into(),
            why,
        });
    } else {
        good("saving files", added)?;
    }
    if inside.git_dir != GIT_DIR {
        // It is ignored, but a `.gitignore` of the task may say otherwise.
        let ours = [
            "rm",
            "-r",
            "-q",
            "-f",
            "--cached",
            "--ignore-unmatch",
            "--",
            inside.git_dir,
        ];
        inside.output("leaving our own out", &ours, &environment, None)?;
    }
    if !record.seeds.is_empty() && found.head.is_some() {
        let mut paths = Vec::new();
        for seed in &record.seeds {
            paths.extend_from_slice(b":(top,literal)");
            paths.extend_from_slice(seed.path.as_bytes());
            paths.push(0);
        }
        let arguments = [
            "reset",
            "-q",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
            "HEAD",
        ];
        inside.output(
            "leaving copied-in files out",
            &arguments,
            &environment,
            Some(paths),
        )?;
    }
    let tree = read_oid(&inside.output("saving the tree", &["write-tree"], &environment, None)?)?;
    if let (Some(head), true) = (&found.head, found.head_tree.as_ref() == Some(&tree)) {
        return Ok(last(head, unsaved));
    }
    let environment = [
        ("GIT_AUTHOR_NAME", name.as_str()),
        ("GIT_AUTHOR_EMAIL", email.as_str()),
        ("GIT_COMMITTER_NAME", name.as_str()),
        ("GIT_COMMITTER_EMAIL", email.as_str()),
    ];
    let mut arguments = vec!["commit-tree", tree.as_str()];
    if let Some(head) = &found.head {
        arguments.extend(["-p", head]);
    }
    let message = format!("cofferdam: uncommitted work of {}\n", record.worker).into_bytes();
    let output = inside.output("saving the work", &arguments, &environment, Some(message))?;
    Ok(Snapshot {
        commit: read_oid(&output)?,
        uncommitted: true,
        unsaved,
    })
}

/// Lists what the task has on other references than its branch, where it differs from what it got.
fn to_save(
    record: &WorktreeRecord,
    found: &Found,
    snapshot: &Snapshot,
    given: &HashMap<String, String>,
) -> Result<Vec<Saved>, WorkspaceError> {
    let prefix = record.saved_prefix();
    let own = record.branch_reference();
    let mut saved = Vec::new();
    let mut save = |name: &str, last: String, oid: &str| {
        let reference = format!("{prefix}/{last}");
        saved.push(Saved {
            name: name.to_owned(),
            reference,
            oid: oid.to_owned(),
        });
    };
    for (name, oid) in &found.references {
        let known = given.get(name) == Some(oid);
        let is_head = found.head_branch.as_ref() == Some(name);
        let is_nothing = oid == record.measured_from() || *oid == snapshot.commit;
        // What stands at HEAD is an ancestor of, or is, what goes to the branch itself.
        let is_in = is_head || (*name == own && is_nothing);
        // What was fetched can be fetched again; the stash is saved entry by entry.
        let is_elsewhere = name.starts_with("refs/remotes/") || name == "refs/stash";
        if known || is_in || is_elsewhere {
            continue;
        }
        save(name, name.trim_start_matches("refs/").to_owned(), oid);
    }
    for (number, oid) in found.stash.iter().enumerate() {
        save(
            &format!("stash@{{{number}}}"),
            format!("stash/{number}"),
            oid,
        );
    }
    for (number, oid) in found.left.iter().enumerate() {
        save("HEAD, detached", format!("detached/{number}"), oid);
    }
    if saved.len() > MOST_SAVED {
        return Err(WorkspaceError::rejected(format!(
            "it has {} new references",
            saved.len()
        )));
    }
    Ok(saved)
}

/// Makes a pack of what the user's repository does not have; gives the last part of its name.
fn pack(
    inside: Inside<'_>,
    record: &WorktreeRecord,
    tips: &[&str],
    known: &[Reference],
) -> Result<Option<String>, WorkspaceError> {
    let mut revisions = tips.join("\n");
    revisions.push_str("\n--not\n");
    revisions.push_str(&record.base.oid);
    revisions.push('\n');
    for reference in known.iter().take(2000) {
        revisions.push_str(&reference.oid);
        revisions.push('\n');
    }
    let output = inside.output(
        "packing",
        &[
            "pack-objects",
            "--revs",
            "--non-empty",
            "--delta-base-offset",
            "-q",
            &format!("{}/{SCRATCH}", inside.git_dir),
        ],
        &[],
        Some(revisions.into_bytes()),
    )?;
    if output.is_empty() {
        return Ok(None);
    }
    read_oid(&output).map(Some)
}

/// Removes what the harvest left in the task's git directory, which may stay.
fn sweep_scratch(git_dir: &Path, name: Option<&str>) {
    let Ok(git_dir) = files::open_directory(git_dir) else {
        return;
    };
    let pack = ["pack", "idx", "rev"];
    let pack = name.map(|name| pack.map(|kind| format!("{SCRATCH}-{name}.{kind}")));
    for file in pack
        .into_iter()
        .flatten()
        .chain([format!("{SCRATCH}-index")])
    {
        // Nobody misses it, and it is in nobody's way.
        let _ = rustix::fs::unlinkat(&git_dir, file, rustix::fs::AtFlags::empty());
    }
}
