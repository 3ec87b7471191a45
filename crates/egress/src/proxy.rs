//! The proxy as its owner sees it: start, replace the rules, stop.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cofferdam_core::hosts::HostPort;
use rustix::event::{PollFd, PollFlags};

use crate::authority::Termination;
use crate::connection::{Connection, Room};
use crate::decision::{NetEvent, Observer, Reason};
use crate::dial::{Dialer, Resolver, SystemDialer, SystemResolver};
use crate::error::EgressError;
use crate::gate::is_still_allowed;
use crate::hold::{Ask, Holds};
use crate::inspect::is_seen;
use crate::limits::Limits;
use crate::policy::{EgressPolicy, PolicyCell};
use crate::wait::{StopSignal, poll_for};

/// Connections over the limit that are still told so; more are closed without a word.
const REFUSERS: usize = 32;
/// What a thread that serves a connection may put on its stack.
const STACK: usize = 256 * 1024;
/// How long accepting rests when descriptors or threads have run out.
const REST: Duration = Duration::from_millis(50);

/// What a proxy is made of.
pub struct ProxyOptions {
    /// Where clients come in. It may stand in another network namespace; the proxy dials from its
    /// own.
    pub listener: TcpListener,
    /// What is allowed at first.
    pub policy: EgressPolicy,
    /// Finds the addresses of names.
    pub resolver: Arc<dyn Resolver>,
    /// Connects to addresses.
    pub dialer: Arc<dyn Dialer>,
    /// Is told every decision and every end. It is called on the threads that serve connections and
    /// holds them up as long as it takes.
    pub observer: Observer,
    /// Is handed misses; without it every miss is refused at once.
    pub ask: Option<Ask>,
    /// What TLS ends with, for hosts whose requests are seen; without it their TLS is refused.
    pub termination: Option<Termination>,
    /// What clients can make the proxy use.
    pub limits: Limits,
}

impl ProxyOptions {
    /// Makes options with the machine's resolver and network, nobody to tell and nobody to ask.
    pub fn new(listener: TcpListener, policy: EgressPolicy) -> Self {
        Self {
            listener,
            policy,
            resolver: Arc::new(SystemResolver),
            dialer: Arc::new(SystemDialer),
            observer: Arc::new(|_| {}),
            ask: None,
            termination: None,
            limits: Limits::default(),
        }
    }
}

impl fmt::Debug for ProxyOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ProxyOptions")
            .field("listener", &self.listener)
            .field("policy", &self.policy)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// What the threads of one proxy share.
pub(crate) struct Shared {
    pub(crate) policy: PolicyCell,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) ask: Option<Ask>,
    pub(crate) termination: Option<Termination>,
    pub(crate) limits: Limits,
    pub(crate) holds: Holds,
    pub(crate) stop: StopSignal,
    observer: Observer,
    live: Mutex<HashMap<u64, Arc<Live>>>,
    refusals: Mutex<HashMap<RefusalKey, u32>>,
    serving: AtomicUsize,
    refusing: AtomicUsize,
}

type RefusalKey = (Option<String>, Option<u16>, Reason);

/// A connection that reached its host.
pub(crate) struct Live {
    client: Arc<TcpStream>,
    upstream: Arc<TcpStream>,
    target: HostPort,
    reason: Reason,
    address: IpAddr,
    /// Whether its single requests are seen.
    seen: bool,
    revoked: AtomicBool,
}

impl Live {
    fn check(&self, policy: &EgressPolicy) {
        // What is carried blindly must not be what has to be seen by now.
        if is_still_allowed(policy, &self.target, self.reason, Some(self.address))
            && (self.seen || !is_seen(policy, &self.target))
        {
            return;
        }
        self.revoked.store(true, Ordering::SeqCst);
        let _ = self.upstream.shutdown(Shutdown::Both);
        let _ = self.client.shutdown(Shutdown::Both);
    }
}

/// Keeps a connection in the table as long as it stands.
pub(crate) struct Registered<'a> {
    shared: &'a Shared,
    number: u64,
    live: Arc<Live>,
}

