//! A place with a keeper in it: how the real providers start, signal and end commands.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::limits;
use cofferdam_core::outcome::EndedBy;
use cofferdam_core::spec::{CommandSpec, EnclosureSpec, Mount, Network, Variable};
use cofferdam_keeper::{
    ChannelError, ClientError, FileClient, KeeperClient, SpawnRequest, SupervisorClient,
    SupervisorReply,
};
use cofferdam_sandbox::{Access, PathRule, Spawned};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use super::Occupancy;
use super::bwrap::{Complaint, inner};
use super::container::Container;
use super::inner::InnerFiles;
use super::scratch::CacheLayers;
use super::supervised::SupervisedCommand;
use crate::backend::{Backend, Extra, InnerNetwork, Started, Stdio};
use crate::files::FileWorker;
use crate::limits::Limiter;
use crate::protect::LastUndo;

/// How long the processes of a place may take to leave before they are killed.
const LEAVE: Duration = Duration::from_secs(1);
/// Supervisors that wait for the next command, at most.
const IDLE_SUPERVISORS: usize = 64;
const SIGKILL: i32 = 9;
/// How long descendants may go on after the command before they are ended: what `cmd > >(tee log)`
/// starts writes its last lines then. Costs nothing where nothing is left.
const LINGER_MILLISECONDS: u32 = 30;

/// A place reached through a keeper.
#[derive(Debug)]
pub(crate) struct KeeperBackend(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) keeper: Mutex<Option<KeeperClient>>,
    idle: Mutex<Vec<SupervisorClient>>,
    /// Supervisors over what ended commands have left running.
    pub(super) keeping: Mutex<Vec<(u64, SupervisorClient)>>,
    /// The number of the next of them.
    pub(super) next_kept: AtomicU64,
    /// What the keeper is told of protected names, where it stands on the host.
    undo: Option<LastUndo>,
    /// What the plane started: the keeper itself, or bubblewrap around it.
    pub(super) process: Mutex<Option<Process>>,
    pub(super) standing: AtomicBool,
    environment: Vec<Variable>,
    limiter: Arc<Limiter>,
    /// Whether Landlock decides about files, so that a terminal needs a rule of its own.
    terminal_rule: bool,
    namespace: bool,
    /// Directories of the place's own, as its keeper sees them.
    private: Vec<Vec<u8>>,
    /// Whether the place has a network of its own.
    network: bool,
    /// Inodes of the listeners inside that were made for the plane.
    pub(super) listeners: Mutex<BTreeSet<u64>>,
    /// Whether the keeper's first answer still waits in its channel.
    pub(super) unanswered: bool,
}

/// The processes by which a place is ended.
#[derive(Debug)]
pub(crate) struct Process {
    /// The child of ours.
    pub(super) child: Spawned,
    /// Where bubblewrap tells its first process inside: killing that one ends the namespace.
    pub(super) status: Option<OwnedFd>,
    /// That process, once it was read there.
    pub(super) inner: OnceLock<Pid>,
    /// What is said when the walls do not stand.
    pub(super) complaint: Option<Complaint>,
    /// What the keeper is told, so that it can put protected names back.
    pub(super) undo: Option<LastUndo>,
    /// The container around it.
    pub(super) _container: Option<Container>,
    /// The cache layers that are mounted inside: free again when the processes are gone.
    pub(super) _layers: Option<CacheLayers>,
}

impl Process {
    /// A keeper on the host.
    pub(super) const fn alone(child: Spawned) -> Self {
        Self {
            child,
            status: None,
            inner: OnceLock::new(),
            complaint: None,
            undo: None,
            _container: None,
            _layers: None,
        }
    }

    /// Gives the first process inside as the host knows it.
    fn inner(&self) -> Option<Pid> {
        if self.inner.get().is_none()
            && let Some(found) = self.status.as_ref().and_then(inner)
        {
            let _ = self.inner.set(found);
        }
        self.inner.get().copied()
    }

