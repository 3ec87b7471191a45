//! One connection from its first byte to its last.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::hosts::HostPort;

use crate::decision::{Ended, NetClosed, NetDecision, NetEvent, Protocol, Reason, Verdict};
use crate::gate::{self, Permit, Refusal};
use crate::head::{HeadError, RequestHead, RequestTarget};
use crate::hold::Miss;
use crate::inspect::{self, Opened, TargetForm};
use crate::proxy::Shared;
use crate::refusal::{host_text, http_answer, printable, sentence, socks_code};
use crate::relay::{Carried, Relay, RelayEnd};
use crate::response::BodyAllowed;
use crate::socks::{self, SocksError, SocksGreeting, SocksRequest};
use crate::wait::{WaitEnd, close_gently, read_more, write_whole};

/// Bytes that a whole exchange of SOCKS5 messages can have.
const SOCKS_BYTES: usize = 1024;
/// How long a client may take to read a refusal.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Whether there is room for one more connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    There,
    /// It is only told so.
    None,
}

/// Serves one connection.
pub(crate) struct Connection<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) number: u64,
    pub(crate) client: Arc<TcpStream>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) room: Room,
}

/// What a client asked for, once it can be read.
struct Wanted {
    protocol: Protocol,
    method: Option<String>,
    target: HostPort,
    carried: Carried,
    /// What goes to the host before anything of the client's.
    first: Vec<u8>,
    /// What the client sent behind its head.
    early: Vec<u8>,
    /// Everything that it sent, head included, where it is a single request.
    whole: Vec<u8>,
}

