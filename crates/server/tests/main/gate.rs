//! Who is let in, and what nobody may do.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::time::Duration;

use crate::client::{Running, fill};

const VIEWS: &[&str] = &[
    "events",
    "topology",
    "tasks/task_1/evidence",
    "threads/thread_1/messages",
    "verifier",
    "runtime-summary",
    "stream",
];

#[test]
fn c105_no_verb_writes() {
    let server = Running::start();
    fill(server.journal.as_ref(), 3);
    let before = server.view("events").body;
    for view in VIEWS {
        for verb in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
            let target = format!("/api/agents/visibility/{view}");
            let answer = server.send(&server.request(verb, &target, "Content-Length: 0\r\n"));
            assert_eq!(answer.status, 405, "{verb} {view}");
            assert!(answer.head.contains("allow: get, head"), "{}", answer.head);
            assert!(
                answer.head.contains("application/problem+json"),
                "{}",
                answer.head
            );
            assert_eq!(answer.json()["code"], "method_not_allowed");
        }
    }
    let answer = server.send(&server.request("POST", "/nowhere", "Content-Length: 0\r\n"));
    assert_eq!(answer.status, 405);
    assert_eq!(server.view("events").body, before);
}

#[test]
fn the_token_is_always_asked_for() {
    let server = Running::start();
    let host = format!("Host: {}\r\nConnection: close\r\n", server.address);
    let with = |line: &str, target: &str| {
        server.send(&format!("GET {target} HTTP/1.1\r\n{host}{line}\r\n"))
    };
    for view in VIEWS {
        let target = format!("/api/agents/visibility/{view}");
        for line in [
            String::new(),
            "Authorization: Bearer \r\n".to_owned(),
            "Authorization: Bearer 0000\r\n".to_owned(),
            format!("Authorization: Basic {}\r\n", server.token),
            format!("Authorization: {}\r\n", server.token),
            format!(
                "Authorization: Bearer {0}\r\nAuthorization: Bearer {0}\r\n",
                server.token
            ),
        ] {
            let answer = with(&line, &target);
            assert_eq!(answer.status, 401, "{view} {line}");
            assert!(answer.head.contains("www-authenticate: bearer"));
            assert_eq!(answer.json()["code"], "unauthorized");
        }
    }
    assert_eq!(with("", "/api/openapi.json").status, 401);
    assert_eq!(with("", "/nowhere").status, 401);
    assert_eq!(with("", "/healthz").status, 200);
    assert_eq!(with("", "/healthz/").status, 401);
    assert_eq!(server.get("/nowhere").status, 404);
    assert_eq!(server.get("/nowhere").json()["code"], "no_such_resource");
}

