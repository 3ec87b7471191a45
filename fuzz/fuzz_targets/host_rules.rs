//! Rules and hosts have one spelling, and a denial wins.
//!
//! Input: lines; the first is a host with a port, the second a denial, the rest is allowed.

#![no_main]

use cofferdam_core::hosts::{AddressClass, HostPort, HostRule, HostRules, HostVerdict};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let target = HostPort::parse(lines.next().unwrap_or_default(), Some(443));
    let mut rules = lines
        .map(|line| String::from_utf8_lossy(line).parse::<HostRule>().ok())
        .collect::<Vec<_>>()
        .into_iter();
    let deny: Vec<_> = rules.next().into_iter().flatten().collect();
    let allow: Vec<_> = rules.flatten().collect();
    for rule in deny.iter().chain(&allow) {
        assert_eq!(rule.to_string().parse().as_ref(), Ok(rule));
    }
    let Ok(target) = target else { return };
    assert_eq!(
        HostPort::parse(target.to_string().as_bytes(), None).as_ref(),
        Ok(&target)
    );
    if let Some(address) = target.host.address() {
        let _ = AddressClass::of(address);
    }
    let is_denied = deny
        .iter()
        .any(|rule| rule.holds_for(&target.host, target.port));
    let is_allowed = allow
        .iter()
        .any(|rule| rule.holds_for(&target.host, target.port));
    let rules = HostRules { allow, deny };
    match rules.decide(&target.host, target.port) {
        HostVerdict::Denied { .. } => assert!(is_denied),
        HostVerdict::Allowed { .. } => assert!(is_allowed && !is_denied),
        HostVerdict::NotListed => assert!(!is_allowed && !is_denied),
    }
});
