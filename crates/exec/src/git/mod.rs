//! `git`, the program, hardened and called only for our own ends.
//!
//! Every call runs with hooks, fsmonitor, external diffs, background maintenance, prompts and the
//! `ext` transport off, with an environment that holds nothing of the caller's but the home
//! directory and the places of the owner's configuration, and never on a repository that a task
//! could write. What it prints is read only in its `-z` forms. Pushing and signing are done in the
//! owner's name, with their environment and hooks (see [`GitCall::in_owners_name`]).

mod diff;
mod error;
mod lock;
mod owner;
mod refs;
mod repository;

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::bytes::BytePath;

pub(crate) use diff::diff_trees;
pub(crate) use error::GitError;
pub(crate) use lock::RepositoryLock;
pub(crate) use refs::{RefChange, Reference};
pub(crate) use repository::{Configuration, Repository, discover};

use crate::tool::{self, Answer};

pub(crate) use crate::tool::Input;

/// The oldest git that has `merge-tree --write-tree`.
const OLDEST: (u32, u32) = (2, 38);

/// Longer than any call on a healthy disk takes; a checkout of a large tree has its own.
const TIMEOUT: Duration = Duration::from_mins(2);

/// What a call may print at most.
const BOUND: usize = 512 << 20;

/// Where hooks are looked for: nowhere.
const NO_HOOKS: &str = "core.hooksPath=/dev/null";

const HARDENED: &[&str] = &[
    NO_HOOKS,
    "core.fsmonitor=false",
    "core.alternateRefsCommand=/bin/true",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "core.pager=cat",
];

/// Says where git is looked for and whose configuration it reads.
#[derive(Debug, Clone, Default)]
pub struct GitOptions {
    /// The search path, as in `PATH`; relative pieces are passed over.
    pub search_path: BytePath,
    /// Directories in which no program is ever taken from: workspaces and the trees of tasks.
    pub refused: Vec<BytePath>,
    /// Home directory of whoever owns the repository.
    pub home: BytePath,
    /// Value of `XDG_CONFIG_HOME`, when it is set.
    pub xdg_config_home: Option<BytePath>,
    /// Value of `GIT_CONFIG_GLOBAL`, when it is set.
    pub config_global: Option<BytePath>,
    /// Value of `GIT_CONFIG_SYSTEM`, when it is set.
    pub config_system: Option<BytePath>,
    /// Every variable of whoever owns the repository, for what is done in their name: pushing and
    /// signing, which need agents, helpers and proxies that nobody can list. Empty where their
    /// environment is not at hand.
    pub owner: Vec<(BytePath, BytePath)>,
}

/// The git program, found once, with the environment of every call.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    program: CString,
    environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// The same for what is done in the owner's name.
    owner_environment: Vec<(Vec<u8>, Vec<u8>)>,
    home: PathBuf,
    default_excludes: PathBuf,
    /// Directories in which no program is taken from.
    refused: Vec<PathBuf>,
}

/// A program that is run in the owner's name besides git.
#[derive(Debug)]
pub(crate) struct OwnersCall<'a> {
    /// The program and its arguments.
    pub(crate) argv: &'a [String],
    /// Where the program lies.
    pub(crate) program: &'a Path,
    /// Where it runs.
    pub(crate) directory: &'a Path,
    /// Variables besides those of the owner.
    pub(crate) environment: &'a [(&'a str, &'a [u8])],
    /// Its standard input.
    pub(crate) input: Input<'a>,
    /// After this it is ended.
    pub(crate) timeout: Duration,
}

/// What a program in the owner's name may print at most.
const OWNERS_BOUND: usize = 64 << 20;

impl Git {
    /// Finds git and asks it for its version.
    pub(crate) fn find(options: &GitOptions) -> Result<Self, GitError> {
        let refused: Vec<_> = options.refused.iter().map(BytePath::as_path).collect();
        let search = options.search_path.as_bytes();
        let program = tool::find_program("git", search, &refused).ok_or(GitError::Unavailable {
            why: "it is not on the search path".to_owned(),
        })?;
        let pair = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
        let mut environment = vec![
            pair("PATH", &tool::safe_search_path(search, &refused)),
            pair("HOME", options.home.as_bytes()),
            pair("LC_ALL", b"C"),
            pair("GIT_TERMINAL_PROMPT", b"0"),
            pair("GIT_OPTIONAL_LOCKS", b"0"),
            pair("GIT_NO_REPLACE_OBJECTS", b"1"),
            pair("GIT_NO_LAZY_FETCH", b"1"),
            pair("GIT_LITERAL_PATHSPECS", b"0"),
            pair("GIT_ADVICE", b"0"),
            pair("GIT_LFS_SKIP_SMUDGE", b"1"),
        ];
        environment.extend(settings(HARDENED));
        for (name, value) in [
            ("XDG_CONFIG_HOME", &options.xdg_config_home),
            ("GIT_CONFIG_GLOBAL", &options.config_global),
            ("GIT_CONFIG_SYSTEM", &options.config_system),
        ] {
            if let Some(value) = value {
                environment.push(pair(name, value.as_bytes()));
            }
        }
        let home = options.home.as_path().to_path_buf();
        let configuration = options
            .xdg_config_home
            .as_ref()
            .filter(|path| !path.is_empty());
        let default_excludes = configuration
            .map_or_else(|| home.join(".config"), |path| path.as_path().to_path_buf())
            .join("git/ignore");
        let owner_environment = owner::environment(&options.owner, &environment);
        let git = Self {
            program,
            environment,
            owner_environment,
            home,
            default_excludes,
            refused: refused.iter().map(|path| (*path).to_owned()).collect(),
        };
        git.check_version()?;
        Ok(git)
    }