    /// Opens the lists of TCP sockets of the inside.
    pub(super) fn socket_tables(&self) -> io::Result<Vec<OwnedFd>> {
        let inner = self.inner().ok_or(io::ErrorKind::NotFound)?;
        let open = |name: &str| {
            let path = format!("/proc/{inner}/net/{name}");
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        let mut tables = vec![open("tcp")?];
        // A kernel without IPv6 has no list of it.
        tables.extend(open("tcp6"));
        Ok(tables)
    }
}

impl KeeperBackend {
    /// Takes over what was started for a place. Until a keeper is attached, nothing can be started
    /// in it; dropping it ends everything.
    pub(crate) fn new(
        spec: &EnclosureSpec,
        mut process: Process,
        occupancy: Occupancy,
        limiter: Arc<Limiter>,
    ) -> Self {
        Self(Arc::new(Shared {
            keeper: Mutex::default(),
            idle: Mutex::default(),
            keeping: Mutex::default(),
            next_kept: AtomicU64::new(1),
            undo: process.undo.take(),
            process: Mutex::new(Some(process)),
            standing: AtomicBool::new(true),
            environment: spec.environment.clone(),
            limiter,
            terminal_rule: !spec.landlock.paths.is_empty(),
            namespace: spec.provider.has_view(),
            private: private_places(spec),
            network: spec.provider.has_view() && spec.network != Network::Full,
            listeners: Mutex::default(),
            unanswered: occupancy == Occupancy::One,
        }))
    }

    /// Takes over the keeper and its first supervisors.
    pub(super) fn attach(&self, keeper: KeeperClient, supervisors: Vec<SupervisorClient>) {
        *lock(&self.0.keeper) = Some(keeper);
        *lock(&self.0.idle) = supervisors;
    }

    /// Ends what was begun and tells why the walls do not stand.
    pub(super) fn complaint(&self, error: &ClientError) -> Problem {
        self.0.complain(error)
    }
}

impl Shared {
    fn supervisor(&self) -> Result<SupervisorClient, Problem> {
        if let Some(idle) = lock(&self.idle).pop() {
            return Ok(idle);
        }
        let keeper = lock(&self.keeper);
        let keeper = keeper.as_ref().ok_or_else(gone)?;
        let (_, client) = keeper.new_supervisor().map_err(|error| self.lost(&error))?;
        Ok(client)
    }

    /// Says that the place is gone, and makes it so.
    fn lost(&self, error: &ClientError) -> Problem {
        if matches!(error, ClientError::Channel(ChannelError::Closed)) {
            self.standing.store(false, Ordering::Release);
        }
        Problem::new(
            ErrorCode::EnclosureLost,
            format!("the keeper does not answer: {error}"),
        )
    }

    /// Ends the place, and tells why its walls do not stand: bubblewrap has written it, or the
    /// keeper has answered it.
    fn complain(&self, error: &ClientError) -> Problem {
        let complaint = lock(&self.process)
            .as_mut()
            .and_then(|one| one.complaint.take());
        self.end();
        match complaint {
            Some(complaint) => complaint.read(error),
            None => self.lost(error),
        }
    }

    /// Tells whether the walls never stood, where nobody has waited for the keeper's first answer.
    pub(super) fn set_up_failure(&self) -> Option<Problem> {
        if !self.unanswered {
            return None;
        }
        let answer = lock(&self.keeper)
            .as_ref()
            .map(KeeperClient::finish_hello)?;
        answer.err().map(|error| self.complain(&error))
    }

    /// Closing the channel is the request to end everything. Another thread that waits for an answer
    /// holds it: a keeper that gives none is killed, which ends that wait.
    fn close_channel(&self) {
        let until = Instant::now() + LEAVE;
        loop {
            match self.keeper.try_lock() {
                Ok(mut keeper) => return drop(keeper.take()),
                Err(TryLockError::Poisoned(held)) => return drop(held.into_inner().take()),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => return,
            }
        }
    }

    /// Asks the keeper for a descriptor.
    pub(super) fn ask<T>(
        &self,
        request: impl Fn(&KeeperClient) -> Result<T, ClientError>,
    ) -> io::Result<T> {
        let keeper = lock(&self.keeper);
        let keeper = keeper.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        request(keeper).map_err(|error| match error {
            ClientError::Refused(refused) => io::Error::from_raw_os_error(refused.errno),
            other => io::Error::other(other.to_string()),
        })
    }

    fn end(&self) -> EndedBy {
        self.standing.store(false, Ordering::Release);
        self.undo.as_ref().inspect(|undo| undo.leave());
        lock(&self.idle).clear();
        lock(&self.keeping).clear();
        self.close_channel();
        let Some(process) = lock(&self.process).take() else {
            return EndedBy::Itself;
        };
        let grouped = self.limiter.kill();
        let gently = wait_for(&process.child, LEAVE);
        if !gently {
            let inner = process.inner().and_then(|inner| {
                let flags = rustix::process::PidfdFlags::empty();
                rustix::process::pidfd_open(inner, flags).ok()
            });
            if let Some(inner) = inner {
                let _ = cofferdam_sandbox::signal_pidfd(inner.as_fd(), SIGKILL);
            }
            let _ = cofferdam_sandbox::signal_pidfd(process.child.pidfd.as_fd(), SIGKILL);
            wait_for(&process.child, LEAVE);
        }
        if grouped {
            EndedBy::Cgroup
        } else if self.namespace {
            EndedBy::Namespace
        } else {
            EndedBy::Sweep
        }
    }

