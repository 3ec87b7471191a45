//! Names that this machine's own list of hosts knows.

use std::net::IpAddr;
use std::path::Path;

use cofferdam_core::facts::LocalName;
use cofferdam_core::policy::EffectivePolicy;

use super::files::read_small;

/// Bytes of the list that are read.
const MOST: u64 = 1 << 20;

/// Looks up the names that a policy wants to reach.
pub(super) fn look(policy: &EffectivePolicy) -> Vec<LocalName> {
    let wanted: Vec<String> = policy
        .reach
        .iter()
        .filter(|one| one.value.sockets().is_empty())
        .map(|one| one.value.host())
        .collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let list = read_small(Path::new("/etc/hosts"), MOST).unwrap_or_default();
    let mut names = read(&String::from_utf8_lossy(&list));
    names.retain(|one| wanted.contains(&one.name));
    names
}

fn read(text: &str) -> Vec<LocalName> {
    let mut names = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
            continue;
        };
        names.extend(words.map(|name| LocalName {
            name: name.to_ascii_lowercase(),
            address: address.to_canonical(),
        }));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_are_read_and_comments_passed_over() {
        let text =
            "127.0.0.1 localhost Box # mine\n# 127.0.0.2 no\n::1\tbox\nbroken box\n10.0.0.1 db";
        let found: Vec<String> = read(text)
            .iter()
            .map(|one| format!("{} {}", one.name, one.address))
            .collect();
        let expected = [
            "localhost 127.0.0.1",
            "box 127.0.0.1",
            "box ::1",
            "db 10.0.0.1",
        ];
        assert_eq!(found, expected);
    }
}
