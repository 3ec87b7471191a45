//! Pushing one commit to one branch of one remote, in the owner's name.
//!
//! What is pushed is decided twice: when it is proposed everything is looked at and written down
//! ([`Workspaces::plan_push`]), and when it is released it is looked at again and refused where
//! anything differs ([`Workspaces::push`]). The refspec names the commit itself, so that what moves in
//! between is not pushed. It is git's own `push`: credentials, helpers, signing and hooks are the
//! owner's, and run outside, from the owner's checkout. Nothing is ever forced.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::limits::PROPOSAL_COMMITS;
use cofferdam_core::outbox::{HeldCommit, PushEffect, Sent, SentAs};

use super::gitdir::without_password;
use super::record::WorktreeRecord;
use super::{WorkspaceError, Workspaces};
use crate::git::{Configuration, Repository, diff_trees};

/// The owner's hooks may run their tests.
const PUSH_TIME: Duration = Duration::from_hours(1);
/// Characters of what a push said that are kept.
const SAID: usize = 4_000;

/// What is to be pushed.
#[derive(Debug, Clone, Default)]
pub struct PushRequest {
    /// The remote; where git would push the base branch when there is none.
    pub remote: Option<String>,
    /// The branch by its full name, with the commit at which it has to be; the task's own, as it was
    /// brought in, when there is none. Only the owner names another one.
    pub branch: Option<(String, String)>,
    /// A commit of the branch before its last one.
    pub commit: Option<String>,
}

impl Workspaces {
    /// Looks at everything that a push would do, and does nothing.
    ///
    /// Refused when the branch is not where it should be, when its name could be taken for something
    /// else, when there is no such remote, or when the task changed the owner's own hooks.
    pub fn plan_push(
        &self,
        record: &WorktreeRecord,
        request: &PushRequest,
    ) -> Result<PushEffect, WorkspaceError> {
        self.acting(|| self.plan_push_acting(record, request))
    }

    /// Refuses what is not as it was when it was planned; does nothing else.
    pub fn check_push(
        &self,
        record: &WorktreeRecord,
        planned: &PushEffect,
    ) -> Result<(), WorkspaceError> {
        self.acting(|| self.check_push_acting(record, planned).map(drop))
    }

    /// Pushes what was planned, when everything is as it was then.
    pub fn push(
        &self,
        record: &WorktreeRecord,
        planned: &PushEffect,
    ) -> Result<Sent, WorkspaceError> {
        self.acting(|| {
            let configuration = self.check_push_acting(record, planned)?;
            self.push_acting(&record.user_repository(), &configuration, planned)
        })
    }

    fn check_push_acting(
        &self,
        record: &WorktreeRecord,
        planned: &PushEffect,
    ) -> Result<Configuration, WorkspaceError> {
        let repository = &record.user_repository();
        let configuration = self.git.owner_configuration(repository)?;
        self.check_branch(repository, &planned.branch, &planned.tip)?;
        check_remote(&configuration, &planned.remote)?;
        let urls = self.push_urls(repository, &planned.remote)?;
        let hook = self.hook(repository, &configuration);
        for (is_same, what) in [
            (urls == planned.urls, "where the remote leads"),
            (hook == planned.hook, "the hook before a push"),
        ] {
            if !is_same {
                let what = what.to_owned();
                return Err(WorkspaceError::PushChanged { what });
            }
        }
        self.check_hooks(record, repository, &configuration, &planned.commit)?;
        Ok(configuration)
    }

    fn plan_push_acting(
        &self,
        record: &WorktreeRecord,
        request: &PushRequest,
    ) -> Result<PushEffect, WorkspaceError> {
        let repository = &record.user_repository();
        let configuration = self.git.owner_configuration(repository)?;
        let (branch, tip) = match &request.branch {
            Some((branch, tip)) => (branch.clone(), tip.clone()),
            None => own_branch(record)?,
        };
        let commit = request.commit.clone().unwrap_or_else(|| tip.clone());
        self.check_branch(repository, &branch, &tip)?;
        if !self.is_in(repository, &commit, &tip)? {
            return Err(WorkspaceError::BranchMoved {
                branch: short(&branch).to_owned(),
                expected: commit,
                found: Some(tip),
            });
        }
        if self.is_in(repository, &commit, &record.base.oid)? {
            return Err(WorkspaceError::State {
                why: "there is nothing of the task in it".to_owned(),
            });
        }
        let remote = match &request.remote {
            Some(name) => name.clone(),
            None => default_remote(&configuration, record, request.branch.as_ref())?,
        };
        check_remote(&configuration, &remote)?;
        self.check_hooks(record, repository, &configuration, &commit)?;
        let known = format!("--glob=refs/remotes/{remote}/*");
        let (commits, count) = self.commits_beyond(repository, &commit, &known)?;
        let diff = diff_trees(&self.git, repository, &record.base.oid, &commit)?;
        Ok(PushEffect {
            repository: record.top.clone(),
            urls: self.push_urls(repository, &remote)?,
            remote,
            cautions: cautions(record, &commit, &tip),
            branch,
            commit,
            tip,
            commits_left_out: count.saturating_sub(commits.len() as u64),
            commits,
            summary: diff.summary,
            hook: self.hook(repository, &configuration),
        })
    }

