//! Rules over hosts, and what they decide.

use std::fmt;
use std::str::FromStr;

use super::name::{Host, HostError, HostName, parse_port, split_port};

/// Says why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The whole rule is a wildcard.
    #[error("a bare {text:?} allows every host and is refused")]
    Bare {
        /// The rule.
        text: String,
    },
    /// A star stands elsewhere than as the first label.
    #[error("{text:?} has a star elsewhere than as its first label")]
    MisplacedStar {
        /// The rule.
        text: String,
    },
    /// The rule is a URL.
    #[error("{text:?} is a URL, a rule is a host with or without a port")]
    Url {
        /// The rule.
        text: String,
    },
    /// The port is not one, or the range is empty.
    #[error("the port of {text:?} is neither PORT nor PORT-PORT, each from 1 to 65535")]
    Port {
        /// The rule.
        text: String,
    },
    /// What is left is no host.
    #[error("{text:?} is no host: {source}")]
    Host {
        /// The rule.
        text: String,
        /// Why.
        source: HostError,
    },
}

impl RuleError {
    /// Gives the stable word for this failure.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Bare { .. } => "rule_bare_star",
            Self::MisplacedStar { .. } => "rule_misplaced_star",
            Self::Url { .. } => "rule_url",
            Self::Port { .. } => "rule_port",
            Self::Host { source, .. } => source.code(),
        }
    }

    /// Says what to write instead, where there is something to say.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Bare { .. } => Some("use network = \"full\" to reach every host"),
            Self::MisplacedStar { .. } => {
                Some("write *.example.com for what lies below, **.example.com for that and itself")
            }
            Self::Url { .. } => Some("write the host alone: example.com or example.com:443"),
            Self::Port { .. } => None,
            Self::Host { source, .. } => source.hint(),
        }
    }
}

/// The host part of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Exactly this name or address.
    Exact(Host),
    /// What lies below the name, at any depth, the name itself not: `*.example.com`.
    Below(HostName),
    /// The name and what lies below it, at any depth: `**.example.com`.
    AtOrBelow(HostName),
}

/// Ports from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// The lowest port.
    pub first: u16,
    /// The highest port, not below `first`.
    pub last: u16,
}

/// One rule over hosts.
///
/// | Written | Holds for |
/// |---|---|
/// | `example.com` | this name, every port |
/// | `*.example.com` | every name below it, at any depth, not itself |
/// | `**.example.com` | itself and every name below it |
/// | `192.0.2.1`, `[2001:db8::1]` | this address, where it is asked for as such |
/// | `…:443`, `…:8000-8099` | the same, only these ports |
///
/// Names are compared without regard to case or a trailing dot. A rule without a name (`*`, `**`,
/// `*:443`) is refused, as is a star anywhere else.
///
/// ```
/// use cofferdam_core::hosts::{Host, HostRule};
///
/// let rule: HostRule = "*.example.com:443".parse().unwrap();
/// assert!(rule.holds_for(&Host::parse(b"api.example.com").unwrap(), 443));
/// assert!(!rule.holds_for(&Host::parse(b"example.com").unwrap(), 443));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostRule {
    /// Which hosts.
    pub pattern: HostPattern,
    /// Which ports; every port where there is none.
    pub ports: Option<PortRange>,
}

impl HostRule {
    /// Tells whether the rule holds for a host and a port.
    pub fn holds_for(&self, host: &Host, port: u16) -> bool {
        self.ports
            .is_none_or(|ports| (ports.first..=ports.last).contains(&port))
            && match (&self.pattern, host) {
                (HostPattern::Exact(exact), host) => exact == host,
                (HostPattern::Below(top), Host::Name(name)) => name.is_below(top),
                (HostPattern::AtOrBelow(top), Host::Name(name)) => {
                    name == top || name.is_below(top)
                }
                (_, Host::Address(_)) => false,
            }
    }

    /// Tells whether the rule names one address and nothing else.
    pub const fn is_address(&self) -> bool {
        matches!(self.pattern, HostPattern::Exact(Host::Address(_)))
    }
}

