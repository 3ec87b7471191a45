//! The head of a request to a host whose requests are seen: read strictly, held by its fields.

use cofferdam_core::hosts::HostPort;

use crate::body::BodyFraming;
use crate::head::{
    HeadError, MOST_FIELDS, check_host, dropped_names, find_end, framing, is, malformed,
    parse_target, push_field, split_absolute,
};

/// Fields by which some servers take one method for another.
const OVERRIDES: &[&str] = &[
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// How the client writes its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// As for a server: a path.
    Origin,
    /// As for a proxy: the whole address.
    Absolute,
}

/// A request's head that can be read in one way only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedHead {
    /// The method as it was written.
    pub method: String,
    /// The path with its query, as it was written.
    pub target: String,
    /// Where the body ends.
    pub body: BodyFraming,
    /// Whether the client can go on with the connection.
    pub keeps: bool,
    /// Whether it wants the connection to become one of WebSocket.
    pub websocket: bool,
    /// Whether a field says that another method is meant.
    pub overrides: bool,
    /// Its length in bytes.
    pub length: usize,
    version: u8,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
}

impl InspectedHead {
    /// Reads a head that is meant for `host`; `None` means that more bytes are needed.
    ///
    /// # Errors
    ///
    /// As [`crate::RequestHead::parse`], and for a `Host` or an address that is another's.
    pub fn parse(
        bytes: &[u8],
        host: &HostPort,
        default_port: u16,
        form: TargetForm,
    ) -> Result<Option<Self>, HeadError> {
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
        let (Some(method), Some(written), Some(version)) =
            (request.method, request.path, request.version)
        else {
            return Err(malformed("its first line is not complete"));
        };
        let fields = &*request.headers;
        let target = target(method, written, host, default_port, form)?;
        check_host(fields, host, Some(default_port), version)?;
        let body = framing(fields, version)?;
        let names = |field: &str, word: &str| {
            fields
                .iter()
                .filter(|one| is(one, field))
                .flat_map(|one| one.value.split(|byte| *byte == b','))
                .any(|one| one.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        };
        let websocket = method == "GET"
            && version == 1
            && body.is_over()
            && names("connection", "upgrade")
            && names("upgrade", "websocket");
        let dropped = dropped_names(fields)?;
        let mut kept: Vec<(String, Vec<u8>)> = Vec::with_capacity(fields.len() + 1);
        if !fields.iter().any(|field| is(field, "host")) {
            let text = if host.port == default_port {
                host.host.to_string()
            } else {
                host.to_string()
            };
            kept.push(("Host".to_owned(), text.into_bytes()));
        }
        for field in fields {
            // What a request for WebSocket says besides may be named by Connection, too.
            if !dropped.iter().any(|name| is(field, name)) {
                kept.push((field.name.to_owned(), field.value.to_vec()));
            }
        }
        Ok(Some(Self {
            method: method.to_owned(),
            target,
            body,
            keeps: version == 1 && !names("connection", "close"),
            websocket,
            overrides: OVERRIDES
                .iter()
                .any(|name| fields.iter().any(|field| is(field, name))),
            length,
            version,
            fields: kept,
        }))
    }

    /// Writes the head as the host gets it.
    pub fn write(&self) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.{}\r\n",
            self.method, self.target, self.version
        )
        .into_bytes();
        for (name, value) in &self.fields {
            push_field(&mut head, name, value);
        }
        if self.websocket {
            push_field(&mut head, "Connection", b"Upgrade");
            push_field(&mut head, "Upgrade", b"websocket");
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    /// Lends the values of a field.
    pub(crate) fn values_mut<'a>(
        &'a mut self,
        name: &'a str,
    ) -> impl Iterator<Item = &'a mut Vec<u8>> + 'a {
        self.fields
            .iter_mut()
            .filter(move |(one, _)| one.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Tells whether a field is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields
            .iter()
            .any(|(one, _)| one.eq_ignore_ascii_case(name))
    }

    /// Takes a field away.
    pub(crate) fn remove(&mut self, name: &str) {
        self.fields
            .retain(|(one, _)| !one.eq_ignore_ascii_case(name));
    }

    /// Adds a field.
    pub(crate) fn add(&mut self, name: &str, value: Vec<u8>) {
        self.fields.push((name.to_owned(), value));
    }
}

fn target(
    method: &str,
    written: &str,
    host: &HostPort,
    default_port: u16,
    form: TargetForm,
) -> Result<String, HeadError> {
    let path = match form {
        TargetForm::Origin => written.to_owned(),
        TargetForm::Absolute => {
            let (authority, rest) = split_absolute(written)?;
            if parse_target(authority.as_bytes(), Some(default_port))? != *host {
                return Err(malformed("it is for another host than the one before it"));
            }
            match rest.bytes().next() {
                Some(b'/') => rest.to_owned(),
                None if method == "OPTIONS" => "*".to_owned(),
                _ => format!("/{rest}"),
            }
        }
    };
    if path.contains('#') {
        return Err(malformed("its target has a fragment"));
    }
    if path.starts_with('/') || (path == "*" && method == "OPTIONS") {
        Ok(path)
    } else {
        Err(malformed("its target is no path"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decision::Reason;

    fn host() -> HostPort {
        HostPort::parse(b"a.test:443", None).expect("a host")
    }

    fn parse(text: &str) -> Result<InspectedHead, HeadError> {
        InspectedHead::parse(text.as_bytes(), &host(), 443, TargetForm::Origin)
            .map(|head| head.expect("a whole head"))
    }

    #[test]
    fn a_request_keeps_what_is_the_hosts_business() {
        let head = parse(
            "POST /a?b=c HTTP/1.1\r\nHost: A.test\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\n\
             Proxy-Authorization: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\nX-Yours: 2\r\n\r\nabc",
        )
        .expect("a head");
        assert_eq!(
            String::from_utf8(head.write()).expect("text"),
            "POST /a?b=c HTTP/1.1\r\nHost: A.test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\
             X-Yours: 2\r\n\r\n"
        );
        assert!(head.keeps && !head.websocket && !head.overrides);
        let last = parse("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Close\r\n\r\n");
        assert!(!last.expect("a head").keeps);
        let old = parse("GET / HTTP/1.0\r\n\r\n").expect("a head");
        assert!(!old.keeps);
        assert_eq!(old.write(), b"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
    }

    #[test]
    fn a_websocket_is_known_and_asked_for_again() {
        let head = parse(
            "GET /live HTTP/1.1\r\nHost: a.test:443\r\nConnection: keep-alive, Upgrade\r\n\
             Upgrade: WebSocket\r\nSec-WebSocket-Key: eA==\r\n\r\n",
        )
        .expect("a head");
        assert!(head.websocket);
        assert_eq!(
            String::from_utf8(head.write()).expect("text"),
            "GET /live HTTP/1.1\r\nHost: a.test:443\r\nSec-WebSocket-Key: eA==\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        );
        for fields in [
            "Connection: Upgrade\r\nUpgrade: h2c\r\n",
            "Upgrade: websocket\r\n",
            "Connection: Upgrade\r\n",
        ] {
            let head = parse(&format!("GET / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n"));
            assert!(!head.expect("a head").websocket, "{fields}");
        }
    }

    #[test]
    fn another_host_and_two_readings_are_refused() {
        for text in [
            "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.test:444\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET a HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET /#a HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "GET / HTTP/1.1\nHost: a.test\n\n",
        ] {
            assert_eq!(
                parse(text).expect_err(text).reason(),
                Reason::BadRequest,
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_head_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            fields in "([A-Za-z-]{1,12}: [ -~]{0,20}\r\n){0,6}",
        ) {
            let _ = InspectedHead::parse(&bytes, &host(), 443, TargetForm::Origin);
            let text = format!("GET /x HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
            if let Ok(Some(head)) =
                InspectedHead::parse(text.as_bytes(), &host(), 443, TargetForm::Origin)
            {
                let again = InspectedHead::parse(&head.write(), &host(), 443, TargetForm::Origin);
                let again = again.expect("what was written can be read").expect("whole");
                prop_assert_eq!(again.fields.len(), head.fields.len());
                prop_assert_eq!(again.target, head.target);
            }
        }
    }
}
