//! The head of a host's answer: passed on without what concerns only host and proxy.

use crate::head::{MOST_FIELDS, dropped_names, push_field};

/// What the head of an answer is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResponseHead {
    /// More bytes are needed.
    Partial,
    /// An interim answer, passed on as it came; the real one follows.
    Interim { length: usize },
    /// The answer, with the head to send instead.
    Final { length: usize, head: Vec<u8> },
    /// Nothing that a client should see.
    Unreadable,
}

/// Reads the head of an answer. Each connection carries one answer, and the client is told so.
pub(crate) fn parse_response(bytes: &[u8]) -> ResponseHead {
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
        // No upgrade was passed on, so that nobody asked for another protocol.
        101 => return ResponseHead::Unreadable,
        100..=199 => return ResponseHead::Interim { length },
        _ => {}
    }
    let reason = response.reason.unwrap_or_default();
    let Ok(dropped) = dropped_names(response.headers) else {
        return ResponseHead::Unreadable;
    };
    let mut head = format!("HTTP/1.{version} {code:03} {reason}\r\n").into_bytes();
    for field in &*response.headers {
        let name = field.name.to_ascii_lowercase();
        // Only the proxy itself may speak in its own name.
        if !dropped.contains(&name) && !name.starts_with("x-cofferdam-") {
            push_field(&mut head, field.name, field.value);
        }
    }
    push_field(&mut head, "Connection", b"close");
    head.extend_from_slice(b"\r\n");
    ResponseHead::Final { length, head }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_says_that_the_connection_ends() {
        let bytes = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\
            X-Cofferdam-Reason: not_listed\r\nContent-Length: 2\r\n\r\nhi";
        let ResponseHead::Final { length, head } = parse_response(bytes) else {
            panic!("no answer");
        };
        assert_eq!(length, bytes.len() - 2);
        assert_eq!(
            String::from_utf8(head).expect("text"),
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn interim_answers_pass_and_a_change_of_protocol_does_not() {
        assert_eq!(
            parse_response(b"HTTP/1.1 100 Continue\r\n\r\nHTTP"),
            ResponseHead::Interim { length: 25 }
        );
        assert_eq!(
            parse_response(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
            ResponseHead::Unreadable
        );
        assert_eq!(
            parse_response(b"HTTP/1.1 200 OK\r\nA: b"),
            ResponseHead::Partial
        );
        assert_eq!(
            parse_response(b"SSH-2.0-x\r\n\r\n"),
            ResponseHead::Unreadable
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_response(&bytes);
        }
    }
}
