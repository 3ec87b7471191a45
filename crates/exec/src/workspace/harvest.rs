//! Bringing in what a task did.
//!
//! The task's git directory is hostile: its configuration, attributes, hooks and objects may be
//! anything. So git runs on it only inside the walls, where it can do no more than the task could;
//! what comes out is a pack and a few object ids, checked outside as if they came from a stranger.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::task::WorkspaceStrategy;

use super::carry::after_spaces;
use super::incoming::Incoming;
use super::inside::{Inside, InsideGit, good, read_oid};
use super::record::{Harvest, Saved, TreeState, Unsaved, WorktreeRecord};
use super::store::read_references;
use super::{WorkspaceError, Workspaces, carry, files, seed};
use crate::git::{GitError, RefChange, Reference, Repository, RepositoryLock, diff_trees};

/// Name of the private index and the pack in a task's git directory.
const SCRATCH: &str = "cofferdam-scratch";

/// More references than this of one task are no honest work.
const MOST_SAVED: usize = 500;

/// Ignored paths that are listed.
const MOST_IGNORED: usize = 1000;

const IN_PROGRESS: [(&str, &str); 6] = [
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("BISECT_LOG", "bisect"),
];

/// What git inside says about the tree.
#[derive(Debug, Default)]
struct Status {
    /// Anything that differs from the last commit, copied-in files apart.
    dirty: bool,
    untracked: HashSet<Vec<u8>>,
    ignored: Vec<BytePath>,
    unsaved: Vec<Unsaved>,
}

