//! Tunnels by CONNECT and SOCKS5.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use cofferdam_egress::{Ended, Protocol, Reason};

use crate::fixture::{PUBLIC, Stage, echo, rest, rules, server, stage, stage_with};

fn open_stage() -> Stage {
    let stage = stage(rules(&["good.test", "*.good.test"], &[]));
    stage.world.name("good.test", &[PUBLIC]);
    stage.world.host(PUBLIC, 443, echo());
    stage
}

/// Says the greeting and a request; gives the reply.
fn socks(stage: &Stage, command: u8, form: u8, address: &[u8], port: u16) -> (TcpStream, [u8; 10]) {
    let mut client = stage.client();
    client.write_all(&[5, 1, 0]).expect("sent");
    let mut chosen = [0; 2];
    client.read_exact(&mut chosen).expect("a method");
    assert_eq!(chosen, [5, 0]);
    let mut request = vec![5, command, 0, form];
    if form == 3 {
        request.push(address.len() as u8);
    }
    request.extend_from_slice(address);
    request.extend_from_slice(&port.to_be_bytes());
    client.write_all(&request).expect("sent");
    let mut reply = [0; 10];
    client.read_exact(&mut reply).expect("a reply");
    (client, reply)
}

#[test]
fn bytes_go_both_ways_and_each_half_closes_alone() {
    let stage = open_stage();
    let (mut client, head) = stage.connect("good.test:443");
    assert_eq!(head, "HTTP/1.1 200 Connection established\r\n\r\n");
    client.write_all(b"hello").expect("sent");
    let mut back = [0; 5];
    client.read_exact(&mut back).expect("an echo");
    assert_eq!(&back, b"hello");
    client.write_all(b", last word").expect("sent");
    client.shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(rest(&mut client), ", last word");
    let closed = stage.closed();
    assert_eq!(
        (closed.ended, closed.sent, closed.received),
        (Ended::Finished, 16, 16)
    );
}

#[test]
fn a_host_that_speaks_on_after_the_clients_last_word_is_heard() {
    let stage = open_stage();
    let address = server(|mut stream| {
        let heard = rest(&mut stream);
        stream
            .write_all(format!("heard {heard}").as_bytes())
            .expect("sent");
    });
    stage.world.host(PUBLIC, 443, address);
    let (mut client, _) = stage.connect("good.test:443");
    client.write_all(b"all").expect("sent");
    client.shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(rest(&mut client), "heard all");
}

#[test]
fn bytes_behind_the_head_belong_to_the_tunnel() {
    let stage = open_stage();
    let mut client = stage.client();
    client
        .write_all(b"CONNECT good.test:443 HTTP/1.1\r\n\r\nearly")
        .expect("sent");
    client.shutdown(Shutdown::Write).expect("half closed");
    let answer = rest(&mut client);
    assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\nearly");
}

#[test]
fn a_megabyte_passes_whole_in_both_directions() {
    let stage = open_stage();
    let (client, _) = stage.connect("good.test:443");
    let sent: Vec<u8> = (0..8_u32 << 20)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let expected = sent.clone();
    let writer = client.try_clone().expect("a clone");
    let writing = thread::spawn(move || {
        let mut writer = writer;
        writer.write_all(&sent).expect("sent");
        writer.shutdown(Shutdown::Write).expect("half closed");
    });
    let mut got = Vec::new();
    (&client).read_to_end(&mut got).expect("received");
    writing.join().expect("written");
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
}

#[test]
fn socks_reaches_names_and_addresses_that_are_allowed() {
    let stage = open_stage();
    let (mut client, reply) = socks(&stage, 1, 3, b"GOOD.test", 443);
    assert_eq!(reply, [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    client.write_all(b"x").expect("sent");
    let mut back = [0];
    client.read_exact(&mut back).expect("an echo");
    assert_eq!(stage.decision().protocol, Protocol::Socks5);
    assert_eq!(socks(&stage, 1, 1, &[93, 184, 215, 14], 443).1[1], 0x02);
    assert_eq!(socks(&stage, 1, 4, &[0; 16], 443).1[1], 0x02);
    assert_eq!(socks(&stage, 1, 3, b"other.test", 443).1[1], 0x02);
    assert_eq!(socks(&stage, 1, 3, b"x.good.test", 443).1[1], 0x04);
    assert_eq!(socks(&stage, 1, 3, b"good.test", 444).1[1], 0x05);
}

#[test]
fn fc_48_a_name_with_a_nul_is_refused_and_never_looked_up() {
    let stage = open_stage();
    for name in [
        b"evil.test\0.good.test".as_slice(),
        b"evil.test\n.good.test",
        b"evil.test%00.good.test",
    ] {
        let (mut client, reply) = socks(&stage, 1, 3, name, 443);
        assert_eq!(reply[1], 0x02);
        assert_eq!(rest(&mut client), "");
        let decision = stage.decision();
        assert_eq!(decision.reason, Reason::InvalidHost);
        assert!(
            !decision
                .host
                .expect("a host")
                .bytes()
                .any(|byte| byte.is_ascii_control())
        );
    }
    assert_eq!(stage.world.lookups(), Vec::<String>::new());
}

#[test]
fn socks_without_what_we_have_is_refused_properly() {
    let stage = open_stage();
    assert_eq!(socks(&stage, 2, 1, &[1, 1, 1, 1], 80).1[1], 0x07);
    assert_eq!(socks(&stage, 3, 1, &[0, 0, 0, 0], 0).1[1], 0x07);
    assert_eq!(stage.say(&[5, 1, 2]).as_bytes().first(), Some(&5));
    assert_eq!(
        stage.say(b"\x04\x01\x00\x50\x01\x01\x01\x01\0"),
        "\0[\0\0\0\0\0\0"
    );
}

#[test]
fn a_silent_tunnel_ends_after_the_idle_limit() {
    let stage = stage_with(rules(&["good.test"], &[]), |options| {
        options.limits.idle_time = Duration::from_millis(100);
    });
    stage.world.name("good.test", &[PUBLIC]);
    stage.world.host(PUBLIC, 443, echo());
    let (mut client, _) = stage.connect("good.test:443");
    assert_eq!(rest(&mut client), "");
    assert_eq!(stage.closed().ended, Ended::Idle);
}
