//! How a refusal is told to a client: for programs, for people, for agents.

use std::fmt::Write;

use cofferdam_core::hosts::{Host, HostPort};
use serde_json::{Value, json};

use crate::decision::Reason;
use crate::gate::Refusal;

/// From the third time on a refusal says that it will not change.
const LAST_WORD: u32 = 3;

/// Gives the rule that would allow the target, no wider than what was asked for.
fn allowing_rule(target: &HostPort) -> String {
    match target.port {
        80 | 443 => target.host.to_string(),
        _ => target.to_string(),
    }
}

/// Tells whether a line in the policy would change the refusal.
const fn is_allowable(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NotListed | Reason::AnsweredNo | Reason::Unanswered
    )
}

/// Gives the rule over requests that would let one through, no wider than what was asked for.
pub(crate) fn allowing_request(refusal: &Refusal, target: Option<&HostPort>) -> String {
    let host = target.map(allowing_rule).unwrap_or_default();
    let request = refusal.request.as_ref();
    let method = request.map_or("GET", |request| &request.method);
    let path = request.map_or("/**", |request| &request.path);
    format!(
        "network_rules = [{{ hosts = [\"{host}\"], methods = [\"{method}\"], paths = [\"{path}\"] }}]"
    )
}

/// Says in plain words what happened and what to do instead.
pub(crate) fn sentence(refusal: &Refusal, target: Option<&HostPort>, repeated: u32) -> String {
    let name = target.map_or_else(|| "the host".to_owned(), ToString::to_string);
    let detail = refusal.detail.as_deref().unwrap_or_default();
    let rule = refusal.rule.as_deref().unwrap_or_default();
    let allow = target.map(allowing_rule).unwrap_or_default();
    let what = match &refusal.request {
        Some(request) => format!("{} {} at {name}", request.method, request.path),
        None => format!("the request to {name}"),
    };
    let ask = format!(
        "Only the owner can allow it, with --allow {allow} or network_allow = [\"{allow}\"] in the \
         policy; do without it or say that you need it."
    );
    let mut text = match refusal.reason {
        Reason::NotListed => {
            format!("Cofferdam refused {name}: the host is not on the allow-list. {ask}")
        }
        Reason::AnsweredNo => format!("Cofferdam refused {name}: the owner was asked and said no."),
        Reason::Unanswered => {
            format!("Cofferdam refused {name}: the owner was asked and did not answer. {ask}")
        }
        Reason::DeniedRule => format!(
            "Cofferdam refused {name}: the rule {rule} in network_deny forbids it. Do without it."
        ),
        Reason::AddressRefused if detail == "loopback" => format!(
            "Cofferdam refused {name}: through the proxy this would be the owner's own machine. A \
             server inside the sandbox is reached without the proxy (NO_PROXY=localhost,127.0.0.1); \
             a service of the owner's machine only when granted with --reach {name}."
        ),
        Reason::AddressRefused => format!(
            "Cofferdam refused {name}: it leads to an address that is not on the open internet \
             ({detail}). Do without it; a service there can only be forwarded by the owner to a port \
             of 127.0.0.1 and granted with --reach."
        ),
        Reason::OriginForm => "This is Cofferdam's proxy, not a server: a client must send its \
            requests in absolute form or use CONNECT, as it does when http_proxy is set."
            .to_owned(),
        Reason::UnsupportedScheme => "Cofferdam's proxy forwards http:// requests; every other \
            protocol goes through CONNECT or SOCKS5."
            .to_owned(),
        Reason::UnsupportedProtocol => {
            "Cofferdam's proxy speaks HTTP/1, CONNECT and SOCKS5 without a password.".to_owned()
        }
        Reason::InvalidHost | Reason::BadRequest => {
            format!("Cofferdam refused the request: {detail}.")
        }
        Reason::HeadTooLarge => "Cofferdam refused the request: its head is too long.".to_owned(),
        Reason::HeadTimeout => "Cofferdam waited too long for the request.".to_owned(),
        Reason::TooManyConnections => {
            "Cofferdam's proxy has too many connections; close some and try again.".to_owned()
        }
        Reason::ResolveFailed => {
            format!("{name} is allowed, but its name has no answer: {detail}.")
        }
        Reason::DialFailed => format!("{name} is allowed, but cannot be reached: {detail}."),
        Reason::DialTimeout => format!("{name} is allowed, but did not answer in time."),
        Reason::UpstreamTls => {
            format!("{name} is allowed, but its TLS cannot be verified: {detail}.")
        }
        Reason::RequestRefused if rule.is_empty() => {
            format!("Cofferdam refused the request to {name}: {detail}. Do without it.")
        }
        Reason::RequestRefused => format!(
            "Cofferdam refused {what}: what is let through to {name} is {rule} ({detail}). Only the \
             owner can allow it, with {} in the policy; do without it or say that you need it.",
            allowing_request(refusal, target)
        ),
        Reason::RequestAmbiguous => format!(
            "Cofferdam refused {what}: servers could read it in two ways, {detail}. Write the path \
             plainly, without encoded slashes, dots or doubled slashes, and the method as the method."
        ),
        Reason::PlaceholderElsewhere => format!(
            "Cofferdam refused {what}: it holds the placeholder of the secret {detail}, which is not \
             for {name}, or not without TLS. Send it to the hosts that it is for, or leave it out."
        ),
        Reason::NameMismatch => format!(
            "Cofferdam refused {what}: within TLS the host is called {detail}, and was asked for as \
             {name}."
        ),
        Reason::NotInspectable => format!(
            "Cofferdam refused {name}: rules are about its requests, and the tunnel carries neither \
             TLS nor HTTP/1. {detail}"
        ),
        Reason::ClientTls => format!(
            "The client ended TLS with Cofferdam's proxy for {name}: {detail}. If it does not trust \
             the certificate, point it to the file that SSL_CERT_FILE names; programs on the JVM and \
             programs with certificates of their own do not look there."
        ),
        Reason::UpstreamInvalid => format!("{name} is allowed, but its answer cannot be read."),
        Reason::Stopping => "Cofferdam's proxy ends.".to_owned(),
        Reason::Listed | Reason::Reach | Reason::Answered => format!("{name} is allowed."),
    };
    if repeated >= LAST_WORD && refusal.reason.status() == 403 {
        let _ = write!(text, " This will not change; do not try again.");
    }
    text
}

