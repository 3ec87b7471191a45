//! What a way out needs before the walls go up: secrets, an authority, and what the inside trusts.

use std::sync::Arc;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::hosts::{HostRule, RequestRule, RequestRules};
use cofferdam_core::policy::Layer;
use cofferdam_core::spec::{EgressRule, EgressSpec, EgressTrust, EnclosureSpec, Mount};
use cofferdam_egress::{Broker, Brokers, RunAuthority, Termination};

use crate::plane::Plane;

/// What was made for one place.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    pub(super) requests: RequestRules,
    pub(super) brokers: Brokers,
    pub(super) termination: Option<Termination>,
    /// The file inside, and what it holds.
    bundle: Option<(BytePath, Vec<u8>)>,
}

impl Opening {
    /// Finds the secrets of a plan and makes its authority, where single requests are seen.
    ///
    /// # Errors
    ///
    /// `secret_unavailable`, and `provider_unavailable` where nothing could be verified.
    pub(crate) fn prepare(plane: &Plane, spec: &EgressSpec) -> Result<Self, Problem> {
        let Some(trust) = &spec.trust else {
            return Ok(Self::default());
        };
        let brokers: Vec<Broker> = spec
            .secrets
            .iter()
            .map(|secret| plane.network().secrets.broker(plane, secret))
            .collect::<Result<_, _>>()?;
        let unavailable = |why: &dyn std::fmt::Display| {
            Problem::new(
                ErrorCode::ProviderUnavailable,
                format!("requests cannot be seen: {why}"),
            )
            .with_hint("SSL_CERT_FILE names the file of root certificates")
        };
        let roots = match plane.network().options().roots {
            Some(roots) => roots,
            None => roots(trust).map_err(|why| unavailable(&why))?,
        };
        let authority = RunAuthority::new(plane.ambient().now())
            .map(Arc::new)
            .map_err(|error| unavailable(&error))?;
        let mut bundle = roots.clone();
        for file in &trust.more {
            // A file that is gone was of no use outside either.
            bundle.extend(std::fs::read(file.as_path()).unwrap_or_default());
            bundle.push(b'\n');
        }
        bundle.extend_from_slice(authority.certificate().as_bytes());
        let termination =
            Termination::new(authority, &roots).map_err(|error| unavailable(&error))?;
        Ok(Self {
            requests: RequestRules(rules(spec)?),
            brokers: Brokers::new(brokers),
            termination: Some(termination),
            bundle: Some((trust.bundle.clone(), bundle)),
        })
    }

    /// Gives the plan with the certificates in their place; `None` where there are none.
    pub(crate) fn complete(&mut self, spec: &EnclosureSpec) -> Option<EnclosureSpec> {
        let (place, bytes) = self.bundle.take()?;
        let mut spec = spec.clone();
        for mount in &mut spec.mounts {
            if let Mount::Content { target, content } = mount
                && *target == place
            {
                *content = BytePath::from_bytes(bytes);
                break;
            }
        }
        Some(spec)
    }
}

fn roots(trust: &EgressTrust) -> Result<Vec<u8>, String> {
    let path = trust
        .roots
        .as_ref()
        .ok_or("this machine has no file of root certificates")?;
    let mut bytes =
        std::fs::read(path.as_path()).map_err(|error| format!("{path} cannot be read: {error}"))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Parses the rules of a plan. Those of the owner's two layers add up.
///
/// # Errors
///
/// `policy_invalid_value`, though they were checked with the policy: a rule that was passed over would let
/// through what it refuses.
fn rules(spec: &EgressSpec) -> Result<Vec<RequestRule>, Problem> {
    let invalid = |why: &dyn std::fmt::Display| {
        Problem::new(
            ErrorCode::PolicyInvalidValue,
            format!("a rule about requests is none: {why}"),
        )
        .with_field("network_rules")
    };
    let parse = |one: &EgressRule| {
        let hosts = one.rule.hosts.iter();
        let hosts: Vec<HostRule> = hosts
            .map(|text| text.parse().map_err(|why| invalid(&why)))
            .collect::<Result<_, _>>()?;
        let speaker = match one.origin {
            Layer::BuiltIn | Layer::User | Layer::CommandLine => "the owner's policy",
            Layer::Managed => "the managed policy",
            Layer::Project => "the project's policy",
            Layer::Request => "the request",
        };
        one.rule.rule(hosts, speaker).map_err(|why| invalid(&why))
    };
    spec.rules.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use cofferdam_core::policy::NetworkRule;

    use super::*;

    fn spec(host: &str, path: &str) -> EgressSpec {
        let rule = NetworkRule {
            hosts: vec![host.to_owned()],
            paths: Some(vec![path.to_owned()]),
            ..NetworkRule::default()
        };
        EgressSpec {
            port: 1,
            allow: Vec::new(),
            deny: Vec::new(),
            ceiling: None,
            rules: vec![EgressRule {
                rule,
                origin: Layer::User,
            }],
            secrets: Vec::new(),
            trust: None,
        }
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_not_passed_over() {
        assert_eq!(rules(&spec("a.test", "/a/*")).map(|all| all.len()), Ok(1));
        for (host, path) in [("a b", "/a"), ("a.test", "no path")] {
            let problem = rules(&spec(host, path)).expect_err("none");
            assert_eq!(problem.code, ErrorCode::PolicyInvalidValue);
        }
    }
}
