//! The head of a client's request: read strictly, written anew.

use cofferdam_core::hosts::{HostError, HostPort};

use crate::body::BodyFraming;
use crate::chunked::ChunkedEnd;
use crate::decision::Reason;

/// The most fields of a head.
pub(crate) const MOST_FIELDS: usize = 128;

/// Says why a head is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// It is not a request of HTTP/1, or could be read in two ways.
    #[error("the request cannot be read: {why}")]
    Malformed {
        /// What is wrong.
        why: &'static str,
    },
    /// It names no host.
    #[error("the request names no host: it is meant for a server, this is a proxy")]
    OriginForm,
    /// Its scheme is not `http`.
    #[error("the scheme of the request is not http")]
    Scheme,
    /// What stands for its host is none.
    #[error("{source}")]
    Host {
        /// What stands there.
        text: Vec<u8>,
        /// Why it is none.
        source: HostError,
    },
}

impl HeadError {
    /// Gives the reason that the client and the observer are told.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Malformed { .. } => Reason::BadRequest,
            Self::OriginForm => Reason::OriginForm,
            Self::Scheme => Reason::UnsupportedScheme,
            Self::Host { .. } => Reason::InvalidHost,
        }
    }
}

pub(crate) const fn malformed(why: &'static str) -> HeadError {
    HeadError::Malformed { why }
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestTarget {
    /// A tunnel.
    Tunnel,
    /// One request, with the head to send instead of the client's and the end of its body.
    Forward {
        /// The head in origin form, without what concerns only client and proxy.
        head: Vec<u8>,
        /// Where the body ends.
        body: BodyFraming,
    },
}

/// A request's head that can be read in one way only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The method as it was written.
    pub method: String,
    /// The host and port that it is for.
    pub target: HostPort,
    /// What it asks for.
    pub request: RequestTarget,
    /// Its length in bytes; what follows belongs to the body or the tunnel.
    pub length: usize,
}

impl RequestHead {
    /// Reads a head; `None` means that more bytes are needed.
    ///
    /// Refused are bare CR or LF, folded fields, control bytes, spaces before a colon, a second
    /// `Host` or one that differs from the target, both framings of a body at once or either twice,
    /// other transfer codings than `chunked`, user names in the target.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, HeadError> {
        let Some(length) = find_end(bytes)? else {
            return Ok(None);
        };
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&bytes[..length]) {
            Ok(httparse::Status::Complete(end)) if end == length => {}
            Ok(_) => return Err(malformed("its lines do not end where its head does")),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(malformed("it has too many fields"));
            }
            Err(_) => return Err(malformed("it is no request of HTTP/1")),
        }
        let (Some(method), Some(path), Some(version)) =
            (request.method, request.path, request.version)
        else {
            return Err(malformed("its first line is not complete"));
        };
        let fields = &*request.headers;
        let (target, request) = if method == "CONNECT" {
            let target = parse_target(path.as_bytes(), None)?;
            check_host(fields, &target, None, version)?;
            // RFC 9110 gives a CONNECT no body: whatever follows is the tunnel's.
            if fields.iter().any(|field| is(field, "transfer-encoding")) {
                return Err(malformed("a CONNECT has no body"));
            }
            (target, RequestTarget::Tunnel)
        } else {
            let (authority, rest) = split_absolute(path)?;
            let target = parse_target(authority.as_bytes(), Some(80))?;
            check_host(fields, &target, Some(80), version)?;
            let body = framing(fields, version)?;
            let head = rewrite(method, authority, rest, version, fields)?;
            (target, RequestTarget::Forward { head, body })
        };
        Ok(Some(Self {
            method: method.to_owned(),
            target,
            request,
            length,
        }))
    }
}

/// Finds where the head ends, and refuses what makes two readers see two ends.
pub(crate) fn find_end(bytes: &[u8]) -> Result<Option<usize>, HeadError> {
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if at == 0 || bytes[at - 1] != b'\r' => {
                return Err(malformed("a line ends without CR"));
            }
            b'\n' if at >= 3 && bytes[at - 2] == b'\n' => return Ok(Some(at + 1)),
            b'\r' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => {
                return Err(malformed("a CR stands alone"));
            }
            b' ' | b'\t' if at > 0 && bytes[at - 1] == b'\n' => {
                return Err(malformed("a field is folded over two lines"));
            }
            0 => return Err(malformed("it has a NUL in it")),
            _ => {}
        }
    }
    Ok(None)
}

pub(crate) fn parse_target(text: &[u8], default: Option<u16>) -> Result<HostPort, HeadError> {
    HostPort::parse(text, default).map_err(|source| HeadError::Host {
        text: text.to_vec(),
        source,
    })
}

/// Splits `http://authority/rest`.
pub(crate) fn split_absolute(path: &str) -> Result<(&str, &str), HeadError> {
    let Some((scheme, after)) = path.split_once("://") else {
        return Err(HeadError::OriginForm);
    };
    if scheme.contains(['/', '?']) {
        return Err(HeadError::OriginForm);
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(HeadError::Scheme);
    }
    if path.contains('#') {
        return Err(malformed("its target has a fragment"));
    }
    let end = after.find(['/', '?']).unwrap_or(after.len());
    Ok(after.split_at(end))
}