impl FromStr for HostRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let whole = || text.to_owned();
        let no_host = |source| RuleError::Host {
            text: text.to_owned(),
            source,
        };
        if text.contains('/') {
            return Err(RuleError::Url { text: whole() });
        }
        let (host, port) = split_port(text.as_bytes()).map_err(no_host)?;
        let ports = match port {
            None => None,
            Some(port) => Some(parse_range(port).ok_or_else(|| RuleError::Port { text: whole() })?),
        };
        let stars = host.iter().take_while(|byte| **byte == b'*').count();
        let bare = host.iter().all(|byte| matches!(byte, b'*' | b'.'));
        if stars > 0 && bare {
            return Err(RuleError::Bare { text: whole() });
        }
        let rest = &host[stars..];
        if rest.contains(&b'*') || stars > 2 || (stars > 0 && rest.first() != Some(&b'.')) {
            return Err(RuleError::MisplacedStar { text: whole() });
        }
        let top = || HostName::parse(&rest[1..]).map_err(no_host);
        let pattern = match stars {
            0 => HostPattern::Exact(Host::parse(host).map_err(no_host)?),
            1 => HostPattern::Below(top()?),
            _ => HostPattern::AtOrBelow(top()?),
        };
        Ok(Self { pattern, ports })
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            HostPattern::Exact(host) => write!(formatter, "{host}")?,
            HostPattern::Below(top) => write!(formatter, "*.{top}")?,
            HostPattern::AtOrBelow(top) => write!(formatter, "**.{top}")?,
        }
        match self.ports {
            None => Ok(()),
            Some(PortRange { first, last }) if first == last => write!(formatter, ":{first}"),
            Some(PortRange { first, last }) => write!(formatter, ":{first}-{last}"),
        }
    }
}

fn parse_range(bytes: &[u8]) -> Option<PortRange> {
    let (first, last) = match bytes.iter().position(|byte| *byte == b'-') {
        None => (parse_port(bytes)?, parse_port(bytes)?),
        Some(dash) => (parse_port(&bytes[..dash])?, parse_port(&bytes[dash + 1..])?),
    };
    (first <= last).then_some(PortRange { first, last })
}

/// What the rules say about a host and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostVerdict<'a> {
    /// A rule allows it and none denies it.
    Allowed {
        /// The first rule that allows it.
        rule: &'a HostRule,
    },
    /// A rule denies it, whatever allows it.
    Denied {
        /// The first rule that denies it.
        rule: &'a HostRule,
    },
    /// No rule speaks of it: refused, unless somebody who may is asked.
    NotListed,
}

/// The rules of one policy: a denial wins, and no rule at all allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRules {
    /// What is allowed; empty allows nothing.
    pub allow: Vec<HostRule>,
    /// What is denied whatever allows it.
    pub deny: Vec<HostRule>,
}

impl HostRules {
    /// Parses both lists as a policy has them.
    pub fn parse<A: AsRef<str>, D: AsRef<str>>(
        allow: impl IntoIterator<Item = A>,
        deny: impl IntoIterator<Item = D>,
    ) -> Result<Self, RuleError> {
        let allow = allow.into_iter().map(|rule| rule.as_ref().parse());
        let deny = deny.into_iter().map(|rule| rule.as_ref().parse());
        Ok(Self {
            allow: allow.collect::<Result<_, _>>()?,
            deny: deny.collect::<Result<_, _>>()?,
        })
    }