    /// Refuses a branch that is not where it should be, or whose name could be taken for a flag.
    pub(super) fn check_branch(
        &self,
        repository: &Repository,
        branch: &str,
        tip: &str,
    ) -> Result<(), WorkspaceError> {
        let name = short(branch);
        let is_full = branch.starts_with("refs/heads/") && !name.is_empty();
        if !is_full || name.starts_with('-') || name.contains([':', '*', '+']) {
            return Err(WorkspaceError::Name {
                what: "branch",
                name: name.to_owned(),
                why: "git could take it for something else",
            });
        }
        let found = self.git.reference(repository, branch)?;
        if found.as_deref() == Some(tip) {
            return Ok(());
        }
        Err(WorkspaceError::BranchMoved {
            branch: name.to_owned(),
            expected: tip.to_owned(),
            found,
        })
    }

    /// Whether a commit is in the history of another; what is not there is in none.
    fn is_in(
        &self,
        repository: &Repository,
        commit: &str,
        tip: &str,
    ) -> Result<bool, WorkspaceError> {
        if commit == tip {
            return Ok(true);
        }
        let call = self.git.on(&repository.git_dir, &repository.top);
        let answer = call
            .args(["merge-base", "--is-ancestor", commit, tip])
            .run()?;
        Ok(answer.code() == Some(0))
    }

