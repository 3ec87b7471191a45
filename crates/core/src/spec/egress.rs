//! The plan of the way out of a restricted network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::policy::{Layer, NetworkRule, SecretForm};

/// The way out of a network of its own: a proxy that lets through what is listed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressSpec {
    /// Where it listens inside, on loopback.
    pub port: u16,
    /// What is let through; empty is nothing.
    pub allow: Vec<EgressHost>,
    /// What is refused whatever lets it through.
    pub deny: Vec<EgressHost>,
    /// What nobody may go beyond by answering a question; `None` is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Vec<String>>,
    /// Rules over single requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<EgressRule>,
    /// Secrets that hosts are told; values never stand here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<EgressSecret>,
    /// What the inside trusts, where TLS of some host ends in the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<EgressTrust>,
}

/// A rule over requests and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressRule {
    /// The rule, with its sets of hosts looked up.
    pub rule: NetworkRule,
    /// Which layer has it.
    pub origin: Layer,
}

/// A secret that the proxy puts in the place of its placeholder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressSecret {
    /// Its name.
    pub name: String,
    /// Where its value is found.
    pub source: SecretSource,
    /// The hosts that are told it.
    pub hosts: Vec<String>,
    /// Where in a request it stands.
    #[serde(rename = "as")]
    pub form: SecretForm,
    /// The name of the header or parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The user's name beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Whether it is put in also where nothing stands in that place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// Which layer has it.
    pub origin: Layer,
}

/// Where the value of a secret is found, outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretSource {
    /// In a file, by absolute path.
    File(BytePath),
    /// In a variable of the caller.
    Env(String),
    /// In what a program prints.
    Command {
        /// The program and its arguments.
        argv: Vec<String>,
        /// Milliseconds that it has.
        timeout_ms: u64,
    },
}

/// Which certificates the inside trusts, and by which a host is known outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressTrust {
    /// The file inside, with the authority of the place added when the walls go up.
    pub bundle: BytePath,
    /// The machine's file of root certificates: hosts are verified by it alone.
    pub roots: Option<BytePath>,
    /// Further files whose certificates the inside trusts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<BytePath>,
}

/// A rule about hosts and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressHost {
    /// The rule.
    pub rule: String,
    /// Which layer or which configuration names it.
    pub origin: String,
    /// Whether the machine's own configuration names it: then its address may be one of the site.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub site: bool,
}
