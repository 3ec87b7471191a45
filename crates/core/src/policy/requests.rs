//! What a policy says about single requests: rules over methods and paths.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hosts::HostEntry;
use crate::error::{ErrorCode, Problem};
use crate::hosts::{HostRule, Method, Methods, RequestRule, RequestRuleError};

/// A rule over the requests to some hosts, which `network_allow` lets through besides.
///
/// Requests to a host that a rule is about pass only where one of them lets them through. For that
/// they have to be seen: TLS of these hosts ends in the proxy, under a certificate authority that
/// lives as long as the place and that only the inside trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    /// The hosts, in the forms of `network_allow`, `@dev` included.
    pub hosts: Vec<String>,
    /// `read`: GET and HEAD, and what a fetch of git posts. In the place of `methods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<RequestAccess>,
    /// Methods that pass; every one unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// Paths that pass: `/a/b`, `/a/*` for one segment, `/a/**` for all below; every one unless said.
    /// Queries are not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// Whether a connection may become one of WebSocket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub websocket: bool,
}

/// Methods by a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestAccess {
    /// GET and HEAD, and what a fetch of git posts.
    Read,
}

const FIELD: &str = "network_rules";

fn invalid(text: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::PolicyInvalidValue, text).with_field(FIELD)
}

impl NetworkRule {
    /// Makes the rule over requests, for hosts that were found already.
    ///
    /// # Errors
    ///
    /// [`RequestRuleError`] for a method or a path that is none.
    pub fn rule(
        &self,
        hosts: Vec<HostRule>,
        speaker: &str,
    ) -> Result<RequestRule, RequestRuleError> {
        let methods = match (self.access, &self.methods) {
            (Some(RequestAccess::Read), _) => Methods::Reading,
            (None, None) => Methods::Any,
            (None, Some(methods)) => Methods::Of(
                methods
                    .iter()
                    .map(|text| Method::parse(text))
                    .collect::<Result<_, _>>()?,
            ),
        };
        let paths = match &self.paths {
            None => None,
            Some(paths) => Some(
                paths
                    .iter()
                    .map(|text| text.parse())
                    .collect::<Result<_, _>>()?,
            ),
        };
        Ok(RequestRule {
            hosts,
            methods,
            paths,
            websocket: self.websocket,
            speaker: speaker.to_owned(),
        })
    }

    /// Refuses what is no rule.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.hosts.is_empty() {
            return Err(invalid("network_rules has a rule that names no host"));
        }
        for text in &self.hosts {
            text.parse::<HostEntry>()
                .map_err(|problem| problem.with_field(FIELD))?;
        }
        if self.access.is_some() && self.methods.is_some() {
            return Err(Problem::new(
                ErrorCode::PolicyContradiction,
                "a rule of network_rules has both access and methods",
            )
            .with_field(FIELD)
            .with_hint("access = \"read\" stands for methods; keep one of them"));
        }
        self.rule(Vec::new(), "")
            .map_err(|error| invalid(format!("network_rules: {error}")))?;
        Ok(())
    }
}
