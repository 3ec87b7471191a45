//! What the proxy goes by, replaced as a whole.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use cofferdam_core::hosts::{Host, HostPort, HostRule, HostRules, RequestRules};

use crate::broker::Brokers;

/// Says which hosts may be reached, in one value that is replaced as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// The rules; empty allows nothing.
    pub rules: HostRules,
    /// Names of which the owner's own configuration says that they are used, such as a company's
    /// package mirror: where `rules` allow them, they may also lead into the site's own network
    /// ([`cofferdam_core::hosts::AddressClass::is_of_site`]), never to the machine itself.
    pub site: Vec<HostRule>,
    /// Services that may be reached although their address is the machine's own or private, each by
    /// the very host and port that a client must ask for.
    pub reach: Vec<HostPort>,
    /// Addresses of this machine's interfaces: refused like loopback.
    pub own_addresses: Vec<IpAddr>,
    /// Rules over single requests: of hosts that they are about, each request is seen.
    pub requests: RequestRules,
    /// Secrets that hosts are told; of these hosts, each request is seen too.
    pub brokers: Brokers,
}

impl EgressPolicy {
    /// Makes a policy of rules alone.
    pub fn of_rules(rules: HostRules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    pub(crate) fn is_reach(&self, target: &HostPort) -> bool {
        self.reach.contains(target)
    }

    pub(crate) fn is_site(&self, target: &HostPort) -> bool {
        self.site
            .iter()
            .any(|rule| rule.holds_for(&target.host, target.port))
    }

    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        let own = Host::from_address(address);
        self.own_addresses
            .iter()
            .any(|one| Host::from_address(*one) == own)
    }
}

/// The policy in force. A decision takes it once and keeps that version to its end.
#[derive(Debug)]
pub(crate) struct PolicyCell(RwLock<Arc<EgressPolicy>>);

impl PolicyCell {
    pub(crate) fn new(policy: EgressPolicy) -> Self {
        Self(RwLock::new(Arc::new(policy)))
    }

    pub(crate) fn current(&self) -> Arc<EgressPolicy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, policy: EgressPolicy) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }
}
