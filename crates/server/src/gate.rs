//! What every request passes first: host, origin, token, verb. In that order, so that a web page
//! that found its way here learns nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use cofferdam_core::error::{ErrorCode, Problem};

use crate::calls::{self, Allowed};
use crate::operations::Scope;
use crate::problem::Refusal;
use crate::routes::{App, HEALTH};

/// Bytes of a refused request that are read all the same.
const REFUSED_BYTES: usize = 64 * 1024;
/// How long they are waited for.
const REFUSED_TIME: Duration = Duration::from_millis(500);

pub(crate) async fn gate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let origin = listed_origin(&app, request.headers());
    let mut response = match admit(&app, &request) {
        Ok(_) if origin.is_some() && is_preflight(&request) => preflight(),
        Ok(allowed) => {
            request.extensions_mut().insert(allowed);
            next.run(request).await
        }
        Err(refusal) => {
            let is_read = read_to_its_end(request).await;
            let mut response = refusal.into_response();
            if !is_read {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !app.origins.is_empty() {
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    // The one that asked, never every one.
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

/// Reads what is left of a refused request, if it is little and comes soon, so that its connection
/// can be used for the next one: a caller that keeps connections would find it closed.
async fn read_to_its_end(request: Request) -> bool {
    let whole = axum::body::to_bytes(request.into_body(), REFUSED_BYTES);
    matches!(tokio::time::timeout(REFUSED_TIME, whole).await, Ok(Ok(_)))
}

/// Gives the origin of a request where it is one of those that the owner listed.
fn listed_origin(app: &App, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = single(headers, header::ORIGIN.as_str())?;
    let is_listed = app.origins.iter().any(|one| one == origin);
    is_listed.then(|| headers.get(header::ORIGIN).cloned())?
}

/// Tells whether a browser asks beforehand what a page may ask.
fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers that. It says nothing about what is here, and so it needs no token, which browsers do not
/// send with it.
fn preflight() -> Response {
    let mut response = axum::http::StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let lines = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Authorization, Content-Type, Last-Event-ID",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    for (name, value) in lines {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Tells whether a text is an origin as browsers name them: without a path, in small letters.
pub(crate) fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else {
        return false;
    };
    let is_web = matches!(scheme, "http" | "https");
    let is_plain = authority
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:[]".contains(&byte));
    let is_whole = authority
        .parse::<axum::http::uri::Authority>()
        .is_ok_and(|one| !one.host().is_empty());
    is_web && is_plain && is_whole
}

fn admit(app: &App, request: &Request) -> Result<Allowed, Refusal> {
    let headers = request.headers();
    let host = single(headers, header::HOST.as_str());
    let authority = request
        .uri()
        .authority()
        .map(axum::http::uri::Authority::as_str);
    let known = |host: &str| host_is_ours(host, app.address);
    if !host.is_some_and(known) || !authority.is_none_or(known) {
        return Err(origin_refused(
            "the Host of the request is not this server's",
        ));
    }
    let is_listed = listed_origin(app, headers).is_some();
    let foreign_origin = !is_listed
        && headers.get_all(header::ORIGIN).iter().any(|origin| {
            !origin
                .to_str()
                .is_ok_and(|origin| origin_is_ours(origin, app.address))
        });
    let foreign_site = !is_listed
        && headers
            .get("sec-fetch-site")
            .is_some_and(|site| site == "cross-site" || site == "same-site");
    if foreign_origin || foreign_site {
        return Err(origin_refused("the request comes from another web page"));
    }
    if is_listed && is_preflight(request) {
        return Ok(Allowed(Scope::Read));
    }
    let allowed = if request.uri().path() == HEALTH {
        Allowed(Scope::Read)
    } else {
        let shown = single(headers, header::AUTHORIZATION.as_str())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        shown
            .and_then(|shown| app.allows(shown.as_bytes()))
            .ok_or_else(|| {
                Refusal::of(
                    Problem::new(ErrorCode::Unauthorized, "the token is missing or wrong")
                        .with_hint("send the text of the token file as `Authorization: Bearer …`"),
                )
            })?
    };
    verb(request)?;
    Ok(allowed)
}

/// Lets reading pass, and calls of operations that are said to be JSON: what a page can send
/// without being asked first (a form, plain text) is never one.
fn verb(request: &Request) -> Result<(), Refusal> {
    let method = request.method();
    // What lies deeper than the operations is looked at: streams.
    let operation = request.uri().path().strip_prefix(calls::PREFIX);
    if operation.is_some_and(|name| !name.contains('/')) {
        if method != Method::POST {
            return Err(Refusal::method(
                method,
                "POST",
                "an operation is called with POST",
            ));
        }
        let is_json =
            single(request.headers(), header::CONTENT_TYPE.as_str()).is_some_and(|kind| {
                let kind = kind.split(';').next().unwrap_or_default();
                kind.trim().eq_ignore_ascii_case("application/json")
            });
        if !is_json {
            return Err(Refusal::of(
                Problem::new(
                    ErrorCode::UnsupportedMediaType,
                    "the body of a call is a JSON object, and has to say so",
                )
                .with_field("Content-Type")
                .with_hint("send `Content-Type: application/json`"),
            ));
        }
        return Ok(());
    }
    if method != Method::GET && method != Method::HEAD {
        return Err(Refusal::method(
            method,
            "GET, HEAD",
            "this is for reading only",
        ));
    }
    Ok(())
}

fn origin_refused(message: &str) -> Refusal {
    Refusal::of(Problem::new(ErrorCode::OriginRefused, message))
}

/// Gives a header that must not be there twice.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Tells whether a Host names this server: a loopback name or the address itself, and our port.
///
/// A page of another site that had its name point here (DNS rebinding) still sends that name.
fn host_is_ours(host: &str, address: SocketAddr) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        // The colon of `[::1]` is part of the name.
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, Some(80)),
    };
    if port != Some(address.port()) {
        return false;
    }
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let name = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    let Ok(named) = name.parse::<IpAddr>() else {
        return false;
    };
    // Listening on every address, any address may be the one that was meant; a name never is.
    named.is_loopback() || named == address.ip() || address.ip().is_unspecified()
}

fn origin_is_ours(origin: &str, address: SocketAddr) -> bool {
    origin
        .strip_prefix("http://")
        .is_some_and(|host| host_is_ours(host, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_only_our_own_names_are_hosts() {
        let address = "127.0.0.1:7411".parse().expect("an address");
        for ours in [
            "127.0.0.1:7411",
            "localhost:7411",
            "LOCALHOST:7411",
            "[::1]:7411",
            "127.0.0.9:7411",
        ] {
            assert!(host_is_ours(ours, address), "{ours}");
            assert!(origin_is_ours(&format!("http://{ours}"), address), "{ours}");
        }
        for other in [
            "evil.example:7411",
            "127.0.0.1",
            "127.0.0.1:80",
            "localhost",
            "localhost:7411.evil",
            "",
            "10.0.0.1:7411",
            "[::1]",
            ":7411",
            "localhost.evil:7411",
            "127.0.0.1.evil:7411",
            "[evil]:7411",
        ] {
            assert!(!host_is_ours(other, address), "{other}");
        }
        for origin in [
            "null",
            "https://localhost:7411",
            "http://evil.example",
            "http://localhost",
            "file://",
        ] {
            assert!(!origin_is_ours(origin, address), "{origin}");
        }
        let port_80 = "127.0.0.1:80".parse().expect("an address");
        assert!(host_is_ours("localhost", port_80));
        let every = "0.0.0.0:7411".parse().expect("an address");
        assert!(host_is_ours("10.0.0.1:7411", every));
        assert!(!host_is_ours("evil.example:7411", every));
    }
}