impl Registered<'_> {
    pub(crate) fn is_revoked(&self) -> bool {
        self.live.revoked.load(Ordering::SeqCst)
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.shared.lock_live().remove(&self.number);
    }
}

impl Shared {
    /// The most different refusals that are counted.
    const MOST_REFUSALS: usize = 4096;

    pub(crate) fn emit(&self, event: NetEvent) {
        (self.observer)(event);
    }

    /// Counts a refusal and gives how often it was given.
    pub(crate) fn count_refusal(
        &self,
        host: Option<&str>,
        port: Option<u16>,
        reason: Reason,
    ) -> u32 {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (host.map(str::to_owned), port, reason);
        if refusals.len() >= Self::MOST_REFUSALS && !refusals.contains_key(&key) {
            refusals.clear();
        }
        let count = refusals.entry(key).or_insert(0);
        *count = count.saturating_add(1);
        *count
    }

    fn lock_live(&self) -> MutexGuard<'_, HashMap<u64, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a connection into the table, then looks at the rules again: they may have been replaced
    /// between its decision and now.
    pub(crate) fn register(
        &self,
        number: u64,
        (client, upstream): (&Arc<TcpStream>, &Arc<TcpStream>),
        (target, reason, address): (&HostPort, Reason, IpAddr),
        seen: bool,
    ) -> Registered<'_> {
        let live = Arc::new(Live {
            client: Arc::clone(client),
            upstream: Arc::clone(upstream),
            target: target.clone(),
            reason,
            address,
            seen,
            revoked: AtomicBool::new(false),
        });
        self.lock_live().insert(number, Arc::clone(&live));
        live.check(&self.policy.current());
        Registered {
            shared: self,
            number,
            live,
        }
    }
}

/// Starts proxies.
#[derive(Debug)]
pub struct Proxy;

impl Proxy {
    /// Starts to serve; from the return on, clients of the listener are answered.
    pub fn start(options: ProxyOptions) -> Result<ProxyHandle, EgressError> {
        let listener = options.listener;
        listener
            .set_nonblocking(true)
            .map_err(|source| EgressError::Listener { source })?;
        let address = listener
            .local_addr()
            .map_err(|source| EgressError::Listener { source })?;
        let stop = StopSignal::new().map_err(|source| EgressError::Descriptor { source })?;
        let shared = Arc::new(Shared {
            policy: PolicyCell::new(options.policy),
            resolver: options.resolver,
            dialer: options.dialer,
            ask: options.ask,
            termination: options.termination,
            limits: options.limits,
            holds: Holds::default(),
            stop,
            observer: options.observer,
            live: Mutex::default(),
            refusals: Mutex::default(),
            serving: AtomicUsize::new(0),
            refusing: AtomicUsize::new(0),
        });
        let for_thread = Arc::clone(&shared);
        let acceptor = thread::Builder::new()
            .name("egress".to_owned())
            .stack_size(STACK)
            .spawn(move || accept_all(&for_thread, &listener))
            .map_err(|source| EgressError::Thread { source })?;
        Ok(ProxyHandle {
            shared,
            address,
            acceptor: Some(acceptor),
        })
    }
}

/// A proxy that serves. Dropping it stops it.
pub struct ProxyHandle {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<Vec<JoinHandle<()>>>>,
}

/// What is left of a proxy that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Threads that did not end in time: they wait for the machine's resolver, for the observer or
    /// for whoever is asked, and end by themselves after that, without dialling anything.
    pub left: usize,
}

impl ProxyHandle {
    /// Gives where clients come in.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives the policy in force.
    pub fn policy(&self) -> Arc<EgressPolicy> {
        self.shared.policy.current()
    }

    /// Puts another policy in force as a whole. Connections that it does not allow are cut, misses
    /// that are held are looked at again.
    pub fn replace(&self, policy: EgressPolicy) {
        self.shared.policy.replace(policy);
        self.shared.holds.policy_changed();
        let policy = self.shared.policy.current();
        let standing: Vec<Arc<Live>> = self.shared.lock_live().values().cloned().collect();
        for live in standing {
            live.check(&policy);
        }
    }

