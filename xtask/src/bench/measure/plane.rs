//! What needs the plane: commands through the library, in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{bail, ensure};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::event::Subject;
use cofferdam_core::mask::Masker;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel, Status};
use cofferdam_core::plan::{WorkspaceView, prepare};
use cofferdam_core::policy::{Caches, EffectivePolicy, Layer, ProviderChoice, Sourced};
use cofferdam_core::spec::{CommandSpec, EnclosureSpec, Network, ResourceLimits, StreamPlan};
use cofferdam_exec::host::{GatherRequest, Surroundings, gather, resolve_workspace};
use cofferdam_exec::{
    CommandIo, Control, Enclosure, Plane, PlaneOptions, Pool, PoolOptions, Run as PlaneRun,
    Session, SessionKind, SessionRun,
};
use cofferdam_journal::{DataDir, SqliteJournal, SystemAmbient};

use super::{PROGRAM, Run, Subject as Measured, Yardstick, files, plain, told};

const PLAIN: &str = "plain bwrap";
const BASH: &str = "bash -c :";

/// Everything that is measured through `cofferdam-exec`. Direct and Landlock are commands of a
/// standing enclosure, whose keeper runs: a bare command has no walls to put up.
#[expect(
    clippy::print_stdout,
    reason = "what is not measured, for want of an engine, is told"
)]
pub(super) fn subjects(scratch: &Path, workspace: &Path) -> Vec<Measured> {
    let data = scratch.join("plane");
    let plane = open(&data);
    let spec = |provider| spec(provider, Caches::None, &data, workspace);
    let with_plane = |make: &dyn Fn(&Plane) -> anyhow::Result<Run>| {
        let plane = plane.as_ref().map_err(|error| format!("{error:#}"))?;
        told(make(plane))
    };
    let standing = |name, bar, provider| Measured {
        name,
        yardstick: Yardstick::Floor,
        bar: Some(bar),
        run: with_plane(&|plane| standing(plane, spec(provider)?)),
    };
    // Tens of thousands of files: whoever asks git about the other workspace should not meet them.
    let files_workspace = scratch.join("files");
    let door = with_plane_of(&plane, &|plane| {
        std::fs::create_dir_all(&files_workspace)?;
        let bwrap = ProviderChoice::Bwrap;
        let walls = self::spec(bwrap, Caches::None, &data, &files_workspace)?;
        let enclosure = plane.enclose(walls, requested(), &Subject::default())?;
        Ok(Arc::new(enclosure))
    });
    let mut all = vec![
        standing("direct", 1.4, ProviderChoice::Direct),
        standing("landlock", 1.5, ProviderChoice::Landlock),
        standing("bwrap, standing enclosure", 1.5, ProviderChoice::Bwrap),
        Measured {
            name: "session command, bwrap",
            yardstick: Yardstick::Floor,
            bar: Some(1.5),
            run: with_plane(&|plane| session(plane, spec(ProviderChoice::Bwrap)?, false)),
        },
        Measured {
            name: BASH,
            yardstick: Yardstick::Itself,
            bar: None,
            run: Ok(Box::new(|| {
                let mut shell = std::process::Command::new("/bin/bash");
                shell.args(["-c", ":"]);
                plain::once(shell)
            })),
        },
        Measured {
            name: "shell session command, bwrap",
            yardstick: Yardstick::Plain(BASH),
            bar: Some(1.5),
            run: with_plane(&|plane| session(plane, spec(ProviderChoice::Bwrap)?, true)),
        },
        Measured {
            name: "one command in a ready place, bwrap",
            yardstick: Yardstick::Floor,
            // That of a standing enclosure, and the proof before and the look after it.
            bar: Some(2.0),
            run: with_plane(&|plane| ready(plane, spec(ProviderChoice::Bwrap)?)),
        },
        Measured {
            name: PLAIN,
            yardstick: Yardstick::Itself,
            bar: None,
            run: told(spec(ProviderChoice::Bwrap).and_then(|spec| plain::bwrap(&spec))),
        },
        Measured {
            name: "bwrap, cold",
            yardstick: Yardstick::Plain(PLAIN),
            bar: Some(1.25),
            run: with_plane(&|plane| cold(plane, spec(ProviderChoice::Bwrap)?)),
        },
    ];
    match spec(ProviderChoice::Container) {
        Ok(_) => all.push(standing(
            "container, standing",
            4.0,
            ProviderChoice::Container,
        )),
        Err(why) => println!("skipped: commands in a container: {why}"),
    }
    all.extend(files::subjects(&files_workspace, &door));
    all
}

fn with_plane_of<T>(
    plane: &anyhow::Result<Plane>,
    make: &dyn Fn(&Plane) -> anyhow::Result<T>,
) -> Result<T, String> {
    let plane = plane.as_ref().map_err(|error| format!("{error:#}"))?;
    make(plane).map_err(|error| format!("{error:#}"))
}

pub(super) fn open(data: &Path) -> anyhow::Result<Plane> {
    let ambient = Arc::new(SystemAmbient::new());
    let directory = DataDir::open(data)?;
    let journal = SqliteJournal::open(&directory, ambient.clone())?;
    Ok(Plane::open(PlaneOptions {
        data: Some(directory),
        journal: Arc::new(journal),
        ambient,
        masker: Masker::default(),
        script: None,
    })?)
}

