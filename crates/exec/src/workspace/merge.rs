//! Merging a task's branch into a branch of the user's, and taking that back.
//!
//! The merge is computed without a working tree. It is applied only when the target is where it was
//! seen, and, where the target is checked out, only when that checkout is clean; the user's changes
//! are never stashed, reset or overwritten.

use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::task::ChangeKind;
use cofferdam_sandbox::ExitStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::files;
use super::record::WorktreeRecord;
use super::survey::checkout_of;
use super::{WorkspaceError, Workspaces, carry};
use crate::git::{Configuration, GitError, RefChange, Repository, RepositoryLock, diff_trees};
use crate::tool::Input;

/// What is to be merged, and where to.
#[derive(Debug, Clone, Default)]
pub struct MergeRequest {
    /// The branch that takes it, without `refs/heads/`; the base's branch when there is none.
    pub target: Option<String>,
    /// The first line of a merge commit, where one is made.
    pub message: String,
    /// Names below the top that the host's tools execute or obey; a change of one is refused. A
    /// directory stands for everything below it.
    pub protected: Vec<BytePath>,
}

/// A merge that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Merged {
    /// The branch that took it, by its full name.
    pub target: String,
    /// Where it was.
    pub old: String,
    /// Where it is; the same as `old` when there was nothing to merge.
    pub new: String,
    /// Whether the branch only went forward, without a merge commit.
    pub fast_forward: bool,
    /// The checkout that was brought along, where there is one.
    pub checkout: Option<BytePath>,
}

impl Merged {
    /// Gives the move that takes this one back.
    #[must_use]
    pub fn back(&self) -> Self {
        Self {
            target: self.target.clone(),
            old: self.new.clone(),
            new: self.old.clone(),
            fast_forward: false,
            checkout: None,
        }
    }
}

impl Workspaces {
    /// Merges a harvested task's branch in one step: [`Workspaces::plan_merge`], then
    /// [`Workspaces::apply_merge`].
    pub fn merge(
        &self,
        record: &WorktreeRecord,
        request: &MergeRequest,
    ) -> Result<Merged, WorkspaceError> {
        let planned = self.plan_merge(record, request)?;
        self.apply_merge(record, &planned)
    }

    /// Computes the merge of a harvested task's branch; no reference and no checkout is touched.
    ///
    /// Refused on conflicts ([`WorkspaceError::MergeConflict`]) and when a protected name changed.
    pub fn plan_merge(
        &self,
        record: &WorktreeRecord,
        request: &MergeRequest,
    ) -> Result<Merged, WorkspaceError> {
        self.acting(|| self.plan_merge_acting(record, request))
    }

    /// Carries out a planned merge.
    ///
    /// Refused, with nothing changed, when the target's checkout has changes
    /// ([`WorkspaceError::CheckoutDirty`]) or the target moved since
    /// ([`WorkspaceError::TargetMoved`]). The target's old commit is kept under
    /// `refs/cofferdam/undo/<run>/<worker>`.
    pub fn apply_merge(
        &self,
        record: &WorktreeRecord,
        planned: &Merged,
    ) -> Result<Merged, WorkspaceError> {
        if planned.old == planned.new {
            return Ok(planned.clone());
        }
        self.acting(|| {
            let repository = &record.user_repository();
            let _lock = RepositoryLock::take(&self.locks(), &repository.common_dir)?;
            let old = planned.old.as_str();
            let undo = match self.git.reference(repository, &record.undo_reference())? {
                None => RefChange::create(record.undo_reference(), old),
                Some(before) => RefChange::update(record.undo_reference(), old, before),
            };
            self.advance(repository, planned, Some(undo))
        })
    }

    /// Finds out what became of a move of a branch that was cut off, by [`Workspaces::apply_merge`]
    /// or by [`Workspaces::undo_merge`] (then with [`Merged::back`]); gives whether the branch has
    /// moved. A checkout that was left behind is brought along where nothing in it would be lost.
    pub fn settle_merge(
        &self,
        record: &WorktreeRecord,
        planned: &Merged,
    ) -> Result<bool, WorkspaceError> {
        self.acting(|| {
            let repository = &record.user_repository();
            let _lock = RepositoryLock::take(&self.locks(), &repository.common_dir)?;
            let Some(here) = self.git.reference(repository, &planned.target)? else {
                return Ok(false);
            };
            if here == planned.old {
                return Ok(false);
            }
            if here != planned.new {
                return self.is_ancestor(repository, &planned.new, &here);
            }
            if let Some(path) = checkout_of(&self.git, repository, &planned.target)?
                && let Some(checkout) = self.checkout_at(path)
            {
                // What was moved along already stays, what has changes of its own is refused whole.
                let _ = self.two_trees(&checkout, planned, &["-u"]);
            }
            Ok(true)
        })
    }