impl Connection<'_> {
    pub(crate) fn serve(&self) {
        let deadline = Instant::now() + self.shared.limits.head_time;
        let mut bytes = Vec::new();
        if let Err(end) = self.more(&mut bytes, 1, deadline) {
            // Whoever says nothing gets nothing.
            if matches!(end, Some(Reason::HeadTimeout)) {
                self.refused(
                    Protocol::Unknown,
                    None,
                    &Refusal::plain(Reason::HeadTimeout),
                );
            }
            return;
        }
        let wanted = match bytes.first() {
            Some(&socks::VERSION) => self.read_socks(&mut bytes, deadline),
            Some(4) => {
                let refusal = Refusal::plain(Reason::UnsupportedProtocol);
                self.refused(Protocol::Unknown, None, &refusal);
                self.answer(&[0, 0x5b, 0, 0, 0, 0, 0, 0]);
                None
            }
            Some(first) if first.is_ascii_alphabetic() => self.read_http(&mut bytes, deadline),
            _ => {
                let refusal = Refusal::plain(Reason::UnsupportedProtocol);
                self.refuse(Protocol::Unknown, None, None, &refusal);
                None
            }
        };
        if let Some(wanted) = wanted {
            self.decide(wanted);
        }
    }

    /// Reads more; `Err(None)` means that the client is gone.
    fn more(
        &self,
        bytes: &mut Vec<u8>,
        limit: usize,
        deadline: Instant,
    ) -> Result<(), Option<Reason>> {
        if bytes.len() >= limit {
            return Err(Some(Reason::HeadTooLarge));
        }
        match read_more(&self.client, bytes, limit, &self.shared.stop, deadline) {
            Ok(0) | Err(WaitEnd::Broken) => Err(None),
            Ok(_) => Ok(()),
            Err(WaitEnd::Deadline) => Err(Some(Reason::HeadTimeout)),
            Err(WaitEnd::Stopped) => Err(Some(Reason::Stopping)),
        }
    }

    fn read_http(&self, bytes: &mut Vec<u8>, deadline: Instant) -> Option<Wanted> {
        let limit = self.shared.limits.head_bytes;
        let head = loop {
            match RequestHead::parse(bytes) {
                Ok(Some(head)) => break head,
                Ok(None) => {}
                Err(error) => {
                    let (host, refusal) = refusal_of_head(&error);
                    self.refuse(Protocol::Http, host, None, &refusal);
                    return None;
                }
            }
            if let Err(end) = self.more(bytes, limit, deadline) {
                if let Some(reason) = end {
                    self.refuse(Protocol::Http, None, None, &Refusal::plain(reason));
                }
                return None;
            }
        };
        let whole = match head.request {
            RequestTarget::Forward { .. } => bytes.clone(),
            RequestTarget::Tunnel => Vec::new(),
        };
        let early = bytes.split_off(head.length);
        let allowed = match head.method.as_str() {
            "HEAD" => BodyAllowed::No,
            _ => BodyAllowed::Yes,
        };
        let (protocol, carried, first) = match head.request {
            RequestTarget::Tunnel => (Protocol::Connect, Carried::Tunnel, Vec::new()),
            RequestTarget::Forward { head, body } => {
                (Protocol::Http, Carried::Exchange(body, allowed), head)
            }
        };
        Some(Wanted {
            protocol,
            method: Some(head.method),
            target: head.target,
            carried,
            first,
            early,
            whole,
        })
    }

    fn read_socks(&self, bytes: &mut Vec<u8>, deadline: Instant) -> Option<Wanted> {
        let greeting = self.read_message(bytes, deadline, SocksGreeting::parse)?;
        bytes.drain(..greeting.length);
        if !greeting.offers_no_authentication {
            let refusal = Refusal::plain(Reason::UnsupportedProtocol);
            self.refused(Protocol::Socks5, None, &refusal);
            self.answer(&[socks::VERSION, 0xff]);
            return None;
        }
        self.write(&[socks::VERSION, 0]).ok()?;
        let request = self.read_message(bytes, deadline, SocksRequest::parse)?;
        let early = bytes.split_off(request.length);
        Some(Wanted {
            protocol: Protocol::Socks5,
            method: None,
            target: request.target,
            carried: Carried::Tunnel,
            first: Vec::new(),
            early,
            whole: Vec::new(),
        })
    }

    fn read_message<T>(
        &self,
        bytes: &mut Vec<u8>,
        deadline: Instant,
        parse: impl Fn(&[u8]) -> Result<Option<T>, SocksError>,
    ) -> Option<T> {
        loop {
            match parse(bytes) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(error) => {
                    let (host, refusal) = refusal_of_socks(&error);
                    self.emit_refusal(Protocol::Socks5, None, host, None, &refusal);
                    self.answer(&socks::reply(error.reply()));
                    return None;
                }
            }
            if let Err(end) = self.more(bytes, SOCKS_BYTES, deadline) {
                if let Some(reason) = end {
                    self.refused(Protocol::Socks5, None, &Refusal::plain(reason));
                }
                return None;
            }
        }
    }

    fn decide(&self, wanted: Wanted) {
        let target = &wanted.target;
        let decision = match self.room {
            Room::None => Err(Refusal::plain(Reason::TooManyConnections)),
            Room::There => gate::decide(
                self.shared,
                &Miss {
                    connection: self.number,
                    client: self.peer,
                    protocol: wanted.protocol,
                    method: wanted.method.as_deref(),
                    target,
                },
            ),
        };
        match decision {
            Err(refusal) => {
                let method = wanted.method.as_deref();
                let repeated =
                    self.emit_refusal(wanted.protocol, method, None, Some(target), &refusal);
                self.answer_refusal(wanted.protocol, Some(target), &refusal, repeated);
            }
            Ok(permit) => self.carry(wanted, permit),
        }
    }

    fn carry(&self, wanted: Wanted, permit: Permit) {
        let started = Instant::now();
        let Wanted {
            protocol, target, ..
        } = &wanted;
        let (protocol, target) = (*protocol, target.clone());
        let inspected = self.inspects(&wanted);
        self.shared.emit(NetEvent::Decided(NetDecision {
            connection: self.number,
            client: self.peer,
            protocol,
            method: wanted.method.clone(),
            path: None,
            host: Some(host_text(&target.host)),
            port: Some(target.port),
            inspected,
            verdict: Verdict::Allowed,
            reason: permit.reason,
            rule: permit.rule.clone(),
            addresses: permit.addresses.iter().map(SocketAddr::ip).collect(),
            detail: None,
            repeated: 0,
        }));
        let is_exchange = matches!(wanted.carried, Carried::Exchange(..)) && !inspected;
        let dialled = if inspected {
            None
        } else {
            Some(self.dial(&permit))
        };
        let (address, failed, end) = match dialled {
            // Whoever is refused in there is told in there.
            None => {
                let (address, end) = self.inspect(wanted, &permit);
                (address, None, end)
            }
            Some(Err(refusal)) => {
                let ended = match refusal.reason {
                    Reason::Stopping => Ended::Stopped,
                    reason => Ended::Failed(reason),
                };
                (None, Some(refusal), RelayEnd::nothing(ended))
            }
            Some(Ok((upstream, address))) => {
                let end = self.carry_to(upstream, address, wanted, &permit);
                let failed = match end.ended {
                    Ended::Failed(reason) => Some(Refusal::plain(reason)),
                    _ => None,
                };
                (Some(address), failed, end)
            }
        };
        self.shared.emit(NetEvent::Closed(NetClosed {
            connection: self.number,
            host: host_text(&target.host),
            port: target.port,
            address,
            ended: end.ended,
            sent: end.sent,
            received: end.received,
            elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        }));
        match failed {
            Some(refusal) => self.answer_refusal(protocol, Some(&target), &refusal, 0),
            None if is_exchange && end.ended == Ended::Finished => {
                close_gently(&self.client, &self.shared.stop);
            }
            None => {}
        }
    }

    /// Tells whether the single requests of a connection are seen. Without TLS a placeholder is
    /// looked for wherever it goes.
    fn inspects(&self, wanted: &Wanted) -> bool {
        let policy = self.shared.policy.current();
        inspect::is_seen(&policy, &wanted.target)
            || (matches!(wanted.carried, Carried::Exchange(..)) && !policy.brokers.is_empty())
    }

    fn inspect(&self, wanted: Wanted, permit: &Permit) -> (Option<SocketAddr>, RelayEnd) {
        if self.write(ready(wanted.protocol)).is_err() {
            return (None, RelayEnd::nothing(Ended::Broken));
        }
        let (form, early) = match wanted.carried {
            Carried::Tunnel => (TargetForm::Origin, wanted.early),
            Carried::Exchange(..) => (TargetForm::Absolute, wanted.whole),
        };
        inspect::serve(Opened {
            connection: self,
            protocol: wanted.protocol,
            target: &wanted.target,
            permit,
            form,
            early,
        })
    }

    fn carry_to(
        &self,
        upstream: TcpStream,
        address: SocketAddr,
        wanted: Wanted,
        permit: &Permit,
    ) -> RelayEnd {
        let upstream = Arc::new(upstream);
        let live = self.shared.register(
            self.number,
            (&self.client, &upstream),
            (&wanted.target, permit.reason, address.ip()),
            false,
        );
        if self.write(ready(wanted.protocol)).is_err() {
            return RelayEnd::nothing(Ended::Broken);
        }
        let relay = Relay::new(
            &self.client,
            &upstream,
            wanted.carried,
            &wanted.first,
            &wanted.early,
            &self.shared.limits,
        );
        let mut end = match relay {
            Ok(relay) => relay.run(&self.shared.limits, &self.shared.stop),
            Err(ended) => RelayEnd::nothing(ended),
        };
        if live.is_revoked() {
            end.ended = Ended::Revoked;
        }
        end
    }

    pub(crate) fn dial(&self, permit: &Permit) -> Result<(TcpStream, SocketAddr), Refusal> {
        let shared = self.shared;
        let mut last = Refusal::plain(Reason::DialFailed);
        for address in &permit.addresses {
            let stop = std::os::fd::AsFd::as_fd(&shared.stop);
            match shared.dialer.dial(*address, shared.limits.dial_time, stop) {
                Ok(stream) => {
                    if stream.set_nonblocking(true).is_ok() {
                        let _ = stream.set_nodelay(true);
                        return Ok((stream, *address));
                    }
                }
                Err(_) if shared.stop.is_raised() => {
                    return Err(Refusal::plain(Reason::Stopping));
                }
                Err(error) => {
                    let reason = match error.kind() {
                        io::ErrorKind::TimedOut => Reason::DialTimeout,
                        _ => Reason::DialFailed,
                    };
                    last = Refusal {
                        detail: Some(error.to_string()),
                        addresses: permit.addresses.iter().map(SocketAddr::ip).collect(),
                        ..Refusal::plain(reason)
                    };
                }
            }
        }
        Err(last)
    }

    /// Tells the observer and an HTTP client.
    fn refuse(
        &self,
        protocol: Protocol,
        host: Option<String>,
        target: Option<&HostPort>,
        refusal: &Refusal,
    ) {
        let repeated = self.emit_refusal(protocol, None, host, target, refusal);
        self.answer_refusal(Protocol::Http, target, refusal, repeated);
    }

    /// Tells the observer alone.
    fn refused(&self, protocol: Protocol, target: Option<&HostPort>, refusal: &Refusal) {
        self.emit_refusal(protocol, None, None, target, refusal);
    }

    pub(crate) fn emit_refusal(
        &self,
        protocol: Protocol,
        method: Option<&str>,
        host: Option<String>,
        target: Option<&HostPort>,
        refusal: &Refusal,
    ) -> u32 {
        let host = host.or_else(|| target.map(|target| host_text(&target.host)));
        let port = target.map(|target| target.port);
        let request = refusal.request.as_ref();
        let counted = host.as_deref().map(|host| match request {
            Some(request) => format!("{host} {} {}", request.method, request.path),
            None => host.to_owned(),
        });
        let repeated = self
            .shared
            .count_refusal(counted.as_deref(), port, refusal.reason);
        self.shared.emit(NetEvent::Decided(NetDecision {
            connection: self.number,
            client: self.peer,
            protocol,
            method: method
                .or(request.map(|request| request.method.as_str()))
                .map(str::to_owned),
            path: request.map(|request| request.path.clone()),
            host,
            port,
            inspected: request.is_some(),
            verdict: Verdict::Refused,
            reason: refusal.reason,
            rule: refusal.rule.clone(),
            addresses: refusal.addresses.clone(),
            detail: Some(sentence(refusal, target, repeated)),
            repeated,
        }));
        repeated
    }

    fn answer_refusal(
        &self,
        protocol: Protocol,
        target: Option<&HostPort>,
        refusal: &Refusal,
        repeated: u32,
    ) {
        match protocol {
            Protocol::Socks5 => self.answer(&socks::reply(socks_code(refusal))),
            _ => self.answer(&http_answer(refusal, target, repeated)),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), WaitEnd> {
        let deadline = Instant::now() + ANSWER_TIME;
        write_whole(&self.client, bytes, &self.shared.stop, deadline)
    }

    /// Writes the last thing that the client hears.
    fn answer(&self, bytes: &[u8]) {
        if self.write(bytes).is_ok() {
            close_gently(&self.client, &self.shared.stop);
        }
    }
}

