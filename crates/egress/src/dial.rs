//! From names to addresses to connections.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use cofferdam_core::hosts::HostName;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::wait::{WaitEnd, wait_for};

/// Finds the addresses of a name. It is asked once per connection; the proxy keeps no cache.
pub trait Resolver: Send + Sync {
    /// Gives the addresses in the order in which they should be tried.
    fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>>;
}

/// Asks the machine's own resolver, as every program on it does.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        let found = (name.as_str(), 0).to_socket_addrs()?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Connects to an address that was checked.
pub trait Dialer: Send + Sync {
    /// Connects within `limit`; gives up as soon as `stop` becomes readable.
    ///
    /// It must dial exactly this address.
    fn dial(
        &self,
        address: SocketAddr,
        limit: Duration,
        stop: BorrowedFd<'_>,
    ) -> io::Result<TcpStream>;
}

/// Connects from the machine's own network.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDialer;

impl Dialer for SystemDialer {
    fn dial(
        &self,
        address: SocketAddr,
        limit: Duration,
        stop: BorrowedFd<'_>,
    ) -> io::Result<TcpStream> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let deadline = Instant::now() + limit;
        let stream = TcpStream::from(socket);
        match wait_for(
            std::os::fd::AsFd::as_fd(&stream),
            PollFlags::OUT,
            stop,
            deadline,
        ) {
            Ok(()) => {}
            Err(WaitEnd::Deadline) => return Err(io::ErrorKind::TimedOut.into()),
            Err(WaitEnd::Stopped) => return Err(io::ErrorKind::Interrupted.into()),
            Err(WaitEnd::Broken) => return Err(io::ErrorKind::Other.into()),
        }
        sockopt::socket_error(&stream)??;
        Ok(stream)
    }
}