    /// Tells whether a directory lies in a repository: in any of its working trees, or in the tree
    /// of the task.
    pub fn is_in_repository(
        &self,
        record: &WorktreeRecord,
        directory: &Path,
    ) -> Result<bool, WorkspaceError> {
        self.acting(|| {
            if directory.starts_with(record.tree_path()) {
                return Ok(true);
            }
            let answer = self
                .git
                .call(directory)
                .args(["rev-parse", "--path-format=absolute", "--git-common-dir"])
                .run();
            let Ok(answer) = answer else {
                // Where the owner cannot even go there is no checkout of theirs.
                return Ok(false);
            };
            let mut path = answer.stdout;
            path.pop();
            let found = PathBuf::from(std::ffi::OsString::from_vec(path));
            let common = record.common_dir.as_path();
            Ok(answer.status == ExitStatus::Code(0)
                && (found == common || found.canonicalize().ok() == common.canonicalize().ok()))
        })
    }

    fn plan_merge_acting(
        &self,
        record: &WorktreeRecord,
        request: &MergeRequest,
    ) -> Result<Merged, WorkspaceError> {
        let repository = &record.user_repository();
        let target = match (&request.target, &record.base.reference) {
            (Some(name), _) => format!("refs/heads/{}", short(name)),
            (None, Some(name)) => name.clone(),
            (None, None) => {
                let why = "the task did not begin from a branch; name the one to merge into";
                return Err(WorkspaceError::State {
                    why: why.to_owned(),
                });
            }
        };
        let short = target.trim_start_matches("refs/heads/").to_owned();
        let Some(theirs) = self.git.reference(repository, &record.branch_reference())? else {
            let why = format!("branch {} is not in the repository", record.branch);
            return Err(WorkspaceError::State { why });
        };
        let Some(old) = self.git.reference(repository, &target)? else {
            return Err(WorkspaceError::State {
                why: format!("there is no branch {short}"),
            });
        };
        let nothing = Merged {
            target: target.clone(),
            old: old.clone(),
            new: old.clone(),
            fast_forward: true,
            checkout: None,
        };
        if self.is_ancestor(repository, &theirs, &old)? {
            return Ok(nothing);
        }
        let configuration = self.git.owner_configuration(repository)?;
        let signs = configuration.is_on("commit.gpgsign");
        // Nothing inside can sign: where the owner signs, the merge is a commit that vouches for it.
        let fast_forward = !signs && self.is_ancestor(repository, &old, &theirs)?;
        let new = if fast_forward {
            theirs
        } else {
            let (ours, theirs) = (old.as_str(), theirs.as_str());
            self.merge_commit(repository, &configuration, (ours, theirs), request, record)?
        };
        let diff = diff_trees(&self.git, repository, &old, &new)?;
        let is_protected =
            |path: &BytePath| request.protected.iter().any(|top| path.is_within(top));
        let files: Vec<BytePath> = diff
            .files
            .iter()
            .flat_map(|file| std::iter::once(&file.path).chain(&file.from))
            .filter(|path| is_protected(path))
            .cloned()
            .collect();
        if !files.is_empty() {
            return Err(WorkspaceError::ProtectedChanged { files });
        }
        Ok(Merged {
            target,
            old,
            new,
            fast_forward,
            checkout: None,
        })
    }

    /// Takes a merge back, when the target is still where the merge put it.
    pub fn undo_merge(
        &self,
        record: &WorktreeRecord,
        merged: &Merged,
    ) -> Result<Merged, WorkspaceError> {
        self.acting(|| {
            let repository = &record.user_repository();
            let _lock = RepositoryLock::take(&self.locks(), &repository.common_dir)?;
            let back = merged.back();
            let here = self.git.reference(repository, &merged.target)?;
            if here.as_ref() != Some(&merged.new) {
                return Err(WorkspaceError::TargetMoved {
                    branch: short(&merged.target),
                });
            }
            let undo = self.git.reference(repository, &record.undo_reference())?;
            let undo = undo.map(|oid| RefChange::delete(record.undo_reference(), oid));
            self.advance(repository, &back, undo)
        })
    }