    fn check_version(&self) -> Result<(), GitError> {
        let answer = self.call(Path::new("/")).args(["version"]).run()?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let version = parse_version(&text).ok_or_else(|| GitError::Unavailable {
            why: format!("{} is no git", self.program.to_string_lossy()),
        })?;
        if version < OLDEST {
            return Err(GitError::Unavailable {
                why: format!(
                    "it is {}.{}, needed is {}.{}",
                    version.0, version.1, OLDEST.0, OLDEST.1
                ),
            });
        }
        Ok(())
    }

    /// Gives the home directory of whoever owns the repository.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Gives the file of ignore patterns that git reads when no setting names another.
    pub(crate) fn default_excludes(&self) -> PathBuf {
        self.default_excludes.clone()
    }

    /// Finds a program of the owner's: by its name on their search path, or where an absolute path or
    /// one from `~/` says; never in a workspace or in a tree of a task.
    pub(crate) fn owners_program(&self, name: &str) -> Option<PathBuf> {
        let refused: Vec<&Path> = self.refused.iter().map(PathBuf::as_path).collect();
        let path = match name.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => PathBuf::from(name),
        };
        let (search, name) = if path.is_absolute() {
            let above = path.parent()?.as_os_str().as_bytes().to_vec();
            (above, path.file_name()?.to_str()?.to_owned())
        } else if name.is_empty() || name.contains('/') {
            return None;
        } else {
            let path = self.environment.iter().find(|(name, _)| name == b"PATH");
            (path?.1.clone(), name.to_owned())
        };
        let found = tool::find_program(&name, &search, &refused)?;
        Some(PathBuf::from(OsStr::from_bytes(found.to_bytes())))
    }

    /// Runs a program in the owner's name, with their environment.
    pub(crate) fn run_owners(&self, call: &OwnersCall<'_>) -> Result<Answer, tool::ToolError> {
        let program = CString::new(call.program.as_os_str().as_bytes())
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
        let arguments = call.argv.iter().skip(1);
        let arguments: Vec<Vec<u8>> = arguments.map(|word| word.clone().into_bytes()).collect();
        let mut environment = self.owner_environment.clone();
        environment.retain(|(name, _)| {
            let name = name.as_slice();
            call.environment
                .iter()
                .all(|(own, _)| own.as_bytes() != name)
        });
        let more = call.environment.iter();
        environment.extend(more.map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())));
        tool::run(&tool::Call {
            program: &program,
            arguments: &arguments,
            environment: &environment,
            directory: call.directory,
            input: call.input,
            timeout: call.timeout,
            bound: OWNERS_BOUND,
        })
    }

    /// Gives the absolute path of the program.
    pub(crate) fn program(&self) -> BytePath {
        BytePath::from_bytes(self.program.to_bytes().to_vec())
    }

    /// Begins a call in a directory.
    pub(crate) fn call<'a>(&'a self, directory: &'a Path) -> GitCall<'a> {
        GitCall {
            git: self,
            directory,
            settings: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            input: Input::Empty,
            timeout: TIMEOUT,
            is_owners: false,
        }
    }

    /// Begins a call on a repository that is told, not looked for.
    pub(crate) fn on<'a>(&'a self, git_dir: &Path, work_tree: &'a Path) -> GitCall<'a> {
        self.call(work_tree)
            .env("GIT_DIR", git_dir.as_os_str().as_bytes())
            .env("GIT_WORK_TREE", work_tree.as_os_str().as_bytes())
    }
}

