//! Measures what the proxy adds to a loopback request and what a tunnel carries; prints ratios and
//! differences of one run.
//!
//! `cargo run --release -p cofferdam-egress --example bench`

#![expect(clippy::print_stdout, reason = "printing is what the program is for")]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_core::hosts::HostRules;
use cofferdam_egress::{EgressPolicy, Proxy, ProxyOptions};

const ROUNDS: usize = 2_000;
const BULK: u64 = 4 << 30;
const PIECE: usize = 256 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let rules = HostRules::parse(["127.0.0.1"], [""; 0])?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let proxy = Proxy::start(ProxyOptions::new(listener, EgressPolicy::of_rules(rules)))?;
    let through = proxy.address();

    let web = server(answer_once)?;
    let request = format!("GET http://{web}/ HTTP/1.1\r\nHost: {web}\r\n\r\n");
    let plain = format!("GET / HTTP/1.1\r\nHost: {web}\r\n\r\n");
    let tunnel = format!("CONNECT {web} HTTP/1.1\r\nHost: {web}\r\n\r\n");
    // Interleaved, so that whatever else the machine does hits all of them alike.
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        times[0].push(timed(|| exchange(web, None, &plain))?);
        times[1].push(timed(|| exchange(through, None, &request))?);
        times[2].push(timed(|| exchange(through, Some(&tunnel), &plain))?);
    }
    let [direct, http, connect] = times.map(median);
    let added = |time: Duration| time.saturating_sub(direct).as_secs_f64() * 1e3;
    println!(
        "request, direct            {:8.3} ms",
        direct.as_secs_f64() * 1e3
    );
    println!(
        "request, through the proxy +{:7.3} ms (bar 0.300)",
        added(http)
    );
    println!("request, through CONNECT   +{:7.3} ms", added(connect));

    let echo = server(echo_all)?;
    let direct = median(round_trips(TcpStream::connect(echo)?)?);
    let tunnelled = median(round_trips(open(through, echo)?)?);
    println!(
        "round trip, direct         {:8.1} us",
        direct.as_secs_f64() * 1e6
    );
    println!(
        "round trip, CONNECT        +{:7.1} us",
        tunnelled.saturating_sub(direct).as_secs_f64() * 1e6
    );

    let source = server(pour)?;
    let sink = server(swallow)?;
    for round in 1..=3 {
        let direct = receive(TcpStream::connect(source)?)?;
        let down = receive(open(through, source)?)?;
        let up = send(open(through, sink)?)?;
        println!(
            "bulk {round}: direct {direct:.2} GB/s, CONNECT down {down:.2}, up {up:.2} (bar 1.00)"
        );
    }
    proxy.stop();
    Ok(())
}

fn server(serve: fn(TcpStream) -> io::Result<()>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    Ok(address)
}

fn answer_once(mut stream: TcpStream) -> io::Result<()> {
    read_head(&mut stream)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
}

fn echo_all(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
}

fn pour(mut stream: TcpStream) -> io::Result<()> {
    let piece = vec![7; PIECE];
    for _ in 0..BULK / PIECE as u64 {
        stream.write_all(&piece)?;
    }
    Ok(())
}

fn swallow(mut stream: TcpStream) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    while stream.read(&mut piece)? > 0 {}
    stream.write_all(b"!")
}

fn read_head(stream: &mut TcpStream) -> io::Result<()> {
    // Looked at first, so that nothing behind the head is taken.
    let mut piece = [0; 1024];
    loop {
        let seen = stream.peek(&mut piece)?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = piece[..seen]
            .windows(4)
            .position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            return stream.read_exact(&mut piece[..end + 4]);
        }
    }
}

fn exchange(address: SocketAddr, tunnel: Option<&str>, request: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    if let Some(tunnel) = tunnel {
        stream.write_all(tunnel.as_bytes())?;
        read_head(&mut stream)?;
    }
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"ok") {
        Ok(())
    } else {
        Err(io::Error::other("another answer"))
    }
}

fn open(through: SocketAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(through)?;
    stream.set_nodelay(true)?;
    write!(stream, "CONNECT {target} HTTP/1.1\r\n\r\n")?;
    read_head(&mut stream)?;
    Ok(stream)
}

fn round_trips(mut stream: TcpStream) -> io::Result<Vec<Duration>> {
    stream.set_nodelay(true)?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(timed(|| {
            stream.write_all(b"x")?;
            stream.read_exact(&mut [0])
        })?);
    }
    Ok(times)
}

fn receive(mut stream: TcpStream) -> io::Result<f64> {
    let started = Instant::now();
    let mut piece = vec![0; PIECE];
    let mut total = 0;
    loop {
        match stream.read(&mut piece)? {
            0 => break,
            count => total += count,
        }
    }
    Ok(total as f64 / started.elapsed().as_secs_f64() / 1e9)
}

fn send(mut stream: TcpStream) -> io::Result<f64> {
    let started = Instant::now();
    let piece = vec![7; PIECE];
    for _ in 0..BULK / PIECE as u64 {
        stream.write_all(&piece)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut [0])?;
    Ok(BULK as f64 / started.elapsed().as_secs_f64() / 1e9)
}

fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