/// Says the same in the few words that fit a status line: some clients show nothing else.
fn phrase(refusal: &Refusal, target: Option<&HostPort>) -> String {
    let Some(target) = target else {
        return format!("Cofferdam {}", refusal.reason);
    };
    if is_allowable(refusal.reason) {
        let allow = allowing_rule(target);
        return format!("Cofferdam: {target} is not allowed (owner: --allow {allow})");
    }
    if refusal.reason == Reason::AddressRefused {
        let class = refusal.detail.as_deref().unwrap_or_default();
        let owner = if is_reachable(refusal) {
            format!(" (owner: --reach {target})")
        } else {
            String::new()
        };
        return format!("Cofferdam: {target} has a {class} address{owner}");
    }
    format!("Cofferdam: {target} {}", refusal.reason)
}

/// Only services on loopback can be granted with `--reach`.
fn is_reachable(refusal: &Refusal) -> bool {
    refusal.reason == Reason::AddressRefused && refusal.detail.as_deref() == Some("loopback")
}

fn body(refusal: &Refusal, target: Option<&HostPort>, repeated: u32) -> Value {
    let reason = refusal.reason;
    let mut body = json!({
        "type": format!("urn:cofferdam:net:{reason}"),
        "title": phrase(refusal, target),
        "status": reason.status(),
        "detail": sentence(refusal, target, repeated),
        "reason": reason.as_str(),
    });
    if let Some(target) = target {
        body["host"] = target.host.to_string().into();
        body["port"] = target.port.into();
        if is_allowable(reason) {
            let rule = allowing_rule(target);
            body["allow"] = json!({
                "policy": format!("network_allow = [\"{rule}\"]"),
                "flag": format!("--allow {rule}"),
            });
        } else if is_reachable(refusal) {
            body["allow"] = json!({
                "policy": format!("reach = [\"{target}\"]"),
                "flag": format!("--reach {target}"),
            });
        }
        if let (Reason::AddressRefused, Some(class)) = (reason, &refusal.detail) {
            body["address_class"] = class.as_str().into();
        }
    }
    if let Some(request) = &refusal.request {
        body["method"] = request.method.as_str().into();
        body["path"] = request.path.as_str().into();
    }
    if reason == Reason::RequestRefused && refusal.rule.is_some() {
        body["allow"] = json!({ "policy": allowing_request(refusal, target) });
    }
    if let Some(rule) = &refusal.rule {
        body["rule"] = rule.as_str().into();
    }
    if repeated > 0 {
        body["repeated"] = repeated.into();
    }
    body
}

/// Writes the whole answer to an HTTP client.
pub(crate) fn http_answer(refusal: &Refusal, target: Option<&HostPort>, repeated: u32) -> Vec<u8> {
    let mut body = body(refusal, target, repeated).to_string();
    body.push('\n');
    format!(
        "HTTP/1.1 {} {}\r\nx-cofferdam-reason: {}\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n{body}",
        refusal.reason.status(),
        phrase(refusal, target),
        refusal.reason,
        body.len(),
    )
    .into_bytes()
}

/// Gives the code of a SOCKS5 reply.
pub(crate) fn socks_code(refusal: &Refusal) -> u8 {
    match refusal.reason {
        Reason::ResolveFailed => 0x04,
        Reason::DialFailed => 0x05,
        Reason::DialTimeout => 0x06,
        Reason::TooManyConnections | Reason::Stopping | Reason::BadRequest => 0x01,
        Reason::UnsupportedProtocol => 0x07,
        _ => 0x02,
    }
}

/// Gives a host that is none in printable letters, short enough for an event.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(128)];
    shown.escape_ascii().to_string()
}

/// Gives the text of a host, for events.
pub(crate) fn host_text(host: &Host) -> String {
    host.to_string()
}
