//! Running a command that publishes, in the owner's name, in a clean export of one commit.
//!
//! The command is the owner's: outside of the walls, with their environment and credentials. So it is
//! given nothing but what was shown: the words, and a folder that holds exactly the files of the
//! commit, without a git directory, without what git ignores, and without links that lead out of it.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::limits::PUBLISH_WORDS;
use cofferdam_core::outbox::{PublishEffect, Sent, SentAs};
use rustix::fs::{FlockOperation, flock};

use super::populate::without_filters;
use super::pull_request::ended;
use super::push::{cautions, own_branch};
use super::record::WorktreeRecord;
use super::{WorkspaceError, Workspaces, files, make_private};
use crate::git::{Input, OwnersCall, Repository, diff_trees};

/// It may build everything before.
const PUBLISH_TIME: Duration = Duration::from_hours(1);
/// A large tree takes its time.
const EXPORT_TIME: Duration = Duration::from_mins(10);
/// Where exports lie, beside the trees of tasks.
const EXPORTS: &str = ".exports";
/// Changed files that a command obeys, of which each is named.
const OBEYED_NAMED: usize = 10;

/// Files that tools which publish obey or run.
const OBEYED: &[&str] = &[
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnpmfile.cjs",
    "package.json",
    "Cargo.toml",
    "build.rs",
    ".cargo/config",
    ".cargo/config.toml",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "Makefile",
    "pom.xml",
    "build.gradle",
];

/// What is to be published.
#[derive(Debug, Clone, Default)]
pub struct PublishWish {
    /// The command.
    pub argv: Vec<String>,
    /// The folder where it runs.
    pub directory: BytePath,
}

