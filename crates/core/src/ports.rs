//! Ports that cross the walls: services of the outside that stand inside, and ports of the inside
//! that are opened outside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{ErrorCode, Problem};

/// Ports that one task has for its own use.
pub const PORTS_PER_TASK: u16 = 10;

/// The variable that holds the first of a task's own ports.
pub const PORT_BASE_VARIABLE: &str = "COFFERDAM_PORT_BASE";

/// One service of the outside that stands inside at the same address: `HOST:PORT` on loopback.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReachAddress {
    host: ReachHost,
    port: NonZeroU16,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ReachHost {
    Address(IpAddr),
    /// `localhost`, or a name below it: both families, by definition.
    Localhost(String),
    /// Another name, which this machine's own list of hosts has to know as loopback.
    Named(String),
}

impl ReachAddress {
    /// Gives the addresses at which the service stands, the first of which must work: a machine may
    /// be without IPv6. A name that is not looked up yet has none.
    pub fn sockets(&self) -> Vec<SocketAddr> {
        let port = self.port.get();
        match &self.host {
            ReachHost::Address(address) => vec![SocketAddr::new(*address, port)],
            ReachHost::Localhost(_) => vec![
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
                SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port),
            ],
            ReachHost::Named(_) => Vec::new(),
        }
    }

    /// Gives the service with its name looked up: `known` gives the addresses of a name by this
    /// machine's list of hosts, of which IPv4 is taken where there is both.
    ///
    /// # Errors
    ///
    /// `unsupported_field` for a name that does not lead to loopback.
    pub fn resolved(&self, known: impl FnOnce(&str) -> Vec<IpAddr>) -> Result<Self, Problem> {
        let ReachHost::Named(name) = &self.host else {
            return Ok(self.clone());
        };
        let all = known(name);
        let found = all.iter().find(|one| one.is_ipv4()).or_else(|| all.first());
        match found {
            Some(address) if all.iter().all(IpAddr::is_loopback) => Ok(Self {
                host: ReachHost::Address(*address),
                port: self.port,
            }),
            _ => Err(not_loopback(&self.to_string())),
        }
    }

    /// Gives the host as it was written.
    pub fn host(&self) -> String {
        match &self.host {
            ReachHost::Address(address) => address.to_string(),
            ReachHost::Localhost(name) | ReachHost::Named(name) => name.clone(),
        }
    }

    /// Gives the port.
    pub const fn port(&self) -> u16 {
        self.port.get()
    }
}

impl std::fmt::Display for ReachAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            ReachHost::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
            ReachHost::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            ReachHost::Localhost(name) | ReachHost::Named(name) => formatter.write_str(name),
        }?;
        write!(formatter, ":{}", self.port)
    }
}

impl FromStr for ReachAddress {
    type Err = Problem;

    /// Reads `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// `policy_invalid_value` for what is not of that form, `unsupported_field` for a host that is
    /// not loopback.
    fn from_str(text: &str) -> Result<Self, Problem> {
        let malformed = || {
            Problem::new(
                ErrorCode::PolicyInvalidValue,
                format!("reach holds {text:?}, which is no HOST:PORT"),
            )
            .with_field("reach")
            .with_hint("write an address of loopback and a port: 127.0.0.1:5432, [::1]:5432")
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
        let port = port_of(port).ok_or_else(malformed)?;
        let inner = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let address = match inner {
            Some(inner) => Some(IpAddr::V6(inner.parse().map_err(|_| malformed())?)),
            None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        };
        let host = match address.map(|address| address.to_canonical()) {
            Some(address) if address.is_loopback() => Some(ReachHost::Address(address)),
            Some(_) => None,
            None => {
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                if host.is_empty() || !host.bytes().all(is_name) {
                    return Err(malformed());
                }
                let name = host.to_ascii_lowercase();
                let is_local = name == "localhost" || name.ends_with(".localhost");
                let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
                if is_local {
                    Some(ReachHost::Localhost(name))
                } else if name.rsplit('.').next().is_some_and(is_number) {
                    // An address in a form that is none, which a resolver may all the same take.
                    return Err(malformed());
                } else {
                    Some(ReachHost::Named(name))
                }
            }
        };
        host.map(|host| Self { host, port })
            .ok_or_else(|| not_loopback(text))
    }
}

fn not_loopback(text: &str) -> Problem {
    Problem::new(
        ErrorCode::UnsupportedField,
        format!("this version reaches services on loopback only, and {text} is not"),
    )
    .with_field("reach")
    .with_hint("forward it to a port of 127.0.0.1 on this machine (ssh -L, socat), and name that")
}

/// Which ports of the inside are opened on loopback outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PublishRule {
    /// Every port that something inside listens on, under the same number where it is free.
    Auto,
    /// One port.
    Port {
        /// Its number outside.
        outside: NonZeroU16,
        /// Its number inside.
        inside: NonZeroU16,
    },
}

impl std::fmt::Display for PublishRule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Port { outside, inside } if outside == inside => write!(formatter, "{inside}"),
            Self::Port { outside, inside } => write!(formatter, "{outside}:{inside}"),
        }
    }
}

impl FromStr for PublishRule {
    type Err = Problem;

