//! Ports that cross the walls: reached services and published ports, driven from both sides.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{EventFilter, Subject, event_type};
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel};
use cofferdam_core::ports::{PortPlan, PublishedPort};
use cofferdam_core::spec::{Network, ProviderKind};
use cofferdam_exec::{CommandIo, Control, Enclosure, Plane, Run};
use cofferdam_journal::Query;
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest as _, Sha256};

use crate::smoke::{capture, command, plane, spec};

const PATIENCE: Duration = Duration::from_secs(20);

struct Scene {
    plane: Plane,
    workspace: tempfile::TempDir,
    _data: tempfile::TempDir,
}

impl Scene {
    /// `None` where the walls or the program that plays the command are missing.
    #[expect(clippy::print_stdout, reason = "a skipped test says why")]
    fn new() -> Option<Self> {
        for program in ["/usr/bin/bwrap", "/usr/bin/python3", "/bin/bash"] {
            if !std::path::Path::new(program).exists() {
                println!("skipped: there is no {program}");
                return None;
            }
        }
        let data = tempfile::tempdir().expect("a directory");
        Some(Self {
            plane: plane(data.path()),
            workspace: tempfile::tempdir().expect("a directory"),
            _data: data,
        })
    }

    fn try_enclose(&self, reach: &[String], publish: &[String]) -> Result<Enclosure, Problem> {
        let mut spec = spec(ProviderKind::Bwrap, self.workspace.path());
        let parse = |text: &String| text.parse().expect("an address");
        spec.ports = PortPlan {
            reach: reach.iter().map(parse).collect(),
            publish: publish
                .iter()
                .map(|text| text.parse().expect("a rule"))
                .collect(),
        };
        let level = IsolationLevel {
            provider: Some(ProviderKind::Bwrap),
            network: Network::None,
        };
        self.plane.enclose(spec, level, &Subject::default())
    }

    fn enclose(&self, reach: &[String], publish: &[&str]) -> Enclosure {
        let publish: Vec<String> = publish.iter().map(ToString::to_string).collect();
        self.try_enclose(reach, &publish).expect("walls")
    }

    fn python(&self, enclosure: &Enclosure, script: &str) -> CommandOutcome {
        capture(
            enclosure,
            command(self.workspace.path(), &["python3", "-c", script]),
        )
    }

    /// Runs a server inside until the end of the closure.
    fn serving<T>(
        &self,
        enclosure: &Enclosure,
        script: &str,
        meanwhile: impl FnOnce() -> T,
    ) -> (T, CommandOutcome) {
        let control = Control::new();
        let mut server = command(self.workspace.path(), &["python3", "-c", script]);
        server.timeout_ms = Some(PATIENCE.as_millis() as u64 * 2);
        thread::scope(|scope| {
            let running = scope.spawn(|| {
                enclosure.run(Run {
                    command: server,
                    subject: Subject::default(),
                    io: CommandIo::Capture { input: None },
                    control: control.clone(),
                    timeout_clamped: false,
                })
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
            control.cancel();
            let outcome = running.join().expect("an outcome");
            match result {
                Ok(value) => (value, outcome),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn ports(&self) -> Receiver<PublishedPort> {
        let (sender, receiver) = channel();
        self.plane.on_published_port(move |port| {
            let _ = sender.send(port.clone());
        });
        receiver
    }

    fn events(&self, kind: &str) -> Vec<serde_json::Value> {
        let filter = EventFilter {
            event_type: Some(kind.to_owned()),
            ..EventFilter::default()
        };
        let query = Query {
            filter,
            ..Query::default()
        };
        let page = self.plane.journal().read(&query).expect("events");
        page.events.into_iter().map(|event| event.data).collect()
    }
}

/// A service outside that gives back what it gets, and its end, for each connection.
fn echo(address: &str) -> Option<(SocketAddr, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind(address).ok()?;
    let address = listener.local_addr().expect("bound");
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || {
                let mut reader = stream.try_clone().expect("a second handle");
                let mut writer = stream;
                let _ = std::io::copy(&mut reader, &mut writer);
                let _ = writer.shutdown(Shutdown::Write);
            });
        }
    });
    Some((address, taken))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    listener.local_addr().expect("bound").port()
}

/// Asks a server outside until it answers.
fn fetch(address: &str, path: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let asked = TcpStream::connect(address).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        });
        match asked {
            Ok(answer) if !answer.is_empty() => return answer,
            _ if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            other => panic!("no answer from {address}: {other:?}"),
        }
    }
}

