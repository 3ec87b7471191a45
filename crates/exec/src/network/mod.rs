//! The way out of a restricted network: a proxy on a listener that stands inside.
//!
//! The keeper makes the listener in the network namespace of the enclosure and hands it out, so no
//! process of ours stands between: the proxy serves it from this process, by the plan's rules, and
//! dials from the machine's own network. It ends with the enclosure.

mod ask;
mod opening;
mod own;
mod program;
mod secrets;
mod watch;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::Subject;
use cofferdam_core::hosts::{HostPort, HostRule, HostRules, RequestRules};
use cofferdam_core::id::{CommandId, EnclosureId, TaskId};
use cofferdam_core::outcome::Denial;
use cofferdam_core::spec::EgressSpec;
use cofferdam_egress::{
    Brokers, Dialer, EgressPolicy, Proxy, ProxyHandle, ProxyOptions, Resolver, SystemDialer,
    SystemResolver,
};

use crate::backend::InnerNetwork;
use crate::host::Surroundings;
use crate::plane::Plane;
pub use ask::{AskHost, HostAnswer, HostQuestion};
pub(crate) use opening::Opening;
use secrets::Secrets;
use watch::Watch;

/// What only a program that embeds the plane can say about the network; no policy can.
#[derive(Clone, Default)]
pub struct NetworkOptions {
    /// Finds the addresses of names; the machine's own resolver without one.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// Connects; from the machine's own network without one.
    pub dialer: Option<Arc<dyn Dialer>>,
    /// Services whose address is the machine's own and that an allow-list may lead to all the same:
    /// for tests, which have nothing else.
    pub own_services: Vec<HostPort>,
    /// Certificates by which hosts are verified where TLS ends in the proxy, as PEM; the machine's own
    /// without them.
    pub roots: Option<Vec<u8>>,
    /// Who is asked about hosts that no rule allows; without one they are refused at once.
    pub ask: Option<Arc<dyn AskHost>>,
}

impl fmt::Debug for NetworkOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("NetworkOptions")
            .field("own_services", &self.own_services)
            .field("asks", &self.ask.is_some())
            .finish_non_exhaustive()
    }
}

/// What the enclosures of one plane have in common.
#[derive(Debug, Default)]
pub(crate) struct NetworkState {
    options: OnceLock<NetworkOptions>,
    secrets: Secrets,
    /// What somebody allowed for a task, for the enclosures of it that are still to come.
    granted: Mutex<Vec<(TaskId, BytePath, HostRule)>>,
}

impl NetworkState {
    /// Takes the options; those that are there already stay.
    pub(crate) fn set(&self, options: NetworkOptions) {
        let _ = self.options.set(options);
    }

    /// Says in whose surroundings secrets are found.
    pub(crate) fn set_caller(&self, surroundings: Surroundings) {
        self.secrets.set(surroundings);
    }

    fn options(&self) -> NetworkOptions {
        self.options.get().cloned().unwrap_or_default()
    }

    fn grant(&self, task: &TaskId, repository: &BytePath, rule: HostRule) {
        lock(&self.granted).push((task.clone(), repository.clone(), rule));
    }

    fn granted(&self, task: &TaskId, repository: &BytePath) -> Vec<HostRule> {
        lock(&self.granted)
            .iter()
            .filter(|(of, there, _)| of == task && there == repository)
            .map(|(_, _, rule)| rule.clone())
            .collect()
    }
}

/// The way out of one enclosure. Dropping it cuts every connection.
#[derive(Debug)]
pub(crate) struct Door {
    shared: Arc<Shared>,
}

/// What the door, the observer and open questions share.
#[derive(Debug)]
struct Shared {
    plane: Plane,
    spec: EgressSpec,
    /// The top of the workspace: what is remembered belongs to it.
    repository: BytePath,
    own_services: Vec<HostPort>,
    watch: Watch,
    requests: RequestRules,
    brokers: Brokers,
    /// What answers have added to the plan.
    answered: Mutex<HostRules>,
    proxy: Mutex<Option<ProxyHandle>>,
}

