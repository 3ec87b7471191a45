//! Addresses as package clients and git write them.

use cofferdam_core::hosts::{AddressClass, Host};

/// Scheme, host and port of an address; who is behind it and what lies below stay out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    host: Host,
    port: u16,
}

impl Address {
    /// Reads a URL of http, https or git's kinds; anything else is no address of a host.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_matches(['"', '\'', '<', '>']);
        let text = ["sparse+", "registry+", "git+"]
            .iter()
            .find_map(|prefix| text.strip_prefix(prefix))
            .unwrap_or(text);
        let (scheme, rest) = text.split_once("://")?;
        let port = match scheme.to_ascii_lowercase().as_str() {
            "https" => 443,
            "http" => 80,
            "ssh" => 22,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let place = authority.rsplit_once('@').map_or(authority, |(_, one)| one);
        let found = cofferdam_core::hosts::HostPort::parse(place.as_bytes(), Some(port)).ok()?;
        Some(Self {
            host: found.host,
            port: found.port,
        })
    }

    /// Takes a host by its name, as reached by https.
    pub(super) fn by_https(host: &str) -> Option<Self> {
        Some(Self {
            host: Host::parse(host.as_bytes()).ok()?,
            port: 443,
        })
    }

    pub(super) fn host(&self) -> String {
        self.host.to_string()
    }

    /// Gives the rule for it; none for the machine itself, which is not reached by a proxy.
    pub(super) fn rule(&self) -> Option<String> {
        let is_own = match &self.host {
            Host::Name(name) => name.is_localhost(),
            // Maven blocks a repository by giving it no address.
            Host::Address(address) => matches!(
                AddressClass::of(*address),
                AddressClass::Loopback | AddressClass::Unspecified
            ),
        };
        let host = match &self.host {
            Host::Address(address) if address.is_ipv6() => format!("[{address}]"),
            other => other.to_string(),
        };
        (!is_own).then(|| format!("{host}:{}", self.port))
    }
}

/// Gives a URL without user and password.
pub(super) fn bare(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}

/// Finds every URL of http or https in a text.
pub(super) fn urls(text: &str) -> impl Iterator<Item = &str> {
    let ends = |one: char| one.is_whitespace() || "\"'<>()[]{},;|`\\".contains(one);
    text.match_indices("http").filter_map(move |(at, _)| {
        let rest = &text[at..];
        if !rest.starts_with("http://") && !rest.starts_with("https://") {
            return None;
        }
        let end = rest.find(ends).unwrap_or(rest.len());
        Some(&rest[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Option<String> {
        Address::parse(text)?.rule()
    }

    #[test]
    fn hosts_are_read_out_of_urls() {
        assert_eq!(rule("https://A.test/x").as_deref(), Some("a.test:443"));
        assert_eq!(rule("http://u:p@a.test:81?x").as_deref(), Some("a.test:81"));
        assert_eq!(
            rule("sparse+https://a.test/").as_deref(),
            Some("a.test:443")
        );
        assert_eq!(
            rule("https://[2001:db8::1]/").as_deref(),
            Some("[2001:db8::1]:443")
        );
        for none in [
            "file:///x",
            "../a",
            "https://",
            "http://localhost:4873",
            "http://127.0.0.1/",
            "x",
        ] {
            assert_eq!(rule(none), None, "{none}");
        }
    }

    #[test]
    fn credentials_are_left_out() {
        assert_eq!(bare("https://u:p@a.test/x@y"), "https://a.test/x@y");
        assert_eq!(bare("https://a.test/x@y"), "https://a.test/x@y");
        assert_eq!(
            urls("a https://a.test/x, (http://b.test) https").collect::<Vec<_>>(),
            ["https://a.test/x", "http://b.test"]
        );
    }
}
