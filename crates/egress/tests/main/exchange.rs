//! Single requests in absolute form.

use std::io::Write;
use std::time::Duration;

use cofferdam_egress::{Ended, Protocol, Reason};

use crate::fixture::{PATIENCE, PUBLIC, Stage, head, locked, rest, rules, server, stage, web};

fn open_stage() -> (Stage, std::sync::mpsc::Receiver<String>) {
    let stage = stage(rules(&["a.example", "b.example"], &[]));
    let (address, heard) = web();
    stage.world.name("a.example", &[PUBLIC]);
    stage.world.name("b.example", &["93.184.215.15"]);
    stage.world.host(PUBLIC, 80, address);
    (stage, heard)
}

#[test]
fn a_request_arrives_in_origin_form_with_its_body() {
    let (stage, heard) = open_stage();
    let answer = stage.say(
        b"POST http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\nProxy-Connection: keep-alive\r\n\
          Content-Length: 4\r\n\r\nbody",
    );
    assert_eq!(
        answer,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    );
    assert_eq!(
        heard.recv_timeout(PATIENCE).expect("a request"),
        "POST /x?y HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
    );
    let decision = stage.decision();
    assert_eq!(decision.protocol, Protocol::Http);
    assert_eq!(decision.method.as_deref(), Some("POST"));
    let closed = stage.closed();
    assert_eq!(closed.ended, Ended::Finished);
    assert_eq!(closed.received, answer.len() as u64);
}

#[test]
fn a_second_request_on_the_connection_goes_nowhere() {
    let (stage, heard) = open_stage();
    let first = "GET http://a.example/1 HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let second = "GET http://evil.example/2 HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    // At once, and after the answer.
    let answer = stage.say(format!("{first}{second}").as_bytes());
    assert!(answer.ends_with("hello"), "{answer}");
    let got = heard.recv_timeout(PATIENCE).expect("a request");
    assert!(got.starts_with("GET /1 ") && !got.contains("evil"), "{got}");
    let mut client = stage.client();
    client.write_all(first.as_bytes()).expect("sent");
    head(&mut client);
    let _ = client.write_all(second.as_bytes());
    drop(client);
    let got = heard.recv_timeout(PATIENCE).expect("a request");
    assert!(got.starts_with("GET /1 ") && !got.contains("evil"), "{got}");
}

#[test]
fn a_chunked_body_ends_where_it_ends() {
    let (stage, heard) = open_stage();
    let answer = stage.say(
        b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
          3\r\nabc\r\n0\r\n\r\nGET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
    );
    assert!(answer.ends_with("hello"), "{answer}");
    let got = heard.recv_timeout(PATIENCE).expect("a request");
    assert!(
        got.ends_with("Connection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        "{got}"
    );
}

#[test]
fn a_body_that_can_be_read_in_two_ways_is_cut() {
    let (stage, _heard) = open_stage();
    let answer = stage.say(
        b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
          3\nabc\r\n0\r\n\r\n",
    );
    assert_eq!(answer, "");
    assert_eq!(stage.closed().ended, Ended::Broken);
}

#[test]
fn what_cannot_be_read_one_way_is_refused_before_anything_leaves() {
    let (stage, _heard) = open_stage();
    for (text, status, reason) in [
        (
            "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            400,
            "origin_form",
        ),
        (
            "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            400,
            "unsupported_scheme",
        ),
        (
            "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "GET http://a.example/ HTTP/1.1\nHost: a.example\n\n",
            400,
            "bad_request",
        ),
        (
            "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX: 1\r\n folded\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "GET http://a_\u{e9}.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
            400,
            "",
        ),
        ("CONNECT a.example HTTP/1.1\r\n\r\n", 400, "invalid_host"),
        (
            "CONNECT *.example:443 HTTP/1.1\r\n\r\n",
            400,
            "invalid_host",
        ),
        ("\x16\x03\x01\x02", 400, "unsupported_protocol"),
        ("GARBAGE\r\n\r\n", 400, "bad_request"),
    ] {
        let answer = stage.say(text.as_bytes());
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{text:?}: {answer}"
        );
        assert!(answer.contains(reason), "{text:?}: {answer}");
    }
    assert_eq!(stage.world.lookups(), Vec::<String>::new());
    assert_eq!(stage.world.dialled(), Vec::new());
}

