//! Hosts whose requests are seen: rules over methods and paths.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Duration;

use cofferdam_core::hosts::{Method, Methods, RequestRule};
use cofferdam_egress::{Ended, NetEvent, Reason, Verdict};

use crate::fixture::{PATIENCE, locked};
use crate::tls::{
    SeenStage, field, mirror, read_answer, read_head, request, rule, secure, seen, trusts_the_world,
};

fn reading() -> Vec<RequestRule> {
    vec![rule(&["seen.test"], Methods::Reading, &[])]
}

fn of(methods: &[&str]) -> Methods {
    let methods = methods.iter();
    Methods::Of(
        methods
            .map(|text| Method::parse(text).expect("a method"))
            .collect(),
    )
}

fn refused(seen: &SeenStage, text: &str, reason: Reason) -> serde_json::Value {
    let (head, body) = seen.ask(text);
    let status = format!("HTTP/1.1 {} ", reason.status());
    assert!(head.starts_with(&status), "{text}: {head}");
    assert_eq!(field(&head, "x-cofferdam-reason"), Some(reason.as_str()));
    serde_json::from_str(&body).expect("a problem")
}

#[test]
fn reading_passes_and_publishing_does_not() {
    let (address, heard) = mirror(&["seen.test"]);
    let seen = seen(address, reading(), Vec::new());
    let (head, body) = seen.ask(&request("GET", "/left-pad?x=1", "Accept: */*\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(body.starts_with("GET /left-pad?x=1 HTTP/1.1\r\nHost: seen.test\r\n"));
    heard.recv_timeout(PATIENCE).expect("a request");
    let (head, _) = seen.ask(&request("GET", "/left-pad", "Connection: close\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    heard.recv_timeout(PATIENCE).expect("a request");
    let put = "PUT /left-pad HTTP/1.1\r\nHost: seen.test\r\nContent-Length: 4\r\n\r\nevil";
    let problem = refused(&seen, put, Reason::RequestRefused);
    assert_eq!(problem["method"], "PUT");
    assert_eq!(problem["path"], "/left-pad");
    assert_eq!(
        problem["allow"]["policy"],
        "network_rules = [{ hosts = [\"seen.test\"], methods = [\"PUT\"], paths = [\"/left-pad\"] }]"
    );
    assert!(
        heard.recv_timeout(Duration::from_millis(50)).is_err(),
        "it went on"
    );
    let mut told = false;
    while !told {
        if let NetEvent::Decided(decision) = seen.stage.event() {
            told = decision.verdict == Verdict::Refused;
            if told {
                assert_eq!(decision.method.as_deref(), Some("PUT"));
                assert_eq!(decision.path.as_deref(), Some("/left-pad"));
                assert!(decision.inspected);
            }
        }
    }
}

#[test]
fn a_host_without_rules_stays_a_blind_tunnel() {
    let (address, _heard) = mirror(&["other.test"]);
    let seen = seen(address, reading(), Vec::new());
    // The certificate that comes is the host's own.
    let mut tls = seen.tls_with("other.test:443", "other.test", &trusts_the_world());
    tls.write_all(b"PUT / HTTP/1.1\r\nHost: other.test\r\n\r\n")
        .expect("sent");
    assert!(read_answer(&mut tls).0.starts_with("HTTP/1.1 200 OK"));
    assert!(!seen.stage.decision().inspected);
}

#[test]
fn a_kept_connection_judges_every_request() {
    let (address, heard) = mirror(&["seen.test"]);
    let rules = vec![
        rule(&["seen.test"], of(&["GET"]), &["/a/**"]),
        rule(&["**.test"], of(&["POST"]), &["/b"]),
    ];
    let seen = seen(address, rules, Vec::new());
    let mut tls = seen.open();
    for number in 0..20 {
        // Two at once: the second waits for its turn.
        let first = request("GET", &format!("/a/{number}"), "");
        let second = "POST /b HTTP/1.1\r\nHost: seen.test\r\nContent-Length: 3\r\n\r\nabc";
        tls.write_all(format!("{first}{second}").as_bytes())
            .expect("sent");
        let (_, body) = read_answer(&mut tls);
        assert!(body.starts_with(&format!("GET /a/{number} ")), "{body}");
        let (_, body) = read_answer(&mut tls);
        assert!(
            body.starts_with("POST /b ") && body.ends_with("\r\n\r\nabc"),
            "{body}"
        );
    }
    assert_eq!(heard.try_iter().count(), 40);
    assert_eq!(
        seen.stage.world.dialled().len(),
        1,
        "one connection to the host"
    );
    tls.write_all(request("GET", "/b", "").as_bytes())
        .expect("sent");
    let (head, _) = read_answer(&mut tls);
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(read_head(&mut tls).is_empty(), "it ends");
    let mut requests = 0;
    let closed = loop {
        match seen.stage.event() {
            NetEvent::Requested(told) => {
                requests += 1;
                assert_eq!(told.status, Some(200));
                assert!(told.rule.is_some() && !told.path.contains('?'));
            }
            NetEvent::Closed(closed) => break closed,
            NetEvent::Decided(_) => {}
        }
    };
    assert_eq!(requests, 40);
    assert_eq!(closed.ended, Ended::Failed(Reason::RequestRefused));
}

#[test]
fn what_is_ambiguous_or_another_hosts_is_refused() {
    let (address, heard) = mirror(&["seen.test"]);
    let rules = vec![rule(&["seen.test"], of(&["GET"]), &["/public/**"])];
    let seen = seen(address, rules, Vec::new());
    for path in [
        "/public/../private",
        "/public/%2e%2e/private",
        "/public/..%2fprivate",
        "/public//private",
        "/public\\private",
        "/public/%252e%252e/private",
        "/public/..;/private",
    ] {
        refused(&seen, &request("GET", path, ""), Reason::RequestAmbiguous);
    }
    for name in [
        "X-HTTP-Method-Override",
        "x-http-method",
        "X-Method-Override",
    ] {
        let text = request("GET", "/public/x", &format!("{name}: DELETE\r\n"));
        refused(&seen, &text, Reason::RequestAmbiguous);
    }
    refused(
        &seen,
        &request("GET", "/private", ""),
        Reason::RequestRefused,
    );
    refused(
        &seen,
        &request("TRACE", "/public/x", ""),
        Reason::RequestRefused,
    );
    let other = "GET /public/x HTTP/1.1\r\nHost: other.test\r\n\r\n";
    refused(&seen, other, Reason::BadRequest);
    let smuggled = "GET /public/x HTTP/1.1\r\nHost: seen.test\r\nContent-Length: 4\r\n\
                    Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    refused(&seen, smuggled, Reason::BadRequest);
    assert_eq!(heard.try_iter().count(), 0);
}

#[test]
fn the_name_within_tls_is_the_one_that_was_asked_for() {
    let (address, heard) = mirror(&["seen.test", "other.test"]);
    let rules = vec![rule(&["**.test"], Methods::Reading, &[])];
    let seen = seen(address, rules, Vec::new());
    let (stream, _) = seen.stage.connect("seen.test:443");
    let name = rustls::pki_types::ServerName::try_from("other.test").expect("a name");
    let config = crate::tls::trusts_anything();
    let client = rustls::ClientConnection::new(config, name).expect("a client");
    let mut tls = rustls::StreamOwned::new(client, stream);
    tls.write_all(b"GET / HTTP/1.1\r\nHost: seen.test\r\n\r\n")
        .expect("sent");
    let (head, _) = read_answer(&mut tls);
    assert_eq!(
        field(&head, "x-cofferdam-reason"),
        Some("name_mismatch"),
        "{head}"
    );
    assert_eq!(heard.try_iter().count(), 0);
}

#[test]
fn without_tls_a_request_is_judged_alike() {
    let heard = crate::fixture::web();
    let seen = seen(heard.0, reading(), Vec::new());
    let answer = seen
        .stage
        .say(b"PUT http://seen.test/x HTTP/1.1\r\nHost: seen.test\r\nContent-Length: 0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let answer = seen
        .stage
        .say(b"GET http://seen.test/x HTTP/1.1\r\nHost: seen.test\r\n\r\n");
    assert!(answer.ends_with("hello"), "{answer}");
    assert!(answer.contains("Connection: close\r\n"), "{answer}");
    let got = heard.1.recv_timeout(PATIENCE).expect("a request");
    assert!(
        got.starts_with("GET /x HTTP/1.1\r\nHost: seen.test\r\n"),
        "{got}"
    );
    // Also within a tunnel.
    let (mut tunnel, _) = seen.stage.connect("seen.test:80");
    tunnel
        .write_all(b"DELETE /x HTTP/1.1\r\nHost: seen.test\r\n\r\n")
        .expect("sent");
    let answer = crate::fixture::rest(&mut tunnel);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

#[test]
fn what_is_neither_tls_nor_http_does_not_pass() {
    let (address, _heard) = mirror(&["seen.test"]);
    let seen = seen(address, reading(), Vec::new());
    let (mut tunnel, _) = seen.stage.connect("seen.test:443");
    tunnel
        .write_all(b"\0\x01\x02 something else")
        .expect("sent");
    assert_eq!(crate::fixture::rest(&mut tunnel), "");
    assert!(seen.stage.world.dialled().is_empty());
    assert_eq!(
        seen.stage.closed().ended,
        Ended::Failed(Reason::NotInspectable)
    );
}

#[test]
fn a_client_that_trusts_another_authority_is_told_of() {
    let (address, _heard) = mirror(&["seen.test"]);
    let seen = seen(address, reading(), Vec::new());
    let mut tls = seen.tls_with("seen.test:443", "seen.test", &trusts_the_world());
    assert!(tls.write_all(b"GET / HTTP/1.1\r\n\r\n").is_err());
    drop(tls);
    loop {
        if let NetEvent::Decided(decision) = seen.stage.event()
            && decision.verdict == Verdict::Refused
        {
            assert_eq!(decision.reason, Reason::ClientTls);
            assert!(decision.detail.expect("why").contains("SSL_CERT_FILE"));
            break;
        }
    }
}

#[test]
fn a_host_that_cannot_be_verified_is_not_spoken_to() {
    let (address, heard) = mirror(&["another.test"]);
    let seen = seen(address, reading(), Vec::new());
    let (head, body) = seen.ask(&request("GET", "/", ""));
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(body.contains("cannot be verified"), "{body}");
    assert_eq!(heard.try_iter().count(), 0);
}

#[test]
fn bodies_flow_both_ways_and_are_never_kept() {
    // The host echoes chunk by chunk: with a buffer for the whole this would never begin.
    let address = secure(&["seen.test"], |mut stream| {
        let head = read_head(&mut stream);
        assert!(head.contains("Transfer-Encoding: chunked"));
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .expect("sent");
        let mut piece = vec![0; 64 * 1024];
        let mut tail = Vec::new();
        while let Ok(count) = stream.read(&mut piece) {
            if count == 0 || stream.write_all(&piece[..count]).is_err() {
                return;
            }
            tail.extend_from_slice(&piece[..count]);
            if tail.ends_with(b"0\r\n\r\n") {
                return;
            }
            let cut = tail.len().saturating_sub(5);
            tail.drain(..cut);
        }
    });
    let seen = seen(
        address,
        vec![rule(&["seen.test"], of(&["POST"]), &[])],
        Vec::new(),
    );
    let mut tls = seen.open();
    tls.write_all(b"POST / HTTP/1.1\r\nHost: seen.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        .expect("sent");
    let head = read_head(&mut tls);
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let chunk = [b"8000\r\n".as_slice(), &vec![b'x'; 0x8000], b"\r\n"].concat();
    let mut back = vec![0; chunk.len()];
    for _ in 0..64 {
        tls.write_all(&chunk).expect("sent");
        tls.read_exact(&mut back).expect("an echo");
        assert!(back == chunk);
    }
    tls.write_all(b"0\r\n\r\n").expect("sent");
    let mut end = [0; 5];
    tls.read_exact(&mut end).expect("the end");
    assert_eq!(&end, b"0\r\n\r\n");
}

#[test]
fn a_slow_client_holds_the_host_back() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    const PIECE: usize = 64 * 1024;
    const PIECES: usize = 1024;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let address = secure(&["seen.test"], move |mut stream| {
        read_head(&mut stream);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            PIECE * PIECES
        );
        stream.write_all(head.as_bytes()).expect("sent");
        for _ in 0..PIECES {
            if stream.write_all(&vec![7; PIECE]).is_err() {
                return;
            }
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let seen = seen(address, reading(), Vec::new());
    let mut tls = seen.open();
    tls.write_all(request("GET", "/", "").as_bytes())
        .expect("sent");
    read_head(&mut tls);
    // Until nothing moves any more.
    let mut before = usize::MAX;
    while before != sent.load(Ordering::SeqCst) {
        before = sent.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(150));
    }
    assert!(
        before < PIECES / 2,
        "{before} of {PIECES} pieces are kept somewhere"
    );
    let mut total = 0;
    let mut piece = vec![0; PIECE];
    while total < PIECE * PIECES {
        total += tls.read(&mut piece).expect("received");
    }
    assert_eq!(total, PIECE * PIECES);
}

#[test]
fn expect_continue_and_interim_answers_pass() {
    let address = secure(&["seen.test"], |mut stream| {
        let head = read_head(&mut stream);
        assert!(head.contains("Expect: 100-continue"));
        stream
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            .expect("sent");
        let mut body = [0; 4];
        stream.read_exact(&mut body).expect("a body");
        stream
            .write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            .expect("sent");
    });
    let rules = vec![rule(&["seen.test"], of(&["POST"]), &["/ok"])];
    let seen = seen(address, rules, Vec::new());
    let mut tls = seen.open();
    let head = "HTTP/1.1\r\nHost: seen.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    tls.write_all(format!("POST /ok {head}").as_bytes())
        .expect("sent");
    assert_eq!(read_head(&mut tls), "HTTP/1.1 100 Continue\r\n\r\n");
    tls.write_all(b"body").expect("sent");
    assert!(read_head(&mut tls).starts_with("HTTP/1.1 201 Created"));
    // Who is refused hears it at once and sends no body.
    let (head, _) = seen.ask(&format!("POST /no {head}"));
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

#[test]
fn a_websocket_opens_only_where_a_rule_says_so() {
    let address = secure(&["seen.test"], |mut stream| {
        let head = read_head(&mut stream);
        if field(&head, "upgrade") != Some("websocket") {
            return;
        }
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi")
            .expect("sent");
        let mut piece = [0; 64];
        while let Ok(count) = stream.read(&mut piece) {
            if count == 0 || stream.write_all(&piece[..count]).is_err() {
                return;
            }
        }
    });
    let mut rule = rule(&["seen.test"], of(&["GET"]), &["/live"]);
    let text = request(
        "GET",
        "/live",
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
    );
    let closed = seen(address, vec![rule.clone()], Vec::new());
    refused(&closed, &text, Reason::RequestRefused);
    rule.websocket = true;
    let open = seen(address, vec![rule], Vec::new());
    let mut tls = open.open();
    tls.write_all(text.as_bytes()).expect("sent");
    let head = read_head(&mut tls);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(field(&head, "upgrade"), Some("websocket"));
    let mut first = [0; 4];
    tls.read_exact(&mut first).expect("a frame");
    assert_eq!(&first, b"\x81\x02hi");
    for _ in 0..10 {
        tls.write_all(b"\0frame\xff").expect("sent");
        let mut back = [0; 7];
        tls.read_exact(&mut back).expect("an echo");
        assert_eq!(&back, b"\0frame\xff");
    }
}

#[test]
fn a_host_that_hung_up_in_between_is_asked_again() {
    let count = std::sync::Arc::new(std::sync::Mutex::new(0));
    let counter = std::sync::Arc::clone(&count);
    let address = secure(&["seen.test"], move |mut stream| {
        *locked(&counter) += 1;
        read_head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .expect("sent");
        // It says nothing of it.
    });
    let seen = seen(address, reading(), Vec::new());
    let mut tls = seen.open();
    for _ in 0..5 {
        tls.write_all(request("GET", "/", "").as_bytes())
            .expect("sent");
        assert_eq!(read_answer(&mut tls).1, "ok");
    }
    assert_eq!(*locked(&count), 5);
}

#[test]
fn rules_that_come_later_cut_blind_tunnels() {
    let (address, _heard) = mirror(&["seen.test"]);
    let seen = seen(address, Vec::new(), Vec::new());
    let mut tls = seen.tls_with("seen.test:443", "seen.test", &trusts_the_world());
    tls.write_all(request("PUT", "/", "").as_bytes())
        .expect("sent");
    read_answer(&mut tls);
    let mut policy = (*seen.stage.proxy.policy()).clone();
    policy.requests.0 = reading();
    seen.stage.proxy.replace(policy);
    assert_eq!(seen.stage.closed().ended, Ended::Revoked);
}

#[test]
fn nothing_is_left_when_it_stops() {
    let (address, _heard) = mirror(&["seen.test"]);
    let seen = seen(address, reading(), Vec::new());
    let mut open: Vec<_> = (0..20).map(|_| seen.open()).collect();
    for tls in &mut open {
        tls.write_all(request("GET", "/", "").as_bytes())
            .expect("sent");
        read_answer(tls);
    }
    assert_eq!(seen.stage.proxy.connections(), 20);
    assert_eq!(seen.stage.proxy.stop().left, 0);
}