/// The task's repository as it was found.
struct Found {
    head: Option<String>,
    /// Tree of the last commit.
    head_tree: Option<String>,
    /// Branch at `HEAD`; `None` when detached or unborn.
    head_branch: Option<String>,
    references: Vec<(String, String)>,
    stash: Vec<String>,
    /// Commits from which a detached `HEAD` went away to something else.
    left: Vec<String>,
    status: Status,
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
        };
        let (person, known, given) = self.acting(|| {
            let configuration = self.git.configuration(&repository)?;
            let prefixes = [
                "refs/heads",
                "refs/tags",
                "refs/remotes",
                "refs/cofferdam/base",
            ];
            let known = self.git.references(&repository, &prefixes)?;
            let given = read_references(&record.record_directory(&self.places(&record.repository)));
            Ok((carry::person(&configuration), known, given))
        })?;

        let found = look(inside, record)?;
        let snapshot = take_snapshot(inside, record, &found, &person)?;
        let saved = to_save(record, &found, &snapshot, &given)?;
        let tips: Vec<&str> = std::iter::once(snapshot.commit.as_str())
            .chain(saved.iter().map(|one| one.oid.as_str()))
            .collect();
        let pack = pack(inside, record, &tips, &known)?;

        let seeds_changed = seed::changed(record);
        let harvest = self.acting(|| {
            self.bring_in(
                record,
                &repository,
                &found,
                &snapshot,
                &saved,
                pack.as_deref(),
            )
        })?;
        let harvest = Harvest {
            seeds_changed,
            ..harvest
        };
        sweep_scratch(record.tree_path(), pack.as_deref());
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
            ..record.clone()
        };
        self.acting(|| done.save(&self.places(&done.repository)))?;
        Ok(done)
    }

    /// Checks the pack, moves it in, and moves the references.
    fn bring_in(
        &self,
        record: &WorktreeRecord,
        repository: &Repository,
        found: &Found,
        snapshot: &Snapshot,
        saved: &[Saved],
        pack: Option<&str>,
    ) -> Result<Harvest, WorkspaceError> {
        let places = self.places(&record.repository);
        let incoming = Incoming::open(&places.incoming(), &record.nonce, repository)?;
        if let Some(name) = pack {
            let path = PathBuf::from(format!(".git/{SCRATCH}-{name}.pack"));
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
        let mut changes = Vec::new();
        let branch = record.branch_reference();
        if is_changed {
            changes.push(RefChange::create(branch.as_str(), snapshot.commit.as_str()));
        }
        for one in saved {
            changes.push(RefChange::create(one.reference.as_str(), one.oid.as_str()));
        }
        // The branch holds the base now, where it descends from it.
        if descends_from_base {
            changes.push(RefChange::delete(
                record.base_reference(),
                record.base.oid.as_str(),
            ));
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
            commit: snapshot.commit.clone(),
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
            in_progress: in_progress(record.tree_path()),
            modified_files: diff.files,
            summary: diff.summary,
        })
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

fn look(inside: Inside<'_>, record: &WorktreeRecord) -> Result<Found, WorkspaceError> {
    let listed = inside.output(
        "listing references",
        &[
            "for-each-ref",
            "--format=%(objectname) %(refname)%(if)%(HEAD)%(then) %(HEAD)%(end)",
        ],
        &[],
        None,
    )?;
    let mut references = Vec::new();
    let mut head_branch = None;
    for line in String::from_utf8_lossy(&listed).lines() {
        let mut words = line.split(' ');
        if let (Some(oid), Some(name)) = (words.next(), words.next()) {
            if words.next() == Some("*") {
                head_branch = Some(name.to_owned());
            }
            references.push((name.to_owned(), read_oid(oid.as_bytes())?));
        }
    }
    let both = inside.git(&["rev-parse", "HEAD^{commit}", "HEAD^{tree}"], &[], None)?;
    let (head, head_tree) = match both.stdout.split(|byte| *byte == b'\n').collect::<Vec<_>>()[..] {
        [commit, tree, ..] if both.code == Some(0) => {
            (Some(read_oid(commit)?), Some(read_oid(tree)?))
        }
        _ => (None, None),
    };
    let left = left_detached(inside, head.as_deref())?;
    let stash = if references.iter().any(|(name, _)| name == "refs/stash") {
        let output = inside.output(
            "listing the stash",
            &["rev-list", "-g", "refs/stash"],
            &[],
            None,
        )?;
        let text = String::from_utf8_lossy(&output).into_owned();
        text.lines()
            .map(|line| read_oid(line.as_bytes()))
            .collect::<Result<_, _>>()?
    } else {
        Vec::new()
    };
    let output = inside.output(
        "looking at the tree",
        &[
            "status",
            "--porcelain=v2",
            "-z",
            "--untracked-files=all",
            "--ignored=matching",
            "--ignore-submodules=none",
            "--no-renames",
        ],
        &[],
        None,
    )?;
    let status = read_status(&output, record);
    Ok(Found {
        head,
        head_tree,
        head_branch,
        references,
        stash,
        left,
        status,
    })
}

/// Finds commits that only the log of `HEAD` still knows, because a detached `HEAD` left them.
///
/// Commits that were amended, rebased or reset away are not among them: those were let go on purpose.
fn left_detached(inside: Inside<'_>, head: Option<&str>) -> Result<Vec<String>, WorkspaceError> {
    let log = inside.git(&["log", "-g", "--format=%gs", "HEAD", "--"], &[], None)?;
    let mut found: Vec<String> = Vec::new();
    for line in String::from_utf8_lossy(&log.stdout).lines() {
        let from = line
            .strip_prefix("checkout: moving from ")
            .and_then(|rest| rest.split(' ').next());
        if let Some(oid) = from.and_then(|from| read_oid(from.as_bytes()).ok())
            && !found.contains(&oid)
        {
            found.push(oid);
        }
    }
    if found.is_empty() {
        return Ok(found);
    }
    let mut revisions = found.join("\n");
    revisions.push_str("\n--not\n--all\n");
    revisions.extend(head.map(|head| format!("{head}\n")));
    let arguments = ["rev-list", "--stdin", "--ignore-missing"];
    let unknown = inside.output(
        "looking for left commits",
        &arguments,
        &[],
        Some(revisions.into_bytes()),
    )?;
    let unknown = String::from_utf8_lossy(&unknown).into_owned();
    found.retain(|oid| unknown.lines().any(|line| line == oid));
    Ok(found)
}

fn read_status(output: &[u8], record: &WorktreeRecord) -> Status {
    let seeds: HashSet<&[u8]> = record
        .seeds
        .iter()
        .map(|seed| seed.path.as_bytes())
        .collect();
    let mut status = Status::default();
    for entry in output
        .split(|byte| *byte == 0)
        .filter(|entry| entry.len() > 2)
    {
        match entry[0] {
            b'?' | b'!' if seeds.contains(&entry[2..]) => {}
            b'?' => {
                status.dirty = true;
                if entry.ends_with(b"/") {
                    let path = BytePath::from_bytes(&entry[2..entry.len() - 1]);
                    let why = "a repository of its own stands there".to_owned();
                    status.unsaved.push(Unsaved { path, why });
                } else {
                    status.untracked.insert(entry[2..].to_vec());
                }
            }
            b'!' if status.ignored.len() < MOST_IGNORED => {
                status.ignored.push(BytePath::from_bytes(&entry[2..]));
            }
            b'1' | b'u' => {
                status.dirty = true;
                let spaces = if entry[0] == b'1' { 8 } else { 10 };
                let path = after_spaces(entry, spaces).unwrap_or_default();
                if entry.get(5) == Some(&b'S') {
                    let why = "a submodule has changes of its own".to_owned();
                    status.unsaved.push(Unsaved {
                        path: BytePath::from_bytes(path),
                        why,
                    });
                }
            }
            _ => {}
        }
    }
    status
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
    let index = format!(".git/{SCRATCH}-index");
    let environment = [("GIT_INDEX_FILE", index.as_str())];
    // A copy keeps what git knows about unchanged files, so that only changed ones are read; it keeps
    // its time too, by which git knows which files it has to look at again.
    let copy = [
        "/bin/sh",
        "-c",
        "rm -f \"$1\"; test ! -e .git/index || cp -p .git/index \"$1\"",
        "sh",
    ];
    let argv = copy
        .into_iter()
        .chain([index.as_str()])
        .map(BytePath::from)
        .collect();
    good("copying the index", inside.run(argv, &[], None)?)?;
    let added = inside.git(
        &["add", "--all", "--sparse", "--ignore-errors", "--", ":/"],
        &environment,
        None,
    )?;
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
        if known || is_in || name == "refs/stash" {
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
            &format!(".git/{SCRATCH}"),
        ],
        &[],
        Some(revisions.into_bytes()),
    )?;
    if output.is_empty() {
        return Ok(None);
    }
    read_oid(&output).map(Some)
}

fn in_progress(tree: &Path) -> Vec<String> {
    let Ok(top) = files::open_directory(tree) else {
        return Vec::new();
    };
    let mut found: Vec<String> = Vec::new();
    for (name, what) in IN_PROGRESS {
        let there = files::exists_beneath(
            std::os::fd::AsFd::as_fd(&top),
            &Path::new(".git").join(name),
        );
        if there && !found.iter().any(|own| own == what) {
            found.push(what.to_owned());
        }
    }
    found
}

/// Removes what the harvest left in the task's git directory, which may stay.
fn sweep_scratch(tree: &Path, name: Option<&str>) {
    let Ok(git_dir) = files::open_directory(&tree.join(".git")) else {
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
