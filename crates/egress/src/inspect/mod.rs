//! Connections whose single requests are seen: TLS ends here, each request is judged by itself, and
//! goes on to the host over TLS of our own.
//!
//! HTTP/1.1 is spoken on both sides. A request is parsed strictly and written anew, so that what was
//! judged is what the host reads; bodies flow through in both directions and are never kept.

mod exchange;
mod request;
mod side;

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::hosts::{Asked, Host, HostPort, RequestRules, RequestVerdict, split_query};
use cofferdam_core::mask::Masker;
use rustix::event::PollFlags;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection};

pub use request::{InspectedHead, TargetForm};

use crate::authority::Termination;
use crate::broker::{Lent, Transport};
use crate::connection::Connection;
use crate::decision::{Ended, NetEvent, NetRequest, Protocol, Reason};
use crate::gate::{Permit, Refusal, RefusedRequest, is_still_allowed};
use crate::policy::EgressPolicy;
use crate::proxy::Registered;
use crate::refusal::{host_text, http_answer};
use crate::relay::RelayEnd;
use crate::response::{AnswerTo, BodyAllowed};
use crate::wait::{WaitEnd, close_gently, wait_for};
use exchange::{Broken, Exchange, Exchanged};
use side::{Disagreed, Side};

/// The first byte of TLS: a handshake.
const HANDSHAKE: u8 = 0x16;
/// How long a connection is kept for its next request.
const KEPT_TIME: Duration = Duration::from_secs(90);
/// How long a client may take to read a refusal.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Bytes of a path that are told.
const TOLD_PATH: usize = 512;

/// What is known about a connection before its first request is seen.
pub(crate) struct Opened<'a> {
    pub(crate) connection: &'a Connection<'a>,
    pub(crate) protocol: Protocol,
    pub(crate) target: &'a HostPort,
    pub(crate) permit: &'a Permit,
    /// How requests write their target; absolute is one request to a proxy, without TLS.
    pub(crate) form: TargetForm,
    /// What the client sent already.
    pub(crate) early: Vec<u8>,
}

/// The host's end, as long as it is kept.
struct Upstream<'a> {
    side: Side,
    live: Registered<'a>,
}

struct Inspection<'a> {
    opened: Opened<'a>,
    upstream: Option<Upstream<'a>>,
    address: Option<SocketAddr>,
    sent: u64,
    received: u64,
}

/// A request that passed, as it goes on.
struct Passed {
    head: InspectedHead,
    method: String,
    path: String,
    rule: Option<String>,
    secrets: Vec<String>,
    screen: Option<Masker>,
}

/// Serves a connection to its end; gives the address that took it and how it ended.
pub(crate) fn serve(opened: Opened<'_>) -> (Option<SocketAddr>, RelayEnd) {
    let mut inspection = Inspection {
        opened,
        upstream: None,
        address: None,
        sent: 0,
        received: 0,
    };
    let ended = inspection.serve();
    let ended = match &inspection.upstream {
        Some(upstream) if upstream.live.is_revoked() => Ended::Revoked,
        _ => ended,
    };
    let end = RelayEnd {
        ended,
        sent: inspection.sent,
        received: inspection.received,
    };
    (inspection.address, end)
}

