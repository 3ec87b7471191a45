//! Blocking clients for the plane.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_sandbox::SandboxError;

use crate::channel::{ChannelError, receive, send};
use crate::protocol::{
    Hello, KeeperReply, KeeperRequest, PROTOCOL_VERSION, Ready, Setup, SignalTarget, SpawnRequest,
    SupervisorReply, SupervisorRequest,
};

/// Says why a keeper, supervisor or worker did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The channel failed; `Closed` means that the other side is gone.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// It tried, and the kernel refused.
    #[error(transparent)]
    Refused(SandboxError),
    /// It answered something else than what was asked.
    #[error("unexpected answer {answer}")]
    Unexpected {
        /// The answer, for a developer's eyes.
        answer: String,
    },
    /// It speaks another version.
    #[error("keeper speaks version {theirs}, not {PROTOCOL_VERSION}")]
    Version {
        /// Its version.
        theirs: u32,
    },
}

impl ClientError {
    /// Gives the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Channel(error) => error.code(),
            Self::Refused(error) => error.code(),
            Self::Unexpected { .. } => "unexpected_answer",
            Self::Version { .. } => "keeper_version",
        }
    }
}

pub(crate) fn unexpected(answer: &impl std::fmt::Debug) -> ClientError {
    ClientError::Unexpected {
        answer: format!("{answer:?}"),
    }
}

/// Holds a terminal that a keeper opened.
#[derive(Debug)]
pub struct OpenedTerminal {
    /// The plane's side.
    pub master: OwnedFd,
    /// The command's side, to be passed as its descriptors 0 to 2.
    pub slave: OwnedFd,
    /// The slave's path inside.
    pub name: Vec<u8>,
}

/// Talks to a keeper. Dropping it ends everything that the keeper guards.
#[derive(Debug)]
pub struct KeeperClient {
    socket: OwnedFd,
}

impl KeeperClient {
    /// Takes the plane's end of the channel whose other end the keeper was started with.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends the first request and gives a client for each of `supervisors` supervisors, which may
    /// be used at once; [`KeeperClient::finish_hello`] takes the answer.
    pub fn begin_hello(
        &self,
        setup: &Setup,
        supervisors: usize,
    ) -> Result<Vec<SupervisorClient>, ClientError> {
        let mut ours = Vec::with_capacity(supervisors);
        let mut theirs = Vec::with_capacity(supervisors);
        for _ in 0..supervisors {
            let (own, other) = cofferdam_sandbox::message_pair().map_err(ChannelError::from)?;
            ours.push(SupervisorClient::new(own));
            theirs.push(other);
        }
        let lent: Vec<BorrowedFd<'_>> = theirs.iter().map(AsFd::as_fd).collect();
        let hello = Hello {
            version: PROTOCOL_VERSION,
            setup: setup.clone(),
        };
        send(&self.socket, &KeeperRequest::Hello(hello), &lent)?;
        Ok(ours)
    }

