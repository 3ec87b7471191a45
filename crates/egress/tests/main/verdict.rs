//! Every verdict, by HTTP and by SOCKS5.

use std::io::Write;
use std::net::Shutdown;

use cofferdam_core::hosts::HostPort;
use cofferdam_egress::{EgressPolicy, Reason, Verdict};

use crate::fixture::{PUBLIC, Stage, echo, rest, rules, stage};

fn refusal(stage: &Stage, target: &str) -> String {
    let (mut client, mut answer) = stage.connect(target);
    answer.push_str(&rest(&mut client));
    answer
}

#[test]
fn fc_47_an_empty_list_allows_nothing_and_looks_nothing_up() {
    let stage = stage(EgressPolicy::default());
    stage.world.name("example.com", &[PUBLIC]);
    let answer = refusal(&stage, "example.com:443");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(
        answer.contains("x-cofferdam-reason: not_listed\r\n"),
        "{answer}"
    );
    assert_eq!(stage.world.lookups(), Vec::<String>::new());
    assert_eq!(stage.world.dialled(), Vec::new());
}

#[test]
fn a_refusal_names_the_host_the_reason_and_the_line_that_would_allow_it() {
    let stage = stage(EgressPolicy::default());
    let answer = refusal(&stage, "Example.com.:443");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.contains("content-type: application/problem+json"));
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["reason"], "not_listed");
    assert_eq!(body["host"], "example.com");
    assert_eq!(body["port"], 443);
    assert_eq!(body["allow"]["policy"], "network_allow = [\"example.com\"]");
    assert_eq!(body["allow"]["flag"], "--allow example.com");
    let detail = body["detail"].as_str().expect("a sentence");
    assert!(detail.contains("example.com:443") && detail.contains("--allow example.com"));
    assert!(!detail.contains("will not change"));
    let decision = stage.decision();
    assert_eq!(decision.verdict, Verdict::Refused);
    assert_eq!(decision.reason, Reason::NotListed);
    assert_eq!(decision.host.as_deref(), Some("example.com"));
    assert_eq!(decision.method.as_deref(), Some("CONNECT"));
    assert!(decision.client.is_some());
    refusal(&stage, "example.com:443");
    assert!(refusal(&stage, "example.com:443").contains("This will not change"));
    assert!(refusal(&stage, "example.com:8443").contains("--allow example.com:8443"));
}

#[test]
fn a_denial_wins_and_names_its_rule() {
    let stage = stage(rules(&["**.example.com"], &["bad.example.com"]));
    let answer = refusal(&stage, "bad.example.com:443");
    assert!(
        answer.contains("x-cofferdam-reason: denied_rule"),
        "{answer}"
    );
    assert!(!answer.contains("--allow"), "{answer}");
    assert_eq!(stage.decision().rule.as_deref(), Some("bad.example.com"));
}

#[test]
fn an_allowed_host_is_reached_and_told() {
    let stage = stage(rules(&["*.example.com:443"], &[]));
    stage.world.name("api.example.com", &[PUBLIC]);
    stage.world.host(PUBLIC, 443, echo());
    let (client, head) = stage.connect("api.example.com:443");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let decision = stage.decision();
    assert_eq!(decision.verdict, Verdict::Allowed);
    assert_eq!(decision.reason, Reason::Listed);
    assert_eq!(decision.rule.as_deref(), Some("*.example.com:443"));
    assert_eq!(
        decision.addresses,
        [PUBLIC.parse::<std::net::IpAddr>().unwrap()]
    );
    drop(client);
    assert_eq!(
        stage.closed().address,
        Some(format!("{PUBLIC}:443").parse().unwrap())
    );
    assert!(refusal(&stage, "api.example.com:80").contains("not_listed"));
}

