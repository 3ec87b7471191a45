//! A server as somebody starts it: how soon it answers, what it needs, and what a command through
//! it costs. One process serves for all of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::report::Absolute;
use super::{PROGRAM, Run, Subject, Yardstick, told};
use crate::target;

const NAME: &str = "command over HTTP, warm";
/// Connections that ask at once.
const CONNECTIONS: usize = 32;
/// Commands under load.
const COMMANDS: usize = 10_000;
/// What may be added to the resident memory by that many commands, in MiB.
const GROWTH: f64 = 16.0;

/// A server that ends with this value.
struct Served {
    child: Child,
    address: String,
    token: String,
    ready: Duration,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn start(data: &Path, workspace: &Path) -> anyhow::Result<Self> {
        let program = target().join("release/cofferdam");
        let start = Instant::now();
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--json"])
            .args(["--provider", "bwrap", "--net", "none", "--workspace"])
            .arg(workspace)
            .env("COFFERDAM_DATA_DIR", data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start cofferdam serve")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let said: serde_json::Value = serde_json::from_str(&line)
            .with_context(|| format!("cofferdam serve said {line:?}"))?;
        let address = said["address"].as_str().context("no address")?.to_owned();
        let file = said["token_file"].as_str().context("no token")?;
        let token = std::fs::read_to_string(file)?.trim().to_owned();
        let mut served = Self {
            child,
            address,
            token,
            ready: Duration::ZERO,
        };
        served.connect()?.health()?;
        served.ready = start.elapsed();
        Ok(served)
    }

    fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let host = format!("Host: {}\r\n", self.address);
        let body = format!(r#"{{"argv": ["{PROGRAM}"]}}"#);
        let call = format!(
            "POST /api/v1/run_command HTTP/1.1\r\n{host}Authorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        Ok(Connection {
            health: format!("GET /healthz HTTP/1.1\r\n{host}\r\n"),
            call,
            stream: BufReader::new(stream),
        })
    }

    /// Resident memory in MiB, with that of the threads and nothing of the commands.
    fn resident(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib / 1024.0)
    }
}

/// A connection that stays.
struct Connection {
    stream: BufReader<TcpStream>,
    health: String,
    call: String,
}

impl Connection {
    fn health(&mut self) -> anyhow::Result<()> {
        let health = self.health.clone();
        self.ask(&health).map(drop)
    }

    /// One command; its outcome must be good.
    fn command(&mut self) -> anyhow::Result<()> {
        let call = self.call.clone();
        let body = self.ask(&call)?;
        let outcome: serde_json::Value = serde_json::from_slice(&body)?;
        ensure!(outcome["status"] == "completed", "{outcome}");
        Ok(())
    }

    fn ask(&mut self, request: &str) -> anyhow::Result<Vec<u8>> {
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut length = 0;
        let mut first = String::new();
        self.stream.read_line(&mut first)?;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        ensure!(
            first.contains(" 200 "),
            "{}",
            String::from_utf8_lossy(&body)
        );
        Ok(body)
    }
}

/// What is measured of a server: the subject that takes its turn with the others, and what is
/// measured by itself once they are done.
pub(super) struct Server {
    served: Result<Rc<Served>, String>,
    idle: Result<f64, String>,
    quick: bool,
}

impl Server {
    pub(super) fn start(scratch: &Path, workspace: &Path, quick: bool) -> Self {
        let data: PathBuf = scratch.join("served");
        let served = told(Served::start(&data, workspace).map(Rc::new));
        let idle = match &served {
            Ok(served) => told(served.resident()),
            Err(reason) => Err(reason.clone()),
        };
        Self {
            served,
            idle,
            quick,
        }
    }

    pub(super) fn subject(&self) -> Subject {
        let run = self.served.clone().and_then(|served| {
            told((|| {
                let mut connection = served.connect()?;
                connection.command()?;
                let run: Run = Box::new(move || {
                    // It lives as long as it is measured.
                    let _ = &served;
                    let start = Instant::now();
                    connection.command()?;
                    Ok(start.elapsed())
                });
                Ok(run)
            })())
        });
        Subject {
            name: NAME,
            yardstick: Yardstick::Floor,
            bar: Some(3.0),
            run,
        }
    }

    /// Measures what is no ratio.
    pub(super) fn absolutes(&self) -> Vec<Absolute> {
        let of = |value: &dyn Fn(&Served) -> f64| {
            self.served
                .as_ref()
                .map(|one| value(one))
                .map_err(Clone::clone)
        };
        let mut figures = vec![
            Absolute::at_most(
                "server ready",
                "ms",
                50.0,
                of(&|one| milliseconds(one.ready)),
            ),
            Absolute::at_most("server resident, idle", "MiB", 25.0, self.idle.clone()),
        ];
        let count = if self.quick { COMMANDS / 5 } else { COMMANDS };
        let load = self
            .served
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|served| told(load(served, count)));
        let part = |value: &dyn Fn(&Load) -> f64| load.as_ref().map(value).map_err(Clone::clone);
        figures.extend([
            Absolute::at_least(
                "32 connections",
                "commands/s",
                1000.0,
                part(&|one| one.rate),
            ),
            Absolute::at_most(
                "32 connections, failed",
                "",
                0.0,
                part(&|one| one.failed as f64),
            ),
            Absolute::at_most("one connection, p99", "ms", 10.0, part(&|one| one.p99)),
            Absolute::at_most(
                "resident, added by these",
                "MiB",
                GROWTH,
                part(&|one| one.added),
            ),
        ]);
        figures
    }
}

struct Load {
    rate: f64,
    failed: usize,
    p99: f64,
    added: f64,
}

fn load(served: &Rc<Served>, count: usize) -> anyhow::Result<Load> {
    let mut connection = served.connect()?;
    let mut times = Vec::with_capacity(1000);
    for _ in 0..1000 {
        let start = Instant::now();
        connection.command()?;
        times.push(milliseconds(start.elapsed()));
    }
    times.sort_by(f64::total_cmp);
    let before = served.resident()?;
    let failed = Arc::new(AtomicUsize::new(0));
    let connections: Vec<Connection> = (0..CONNECTIONS)
        .map(|_| served.connect())
        .collect::<anyhow::Result<_>>()?;
    let left = Arc::new(Mutex::new(count));
    let start = Instant::now();
    let threads: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (failed, left) = (Arc::clone(&failed), Arc::clone(&left));
            std::thread::spawn(move || {
                loop {
                    {
                        let Ok(mut left) = left.lock() else { return };
                        if *left == 0 {
                            return;
                        }
                        *left -= 1;
                    }
                    if connection.command().is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        let _ = thread.join();
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    Ok(Load {
        rate,
        failed: failed.load(Ordering::Relaxed),
        p99: times[times.len() * 99 / 100],
        added: served.resident()? - before,
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