#[test]
fn a_reached_service_stands_at_its_address_and_nothing_else_does() {
    let Some(scene) = Scene::new() else { return };
    let (granted, taken) = echo("127.0.0.1:0").expect("a service");
    let (other, untouched) = echo("127.0.0.1:0").expect("a service");
    let enclosure = scene.enclose(&[granted.to_string()], &[]);
    let outcome = capture(
        &enclosure,
        command(
            scene.workspace.path(),
            &[
                "bash",
                "-c",
                &format!(
                    "exec 3<>/dev/tcp/127.0.0.1/{} && echo hello >&3 && read -r line <&3 && \
                     echo \"got $line\"; (exec 4<>/dev/tcp/127.0.0.1/{}) 2>&1 | grep -q refused && echo refused; \
                     (exec 4<>/dev/tcp/127.0.0.2/{}) 2>&1 | grep -q refused && echo refused",
                    granted.port(),
                    other.port(),
                    granted.port()
                ),
            ],
        ),
    );
    assert_eq!(
        outcome.stdout, "got hello\nrefused\nrefused\n",
        "{outcome:?}"
    );
    assert_eq!(taken.load(Ordering::SeqCst), 1);
    assert_eq!(untouched.load(Ordering::SeqCst), 0);
    // A second command in the same place finds it again; the journal says it once.
    let again = scene.python(
        &enclosure,
        &format!(
            "import socket; s=socket.create_connection(('127.0.0.1',{})); s.sendall(b'x'); \
             print(s.recv(1))",
            granted.port()
        ),
    );
    assert_eq!(again.stdout, "b'x'\n", "{again:?}");
    let told = scene.events(event_type::NET_DECIDED);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["port"], granted.port());
    enclosure.close();
}

#[test]
fn localhost_is_both_families_whichever_the_service_speaks() {
    let Some(scene) = Scene::new() else { return };
    let (four, _) = echo("127.0.0.1:0").expect("a service");
    let mut reach = vec![format!("localhost:{}", four.port())];
    let mut asked = vec![("127.0.0.1", four.port()), ("::1", four.port())];
    if let Some((six, _)) = echo("[::1]:0") {
        reach.push(six.to_string());
        asked.push(("::1", six.port()));
    } else {
        // Without IPv6 there is nothing more to ask.
        asked.truncate(1);
    }
    // Two names of one service are one.
    reach.push(four.to_string());
    let enclosure = scene.enclose(&reach, &[]);
    for (host, port) in asked {
        let outcome = scene.python(
            &enclosure,
            &format!(
                "import socket; s=socket.create_connection(('{host}',{port})); s.sendall(b'x'); \
                 print(s.recv(1))"
            ),
        );
        assert_eq!(outcome.stdout, "b'x'\n", "{host}: {outcome:?}");
    }
}

#[test]
fn a_service_that_is_down_resets_and_never_hangs() {
    let Some(scene) = Scene::new() else { return };
    let port = free_port();
    let enclosure = scene.enclose(&[format!("127.0.0.1:{port}")], &[]);
    let outcome = scene.python(
        &enclosure,
        &format!(
            "import socket\ns=socket.create_connection(('127.0.0.1',{port}))\ntry: print(s.recv(1))\n\
             except ConnectionResetError: print('reset')"
        ),
    );
    assert_eq!(outcome.stdout, "reset\n", "{outcome:?}");
}

