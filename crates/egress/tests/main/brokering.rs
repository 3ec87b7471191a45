//! Secrets that hosts are told and clients never see.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};

use cofferdam_core::hosts::Methods;
use cofferdam_egress::{NetEvent, Reason, SecretPlace, Verdict};

use crate::fixture::PATIENCE;
use crate::tls::{
    SECRET, broker, field, mirror, read_answer, read_head, request, rule, secure, seen,
};

fn masked() -> String {
    "*".repeat(SECRET.len())
}

#[test]
fn the_host_is_told_the_value_and_the_client_is_not() {
    let (address, heard) = mirror(&["seen.test"]);
    let seen = seen(
        address,
        Vec::new(),
        vec![broker("seen.test", SecretPlace::Bearer, false)],
    );
    let text = request(
        "GET",
        "/me",
        "Authorization: Bearer cofferdam-secret-key\r\n",
    );
    let (head, body) = seen.ask(&text);
    let got = heard.recv_timeout(PATIENCE).expect("a request");
    assert!(
        got.contains(&format!("Authorization: Bearer {SECRET}\r\n")),
        "{got}"
    );
    assert!(got.contains("Accept-Encoding: identity\r\n"), "{got}");
    // The host shows what it was told, in a field and in the body.
    assert_eq!(
        field(&head, "x-echo"),
        Some(format!("Bearer {}", masked()).as_str())
    );
    assert!(!body.contains(SECRET) && body.contains(&masked()), "{body}");
    let NetEvent::Decided(decision) = seen.stage.event() else {
        panic!("a decision comes first");
    };
    assert!(decision.inspected);
    let NetEvent::Requested(told) = seen.stage.event() else {
        panic!("then the request");
    };
    assert_eq!(told.secrets, ["key"]);
    assert!(!format!("{told:?}{decision:?}").contains(SECRET));
    assert!(!format!("{:?}", seen.stage.proxy.policy()).contains(SECRET));
}

#[test]
fn it_is_put_in_where_nothing_stands_when_the_owner_says_so() {
    let (address, heard) = mirror(&["seen.test"]);
    let basic = SecretPlace::Basic {
        username: "x-access-token".to_owned(),
    };
    let seen = seen(address, Vec::new(), vec![broker("seen.test", basic, true)]);
    let (_, body) = seen.ask(&request("GET", "/app.git/info/refs", ""));
    let got = heard.recv_timeout(PATIENCE).expect("a request");
    let sent = field(&got, "authorization")
        .expect("credentials")
        .to_owned();
    assert!(sent.starts_with("Basic "), "{sent}");
    assert!(!body.contains(sent.trim_start_matches("Basic ")), "{body}");
    // What the client says itself stays.
    seen.ask(&request("GET", "/", "Authorization: Bearer mine\r\n"));
    let got = heard.recv_timeout(PATIENCE).expect("a request");
    assert_eq!(field(&got, "authorization"), Some("Bearer mine"));
}