pub(crate) fn is(field: &httparse::Header<'_>, name: &str) -> bool {
    field.name.eq_ignore_ascii_case(name)
}

pub(crate) fn check_host(
    fields: &[httparse::Header<'_>],
    target: &HostPort,
    default: Option<u16>,
    version: u8,
) -> Result<(), HeadError> {
    let mut hosts = fields.iter().filter(|field| is(field, "host"));
    let Some(host) = hosts.next() else {
        // Old clients send none, also with CONNECT; there is nothing that could disagree.
        return if version == 0 || default.is_none() {
            Ok(())
        } else {
            Err(malformed("it has no Host"))
        };
    };
    if hosts.next().is_some() {
        return Err(malformed("it has two Hosts"));
    }
    // The Host of a CONNECT is often written without the port.
    let stated = parse_target(host.value, default.or(Some(target.port)))?;
    if stated == *target {
        Ok(())
    } else {
        Err(malformed("its Host is not the host of its target"))
    }
}

pub(crate) fn framing(
    fields: &[httparse::Header<'_>],
    version: u8,
) -> Result<BodyFraming, HeadError> {
    let mut lengths = fields.iter().filter(|field| is(field, "content-length"));
    let mut codings = fields.iter().filter(|field| is(field, "transfer-encoding"));
    let (length, coding) = (lengths.next(), codings.next());
    if lengths.next().is_some()
        || codings.next().is_some()
        || (length.is_some() && coding.is_some())
    {
        return Err(malformed("it says in two ways where its body ends"));
    }
    if let Some(coding) = coding {
        if version == 0 || !coding.value.eq_ignore_ascii_case(b"chunked") {
            return Err(malformed("its transfer coding is not chunked"));
        }
        return Ok(BodyFraming::Chunked(ChunkedEnd::default()));
    }
    let Some(length) = length else {
        return Ok(BodyFraming::Length(0));
    };
    let digits = !length.value.is_empty() && length.value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(length.value).ok().filter(|_| digits);
    number
        .and_then(|text| text.parse().ok())
        .map(BodyFraming::Length)
        .ok_or(malformed("its Content-Length is no number"))
}

/// The fields that concern only the two ends of one connection.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-authentication-info",
    "te",
    "upgrade",
    "http2-settings",
];

/// The fields that `Connection` must not take away: without them the message means something else.
const NEVER_NAMED: &[&str] = &["host", "content-length", "transfer-encoding"];

/// Gives the names that the `Connection` fields list, and those that never pass.
pub(crate) fn dropped_names(fields: &[httparse::Header<'_>]) -> Result<Vec<String>, HeadError> {
    let mut names: Vec<String> = HOP_BY_HOP.iter().map(|name| (*name).to_owned()).collect();
    for field in fields {
        if !is(field, "connection") && !is(field, "proxy-connection") {
            continue;
        }
        for name in String::from_utf8_lossy(field.value).split(',') {
            let name = name.trim().to_ascii_lowercase();
            if NEVER_NAMED.contains(&name.as_str()) {
                return Err(malformed("its Connection names a field that must stay"));
            }
            names.push(name);
        }
    }
    Ok(names)
}

fn rewrite(
    method: &str,
    authority: &str,
    rest: &str,
    version: u8,
    fields: &[httparse::Header<'_>],
) -> Result<Vec<u8>, HeadError> {
    let dropped = dropped_names(fields)?;
    let slash = match rest.bytes().next() {
        Some(b'/') => "",
        None if method == "OPTIONS" => "*",
        _ => "/",
    };
    let mut head = format!("{method} {slash}{rest} HTTP/1.{version}\r\n").into_bytes();
    let has_host = fields.iter().any(|field| is(field, "host"));
    if !has_host {
        push_field(&mut head, "Host", authority.as_bytes());
    }
    for field in fields {
        if !dropped.iter().any(|name| is(field, name)) {
            push_field(&mut head, field.name, field.value);
        }
    }
    push_field(&mut head, "Connection", b"close");
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

pub(crate) fn push_field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<RequestHead, HeadError> {
        RequestHead::parse(text.as_bytes()).map(|head| head.expect("a whole head"))
    }

    fn forwarded(text: &str) -> (String, BodyFraming) {
        match parse(text).expect("a head").request {
            RequestTarget::Forward { head, body } => (String::from_utf8(head).expect("text"), body),
            RequestTarget::Tunnel => panic!("a tunnel"),
        }
    }

    #[test]
    fn a_request_is_written_in_origin_form_without_hop_fields() {
        let (head, body) = forwarded(
            "POST http://API.test:8080/a?b=c HTTP/1.1\r\nHost: api.test:8080\r\n\
             Proxy-Connection: keep-alive\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\n\
             Proxy-Authorization: Basic eA==\r\nTE: trailers\r\nUpgrade: websocket\r\n\
             Content-Length: 3\r\nX-Yours: 2\r\n\r\n",
        );
        assert_eq!(
            head,
            "POST /a?b=c HTTP/1.1\r\nHost: api.test:8080\r\nContent-Length: 3\r\n\
             X-Yours: 2\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(body, BodyFraming::Length(3));
        let (head, _) = forwarded("GET http://a.test HTTP/1.0\r\n\r\n");
        assert_eq!(
            head,
            "GET / HTTP/1.0\r\nHost: a.test\r\nConnection: close\r\n\r\n"
        );
        let (head, _) = forwarded("GET http://a.test?x HTTP/1.1\r\nHost: a.test:80\r\n\r\n");
        assert!(head.starts_with("GET /?x HTTP/1.1\r\n"));
        let (head, _) = forwarded("OPTIONS http://a.test HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(head.starts_with("OPTIONS * HTTP/1.1\r\n"));
    }

    #[test]
    fn a_connect_needs_a_port() {
        let head = parse("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("a head");
        assert_eq!(head.target.to_string(), "a.test:443");
        assert_eq!(head.request, RequestTarget::Tunnel);
        for target in [
            "a.test",
            "/",
            "http://a.test/",
            "u@a.test:1",
            "a.test:443/x",
        ] {
            let error = parse(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")).expect_err(target);
            assert_eq!(error.reason(), Reason::InvalidHost, "{target}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let line = "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n";
        for fields in [
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999999\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding : chunked\r\n",
            "X: a\r\n b\r\n",
            "X: a\nY: b\r\n",
            "X: a\rY: b\r\n",
            "X: a\0b\r\n",
            "Connection: content-length\r\nContent-Length: 5\r\n",
            "Connection: Host\r\n",
            "Host: a.test\r\n",
            "Host: b.test\r\n",
            ": a\r\n",
        ] {
            let error = parse(&format!("{line}{fields}\r\n")).expect_err(fields);
            assert_eq!(error.reason(), Reason::BadRequest, "{fields:?}");
        }
        for (text, reason) in [
            (
                "GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
                Reason::BadRequest,
            ),
            (
                "GET http://a.test/ HTTP/1.1\r\nHost: a.test:81\r\n\r\n",
                Reason::BadRequest,
            ),
            ("GET http://a.test/ HTTP/1.1\r\n\r\n", Reason::BadRequest),
            (
                "GET http://u@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Reason::InvalidHost,
            ),
            (
                "GET http://a.test\\b/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Reason::InvalidHost,
            ),
            (
                "GET http://a%2etest/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Reason::InvalidHost,
            ),
            (
                "GET http:///x HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Reason::InvalidHost,
            ),
            (
                "GET http://a.test/#x HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Reason::BadRequest,
            ),
            (
                "GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Reason::UnsupportedScheme,
            ),
            (
                "GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Reason::UnsupportedScheme,
            ),
            ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", Reason::OriginForm),
            (
                "GET /?u=http://a.test HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Reason::OriginForm,
            ),
            (
                "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Reason::OriginForm,
            ),
            ("PRI * HTTP/2.0\r\n\r\n", Reason::BadRequest),
        ] {
            assert_eq!(parse(text).expect_err(text).reason(), reason, "{text:?}");
        }
    }

    #[test]
    fn a_part_of_a_head_asks_for_more_and_the_rest_is_left() {
        let text = b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\nmore";
        for end in 0..text.len() - 4 {
            assert_eq!(RequestHead::parse(&text[..end]), Ok(None), "{end}");
        }
        let head = RequestHead::parse(text).expect("a head").expect("whole");
        assert_eq!(head.length, text.len() - 4);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_head_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = RequestHead::parse(&bytes);
        }

        #[test]
        fn a_mangled_head_never_names_another_host(
            at in 0..90_usize,
            byte in any::<u8>(),
            cut in any::<bool>(),
        ) {
            let mut bytes = b"POST http://good.test/x HTTP/1.1\r\nHost: good.test\r\n\
                Content-Length: 4\r\nConnection: keep-alive\r\n\r\n".to_vec();
            let at = at.min(bytes.len() - 1);
            if cut { bytes.remove(at); } else { bytes[at] = byte; }
            if let Ok(Some(head)) = RequestHead::parse(&bytes)
                && let RequestTarget::Forward { head: sent, .. } = head.request
            {
                // The host that is judged is the host that the server is told.
                let sent = String::from_utf8_lossy(&sent).into_owned();
                let hosts: Vec<&str> = sent
                    .split("\r\n")
                    .filter_map(|line| line.split_once(": "))
                    .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
                    .map(|(_, value)| value)
                    .collect();
                prop_assert_eq!(hosts.len(), 1);
                let told = HostPort::parse(hosts[0].trim().as_bytes(), Some(80));
                prop_assert_eq!(told, Ok(head.target));
            }
        }
    }
}
