//! The loop that takes connections, joins them, and looks for new listeners inside.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cofferdam_core::event::event_type;
use cofferdam_core::ports::{PublishedPort, ReachAddress};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde_json::json;

use super::connection::{Connection, Dial};
use super::lookout::Lookout;
use super::{Listener, Route, State, outer_listeners};
use crate::backend::InnerNetwork;

/// Time between two looks at what listens inside.
const LOOK: Duration = Duration::from_millis(250);
/// Connections at once; more wait to be taken. Each costs two descriptors.
const MOST_CONNECTIONS: usize = 256;
/// Ports that are opened outside at once without having been named.
const MOST_AUTOMATIC: usize = 64;
/// Bytes that are moved in one step.
const CHUNK: usize = 256 * 1024;
/// How long no connection is taken after one could not be: no descriptor may be left.
const PAUSE: Duration = Duration::from_millis(50);

/// Sockets of the plane's own network.
struct Outside;

impl Dial for Outside {
    fn socket(&self, target: &SocketAddr) -> io::Result<OwnedFd> {
        let family = if target.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(rustix::net::socket_with(
            family,
            SocketType::STREAM,
            flags,
            None,
        )?)
    }
}

/// Sockets of the enclosure's network.
struct Inside<'a>(&'a dyn InnerNetwork);

impl Dial for Inside<'_> {
    fn socket(&self, target: &SocketAddr) -> io::Result<OwnedFd> {
        self.0.open_socket(target.is_ipv6())
    }
}

/// A connection and where its far side is.
struct Joined {
    connection: Connection,
    is_inside: bool,
}

pub(super) struct Forwarder {
    state: Arc<State>,
    lookout: Lookout,
    listeners: Vec<Listener>,
    connections: Vec<Joined>,
    automatic: bool,
    /// Ports that were opened outside because something inside listens there.
    opened: BTreeMap<u16, PublishedPort>,
    reached: BTreeSet<ReachAddress>,
    next_look: Instant,
    paused_until: Option<Instant>,
    buffer: Vec<u8>,
}

impl Forwarder {
    pub(super) fn new(
        state: Arc<State>,
        lookout: Lookout,
        listeners: Vec<Listener>,
        automatic: bool,
    ) -> Self {
        Self {
            state,
            lookout,
            listeners,
            connections: Vec::new(),
            automatic,
            opened: BTreeMap::new(),
            reached: BTreeSet::new(),
            next_look: Instant::now(),
            paused_until: None,
            buffer: vec![0; CHUNK],
        }
    }

    /// Serves until the end is asked for.
    pub(super) fn run(mut self) {
        while !self.state.stop.load(Ordering::Acquire) {
            if Instant::now() >= self.next_look {
                self.look();
                self.next_look = Instant::now() + LOOK;
            }
            let (accepting, ready) = self.wait();
            let (taken, moved) = ready.split_at(accepting.min(ready.len()));
            self.advance(moved);
            self.accept(taken);
        }
    }

