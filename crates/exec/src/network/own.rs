//! The addresses of this machine's interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Lists them; what the kernel does not tell is left out.
pub(super) fn addresses() -> Vec<IpAddr> {
    let mut found = Vec::new();
    if let Ok(text) = std::fs::read_to_string("/proc/net/fib_trie") {
        found.extend(of_trie(&text).into_iter().map(IpAddr::V4));
    }
    if let Ok(text) = std::fs::read_to_string("/proc/net/if_inet6") {
        found.extend(of_table(&text).into_iter().map(IpAddr::V6));
    }
    // That kind of address is known as such wherever it comes from.
    found.retain(|address| !address.is_loopback());
    found.sort_unstable();
    found.dedup();
    found
}

/// Reads local addresses out of the routing trie: an address on its line, its kind on the next.
fn of_trie(text: &str) -> Vec<Ipv4Addr> {
    let mut last: Option<Ipv4Addr> = None;
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.ends_with("host LOCAL") {
            found.extend(last);
        }
    }
    found
}

fn of_table(text: &str) -> Vec<Ipv6Addr> {
    text.lines()
        .filter_map(|line| u128::from_str_radix(line.split_whitespace().next()?, 16).ok())
        .map(Ipv6Addr::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_read() {
        let trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        /32 host LOCAL\n";
        assert_eq!(of_trie(trie), [Ipv4Addr::new(10, 0, 0, 7)]);
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(of_table(table), [Ipv6Addr::LOCALHOST]);
    }

    #[test]
    fn loopback_is_left_to_its_class() {
        assert!(addresses().iter().all(|one| !one.is_loopback()));
    }
}