impl Inspection<'_> {
    fn serve(&mut self) -> Ended {
        let shared = self.opened.connection.shared;
        let socket = Arc::clone(&self.opened.connection.client);
        let early = std::mem::take(&mut self.opened.early);
        let deadline = Instant::now() + shared.limits.head_time;
        let mut side = Side::new(socket, early, None);
        let mut ahead = Vec::new();
        if self.opened.form == TargetForm::Origin {
            // Looked at in the clear first: TLS, a request, or something else.
            while ahead.is_empty() {
                if let Err(ended) = more(&mut side, &mut ahead, self.opened.connection, deadline) {
                    return ended;
                }
            }
            match ahead.first() {
                Some(&HANDSHAKE) => {
                    side = match self.terminate(std::mem::take(&mut ahead), deadline) {
                        Ok(side) => side,
                        Err(ended) => return ended,
                    };
                }
                Some(first) if first.is_ascii_alphabetic() => {}
                _ => {
                    let refusal = Refusal::plain(Reason::NotInspectable);
                    self.tell(&refusal);
                    return Ended::Failed(refusal.reason);
                }
            }
        }
        self.requests(&mut side, ahead)
    }

    /// Ends the client's TLS.
    fn terminate(&mut self, early: Vec<u8>, deadline: Instant) -> Result<Side, Ended> {
        let connection = self.opened.connection;
        let shared = connection.shared;
        let unmade = |why: String| Refusal {
            detail: Some(why),
            ..Refusal::plain(Reason::NotInspectable)
        };
        let tls = match &shared.termination {
            None => Err("the proxy has no certificate authority".to_owned()),
            Some(termination) => termination
                .authority
                .server(&self.opened.target.host)
                .map_err(|error| error.to_string())
                .and_then(|config| ServerConnection::new(config).map_err(|one| one.to_string())),
        };
        let tls = match tls {
            Ok(tls) => tls,
            Err(why) => {
                let refusal = unmade(why);
                self.tell(&refusal);
                return Err(Ended::Failed(refusal.reason));
            }
        };
        let socket = Arc::clone(&connection.client);
        let mut side = Side::new(socket, early, Some(Box::new(tls.into())));
        match side.agree(&shared.stop, deadline) {
            Ok(()) => {}
            Err(Disagreed::Stopped) => return Err(Ended::Stopped),
            Err(Disagreed::Gone) => return Err(Ended::Broken),
            Err(disagreed) => {
                let refusal = Refusal {
                    detail: Some(match disagreed {
                        Disagreed::Tls(why) => why,
                        _ => "it took too long".to_owned(),
                    }),
                    ..Refusal::plain(Reason::ClientTls)
                };
                self.tell(&refusal);
                return Err(Ended::Failed(refusal.reason));
            }
        }
        Ok(side)
    }

    /// Serves one request after another.
    fn requests(&mut self, client: &mut Side, mut ahead: Vec<u8>) -> Ended {
        let connection = self.opened.connection;
        let mut is_first = true;
        loop {
            let head = match self.head(client, &mut ahead, is_first) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    client.say_end();
                    return Ended::Finished;
                }
                Err(ended) => return ended,
            };
            is_first = false;
            ahead.drain(..head.length);
            let passed = match self.judge(client, head) {
                Ok(passed) => passed,
                Err(refusal) => return self.refuse(client, &refusal),
            };
            let exchanged = match self.exchange(client, &mut ahead, &passed) {
                Ok(exchanged) => exchanged,
                Err(refusal) if refusal.reason == Reason::Stopping => return Ended::Stopped,
                Err(refusal) => {
                    self.requested(&passed, &Exchanged::default());
                    self.answer(client, &refusal, 0);
                    return Ended::Failed(refusal.reason);
                }
            };
            self.sent += exchanged.sent;
            self.received += exchanged.received;
            self.requested(&passed, &exchanged);
            if !exchanged.upstream_keeps
                && let Some(mut upstream) = self.upstream.take_if(|one| !one.live.is_revoked())
            {
                upstream.side.say_end();
            }
            match exchanged.broken {
                None if exchanged.client_keeps && self.opened.form == TargetForm::Origin => {}
                None => {
                    client.say_end();
                    close_gently(&connection.client, &connection.shared.stop);
                    return Ended::Finished;
                }
                Some(Broken::Unanswered) => {
                    let refusal = Refusal::plain(Reason::UpstreamInvalid);
                    self.answer(client, &refusal, 0);
                    return Ended::Failed(refusal.reason);
                }
                Some(Broken::Idle) => return Ended::Idle,
                Some(Broken::Stopped) => return Ended::Stopped,
                Some(Broken::Client | Broken::Upstream) => return Ended::Broken,
            }
        }
    }

    /// Reads the head of the next request; `None` when the client is done.
    fn head(
        &self,
        client: &mut Side,
        ahead: &mut Vec<u8>,
        is_first: bool,
    ) -> Result<Option<InspectedHead>, Ended> {
        let connection = self.opened.connection;
        let limits = &connection.shared.limits;
        let patience = if is_first {
            limits.head_time
        } else {
            KEPT_TIME.min(limits.idle_time)
        };
        let mut deadline = Instant::now() + patience;
        let mut begun = !ahead.is_empty();
        let default_port = if client.is_secure() { 443 } else { 80 };
        loop {
            let (target, form) = (self.opened.target, self.opened.form);
            match InspectedHead::parse(ahead, target, default_port, form) {
                Ok(Some(head)) => return Ok(Some(head)),
                Ok(None) if ahead.len() >= limits.head_bytes => {
                    let refusal = Refusal::plain(Reason::HeadTooLarge);
                    return Err(self.refuse(client, &refusal));
                }
                Ok(None) => {}
                Err(error) => {
                    let refusal = Refusal {
                        detail: Some(error.to_string()),
                        ..Refusal::plain(error.reason())
                    };
                    return Err(self.refuse(client, &refusal));
                }
            }
            match more(client, ahead, connection, deadline) {
                Ok(()) => {}
                Err(Ended::Finished | Ended::Idle) if !begun => return Ok(None),
                Err(Ended::Idle) => {
                    let refusal = Refusal::plain(Reason::HeadTimeout);
                    return Err(self.refuse(client, &refusal));
                }
                Err(Ended::Finished) => return Err(Ended::Broken),
                Err(ended) => return Err(ended),
            }
            if !begun {
                begun = true;
                deadline = Instant::now() + limits.head_time;
            }
        }
    }

    /// Judges a request by the policy in force, and puts in what its host is to be told.
    fn judge(&self, client: &Side, mut head: InspectedHead) -> Result<Passed, Refusal> {
        let target = self.opened.target;
        let policy = self.opened.connection.shared.policy.current();
        let (path, _) = split_query(&head.target);
        let path = path.to_owned();
        let method = head.method.clone();
        let refused = |reason: Reason, rule: Option<String>, detail: Option<String>| Refusal {
            rule,
            detail,
            request: Some(Box::new(RefusedRequest {
                method: method.clone(),
                path: told(&path),
            })),
            ..Refusal::plain(reason)
        };
        if !is_still_allowed(&policy, target, self.opened.permit.reason, None) {
            return Err(refused(Reason::NotListed, None, None));
        }
        if let Some(name) = client.server_name()
            && Host::parse(name.as_bytes()).ok().as_ref() != Some(&target.host)
        {
            return Err(refused(Reason::NameMismatch, None, Some(name.to_owned())));
        }
        if RequestRules::is_never(&method) {
            let why = format!("{method} is let through by no rule");
            return Err(refused(Reason::RequestRefused, None, Some(why)));
        }
        let asked = Asked {
            method: &head.method,
            target: &head.target,
            websocket: head.websocket,
        };
        let verdict = policy.requests.decide(&target.host, target.port, &asked);
        let rule = match verdict {
            RequestVerdict::Free => None,
            RequestVerdict::Passed { rule } if head.overrides => {
                let why = "a field of it says that another method is meant".to_owned();
                let rule = Some(rule.to_string());
                return Err(refused(Reason::RequestAmbiguous, rule, Some(why)));
            }
            RequestVerdict::Passed { rule } => Some(rule.to_string()),
            RequestVerdict::Refused { rule, ambiguous } => {
                let (reason, why) = match ambiguous {
                    Some(why) => (Reason::RequestAmbiguous, why.to_string()),
                    None => (Reason::RequestRefused, rule.speaker.clone()),
                };
                return Err(refused(reason, Some(rule.to_string()), Some(why)));
            }
        };
        let transport = if client.is_secure() {
            Transport::Verified
        } else {
            Transport::Plain
        };
        let secrets = match policy.brokers.lend(&mut head, target, transport) {
            Lent::Names(names) => names,
            Lent::Elsewhere(name) => {
                return Err(refused(Reason::PlaceholderElsewhere, None, Some(name)));
            }
        };
        Ok(Passed {
            screen: policy.brokers.screen(target),
            head,
            path: told(&path),
            method,
            rule,
            secrets,
        })
    }

    /// Carries a request and its answer; once more where the host had hung up in between.
    fn exchange(
        &mut self,
        client: &mut Side,
        ahead: &mut Vec<u8>,
        passed: &Passed,
    ) -> Result<Exchanged, Refusal> {
        let shared = self.opened.connection.shared;
        let is_safe = matches!(passed.method.as_str(), "GET" | "HEAD" | "OPTIONS")
            && passed.head.body.is_over();
        loop {
            let is_fresh = self.connect(client.is_secure())?;
            let Some(upstream) = &mut self.upstream else {
                return Err(Refusal::plain(Reason::DialFailed));
            };
            let exchange = Exchange {
                client: &mut *client,
                upstream: &mut upstream.side,
                ahead: &mut *ahead,
                body: passed.head.body.clone(),
                to: AnswerTo {
                    body: match passed.method.as_str() {
                        "HEAD" => BodyAllowed::No,
                        _ => BodyAllowed::Yes,
                    },
                    keeps: passed.head.keeps && self.opened.form == TargetForm::Origin,
                    websocket: passed.head.websocket,
                    screen: passed.screen.as_ref().filter(|one| !one.is_empty()),
                },
                limits: &shared.limits,
                stop: &shared.stop,
            };
            let exchanged = exchange.run(passed.head.write());
            let is_stale = exchanged.broken == Some(Broken::Unanswered) && !exchanged.heard;
            if is_stale && is_safe && !is_fresh {
                self.upstream = None;
                continue;
            }
            return Ok(exchanged);
        }
    }

    /// Sees to a connection to the host; tells whether it is a fresh one.
    fn connect(&mut self, is_secure: bool) -> Result<bool, Refusal> {
        if let Some(upstream) = &mut self.upstream {
            // Whatever it says unasked, and its end above all, makes it useless.
            let mut byte = [0];
            if !upstream.live.is_revoked() && matches!(upstream.side.read(&mut byte), Ok(None)) {
                return Ok(false);
            }
        }
        self.upstream = None;
        let connection = self.opened.connection;
        let shared = connection.shared;
        let target = self.opened.target;
        let (socket, address) = connection.dial(self.opened.permit)?;
        self.address = Some(address);
        let socket = Arc::new(socket);
        let live = shared.register(
            connection.number,
            (&connection.client, &socket),
            (target, self.opened.permit.reason, address.ip()),
            true,
        );
        let side = if is_secure {
            self.verify(socket)?
        } else {
            Side::new(socket, Vec::new(), None)
        };
        self.upstream = Some(Upstream { side, live });
        Ok(true)
    }

    /// Agrees on TLS with the host, and verifies it.
    fn verify(&self, socket: Arc<TcpStream>) -> Result<Side, Refusal> {
        let shared = self.opened.connection.shared;
        let refused = |why: String| Refusal {
            detail: Some(why),
            ..Refusal::plain(Reason::UpstreamTls)
        };
        let Some(Termination { client, .. }) = &shared.termination else {
            return Err(refused("there is nothing to verify it by".to_owned()));
        };
        let name = match &self.opened.target.host {
            Host::Name(name) => ServerName::try_from(name.as_str().to_owned())
                .map_err(|error| refused(error.to_string()))?,
            Host::Address(address) => ServerName::IpAddress((*address).into()),
        };
        let tls = ClientConnection::new(Arc::clone(client), name)
            .map_err(|error| refused(error.to_string()))?;
        let mut side = Side::new(socket, Vec::new(), Some(Box::new(tls.into())));
        let deadline = Instant::now() + shared.limits.dial_time;
        match side.agree(&shared.stop, deadline) {
            Ok(()) => Ok(side),
            Err(Disagreed::Tls(why)) => Err(refused(why)),
            Err(Disagreed::Gone) => Err(refused("it hung up".to_owned())),
            Err(Disagreed::Late) => Err(Refusal::plain(Reason::DialTimeout)),
            Err(Disagreed::Stopped) => Err(Refusal::plain(Reason::Stopping)),
        }
    }

    fn requested(&self, passed: &Passed, exchanged: &Exchanged) {
        let target = self.opened.target;
        let event = NetEvent::Requested(NetRequest {
            connection: self.opened.connection.number,
            host: host_text(&target.host),
            port: target.port,
            method: passed.method.clone(),
            path: passed.path.clone(),
            rule: passed.rule.clone(),
            secrets: passed.secrets.clone(),
            status: exchanged.status,
            sent: exchanged.sent,
            received: exchanged.received,
        });
        self.opened.connection.shared.emit(event);
    }

    /// Tells the observer of a refusal; gives how often it was given.
    fn tell(&self, refusal: &Refusal) -> u32 {
        let opened = &self.opened;
        opened
            .connection
            .emit_refusal(opened.protocol, None, None, Some(opened.target), refusal)
    }

    /// Tells observer and client of a refusal.
    fn refuse(&self, client: &mut Side, refusal: &Refusal) -> Ended {
        let repeated = self.tell(refusal);
        self.answer(client, refusal, repeated);
        Ended::Failed(refusal.reason)
    }

    /// Writes the last thing that the client hears.
    fn answer(&self, client: &mut Side, refusal: &Refusal, repeated: u32) {
        let connection = self.opened.connection;
        let stop = &connection.shared.stop;
        let bytes = http_answer(refusal, Some(self.opened.target), repeated);
        let deadline = Instant::now() + ANSWER_TIME;
        let mut rest = bytes.as_slice();
        loop {
            match client.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(_) => return,
            }
            if rest.is_empty() && !client.has_unsent() {
                break;
            }
            let socket = client.socket().as_fd();
            if wait_for(socket, PollFlags::OUT, stop.as_fd(), deadline).is_err() {
                return;
            }
        }
        client.say_end();
        close_gently(&connection.client, stop);
    }
}