    /// Gives where a push to a remote leads, as git resolves it, without passwords.
    pub(super) fn push_urls(
        &self,
        repository: &Repository,
        remote: &str,
    ) -> Result<Vec<String>, WorkspaceError> {
        let output = self
            .git
            .on(&repository.git_dir, &repository.top)
            .args(["remote", "get-url", "--push", "--all", "--", remote])
            .output()?;
        Ok(output
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| String::from_utf8_lossy(&without_password(line)).into_owned())
            .collect())
    }

    /// Lists the newest commits that are not in what `known` names, oldest first, and counts them.
    pub(super) fn commits_beyond(
        &self,
        repository: &Repository,
        commit: &str,
        known: &str,
    ) -> Result<(Vec<HeldCommit>, u64), WorkspaceError> {
        let call = || self.git.on(&repository.git_dir, &repository.top);
        let count = call()
            .args(["rev-list", "--count", commit, "--not", known])
            .line()?;
        let output = call()
            .args(["log", "-z", "--no-show-signature", "--no-color"])
            .args(["--no-mailmap", "--encoding=UTF-8", "--format=%H %s"])
            .args([&format!("--max-count={PROPOSAL_COMMITS}"), commit])
            .args(["--not", known, "--"])
            .output()?;
        let mut commits: Vec<HeldCommit> = output
            .split(|byte| *byte == 0)
            .filter(|entry| !entry.is_empty())
            .map(|entry| {
                let text = String::from_utf8_lossy(entry);
                let (oid, subject) = text.split_once(' ').unwrap_or((&text, ""));
                HeldCommit {
                    oid: oid.to_owned(),
                    subject: subject.to_owned(),
                }
            })
            .collect();
        commits.reverse();
        Ok((commits, count.parse().unwrap_or(0)))
    }

    /// Gives the directory in which git looks for hooks of the owner's repository.
    fn hooks_directory(&self, repository: &Repository, configuration: &Configuration) -> PathBuf {
        match configuration.text("core.hookspath") {
            None => repository.common_dir.join("hooks"),
            Some(path) => match path.strip_prefix("~/") {
                Some(rest) => self.git.home().join(rest),
                // Hooks run at the top of the working tree.
                None => repository.top.join(path),
            },
        }
    }

    /// Finds the owner's hook that runs before a push.
    fn hook(&self, repository: &Repository, configuration: &Configuration) -> Option<BytePath> {
        let path = self
            .hooks_directory(repository, configuration)
            .join("pre-push");
        let is_run =
            path.is_file() && rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok();
        is_run.then(|| path.into())
    }

    /// Refuses where a task could have made the hook that would run: the owner's hooks lie among
    /// the files that they version, and the task changed them; or they lie in the tree of a task.
    fn check_hooks(
        &self,
        record: &WorktreeRecord,
        repository: &Repository,
        configuration: &Configuration,
        commit: &str,
    ) -> Result<(), WorkspaceError> {
        if self.hook(repository, configuration).is_none() {
            return Ok(());
        }
        let directory = self.hooks_directory(repository, configuration);
        let real = directory.canonicalize().unwrap_or(directory);
        if real.starts_with(&self.trees) {
            return Err(WorkspaceError::HooksChanged { path: real.into() });
        }
        let top = repository.top.canonicalize();
        let top = top.as_deref().unwrap_or(&repository.top);
        let git_dir = repository.common_dir.canonicalize();
        let is_own = git_dir.is_ok_and(|git_dir| real.starts_with(git_dir));
        let Some(first) = real
            .strip_prefix(top)
            .ok()
            .filter(|_| !is_own)
            .and_then(|below| below.components().next())
        else {
            return Ok(());
        };
        let first = BytePath::from(Path::new(first.as_os_str()).to_owned());
        let diff = diff_trees(&self.git, repository, &record.base.oid, commit)?;
        let is_touched = diff
            .files
            .iter()
            .flat_map(|file| std::iter::once(&file.path).chain(&file.from))
            .any(|path| path.is_within(&first));
        if is_touched {
            return Err(WorkspaceError::HooksChanged { path: first });
        }
        Ok(())
    }

    /// Whether every address of a remote has a branch at exactly a commit. Asks the remote; sends
    /// nothing, and runs no hook.
    pub(super) fn is_pushed(
        &self,
        repository: &Repository,
        (remote, branch, commit): (&str, &str, &str),
    ) -> Result<bool, WorkspaceError> {
        let refspec = format!("{commit}:{branch}");
        let answer = self
            .git
            .call(&repository.top)
            .in_owners_name()
            .args(["push", "--dry-run", "--no-verify", "--porcelain"])
            .args(["--no-follow-tags", "--recurse-submodules=no", "--"])
            .args([remote, refspec.as_str()])
            .run()?;
        let rows = rows(&answer.stdout, branch);
        Ok(answer.code() == Some(0) && !rows.is_empty() && rows.iter().all(|row| row.flag == '='))
    }

    fn push_acting(
        &self,
        repository: &Repository,
        configuration: &Configuration,
        planned: &PushEffect,
    ) -> Result<Sent, WorkspaceError> {
        // What else would leave by the owner's settings was not shown: of submodules it is only
        // looked whether they are there.
        let modules = match configuration.text("push.recursesubmodules").as_deref() {
            Some("check" | "on-demand" | "only") => "--recurse-submodules=check",
            _ => "--recurse-submodules=no",
        };
        let refspec = format!("{}:{}", planned.commit, planned.branch);
        // Found from the working tree, as when the owner types it: hooks see nothing else.
        let answer = self
            .git
            .call(&repository.top)
            .in_owners_name()
            .args(["push", "--porcelain", "--no-follow-tags", modules, "--"])
            .args([planned.remote.as_str(), refspec.as_str()])
            .timeout(PUSH_TIME)
            .run()?;
        let stderr = String::from_utf8_lossy(&answer.stderr).into_owned();
        let rows = rows(&answer.stdout, &planned.branch);
        let sent_as = match rows
            .iter()
            .map(|row| row.flag)
            .max_by_key(|flag| rank(*flag))
        {
            Some('=') => Some(SentAs::Same),
            Some(' ') => Some(SentAs::Forward),
            Some('*') => Some(SentAs::New),
            _ => None,
        };
        match sent_as {
            Some(sent_as) if answer.code() == Some(0) => Ok(Sent {
                sent_as,
                said: tail(&stderr),
            }),
            _ => Err(WorkspaceError::PushFailed {
                remote: planned.remote.clone(),
                branch: short(&planned.branch).to_owned(),
                why: why(&rows, &stderr),
            }),
        }
    }
}

pub(super) fn short(reference: &str) -> &str {
    reference.trim_start_matches("refs/heads/")
}

/// Gives the branch that is the task's own, and where it was brought in.
pub(super) fn own_branch(record: &WorktreeRecord) -> Result<(String, String), WorkspaceError> {
    let state = |why: &str| WorkspaceError::State {
        why: why.to_owned(),
    };
    let harvest = record
        .harvest
        .as_ref()
        .ok_or_else(|| state("what it did is not brought in yet"))?;
    if harvest.branch.is_none() {
        return Err(state("it changed nothing: there is nothing to push"));
    }
    Ok((record.branch_reference(), harvest.commit.clone()))
}

