//! Hosts as a policy lists them: rules, and sets of hosts that are found on the machine.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{ErrorCode, Problem};
use crate::hosts::{Host, HostPattern, HostRule};

/// A set of hosts that has a name in policies and is filled by looking at the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostSet {
    /// `@dev`: what package clients and the repository's remotes are configured to use here.
    Dev,
}

impl HostSet {
    /// Every set.
    pub const ALL: &[Self] = &[Self::Dev];

    /// Gives the name, with its `@`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dev => "@dev",
        }
    }
}

/// One entry of `network_allow` or `network_deny`.
///
/// ```
/// use cofferdam_core::policy::HostEntry;
///
/// assert_eq!("@dev".parse::<HostEntry>().unwrap().to_string(), "@dev");
/// assert_eq!("Example.com:443".parse::<HostEntry>().unwrap().to_string(), "example.com:443");
/// assert!("*".parse::<HostEntry>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostEntry {
    /// A set by its name.
    Set(HostSet),
    /// A rule.
    Rule(HostRule),
}

impl FromStr for HostEntry {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text.starts_with('@') {
            let known = HostSet::ALL.iter().find(|one| one.as_str() == text);
            return known.copied().map(Self::Set).ok_or_else(|| {
                Problem::new(
                    ErrorCode::PolicyInvalidValue,
                    format!("there is no host set {text:?}"),
                )
                .with_hint("the set that there is: @dev")
            });
        }
        text.parse()
            .map(Self::Rule)
            .map_err(|error: crate::hosts::RuleError| {
                let problem = Problem::new(ErrorCode::PolicyInvalidValue, error.to_string());
                match error.hint() {
                    Some(hint) => problem.with_hint(hint),
                    None => problem,
                }
            })
    }
}

impl fmt::Display for HostEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(set) => formatter.write_str(set.as_str()),
            Self::Rule(rule) => rule.fmt(formatter),
        }
    }
}

impl Serialize for HostEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|problem: Problem| de::Error::custom(problem.message))
    }
}

impl JsonSchema for HostEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HostEntry".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A host with or without a port, `*.x`, `**.x`, or `@dev`."
        })
    }
}

impl HostEntry {
    /// Tells whether everything that `other` allows is allowed by this one as well, as far as it
    /// can be said without looking at the machine.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Set(one), Self::Set(other)) => one == other,
            (Self::Rule(one), Self::Rule(other)) => covers(one, other),
            _ => false,
        }
    }
}

/// Tells whether a rule holds wherever another one does.
pub(crate) fn covers(wide: &HostRule, narrow: &HostRule) -> bool {
    let ports = match (wide.ports, narrow.ports) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => wide.first <= narrow.first && narrow.last <= wide.last,
    };
    let hosts = wide.pattern == narrow.pattern
        || match (&wide.pattern, &narrow.pattern) {
            // Of what lies below a name only the name itself may be left out.
            (
                HostPattern::Below(top),
                HostPattern::Exact(Host::Name(name))
                | HostPattern::Below(name)
                | HostPattern::AtOrBelow(name),
            ) => name.is_below(top),
            (
                HostPattern::AtOrBelow(top),
                HostPattern::Exact(Host::Name(name))
                | HostPattern::Below(name)
                | HostPattern::AtOrBelow(name),
            ) => name == top || name.is_below(top),
            _ => false,
        };
    ports && hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(wide: &str, narrow: &str) -> bool {
        let entry = |text: &str| text.parse::<HostEntry>().expect("an entry");
        entry(wide).covers(&entry(narrow))
    }

    #[test]
    fn what_covers_what() {
        for (wide, narrow) in [
            ("a.com", "A.com."),
            ("a.com", "a.com:443"),
            ("*.a.com", "b.a.com:1"),
            ("*.a.com", "*.b.a.com"),
            ("*.a.com", "**.b.a.com"),
            ("**.a.com", "a.com"),
            ("**.a.com", "*.a.com"),
            ("a.com:1-9", "a.com:3-4"),
            ("@dev", "@dev"),
        ] {
            assert!(covers(wide, narrow), "{wide} {narrow}");
        }
        for (wide, narrow) in [
            ("a.com", "b.com"),
            ("a.com:443", "a.com"),
            ("a.com:1-9", "a.com:3-10"),
            ("*.a.com", "a.com"),
            ("*.a.com", "**.a.com"),
            ("*.a.com", "ba.com"),
            ("a.com", "*.a.com"),
            ("@dev", "a.com"),
            ("**.a.com", "@dev"),
        ] {
            assert!(!covers(wide, narrow), "{wide} {narrow}");
        }
    }

    #[test]
    fn stars_urls_and_unknown_sets_are_refused() {
        for text in ["*", "**", "*:443", "@other", "https://a.com", "", "a b"] {
            let problem = text.parse::<HostEntry>().expect_err(text);
            assert_eq!(problem.code, ErrorCode::PolicyInvalidValue, "{text}");
        }
    }
}
