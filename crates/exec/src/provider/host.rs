//! Direct and Landlock: the keeper runs on the host, a subreaper over everything it starts.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::{EnclosureSpec, ProviderKind};
use cofferdam_keeper::{KeeperClient, Setup};
use cofferdam_sandbox::{
    Identity, Program, SetupMount, Spawn, landlock_plan, low_listeners, message_pair,
    seccomp_options, setup_mounts, spawn,
};

use super::Occupancy;
use super::keeper::{KeeperBackend, Process};
use crate::backend::Backend;
use crate::limits::Limiter;
use crate::plane::Plane;
use crate::protect::LastUndo;

/// The descriptor on which a keeper finds its channel.
pub(super) const CHANNEL: i32 = 3;

pub(super) fn enclose(
    plane: &Plane,
    spec: &EnclosureSpec,
    limiter: Limiter,
) -> Result<Box<dyn Backend>, Problem> {
    let limiter = Arc::new(limiter);
    let held = Arc::clone(&limiter);
    let program = plane.keeper()?;
    let (ours, theirs) = message_pair().map_err(|error| start_problem(spec.provider, &error))?;
    let identity = identity(spec);
    let null: OwnedFd = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| Problem::new(ErrorCode::Io, format!("cannot open /dev/null: {error}")))?
        .into();
    let (undo, shared) = plane
        .data()
        .filter(|_| !spec.protections.is_empty())
        .and_then(|data| LastUndo::make(&data.path().join("quarantine")))
        .unzip();
    let child = plane
        .spawner()?
        .call(move || {
            let mut keeper = Spawn::new(
                Program::File(program.as_fd()),
                vec![c"cofferdam-keeper".to_owned(), c"3".to_owned()],
            );
            keeper.descriptors = vec![
                (null.as_fd(), 0),
                (null.as_fd(), 1),
                (null.as_fd(), 2),
                (theirs.as_fd(), CHANNEL),
            ];
            if let Some(shared) = &shared {
                keeper.arguments.push(c"4".to_owned());
                keeper.descriptors.push((shared.as_fd(), 4));
            }
            keeper.identity = identity;
            keeper.new_session = true;
            keeper.no_new_privileges = true;
            keeper.control_groups = held.processes();
            spawn(&keeper)
        })?
        .map_err(|error| start_problem(spec.provider, &error))?;
    let client = KeeperClient::new(ours);
    let process = Process {
        undo,
        ..Process::alone(child)
    };
    let backend = KeeperBackend::new(spec, process, Occupancy::Many, limiter);
    let (_, supervisors) = client.hello(&setup(spec), 1).map_err(|error| {
        Problem::new(
            ErrorCode::ProviderUnavailable,
            format!(
                "the keeper of the {} provider failed: {error}",
                spec.provider
            ),
        )
    })?;
    backend.attach(client, supervisors);
    Ok(Box::new(backend))
}

/// Files of `/proc` that tell about the memory of the whole machine, to root only.
const KERNEL_MEMORY: &[&str] = &[
    "/proc/kcore",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/kpagecgroup",
];

/// What the keeper does once, before anything runs.
pub(super) fn setup(spec: &EnclosureSpec) -> Setup {
    let mut mounts = setup_mounts(spec);
    if spec.provider == ProviderKind::Landlock && spec.identity.uid == 0 {
        // Landlock cannot take them out of /proc, and they are root's own.
        let targets = KERNEL_MEMORY
            .iter()
            .map(|path| path.as_bytes().to_vec())
            .collect();
        mounts.push(SetupMount::Hide { targets });
    }
    Setup {
        mounts,
        listeners: low_listeners(spec),
        // Direct leaves a command whatever its caller may do.
        drop_capabilities: spec.provider != ProviderKind::Direct,
        landlock: landlock_plan(&spec.landlock),
        seccomp: seccomp_options(&spec.seccomp),
    }
}

/// The identity to take on; `None` when it is the caller's own.
pub(super) fn identity(spec: &EnclosureSpec) -> Option<Identity> {
    let wanted = &spec.identity;
    (rustix::process::geteuid().as_raw() != wanted.uid).then(|| Identity {
        uid: wanted.uid,
        gid: wanted.gid,
        groups: wanted.groups.clone(),
    })
}

pub(super) fn start_problem(
    provider: ProviderKind,
    error: &cofferdam_sandbox::SandboxError,
) -> Problem {
    Problem::new(
        ErrorCode::ProviderUnavailable,
        format!("cannot start the keeper of the {provider} provider: {error}"),
    )
}
