//! The decision about one connection: rules, question, lookup, addresses.

use std::net::{IpAddr, SocketAddr};

use cofferdam_core::hosts::{AddressClass, Host, HostName, HostPort, HostRules, HostVerdict};

use crate::decision::Reason;
use crate::hold::{Miss, Settled};
use crate::policy::EgressPolicy;
use crate::proxy::Shared;

/// A connection that may go on, to one of these addresses.
#[derive(Debug)]
pub(crate) struct Permit {
    pub(crate) reason: Reason,
    pub(crate) rule: Option<String>,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// A connection that may not.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) rule: Option<String>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) detail: Option<String>,
    /// The single request that it is about.
    pub(crate) request: Option<Box<RefusedRequest>>,
}

/// A request that was refused.
#[derive(Debug)]
pub(crate) struct RefusedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
}

impl Refusal {
    pub(crate) const fn plain(reason: Reason) -> Self {
        Self {
            reason,
            rule: None,
            addresses: Vec::new(),
            detail: None,
            request: None,
        }
    }
}

/// Names by which clouds serve metadata; whatever they resolve to, nobody is asked about them.
const METADATA_NAMES: &[&str] = &[
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.tencentyun.com",
    "metadata.internal",
    "instance-data",
    "instance-data.ec2.internal",
];

/// Decides; where a name must be looked up, it is looked up here and only here.
///
/// A name that no rule allows is not looked up before somebody allowed it: the lookup itself would
/// carry what a client wrote into it out of the machine.
pub(crate) fn decide(shared: &Shared, miss: &Miss<'_>) -> Result<Permit, Refusal> {
    let target = miss.target;
    let mut answered = false;
    loop {
        let policy = shared.policy.current();
        let (reason, rule) = match policy.rules.decide(&target.host, target.port) {
            HostVerdict::Denied { rule } => {
                return Err(Refusal {
                    rule: Some(rule.to_string()),
                    ..Refusal::plain(Reason::DeniedRule)
                });
            }
            _ if policy.is_reach(target) => (Reason::Reach, Some(format!("reach {target}"))),
            HostVerdict::Allowed { rule } => (Reason::Listed, Some(rule.to_string())),
            HostVerdict::NotListed if answered => (Reason::Answered, None),
            HostVerdict::NotListed => {
                if let Some(refusal) = never_asked(&policy, &target.host) {
                    return Err(refusal);
                }
                answered = ask(shared, miss)?;
                // The rules may have changed meanwhile, and a denial wins over an answer.
                continue;
            }
        };
        let addresses = look_up(shared, &target.host)?;
        let passed = pass(&policy, target, reason, &addresses)?;
        return Ok(Permit {
            reason,
            rule,
            addresses: passed,
        });
    }
}

/// Refuses without a question what no answer may open.
fn never_asked(policy: &EgressPolicy, host: &Host) -> Option<Refusal> {
    let class = match host {
        Host::Address(address) if policy.is_own(*address) => "own",
        Host::Address(address) if AddressClass::of(*address).is_public() => return None,
        Host::Address(address) => AddressClass::of(*address).as_str(),
        Host::Name(name) if name.is_localhost() => AddressClass::Loopback.as_str(),
        Host::Name(name) if is_metadata(name) => AddressClass::Metadata.as_str(),
        Host::Name(_) => return None,
    };
    Some(Refusal {
        addresses: host.address().into_iter().collect(),
        detail: Some(class.to_owned()),
        ..Refusal::plain(Reason::AddressRefused)
    })
}

fn is_metadata(name: &HostName) -> bool {
    METADATA_NAMES.contains(&name.as_str())
}

