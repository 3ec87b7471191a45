//! A proxy whose world is this process: names and addresses that are not ours are played by
//! listeners on loopback.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use cofferdam_core::hosts::{HostName, HostRules};
use cofferdam_egress::{
    Dialer, EgressPolicy, NetClosed, NetDecision, NetEvent, Proxy, ProxyHandle, ProxyOptions,
    Resolver, SystemDialer,
};

/// An address that belongs to the open internet as far as the rules know.
pub(crate) const PUBLIC: &str = "93.184.215.14";
/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Plays the internet: names, and where addresses really lead.
#[derive(Default)]
pub(crate) struct World {
    names: Mutex<HashMap<String, Vec<IpAddr>>>,
    hosts: Mutex<HashMap<SocketAddr, SocketAddr>>,
    pub(crate) lookups: Mutex<Vec<String>>,
    pub(crate) dialled: Mutex<Vec<SocketAddr>>,
}

impl World {
    pub(crate) fn name(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses
            .iter()
            .map(|text| text.parse().expect("an address"));
        locked(&self.names).insert(name.to_owned(), addresses.collect());
    }

    /// Lets a real listener play `address`.
    pub(crate) fn host(&self, address: &str, port: u16, real: SocketAddr) {
        let address = SocketAddr::new(address.parse().expect("an address"), port);
        locked(&self.hosts).insert(address, real);
    }

    pub(crate) fn lookups(&self) -> Vec<String> {
        locked(&self.lookups).clone()
    }

    pub(crate) fn dialled(&self) -> Vec<SocketAddr> {
        locked(&self.dialled).clone()
    }
}

struct Names(Arc<World>);

impl Resolver for Names {
    fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        locked(&self.0.lookups).push(name.to_string());
        let names = locked(&self.0.names);
        names
            .get(name.as_str())
            .cloned()
            .ok_or_else(|| io::Error::other("no such name"))
    }
}

struct Roads(Arc<World>);

impl Dialer for Roads {
    fn dial(
        &self,
        address: SocketAddr,
        limit: Duration,
        stop: BorrowedFd<'_>,
    ) -> io::Result<TcpStream> {
        locked(&self.0.dialled).push(address);
        let real = locked(&self.0.hosts).get(&address).copied();
        match real {
            Some(real) => SystemDialer.dial(real, limit, stop),
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

pub(crate) struct Stage {
    pub(crate) proxy: ProxyHandle,
    pub(crate) world: Arc<World>,
    events: Mutex<Receiver<NetEvent>>,
}

pub(crate) fn rules(allow: &[&str], deny: &[&str]) -> EgressPolicy {
    EgressPolicy::of_rules(HostRules::parse(allow, deny).expect("rules"))
}

pub(crate) fn stage(policy: EgressPolicy) -> Stage {
    stage_with(policy, |_| {})
}

pub(crate) fn stage_with(policy: EgressPolicy, change: impl FnOnce(&mut ProxyOptions)) -> Stage {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let world = Arc::new(World::default());
    let (sender, events): (Sender<NetEvent>, _) = channel();
    let mut options = ProxyOptions::new(listener, policy);
    options.resolver = Arc::new(Names(Arc::clone(&world)));
    options.dialer = Arc::new(Roads(Arc::clone(&world)));
    let sender = Mutex::new(sender);
    options.observer = Arc::new(move |event| {
        let _ = locked(&sender).send(event);
    });
    change(&mut options);
    Stage {
        proxy: Proxy::start(options).expect("a proxy"),
        world,
        events: Mutex::new(events),
    }
}

impl Stage {
    pub(crate) fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.proxy.address()).expect("the proxy");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        client.set_nodelay(true).expect("no delay");
        client
    }

    /// Sends bytes, reads until the proxy closes.
    pub(crate) fn say(&self, bytes: &[u8]) -> String {
        let mut client = self.client();
        client.write_all(bytes).expect("sent");
        rest(&mut client)
    }

    pub(crate) fn connect(&self, target: &str) -> (TcpStream, String) {
        let mut client = self.client();
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        client.write_all(request.as_bytes()).expect("sent");
        let head = head(&mut client);
        (client, head)
    }

    pub(crate) fn event(&self) -> NetEvent {
        locked(&self.events)
            .recv_timeout(PATIENCE)
            .expect("an event")
    }

    pub(crate) fn decision(&self) -> NetDecision {
        loop {
            if let NetEvent::Decided(decision) = self.event() {
                return decision;
            }
        }
    }

    pub(crate) fn closed(&self) -> NetClosed {
        loop {
            if let NetEvent::Closed(closed) = self.event() {
                return closed;
            }
        }
    }
}

/// Reads up to the end of a head.
pub(crate) fn head(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte).expect("a head") == 0 {
            break;
        }
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).expect("text")
}

/// Reads until the other side closes; a reset counts as the end.
pub(crate) fn rest(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match client.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server that hands every connection to `answer` on a thread of its own.
pub(crate) fn server(answer: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            thread::spawn(move || answer(stream));
        }
    });
    address
}

/// A server that says back what it hears.
pub(crate) fn echo() -> SocketAddr {
    server(|mut stream| {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(count) = stream.read(&mut piece) {
            if count == 0 || stream.write_all(&piece[..count]).is_err() {
                break;
            }
        }
    })
}

/// A web server that sends every request it hears, head and body, and answers `hello`.
pub(crate) fn web() -> (SocketAddr, Receiver<String>) {
    let (sender, heard) = channel();
    let sender = Mutex::new(sender);
    let address = server(move |mut stream| {
        let mut request = head(&mut stream);
        let length = request
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |text| text.parse().expect("a length"));
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("a body");
        request.push_str(&String::from_utf8_lossy(&body));
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
        );
        // Whatever else comes on this connection is heard too.
        request.push_str(&rest(&mut stream));
        let _ = locked(&sender).send(request);
    });
    (address, heard)
}

/// Locks what another test thread may have panicked with.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