impl Workspaces {
    /// Looks at everything that publishing would do, and does nothing.
    pub fn plan_publish(
        &self,
        record: &WorktreeRecord,
        wish: &PublishWish,
    ) -> Result<PublishEffect, WorkspaceError> {
        self.acting(|| {
            let wrong = |field: &'static str, why: String| WorkspaceError::Wrong { field, why };
            let is_none = wish.argv.first().is_none_or(String::is_empty);
            if is_none || wish.argv.len() > PUBLISH_WORDS {
                let why = format!("a command has 1 to {PUBLISH_WORDS} words");
                return Err(wrong("argv", why));
            }
            if wish.argv.iter().any(|word| word.contains('\0')) {
                return Err(wrong("argv", "a word holds a zero byte".to_owned()));
            }
            let repository = &record.user_repository();
            let (branch, commit) = own_branch(record)?;
            self.check_branch(repository, &branch, &commit)?;
            let directory = plain(&wish.directory)
                .filter(|path| path.is_empty() || self.is_folder(repository, &commit, path))
                .ok_or_else(|| {
                    let why = format!("{} is no folder of the commit", wish.directory);
                    wrong("directory", why)
                })?;
            self.check_links(repository, &commit)?;
            let diff = diff_trees(&self.git, repository, &record.base.oid, &commit)?;
            let mut told = vec![
                "it runs as you, outside of the walls, with your credentials: what it starts from the \
                 export, such as scripts of the package or of its build, is the task's work"
                    .to_owned(),
            ];
            let paths = diff.files.iter().map(|file| &file.path);
            let obeyed = paths.filter(|path| {
                let path = path.as_bytes();
                OBEYED.iter().any(|name| {
                    let rest = path.strip_suffix(name.as_bytes());
                    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(b"/"))
                })
            });
            for path in obeyed.take(OBEYED_NAMED) {
                told.push(format!("the task changed {path}, which such a command obeys"));
            }
            if !diff.gitlinks.is_empty() || self.has_submodules(repository, &commit) {
                told.push("submodules are empty folders in the export".to_owned());
            }
            told.extend(cautions(record, &commit, &commit));
            let (commits, _) = self.commits_beyond(repository, &commit, &record.base.oid)?;
            Ok(PublishEffect {
                repository: record.top.clone(),
                program: self.publisher(&wish.argv)?.into(),
                argv: wish.argv.clone(),
                directory,
                commits,
                summary: diff.summary,
                cautions: told,
                branch,
                commit,
            })
        })
    }

    /// Refuses what is not as it was when it was planned; does nothing else.
    pub fn check_publish(
        &self,
        record: &WorktreeRecord,
        planned: &PublishEffect,
    ) -> Result<(), WorkspaceError> {
        self.acting(|| {
            if BytePath::from(self.publisher(&planned.argv)?) != planned.program {
                let what = format!("the program {}", planned.argv[0]);
                return Err(WorkspaceError::PushChanged { what });
            }
            let repository = &record.user_repository();
            let commit = format!("{}^{{commit}}", planned.commit);
            let call = self.git.on(&repository.git_dir, &repository.top);
            if !call.args(["cat-file", "-e", &commit]).verdict()? {
                return Err(WorkspaceError::State {
                    why: format!("commit {} is gone", planned.commit),
                });
            }
            self.check_links(repository, &planned.commit)
        })
    }

    /// Exports the commit and runs the command. `name` is that of the export, nobody else's.
    pub fn publish(
        &self,
        record: &WorktreeRecord,
        planned: &PublishEffect,
        name: &str,
    ) -> Result<Sent, WorkspaceError> {
        self.acting(|| {
            sweep_exports(&self.trees);
            let place = Export::make(self.trees.join(EXPORTS).join(name))?;
            self.export(&record.user_repository(), &planned.commit, &place)?;
            let tree = place.tree();
            let directory = tree.join(planned.directory.as_path());
            let answer = self.git.run_owners(&OwnersCall {
                argv: &planned.argv,
                program: planned.program.as_path(),
                directory: &directory,
                environment: &[
                    // No repository of the owner's around the export is taken for its own.
                    ("GIT_CEILING_DIRECTORIES", place.path.as_os_str().as_bytes()),
                    ("PWD", directory.as_os_str().as_bytes()),
                    ("OLDPWD", b""),
                ],
                input: Input::Empty,
                timeout: PUBLISH_TIME,
            });
            ended(&planned.argv[0], answer, SentAs::Published)
        })
    }

    fn publisher(&self, argv: &[String]) -> Result<PathBuf, WorkspaceError> {
        let name = argv.first().map(String::as_str).unwrap_or_default();
        self.git
            .owners_program(name)
            .ok_or_else(|| WorkspaceError::ProgramMissing {
                name: name.to_owned(),
            })
    }

    fn export(
        &self,
        repository: &Repository,
        commit: &str,
        place: &Export,
    ) -> Result<(), WorkspaceError> {
        let configuration = self.git.owner_configuration(repository)?;
        let tree = place.tree();
        let index = place.path.join("index");
        let call = || {
            let call = self.git.on(&repository.git_dir, &tree);
            without_filters(call, &configuration)
                .env("GIT_INDEX_FILE", index.as_os_str().as_bytes())
                .setting("core.sparseCheckout=false")
                .setting("core.autocrlf=false")
                .timeout(EXPORT_TIME)
        };
        call().args(["read-tree", commit]).output()?;
        call()
            .args(["checkout-index", "--all", "--force"])
            .output()?;
        std::fs::remove_file(&index).map_err(WorkspaceError::file("removing", &index))?;
        // What was looked at by words before is looked at as it stands.
        let real = tree
            .canonicalize()
            .map_err(WorkspaceError::file("looking at", &tree))?;
        for path in self
            .links(repository, commit)?
            .into_iter()
            .map(|(path, _)| path)
        {
            let link = tree.join(path.as_path());
            match link.canonicalize() {
                Ok(found) if !found.starts_with(&real) => {
                    return Err(WorkspaceError::LinkLeadsOut { path });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses links that lead out, by their words.
    fn check_links(&self, repository: &Repository, commit: &str) -> Result<(), WorkspaceError> {
        for (path, oid) in self.links(repository, commit)? {
            let call = self.git.on(&repository.git_dir, &repository.top);
            let target = call.args(["cat-file", "blob", &oid]).output()?;
            let target = BytePath::from_bytes(target);
            let mut depth = path.depth().saturating_sub(1);
            for piece in target.as_path().components() {
                match piece {
                    Component::Normal(_) => depth += 1,
                    Component::CurDir => {}
                    Component::ParentDir if depth > 0 => depth -= 1,
                    _ => return Err(WorkspaceError::LinkLeadsOut { path }),
                }
            }
        }
        Ok(())
    }

    /// Lists the symbolic links of a commit, each with the object that says where it leads.
    fn links(
        &self,
        repository: &Repository,
        commit: &str,
    ) -> Result<Vec<(BytePath, String)>, WorkspaceError> {
        let call = self.git.on(&repository.git_dir, &repository.top);
        let output = call
            .args(["ls-tree", "-r", "-z", "--full-tree", commit])
            .output()?;
        Ok(output
            .split(|byte| *byte == 0)
            .filter_map(|entry| {
                let cut = entry.iter().position(|byte| *byte == b'\t')?;
                let words = String::from_utf8_lossy(&entry[..cut]).into_owned();
                let mut words = words.split(' ');
                let is_link = words.next()? == "120000";
                let oid = words.nth(1)?.to_owned();
                is_link.then(|| (BytePath::from_bytes(&entry[cut + 1..]), oid))
            })
            .collect())
    }

    fn is_folder(&self, repository: &Repository, commit: &str, path: &BytePath) -> bool {
        let mut name = format!("{commit}:").into_bytes();
        name.extend_from_slice(path.as_bytes());
        let name = BytePath::from_bytes(name);
        let call = self.git.on(&repository.git_dir, &repository.top);
        let call = call.args(["cat-file", "-t"]).args([name.as_path()]);
        call.line().is_ok_and(|kind| kind == "tree")
    }

    fn has_submodules(&self, repository: &Repository, commit: &str) -> bool {
        let call = self.git.on(&repository.git_dir, &repository.top);
        let name = format!("{commit}:.gitmodules");
        call.args(["cat-file", "-e", &name])
            .run()
            .is_ok_and(|answer| answer.code() == Some(0))
    }
}

/// Gives a path of plain pieces; `None` for one that leads out.
fn plain(path: &BytePath) -> Option<BytePath> {
    let mut pieces = PathBuf::new();
    for piece in path.as_path().components() {
        match piece {
            Component::Normal(name) => pieces.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(pieces.into())
}

/// A folder for one export, gone with it. Whoever has it open and locked is at it.
struct Export {
    path: PathBuf,
    _lock: OwnedFd,
}

impl Export {
    fn make(path: PathBuf) -> Result<Self, WorkspaceError> {
        make_private(&path)?;
        let lock = files::open_directory(&path)
            .and_then(|directory| {
                flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
                Ok(directory)
            })
            .map_err(WorkspaceError::file("locking", &path))?;
        let export = Self { path, _lock: lock };
        let tree = export.tree();
        std::fs::create_dir(&tree).map_err(WorkspaceError::file("making the directory", &tree))?;
        Ok(export)
    }

    fn tree(&self) -> PathBuf {
        self.path.join("tree")
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // What cannot be removed now is removed with what dead planes left.
        let _ = files::remove_tree(&self.path);
    }
}

/// Removes the exports at which nobody is any more.
pub(super) fn sweep_exports(trees: &Path) {
    let entries = std::fs::read_dir(trees.join(EXPORTS));
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        let is_left = files::open_directory(&path).is_ok_and(|directory| {
            flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        if is_left {
            let _ = files::remove_tree(&path);
        }
    }
}