/// Commands of one enclosure that stays.
fn standing(plane: &Plane, spec: EnclosureSpec) -> anyhow::Result<Run> {
    let workspace = spec.workspace.clone();
    let enclosure = plane.enclose(spec, requested(), &Subject::default())?;
    prove(&enclosure, &workspace)?;
    Ok(Box::new(move || {
        let start = Instant::now();
        let outcome = command(&enclosure, &workspace, &[PROGRAM]);
        let time = start.elapsed();
        completed(&outcome)?;
        Ok(time)
    }))
}

/// Commands of a session: with a shell each is one that hands its state on.
fn session(plane: &Plane, spec: EnclosureSpec, has_shell: bool) -> anyhow::Result<Run> {
    let workspace = spec.workspace.clone();
    let enclosure = plane.enclose(spec, requested(), &Subject::default())?;
    let shell = BytePath::from("/bin/bash");
    let kind = if has_shell {
        SessionKind::Shell {
            shell: shell.clone(),
        }
    } else {
        SessionKind::Plain
    };
    let session = Session::new(enclosure, kind);
    Ok(Box::new(move || {
        let start = Instant::now();
        let end = session.run(SessionRun {
            run: planned(&workspace, &[PROGRAM]),
            script: has_shell.then(|| ":".to_owned()),
            shell: shell.clone(),
            has_directory: false,
            aside: false,
            patience: None,
        });
        let time = start.elapsed();
        completed(&end.outcome)?;
        ensure!(
            end.state_saved && !end.session_reset,
            "the session was lost"
        );
        Ok(time)
    }))
}

/// Single commands that find a place ready.
fn ready(plane: &Plane, spec: EnclosureSpec) -> anyhow::Result<Run> {
    let workspace = spec.workspace.clone();
    let pool = Pool::new(plane.clone(), PoolOptions::default());
    completed(&pool.run(spec.clone(), requested(), planned(&workspace, &[PROGRAM])))?;
    Ok(Box::new(move || {
        let spec = spec.clone();
        let start = Instant::now();
        let outcome = pool.run(spec, requested(), planned(&workspace, &[PROGRAM]));
        let time = start.elapsed();
        completed(&outcome)?;
        Ok(time)
    }))
}

/// The walls put up, one command, the walls taken down: what a command without a session costs.
fn cold(plane: &Plane, spec: EnclosureSpec) -> anyhow::Result<Run> {
    let plane = plane.clone();
    let workspace = spec.workspace.clone();
    let once = move |argv: &[&str]| {
        plane.run_once(spec.clone(), requested(), planned(&workspace, argv), |_| {
            Vec::new()
        })
    };
    proven(&once(PROOF))?;
    Ok(Box::new(move || {
        let start = Instant::now();
        let outcome = once(&[PROGRAM]);
        let time = start.elapsed();
        completed(&outcome)?;
        Ok(time)
    }))
}

const PROOF: &[&str] = &["/bin/echo", "proof"];

/// What is measured has to show first that it does what it is measured for.
fn prove(enclosure: &Enclosure, workspace: &BytePath) -> anyhow::Result<()> {
    proven(&command(enclosure, workspace, PROOF))
}

fn proven(outcome: &CommandOutcome) -> anyhow::Result<()> {
    completed(outcome)?;
    let stdout = &outcome.stdout;
    ensure!(stdout == "proof\n", "the command's output is {stdout:?}");
    Ok(())
}

pub(super) fn command(
    enclosure: &Enclosure,
    workspace: &BytePath,
    argv: &[&str],
) -> CommandOutcome {
    enclosure.run(planned(workspace, argv))
}

pub(super) fn planned(workspace: &BytePath, argv: &[&str]) -> PlaneRun<'static> {
    PlaneRun {
        command: CommandSpec {
            argv: argv.iter().map(|&word| word.into()).collect(),
            cwd: workspace.clone(),
            environment: Vec::new(),
            streams: StreamPlan::Pipes,
            timeout_ms: Some(20_000),
            idle_timeout_ms: None,
            limits: ResourceLimits::default(),
        },
        subject: Subject::default(),
        io: CommandIo::Capture { input: None },
        control: Control::new(),
        timeout_clamped: false,
    }
}

pub(super) fn completed(outcome: &CommandOutcome) -> anyhow::Result<()> {
    if outcome.status == Status::Completed {
        return Ok(());
    }
    let problem = outcome
        .error
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    bail!("{:?}: {problem}{}", outcome.status, outcome.stderr)
}

pub(super) const fn requested() -> IsolationLevel {
    IsolationLevel {
        provider: None,
        network: Network::None,
    }
}

/// The walls that a policy gives here, with everything that was found on this machine.
pub(super) fn spec(
    provider: ProviderChoice,
    caches: Caches,
    data: &Path,
    workspace: &Path,
) -> anyhow::Result<EnclosureSpec> {
    let mut policy = EffectivePolicy::built_in();
    policy.provider = Sourced::new(provider, Layer::CommandLine);
    policy.caches = Sourced::new(caches, Layer::CommandLine);
    let surroundings = Surroundings::of_process()?;
    let workspace = resolve_workspace(&surroundings, Some(workspace), None)?;
    let facts = gather(&GatherRequest {
        surroundings: &surroundings,
        workspace: &workspace,
        data_dir: data,
        policy: &policy,
        tree: None,
    });
    let place = data.join("scratch").join(provider.first().as_str());
    Ok(prepare(
        &policy,
        &WorkspaceView::live(&facts.workspace),
        &facts,
        &place.into(),
    )?)
}
