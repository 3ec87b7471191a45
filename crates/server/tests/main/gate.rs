//! Who is let in, and what nobody may do.

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