#[test]
fn a_placeholder_goes_nowhere_else() {
    let (address, heard) = mirror(&["seen.test", "other.test"]);
    let rules = vec![rule(&["seen.test"], Methods::Any, &[])];
    let seen = seen(
        address,
        rules,
        vec![broker("other.test", SecretPlace::Bearer, true)],
    );
    let text = request("GET", "/", "Authorization: Bearer cofferdam-secret-key\r\n");
    let (head, _) = seen.ask(&text);
    assert_eq!(
        field(&head, "x-cofferdam-reason"),
        Some("placeholder_elsewhere")
    );
    // Without TLS not even to the host that it is for.
    let (tcp, plainly_heard) = crate::fixture::web();
    seen.stage.world.host("93.184.215.15", 80, tcp);
    let answer = seen.stage.say(
        b"GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\
          Authorization: Bearer cofferdam-secret-key\r\n\r\n",
    );
    assert!(
        answer.contains("x-cofferdam-reason: placeholder_elsewhere"),
        "{answer}"
    );
    // A host that nothing is said about, without TLS.
    let answer = seen
        .stage
        .say(b"GET http://seen.test/?k=cofferdam-secret-key HTTP/1.1\r\nHost: seen.test\r\n\r\n");
    assert!(
        answer.contains("x-cofferdam-reason: placeholder_elsewhere"),
        "{answer}"
    );
    assert_eq!(
        heard.try_iter().count() + plainly_heard.try_iter().count(),
        0
    );
    let mut told = 0;
    while told < 3 {
        if let NetEvent::Decided(decision) = seen.stage.event()
            && decision.verdict == Verdict::Refused
        {
            assert_eq!(decision.reason, Reason::PlaceholderElsewhere);
            told += 1;
        }
    }
    // Nothing of it is put in without TLS either.
    let answer = seen
        .stage
        .say(b"GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n");
    assert!(answer.ends_with("hello"), "{answer}");
    let got = plainly_heard.recv_timeout(PATIENCE).expect("a request");
    assert!(!got.contains("uthorization"), "{got}");
}

#[test]
fn a_rule_and_a_secret_hold_together() {
    let (address, heard) = mirror(&["seen.test"]);
    let rules = vec![rule(&["seen.test"], Methods::Reading, &["/repos/me/**"])];
    let seen = seen(
        address,
        rules,
        vec![broker("seen.test", SecretPlace::Bearer, true)],
    );
    seen.ask(&request("GET", "/repos/me/app", ""));
    let got = heard.recv_timeout(PATIENCE).expect("a request");
    assert!(got.contains(SECRET));
    let (head, _) = seen.ask(&request("GET", "/repos/you/app", ""));
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert_eq!(heard.try_iter().count(), 0);
}

#[test]
fn an_echo_in_chunks_is_masked_wherever_it_is_cut() {
    let address = secure(&["seen.test"], |mut stream| {
        let head = read_head(&mut stream);
        let shown = field(&head, "authorization").expect("credentials");
        let (one, other) = shown.split_at(shown.len() / 2);
        let mut answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        for piece in ["before ", one, other, " after"] {
            let _ = write!(answer, "{:x};x=y\r\n{piece}\r\n", piece.len());
        }
        answer.push_str("0\r\nX-Trailer: 1\r\n\r\n");
        // A byte at a time, so that every cut is tried.
        for byte in answer.bytes() {
            if stream
                .write_all(&[byte])
                .and_then(|()| stream.flush())
                .is_err()
            {
                return;
            }
        }
        let _ = stream.read(&mut [0]);
    });
    let seen = seen(
        address,
        Vec::new(),
        vec![broker("seen.test", SecretPlace::Bearer, true)],
    );
    let mut tls = seen.open();
    tls.write_all(request("GET", "/", "").as_bytes())
        .expect("sent");
    let head = read_head(&mut tls);
    assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
    let mut body = Vec::new();
    while !body.ends_with(b"0\r\n\r\n") {
        let mut byte = [0];
        tls.read_exact(&mut byte).expect("a body");
        body.push(byte[0]);
    }
    let text = String::from_utf8(body).expect("text");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            break;
        }
        plain.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    assert_eq!(plain, format!("before Bearer {} after", masked()));
}

#[test]
fn pieces_of_an_answer_cannot_be_asked_for() {
    let (address, heard) = mirror(&["seen.test"]);
    let seen = seen(
        address,
        Vec::new(),
        vec![broker("seen.test", SecretPlace::Bearer, true)],
    );
    let mut tls = seen.open();
    tls.write_all(request("GET", "/", "Range: bytes=0-9\r\nAccept-Encoding: gzip\r\n").as_bytes())
        .expect("sent");
    read_answer(&mut tls);
    let got = heard.recv_timeout(PATIENCE).expect("a request");
    assert!(!got.contains("Range") && !got.contains("gzip"), "{got}");
}
