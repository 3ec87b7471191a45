//! The allow-list proxy: the one way from an enclosure with a restricted network to the world.
//!
//! [`Proxy::start`] serves HTTP requests in absolute form, `CONNECT` tunnels and SOCKS5 on one
//! listener, which the caller made and which may stand in another network namespace. For every
//! connection the host is parsed, judged by the current [`EgressPolicy`], resolved once, each
//! address it leads to is judged too, and one of the addresses that passed is dialled: what was
//! checked is what is reached. Whatever is refused is told to the client (host, reason, the line
//! that would allow it) and to the observer, before anything leaves the machine.
//!
//! The crate decides nothing itself: rules come from [`cofferdam_core::hosts`], questions go to
//! whoever the caller names. It starts threads, no processes, and knows no async runtime.
//!
//! ```
//! use std::net::TcpListener;
//!
//! use cofferdam_core::hosts::HostRules;
//! use cofferdam_egress::{EgressPolicy, Proxy, ProxyOptions};
//!
//! let listener = TcpListener::bind("127.0.0.1:0").unwrap();
//! let rules = HostRules::parse(["**.example.com:443"], ["tracker.example.com"]).unwrap();
//! let proxy = Proxy::start(ProxyOptions::new(listener, EgressPolicy::of_rules(rules))).unwrap();
//! proxy.replace(EgressPolicy::default());
//! assert_eq!(proxy.stop().left, 0);
//! ```
//!
//! What it does not do: look into TLS (a tunnel to an allowed host may carry a request for another
//! name served there), serve DNS (inside an enclosure names do not resolve, clients must let the
//! proxy resolve: `socks5h`, `CONNECT`), relay UDP.

mod authority;
mod body;
mod broker;
mod chunked;
mod connection;
mod decision;
mod dial;
mod error;
mod gate;
mod head;
mod hold;
mod inspect;
mod limits;
mod policy;
mod proxy;
mod refusal;
mod relay;
mod response;
mod socks;
mod wait;

pub use authority::{RunAuthority, Termination};
pub use body::BodyFraming;
pub use broker::{Broker, Brokers, SecretError, SecretPlace, SecretValue};
pub use chunked::ChunkedEnd;
pub use decision::{
    Ended, NetClosed, NetDecision, NetEvent, NetRequest, Observer, Protocol, Reason, Verdict,
};
pub use dial::{Dialer, Resolver, SystemDialer, SystemResolver};
pub use error::EgressError;
pub use head::{HeadError, RequestHead, RequestTarget};
pub use hold::{Ask, AskAnswer, AskRequest};
pub use inspect::{InspectedHead, TargetForm};
pub use limits::Limits;
pub use policy::EgressPolicy;
pub use proxy::{Proxy, ProxyHandle, ProxyOptions, Stopped};
pub use socks::{SocksError, SocksGreeting, SocksRequest, SocksTarget};