#[test]
fn f1_a_page_of_another_site_is_refused() {
    let server = Running::start();
    let port = server.address.port();
    let send = |host: &str, more: &str| {
        server.send(&format!(
            "GET /api/agents/visibility/events HTTP/1.1\r\n{host}Authorization: Bearer {}\r\nConnection: close\r\n{more}\r\n",
            server.token
        ))
    };
    for host in [
        "Host: evil.example\r\n".to_owned(),
        format!("Host: evil.example:{port}\r\n"),
        "Host: 127.0.0.1:1\r\n".to_owned(),
        "Host: 127.0.0.1\r\n".to_owned(),
        format!("Host: 127.0.0.1:{port}\r\nHost: evil.example:{port}\r\n"),
    ] {
        let answer = send(&host, "");
        assert!(
            (400..500).contains(&answer.status),
            "{host}: {}",
            answer.status
        );
        assert!(!answer.body.contains("events"), "{host}");
    }
    let ours = format!("Host: localhost:{port}\r\n");
    let refused = [
        "Origin: http://evil.example\r\n".to_owned(),
        "Origin: null\r\n".to_owned(),
        format!("Origin: http://localhost:{}\r\n", port ^ 1),
        format!("Origin: https://localhost:{port}\r\n"),
        format!("Origin: http://evil.example:{port}\r\n"),
        "Sec-Fetch-Site: cross-site\r\n".to_owned(),
    ];
    for origin in refused {
        let answer = send(&ours, &origin);
        assert_eq!(answer.status, 403, "{origin}");
        assert_eq!(answer.json()["code"], "origin_refused");
    }
    let own = format!("Origin: http://localhost:{port}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(send(&ours, &own).status, 200);
    // A page without a token learns of another host's refusal before anything else.
    let answer = server.send(&format!(
        "POST /api/agents/visibility/events HTTP/1.1\r\nHost: evil:{port}\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    ));
    assert_eq!(answer.status, 403);
}

#[test]
fn a_request_line_to_another_host_is_refused() {
    let server = Running::start();
    let answer = server.send(&format!(
        "GET http://evil.example/api/agents/visibility/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        server.address, server.token
    ));
    assert_eq!(answer.status, 403);
}

#[test]
fn f9_a_page_of_a_listed_origin_may_ask_and_no_other() {
    let listed = "https://app.example.org";
    let server = Running::start_as(|options, _| options.origins = vec![listed.to_owned()]);
    let closed = Running::start();
    let ask = |server: &Running, verb: &str, lines: &str| {
        let host = format!("Host: {}\r\nConnection: close\r\n", server.address);
        server.send(&format!(
            "{verb} /api/v1/run_command HTTP/1.1\r\n{host}{lines}\r\n"
        ))
    };
    let before = |origin: &str| {
        format!(
            "Origin: {origin}\r\nSec-Fetch-Site: cross-site\r\n\
             Access-Control-Request-Method: POST\r\n\
             Access-Control-Request-Headers: authorization,content-type\r\n"
        )
    };
    let answer = ask(&server, "OPTIONS", &before(listed));
    assert_eq!(answer.status, 204);
    for line in [
        "access-control-allow-origin: https://app.example.org",
        "access-control-allow-methods: get, head, post",
        "access-control-allow-headers: authorization, content-type, last-event-id",
        "vary: origin",
    ] {
        assert!(answer.head.contains(line), "{line}: {}", answer.head);
    }
    assert!(
        !answer.head.contains("allow-credentials"),
        "{}",
        answer.head
    );
    // Others are refused, by whatever they resemble; and without a list everybody is.
    let others = [
        "https://app.example.org.evil.test",
        "http://app.example.org",
        "https://app.example.org:444",
        "https://example.org",
        "null",
        "*",
    ];
    for origin in others {
        let answer = ask(&server, "OPTIONS", &before(origin));
        assert_eq!(answer.status, 403, "{origin}");
        assert!(!answer.head.contains("access-control"), "{}", answer.head);
    }
    assert_eq!(ask(&closed, "OPTIONS", &before(listed)).status, 403);
    // The question itself goes by the token as ever, and its answer may be read.
    let call = |origin: &str, token: &str| {
        format!(
            "Origin: {origin}\r\nSec-Fetch-Site: cross-site\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        )
    };
    assert_eq!(ask(&server, "POST", &call(listed, "wrong")).status, 401);
    let known = ask(&server, "POST", &call(listed, &server.token));
    assert!(![401, 403].contains(&known.status), "{}", known.body);
    assert!(
        known
            .head
            .contains("access-control-allow-origin: https://app.example.org"),
        "{}",
        known.head
    );
    let other = ask(&server, "POST", &call("https://evil.test", &server.token));
    assert_eq!(other.status, 403);
    assert!(!other.head.contains("access-control"), "{}", other.head);
    // A page that sends the header twice is none that was listed.
    let twice = format!("Origin: https://evil.test\r\n{}", before(listed));
    assert_eq!(ask(&server, "OPTIONS", &twice).status, 403);
}

#[test]
fn f9_what_is_no_origin_is_refused_at_the_start() {
    for bad in [
        "*",
        "null",
        "app.example.org",
        "https://app.example.org/",
        "https://*.example.org",
        "https://me@example.org",
        "HTTPS://example.org",
        "file://x",
        "https://",
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut options, _journal) = crate::client::options(&directory);
        options.origins = vec![bad.to_owned()];
        let refused = cofferdam_server::Server::bind(options).expect_err("refused");
        assert!(
            refused.to_string().contains("no origin"),
            "{bad}: {refused}"
        );
    }
}

/// Callers keep their connections: what is refused leaves them as good as they were.
#[test]
fn the_call_after_a_refused_one_finds_its_connection() {
    let server = Running::start();
    let stream = server.connect();
    let mut writer = stream.try_clone().expect("cloned");
    let mut reader = BufReader::new(stream);
    let mut answer = || {
        let (mut line, mut status, mut length, mut closes) = (String::new(), 0, 0, false);
        while reader.read_line(&mut line).expect("an answer") > 2 {
            let text = std::mem::take(&mut line).to_ascii_lowercase();
            if let Some(rest) = text.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().expect("a status");
            } else if let Some(rest) = text.strip_prefix("content-length:") {
                length = rest.trim().parse().expect("a length");
            }
            closes |= text.trim() == "connection: close";
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        (status, closes)
    };
    let head = |verb: &str, target: &str, token: &str, kind: &str, length: usize| {
        format!(
            "{verb} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n",
            server.address
        )
    };
    let (json, good) = ("application/json", server.token.as_str());
    for (verb, target, token, kind, status) in [
        ("POST", "/api/v1/command_check", "wrong", json, 401),
        ("POST", "/api/v1/nothing", good, json, 404),
        ("PUT", "/api/v1/command_check", good, json, 405),
        ("POST", "/api/v1/command_check", good, "text/plain", 415),
    ] {
        // The body comes after its head, as from callers that write twice.
        let text = head(verb, target, token, kind, 2);
        writer.write_all(text.as_bytes()).expect("sent");
        std::thread::sleep(Duration::from_millis(50));
        writer.write_all(b"{}").expect("sent");
        assert_eq!(answer(), (status, false), "{verb} {target}");
    }
    // What is too much to be read for nothing ends its connection, and says so.
    let text = head("POST", "/api/v1/command_check", "wrong", json, 10_000_000);
    writer.write_all(text.as_bytes()).expect("sent");
    assert_eq!(answer(), (401, true));
}