#[test]
fn a_half_closed_side_still_gets_its_answer_and_every_byte_arrives() {
    let Some(scene) = Scene::new() else { return };
    let (service, _) = echo("127.0.0.1:0").expect("a service");
    let enclosure = scene.enclose(&[service.to_string()], &[]);
    let bytes: Vec<u8> = (0..48 * 1024 * 1024_u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(scene.workspace.path().join("bytes"), &bytes).expect("a file");
    let digest: String = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let outcome = scene.python(
        &enclosure,
        &format!(
            "import socket,threading,hashlib\ns=socket.create_connection(('127.0.0.1',{}))\n\
             data=open('bytes','rb').read()\n\
             def send(): s.sendall(data); s.shutdown(socket.SHUT_WR)\n\
             threading.Thread(target=send).start()\nh=hashlib.sha256(); n=0\n\
             while True:\n b=s.recv(1<<16)\n if not b: break\n h.update(b); n+=len(b)\n\
             print(n,h.hexdigest())",
            service.port()
        ),
    );
    assert_eq!(
        outcome.stdout,
        format!("{} {digest}\n", bytes.len()),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_hundred_connections_at_once() {
    let Some(scene) = Scene::new() else { return };
    let (service, taken) = echo("127.0.0.1:0").expect("a service");
    let enclosure = scene.enclose(&[service.to_string()], &[]);
    let outcome = scene.python(
        &enclosure,
        &format!(
            "import socket\nall=[socket.create_connection(('127.0.0.1',{})) for _ in range(100)]\n\
             for i,s in enumerate(all): s.sendall(b'%03d'%i*1000)\n\
             def read(s):\n b=b''\n while len(b)<3000: b+=s.recv(3000)\n return b\n\
             print(sum(read(s)==b'%03d'%i*1000 for i,s in reversed(list(enumerate(all)))))",
            service.port()
        ),
    );
    assert_eq!(outcome.stdout, "100\n", "{outcome:?}");
    assert_eq!(taken.load(Ordering::SeqCst), 100);
}

#[test]
fn a_published_server_is_fetched_from_outside_until_its_enclosure_ends() {
    let Some(scene) = Scene::new() else { return };
    let ports = scene.ports();
    let (outside, inside) = (free_port(), free_port());
    std::fs::write(scene.workspace.path().join("page"), "a page of the inside").expect("a file");
    let enclosure = scene.enclose(&[], &[&format!("{outside}:{inside}")]);
    let address = format!("127.0.0.1:{outside}");
    let told = ports.recv_timeout(PATIENCE).expect("said at once");
    assert_eq!((told.port, &told.address), (inside, &address));
    let server = format!(
        "import http.server as h; h.test(h.SimpleHTTPRequestHandler,port={inside},bind='127.0.0.1')"
    );
    let (answer, outcome) = scene.serving(&enclosure, &server, || fetch(&address, "/page"));
    assert!(answer.ends_with("a page of the inside"), "{answer}");
    assert_eq!(outcome.published, [told]);
    // The port stays, nobody is behind it.
    let mut stream = TcpStream::connect(&address).expect("still open");
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    enclosure.close();
    let gone = TcpStream::connect(&address).expect_err("closed with the enclosure");
    assert_eq!(gone.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn whatever_listens_is_found_opened_and_closed_again() {
    let Some(scene) = Scene::new() else { return };
    let ports = scene.ports();
    let (service, _) = echo("127.0.0.1:0").expect("a service");
    let (free, taken) = (
        free_port(),
        TcpListener::bind("127.0.0.1:0").expect("a listener"),
    );
    let taken_port = taken.local_addr().expect("bound").port();
    let enclosure = scene.enclose(&[service.to_string()], &["auto"]);
    let server = format!(
        "import socket,threading\ndef serve(a):\n l=socket.create_server(a); \n while True:\n  \
         c,_=l.accept(); c.recv(99); c.sendall(b'from %d' % a[1]); c.close()\n\
         threading.Thread(target=serve,args=(('',{free}),)).start()\n\
         serve(('127.0.0.1',{taken_port}))"
    );
    let ((), outcome) = scene.serving(&enclosure, &server, || {
        for _ in 0..2 {
            let port = ports.recv_timeout(PATIENCE).expect("found");
            let expected = format!("127.0.0.1:{}", port.port);
            assert_eq!(port.address == expected, port.port == free, "{port:?}");
            let answer = fetch(&port.address, "/");
            assert_eq!(answer, format!("from {}", port.port));
        }
    });
    assert_eq!(
        outcome.published.len(),
        2,
        "the reached service is not among them"
    );
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", free)).is_ok() {
        assert!(Instant::now() < until, "nobody listens any more");
        thread::sleep(Duration::from_millis(20));
    }
    enclosure.close();
    let told = scene.events(event_type::NET_LISTENING);
    let of = |port: u16| -> Vec<&str> {
        told.iter()
            .filter(|one| one["port"] == port)
            .filter_map(|one| one["state"].as_str())
            .collect()
    };
    assert_eq!(of(free), ["listening", "gone"], "{told:?}");
    assert_eq!(of(service.port()), [] as [&str; 0]);
}

#[test]
fn a_port_that_is_taken_outside_is_refused_before_anything_runs() {
    let Some(scene) = Scene::new() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = taken.local_addr().expect("bound").port();
    let problem = scene
        .try_enclose(&[], &[port.to_string()])
        .expect_err("refused");
    assert_eq!(problem.code, ErrorCode::PortTaken);
    assert!(problem.hint.is_some_and(|hint| hint.contains("auto")));
}

/// Finds the first process inside by one that a command started.
fn keeper_above(mark: &str) -> Option<Pid> {
    let field = |pid: &str, name: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with(name))?;
        Some(line[name.len()..].trim().to_owned())
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pid = processes
        .filter_map(|entry| entry.file_name().into_string().ok())
        .find(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line == format!("sleep\0{mark}\0").as_bytes())
        })?;
    while !field(&pid, "NSpid:")?.ends_with("\t1") {
        pid = field(&pid, "PPid:")?;
    }
    Pid::from_raw(pid.parse().ok()?)
}

#[test]
fn a_keeper_that_hangs_holds_up_neither_the_end_nor_those_who_connect() {
    let Some(scene) = Scene::new() else { return };
    let outside = free_port();
    let mark = format!("{}.{outside}", 600 + std::process::id() % 100);
    let enclosure = scene.enclose(&[], &[&outside.to_string()]);
    let script = format!("import os; os.execvp('sleep', ['sleep', '{mark}'])");
    let (mut waiting, _) = scene.serving(&enclosure, &script, || {
        let until = Instant::now() + PATIENCE;
        let keeper = loop {
            if let Some(keeper) = keeper_above(&mark) {
                break keeper;
            }
            assert!(Instant::now() < until, "the command runs");
            thread::sleep(Duration::from_millis(5));
        };
        kill_process(keeper, Signal::STOP).expect("stopped");
        TcpStream::connect(("127.0.0.1", outside)).expect("open")
    });
    let began = Instant::now();
    enclosure.close();
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    waiting.set_read_timeout(Some(PATIENCE)).expect("set");
    assert!(!matches!(waiting.read(&mut [0]), Ok(1..)));
    assert!(TcpStream::connect(("127.0.0.1", outside)).is_err());
}