    /// Waits for the answer to [`KeeperClient::begin_hello`].
    pub fn finish_hello(&self) -> Result<Ready, ClientError> {
        match self.receive()?.0 {
            KeeperReply::Ready(ready) if ready.version == PROTOCOL_VERSION => Ok(ready),
            KeeperReply::Ready(ready) => Err(ClientError::Version {
                theirs: ready.version,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Does both halves of the greeting.
    pub fn hello(
        &self,
        setup: &Setup,
        supervisors: usize,
    ) -> Result<(Ready, Vec<SupervisorClient>), ClientError> {
        let clients = self.begin_hello(setup, supervisors)?;
        Ok((self.finish_hello()?, clients))
    }

    /// Starts one more supervisor; gives its process id inside, too.
    pub fn new_supervisor(&self) -> Result<(i32, SupervisorClient), ClientError> {
        let (pid, socket) = self.start(&KeeperRequest::NewSupervisor)?;
        Ok((pid, SupervisorClient::new(socket)))
    }

    /// Gives the only supervisor that a one-command enclosure has. Does not wait: the supervisor may
    /// be used at once, right after [`KeeperClient::begin_hello`] with no supervisors.
    ///
    /// Afterwards the keeper answers no requests. If the supervisor's channel closes before its
    /// command has ended, [`KeeperClient::finish_hello`] tells whether the set-up failed. Keep this
    /// client as long as the enclosure: closing it ends it.
    pub fn last_supervisor(&self) -> Result<SupervisorClient, ClientError> {
        let (own, other) = cofferdam_sandbox::message_pair().map_err(ChannelError::from)?;
        send(
            &self.socket,
            &KeeperRequest::LastSupervisor,
            &[other.as_fd()],
        )?;
        Ok(SupervisorClient::new(own))
    }

    pub(crate) fn start(&self, request: &KeeperRequest) -> Result<(i32, OwnedFd), ClientError> {
        let (own, other) = cofferdam_sandbox::message_pair().map_err(ChannelError::from)?;
        match self.call(request, &[other.as_fd()])?.0 {
            KeeperReply::Started { pid } => Ok((pid, own)),
            reply => Err(unexpected(&reply)),
        }
    }

    /// Ends a supervisor or file worker that does not answer, with everything below it.
    pub fn end_child(&self, pid: i32) -> Result<(), ClientError> {
        self.done(&KeeperRequest::EndChild { pid })
    }

    /// Opens a terminal of the enclosure.
    pub fn open_terminal(&self, rows: u16, columns: u16) -> Result<OpenedTerminal, ClientError> {
        let request = KeeperRequest::OpenTerminal { rows, columns };
        match self.call(&request, &[])? {
            (KeeperReply::Terminal { name }, descriptors) => {
                let [master, slave] = <[OwnedFd; 2]>::try_from(descriptors)
                    .map_err(|descriptors| unexpected(&descriptors))?;
                Ok(OpenedTerminal {
                    master,
                    slave,
                    name,
                })
            }
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    /// Opens a listening socket inside; gives where it listens, too.
    pub fn listen(&self, address: SocketAddr) -> Result<(SocketAddr, OwnedFd), ClientError> {
        match self.call(&KeeperRequest::Listen { address }, &[])? {
            (KeeperReply::Listening { address }, mut descriptors) if descriptors.len() == 1 => {
                Ok((address, descriptors.remove(0)))
            }
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    /// Makes a TCP socket inside that is not connected: connecting it, and waiting for that, is up to
    /// the caller.
    pub fn open_socket(&self, ipv6: bool) -> Result<OwnedFd, ClientError> {
        match self.call(&KeeperRequest::OpenSocket { ipv6 }, &[])? {
            (KeeperReply::Socket, mut descriptors) if descriptors.len() == 1 => {
                Ok(descriptors.remove(0))
            }
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    /// Opens the lists of TCP sockets of the inside, of IPv4 and then of IPv6 where there is any, in
    /// the form of `/proc/net/tcp`, which can be read again and again, from offset 0; or, by netlink,
    /// a socket of `NETLINK_SOCK_DIAG`.
    pub fn open_socket_tables(&self, by_netlink: bool) -> Result<Vec<OwnedFd>, ClientError> {
        match self.call(&KeeperRequest::OpenSocketTables { by_netlink }, &[])? {
            (KeeperReply::SocketTables, descriptors) if !descriptors.is_empty() => Ok(descriptors),
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    /// Asks whether anything was left in the private places of the enclosure; the answer comes by
    /// [`KeeperClient::finish_look`].
    pub fn begin_look(&self, roots: &[Vec<u8>], ipc: bool) -> Result<(), ClientError> {
        let request = KeeperRequest::LookForTraces {
            roots: roots.to_vec(),
            ipc,
        };
        Ok(send(&self.socket, &request, &[])?)
    }

    /// Waits for the answer to [`KeeperClient::begin_look`]: the same number for the same state,
    /// `None` where there is too much to look at.
    pub fn finish_look(&self) -> Result<Option<u64>, ClientError> {
        match self.receive()?.0 {
            KeeperReply::Traces(traces) => Ok(traces),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for a sign of life.
    pub fn ping(&self) -> Result<(), ClientError> {
        self.done(&KeeperRequest::Ping)
    }

    /// Asks the keeper to end everything and leave. Closing the channel means the same.
    pub fn end(self) -> Result<(), ClientError> {
        Ok(send(&self.socket, &KeeperRequest::End, &[])?)
    }

    fn done(&self, request: &KeeperRequest) -> Result<(), ClientError> {
        match self.call(request, &[])?.0 {
            KeeperReply::Done => Ok(()),
            reply => Err(unexpected(&reply)),
        }
    }

    fn call(
        &self,
        request: &KeeperRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(KeeperReply, Vec<OwnedFd>), ClientError> {
        send(&self.socket, request, descriptors)?;
        self.receive()
    }

    fn receive(&self) -> Result<(KeeperReply, Vec<OwnedFd>), ClientError> {
        match receive(&self.socket)? {
            (KeeperReply::Failed(failure), _) => Err(ClientError::Refused(failure.into())),
            reply => Ok(reply),
        }
    }
}

impl AsFd for KeeperClient {
    /// Lends the channel, to be polled: readable without a request means that the keeper is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Talks to a supervisor, which runs one command at a time. Dropping it ends the command's tree and
/// the supervisor.
#[derive(Debug)]
pub struct SupervisorClient {
    socket: OwnedFd,
}

impl SupervisorClient {
    /// Takes the plane's end of a supervisor's channel.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a command with its descriptors; answers come by [`SupervisorClient::receive`].
    pub fn spawn(
        &self,
        request: SpawnRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        Ok(send(
            &self.socket,
            &SupervisorRequest::Spawn(Box::new(request)),
            descriptors,
        )?)
    }

    /// Sends a signal to the command, or to everything that it started.
    pub fn signal(&self, target: SignalTarget, number: i32) -> Result<(), ClientError> {
        Ok(send(
            &self.socket,
            &SupervisorRequest::Signal { target, number },
            &[],
        )?)
    }

    /// Ends the command and everything that it started; `Exited` follows if it still ran.
    pub fn end_tree(&self) -> Result<(), ClientError> {
        Ok(send(&self.socket, &SupervisorRequest::EndTree, &[])?)
    }

    /// Asks for a sign of life; `Pong` follows.
    pub fn ping(&self) -> Result<(), ClientError> {
        Ok(send(&self.socket, &SupervisorRequest::Ping, &[])?)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Closed`] when the supervisor is gone: its command ended it, or its keeper.
    pub fn receive(&self) -> Result<SupervisorReply, ClientError> {
        Ok(receive(&self.socket)?.0)
    }
}

impl AsFd for SupervisorClient {
    /// Lends the channel, to be polled beside the command's output.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