    /// Decides a host and a port as the client asked for them.
    pub fn decide(&self, host: &Host, port: u16) -> HostVerdict<'_> {
        if let Some(rule) = self.denying(host, port) {
            return HostVerdict::Denied { rule };
        }
        match self.allow.iter().find(|rule| rule.holds_for(host, port)) {
            Some(rule) => HostVerdict::Allowed { rule },
            None => HostVerdict::NotListed,
        }
    }

    /// Gives the first rule that denies a host and a port; also asked about every address that an
    /// allowed name leads to.
    pub fn denying(&self, host: &Host, port: u16) -> Option<&HostRule> {
        self.deny.iter().find(|rule| rule.holds_for(host, port))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text.as_bytes()).expect("a host")
    }

    fn rules(allow: &[&str], deny: &[&str]) -> HostRules {
        HostRules::parse(allow, deny).expect("rules")
    }

    fn allows(rules: &HostRules, text: &str, port: u16) -> bool {
        matches!(rules.decide(&host(text), port), HostVerdict::Allowed { .. })
    }

    #[test]
    fn the_forms_hold_for_what_the_table_says() {
        let exact = rules(&["Example.com."], &[]);
        assert!(allows(&exact, "EXAMPLE.com", 1));
        assert!(!allows(&exact, "api.example.com", 1));
        let below = rules(&["*.example.com"], &[]);
        assert!(allows(&below, "api.example.com", 1));
        assert!(allows(&below, "a.b.example.com", 1));
        assert!(!allows(&below, "example.com", 1));
        assert!(!allows(&below, "badexample.com", 1));
        let both = rules(&["**.example.com:443", "[::1]:80-90"], &[]);
        assert!(allows(&both, "example.com", 443));
        assert!(allows(&both, "a.b.example.com", 443));
        assert!(!allows(&both, "example.com", 80));
        assert!(allows(&both, "[::1]", 85));
        assert!(!allows(&both, "[::1]", 91));
        assert!(allows(&rules(&["127.0.0.1"], &[]), "[::ffff:127.0.0.1]", 9));
    }

    #[test]
    fn fc_47_an_empty_list_allows_nothing() {
        assert_eq!(
            HostRules::default().decide(&host("example.com"), 443),
            HostVerdict::NotListed
        );
    }

    #[test]
    fn a_denial_wins_and_names_its_rule() {
        let rules = rules(&["**.example.com"], &["*.internal.example.com"]);
        assert!(allows(&rules, "internal.example.com", 443));
        let verdict = rules.decide(&host("x.y.internal.example.com"), 443);
        let HostVerdict::Denied { rule } = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(rule.to_string(), "*.internal.example.com");
    }

    #[test]
    fn what_is_no_rule_says_why() {
        for (text, code) in [
            ("*", "rule_bare_star"),
            ("**", "rule_bare_star"),
            ("*.", "rule_bare_star"),
            ("*:443", "rule_bare_star"),
            ("*.*", "rule_bare_star"),
            ("***.a.test", "rule_misplaced_star"),
            ("a.*.test", "rule_misplaced_star"),
            ("*a.test", "rule_misplaced_star"),
            ("a*", "rule_misplaced_star"),
            ("https://a.test/", "rule_url"),
            ("a.test:0", "rule_port"),
            ("a.test:90-80", "rule_port"),
            ("a.test:", "rule_port"),
            ("a.test:http", "rule_port"),
            ("", "host_empty"),
            ("a..test", "host_invalid_label"),
            ("a.test\0", "host_control_byte"),
            ("*.1.2.3.4", "host_ambiguous_address"),
            ("127.1", "host_ambiguous_address"),
            ("::1", "host_brackets_missing"),
            ("b\u{fc}cher.example", "host_not_ascii"),
        ] {
            let error = text.parse::<HostRule>().expect_err(text);
            assert_eq!(error.code(), code, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "\\PC{0,40}|[a-c*.:0-9\\[\\]-]{0,20}") {
            if let Ok(rule) = text.parse::<HostRule>() {
                prop_assert_eq!(rule.to_string().parse::<HostRule>(), Ok(rule));
            }
        }

        #[test]
        fn deny_wins_whatever_allows(
            labels in proptest::collection::vec("[a-z]{1,5}", 1..4),
            allow_form in 0..3_usize,
            deny_form in 0..3_usize,
            port in 1..=u16::MAX,
        ) {
            let top = labels.join(".");
            let form = |which: usize| match which {
                0 => format!("x.{top}"),
                1 => format!("*.{top}"),
                _ => format!("**.{top}:{port}"),
            };
            let rules = rules(&[&form(allow_form), "x.other"], &[&form(deny_form)]);
            let denied = matches!(
                rules.decide(&host(&format!("x.{top}")), port),
                HostVerdict::Denied { .. }
            );
            prop_assert!(denied);
        }

        #[test]
        fn nothing_outside_the_top_is_allowed(
            name in "[a-z]{1,6}(\\.[a-z]{1,6}){0,3}",
            top in "[a-z]{1,6}\\.[a-z]{1,6}",
        ) {
            let rules = rules(&[&format!("**.{top}")], &[]);
            let inside = name == top || name.ends_with(&format!(".{top}"));
            prop_assert_eq!(allows(&rules, &name, 443), inside);
        }
    }
}
