//! Requests and results about paths outside of the workspace that the owner authorises.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::approval::Remember;
use crate::bytes::BytePath;
use crate::id::RuleId;
use crate::spec::Access;

/// Authorises a path outside of the workspace, in the owner's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthorisePath {
    /// The path: absolute, or from `~/`.
    pub path: BytePath,
    /// What may be done there; writing includes reading.
    #[serde(default = "read")]
    pub access: Access,
    /// For how long: `task` is as long as this process, `repository` until it expires.
    #[serde(default = "repository")]
    pub hold: Remember,
    /// For how many days, where it is for the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
}

const fn read() -> Access {
    Access::Read
}

const fn repository() -> Remember {
    Remember::Repository
}

/// Asks the owner for a path outside of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestPath {
    /// The path: absolute, or from `~/`.
    pub path: BytePath,
    /// What is to be done there; writing includes reading.
    #[serde(default = "read")]
    pub access: Access,
    /// What for, as the owner is told.
    pub reason: String,
}

/// Lists the paths that are authorised for the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListAuthorisedPaths {}

/// Takes an authorisation back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokePath {
    /// Which.
    pub rule_id: RuleId,
}

/// A path that is authorised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthorisedPath {
    /// By what it is taken back.
    pub rule_id: RuleId,
    /// The one line that it is, as a policy writes it.
    pub line: String,
    /// Where it really is.
    pub path: BytePath,
    /// What may be done there.
    pub access: Access,
    /// The workspace in which it holds.
    pub repository: BytePath,
    /// From when on it does not hold any more; `None` for one that ends with its process.
    #[schemars(with = "Option<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Whether it is in effect: not where a link stands on the way by now, or nothing is there.
    pub in_effect: bool,
    /// Places below it that stay read only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only_below: Vec<BytePath>,
}

/// The paths that are authorised for a workspace, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthorisedPathPage {
    /// Each of them.
    pub paths: Vec<AuthorisedPath>,
}