    fn is_ancestor(
        &self,
        repository: &Repository,
        from: &str,
        to: &str,
    ) -> Result<bool, WorkspaceError> {
        let call = self.git.on(&repository.git_dir, &repository.top);
        Ok(call
            .args(["merge-base", "--is-ancestor", from, to])
            .verdict()?)
    }

    fn merge_commit(
        &self,
        repository: &Repository,
        configuration: &Configuration,
        (ours, theirs): (&str, &str),
        request: &MergeRequest,
        record: &WorktreeRecord,
    ) -> Result<String, WorkspaceError> {
        let call = || self.git.on(&repository.git_dir, &repository.top);
        let answer = call()
            .args([
                "merge-tree",
                "--write-tree",
                "-z",
                "--name-only",
                "--no-messages",
            ])
            .args([ours, theirs])
            .run()?;
        let mut fields = answer.stdout.split(|byte| *byte == 0);
        let tree = String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
        match answer.code() {
            Some(0) => {}
            Some(1) => {
                let files = fields.filter(|field| !field.is_empty());
                let mut files: Vec<BytePath> = files.map(BytePath::from_bytes).collect();
                files.dedup();
                return Err(WorkspaceError::MergeConflict { files });
            }
            _ => {
                let stderr = String::from_utf8_lossy(&answer.stderr).into_owned();
                let args = vec!["merge-tree".to_owned()];
                return Err(GitError::Failed {
                    args,
                    code: answer.code(),
                    stderr,
                }
                .into());
            }
        }
        let (name, email) = carry::person(configuration);
        let message = if request.message.trim().is_empty() {
            format!("Merge {}\n", record.branch)
        } else {
            format!("{}\n", request.message.trim_end())
        };
        let signs = configuration.is_on("commit.gpgsign");
        let call = if signs {
            call().in_owners_name()
        } else {
            call()
        };
        let commit = call
            .env("GIT_AUTHOR_NAME", &name)
            .env("GIT_AUTHOR_EMAIL", &email)
            .env("GIT_COMMITTER_NAME", &name)
            .env("GIT_COMMITTER_EMAIL", &email)
            .args(["commit-tree"])
            .args(signs.then_some("-S"))
            .args(["-p", ours, "-p", theirs, &tree])
            .input(Input::Bytes(message.as_bytes()))
            .line();
        match commit {
            Err(GitError::Failed { stderr, .. }) if signs => Err(WorkspaceError::NotSigned {
                why: stderr.trim().to_owned(),
            }),
            commit => Ok(commit?),
        }
    }

    /// Moves a branch, and its checkout where there is one, from one commit to another.
    fn advance(
        &self,
        repository: &Repository,
        merged: &Merged,
        also: Option<RefChange>,
    ) -> Result<Merged, WorkspaceError> {
        let branch = short(&merged.target);
        let checkout = checkout_of(&self.git, repository, &merged.target)?;
        let checkout = match checkout {
            None => None,
            Some(path) => {
                let checkout = self.clean_checkout(repository, path, &branch, merged)?;
                // Files that were touched and not changed would count as changes below.
                self.git
                    .on(&checkout.git_dir, &checkout.path)
                    .args(["update-index", "-q", "--refresh"])
                    .run()?;
                // A try that writes nothing: what it would refuse is found before anything moves.
                let tried = self.two_trees(&checkout, merged, &["-u", "-n"]);
                if let Err(GitError::Failed { stderr, .. }) = tried {
                    return Err(WorkspaceError::CheckoutDirty {
                        branch,
                        path: checkout.path,
                        what: format!("something in the way: {}", stderr.trim()),
                        files: Vec::new(),
                    });
                }
                tried?;
                Some(checkout)
            }
        };
        let moved = RefChange::update(
            merged.target.as_str(),
            merged.new.as_str(),
            merged.old.as_str(),
        );
        let changes: Vec<RefChange> = std::iter::once(moved).chain(also).collect();
        match self
            .git
            .change_references(repository, "cofferdam: merge", &changes)
        {
            Err(GitError::RefMoved { .. }) => return Err(WorkspaceError::TargetMoved { branch }),
            other => other?,
        }
        if let Some(checkout) = &checkout
            && let Err(error) = self.two_trees(checkout, merged, &["-u"])
        {
            let back = RefChange::update(
                merged.target.as_str(),
                merged.old.as_str(),
                merged.new.as_str(),
            );
            self.git
                .change_references(repository, "cofferdam: merge taken back", &[back])?;
            return Err(error.into());
        }
        let checkout = checkout.map(|checkout| checkout.path.into());
        Ok(Merged {
            checkout,
            ..merged.clone()
        })
    }

