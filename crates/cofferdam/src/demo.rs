//! The demonstration: a throwaway repository and three tasks side by side.
//!
//! What the second task reaches is judged from outside, by what is there afterwards, and not by what
//! the task says.

mod scripts;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{CommandForm, RunCommand};
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::{EnvironmentDocument, PolicyDocument, ProviderChoice};
use cofferdam_core::spec::Network;
use cofferdam_core::task::{
    Carry, CleanupPolicy, IsolationMode, TaskRequest, TaskResult, VerificationStatus, VerifyFrom,
    WorkspaceStrategy,
};
use cofferdam_exec::{CommandIo, Control};
use cofferdam_runtime::{
    DiffForm, FrontDoor, PolicyRequest, RunRequest, Runtime, RuntimeOptions, Surroundings,
    TaskRunRequest,
};
use serde::Serialize;

use crate::context::Context;

/// What the user keeps to themselves.
const LOOT: &str = "the-combination-is-31-7-42";

/// One of the ways out that the second task tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Attempt {
    /// What was tried.
    pub(crate) what: &'static str,
    /// Whether it came to nothing.
    pub(crate) stopped: bool,
    /// What was looked at.
    pub(crate) seen: &'static str,
}

/// How the demonstration came out.
#[derive(Debug, Serialize)]
pub(crate) struct Told {
    /// The results: the good one, the one that tries to leave, the broken one.
    pub(crate) tasks: Vec<TaskResult>,
    /// What the second one tried.
    pub(crate) attempts: Vec<Attempt>,
    /// Whether everything came out as it should.
    pub(crate) came_out_right: bool,
}

/// The throwaway places.
#[derive(Debug)]
pub(crate) struct Stage {
    top: PathBuf,
    listener: TcpListener,
    runtime: Runtime,
    provider: Option<ProviderChoice>,
}