/// Says what somebody has to know before an answer and would not see in the differences.
pub(super) fn cautions(record: &WorktreeRecord, commit: &str, tip: &str) -> Vec<String> {
    let mut cautions = Vec::new();
    let Some(harvest) = &record.harvest else {
        return cautions;
    };
    for path in harvest.seeds_committed.iter().take(10) {
        cautions.push(format!(
            "{path} was copied in from what git ignores, and the task committed it"
        ));
    }
    if record.carried.is_some() {
        cautions.push("work of yours that was not committed is in it (--carry)".to_owned());
    }
    if commit == harvest.commit && harvest.uncommitted {
        cautions.push("its last commit holds what the task had not committed".to_owned());
    }
    if commit != tip {
        cautions.push("the branch goes on: what came after is not in it".to_owned());
    }
    cautions
}

/// Finds the remote to which git would push the base branch.
pub(super) fn default_remote(
    configuration: &Configuration,
    record: &WorktreeRecord,
    branch: Option<&(String, String)>,
) -> Result<String, WorkspaceError> {
    let of_branch = branch
        .map(|(name, _)| name)
        .or(record.base.reference.as_ref())
        .map(|name| short(name).to_owned());
    let by_branch = |key: &str| {
        let branch = of_branch.as_ref()?;
        configuration.text(&format!("branch.{branch}.{key}"))
    };
    let named = by_branch("pushremote")
        .or_else(|| configuration.text("remote.pushdefault"))
        .or_else(|| by_branch("remote"))
        .filter(|name| name != ".");
    if let Some(name) = named {
        return Ok(name);
    }
    let known = remotes(configuration);
    let origin = known.iter().find(|name| *name == "origin");
    match (origin, known.as_slice()) {
        (Some(name), _) => Ok(name.clone()),
        (None, [only]) => Ok(only.clone()),
        _ => Err(WorkspaceError::RemoteUnknown { name: None, known }),
    }
}

/// Lists the remotes that have an address.
pub(super) fn remotes(configuration: &Configuration) -> Vec<String> {
    let mut names = configuration.names("remote");
    names.retain(|name| {
        ["url", "pushurl"]
            .iter()
            .any(|key| configuration.get(&format!("remote.{name}.{key}")).is_some())
    });
    names
}

/// Refuses what is no remote of the owner's, or could be taken for a flag.
pub(super) fn check_remote(
    configuration: &Configuration,
    remote: &str,
) -> Result<(), WorkspaceError> {
    let known = remotes(configuration);
    if remote.starts_with('-') || !known.iter().any(|name| name == remote) {
        return Err(WorkspaceError::RemoteUnknown {
            name: Some(remote.to_owned()),
            known,
        });
    }
    Ok(())
}

/// One line of what `push --porcelain` prints about a branch.
struct Row {
    flag: char,
    why: String,
}

/// Reads the lines about one branch; one for each address.
fn rows(output: &[u8], branch: &str) -> Vec<Row> {
    let to = format!(":{branch}");
    String::from_utf8_lossy(output)
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let flag = fields.next()?.chars().next()?;
            fields.next()?.ends_with(&to).then(|| Row {
                flag,
                why: fields.next().unwrap_or_default().to_owned(),
            })
        })
        .collect()
}

/// Orders what several addresses said: the worst counts.
fn rank(flag: char) -> u8 {
    match flag {
        '=' => 0,
        ' ' => 1,
        '*' => 2,
        _ => 3,
    }
}

fn why(rows: &[Row], stderr: &str) -> String {
    let rejected: Vec<&str> = rows
        .iter()
        .filter(|row| row.flag == '!')
        .map(|row| row.why.as_str())
        .collect();
    let said = tail(stderr);
    match (rejected.is_empty(), said.is_empty()) {
        (true, _) => said,
        (false, true) => rejected.join(", "),
        (false, false) => format!("{}: {said}", rejected.join(", ")),
    }
}

pub(super) fn tail(text: &str) -> String {
    let text = text.trim();
    let skip = text.chars().count().saturating_sub(SAID);
    text.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_prints_is_read_by_its_flags() {
        let branch = "refs/heads/cofferdam/1/x";
        let output = format!(
            "To /a\n*\tabc:{branch}\t[new branch]\nTo /b\n!\tabc:{branch}\t[rejected] (fetch first)\n*\tabc:refs/heads/x\t[new branch]\nDone\n"
        );
        let rows = rows(output.as_bytes(), branch);
        let flags: String = rows.iter().map(|row| row.flag).collect();
        assert_eq!(flags, "*!");
        assert_eq!(rows.iter().map(|row| rank(row.flag)).max(), Some(3));
        insta::assert_snapshot!(why(&rows, "error: x\n"), @"[rejected] (fetch first): error: x");
    }
}