/// Reads more; `Finished` means that the client has ended, `Idle` that it took too long.
fn more(
    side: &mut Side,
    bytes: &mut Vec<u8>,
    connection: &Connection<'_>,
    deadline: Instant,
) -> Result<(), Ended> {
    let stop = &connection.shared.stop;
    let mut piece = [0; 8 * 1024];
    loop {
        // A client that trickles bytes is always ready: the deadline has to be looked at here too.
        if Instant::now() >= deadline {
            return Err(Ended::Idle);
        }
        match side.read(&mut piece) {
            Ok(Some(0)) => return Err(Ended::Finished),
            Ok(Some(count)) => {
                bytes.extend_from_slice(&piece[..count]);
                return Ok(());
            }
            Ok(None) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(Ended::Finished);
            }
            Err(_) => return Err(Ended::Broken),
        }
        let _ = side.flush();
        match wait_for(side.socket().as_fd(), PollFlags::IN, stop.as_fd(), deadline) {
            Ok(()) => {}
            Err(WaitEnd::Deadline) => return Err(Ended::Idle),
            Err(WaitEnd::Stopped) => return Err(Ended::Stopped),
            Err(WaitEnd::Broken) => return Err(Ended::Broken),
        }
    }
}

fn told(path: &str) -> String {
    path.chars()
        .take(TOLD_PATH)
        .flat_map(char::escape_default)
        .collect()
}

/// Tells whether single requests to a target have to be seen.
pub(crate) fn is_seen(policy: &EgressPolicy, target: &HostPort) -> bool {
    policy.requests.are_about(&target.host, target.port) || policy.brokers.are_for(target)
}