#[test]
fn an_interim_answer_passes_and_the_body_follows() {
    let stage = stage(rules(&["a.example"], &[]));
    stage.world.name("a.example", &[PUBLIC]);
    let address = server(|mut stream| {
        assert!(head(&mut stream).contains("Expect: 100-continue"));
        stream
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            .expect("sent");
        let mut body = [0; 4];
        std::io::Read::read_exact(&mut stream, &mut body).expect("a body");
        stream
            .write_all(b"HTTP/1.1 201 Created\r\nX-Cofferdam-Reason: not_listed\r\n\r\ndone")
            .expect("sent");
    });
    stage.world.host(PUBLIC, 80, address);
    let mut client = stage.client();
    client
        .write_all(
            b"PUT http://a.example/ HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\n\
              Content-Length: 4\r\n\r\n",
        )
        .expect("sent");
    assert_eq!(head(&mut client), "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"body").expect("sent");
    assert_eq!(
        rest(&mut client),
        "HTTP/1.1 201 Created\r\nConnection: close\r\n\r\ndone"
    );
}

#[test]
fn an_answer_that_cannot_be_read_is_502() {
    let stage = stage(rules(&["a.example"], &[]));
    stage.world.name("a.example", &[PUBLIC]);
    for bytes in [
        "",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 101 Switching\r\n\r\nx",
        "HTTP/1.1 200",
    ] {
        let address = server(move |mut stream| {
            head(&mut stream);
            stream.write_all(bytes.as_bytes()).expect("sent");
        });
        stage.world.host(PUBLIC, 80, address);
        let answer = stage.say(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 502 "), "{bytes:?}: {answer}");
        assert!(answer.contains("upstream_invalid"), "{bytes:?}: {answer}");
        assert_eq!(stage.closed().ended, Ended::Failed(Reason::UpstreamInvalid));
    }
}

#[test]
fn an_oversized_head_and_a_slow_one_are_refused() {
    let stage = crate::fixture::stage_with(rules(&["a.example"], &[]), |options| {
        options.limits.head_bytes = 4096;
        options.limits.head_time = Duration::from_millis(300);
    });
    let long = format!(
        "GET http://a.example/ HTTP/1.1\r\nX: {}\r\n",
        "x".repeat(8192)
    );
    let answer = stage.say(long.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(stage.decision().reason, Reason::HeadTooLarge);
    // A byte now and then does not buy time.
    let mut client = stage.client();
    let started = std::time::Instant::now();
    client
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("a timeout");
    let mut heard = Vec::new();
    while started.elapsed() < PATIENCE {
        let _ = client.write_all(b"G");
        let mut piece = [0; 4096];
        match std::io::Read::read(&mut client, &mut piece) {
            Ok(0) => break,
            Ok(count) => heard.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    assert!(
        heard.starts_with(b"HTTP/1.1 408 "),
        "{}",
        heard.escape_ascii()
    );
    // Nor does silence.
    assert_eq!(stage.say(b""), "");
}

#[test]
fn what_follows_a_late_body_goes_nowhere() {
    let stage = stage(rules(&["a.example"], &[]));
    stage.world.name("a.example", &[PUBLIC]);
    for (framing, body) in [
        ("Content-Length: 4", "body"),
        ("Transfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n"),
    ] {
        let (sender, heard) = std::sync::mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let address = server(move |mut stream| {
            head(&mut stream);
            stream
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .expect("sent");
            // Up to the client's last word, which the proxy passes on.
            let body = rest(&mut stream);
            let _ = locked(&sender).send(body);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        });
        stage.world.host(PUBLIC, 80, address);
        let mut client = stage.client();
        let request =
            format!("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{framing}\r\n\r\n");
        client.write_all(request.as_bytes()).expect("sent");
        head(&mut client);
        let second = "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        client
            .write_all(format!("{body}{second}").as_bytes())
            .expect("sent");
        client
            .shutdown(std::net::Shutdown::Write)
            .expect("half closed");
        assert_eq!(heard.recv_timeout(PATIENCE).expect("a body"), body);
        assert!(rest(&mut client).starts_with("HTTP/1.1 200 OK\r\n"));
    }
}