/// Gives the variables by which git takes settings.
fn settings(settings: &[&str]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |name: String, value: &str| (name.into_bytes(), value.as_bytes().to_vec());
    let mut pairs = vec![pair(
        "GIT_CONFIG_COUNT".to_owned(),
        &settings.len().to_string(),
    )];
    for (number, setting) in settings.iter().enumerate() {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        pairs.push(pair(format!("GIT_CONFIG_KEY_{number}"), key));
        pairs.push(pair(format!("GIT_CONFIG_VALUE_{number}"), value));
    }
    pairs
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text
        .strip_prefix("git version ")?
        .trim()
        .split(['.', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// One call of git.
#[derive(Debug)]
pub(crate) struct GitCall<'a> {
    git: &'a Git,
    directory: &'a Path,
    settings: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<(Vec<u8>, Vec<u8>)>,
    input: Input<'a>,
    timeout: Duration,
    is_owners: bool,
}

impl<'a> GitCall<'a> {
    /// Adds arguments.
    pub(crate) fn args<T: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(
            arguments
                .into_iter()
                .map(|one| one.as_ref().as_bytes().to_vec()),
        );
        self
    }

    /// Sets a configuration value for this call.
    pub(crate) fn setting(mut self, setting: impl AsRef<[u8]>) -> Self {
        self.settings.push(setting.as_ref().to_vec());
        self
    }

    /// Sets a variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.environment
            .push((name.as_bytes().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// Gives standard input.
    pub(crate) fn input(mut self, input: Input<'a>) -> Self {
        self.input = input;
        self
    }

    /// Sets another time limit.
    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs it in the owner's name: with their environment, their hooks and what they sign with.
    pub(crate) fn in_owners_name(mut self) -> Self {
        self.is_owners = true;
        self
    }

    /// Runs it, whatever its exit code.
    pub(crate) fn run(self) -> Result<Answer, GitError> {
        self.run_told().map(|(answer, _)| answer)
    }

    fn run_told(self) -> Result<(Answer, Vec<String>), GitError> {
        let mut arguments = Vec::with_capacity(self.arguments.len() + 2 * self.settings.len());
        for setting in self.settings {
            arguments.push(b"-c".to_vec());
            arguments.push(setting);
        }
        let told = self
            .arguments
            .iter()
            .map(|one| String::from_utf8_lossy(one).into_owned());
        let told: Vec<String> = told.collect();
        arguments.extend(self.arguments);
        let mut environment = if self.is_owners {
            self.git.owner_environment.clone()
        } else {
            self.git.environment.clone()
        };
        environment.extend(self.environment);
        let answer = tool::run(&tool::Call {
            program: &self.git.program,
            arguments: &arguments,
            environment: &environment,
            directory: self.directory,
            input: self.input,
            timeout: self.timeout,
            bound: BOUND,
        });
        match answer {
            Ok(answer) => Ok((answer, told)),
            Err(source) => Err(GitError::Tool { args: told, source }),
        }
    }

    /// Runs it; any exit code but 0 is an error. Gives standard output.
    pub(crate) fn output(self) -> Result<Vec<u8>, GitError> {
        let (answer, args) = self.run_told()?;
        if answer.code() == Some(0) {
            Ok(answer.stdout)
        } else {
            Err(GitError::failed(args, &answer))
        }
    }

    /// Runs it; exit code 0 gives `true`, 1 gives `false`.
    pub(crate) fn verdict(self) -> Result<bool, GitError> {
        let (answer, args) = self.run_told()?;
        match answer.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(GitError::failed(args, &answer)),
        }
    }

    /// Runs it and gives its one line.
    pub(crate) fn line(self) -> Result<String, GitError> {
        let output = self.output()?;
        Ok(String::from_utf8_lossy(&output)
            .trim_end_matches('\n')
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse_version("git version 2.47.3\n"), Some((2, 47)));
        assert_eq!(
            parse_version("git version 2.39.5 (Apple Git-154)"),
            Some((2, 39))
        );
        assert_eq!(parse_version("git version 2.38-rc1"), Some((2, 38)));
        assert_eq!(parse_version("hello"), None);
    }

    #[test]
    fn an_old_or_missing_git_is_said() {
        use std::os::unix::fs::PermissionsExt;
        let top = tempfile::tempdir().unwrap();
        let options = GitOptions {
            search_path: top.path().into(),
            home: "/nowhere".into(),
            ..GitOptions::default()
        };
        let error = Git::find(&options).unwrap_err();
        insta::assert_snapshot!(error, @"git cannot be used: it is not on the search path");
        let fake = top.path().join("git");
        std::fs::write(&fake, "#!/bin/sh\necho git version 2.30.2\n").unwrap();
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = Git::find(&options).unwrap_err();
        insta::assert_snapshot!(error, @"git cannot be used: it is 2.30, needed is 2.38");
    }
}
