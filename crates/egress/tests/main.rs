//! The proxy with real sockets, as clients and its owner meet it.

#[path = "main/brokering.rs"]
mod brokering;
#[path = "main/exchange.rs"]
mod exchange;
#[path = "main/fixture.rs"]
mod fixture;
#[path = "main/hold.rs"]
mod hold;
#[path = "main/inspect.rs"]
mod inspect;
#[path = "main/load.rs"]
mod load;
#[path = "main/tls.rs"]
mod tls;
#[path = "main/tunnel.rs"]
mod tunnel;
#[path = "main/verdict.rs"]
mod verdict;
