//! Containers: an engine puts the walls up, the keeper is the first process inside.

use std::fs::Permissions;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::EnclosureId;
use cofferdam_core::spec::EnclosureSpec;
use cofferdam_keeper::KeeperClient;
use cofferdam_sandbox::{ContainerPlan, Spawned, container_plan};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::host::setup;
use super::keeper::{KeeperBackend, Process};
use super::passing::without_what_is_gone;
use super::{KEEPER, Occupancy, remove_tree};
use crate::backend::Backend;
use crate::container::{Engine, create_request, labels, remember_engine, root_image, staging_of};
use crate::limits::Limiter;
use crate::plane::Plane;

/// How long the first process may take to call; a loaded engine is slow, a hung one must not hang us.
const CALL: Duration = Duration::from_secs(30);
/// How often it is looked whether it has ended instead.
const LOOK: Duration = Duration::from_millis(250);

pub(super) fn enclose(
    plane: &Plane,
    spec: &EnclosureSpec,
    limiter: Limiter,
) -> Result<Box<dyn Backend>, Problem> {
    let Some(socket) = &spec.program else {
        return Err(Problem::new(
            ErrorCode::EngineMissing,
            "no Docker or Podman engine listens on this machine",
        ));
    };
    let engine = Engine::new(socket.as_path());
    let plan = container_plan(&without_what_is_gone(spec));
    let image = root_image(&engine, &plan)?;
    let staging = Staging::make(plane, &plan)?;
    let listener = staging.listen()?;
    let data = plane.data().map_or(plane.spill(), |data| data.path());
    remember_engine(data, socket.as_path())?;
    let request = create_request(
        spec,
        &plan,
        image,
        &staging.0,
        labels(data, plane.lease().as_str()),
    )?;
    let container = Container {
        id: engine.create(&request)?,
        engine,
    };
    container.engine.start(&container.id)?;
    let channel = container.called(&listener)?;
    let pid = container.first_process(&channel)?;
    drop((listener, staging));
    let pidfd = pidfd_open(pid, PidfdFlags::empty())
        .map_err(|errno| failed(format!("its first process cannot be held: {errno}")))?;
    let process = Process {
        inner: std::sync::OnceLock::from(pid),
        _container: Some(container),
        ..Process::alone(Spawned {
            pid: pid.as_raw_nonzero().get(),
            pidfd,
        })
    };
    let backend = KeeperBackend::new(spec, process, Occupancy::Many, Arc::new(limiter));
    let client = KeeperClient::new(channel);
    let (_, supervisors) = client
        .hello(&setup(spec), 1)
        .map_err(|error| failed(format!("the keeper inside failed: {error}")))?;
    backend.attach(client, supervisors);
    Ok(Box::new(backend))
}

fn failed(why: impl Into<String>) -> Problem {
    Problem::new(
        ErrorCode::EngineFailed,
        format!("the container does not stand: {}", why.into()),
    )
    .with_hint("cofferdam doctor tells what this host can do")
}

/// A container that goes when this is dropped.
#[derive(Debug)]
pub(super) struct Container {
    id: String,
    engine: Engine,
}

impl Drop for Container {
    fn drop(&mut self) {
        // The engine removes it with its first process, too; this waits for that.
        let _ = self.engine.remove(&self.id);
    }
}

impl Container {
    /// Waits for the first process to call.
    fn called(&self, listener: &OwnedFd) -> Result<OwnedFd, Problem> {
        let until = Instant::now() + CALL;
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK.subsec_nanos().into(),
        };
        loop {
            let mut waiting = [PollFd::new(listener, PollFlags::IN)];
            match rustix::event::poll(&mut waiting, Some(&timeout)) {
                Ok(0) => {
                    let state = self.engine.inspect(&self.id)?.state;
                    if !state.running {
                        return Err(failed(format!(
                            "its first process ended with {} {}",
                            state.exit_code, state.error
                        )));
                    }
                    if Instant::now() > until {
                        return Err(failed("its first process does not call"));
                    }
                }
                Ok(_) => {
                    return rustix::net::accept_with(listener, SocketFlags::CLOEXEC)
                        .map_err(|errno| failed(errno.to_string()));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(failed(errno.to_string())),
            }
        }
    }

    /// Gives the first process, proven to be the one that called.
    fn first_process(&self, channel: &OwnedFd) -> Result<Pid, Problem> {
        let state = self.engine.inspect(&self.id)?.state;
        let caller = rustix::net::sockopt::socket_peercred(channel)
            .map_err(|errno| failed(errno.to_string()))?
            .pid;
        match Pid::from_raw(state.pid) {
            Some(pid) if pid == caller => Ok(pid),
            _ => Err(failed(
                "somebody else called in the place of its first process",
            )),
        }
    }
}

/// A directory on the host that a container sees until its keeper serves.
struct Staging(PathBuf);

impl Staging {
    fn make(plane: &Plane, plan: &ContainerPlan) -> Result<Self, Problem> {
        let (time, random) = plane.ambient().id_parts();
        let data = plane.data().map_or(plane.spill(), |data| data.path());
        let path = staging_of(data, plane.lease().as_str());
        let staging = Self(path.join(EnclosureId::new(time, random).as_str()));
        staging.fill(plan).map_err(|error| {
            let message = format!("cannot write {}: {error}", staging.0.display());
            Problem::new(ErrorCode::Io, message)
        })?;
        Ok(staging)
    }

    fn fill(&self, plan: &ContainerPlan) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.0)?;
        // Whoever acts inside enters it there; on the host the directories above are closed.
        std::fs::set_permissions(&self.0, Permissions::from_mode(0o755))?;
        let keeper = self.0.join("keeper");
        std::fs::write(&keeper, KEEPER)?;
        std::fs::set_permissions(&keeper, Permissions::from_mode(0o555))?;
        for (index, content) in plan.contents.iter().enumerate() {
            let path = self.0.join(index.to_string());
            std::fs::write(&path, content.as_bytes())?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o444))?;
        }
        Ok(())
    }

    fn listen(&self) -> Result<OwnedFd, Problem> {
        let path = self.0.join("channel");
        let refused = |errno: rustix::io::Errno| {
            let message = format!("cannot listen at {}: {errno}", path.display());
            Problem::new(ErrorCode::Io, message)
        };
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(refused)?;
        // The name of a socket is short; that of a directory may be long.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.0, flags, Mode::empty()).map_err(refused)?;
        let short = format!("/proc/self/fd/{}/channel", directory.as_raw_fd());
        rustix::net::bind(&socket, &SocketAddrUnix::new(short).map_err(refused)?)
            .map_err(refused)?;
        rustix::net::listen(&socket, 1).map_err(refused)?;
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o666)).map_err(refused)?;
        Ok(socket)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        remove_tree(&self.0);
        if let Some(parent) = self.0.parent() {
            // Only where no other place of this plane is being put up.
            let _ = std::fs::remove_dir(parent);
        }
    }
}