    /// Reads `auto`, `PORT`, or `OUTSIDE:INSIDE`.
    ///
    /// # Errors
    ///
    /// `policy_invalid_value`.
    fn from_str(text: &str) -> Result<Self, Problem> {
        let malformed = || {
            Problem::new(
                ErrorCode::PolicyInvalidValue,
                format!("publish holds {text:?}, which is no port"),
            )
            .with_field("publish")
            .with_hint("write auto, a port such as 3000, or OUTSIDE:INSIDE such as 8080:3000")
        };
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let (outside, inside) = text.split_once(':').unwrap_or((text, text));
        Ok(Self::Port {
            outside: port_of(outside).ok_or_else(malformed)?,
            inside: port_of(inside).ok_or_else(malformed)?,
        })
    }
}

/// Reads a port that is written in digits only.
fn port_of(text: &str) -> Option<NonZeroU16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Which ports cross the walls of an enclosure that has a network of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PortPlan {
    /// Services of the outside that stand inside.
    pub reach: Vec<ReachAddress>,
    /// Ports of the inside that are opened outside.
    pub publish: Vec<PublishRule>,
}

impl PortPlan {
    /// Tells whether nothing crosses.
    pub const fn is_empty(&self) -> bool {
        self.reach.is_empty() && self.publish.is_empty()
    }

    /// Tells whether every listener of the inside is opened.
    pub fn is_automatic(&self) -> bool {
        self.publish.contains(&PublishRule::Auto)
    }
}

/// A port of the inside that was opened outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedPort {
    /// Its number inside.
    pub port: u16,
    /// The address outside, `127.0.0.1:PORT`.
    pub address: String,
}

macro_rules! as_text {
    ($name:ident, $expecting:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(|problem: Problem| de::Error::custom(problem.message))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "description": $expecting})
            }
        }
    };
}

as_text!(
    ReachAddress,
    "an address of loopback and a port, such as 127.0.0.1:5432"
);
as_text!(
    PublishRule,
    "auto, a port such as 3000, or OUTSIDE:INSIDE such as 8080:3000"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_its_names_are_read_and_written_alike() {
        for (text, sockets) in [
            ("127.0.0.1:5432", vec!["127.0.0.1:5432"]),
            ("127.9.0.1:1", vec!["127.9.0.1:1"]),
            ("[::1]:8080", vec!["[::1]:8080"]),
            ("localhost:65535", vec!["127.0.0.1:65535", "[::1]:65535"]),
            ("db.localhost:80", vec!["127.0.0.1:80", "[::1]:80"]),
        ] {
            let address: ReachAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
            let found: Vec<_> = address.sockets().iter().map(ToString::to_string).collect();
            assert_eq!(found, sockets, "{text}");
        }
        // The mapped form is the same place.
        let mapped: ReachAddress = "[::ffff:127.0.0.1]:80".parse().expect("loopback");
        assert_eq!(mapped.to_string(), "127.0.0.1:80");
    }

    #[test]
    fn what_is_not_loopback_is_refused_with_a_way() {
        for text in [
            "10.0.0.5:5432",
            "0.0.0.0:80",
            "[::]:80",
            "[fe80::1]:80",
            "169.254.169.254:80",
        ] {
            let problem = text.parse::<ReachAddress>().expect_err(text);
            assert_eq!(problem.code, ErrorCode::UnsupportedField, "{text}");
            assert!(problem.hint.is_some_and(|hint| hint.contains("127.0.0.1")));
        }
        for text in [
            "127.1:80",
            "2130706433:80",
            "",
            "5432",
            "127.0.0.1",
            "127.0.0.1:0",
            "127.0.0.1:65536",
            "127.0.0.1:+80",
            "127.0.0.1:",
            ":80",
            "::1:80",
            "[127.0.0.1]:80",
            "local host:80",
            "http://127.0.0.1:80",
        ] {
            let problem = text.parse::<ReachAddress>().expect_err(text);
            assert_eq!(problem.code, ErrorCode::PolicyInvalidValue, "{text}");
            assert_eq!(problem.field.as_deref(), Some("reach"));
        }
    }

    #[test]
    fn a_name_is_looked_up_and_has_to_be_loopback() {
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        let named: ReachAddress = "DB.internal:5432".parse().expect("a name");
        assert_eq!(named.to_string(), "db.internal:5432");
        assert!(named.sockets().is_empty());
        let found = named.resolved(|name| {
            assert_eq!(name, "db.internal");
            vec![address("::1"), address("127.0.1.1")]
        });
        assert_eq!(found.expect("loopback").to_string(), "127.0.1.1:5432");
        for known in [
            vec![],
            vec![address("10.0.0.1")],
            vec![address("127.0.0.1"), address("10.0.0.1")],
        ] {
            let problem = named.resolved(|_| known).expect_err("not loopback");
            assert_eq!(problem.code, ErrorCode::UnsupportedField);
        }
    }

    #[test]
    fn rules_of_publishing_are_read_and_written_alike() {
        for text in ["auto", "3000", "8080:3000"] {
            let rule: PublishRule = text.parse().expect(text);
            assert_eq!(rule.to_string(), text);
        }
        assert_eq!(
            "80:80".parse::<PublishRule>().expect("a rule").to_string(),
            "80"
        );
        for text in ["", "0", "all", "80:", ":80", "1:2:3", "-1", "65536", "AUTO"] {
            let problem = text.parse::<PublishRule>().expect_err(text);
            assert_eq!(problem.code, ErrorCode::PolicyInvalidValue, "{text}");
        }
    }
}
