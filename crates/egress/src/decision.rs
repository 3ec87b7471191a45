//! What the proxy tells its observer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Is told every event, on the thread of the connection, before the effect that the event is about.
pub type Observer = Arc<dyn Fn(NetEvent) + Send + Sync>;

/// How the client asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// An HTTP request in absolute form.
    Http,
    /// A tunnel by `CONNECT`.
    Connect,
    /// A tunnel by SOCKS5.
    Socks5,
    /// The client never said anything that could be read.
    Unknown,
}

/// Whether the connection may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may.
    Allowed,
    /// It may not.
    Refused,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal;)*) => {
        /// Names why a connection was allowed, refused or failed; the words are published and stand
        /// in the header `x-cofferdam-reason`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Reason {
            $($(#[$doc])* #[doc = concat!("\n\nWritten `", $text, "`.")] #[serde(rename = $text)] $name,)*
        }

        impl Reason {
            /// Gives the word itself.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Gives the HTTP status of an answer with this reason.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }
        }
    };
}

reasons! {
    /// A rule allows it.
    Listed = "listed", 200;
    /// A `reach` grant allows it.
    Reach = "reach", 200;
    /// Somebody who may was asked and allowed it.
    Answered = "answered", 200;
    /// No rule allows it.
    NotListed = "not_listed", 403;
    /// A rule denies it.
    DeniedRule = "denied_rule", 403;
    /// The address, or every address of the name, is of a kind that is not reached by name.
    AddressRefused = "address_refused", 403;
    /// Somebody was asked and refused.
    AnsweredNo = "answered_no", 403;
    /// Somebody was asked and did not answer in time.
    Unanswered = "unanswered", 403;
    /// What stands for a host is none.
    InvalidHost = "invalid_host", 400;
    /// The request cannot be read, or could be read in two ways.
    BadRequest = "bad_request", 400;
    /// The request names no host: it is meant for an origin server.
    OriginForm = "origin_form", 400;
    /// The scheme of the request is not `http`.
    UnsupportedScheme = "unsupported_scheme", 400;
    /// The client speaks a protocol, or asks for a command, that the proxy does not have.
    UnsupportedProtocol = "unsupported_protocol", 400;
    /// The head is longer than the limit.
    HeadTooLarge = "head_too_large", 431;
    /// The client took too long to say what it wants.
    HeadTimeout = "head_timeout", 408;
    /// More connections than the limit.
    TooManyConnections = "too_many_connections", 503;
    /// The name does not resolve.
    ResolveFailed = "resolve_failed", 502;
    /// No address of the host took the connection.
    DialFailed = "dial_failed", 502;
    /// No address of the host answered in time.
    DialTimeout = "dial_timeout", 504;
    /// The host's answer cannot be read, or ended before its head did.
    UpstreamInvalid = "upstream_invalid", 502;
    /// The host could not be verified, or does not speak TLS as it must.
    UpstreamTls = "upstream_tls", 502;
    /// Rules over requests let the request not through.
    RequestRefused = "request_refused", 403;
    /// A request to a host with rules, or with a secret, that could be read in two ways.
    RequestAmbiguous = "request_ambiguous", 400;
    /// The placeholder of a secret was sent to a host that the secret is not for.
    PlaceholderElsewhere = "placeholder_elsewhere", 403;
    /// The client named another host within TLS than the one that it asked for.
    NameMismatch = "name_mismatch", 421;
    /// A tunnel to a host whose requests have to be seen carries neither TLS nor HTTP.
    NotInspectable = "not_inspectable", 403;
    /// The client did not go on with TLS: mostly it does not trust the authority of the place.
    ClientTls = "client_tls", 400;
    /// The proxy ends.
    Stopping = "stopping", 503;
}

impl std::fmt::Display for Reason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One decision about one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetDecision {
    /// Counts the connections of this proxy, from 1.
    pub connection: u64,
    /// The client's end of its connection, as the listener's namespace has it.
    pub client: Option<SocketAddr>,
    /// How it asked.
    pub protocol: Protocol,
    /// The method of an HTTP request.
    pub method: Option<String>,
    /// The path of a request that was refused, without its query.
    pub path: Option<String>,
    /// The host in its one spelling; as the client wrote it, escaped, where it is none.
    pub host: Option<String>,
    /// The port.
    pub port: Option<u16>,
    /// Whether its single requests are seen: TLS ends in the proxy then.
    pub inspected: bool,
    /// Whether it may go on.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The addresses that passed, or those that were refused, in the order of the resolver.
    pub addresses: Vec<IpAddr>,
    /// More about a refusal, as a sentence.
    pub detail: Option<String>,
    /// How often this proxy gave this refusal for this host, port and reason, this time included;
    /// 0 when allowed.
    pub repeated: u32,
}

/// How an allowed connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Both sides were done.
    Finished,
    /// One side vanished or broke the protocol.
    Broken,
    /// Nothing moved for the idle limit.
    Idle,
    /// The rules were replaced and no longer allow it.
    Revoked,
    /// The proxy ended.
    Stopped,
    /// The host could not be reached, or its answer could not be read.
    Failed(Reason),
}

/// One request that was passed on to a host whose requests are seen, and the head of its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetRequest {
    /// The number of the connection, as in its [`NetDecision`].
    pub connection: u64,
    /// The host in its one spelling.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The method.
    pub method: String,
    /// The path, without its query.
    pub path: String,
    /// The rule that let it through, where rules are about the host.
    pub rule: Option<String>,
    /// Names of the secrets that the host was told.
    pub secrets: Vec<String>,
    /// The status of the answer, where one came.
    pub status: Option<u16>,
    /// Bytes of the request after its head.
    pub sent: u64,
    /// Bytes of the answer that the client was given, head included.
    pub received: u64,
}

/// The end of a connection that was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetClosed {
    /// The number of the connection, as in its [`NetDecision`].
    pub connection: u64,
    /// The host in its one spelling.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The address that took the connection.
    pub address: Option<SocketAddr>,
    /// How it ended.
    pub ended: Ended,
    /// Bytes from the client to the host.
    pub sent: u64,
    /// Bytes from the host to the client.
    pub received: u64,
    /// Milliseconds from the decision to the end.
    pub elapsed_ms: u64,
}

/// What the proxy tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NetEvent {
    /// A connection was decided; nothing has left the machine for it yet, a lookup of a name that
    /// a rule or an answer allows apart.
    Decided(NetDecision),
    /// A request of a connection whose requests are seen was carried.
    Requested(NetRequest),
    /// A connection that was allowed ended.
    Closed(NetClosed),
}