/// What a client hears before its tunnel begins.
const fn ready(protocol: Protocol) -> &'static [u8] {
    const OPEN: [u8; 10] = socks::reply(0);
    match protocol {
        Protocol::Connect => b"HTTP/1.1 200 Connection established\r\n\r\n",
        Protocol::Socks5 => &OPEN,
        Protocol::Http | Protocol::Unknown => b"",
    }
}

impl RelayEnd {
    const fn nothing(ended: Ended) -> Self {
        Self {
            ended,
            sent: 0,
            received: 0,
        }
    }
}

fn refusal_of_head(error: &HeadError) -> (Option<String>, Refusal) {
    let host = match error {
        HeadError::Host { text, .. } => Some(printable(text)),
        _ => None,
    };
    (host, detailed(error.reason(), error))
}

fn refusal_of_socks(error: &SocksError) -> (Option<String>, Refusal) {
    match error {
        SocksError::Host { text, .. } => {
            (Some(printable(text)), detailed(Reason::InvalidHost, error))
        }
        SocksError::Malformed => (None, detailed(Reason::BadRequest, error)),
        SocksError::Command { .. } | SocksError::AddressForm { .. } => {
            (None, detailed(Reason::UnsupportedProtocol, error))
        }
    }
}

fn detailed(reason: Reason, error: &dyn std::error::Error) -> Refusal {
    Refusal {
        detail: Some(error.to_string()),
        ..Refusal::plain(reason)
    }
}
