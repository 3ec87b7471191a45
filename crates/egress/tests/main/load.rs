//! Many connections, too many connections, and the end of all.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_egress::{Ended, NetEvent};

use crate::fixture::{PATIENCE, PUBLIC, echo, rest, rules, stage, stage_with};

/// The threads of this process that belong to a proxy. Tests share the process only where a runner
/// does not give each its own, so that the names are looked at and not the number alone.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
        .filter(|name| name.starts_with("egress"))
        .count()
}

#[test]
fn two_hundred_connections_at_once_are_served() {
    let stage = stage(rules(&["good.test"], &[]));
    stage.world.name("good.test", &[PUBLIC]);
    stage.world.host(PUBLIC, 443, echo());
    let mut clients: Vec<TcpStream> = (0..200)
        .map(|at| {
            let (client, head) = stage.connect("good.test:443");
            assert!(head.starts_with("HTTP/1.1 200 "), "{at}: {head}");
            client
        })
        .collect();
    assert_eq!(stage.proxy.connections(), 200);
    for (at, client) in clients.iter_mut().enumerate() {
        client.write_all(&[at as u8]).expect("sent");
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let mut back = [0];
        client.read_exact(&mut back).expect("an echo");
        assert_eq!(back[0], at as u8);
    }
    drop(clients);
    for _ in 0..200 {
        assert_eq!(stage.closed().ended, Ended::Finished);
    }
}

#[test]
fn more_than_the_limit_are_told_so_and_places_come_free() {
    let stage = stage_with(rules(&["good.test"], &[]), |options| {
        options.limits.connections = 2;
    });
    stage.world.name("good.test", &[PUBLIC]);
    stage.world.host(PUBLIC, 443, echo());
    let first = stage.connect("good.test:443");
    let _second = stage.connect("good.test:443");
    let (_, head) = stage.connect("good.test:443");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(
        head.contains("x-cofferdam-reason: too_many_connections"),
        "{head}"
    );
    drop(first);
    let until = Instant::now() + PATIENCE;
    while stage.proxy.connections() == 2 && Instant::now() < until {
        thread::yield_now();
    }
    assert!(
        stage
            .connect("good.test:443")
            .1
            .starts_with("HTTP/1.1 200 ")
    );
}

#[test]
fn stopping_cuts_everything_and_leaves_no_thread() {
    let before = threads();
    let stage = stage_with(rules(&["good.test"], &[]), |options| {
        // Held until the end.
        options.ask = Some(Arc::new(std::mem::forget));
        options.limits.hold_time = PATIENCE;
    });
    stage.world.name("good.test", &[PUBLIC]);
    stage.world.host(PUBLIC, 443, echo());
    let mut tunnels: Vec<TcpStream> = (0..20).map(|_| stage.connect("good.test:443").0).collect();
    let mut silent = stage.client();
    let mut half = stage.client();
    half.write_all(b"GET http://good").expect("sent");
    let mut held = stage.client();
    held.write_all(b"CONNECT new.test:443 HTTP/1.1\r\n\r\n")
        .expect("sent");
    while stage.proxy.connections() < 23 {
        thread::yield_now();
    }
    let address = stage.proxy.address();
    let started = Instant::now();
    let stopped = stage.proxy.stop();
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(stopped.left, 0);
    if std::env::args().any(|argument| argument == "--exact") {
        assert_eq!(threads(), before);
    } else {
        println!("skipped: threads are counted only where each test has its own process");
    }
    for client in tunnels
        .iter_mut()
        .chain([&mut silent, &mut half, &mut held])
    {
        rest(client);
    }
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn an_observer_that_panics_costs_one_connection() {
    let stage = stage_with(rules(&["good.test"], &[]), |options| {
        let told = Arc::clone(&options.observer);
        options.observer = Arc::new(move |event| {
            if let NetEvent::Decided(decision) = &event
                && decision.host.as_deref() == Some("bad.test")
            {
                panic!("on purpose");
            }
            told(event);
        });
    });
    stage.world.name("good.test", &[PUBLIC]);
    stage.world.host(PUBLIC, 443, echo());
    assert_eq!(stage.connect("bad.test:443").1, "");
    assert!(
        stage
            .connect("good.test:443")
            .1
            .starts_with("HTTP/1.1 200 ")
    );
    let until = Instant::now() + PATIENCE;
    while stage.proxy.connections() > 1 && Instant::now() < until {
        thread::yield_now();
    }
    assert_eq!(stage.proxy.stop().left, 0);
}