    /// Gives how many connections are served now.
    pub fn connections(&self) -> usize {
        self.shared.serving.load(Ordering::SeqCst)
    }

    /// Closes the listener, cuts every connection and waits for the threads, at most as long as the
    /// limits say.
    pub fn stop(mut self) -> Stopped {
        self.end()
    }

    fn end(&mut self) -> Stopped {
        let Some(acceptor) = self.acceptor.take() else {
            return Stopped { left: 0 };
        };
        let deadline = Instant::now() + self.shared.limits.stop_time;
        self.shared.stop.raise();
        self.shared.holds.stop();
        let mut workers = acceptor.join().unwrap_or_default();
        let mut pause = Duration::from_micros(200);
        while !workers.is_empty() {
            reap(&mut workers);
            if workers.is_empty() || Instant::now() >= deadline {
                break;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
        Stopped {
            left: workers.len(),
        }
    }
}

impl Drop for ProxyHandle {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for ProxyHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ProxyHandle")
            .field("address", &self.address)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

/// Joins the threads that are done.
fn reap(workers: &mut Vec<JoinHandle<()>>) {
    let mut at = 0;
    while at < workers.len() {
        if workers[at].is_finished() {
            // A thread that panicked has cost its own connection and nothing else.
            let _ = workers.swap_remove(at).join();
        } else {
            at += 1;
        }
    }
}

/// Accepts until the end; gives the threads that still serve.
fn accept_all(shared: &Arc<Shared>, listener: &TcpListener) -> Vec<JoinHandle<()>> {
    let mut workers = Vec::new();
    let mut number = 0;
    let mut rest = None;
    loop {
        let mut descriptors = vec![PollFd::from_borrowed_fd(shared.stop.as_fd(), PollFlags::IN)];
        if rest.is_none() {
            descriptors.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
        let polled = poll_for(&mut descriptors, rest.take());
        if polled.is_err() || !descriptors[0].revents().is_empty() {
            return workers;
        }
        match listener.accept() {
            Ok((client, peer)) => {
                number += 1;
                if workers.len() > shared.serving.load(Ordering::Relaxed) + 16 {
                    reap(&mut workers);
                }
                match serve(shared, number, client, peer) {
                    Ok(worker) => workers.extend(worker),
                    Err(_) => rest = Some(REST),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => rest = Some(REST),
        }
    }
}

/// Counts a connection as long as it is served, also when its thread panics.
struct Counted {
    shared: Arc<Shared>,
    room: Room,
}

impl Counted {
    /// Takes a place; without one the connection is closed without a word.
    fn enter(shared: &Arc<Shared>) -> Option<Self> {
        let room = if shared.serving.load(Ordering::SeqCst) < shared.limits.connections {
            Room::There
        } else if shared.refusing.load(Ordering::SeqCst) < REFUSERS {
            Room::None
        } else {
            return None;
        };
        let counted = Self {
            shared: Arc::clone(shared),
            room,
        };
        counted.counter().fetch_add(1, Ordering::SeqCst);
        Some(counted)
    }

    fn counter(&self) -> &AtomicUsize {
        match self.room {
            Room::There => &self.shared.serving,
            Room::None => &self.shared.refusing,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counter().fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(
    shared: &Arc<Shared>,
    number: u64,
    client: TcpStream,
    peer: SocketAddr,
) -> io::Result<Option<JoinHandle<()>>> {
    let Some(counted) = Counted::enter(shared) else {
        return Ok(None);
    };
    client.set_nonblocking(true)?;
    let _ = client.set_nodelay(true);
    let worker = thread::Builder::new()
        .name("egress-serve".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let connection = Connection {
                shared: &counted.shared,
                number,
                client: Arc::new(client),
                peer: Some(peer),
                room: counted.room,
            };
            connection.serve();
        })?;
    Ok(Some(worker))
}
