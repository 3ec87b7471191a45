//! The keeper itself: one loop over its channel and its children.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_sandbox::{
    ChildSignals, Filter, Reap, SandboxError, Step, Sweep, Swept, apply_mounts, build_ruleset,
    drop_all_capabilities, fork_and_run, open_terminal, reap_any, set_dumpable, set_process_name,
    set_subreaper, signal_pid, sweep, take_inherited, traces,
};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::channel::{ChannelError, receive, send};
use crate::files;
use crate::protocol::{Hello, KeeperReply, KeeperRequest, PROTOCOL_VERSION, Ready, Setup};
use crate::supervisor::{self, Walls};
use crate::undo;

const SWEEP: Duration = Duration::from_secs(2);
const BACKLOG: i32 = 128;

/// Connects to the socket on which the plane waits, and gives the number of the channel.
///
/// # Errors
///
/// The system's, when nobody waits there.
pub fn connect(path: &str) -> std::io::Result<RawFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // The numbers below are the standard streams'; whoever starts us may have left them closed.
    let socket = rustix::io::fcntl_dupfd_cloexec(&socket, 3)?;
    rustix::net::connect(&socket, &rustix::net::SocketAddrUnix::new(path)?)?;
    Ok(socket.into_raw_fd())
}

/// Runs the keeper on the channel with this number until the channel closes.
///
/// For the keeper's own program: the process becomes a subreaper, not dumpable, and ends everything
/// below it before this returns. With the number of a memory file as [`crate::UndoTable`] tells of
/// it, protected names are put back at the end, once nothing runs any more.
pub fn run(channel: RawFd, undo: Option<RawFd>) -> ExitCode {
    let Ok((socket, undo)) = take_inherited(channel, undo) else {
        return ExitCode::from(125);
    };
    let undo = undo.map(File::from);
    set_process_name(c"cofferdam-keep");
    let prepared = set_dumpable(false)
        .and_then(|()| set_subreaper())
        .and_then(|()| ChildSignals::new());
    let Ok(signals) = prepared else {
        return ExitCode::from(125);
    };
    let mut keeper = Keeper {
        socket,
        walls: Walls::default(),
        known: BTreeSet::new(),
        listeners: Vec::new(),
        ready: false,
    };
    if let Some(only) = keeper.serve(&signals) {
        drop(signals);
        supervisor::serve(&only, &keeper.walls, Some(&keeper.socket));
    }
    if rustix::process::getpid() == rustix::process::Pid::INIT {
        // The kernel ends the rest of the namespace with its first process.
        return ExitCode::SUCCESS;
    }
    match sweep(SWEEP, &BTreeSet::new(), |_| ()) {
        Ok(Sweep {
            swept: Swept::NothingLeft | Swept::Ended,
            ..
        }) => {
            undo.as_ref().inspect(|shared| undo::put_back(shared));
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    }
}

struct Keeper {
    socket: OwnedFd,
    walls: Walls,
    /// Supervisors and file workers.
    known: BTreeSet<i32>,
    /// Listeners that were made before capabilities were given up, until somebody asks for them.
    listeners: Vec<(SocketAddr, OwnedFd)>,
    ready: bool,
}

/// An answer with its descriptors.
type Answer = (KeeperReply, Vec<OwnedFd>);

impl Keeper {
    /// Serves until the channel closes, or until the keeper shall go on as supervisor of a channel.
    fn serve(&mut self, signals: &ChildSignals) -> Option<OwnedFd> {
        loop {
            let mut waiting = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(signals, PollFlags::IN),
            ];
            match rustix::event::poll(&mut waiting, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
            let (asked, ended) = (
                !waiting[0].revents().is_empty(),
                !waiting[1].revents().is_empty(),
            );
            if ended {
                signals.drain();
                self.reap();
            }
            if asked {
                match self.answer() {
                    Ok(Go::On) => {}
                    Ok(Go::Become(only)) => return Some(only),
                    Ok(Go::Leave) | Err(_) => return None,
                }
            }
        }
    }

    /// Takes ended children away. What a supervisor that vanished leaves behind has fallen to us:
    /// it is ended.
    fn reap(&mut self) {
        let mut lost = false;
        while let Ok(Reap::Ended(reaped)) = reap_any() {
            lost |= self.known.remove(&reaped.pid);
        }
        if lost {
            self.end_unknown();
        }
    }

    fn end_unknown(&mut self) {
        let spared = self.known.clone();
        let known = &mut self.known;
        // A failure leaves the rest to whoever takes the enclosure down: the plane sees the
        // supervisor's channel close and does that.
        let _ = sweep(SWEEP, &spared, |reaped| {
            known.remove(&reaped.pid);
        });
    }

    fn answer(&mut self) -> Result<Go, ChannelError> {
        let (request, descriptors) = receive::<KeeperRequest>(&self.socket)?;
        let (request, descriptors) = match request {
            KeeperRequest::End => return Ok(Go::Leave),
            KeeperRequest::LastSupervisor if self.may_become_supervisor() => {
                let Ok(only) = one(descriptors) else {
                    return Ok(Go::Leave);
                };
                let pid = rustix::process::getpid().as_raw_nonzero().get();
                send(&self.socket, &KeeperReply::Started { pid }, &[])?;
                return Ok(Go::Become(only));
            }
            KeeperRequest::LastSupervisor => (KeeperRequest::NewSupervisor, descriptors),
            other => (other, descriptors),
        };
        let (reply, lent) = match self.act(request, descriptors) {
            Ok(answer) => answer,
            Err(error) => (KeeperReply::Failed(error.into()), Vec::new()),
        };
        let lent: Vec<BorrowedFd<'_>> = lent.iter().map(AsFd::as_fd).collect();
        send(&self.socket, &reply, &lent)?;
        Ok(Go::On)
    }

    /// Only as first process of a namespace: there nothing inside can end us, so that nobody has to
    /// stand behind us to sweep, and there must be nothing else that a sweep would meet.
    fn may_become_supervisor(&self) -> bool {
        let first = rustix::process::getpid() == rustix::process::Pid::INIT;
        first && self.ready && self.known.is_empty()
    }

    fn act(&mut self, request: KeeperRequest, given: Vec<OwnedFd>) -> Result<Answer, SandboxError> {
        let plain = |reply| Ok((reply, Vec::new()));
        match request {
            KeeperRequest::Hello(hello) => plain(KeeperReply::Ready(self.greet(hello, given)?)),
            _ if !self.ready => Err(SandboxError::new(
                Step::Prepare,
                Errno::PROTO.raw_os_error(),
            )),
            KeeperRequest::NewSupervisor | KeeperRequest::LastSupervisor => {
                let pid = self.start_supervisor(&one(given)?)?;
                plain(KeeperReply::Started { pid })
            }
            KeeperRequest::NewFileWorker { root } => {
                let pid = self.start_file_worker(&one(given)?, &root)?;
                plain(KeeperReply::Started { pid })
            }
            KeeperRequest::EndChild { pid } => {
                if self.known.contains(&pid) {
                    signal_pid(pid, SIGKILL)?;
                    self.end_unknown_and(pid);
                }
                plain(KeeperReply::Done)
            }
            KeeperRequest::OpenTerminal { rows, columns } => {
                let terminal = open_terminal(rows, columns)?;
                Ok((
                    KeeperReply::Terminal {
                        name: terminal.name,
                    },
                    vec![terminal.master, terminal.slave],
                ))
            }
            KeeperRequest::Listen { address } => {
                let prepared = self.listeners.iter().position(|(at, _)| *at == address);
                let (address, socket) = match prepared {
                    Some(index) => self.listeners.swap_remove(index),
                    None => listen(address)?,
                };
                Ok((KeeperReply::Listening { address }, vec![socket]))
            }
            KeeperRequest::OpenSocket { ipv6 } => {
                let family = if ipv6 {
                    AddressFamily::INET6
                } else {
                    AddressFamily::INET
                };
                Ok((KeeperReply::Socket, vec![tcp_socket(family)?]))
            }
            KeeperRequest::OpenSocketTables { by_netlink: true } => {
                Ok((KeeperReply::SocketTables, vec![diagnosis()?]))
            }
            KeeperRequest::OpenSocketTables { by_netlink: false } => {
                let mut tables = vec![socket_table(c"/proc/self/net/tcp")?];
                // A kernel without IPv6 has no list of it.
                tables.extend(socket_table(c"/proc/self/net/tcp6"));
                Ok((KeeperReply::SocketTables, tables))
            }
            KeeperRequest::LookForTraces { roots, ipc } => {
                plain(KeeperReply::Traces(traces(&roots, ipc)))
            }
            KeeperRequest::Ping | KeeperRequest::End => plain(KeeperReply::Done),
        }
    }

    fn end_unknown_and(&mut self, pid: i32) {
        self.known.remove(&pid);
        self.end_unknown();
    }

    fn greet(&mut self, hello: Hello, given: Vec<OwnedFd>) -> Result<Ready, SandboxError> {
        if self.ready {
            return Err(SandboxError::new(
                Step::Prepare,
                Errno::ALREADY.raw_os_error(),
            ));
        }
        if hello.version != PROTOCOL_VERSION {
            return Err(SandboxError::new(
                Step::Prepare,
                Errno::PROTO.raw_os_error(),
            ));
        }
        self.listeners = prepare_listeners(&hello.setup.listeners);
        self.walls = set_up(&hello.setup)?;
        self.ready = true;
        let supervisors = given
            .iter()
            .map(|socket| self.start_supervisor(socket))
            .collect::<Result<Vec<i32>, SandboxError>>()?;
        Ok(Ready {
            version: PROTOCOL_VERSION,
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            supervisors,
            skipped_paths: self
                .walls
                .ruleset
                .as_mut()
                .map(|ruleset| std::mem::take(&mut ruleset.skipped))
                .unwrap_or_default(),
        })
    }

    fn start_supervisor(&mut self, socket: &OwnedFd) -> Result<i32, SandboxError> {
        let pid = fork(&self.walls, socket, |walls| {
            supervisor::serve(socket, walls, None)
        })?;
        self.known.insert(pid);
        Ok(pid)
    }

    fn start_file_worker(&mut self, socket: &OwnedFd, root: &[u8]) -> Result<i32, SandboxError> {
        let pid = fork(&self.walls, socket, |walls| {
            files::serve(socket, walls, root)
        })?;
        self.known.insert(pid);
        Ok(pid)
    }
}

const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

/// A copy of the keeper that holds its channel and the ruleset, and nothing else.
fn fork(
    walls: &Walls,
    socket: &OwnedFd,
    body: impl FnOnce(&Walls) -> i32,
) -> Result<i32, SandboxError> {
    let mut kept = vec![socket.as_fd()];
    kept.extend(walls.ruleset.as_ref().map(|ruleset| ruleset.fd.as_fd()));
    fork_and_run(&kept, || body(walls))
}

enum Go {
    On,
    Become(OwnedFd),
    Leave,
}

fn one(mut given: Vec<OwnedFd>) -> Result<OwnedFd, SandboxError> {
    match given.pop() {
        Some(only) if given.is_empty() => Ok(only),
        _ => Err(SandboxError::new(
            Step::Prepare,
            Errno::INVAL.raw_os_error(),
        )),
    }
}

fn set_up(setup: &Setup) -> Result<Walls, SandboxError> {
    apply_mounts(&setup.mounts)?;
    if setup.drop_capabilities {
        drop_all_capabilities()?;
        // Giving capabilities up is a change of identity that may make us readable again.
        set_dumpable(false)?;
    }
    let ruleset = if setup.landlock.is_empty() {
        None
    } else {
        Some(build_ruleset(&setup.landlock)?)
    };
    let seccomp = setup
        .seccomp
        .map(|options| Filter::new(options).compile())
        .transpose()?;
    Ok(Walls {
        plan: setup.landlock.clone(),
        ruleset,
        seccomp,
    })
}

/// Makes listeners while that is allowed. One that fails is tried again when it is asked for, which
/// tells why.
fn prepare_listeners(wanted: &[SocketAddr]) -> Vec<(SocketAddr, OwnedFd)> {
    wanted.iter().filter_map(|at| listen(*at).ok()).collect()
}

fn tcp_socket(family: AddressFamily) -> Result<OwnedFd, SandboxError> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| SandboxError::new(Step::Listen, errno.raw_os_error()))
}

/// Makes a socket that tells about the sockets of this network.
fn diagnosis() -> Result<OwnedFd, SandboxError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(rustix::net::netlink::SOCK_DIAG);
    rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)
        .map_err(|errno| SandboxError::new(Step::Listen, errno.raw_os_error()))
}

fn socket_table(path: &std::ffi::CStr) -> Result<OwnedFd, SandboxError> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .map_err(|errno| SandboxError::new(Step::Listen, errno.raw_os_error()))
}

fn listen(address: SocketAddr) -> Result<(SocketAddr, OwnedFd), SandboxError> {
    let failed = |errno: Errno| SandboxError::new(Step::Listen, errno.raw_os_error());
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = tcp_socket(family)?;
    rustix::net::bind(&socket, &address).map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
    let bound = rustix::net::getsockname(&socket).map_err(failed)?;
    let bound = SocketAddr::try_from(bound).map_err(failed)?;
    Ok((bound, socket))
}