/// Holds a miss; gives whether it was answered, as opposed to decided by new rules.
fn ask(shared: &Shared, miss: &Miss<'_>) -> Result<bool, Refusal> {
    let Some(ask) = &shared.ask else {
        return Err(Refusal::plain(Reason::NotListed));
    };
    let is_decided = || {
        let policy = shared.policy.current();
        let verdict = policy.rules.decide(&miss.target.host, miss.target.port);
        verdict != HostVerdict::NotListed || policy.is_reach(miss.target)
    };
    match shared.holds.hold(miss, ask, &shared.limits, &is_decided) {
        Settled::Allowed => Ok(true),
        Settled::Decided => Ok(false),
        Settled::Refused => Err(Refusal::plain(Reason::AnsweredNo)),
        Settled::Unanswered => Err(Refusal::plain(Reason::Unanswered)),
        Settled::Full => Err(Refusal::plain(Reason::NotListed)),
        Settled::Stopped => Err(Refusal::plain(Reason::Stopping)),
    }
}

fn look_up(shared: &Shared, host: &Host) -> Result<Vec<IpAddr>, Refusal> {
    let name = match host {
        Host::Address(address) => return Ok(vec![*address]),
        Host::Name(name) => name,
    };
    let failed = |detail: String| Refusal {
        detail: Some(detail),
        ..Refusal::plain(Reason::ResolveFailed)
    };
    let found = shared
        .resolver
        .resolve(name)
        .map_err(|error| failed(error.to_string()))?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found {
        let address = address.to_canonical();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.truncate(shared.limits.addresses);
    if addresses.is_empty() {
        return Err(failed("the name has no address".to_owned()));
    }
    Ok(addresses)
}

/// Keeps the addresses that may be dialled; refuses where none is left.
///
/// An address passes alone: a name with one public and one private address is reached at the public
/// one. The one that is dialled is always one that passed.
fn pass(
    policy: &EgressPolicy,
    target: &HostPort,
    reason: Reason,
    addresses: &[IpAddr],
) -> Result<Vec<SocketAddr>, Refusal> {
    let mut passed = Vec::new();
    let mut refusal = None;
    for address in addresses {
        match judge(policy, target, reason, *address) {
            Ok(()) => passed.push(SocketAddr::new(*address, target.port)),
            Err(why) => {
                refusal.get_or_insert(why);
            }
        }
    }
    match refusal {
        Some(refusal) if passed.is_empty() => Err(Refusal {
            addresses: addresses.to_vec(),
            ..refusal
        }),
        _ => Ok(passed),
    }
}

fn judge(
    policy: &EgressPolicy,
    target: &HostPort,
    reason: Reason,
    address: IpAddr,
) -> Result<(), Refusal> {
    let host = Host::from_address(address);
    if let Some(rule) = policy.rules.denying(&host, target.port) {
        return Err(Refusal {
            rule: Some(rule.to_string()),
            ..Refusal::plain(Reason::DeniedRule)
        });
    }
    let class = AddressClass::of(address);
    let is_own = policy.is_own(address);
    // The owner opens what is not public by naming the very address, or the very service.
    let is_granted = match reason {
        Reason::Reach => true,
        Reason::Listed => names_address(&policy.rules, target),
        _ => false,
    };
    let is_site = reason == Reason::Listed && class.is_of_site() && policy.is_site(target);
    if ((class.is_public() || is_site) && !is_own) || (is_granted && class.can_be_granted()) {
        return Ok(());
    }
    Err(Refusal {
        detail: Some(if is_own { "own" } else { class.as_str() }.to_owned()),
        ..Refusal::plain(Reason::AddressRefused)
    })
}

fn names_address(rules: &HostRules, target: &HostPort) -> bool {
    rules
        .allow
        .iter()
        .any(|rule| rule.is_address() && rule.holds_for(&target.host, target.port))
}

/// Tells whether rules that were just put in force still allow a connection that stands.
pub(crate) fn is_still_allowed(
    policy: &EgressPolicy,
    target: &HostPort,
    reason: Reason,
    address: Option<IpAddr>,
) -> bool {
    let reason = match policy.rules.decide(&target.host, target.port) {
        HostVerdict::Denied { .. } => return false,
        _ if policy.is_reach(target) => Reason::Reach,
        HostVerdict::Allowed { .. } => Reason::Listed,
        HostVerdict::NotListed if reason == Reason::Answered => Reason::Answered,
        HostVerdict::NotListed => return false,
    };
    address.is_none_or(|address| judge(policy, target, reason, address).is_ok())
}