impl Door {
    /// Opens the way out that a plan has.
    pub(crate) fn open(
        plane: &Plane,
        (enclosure, subject): (&EnclosureId, &Subject),
        (spec, opening): (&EgressSpec, Opening),
        repository: &BytePath,
        network: Option<Arc<dyn InnerNetwork>>,
    ) -> Result<Self, Problem> {
        let unavailable = |why: &dyn fmt::Display| {
            Problem::new(
                ErrorCode::ProviderUnavailable,
                format!("the way out to allowed hosts cannot be opened: {why}"),
            )
        };
        let network = network.ok_or_else(|| unavailable(&"there is no network of its own"))?;
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), spec.port);
        let listener = network
            .listen(address)
            .map_err(|error| unavailable(&error))?;
        let listener = TcpListener::from(listener);
        let options = plane.network().options();
        let answered = HostRules {
            allow: plane.network().granted(
                &subject.task.clone().unwrap_or_else(|| plane.work()),
                repository,
            ),
            deny: Vec::new(),
        };
        let shared = Arc::new(Shared {
            plane: plane.clone(),
            spec: spec.clone(),
            repository: repository.clone(),
            own_services: options.own_services.clone(),
            watch: Watch::new(plane, enclosure, subject, spec),
            requests: opening.requests,
            brokers: opening.brokers,
            answered: Mutex::new(answered),
            proxy: Mutex::default(),
        });
        let policy = shared.policy();
        let observer = Arc::clone(&shared);
        let mut proxy = ProxyOptions::new(listener, policy);
        proxy.resolver = options.resolver.unwrap_or_else(|| Arc::new(SystemResolver));
        proxy.dialer = options.dialer.unwrap_or_else(|| Arc::new(SystemDialer));
        proxy.observer = Arc::new(move |event| observer.watch.observe(event));
        proxy.termination = opening.termination;
        proxy.ask = options.ask.map(|owner| ask::asker(&shared, owner));
        let handle = Proxy::start(proxy).map_err(|error| unavailable(&error))?;
        *lock(&shared.proxy) = Some(handle);
        Ok(Self { shared })
    }

    /// Counts what is decided from now on to a command as well.
    pub(crate) fn begin(&self, command: &CommandId, subject: &Subject) {
        self.shared.watch.begin(command, subject);
    }

    /// Gives what a command was refused, and counts no more to it.
    pub(crate) fn end(&self, command: &CommandId) -> Vec<Denial> {
        self.shared.watch.end(command)
    }

    /// Cuts every connection and ends the proxy.
    pub(crate) fn close(&self) {
        let handle = lock(&self.shared.proxy).take();
        if let Some(handle) = handle {
            handle.stop();
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Makes the policy in force: the plan, and what answers have added.
    fn policy(&self) -> EgressPolicy {
        let answered = lock(&self.answered);
        let rules = |hosts: &[cofferdam_core::spec::EgressHost], more: &[HostRule]| {
            hosts
                .iter()
                .filter_map(|host| host.rule.parse().ok())
                .chain(more.iter().cloned())
                .collect()
        };
        let site = self.spec.allow.iter().filter(|host| host.site);
        let own_services = self.own_services.iter();
        EgressPolicy {
            rules: HostRules {
                allow: rules(&self.spec.allow, &answered.allow),
                deny: rules(&self.spec.deny, &answered.deny),
            },
            reach: own_services
                .filter(|own| self.is_allowed(own))
                .cloned()
                .collect(),
            site: site.filter_map(|host| host.rule.parse().ok()).collect(),
            own_addresses: own::addresses(),
            requests: self.requests.clone(),
            brokers: self.brokers.clone(),
        }
    }

    fn is_allowed(&self, service: &HostPort) -> bool {
        let rules: Vec<HostRule> = self
            .spec
            .allow
            .iter()
            .filter_map(|host| host.rule.parse().ok())
            .collect();
        rules
            .iter()
            .any(|rule| rule.holds_for(&service.host, service.port))
    }

    /// Puts what an answer adds in force.
    fn add(&self, allow: Option<HostRule>, deny: Option<HostRule>) {
        {
            let mut answered = lock(&self.answered);
            answered.allow.extend(allow);
            answered.deny.extend(deny);
        }
        let policy = self.policy();
        if let Some(proxy) = lock(&self.proxy).as_ref() {
            proxy.replace(policy);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
