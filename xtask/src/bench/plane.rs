//! What needs the plane: commands through the library, in this process.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel, Status};
use cofferdam_core::spec::{
    Access, CommandSpec, EnclosureSpec, Identity, LandlockSpec, Mount, Network, PathAccess,
    PathRule, ProviderKind, ResourceLimits, SeccompSpec, SocketFamilies, StreamPlan,
};
use cofferdam_exec::{CommandIo, Control, Enclosure, Plane, PlaneOptions, Run as PlaneRun};
use cofferdam_journal::{DataDir, SqliteJournal, SystemAmbient};
use cofferdam_sandbox::{
    ExitStatus, Program, Spawn, bwrap_arguments, find_program, sealed_memory, spawn, wait_pid,
};

use super::{PROGRAM, Run, Subject as Measured, Yardstick};

const PLAIN: &str = "plain bwrap";

/// Everything that is measured through `cofferdam-exec`. Direct and Landlock are commands of a
/// standing enclosure, whose keeper runs: a bare command has no walls to put up.
pub(super) fn subjects(scratch: &Path, workspace: &Path) -> Vec<Measured> {
    let plane = open(&scratch.join("plane"));
    let plane = plane.as_ref();
    let standing = |name, bar, provider| Measured {
        name,
        yardstick: Yardstick::Floor,
        bar: Some(bar),
        run: told(plane, |plane| standing(plane, spec(provider, workspace))),
    };
    vec![
        standing("direct", 1.4, ProviderKind::Direct),
        standing("landlock", 1.5, ProviderKind::Landlock),
        standing("bwrap, standing enclosure", 1.5, ProviderKind::Bwrap),
        Measured {
            name: PLAIN,
            yardstick: Yardstick::Itself,
            bar: None,
            run: told(plane, |_| plain(&spec(ProviderKind::Bwrap, workspace))),
        },
        Measured {
            name: "bwrap, cold",
            yardstick: Yardstick::Plain(PLAIN),
            bar: Some(1.25),
            run: told(plane, |plane| {
                cold(plane, spec(ProviderKind::Bwrap, workspace))
            }),
        },
    ]
}

/// Makes what is measured, or says why it cannot be.
fn told(
    plane: Result<&Plane, &anyhow::Error>,
    make: impl FnOnce(&Plane) -> anyhow::Result<Run>,
) -> Result<Run, String> {
    let plane = plane.map_err(|error| format!("{error:#}"))?;
    make(plane).map_err(|error| format!("{error:#}"))
}

