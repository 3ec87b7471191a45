//! The head of a host's answer: passed on without what concerns only host and proxy.

use cofferdam_core::mask::Masker;

use crate::body::BodyFraming;
use crate::chunked::ChunkedEnd;
use crate::head::{MOST_FIELDS, dropped_names, push_field};

/// What the head of an answer is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResponseHead {
    /// More bytes are needed.
    Partial,
    /// An interim answer, passed on as it came; the real one follows.
    Interim { length: usize },
    /// The connection becomes one of WebSocket.
    Switched { length: usize, head: Vec<u8> },
    /// The answer, with the head to send instead.
    Final {
        length: usize,
        head: Vec<u8>,
        /// Where its body ends; without it at the end of the connection.
        body: Option<BodyFraming>,
        /// Its status.
        code: u16,
        /// Whether the host can go on with the connection.
        keeps: bool,
    },
    /// Nothing that a client should see.
    Unreadable,
}

/// Whether the answer to a request can have a body; that to a HEAD has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyAllowed {
    Yes,
    No,
}

/// What an answer is an answer to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerTo<'a> {
    pub(crate) body: BodyAllowed,
    /// Whether the client's connection goes on, should the answer say where it ends.
    pub(crate) keeps: bool,
    /// Whether WebSocket was asked for.
    pub(crate) websocket: bool,
    /// What is masked in its fields.
    pub(crate) screen: Option<&'a Masker>,
}

/// Reads the head of the one answer that a connection carries; the client is told so.
pub(crate) fn parse_response(bytes: &[u8], body_allowed: BodyAllowed) -> ResponseHead {
    let answer = AnswerTo {
        body: body_allowed,
        keeps: false,
        websocket: false,
        screen: None,
    };
    parse_answer(bytes, &answer)
}

/// Reads the head of an answer.
pub(crate) fn parse_answer(bytes: &[u8], to: &AnswerTo<'_>) -> ResponseHead {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return ResponseHead::Partial,
        Err(_) => return ResponseHead::Unreadable,
    };
    let (Some(version), Some(code)) = (response.version, response.code) else {
        return ResponseHead::Unreadable;
    };
    match code {
        101 if to.websocket => {}
        // No upgrade was passed on, so that nobody asked for another protocol.
        101 => return ResponseHead::Unreadable,
        100..=199 => return ResponseHead::Interim { length },
        _ => {}
    }
    let reason = response.reason.unwrap_or_default();
    let Ok(dropped) = dropped_names(response.headers) else {
        return ResponseHead::Unreadable;
    };
    let screened = |value: &[u8]| match to.screen {
        Some(screen) => screen.mask_bytes(value).0.into_owned(),
        None => value.to_vec(),
    };
    let mut head = format!("HTTP/1.{version} {code:03} ").into_bytes();
    head.extend_from_slice(&screened(reason.as_bytes()));
    head.extend_from_slice(b"\r\n");
    for field in &*response.headers {
        let name = field.name.to_ascii_lowercase();
        // Only the proxy itself may speak in its own name.
        if !dropped.contains(&name) && !name.starts_with("x-cofferdam-") {
            push_field(&mut head, field.name, &screened(field.value));
        }
    }
    if code == 101 {
        push_field(&mut head, "Connection", b"Upgrade");
        push_field(&mut head, "Upgrade", b"websocket");
        head.extend_from_slice(b"\r\n");
        return ResponseHead::Switched { length, head };
    }
    let body = match (to.body, code) {
        (BodyAllowed::No, _) | (_, 204 | 304) => Some(BodyFraming::Length(0)),
        _ => framing(response.headers),
    };
    if !to.keeps || body.is_none() {
        push_field(&mut head, "Connection", b"close");
    }
    head.extend_from_slice(b"\r\n");
    let closes = response
        .headers
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("connection"))
        .flat_map(|field| field.value.split(|byte| *byte == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"));
    ResponseHead::Final {
        length,
        head,
        keeps: version == 1 && body.is_some() && !closes,
        body,
        code,
    }
}

/// Finds where the body of an answer ends. What is not plain ends with the connection: the client is
/// told that the connection ends anyway, so that a wrong guess could only cut it short.
fn framing(fields: &[httparse::Header<'_>]) -> Option<BodyFraming> {
    let mut framings = fields.iter().filter(|field| {
        field.name.eq_ignore_ascii_case("content-length")
            || field.name.eq_ignore_ascii_case("transfer-encoding")
    });
    let (first, second) = (framings.next()?, framings.next());
    if second.is_some() {
        return None;
    }
    if first.name.eq_ignore_ascii_case("transfer-encoding") {
        let is_chunked = first.value.eq_ignore_ascii_case(b"chunked");
        return is_chunked.then(|| BodyFraming::Chunked(ChunkedEnd::default()));
    }
    let text = std::str::from_utf8(first.value).ok()?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().map(BodyFraming::Length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_says_that_the_connection_ends() {
        let bytes = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\
            X-Cofferdam-Reason: not_listed\r\nContent-Length: 2\r\n\r\nhi";
        let ResponseHead::Final {
            length, head, body, ..
        } = parse_response(bytes, BodyAllowed::Yes)
        else {
            panic!("no answer");
        };
        assert_eq!(length, bytes.len() - 2);
        assert_eq!(body, Some(BodyFraming::Length(2)));
        assert_eq!(
            String::from_utf8(head).expect("text"),
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn interim_answers_pass_and_a_change_of_protocol_does_not() {
        assert_eq!(
            parse_response(b"HTTP/1.1 100 Continue\r\n\r\nHTTP", BodyAllowed::Yes),
            ResponseHead::Interim { length: 25 }
        );
        assert_eq!(
            parse_response(
                b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
                BodyAllowed::Yes
            ),
            ResponseHead::Unreadable
        );
        assert_eq!(
            parse_response(b"HTTP/1.1 200 OK\r\nA: b", BodyAllowed::Yes),
            ResponseHead::Partial
        );
        assert_eq!(
            parse_response(b"SSH-2.0-x\r\n\r\n", BodyAllowed::Yes),
            ResponseHead::Unreadable
        );
    }

    #[test]
    fn the_end_of_a_body_is_known_where_it_is_plain() {
        let end = |fields: &str, allowed| {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            match parse_response(text.as_bytes(), allowed) {
                ResponseHead::Final { body, .. } => body,
                other => panic!("{other:?}"),
            }
        };
        let chunked = Some(BodyFraming::Chunked(ChunkedEnd::default()));
        assert_eq!(
            end("Transfer-Encoding: Chunked\r\n", BodyAllowed::Yes),
            chunked
        );
        for fields in [
            "",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: -1\r\n",
        ] {
            assert_eq!(end(fields, BodyAllowed::Yes), None, "{fields:?}");
        }
        assert_eq!(
            end("Content-Length: 9\r\n", BodyAllowed::No),
            Some(BodyFraming::Length(0))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_response(&bytes, BodyAllowed::Yes);
        }
    }
}