    /// Waits for something to do; gives how many listeners were waited for, and what is ready: of
    /// those first, then of both sides of each connection.
    fn wait(&mut self) -> (usize, Vec<PollFlags>) {
        let now = Instant::now();
        self.paused_until = self.paused_until.filter(|until| *until > now);
        let is_open = self.paused_until.is_none() && self.connections.len() < MOST_CONNECTIONS;
        let accepting = if is_open { self.listeners.len() } else { 0 };
        let interests: Vec<_> = self
            .connections
            .iter()
            .map(|one| one.connection.interest())
            .collect();
        let mut fds = vec![PollFd::new(&self.state.wake, PollFlags::IN)];
        fds.extend(
            self.listeners[..accepting]
                .iter()
                .map(|one| PollFd::new(&one.socket, PollFlags::IN)),
        );
        // Where each side stands in the list, if it does.
        let mut places = Vec::with_capacity(interests.len() * 2);
        for (one, interest) in self.connections.iter().zip(&interests) {
            for (fd, flags) in [
                (one.connection.near(), interest.near),
                (one.connection.far(), interest.far),
            ] {
                if flags.is_empty() {
                    places.push(None);
                } else {
                    places.push(Some(fds.len()));
                    fds.push(PollFd::from_borrowed_fd(fd, flags));
                }
            }
        }
        let until = [Some(self.next_look), self.paused_until];
        let timeout = until.into_iter().flatten().min().map(|until| {
            let left = until.saturating_duration_since(now);
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted by a signal of the host program: look again.
            return (0, Vec::new());
        }
        let mut ready: Vec<_> = fds[1..=accepting].iter().map(PollFd::revents).collect();
        ready.extend(
            places
                .into_iter()
                .map(|place| place.map_or(PollFlags::empty(), |index| fds[index].revents())),
        );
        (accepting, ready)
    }

    fn advance(&mut self, ready: &[PollFlags]) {
        let mut sides = ready.chunks_exact(2);
        let (network, buffer) = (&self.lookout.network, &mut self.buffer);
        self.connections.retain_mut(|one| {
            let Some([near, far]) = sides.next() else {
                return true;
            };
            if near.is_empty() && far.is_empty() {
                return true;
            }
            let inside = Inside(network.as_ref());
            let dial: &dyn Dial = if one.is_inside { &inside } else { &Outside };
            one.connection.advance(*near, *far, dial, buffer)
        });
    }

    fn accept(&mut self, ready: &[PollFlags]) {
        for (index, flags) in ready.iter().enumerate() {
            if flags.is_empty() {
                continue;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let near = match rustix::net::accept_with(&self.listeners[index].socket, flags) {
                Ok(near) => near,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => continue,
                Err(_) => {
                    self.paused_until = Some(Instant::now() + PAUSE);
                    return;
                }
            };
            let route = self.listeners[index].route.clone();
            let begun = match &route {
                Route::Reach { service, at } => {
                    if self.reached.insert(service.clone()) {
                        self.tell_reached(service);
                    }
                    // Where it was connected to comes first, its other family after it.
                    let others = service.sockets().into_iter().filter(|one| one != at);
                    Connection::begin(near, std::iter::once(*at).chain(others), &Outside)
                }
                Route::Publish { inside } => {
                    let dial = Inside(self.lookout.network.as_ref());
                    Connection::begin(near, self.targets(*inside), &dial)
                }
            };
            if let Ok(connection) = begun {
                self.connections.push(Joined {
                    connection,
                    is_inside: matches!(route, Route::Publish { .. }),
                });
            }
        }
    }

    /// Where a port inside may answer: both loopbacks, and what it was seen to listen on.
    fn targets(&self, port: u16) -> Vec<SocketAddr> {
        let mut addresses: Vec<IpAddr> =
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        if let Some(seen) = self.lookout.listening.get(&port) {
            // What listens everywhere listens on loopback, too.
            addresses.extend(
                seen.iter()
                    .filter(|one| !one.is_unspecified() && !one.is_loopback()),
            );
            let (seen_first, rest): (Vec<_>, Vec<_>) =
                addresses.into_iter().partition(|one| seen.contains(one));
            addresses = seen_first.into_iter().chain(rest).collect();
            addresses.extend(seen.iter().filter(|one| one.is_loopback()));
            let mut known = BTreeSet::new();
            addresses.retain(|one| known.insert(*one));
        }
        addresses
            .into_iter()
            .map(|address| SocketAddr::new(address, port))
            .collect()
    }

    /// Looks at what listens inside, and tells what is new and what is gone.
    fn look(&mut self) {
        let changed = self.lookout.look();
        for port in changed.gone {
            let closed = self.opened.remove(&port);
            if closed.is_some() {
                self.listeners.retain(
                    |one| !matches!(one.route, Route::Publish { inside } if inside == port),
                );
            }
            self.lookout.tell_listening(port, "gone", None);
        }
        for port in changed.new {
            let named = self
                .listeners
                .iter()
                .any(|one| matches!(one.route, Route::Publish { inside } if inside == port));
            let opened = (self.automatic && !named)
                .then(|| self.open(port))
                .flatten();
            let address = match &opened {
                Some(opened) => Some(opened.address.clone()),
                None => named.then(|| self.named_address(port)).flatten(),
            };
            self.lookout.tell_listening(port, "listening", address);
            if let Some(opened) = opened {
                self.state.publish(&self.lookout.teller, opened);
            }
        }
    }

    /// Opens a port outside, of the same number where that is free.
    fn open(&mut self, port: u16) -> Option<PublishedPort> {
        if self.opened.len() >= MOST_AUTOMATIC {
            return None;
        }
        let (listeners, published) = outer_listeners(port, port)
            .or_else(|_| outer_listeners(0, port))
            .ok()?;
        self.listeners.extend(listeners);
        self.opened.insert(port, published.clone());
        Some(published)
    }

    fn named_address(&self, port: u16) -> Option<String> {
        let published = super::lock(&self.state.published);
        let found = published.iter().find(|one| one.port == port);
        found.map(|one| one.address.clone())
    }

    fn tell_reached(&self, service: &ReachAddress) {
        let data = json!({
            "enclosure_id": self.lookout.teller.enclosure,
            "host": service.host(),
            "port": service.port(),
            "verdict": "allow",
            "rule": format!("reach {service}"),
        });
        self.lookout.tell(event_type::NET_DECIDED, data);
    }
}
