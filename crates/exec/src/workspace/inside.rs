//! git on a repository that a task could write: only inside the walls.

use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::spec::Variable;

use super::WorkspaceError;

/// Runs a helper command inside the walls of a task, with the top of its tree as working directory.
///
/// The enclosure that the task ran in does it, or a fresh one of the same plan. What comes back was
/// made by a program that ran on hostile files: it is read as such.
pub trait InsideGit: Sync {
    /// Runs the command to its end and collects what it prints; several at a time where they do not
    /// meet each other.
    fn run(&self, call: &InsideCall) -> Result<InsideOutput, Problem>;
}

/// A helper command to be run inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsideCall {
    /// The program by absolute path, and its arguments.
    pub argv: Vec<BytePath>,
    /// Variables added to the enclosure's.
    pub environment: Vec<Variable>,
    /// Standard input.
    pub input: Option<Vec<u8>>,
    /// When it is ended.
    pub timeout: Duration,
}

/// What a helper command inside came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsideOutput {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

const TIMEOUT: Duration = Duration::from_mins(10);

/// Settings that every call inside has; they go before whatever the task's configuration says.
const HARDENED: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.bare=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "core.pager=cat",
    "core.quotePath=false",
];

/// Calls of git inside.
#[derive(Clone, Copy)]
pub(crate) struct Inside<'a> {
    pub(crate) git: &'a BytePath,
    pub(crate) walls: &'a dyn InsideGit,
    /// The git directory, below the top of the tree.
    pub(crate) git_dir: &'a str,
}

/// Where a task's git directory is as a rule.
pub(crate) const GIT_DIR: &str = ".git";

impl std::fmt::Debug for Inside<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Inside")
            .field("git", self.git)
            .finish_non_exhaustive()
    }
}

impl Inside<'_> {
    /// Runs git on the task's repository.
    pub(crate) fn git(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
        input: Option<Vec<u8>>,
    ) -> Result<InsideOutput, WorkspaceError> {
        let mut argv = vec![
            self.git.clone(),
            format!("--git-dir={}", self.git_dir).into(),
            "--work-tree=.".into(),
        ];
        for setting in HARDENED {
            argv.extend(["-c".into(), (*setting).into()]);
        }
        argv.extend(arguments.iter().map(|one| BytePath::from(*one)));
        self.run(argv, environment, input)
    }

    /// Runs any program inside.
    pub(crate) fn run(
        &self,
        argv: Vec<BytePath>,
        environment: &[(&str, &str)],
        input: Option<Vec<u8>>,
    ) -> Result<InsideOutput, WorkspaceError> {
        let fixed = [
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("LC_ALL", "C"),
        ];
        let environment = fixed
            .iter()
            .chain(environment)
            .map(|(name, value)| Variable {
                name: (*name).into(),
                value: (*value).into(),
            })
            .collect();
        let call = InsideCall {
            argv,
            environment,
            input,
            timeout: TIMEOUT,
        };
        self.walls.run(&call).map_err(WorkspaceError::Inside)
    }

    /// Runs git; any exit code but 0 rejects the harvest. Gives standard output.
    pub(crate) fn output(
        &self,
        what: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
        input: Option<Vec<u8>>,
    ) -> Result<Vec<u8>, WorkspaceError> {
        let output = self.git(arguments, environment, input)?;
        good(what, output)
    }
}

/// Takes the output of a call that has to have gone well.
pub(crate) fn good(what: &str, output: InsideOutput) -> Result<Vec<u8>, WorkspaceError> {
    if output.code == Some(0) {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said: String = stderr.trim().chars().take(2000).collect();
    Err(WorkspaceError::rejected(format!(
        "{what} failed inside the walls: {said}"
    )))
}

/// Reads an object id that was printed inside.
pub(crate) fn read_oid(output: &[u8]) -> Result<String, WorkspaceError> {
    let text = String::from_utf8_lossy(output).trim().to_owned();
    let good = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if good {
        Ok(text)
    } else {
        Err(WorkspaceError::rejected("git inside gave no object id"))
    }
}
