//! What is decided about connections: told to the journal, and to the command that it concerns.

use std::sync::Mutex;

use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::hosts::HostRule;
use cofferdam_core::id::{CommandId, EnclosureId};
use cofferdam_core::limits;
use cofferdam_core::outcome::{Denial, DenialSource};
use cofferdam_core::spec::EgressSpec;
use cofferdam_egress::{NetClosed, NetDecision, NetEvent, NetRequest, Reason, Verdict};
use serde_json::json;

use super::lock;
use crate::plane::Plane;

/// Refusals of one command that are kept apart; more say nothing new.
const MOST: usize = 100;

/// Sees every decision of one enclosure.
#[derive(Debug)]
pub(super) struct Watch {
    plane: Plane,
    enclosure: EnclosureId,
    subject: Subject,
    /// The plan's rules, parsed once, with where each comes from.
    origins: Vec<(HostRule, String)>,
    running: Mutex<Vec<Running>>,
}

#[derive(Debug)]
struct Running {
    command: CommandId,
    subject: Subject,
    refused: Vec<(Denial, usize)>,
}

impl Watch {
    pub(super) fn new(
        plane: &Plane,
        enclosure: &EnclosureId,
        subject: &Subject,
        spec: &EgressSpec,
    ) -> Self {
        Self {
            plane: plane.clone(),
            enclosure: enclosure.clone(),
            subject: subject.clone(),
            origins: spec
                .allow
                .iter()
                .chain(&spec.deny)
                .filter_map(|host| Some((host.rule.parse().ok()?, host.origin.clone())))
                .collect(),
            running: Mutex::default(),
        }
    }

    pub(super) fn begin(&self, command: &CommandId, subject: &Subject) {
        lock(&self.running).push(Running {
            command: command.clone(),
            subject: subject.clone(),
            refused: Vec::new(),
        });
    }

    pub(super) fn end(&self, command: &CommandId) -> Vec<Denial> {
        let mut running = lock(&self.running);
        let Some(at) = running.iter().position(|one| one.command == *command) else {
            return Vec::new();
        };
        let ended = running.swap_remove(at);
        ended
            .refused
            .into_iter()
            .map(|(denial, times)| Denial {
                will_not_change: times >= limits::DENIALS_UNTIL_WILL_NOT_CHANGE,
                ..denial
            })
            .collect()
    }

    /// Tells of which command and for whom something was: of the only one that runs.
    pub(super) fn concerned(&self) -> (Option<CommandId>, Subject) {
        match lock(&self.running).as_slice() {
            [only] => (Some(only.command.clone()), only.subject.clone()),
            _ => (None, self.subject.clone()),
        }
    }

    pub(super) fn observe(&self, event: NetEvent) {
        match event {
            NetEvent::Decided(decision) => self.decided(decision),
            NetEvent::Requested(request) => self.requested(&request),
            NetEvent::Closed(closed) => self.closed(&closed),
        }
    }

    fn decided(&self, mut decision: NetDecision) {
        let origin = self.explain(&mut decision);
        let (command, subject) = self.concerned();
        let denial = denial(&decision);
        if let Some(denial) = &denial {
            let mut running = lock(&self.running);
            // Where several run at once, each is told: one of them it was.
            for one in running.iter_mut() {
                let known = one.refused.iter().position(|(known, _)| known == denial);
                match known {
                    Some(at) => one.refused[at].1 += 1,
                    None if one.refused.len() < MOST => one.refused.push((denial.clone(), 1)),
                    None => {}
                }
            }
        }
        let severity = match decision.verdict {
            Verdict::Allowed => Severity::Info,
            Verdict::Refused => Severity::Warning,
        };
        let data = json!({
            "enclosure_id": self.enclosure,
            "command_id": command,
            "connection": decision.connection,
            "protocol": decision.protocol,
            "method": decision.method,
            "path": decision.path,
            "inspected": decision.inspected,
            "host": decision.host,
            "port": decision.port,
            "verdict": decision.verdict,
            "reason": decision.reason,
            "rule": decision.rule,
            "origin": origin,
            "addresses": decision.addresses,
            "detail": decision.detail,
            "repeated": decision.repeated,
            "will_not_change": denial.is_some()
                && decision.repeated as usize >= limits::DENIALS_UNTIL_WILL_NOT_CHANGE,
        });
        // A journal that cannot be written is told by the outcome, which goes the same way.
        let _ = self
            .plane
            .record(&subject, event_type::NET_DECIDED, severity, data);
    }