    /// Brings a checkout from one commit to the other, or refuses and leaves it.
    fn two_trees(
        &self,
        checkout: &Checkout,
        merged: &Merged,
        flags: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        self.git
            .on(&checkout.git_dir, &checkout.path)
            .args(["read-tree", "-m"])
            .args(flags)
            .args([&merged.old, &merged.new])
            .timeout(std::time::Duration::from_hours(1))
            .output()
    }

    /// Finds the git directory of a checkout.
    fn checkout_at(&self, path: PathBuf) -> Option<Checkout> {
        let git_dir = self
            .git
            .call(&path)
            .args(["rev-parse", "--absolute-git-dir"])
            .line()
            .ok()?;
        Some(Checkout {
            path,
            git_dir: git_dir.into(),
        })
    }

    /// Takes a checkout only when nothing in it would be lost or mixed in.
    fn clean_checkout(
        &self,
        repository: &Repository,
        path: PathBuf,
        branch: &str,
        merged: &Merged,
    ) -> Result<Checkout, WorkspaceError> {
        let dirty = |what: &str, files: Vec<BytePath>| WorkspaceError::CheckoutDirty {
            branch: branch.to_owned(),
            path: path.clone(),
            what: what.to_owned(),
            files,
        };
        let Some(Checkout { git_dir, .. }) = self.checkout_at(path.clone()) else {
            return Err(dirty("a git directory that cannot be read", Vec::new()));
        };
        for name in [
            "MERGE_HEAD",
            "CHERRY_PICK_HEAD",
            "REVERT_HEAD",
            "rebase-merge",
            "rebase-apply",
        ] {
            if git_dir.join(name).exists() {
                return Err(dirty(
                    "a merge, rebase or the like that is not finished",
                    Vec::new(),
                ));
            }
        }
        if git_dir.join("index.lock").exists() {
            return Err(dirty("a git command at work in it", Vec::new()));
        }
        let output = self
            .git
            .on(&git_dir, &path)
            .args([
                "status",
                "--porcelain=v2",
                "-z",
                "--untracked-files=no",
                "--no-renames",
            ])
            .output()?;
        let changed: Vec<BytePath> = output
            .split(|byte| *byte == 0)
            .filter_map(|entry| {
                let spaces = match entry.first() {
                    Some(b'1') => 8,
                    Some(b'u') => 10,
                    _ => return None,
                };
                carry::after_spaces(entry, spaces).map(BytePath::from_bytes)
            })
            .collect();
        if !changed.is_empty() {
            return Err(dirty("changes that are not committed", changed));
        }
        // New files may stand where git ignores something; git would overwrite that.
        let top = files::open_directory(&path).map_err(WorkspaceError::file("opening", &path))?;
        let diff = diff_trees(&self.git, repository, &merged.old, &merged.new)?;
        let in_the_way: Vec<BytePath> = diff
            .files
            .into_iter()
            .filter(|file| matches!(file.change, ChangeKind::Added | ChangeKind::Renamed))
            .map(|file| file.path)
            .filter(|file| files::exists_beneath(std::os::fd::AsFd::as_fd(&top), file.as_path()))
            .collect();
        if !in_the_way.is_empty() {
            return Err(dirty("files in the way that git does not know", in_the_way));
        }
        Ok(Checkout { path, git_dir })
    }
}

struct Checkout {
    path: PathBuf,
    git_dir: PathBuf,
}

fn short(reference: &str) -> String {
    reference.trim_start_matches("refs/heads/").to_owned()
}
