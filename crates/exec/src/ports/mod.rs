//! Ports that cross the walls of an enclosure with a network of its own.
//!
//! A service of the outside that is reached stands inside at the same address: the keeper makes the
//! listener there and hands it out, and whoever connects to it is joined with the service. A port of
//! the inside that is published has a listener on loopback outside, joined with a socket that the
//! keeper made inside. Where anything crosses, a thread of the enclosure's own moves the bytes; it ends
//! with the enclosure, and with the plane in any case. What listens inside is told in any case.

mod base;
mod connection;
mod forward;
mod lookout;
mod table;

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::Subject;
use cofferdam_core::id::EnclosureId;
use cofferdam_core::ports::{PortPlan, PublishRule, PublishedPort, ReachAddress};
use rustix::event::{EventfdFlags, eventfd};

pub use base::PortBase;
use forward::Forwarder;
pub(crate) use lookout::Lookouts;
use lookout::{Lookout, Watching};

use crate::backend::InnerNetwork;
use crate::plane::Plane;
use crate::run::set_nonblocking;

/// The ports of one enclosure. Dropping it closes them.
#[derive(Debug)]
pub(crate) struct Ports(Mutex<Serving>);

/// Who sees to the ports of one enclosure.
#[derive(Debug)]
enum Serving {
    /// A thread of its own.
    Own {
        state: Arc<State>,
        thread: Option<JoinHandle<()>>,
    },
    /// Nothing crosses: whoever looks at all of them.
    Looked { _watching: Watching },
    /// Nobody any more; these were opened outside.
    Ended(Vec<PublishedPort>),
}

/// What the thread and its owner share.
#[derive(Debug)]
struct State {
    wake: OwnedFd,
    stop: AtomicBool,
    published: Mutex<Vec<PublishedPort>>,
}

/// For whom a listener takes connections.
#[derive(Debug, Clone)]
enum Route {
    /// For a service outside; the listener stands inside.
    Reach {
        service: ReachAddress,
        at: SocketAddr,
    },
    /// For a port inside; the listener stands outside.
    Publish { inside: u16 },
}

#[derive(Debug)]
struct Listener {
    socket: OwnedFd,
    route: Route,
}

/// On whose behalf something is told to the journal.
#[derive(Debug)]
struct Teller {
    plane: Plane,
    subject: Subject,
    enclosure: EnclosureId,
}

