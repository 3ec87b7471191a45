//! The conformance suite that every provider passes, the in-memory double included.
//!
//! A check states one promise of the contract. It runs against every provider; what a provider
//! cannot do it has declared, and the check is then reported as not enforced, with the provider's
//! own words, never as passed.
//!
//! ```no_run
//! use cofferdam_exec::conformance::{Candidate, run_all};
//! # fn candidate() -> Candidate { unimplemented!() }
//! for report in run_all(&candidate()) {
//!     println!("{report}");
//! }
//! ```

mod commands;
mod file_bounds;
mod files;
mod search;
mod sessions;
mod streams;
mod terminals;
mod trees;
mod walls;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel};
use cofferdam_core::spec::{CommandSpec, EnclosureSpec, ProviderKind, ResourceLimits, StreamPlan};

use crate::{CommandIo, Control, Enclosure, Plane, Run};

type SpecMaker = dyn Fn(&Path, ProviderKind) -> EnclosureSpec + Send + Sync;

/// A provider that is to be checked.
pub struct Candidate {
    /// Which one.
    pub provider: ProviderKind,
    /// The plane through which it is reached.
    pub plane: Plane,
    /// An empty directory of the suite's own, which is also the workspace.
    pub workspace: PathBuf,
    /// A directory outside the workspace, with a file `secret` in it.
    pub outside: PathBuf,
    /// Makes the plan of an enclosure over a workspace, by the default policy.
    pub spec: Box<SpecMaker>,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Candidate")
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

/// What a check needs of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: the double can do it, too.
    Contract,
    /// Real processes.
    Processes,
    /// Walls around files, network and other processes.
    Walls,
}

/// How a check went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The promise is kept.
    Passed,
    /// It is not; what was seen instead.
    Failed(String),
    /// The provider declares that it cannot do it.
    NotEnforced(String),
}

/// One check with its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The provider.
    pub provider: ProviderKind,
    /// The promise.
    pub name: &'static str,
    /// How it went.
    pub verdict: Verdict,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            provider,
            name,
            verdict,
        } = self;
        match verdict {
            Verdict::Passed => write!(formatter, "{provider}: {name}: passed"),
            Verdict::Failed(what) => write!(formatter, "{provider}: {name}: FAILED: {what}"),
            Verdict::NotEnforced(why) => {
                write!(formatter, "{provider}: {name}: not enforced: {why}")
            }
        }
    }
}

type CheckFunction = fn(&Scene<'_>) -> Result<(), String>;

/// One promise of the contract.
struct Check {
    name: &'static str,
    need: Need,
    function: CheckFunction,
}

const fn check(name: &'static str, need: Need, function: CheckFunction) -> Check {
    Check {
        name,
        need,
        function,
    }
}

/// Runs every check against a provider.
pub fn run_all(candidate: &Candidate) -> Vec<Report> {
    [
        commands::CHECKS,
        sessions::CHECKS,
        files::CHECKS,
        file_bounds::CHECKS,
        search::CHECKS,
        streams::CHECKS,
        terminals::CHECKS,
        trees::CHECKS,
        walls::CHECKS,
    ]
    .into_iter()
    .flatten()
    .map(|check| Report {
        provider: candidate.provider,
        name: check.name,
        verdict: verdict(candidate, check),
    })
    .collect()
}

fn verdict(candidate: &Candidate, check: &Check) -> Verdict {
    let provider = candidate.provider;
    let missing = match check.need {
        Need::Contract => None,
        Need::Processes => (provider == ProviderKind::Memory).then_some("nothing is real in it"),
        Need::Walls => match provider {
            ProviderKind::Memory => Some("nothing is real in it"),
            ProviderKind::Direct => Some("it has no walls"),
            _ => None,
        },
    };
    if let Some(why) = missing {
        return Verdict::NotEnforced(why.to_owned());
    }
    let scene = match Scene::new(candidate) {
        Ok(scene) => scene,
        Err(problem) => return Verdict::Failed(problem),
    };
    match (check.function)(&scene) {
        Ok(()) => Verdict::Passed,
        Err(what) => Verdict::Failed(what),
    }
}

/// A fresh enclosure for one check.
struct Scene<'a> {
    candidate: &'a Candidate,
    enclosure: Arc<Enclosure>,
}

impl<'a> Scene<'a> {
    fn new(candidate: &'a Candidate) -> Result<Self, String> {
        let spec = (candidate.spec)(&candidate.workspace, candidate.provider);
        let level = IsolationLevel {
            provider: Some(candidate.provider),
            network: spec.network,
        };
        let enclosure = candidate
            .plane
            .enclose(spec, level, &Subject::default())
            .map_err(|problem| format!("no enclosure: {problem}"))?;
        Ok(Self {
            candidate,
            enclosure: Arc::new(enclosure),
        })
    }

    fn command(&self, words: &[&str]) -> CommandSpec {
        CommandSpec {
            argv: words.iter().map(|word| BytePath::from(*word)).collect(),
            cwd: self.enclosure.spec().workspace.clone(),
            environment: Vec::new(),
            streams: StreamPlan::Pipes,
            timeout_ms: Some(30_000),
            idle_timeout_ms: None,
            limits: ResourceLimits::default(),
        }
    }

    fn run(&self, words: &[&str]) -> CommandOutcome {
        self.run_command(self.command(words))
    }

    fn sh(&self, text: &str) -> CommandOutcome {
        self.run(&["sh", "-c", text])
    }

    fn run_command(&self, command: CommandSpec) -> CommandOutcome {
        self.run_with(command, CommandIo::Capture { input: None }, Control::new())
    }

    fn run_with(
        &self,
        command: CommandSpec,
        io: CommandIo<'_>,
        control: Control,
    ) -> CommandOutcome {
        self.enclosure.run(Run {
            command,
            subject: Subject::default(),
            io,
            control,
            timeout_clamped: false,
        })
    }

    fn outside(&self) -> String {
        self.candidate.outside.display().to_string()
    }
}

/// States that something holds, or tells what was seen.
fn hold(holds: bool, seen: &impl fmt::Debug) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("{seen:?}"))
    }
}