    /// Lets supervisors serve again whose trees are gone, and forgets those that are gone themselves.
    fn tidy(&self) {
        let mut keeping = lock(&self.keeping);
        let mut index = 0;
        while index < keeping.len() {
            let (_, supervisor) = &keeping[index];
            if !readable(supervisor.as_fd(), Duration::ZERO) {
                index += 1;
                continue;
            }
            let emptied = matches!(supervisor.receive(), Ok(SupervisorReply::Emptied));
            let (_, supervisor) = keeping.swap_remove(index);
            if emptied {
                self.recycle(supervisor);
            }
        }
    }

    pub(super) fn recycle(&self, supervisor: SupervisorClient) {
        let mut idle = lock(&self.idle);
        if self.standing.load(Ordering::Acquire) && idle.len() < IDLE_SUPERVISORS {
            idle.push(supervisor);
        }
    }

    fn environment(&self, command: &CommandSpec, own_only: bool) -> Vec<Vec<u8>> {
        let replaced = |name: &Variable| {
            own_only || command.environment.iter().any(|own| own.name == name.name)
        };
        self.environment
            .iter()
            .filter(|variable| !replaced(variable))
            .chain(&command.environment)
            .map(|variable| {
                let mut text = variable.name.as_bytes().to_vec();
                text.push(b'=');
                text.extend_from_slice(variable.value.as_bytes());
                text
            })
            .collect()
    }
}

impl Backend for KeeperBackend {
    fn start_with(
        &self,
        command: &CommandSpec,
        stdio: Stdio,
        extra: Extra,
    ) -> Result<Started, Problem> {
        let shared = &self.0;
        shared.tidy();
        let supervisor = shared.supervisor()?;
        let mut request = SpawnRequest {
            argv: command
                .argv
                .iter()
                .map(|word| word.as_bytes().to_vec())
                .collect(),
            env: shared.environment(command, extra.own_environment_only),
            cwd: command.cwd.as_bytes().to_vec(),
            descriptors: vec![0, 1, 2],
            controlling_terminal: false,
            limits: shared.limiter.of_process(&command.limits),
            oom_score_adjustment: Some(300),
            umask: None,
            extra_paths: Vec::new(),
            announce: false,
            linger_milliseconds: LINGER_MILLISECONDS,
            sweep_milliseconds: limits::SWEEP_MILLISECONDS as u32,
            keep_rest: extra.keep_rest,
        };
        let numbers = extra.descriptors.iter().map(|(_, number)| *number);
        request.descriptors.extend(numbers);
        let more = extra.descriptors.iter().map(|(file, _)| file.as_fd());
        let refused = |error: ClientError| {
            shared
                .set_up_failure()
                .unwrap_or_else(|| shared.lost(&error))
        };
        let master = match stdio {
            Stdio::Three(ends) => {
                let lent: Vec<BorrowedFd<'_>> = ends.iter().map(AsFd::as_fd).chain(more).collect();
                supervisor.spawn(request, &lent).map_err(refused)?;
                None
            }
            Stdio::Terminal(size) => {
                let keeper = lock(&shared.keeper);
                let keeper = keeper.as_ref().ok_or_else(gone)?;
                let terminal = keeper
                    .open_terminal(size.rows, size.columns)
                    .map_err(|error| {
                        Problem::new(
                            ErrorCode::SpawnFailed,
                            format!("cannot open a terminal for the command: {error}"),
                        )
                    })?;
                request.controlling_terminal = true;
                if shared.terminal_rule {
                    request.extra_paths = vec![PathRule {
                        path: terminal.name.clone(),
                        access: Access::Device,
                    }];
                }
                let slave = terminal.slave.as_fd();
                let lent: Vec<BorrowedFd<'_>> = [slave; 3].into_iter().chain(more).collect();
                supervisor.spawn(request, &lent).map_err(refused)?;
                Some(terminal.master)
            }
        };
        let program = command
            .argv
            .first()
            .map(ToString::to_string)
            .unwrap_or_default();
        let command = SupervisedCommand {
            supervisor: Some(supervisor),
            shared: Arc::clone(shared),
            program,
            cwd: command.cwd.to_string(),
        };
        Ok(Started {
            pid: None,
            command: Box::new(command),
            master,
            foreground: None,
        })
    }