impl Stage {
    /// Makes the places and the repository below a directory.
    pub(crate) fn build(
        context: &Context,
        top: &Path,
        provider: Option<ProviderChoice>,
    ) -> Result<Self, Problem> {
        let top = top
            .canonicalize()
            .map_err(|error| failed("find", top, &error))?;
        for name in ["repository", "home"] {
            let path = top.join(name);
            fs::create_dir(&path).map_err(|error| failed("make", &path, &error))?;
        }
        let loot = top.join("loot.txt");
        fs::write(&loot, LOOT).map_err(|error| failed("write", &loot, &error))?;
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| {
                Problem::new(
                    ErrorCode::Io,
                    format!("no port can be listened on: {error}"),
                )
            })?;
        let repository = top.join("repository");
        let surroundings = Surroundings::new(context.environment.iter().cloned(), &repository);
        let mut options = RuntimeOptions::new(surroundings, Arc::clone(&context.ambient));
        options.data_dir = Some(top.join("data"));
        let stage = Self {
            runtime: Runtime::open(options)?,
            top,
            listener,
            provider,
        };
        stage.make_repository()?;
        Ok(stage)
    }

    /// Lends the runtime, whose journal tells everything.
    pub(crate) const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn repository(&self) -> PathBuf {
        self.top.join("repository")
    }

    fn make_repository(&self) -> Result<(), Problem> {
        let variables = [
            ("CALCULATOR", scripts::CALCULATOR),
            ("CHECK", scripts::CHECK),
        ];
        let owner = PolicyDocument {
            provider: Some(ProviderChoice::Direct),
            network: Some(Network::Full),
            env: Some(environment(&variables)),
            ..PolicyDocument::default()
        };
        let outcome = self.runtime.run_command(RunRequest {
            policy: PolicyRequest {
                workspace: Some(self.repository()),
                owner,
                ..PolicyRequest::default()
            },
            command: RunCommand::new(shell(scripts::MAKE_REPOSITORY)),
            front_door: FrontDoor::CommandLine,
            io: CommandIo::Capture { input: None },
            control: Control::new(),
        });
        if outcome.status == Status::Completed {
            return Ok(());
        }
        Err(outcome.error.unwrap_or_else(|| {
            Problem::new(
                ErrorCode::GitFailed,
                "the throwaway repository could not be made",
            )
            .with_hint(outcome.output.trim())
        }))
    }

    /// Plays the three tasks side by side, and looks at what there is afterwards.
    pub(crate) fn play(&self) -> Result<Told, Problem> {
        let check = "sh ./check.sh";
        let parts = [
            ("repair the sum", scripts::GOOD, vec![check]),
            ("try to leave", scripts::ESCAPE, vec![]),
            ("break it and claim success", scripts::BROKEN, vec![check]),
        ];
        let results: Vec<Result<TaskResult, Problem>> = std::thread::scope(|scope| {
            let threads: Vec<_> = parts
                .iter()
                .map(|(goal, script, checks)| scope.spawn(|| self.task(goal, script, checks)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| {
                        Err(Problem::new(
                            ErrorCode::Internal,
                            "a task of the demonstration panicked",
                        ))
                    })
                })
                .collect()
        });
        let tasks = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        if let Some(problem) = tasks.iter().find_map(|task| task.error.clone()) {
            return Err(problem);
        }
        let attempts = self.look(&tasks[1]);
        let verdict = |task: &TaskResult| task.verification.status;
        let came_out_right = attempts.iter().all(|attempt| attempt.stopped)
            && tasks.iter().all(|task| task.status == Status::Completed)
            && verdict(&tasks[0]) == VerificationStatus::Passed
            && verdict(&tasks[2]) == VerificationStatus::Failed;
        Ok(Told {
            tasks,
            attempts,
            came_out_right,
        })
    }

    fn task(&self, goal: &str, script: &str, checks: &[&str]) -> Result<TaskResult, Problem> {
        let port = self
            .listener
            .local_addr()
            .map_or(0, |address| address.port())
            .to_string();
        let places = ["loot.txt", "escaped", "repository"]
            .map(|name| self.top.join(name).to_string_lossy().into_owned());
        let variables = [
            ("LOOT_PATH", places[0].as_str()),
            ("OUTSIDE_PATH", &places[1]),
            ("REPOSITORY", &places[2]),
            ("HOST_PORT", &port),
        ];
        let owner = PolicyDocument {
            provider: self.provider,
            network: Some(Network::None),
            env: Some(environment(&variables)),
            ..PolicyDocument::default()
        };
        self.runtime.run_task(TaskRunRequest {
            policy: PolicyRequest {
                workspace: Some(self.repository()),
                owner,
                ..PolicyRequest::default()
            },
            task: TaskRequest {
                goal: goal.to_owned(),
                command: shell(script),
                cwd: None,
                verify: checks.iter().map(|check| (*check).to_owned()).collect(),
                verify_from: VerifyFrom::Base,
                setup: Vec::new(),
                isolation_mode: IsolationMode::Worktree,
                workspace_strategy: WorkspaceStrategy::Ephemeral,
                cleanup_policy: CleanupPolicy::Always,
                carry: Carry::None,
                worker: None,
                timeout: Some(60.0),
                idle_timeout: None,
                verify_timeout: Some(60.0),
            },
            front_door: FrontDoor::CommandLine,
            io: CommandIo::Capture { input: None },
            progress: &mut |_| {},
            control: Control::new(),
        })
    }

    /// Looks from outside at what the second task reached.
    fn look(&self, task: &TaskResult) -> Vec<Attempt> {
        let said = task
            .task_result
            .as_ref()
            .map_or("", |outcome| outcome.output.as_str());
        let patch = self
            .runtime
            .diff(&task.number.to_string(), DiffForm::Patch)
            .map(|diff| diff.patch)
            .unwrap_or_default();
        let holds_loot = |bytes: &[u8]| {
            bytes
                .windows(LOOT.len())
                .any(|window| window == LOOT.as_bytes())
        };
        let connected = !matches!(
            self.listener.accept(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock
        );
        let hooks = self.repository().join(".git/hooks");
        vec![
            Attempt {
                what: "read a secret of the user",
                stopped: !holds_loot(said.as_bytes()) && !holds_loot(&patch),
                seen: "it is neither in the output nor in the task's files",
            },
            Attempt {
                what: "write outside of its tree",
                stopped: !self.top.join("escaped").exists(),
                seen: "nothing is there",
            },
            Attempt {
                what: "connect to a port of the host",
                stopped: !connected,
                seen: "nobody came to the listener",
            },
            Attempt {
                what: "plant a hook in the repository",
                stopped: !hooks.join("pre-commit").exists(),
                seen: "the user's git directory has none",
            },
        ]
    }
}

fn shell(script: &str) -> CommandForm {
    CommandForm::Argv(
        ["sh", "-c", script]
            .into_iter()
            .map(BytePath::from)
            .collect(),
    )
}

fn environment(variables: &[(&str, &str)]) -> EnvironmentDocument {
    let set: BTreeMap<String, String> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    EnvironmentDocument {
        set: Some(set),
        ..EnvironmentDocument::default()
    }
}

fn failed(step: &str, path: &Path, error: &io::Error) -> Problem {
    Problem::new(
        ErrorCode::Io,
        format!("cannot {step} {}: {error}", path.display()),
    )
}
