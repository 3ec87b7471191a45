//! What the proxy adds to a request on loopback, and what a tunnel through it carries.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use cofferdam_core::hosts::HostRules;
use cofferdam_egress::{EgressPolicy, Proxy, ProxyHandle, ProxyOptions};

use super::report::Absolute;
use super::{Run, Subject, Yardstick, told};

const DIRECT: &str = "request on loopback";
/// Bytes that are carried to find out how many a second.
const BULK: u64 = 2 << 30;
const PIECE: usize = 256 * 1024;

/// A proxy that lets loopback through.
pub(super) struct Through {
    proxy: Result<Rc<Running>, String>,
}

struct Running {
    handle: Option<ProxyHandle>,
    address: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.stop();
        }
    }
}

impl Through {
    pub(super) fn start() -> Self {
        let proxy = (|| -> anyhow::Result<Rc<Running>> {
            let rules = HostRules::parse(["127.0.0.1"], [""; 0])?;
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let policy = EgressPolicy::of_rules(rules);
            let handle = Proxy::start(ProxyOptions::new(listener, policy))?;
            let address = handle.address();
            let handle = Some(handle);
            Ok(Rc::new(Running { handle, address }))
        })();
        Self { proxy: told(proxy) }
    }

    /// One request to a server, and the same by way of the proxy.
    pub(super) fn subjects(&self) -> [Subject; 2] {
        let web = told(server(answer_once));
        let direct = web.clone().map(|web| -> Run {
            let request = format!("GET / HTTP/1.1\r\nHost: {web}\r\n\r\n");
            Box::new(move || exchange(web, &request))
        });
        let through = web.and_then(|web| {
            let proxy = Rc::clone(self.proxy.as_ref().map_err(Clone::clone)?);
            let request = format!("GET http://{web}/ HTTP/1.1\r\nHost: {web}\r\n\r\n");
            let run: Run = Box::new(move || exchange(proxy.address, &request));
            Ok(run)
        });
        [
            Subject {
                name: DIRECT,
                yardstick: Yardstick::Itself,
                bar: None,
                run: direct,
            },
            Subject {
                name: "request through the proxy",
                yardstick: Yardstick::Over(DIRECT),
                bar: Some(0.3),
                run: through,
            },
        ]
    }

    /// What a tunnel carries: the better of two tries, since other work only ever slows it.
    pub(super) fn absolutes(&self) -> Vec<Absolute> {
        let carried = self.proxy.as_ref().map_err(Clone::clone).and_then(|proxy| {
            told((|| {
                let source = server(pour)?;
                let first = receive(proxy.address, source)?;
                Ok(first.max(receive(proxy.address, source)?))
            })())
        });
        let name = "carried by CONNECT";
        vec![Absolute::at_least(name, "GB/s", 1.0, carried)]
    }
}

fn server(serve: fn(TcpStream) -> anyhow::Result<()>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    Ok(address)
}

fn answer_once(mut stream: TcpStream) -> anyhow::Result<()> {
    read_head(&mut stream)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")?;
    Ok(())
}

fn pour(mut stream: TcpStream) -> anyhow::Result<()> {
    let piece = vec![7; PIECE];
    for _ in 0..BULK / PIECE as u64 {
        stream.write_all(&piece)?;
    }
    Ok(())
}

fn read_head(stream: &mut TcpStream) -> anyhow::Result<()> {
    // Looked at first, so that nothing behind the head is taken.
    let mut piece = [0; 1024];
    loop {
        let seen = stream.peek(&mut piece)?;
        ensure!(seen > 0, "the connection ended");
        let end = piece[..seen]
            .windows(4)
            .position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            stream.read_exact(&mut piece[..end + 4])?;
            return Ok(());
        }
    }
}

fn exchange(address: SocketAddr, request: &str) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let time = begin.elapsed();
    if !answer.starts_with(b"HTTP/1.1 200 ") || !answer.ends_with(b"ok") {
        bail!("another answer");
    }
    Ok(time)
}

/// Receives everything through a tunnel; gives thousand millions of bytes a second.
fn receive(through: SocketAddr, source: SocketAddr) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect(through)?;
    write!(stream, "CONNECT {source} HTTP/1.1\r\n\r\n")?;
    read_head(&mut stream)?;
    let begin = Instant::now();
    let mut piece = vec![0; PIECE];
    let mut total = 0_u64;
    loop {
        match stream.read(&mut piece)? {
            0 => break,
            count => total += count as u64,
        }
    }
    ensure!(total == BULK, "{total} of {BULK} bytes came");
    Ok(total as f64 / begin.elapsed().as_secs_f64() / 1e9)
}