    fn undo(&self) -> Option<&LastUndo> {
        self.0.undo.as_ref()
    }

    fn end(&self) -> EndedBy {
        self.0.end()
    }

    fn is_standing(&self) -> bool {
        self.0.standing.load(Ordering::Acquire)
    }

    fn file_worker(&self, root: &BytePath) -> Result<Box<dyn FileWorker>, Problem> {
        let shared = &self.0;
        let keeper = lock(&shared.keeper);
        let keeper = keeper.as_ref().ok_or_else(gone)?;
        let client =
            FileClient::start(keeper, root.as_bytes()).map_err(|error| shared.lost(&error))?;
        Ok(Box::new(InnerFiles {
            client,
            shared: Arc::clone(shared),
        }))
    }

    fn traces(&self, limit: Duration) -> Option<u64> {
        let shared = &self.0;
        let keeper = lock(&shared.keeper);
        let keeper = keeper.as_ref()?;
        keeper.begin_look(&shared.private, shared.namespace).ok()?;
        if readable(keeper.as_fd(), limit) {
            return keeper.finish_look().ok()?;
        }
        // Its answer would be taken for that to the next question.
        shared.standing.store(false, Ordering::Release);
        None
    }

    fn kept(&self) -> Vec<u64> {
        self.0.tidy();
        lock(&self.0.keeping)
            .iter()
            .map(|(number, _)| *number)
            .collect()
    }

    fn end_kept(&self, number: u64) {
        let ended = {
            let mut keeping = lock(&self.0.keeping);
            let place = keeping.iter().position(|(own, _)| *own == number);
            place.map(|place| keeping.swap_remove(place).1)
        };
        let Some(supervisor) = ended else { return };
        let limit = Duration::from_millis(limits::SWEEP_MILLISECONDS) + LEAVE;
        // A supervisor that does not answer loses its channel here, and its keeper sweeps.
        if supervisor.end_tree().is_ok()
            && readable(supervisor.as_fd(), limit)
            && matches!(supervisor.receive(), Ok(SupervisorReply::Emptied))
        {
            self.0.recycle(supervisor);
        }
    }

    fn prove(&self, limit: Duration) -> bool {
        if !self.is_standing() {
            return false;
        }
        let Ok(supervisor) = self.0.supervisor() else {
            return false;
        };
        let answers = supervisor.ping().is_ok()
            && readable(supervisor.as_fd(), limit)
            && matches!(supervisor.receive(), Ok(SupervisorReply::Pong));
        if answers {
            self.0.recycle(supervisor);
        }
        answers
    }

    fn limiter(&self) -> Option<&Limiter> {
        Some(&self.0.limiter)
    }

    fn network(&self) -> Option<Arc<dyn InnerNetwork>> {
        self.0
            .network
            .then(|| Arc::clone(&self.0) as Arc<dyn InnerNetwork>)
    }
}

impl Drop for KeeperBackend {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for a child of ours to end and takes its status; false when it did not in time.
fn wait_for(child: &Spawned, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&child.pidfd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => {
                // The host program may have reaped it: then there is no status, and it is over.
                let _ = cofferdam_sandbox::try_wait_pid(child.pid);
                return true;
            }
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}

/// Waits until something can be read, at most this long.
fn readable(channel: BorrowedFd<'_>, limit: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    };
    let mut fds = [PollFd::from_borrowed_fd(channel, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(ready) if ready > 0)
}

/// Lists the directories in which a command can leave something that nobody else sees.
fn private_places(spec: &EnclosureSpec) -> Vec<Vec<u8>> {
    if !spec.scratch.is_empty() {
        let places = ["home", "tmp"].map(|name| spec.scratch.join(name).into_bytes());
        return places.into();
    }
    let is_frozen = |path: &BytePath| {
        spec.mounts
            .iter()
            .any(|mount| matches!(mount, Mount::ReadOnly { target } if target == path))
    };
    spec.mounts
        .iter()
        .filter_map(|mount| match mount {
            Mount::Temporary { target, .. } if !is_frozen(target) => Some(target.clone()),
            Mount::Devices { target } => Some(target.join("shm")),
            _ => None,
        })
        .map(BytePath::into_bytes)
        .collect()
}

fn gone() -> Problem {
    Problem::new(ErrorCode::EnclosureLost, "the enclosure was taken down")
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
