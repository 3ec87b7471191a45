//! bubblewrap: namespaces and mounts, the keeper as first process inside.

use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::{EnclosureSpec, Mount};
use cofferdam_keeper::{ClientError, KeeperClient};
use cofferdam_sandbox::{
    BwrapProblem, BwrapStart, Caller, bwrap_arguments, message_pair, start_bwrap,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::Occupancy;
use super::host::{identity, setup, start_problem};
use super::keeper::{KeeperBackend, Process};
use super::passing::without_what_is_gone;
use super::scratch::CacheLayers;
use crate::backend::Backend;
use crate::host::problem_of;
use crate::limits::Limiter;
use crate::plane::Plane;

/// How long the walls may take to stand; a loaded machine is slow, a hung one must not hang us.
const STANDING: Duration = Duration::from_secs(20);
/// Bytes that are read of what bubblewrap complains about.
const LOG_BYTES: u64 = 16 * 1024;

pub(super) fn enclose(
    plane: &Plane,
    spec: &EnclosureSpec,
    occupancy: Occupancy,
    limiter: Limiter,
) -> Result<Box<dyn Backend>, Problem> {
    let limiter = Arc::new(limiter);
    let held = Arc::clone(&limiter);
    let Some(program) = spec.program.clone() else {
        return Err(problem_of(&BwrapProblem::Missing));
    };
    let layers = CacheLayers::take(&spec.caches, &spec.identity)?;
    let spec = &EnclosureSpec {
        caches: layers.caches.clone(),
        ..spec.clone()
    };
    let keeper = plane.keeper()?;
    let failed = |what: &str, error: std::io::Error| {
        Problem::new(
            ErrorCode::Io,
            format!("cannot make {what} for bubblewrap: {error}"),
        )
    };
    let (ours, theirs) = message_pair().map_err(|error| start_problem(spec.provider, &error))?;
    let (status, status_writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|error| failed("a pipe", error.into()))?;
    let (log, log_writer) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed("a pipe", error.into()))?;
    let null: OwnedFd = std::fs::File::open("/dev/null")
        .map_err(|error| failed("/dev/null", error))?
        .into();
    let arguments = bwrap_arguments(&without_what_is_gone(spec));
    too_many(arguments.arguments.len(), spec)?;
    let other = identity(spec);
    let child = plane
        .spawner()?
        .call(move || {
            start_bwrap(&BwrapStart {
                program: &program,
                arguments: &arguments,
                keeper: keeper.as_fd(),
                channel: theirs.as_fd(),
                status: status_writer.as_fd(),
                log: log_writer.as_fd(),
                null: null.as_fd(),
                identity: other.as_ref(),
                landlock: None,
                control_groups: held.processes(),
            })
        })?
        .map_err(|error| start_problem(spec.provider, &error))?;
    let client = KeeperClient::new(ours);
    let complaint = Complaint {
        log,
        as_root: spec.identity.uid == 0,
    };
    let process = Process {
        child,
        status: Some(status),
        inner: std::sync::OnceLock::new(),
        complaint: Some(complaint),
        undo: None,
        _container: None,
        _layers: Some(layers),
    };
    // Held until the keeper has answered: dropping it takes everything down again.
    let standing = KeeperBackend::new(spec, process, occupancy, limiter);
    let greeting = match occupancy {
        Occupancy::Many => client.begin_hello(&setup(spec), 1).and_then(|supervisors| {
            if readable(&client, STANDING) {
                client.finish_hello().map(|_| supervisors)
            } else {
                Err(ClientError::Unexpected {
                    answer: "none in time".to_owned(),
                })
            }
        }),
        Occupancy::One => client
            .begin_hello(&setup(spec), 0)
            .and_then(|_| client.last_supervisor())
            .map(|supervisor| vec![supervisor]),
    };
    match greeting {
        Ok(supervisors) => {
            standing.attach(client, supervisors);
            Ok(Box::new(standing))
        }
        Err(error) => Err(standing.complaint(&error)),
    }
}

/// What bubblewrap, or the keeper's set-up, has to say about walls that do not stand.
#[derive(Debug)]
pub(super) struct Complaint {
    log: OwnedFd,
    as_root: bool,
}

impl Complaint {
    /// Reads it; whoever could write more has ended.
    pub(super) fn read(self, otherwise: &ClientError) -> Problem {
        let mut said = String::new();
        let _ = std::fs::File::from(self.log)
            .take(LOG_BYTES)
            .read_to_string(&mut said);
        if said.trim().is_empty() {
            said = format!("the keeper inside did not answer: {otherwise}");
        }
        let caller = Caller::of_this_process(self.as_root);
        let problem = problem_of(&BwrapProblem::from_output(&said, caller));
        if problem.hint.is_some() {
            problem
        } else {
            problem.with_hint("cofferdam doctor tells what this host can do")
        }
    }
}

/// Reads which one is the first process inside from what bubblewrap wrote about it: killing that one
/// ends the whole namespace at once.
pub(super) fn inner(status: &OwnedFd) -> Option<Pid> {
    let mut buffer = [0; 512];
    // It is written before the keeper is executed; without it there is no such process yet.
    let count = rustix::io::read(status, &mut buffer).ok()?;
    let line = buffer[..count].split(|byte| *byte == b'\n').next()?;
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    let pid = i32::try_from(value.get("child-pid")?.as_i64()?).ok()?;
    Pid::from_raw(pid)
}

fn readable(client: &KeeperClient, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(client, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}

/// Arguments that bubblewrap takes, all of them together (`MAX_ARGS`), less those that say what runs.
const ARGUMENTS: usize = 8_900;

/// Refuses a plan of more mounts than bubblewrap takes, before it says so in its own words.
fn too_many(arguments: usize, spec: &EnclosureSpec) -> Result<(), Problem> {
    if arguments <= ARGUMENTS {
        return Ok(());
    }
    let masked = spec
        .mounts
        .iter()
        .filter(|mount| matches!(mount, Mount::Mask { .. }))
        .count();
    Err(Problem::new(
        ErrorCode::Unenforceable,
        format!(
            "{masked} files and folders are denied one by one, and bubblewrap takes some {} of them",
            ARGUMENTS / 3
        ),
    )
    .with_field("deny_read")
    .with_hint("deny the folders that hold them by name, or less of them"))
}