    /// Says a decision in the words of the plan; gives where the rule comes from.
    fn explain(&self, decision: &mut NetDecision) -> Option<String> {
        if decision.reason == Reason::Reach {
            // A service that an embedding program opens is listed like the rest.
            let rule = decision.rule.take().unwrap_or_default();
            decision.rule = Some(rule.trim_start_matches("reach ").to_owned());
            decision.reason = Reason::Listed;
        }
        let rule: HostRule = decision.rule.as_deref()?.parse().ok()?;
        self.origins
            .iter()
            .find(|(known, _)| *known == rule)
            .map(|(_, origin)| origin.clone())
    }

    fn requested(&self, request: &NetRequest) {
        let (command, subject) = self.concerned();
        let data = json!({
            "enclosure_id": self.enclosure,
            "command_id": command,
            "connection": request.connection,
            "host": request.host,
            "port": request.port,
            "method": request.method,
            "path": request.path,
            "rule": request.rule,
            "secrets": request.secrets,
            "status": request.status,
            "sent": request.sent,
            "received": request.received,
        });
        let severity = if request.secrets.is_empty() {
            Severity::Debug
        } else {
            Severity::Info
        };
        self.plane
            .record_later(&subject, event_type::NET_REQUESTED, severity, data);
    }

    fn closed(&self, closed: &NetClosed) {
        let (command, subject) = self.concerned();
        let data = json!({
            "enclosure_id": self.enclosure,
            "command_id": command,
            "connection": closed.connection,
            "host": closed.host,
            "port": closed.port,
            "address": closed.address,
            "ended": closed.ended,
            "sent": closed.sent,
            "received": closed.received,
            "elapsed_ms": closed.elapsed_ms,
        });
        self.plane
            .record_later(&subject, event_type::NET_CLOSED, Severity::Debug, data);
    }
}

/// Makes a denial of a refusal that is one of policy; a name that does not resolve is none.
fn denial(decision: &NetDecision) -> Option<Denial> {
    let host = decision.host.as_deref()?;
    let subject = match decision.port {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let subject = match (&decision.method, &decision.path) {
        (Some(method), Some(path)) => format!("{method} {subject}{path}"),
        _ => subject,
    };
    let (rule, instead, askable) = match decision.reason {
        Reason::NotListed => (
            "network_allow".to_owned(),
            format!(
                "{host} is not among the hosts that may be reached: do without it, or ask the owner \
                 to allow it with --allow {host} or network_allow = [\"{host}\"]"
            ),
            true,
        ),
        Reason::Unanswered => (
            "network_allow".to_owned(),
            format!(
                "nobody answered whether {host} may be reached: do without it, or ask the owner to \
                 allow it with --allow {host} or network_allow = [\"{host}\"]"
            ),
            true,
        ),
        Reason::AnsweredNo => (
            "network_allow".to_owned(),
            format!("the owner was asked and refused {host}: do without it"),
            false,
        ),
        Reason::DeniedRule => (
            format!(
                "network_deny ({})",
                decision.rule.as_deref().unwrap_or("a rule")
            ),
            format!("{host} is refused whatever allows it: do without it"),
            false,
        ),
        Reason::AddressRefused => (
            "address class".to_owned(),
            decision
                .detail
                .clone()
                .unwrap_or_else(|| format!("{host} does not lead to the open internet")),
            false,
        ),
        Reason::InvalidHost => (
            "host name".to_owned(),
            "write the host as a name or an address".to_owned(),
            false,
        ),
        Reason::RequestRefused | Reason::RequestAmbiguous => (
            match &decision.rule {
                Some(rule) => format!("network_rules ({rule})"),
                None => "network_rules".to_owned(),
            },
            told(decision, "the rules over requests do not let it through"),
            decision.reason == Reason::RequestRefused && decision.rule.is_some(),
        ),
        Reason::PlaceholderElsewhere => (
            "secrets".to_owned(),
            told(
                decision,
                "the placeholder of a secret goes to its own hosts only",
            ),
            false,
        ),
        Reason::NameMismatch => (
            "host name".to_owned(),
            told(decision, "name the same host within TLS"),
            false,
        ),
        Reason::NotInspectable => (
            "network_rules".to_owned(),
            told(decision, "speak TLS with HTTP/1.1, or HTTP/1.1"),
            false,
        ),
        Reason::ClientTls => (
            "certificates".to_owned(),
            told(decision, "trust the file that SSL_CERT_FILE names"),
            false,
        ),
        _ => return None,
    };
    Some(Denial {
        source: DenialSource::Proxy,
        rule,
        subject,
        instead,
        askable,
        will_not_change: false,
    })
}

/// Gives what the client was told.
fn told(decision: &NetDecision, else_this: &str) -> String {
    decision
        .detail
        .clone()
        .unwrap_or_else(|| else_this.to_owned())
}