impl Ports {
    /// Opens what a plan names, and begins to serve it.
    ///
    /// # Errors
    ///
    /// `port_taken` for a port outside that cannot be had, `io` when a listener cannot be made
    /// inside; nothing is open then.
    pub(crate) fn open(
        plane: &Plane,
        subject: &Subject,
        enclosure: &EnclosureId,
        plan: &PortPlan,
        network: Arc<dyn InnerNetwork>,
    ) -> Result<Self, Problem> {
        let failed = |error: io::Error| {
            Problem::new(
                ErrorCode::Io,
                format!("the ports of an enclosure cannot be served: {error}"),
            )
        };
        let teller = Teller {
            plane: plane.clone(),
            subject: subject.clone(),
            enclosure: enclosure.clone(),
        };
        if plan.is_empty() {
            let lookout = Lookout::new(teller, network);
            let watching = plane.lookouts().watch(lookout).map_err(failed)?;
            return Ok(Self(Mutex::new(Serving::Looked {
                _watching: watching,
            })));
        }
        let mut listeners = reach(plan, network.as_ref())?;
        let opened = publish(plan)?;
        let state = Arc::new(State {
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|errno| failed(errno.into()))?,
            stop: AtomicBool::new(false),
            published: Mutex::default(),
        });
        for (more, port) in opened {
            listeners.extend(more);
            state.publish(&teller, port);
        }
        let forwarder = Forwarder::new(
            Arc::clone(&state),
            Lookout::new(teller, network),
            listeners,
            plan.is_automatic(),
        );
        let thread = std::thread::Builder::new()
            .name("cofferdam-ports".to_owned())
            .spawn(move || forwarder.run())
            .map_err(failed)?;
        Ok(Self(Mutex::new(Serving::Own {
            state,
            thread: Some(thread),
        })))
    }

    /// Lists the ports that were opened outside, also those that are closed again.
    pub(crate) fn published(&self) -> Vec<PublishedPort> {
        match &*lock(&self.0) {
            Serving::Own { state, .. } => lock(&state.published).clone(),
            Serving::Looked { .. } => Vec::new(),
            Serving::Ended(published) => published.clone(),
        }
    }

    /// Asks for the end, and does not wait for it.
    pub(crate) fn stop(&self) {
        if let Serving::Own { state, .. } = &*lock(&self.0) {
            state.stop.store(true, Ordering::Release);
            let _ = rustix::io::write(&state.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Closes everything, and waits until it is so.
    pub(crate) fn end(&self) {
        self.stop();
        let published = self.published();
        let was = std::mem::replace(&mut *lock(&self.0), Serving::Ended(published));
        if let Serving::Own {
            thread: Some(thread),
            ..
        } = was
        {
            // A thread that panicked has dropped what it held.
            let _ = thread.join();
        }
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    /// Tells that a port is open outside.
    fn publish(&self, teller: &Teller, port: PublishedPort) {
        let mut published = lock(&self.published);
        if published.contains(&port) {
            return;
        }
        published.push(port.clone());
        drop(published);
        teller.plane.tell_port(&port);
    }
}

/// Makes the listeners inside for what is reached.
fn reach(plan: &PortPlan, network: &dyn InnerNetwork) -> Result<Vec<Listener>, Problem> {
    let mut listeners = Vec::new();
    let mut taken = BTreeSet::new();
    for service in &plan.reach {
        for (index, at) in service.sockets().into_iter().enumerate() {
            // Two names of one address are one service.
            if !taken.insert(at) {
                continue;
            }
            let made = network.listen(at).and_then(|socket| {
                set_nonblocking(socket.as_fd())?;
                Ok(socket)
            });
            match made {
                Ok(socket) => listeners.push(Listener {
                    socket,
                    route: Route::Reach {
                        service: service.clone(),
                        at,
                    },
                }),
                // A machine without IPv6 has nothing there to reach.
                Err(_) if index > 0 => {}
                Err(error) => {
                    return Err(Problem::new(
                        ErrorCode::Io,
                        format!("{service} cannot stand inside: {error}"),
                    )
                    .with_field("reach"));
                }
            }
        }
    }
    Ok(listeners)
}

/// Opens the ports outside that are named.
fn publish(plan: &PortPlan) -> Result<Vec<(Vec<Listener>, PublishedPort)>, Problem> {
    let mut opened = Vec::new();
    for rule in &plan.publish {
        let PublishRule::Port { outside, inside } = rule else {
            continue;
        };
        let one = outer_listeners(outside.get(), inside.get()).map_err(|error| {
            Problem::new(
                ErrorCode::PortTaken,
                format!("port {outside} cannot be opened on loopback: {error}"),
            )
            .with_field("publish")
            .with_hint(format!(
                "choose another one outside, OUTSIDE:{inside}, or let one be found: auto"
            ))
        })?;
        opened.push(one);
    }
    Ok(opened)
}

/// Opens a port on loopback outside for one inside, on both families, since `localhost` may mean
/// either; 0 lets the kernel choose. A machine without IPv6 has one.
fn outer_listeners(outside: u16, inside: u16) -> io::Result<(Vec<Listener>, PublishedPort)> {
    let listener = |socket: TcpListener| -> io::Result<Listener> {
        socket.set_nonblocking(true)?;
        Ok(Listener {
            socket: socket.into(),
            route: Route::Publish { inside },
        })
    };
    let four = TcpListener::bind((Ipv4Addr::LOCALHOST, outside))?;
    let address = four.local_addr()?;
    let mut listeners = vec![listener(four)?];
    match TcpListener::bind((Ipv6Addr::LOCALHOST, address.port())) {
        Ok(six) => listeners.push(listener(six)?),
        // Somebody else there would be taken for what runs inside.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
        Err(_) => {}
    }
    let port = PublishedPort {
        port: inside,
        address: address.to_string(),
    };
    Ok((listeners, port))
}

/// Who is told of each port that is opened outside, while a command runs.
pub(crate) struct PortHook(Box<dyn Fn(&PublishedPort) + Send + Sync>);

impl PortHook {
    pub(crate) fn new(hook: impl Fn(&PublishedPort) + Send + Sync + 'static) -> Self {
        Self(Box::new(hook))
    }

    pub(crate) fn tell(&self, port: &PublishedPort) {
        (self.0)(port);
    }
}

impl std::fmt::Debug for PortHook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PortHook")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