fn open(data: &Path) -> anyhow::Result<Plane> {
    let ambient = Arc::new(SystemAmbient::new());
    let directory = DataDir::open(data)?;
    let journal = SqliteJournal::open(&directory, ambient.clone())?;
    Ok(Plane::open(PlaneOptions {
        data_dir: data.to_path_buf(),
        journal: Arc::new(journal),
        ambient,
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

/// The walls put up, one command, the walls taken down.
fn cold(plane: &Plane, spec: EnclosureSpec) -> anyhow::Result<Run> {
    let plane = plane.clone();
    let workspace = spec.workspace.clone();
    let enclose = move || plane.enclose(spec.clone(), requested(), &Subject::default());
    prove(&enclose()?, &workspace)?;
    Ok(Box::new(move || {
        let start = Instant::now();
        let enclosure = enclose()?;
        let outcome = command(&enclosure, &workspace, &[PROGRAM]);
        enclosure.close()?;
        let time = start.elapsed();
        completed(&outcome)?;
        Ok(time)
    }))
}

/// What is measured has to show first that it does what it is measured for.
fn prove(enclosure: &Enclosure, workspace: &BytePath) -> anyhow::Result<()> {
    let outcome = command(enclosure, workspace, &["/bin/echo", "proof"]);
    completed(&outcome)?;
    let stdout = &outcome.stdout;
    ensure!(stdout == "proof\n", "the command's output is {stdout:?}");
    Ok(())
}

fn command(enclosure: &Enclosure, workspace: &BytePath, argv: &[&str]) -> CommandOutcome {
    enclosure.run(PlaneRun {
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
    })
}

fn completed(outcome: &CommandOutcome) -> anyhow::Result<()> {
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

const fn requested() -> IsolationLevel {
    IsolationLevel {
        provider: None,
        network: Network::None,
    }
}

/// bubblewrap by itself with exactly the flags that the plane gives it.
fn plain(spec: &EnclosureSpec) -> anyhow::Result<Run> {
    let bwrap = spec.program.clone().context("bwrap is not installed")?;
    let program = CString::new(bwrap.as_bytes())?;
    let plan = bwrap_arguments(spec);
    let contents = plan
        .contents
        .iter()
        .map(|content| sealed_memory("content", content));
    let contents: Vec<OwnedFd> = contents.collect::<Result<_, _>>()?;
    let words = [
        &[b"bwrap".to_vec()],
        plan.arguments.as_slice(),
        &[PROGRAM.into()],
    ]
    .concat();
    let words = words
        .into_iter()
        .map(CString::new)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Box::new(move || {
        let mut start = Spawn::new(Program::Paths(vec![program.clone()]), words.clone());
        start.descriptors = contents
            .iter()
            .map(|content| content.as_fd())
            .zip(7..)
            .collect();
        let begin = Instant::now();
        let child = spawn(&start)?;
        let reaped = wait_pid(child.pid)?;
        let time = begin.elapsed();
        ensure!(
            reaped.status == ExitStatus::Code(0),
            "bwrap: {:?}",
            reaped.status
        );
        Ok(time)
    }))
}

/// Walls as the built-in policy gives them, without what was found in a home directory.
fn spec(provider: ProviderKind, workspace: &Path) -> EnclosureSpec {
    let walls = provider != ProviderKind::Direct;
    let namespaces = provider == ProviderKind::Bwrap;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = find_program("bwrap", &path, &[workspace]).map(BytePath::from);
    let workspace = BytePath::from(workspace);
    let identity = Identity {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
    };
    EnclosureSpec {
        provider,
        program: program.filter(|_| namespaces),
        workspace: workspace.clone(),
        workspace_source: workspace.clone(),
        identity,
        scratch: BytePath::default(),
        mounts: if namespaces {
            mounts(&workspace)
        } else {
            Vec::new()
        },
        caches: Vec::new(),
        network: if walls { Network::None } else { Network::Full },
        landlock: if walls {
            landlock(&workspace, namespaces)
        } else {
            LandlockSpec::default()
        },
        seccomp: SeccompSpec {
            enabled: walls,
            sockets: if namespaces {
                SocketFamilies::Namespaced
            } else {
                SocketFamilies::PairsOnly
            },
            nested_sandbox: false,
            ptrace: false,
        },
        protections: Vec::new(),
        environment: Vec::new(),
        limits: ResourceLimits::default(),
        enforced_by: Vec::new(),
        gaps: Vec::new(),
    }
}

/// The system read-only, the workspace writable, nothing else.
fn mounts(workspace: &BytePath) -> Vec<Mount> {
    let bind = |path: BytePath, access| Mount::Bind {
        source: path.clone(),
        target: path,
        access,
        optional: true,
    };
    let system = ["/usr", "/bin", "/lib", "/lib64", "/etc"];
    let mut mounts: Vec<Mount> = system
        .into_iter()
        .map(|path| bind(path.into(), Access::Read))
        .collect();
    mounts.push(Mount::Proc {
        target: "/proc".into(),
    });
    mounts.push(Mount::Devices {
        target: "/dev".into(),
    });
    mounts.push(Mount::Temporary {
        target: "/tmp".into(),
        mode: 0o1777,
    });
    mounts.push(bind(workspace.clone(), Access::Write));
    mounts
}

fn landlock(workspace: &BytePath, namespaces: bool) -> LandlockSpec {
    let rule = |path: BytePath, access| PathRule { path, access };
    let system = ["/usr", "/bin", "/lib", "/lib64", "/etc"];
    let mut paths: Vec<PathRule> = system
        .into_iter()
        .map(|path| rule(path.into(), PathAccess::ReadExecute))
        .collect();
    paths.push(rule("/dev/null".into(), PathAccess::Device));
    paths.push(rule(workspace.clone(), PathAccess::Write));
    LandlockSpec {
        paths: if namespaces { Vec::new() } else { paths },
        deny_tcp: !namespaces,
        scope_signals: true,
        scope_abstract_sockets: true,
    }
}