#[test]
fn fc_51_a_name_that_leads_inwards_is_refused() {
    let stage = stage(EgressPolicy {
        own_addresses: vec!["93.184.1.1".parse().unwrap()],
        ..rules(&["**.example.com"], &["93.184.2.2"])
    });
    for (address, word) in [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("169.254.169.254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("100.100.100.200", "metadata"),
        ("10.0.0.1", "private"),
        ("fd00::1", "private"),
        ("169.254.3.4", "link_local"),
        ("100.64.0.1", "shared"),
        ("0.0.0.0", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("93.184.1.1", "own"),
        ("::ffff:93.184.1.1", "own"),
    ] {
        stage.world.name("in.example.com", &[address]);
        let answer = refusal(&stage, "in.example.com:80");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{address}: {answer}");
        assert!(
            answer.contains("x-cofferdam-reason: address_refused"),
            "{address}: {answer}"
        );
        assert!(
            answer.contains(&format!("\"address_class\":\"{word}\"")),
            "{address}: {answer}"
        );
        // Nothing else can be granted by it.
        assert_eq!(
            answer.contains("\"flag\":\"--reach"),
            word == "loopback",
            "{address}: {answer}"
        );
        let decision = stage.decision();
        assert_eq!(decision.reason, Reason::AddressRefused);
        assert_eq!(decision.addresses.len(), 1);
    }
    stage.world.name("in.example.com", &["93.184.2.2"]);
    assert!(refusal(&stage, "in.example.com:80").contains("denied_rule"));
    assert_eq!(stage.world.dialled(), Vec::new());
}

#[test]
fn a_mirror_of_the_site_is_reached_and_nothing_closer() {
    let site = |allow: &[&str]| EgressPolicy {
        site: vec!["mirror.corp".parse().expect("a rule")],
        own_addresses: vec!["10.0.0.9".parse().unwrap()],
        ..rules(allow, &[])
    };
    let stage = stage(site(&["mirror.corp", "other.corp"]));
    for (name, address, is_reached) in [
        ("mirror.corp", "10.0.0.1", true),
        ("mirror.corp", "203.0.113.80", true),
        ("mirror.corp", "fd00::1", true),
        ("other.corp", "10.0.0.1", false),
        ("mirror.corp", "10.0.0.9", false),
        ("mirror.corp", "127.0.0.1", false),
        ("mirror.corp", "169.254.1.1", false),
        ("mirror.corp", "169.254.169.254", false),
        ("mirror.corp", "fd00:ec2::254", false),
        ("mirror.corp", "64:ff9b::7f00:1", false),
    ] {
        stage.world.name(name, &[address]);
        stage.world.host(address, 443, echo());
        let head = stage.connect(&format!("{name}:443")).1;
        assert_eq!(
            head.starts_with("HTTP/1.1 200 "),
            is_reached,
            "{name} {address}: {head}"
        );
    }
    // It says where a name may lead, not that it may be asked for.
    stage.proxy.replace(site(&[]));
    assert!(refusal(&stage, "mirror.corp:443").contains("not_listed"));
}

#[test]
fn of_several_addresses_only_those_that_pass_are_tried_in_order() {
    let stage = stage(rules(&["mixed.example"], &[]));
    stage.world.name(
        "mixed.example",
        &["10.0.0.1", "93.184.9.9", "127.0.0.1", PUBLIC],
    );
    stage.world.host(PUBLIC, 443, echo());
    let (_client, head) = stage.connect("mixed.example:443");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let dialled: Vec<String> = stage
        .world
        .dialled()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        dialled,
        ["93.184.9.9:443".to_owned(), format!("{PUBLIC}:443")]
    );
}

#[test]
fn a_name_that_changes_its_address_reaches_only_what_was_checked() {
    let stage = stage(rules(&["rebind.example"], &[]));
    stage.world.name("rebind.example", &[PUBLIC]);
    stage.world.host(PUBLIC, 443, echo());
    let (_client, head) = stage.connect("rebind.example:443");
    assert!(head.starts_with("HTTP/1.1 200 "));
    // One lookup for one connection: there is no second answer that could differ.
    assert_eq!(stage.world.lookups(), ["rebind.example"]);
    stage.world.name("rebind.example", &["127.0.0.1"]);
    assert!(refusal(&stage, "rebind.example:443").contains("address_refused"));
    assert_eq!(stage.world.lookups(), ["rebind.example"; 2]);
    assert_eq!(
        stage.world.dialled(),
        [format!("{PUBLIC}:443").parse().unwrap()]
    );
}

#[test]
fn addresses_are_reached_where_they_are_named() {
    let real = echo();
    let stage = stage(rules(&["127.0.0.1:7", "0.0.0.0", PUBLIC], &[]));
    stage.world.host("127.0.0.1", 7, real);
    stage.world.host(PUBLIC, 7, real);
    for target in ["127.0.0.1:7", "[::ffff:127.0.0.1]:7", "93.184.215.14:7"] {
        let (_client, head) = stage.connect(target);
        assert!(head.starts_with("HTTP/1.1 200 "), "{target}: {head}");
    }
    for target in [
        "127.0.0.1:8",
        "127.0.0.2:7",
        "[::1]:7",
        "[::127.0.0.1]:7",
        "0.0.0.0:7",
    ] {
        let answer = refusal(&stage, target);
        assert!(answer.contains("address_refused"), "{target}: {answer}");
    }
    // The rule for the address does not open it to names.
    stage.world.name("localhost", &["127.0.0.1"]);
    assert!(refusal(&stage, "localhost:7").contains("address_refused"));
    assert_eq!(stage.world.lookups(), Vec::<String>::new());
}

#[test]
fn a_reach_grant_opens_one_service_and_a_denial_closes_it() {
    let reach = |deny: &[&str]| EgressPolicy {
        reach: vec![HostPort::parse(b"db.internal:5432", None).expect("a service")],
        ..rules(&[], deny)
    };
    let stage = stage(reach(&[]));
    stage.world.name("db.internal", &["10.1.2.3"]);
    stage.world.host("10.1.2.3", 5432, echo());
    let (_client, head) = stage.connect("db.internal:5432");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(stage.decision().reason, Reason::Reach);
    assert!(refusal(&stage, "db.internal:5433").contains("not_listed"));
    stage.proxy.replace(reach(&["10.1.2.3"]));
    assert!(refusal(&stage, "db.internal:5432").contains("denied_rule"));
}

#[test]
fn fc_50_names_are_resolved_by_the_proxy_for_every_protocol() {
    // Inside there is no resolver: a client that leaves the name to the proxy reaches the host, one
    // that insists on resolving fails before it asks, which no proxy can help.
    let stage = stage(rules(&["a.example"], &[]));
    stage.world.name("a.example", &[PUBLIC]);
    let (address, _heard) = crate::fixture::web();
    stage.world.host(PUBLIC, 80, address);
    stage.world.host(PUBLIC, 443, echo());
    assert!(
        stage
            .connect("a.example:443")
            .1
            .starts_with("HTTP/1.1 200 ")
    );
    let answer = stage.say(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(answer.ends_with("hello"), "{answer}");
    let mut client = stage.client();
    client
        .write_all(b"\x05\x01\x00\x05\x01\x00\x03\x09a.example\x00\x50GET / HTTP/1.0\r\n\r\n")
        .expect("sent");
    client.shutdown(Shutdown::Write).expect("half closed");
    let answer = rest(&mut client);
    assert!(answer.ends_with("hello"), "{answer}");
}

#[test]
fn failures_behind_the_gate_say_what_failed() {
    let stage = stage(rules(&["*.example"], &[]));
    stage.world.name("closed.example", &[PUBLIC]);
    let answer = refusal(&stage, "nowhere.example:443");
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("resolve_failed"),
        "{answer}"
    );
    let answer = refusal(&stage, "closed.example:443");
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("dial_failed"),
        "{answer}"
    );
    let closed = stage.closed();
    assert_eq!(
        closed.ended,
        cofferdam_egress::Ended::Failed(Reason::DialFailed)
    );
    assert_eq!(closed.address, None);
}
